"""Explanations: the rules they show are those of the elections, and every fault is named with what would mend it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, combinations, permutations, product

import pytest

from controller.core.context import CoreSettings
from controller.core.explain.brokers import explain_broker
from controller.core.explain.partitions import (
    PartitionExplanation,
    explain_deletion,
    explain_move,
    explain_partition,
)
from controller.core.explain.remedies import Remedy
from controller.core.model import (
    RECOVERING,
    Attribution,
    Cluster,
    Flapping,
    Ineligible,
    LeaderAndIsr,
    Maintenance,
    Partition,
    PartitionState,
    Topic,
)
from controller.core.partitions.leader_election import STRATEGIES, Ballot, Rule, Strategy, elect
from controller.core.topics.reasons import BeingReassigned, ReplicaNotDeleted, Unreachable
from tests.support.core.world import a_broker, state

SUBSETS = [frozenset(s) for s in chain.from_iterable(combinations((1, 2, 3), n) for n in range(4))]


def cluster_with(
    replicas: Sequence[int], leadership: LeaderAndIsr | None, brokers: Iterable[int], epoch: int = 7
) -> tuple[Cluster, Partition]:
    cluster = Cluster(100, epoch)
    cluster.brokers.update({b: a_broker(b, 50 + b, rack="r1" if b == 1 else None) for b in brokers})
    topic = Topic("t", "id", 1)
    cluster.add_topic(topic)
    partition = topic.partitions[0] = Partition(topic, 0, tuple(replicas))
    partition.leadership = leadership
    return cluster, partition


def explained(
    replicas: Sequence[int],
    leadership: LeaderAndIsr | None,
    brokers: Iterable[int],
    unclean: bool = False,
    active: bool = True,
) -> PartitionExplanation:
    cluster, partition = cluster_with(replicas, leadership, brokers)
    return explain_partition(cluster, partition, unclean_allowed=unclean, controller_active=active)


@pytest.mark.thorough
@pytest.mark.parametrize("unclean", [False, True])
def test_rules_find_whom_the_elections_find(unclean: bool) -> None:
    """Every assignment order, ISR and online subset of three brokers, some shutting down."""
    orders = [order for n in (1, 2, 3) for order in permutations((1, 2, 3), n)]
    for replicas, isr, brokers, leaving in product(orders, orders, SUBSETS, SUBSETS):
        current = state(-1, isr, 3, 5)
        cluster, partition = cluster_with(replicas, current, brokers)
        cluster.shutting_down.update(leaving & brokers)
        found = explain_partition(cluster, partition, unclean_allowed=unclean)
        online = brokers - leaving
        ballot = Ballot(replicas, current, online, unclean_allowed=unclean)
        elected = elect(Strategy.OFFLINE, ballot)
        offline = [r for r in found.rules if r.strategy is Strategy.OFFLINE]
        decided = next((r.leader for r in offline if r.permitted and r.leader >= 0), None)
        assert decided == (elected.leader if elected else None)
        preferred = elect(Strategy.PREFERRED, ballot)
        assert found.rules[2].leader == (preferred.leader if preferred else -1)
        for tried in found.rules:
            assert all((c.unmet is None) == str(c).endswith("qualifies") for c in tried.candidates)


def test_a_strategy_that_is_added_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the elections' own table: explanations know nothing of the strategies it has."""
    drain = STRATEGIES[Strategy.DRAIN]
    monkeypatch.setitem(STRATEGIES, Strategy.DRAIN, drain._replace(explained=True))
    found = explained((1, 2), state(1, (1, 2), 3, 5), (2,))
    assert f"rule 4: {drain.ways[0].text}: 2 qualifies" in found.words()


def test_in_maintenance_mode_no_unclean_election_is_permitted_by_configuration() -> None:
    cluster, partition = cluster_with((1, 2), state(-1, (1,), 3, 5), (2,))
    for entered in (None, Attribution("disks", "ann")):
        cluster.maintenance = Maintenance(entered=entered)
        found = explain_partition(cluster, partition, unclean_allowed=True)
        unclean = [rule for rule in found.rules if rule.way.unclean]
        assert [rule.permitted for rule in unclean] == [entered is None] * len(unclean)
        assert unclean


@pytest.mark.parametrize(("lacking", "all_of_them"), [((), False), ((1,), False), ((1, 2), True)])
def test_only_an_isr_that_lacks_its_data_as_a_whole_is_the_reason_for_no_leader(
    lacking: tuple[int, ...], all_of_them: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, partition = cluster_with((1, 2, 3), state(-1, (1, 2), 3, 5), (1, 3))
    monkeypatch.setattr(Cluster, "without_data", lambda *_: frozenset(lacking))
    summary = explain_partition(cluster, partition, unclean_allowed=False).summary
    assert (summary == "it has no leader") == (not all_of_them)
    assert ("[1, 2], which were in sync, came back without the data they had" in summary) == all_of_them


def test_a_leader_that_lost_the_disk_of_another_partition_leads_this_one() -> None:
    cluster, partition = cluster_with((1, 2), state(1, (1, 2), 3, 5), (1, 2))
    cluster.offline_dirs[1] = {Partition(partition.topic, 1, (1,))}
    assert explain_partition(cluster, partition, unclean_allowed=False).summary == "1 leads it"
    cluster.offline_dirs[1].add(partition)
    lost = explain_partition(cluster, partition, unclean_allowed=False).summary
    assert lost == "its leader 1 has lost the disk it is on"


def test_a_partition_that_is_well() -> None:
    found = explained((1, 2), state(1, (1, 2), 3, 5, controller_epoch=7), (1, 2))
    assert found.words() == [
        "t-0: 1 leads it",
        "replicas [1, 2], in sync [1, 2]",
        "leader epoch 3, partition epoch 5, written under controller epoch 7 (the present one); the event is in that "
        "controller's state-change log",
        "rule 1: the first online replica in the ISR leads: 1 qualifies",
        "rule 2: else the first online replica, in sync or not (unclean): not permitted; 1 qualifies",
        "rule 3: the preferred replica leads, when asked for: 1 qualifies",
    ]
    assert found.changes == ()


def test_the_leader_s_disk_counts_whoever_is_preferred() -> None:
    cluster, partition = cluster_with((1, 2), state(2, (1, 2), 3, 5), (1, 2))
    cluster.offline_dirs[1] = {partition}
    assert explain_partition(cluster, partition, unclean_allowed=False).summary == "2 leads it"
    cluster.offline_dirs = {2: {partition}}
    found = explain_partition(cluster, partition, unclean_allowed=False).summary
    assert found == "its leader 2 has lost the disk it is on"


def test_who_is_gone_and_was_not_in_sync_does_not_lead_at_once() -> None:
    found = explained((1, 2, 3), state(-1, (2,), 3, 5), (3,))
    assert found.changes[0] == "the return of any of [2] (ISR [2]): it leads at once, nothing is lost"


def test_no_leader_and_what_would_give_one() -> None:
    found = explained((1, 2, 3), state(-1, (2, 1), 3, 5), (3,))
    assert found.summary == "it has no leader"
    assert found.words()[3] == (
        "rule 1: the first online replica in the ISR leads: 1 is not online; 2 is not online; "
        "3 is not in the ISR [2, 1]"
    )
    assert [c.unmet for c in found.rules[0].candidates] == [Rule.ONLINE, Rule.ONLINE, Rule.IN_SYNC]
    assert (found.rules[1].permitted, found.rules[1].leader) == (False, 3)
    assert found.changes == (
        "the return of any of [1, 2] (ISR [2, 1]): it leads at once, nothing is lost",
        "unclean.leader.election.enable=true for topic t: 3 leads, and records that only [2, 1] hold are lost",
        "pctl elect unclean --partition t-0: 3 leads, and records that only [2, 1] hold are lost",
    )
    permitted = explained((1, 2, 3), state(-1, (2, 1), 3, 5), (3,), unclean=True)
    assert permitted.changes == ("an election: 3 qualifies uncleanly, and the controller will elect it",)


def test_advice_ends_all_that_keeps_the_controller_from_acting() -> None:
    cluster, partition = cluster_with((1, 2), None, ())
    who = Attribution("why", "who")
    for paused, entered in product((None, who), repeat=2):
        cluster.maintenance = Maintenance(paused=paused, entered=entered)
        advice = explain_partition(cluster, partition, unclean_allowed=False).advice
        ends = {Remedy.RESUME: paused, Remedy.LEAVE: entered}
        expected = frozenset({Remedy.RETURN, *(step for step, mark in ends.items() if mark)})
        assert advice[-1].steps == expected


def test_without_a_controller_nothing_changes_until_one_is_elected() -> None:
    found = explained((1, 2), state(1, (1, 2), 3, 5), (2,), active=False)
    assert found.summary == "its leader 1 is gone, and no new leader is elected yet"
    assert "no controller is active now" in found.decision
    assert found.changes == (
        "a controller that is elected: until then nothing changes",
        "an election: 2 qualifies, and the controller will elect it",
    )


def test_an_election_that_was_given_up_says_where_the_reason_is() -> None:
    cluster, partition = cluster_with((1, 2), state(1, (1, 2), 3, 5), (2,))
    partition.state = PartitionState.OFFLINE
    found = explain_partition(cluster, partition, unclean_allowed=False)
    (change,) = found.changes
    assert change.endswith("elect it; why it has not: pctl history --kind reject --topic t --partition 0")


def test_out_of_sync_and_not_preferred() -> None:
    cluster, partition = cluster_with((1, 2, 3, 4), state(2, (2,), 3, 5), (1, 2, 4))
    cluster.offline_dirs[4] = {partition}
    found = explain_partition(cluster, partition, unclean_allowed=False)
    assert found.summary == "2 leads it; it is under-replicated, [1, 3, 4] not in sync"
    assert found.changes == (
        "preferred replica 1 takes over once this is solved: 1 is not in the ISR [2]",
        "the replica on 1 catches up with 2, which then proposes it for the ISR",
        "broker 3 returns and catches up with 2",
        "the failed disk of broker 4 is repaired",
    )
    cluster.shutting_down.add(1)
    found = explain_partition(cluster, partition, unclean_allowed=False)
    assert "broker 1, which is shutting down, restarts and catches up with 2" in found.changes
    swap = explained((1, 2), state(2, (2, 1), 3, 5, recovery=RECOVERING), (1, 2))
    assert swap.changes == ("a preferred election gives it to 1 (pctl elect)",)
    assert swap.summary == "2 leads it, elected uncleanly and recovering"


def test_a_member_of_the_isr_that_shuts_down_has_nothing_to_catch_up_with() -> None:
    cluster, partition = cluster_with((1, 2), state(1, (1, 2), 3, 5), (1, 2))
    cluster.shutting_down.add(2)
    assert explain_partition(cluster, partition, unclean_allowed=False).changes == ()


def test_the_last_in_sync_replica_that_shuts_down_is_to_restart() -> None:
    cluster, partition = cluster_with((2,), state(-1, (2,), 3, 5), (2, 1))
    cluster.shutting_down.add(2)
    changes = explain_partition(cluster, partition, unclean_allowed=False).changes
    assert "the restart of any of [2], which is shutting down: nothing is lost" in changes


@pytest.mark.parametrize(("isr", "who"), [((2,), 2), ((1,), 3)])
def test_who_is_elected_is_said_also_of_the_end_of_a_pause(isr: tuple[int, ...], who: int) -> None:
    """The first member of the ISR; where none is there, the first replica, uncleanly."""
    cluster, partition = cluster_with((3, 1, 2), state(-1, isr, 3, 5), (2, 3))
    (now,) = explain_partition(cluster, partition, unclean_allowed=True).advice
    assert (now.leader, f"{who} qualifies" in str(now)) == (who, True)
    cluster.maintenance = Maintenance(paused=Attribution("new disks", "ann"))
    (later,) = explain_partition(cluster, partition, unclean_allowed=True).advice
    assert str(later) == f"the end of the pause by ann (new disks): {who} qualifies, and is elected then"
    assert later.leader == who


def test_the_leader_s_disk_failed() -> None:
    cluster, partition = cluster_with((1,), state(1, (1,), 3, 5), (1,))
    cluster.offline_dirs[1] = {partition}
    found = explain_partition(cluster, partition, unclean_allowed=False)
    assert found.summary == "its leader 1 has lost the disk it is on"
    assert found.changes == ("the failed disk of any of [1] is repaired",)


def test_never_led_and_unreadable() -> None:
    found = explained((1, 2), None, ())
    assert found.summary == "it was never led: it has no state yet"
    assert found.decision == "no controller has decided about it; the present controller epoch is 7"
    assert found.changes == ("the return of any of [1, 2]: its first online replicas become the ISR",)
    assert found.rules == ()
    assert (found.leader, found.leader_epoch, found.partition_epoch, found.isr) == (-1, -1, -1, ())
    assert "the controller, which creates" in explained((1,), None, (1,)).changes[0]
    cluster, partition = cluster_with((1,), None, (1,))
    path = "/brokers/topics/t/partitions/0/state"
    cluster.problems[path] = "field leader: expected int"
    found = explain_partition(cluster, partition, unclean_allowed=False)
    assert found.summary == f"its state is unreadable: {path}: field leader: expected int"
    assert found.notes == ()
    cluster.problems["/brokers/topics/t"] = "JSON is malformed"
    (note,) = explain_partition(cluster, partition, unclean_allowed=False).notes
    assert (
        note == "its topic is unreadable, what was read before counts: /brokers/topics/t: JSON is malformed"
    )


def test_a_newer_controller_wrote_it() -> None:
    found = explained((1,), state(1, (1,), 3, 5, controller_epoch=9), (1,))
    assert "controller epoch 9 (newer than the present one, 7: no controller of that epoch" in found.decision


def test_a_deletion_is_explained_by_how_far_it_is() -> None:
    cluster, _ = cluster_with((1,), None, (1,))
    assert explain_deletion(cluster, "t") == ()
    cluster.topics_to_delete.add("t")
    assert explain_deletion(cluster, "t") == ("its topic is being deleted: it is queued",)
    cluster.topics_deletion_started.add("t")
    assert explain_deletion(cluster, "t") == ("its topic is being deleted: brokers were notified",)
    cluster.deletions_ineligible["t"] = Ineligible(ReplicaNotDeleted(2, "t-0", Unreachable.BROKER_GONE))
    assert explain_deletion(cluster, "t") == (
        "its topic is to be deleted; that is held up: replica 2 of t-0: its broker is gone",
    )
    cluster.deletions_waiting["u"] = BeingReassigned("u-0")
    assert explain_deletion(cluster, "u") == ("its topic is to be deleted, later: u-0 is being reassigned",)


def test_a_move_is_explained_by_what_it_waits_for() -> None:
    cluster, partition = cluster_with((1, 2), state(1, (1,), 3, 5), (1,))
    assert explain_move(cluster, CoreSettings(), partition) == ()
    partition.assign((2, 1), (2,), (1,))
    cluster.reassignments.ongoing[partition] = (1,)
    assert explain_move(cluster, CoreSettings(), partition) == (
        "it is being reassigned: adding [2], removing [1]",
        "reassignment: target 2 is not in the ISR [1]: its broker is not registered",
    )


def test_a_move_that_only_removes_is_one_too() -> None:
    """Without a controller, none is known to be ongoing but by its znode."""
    cluster, partition = cluster_with((1, 2), state(1, (1,), 3, 5), (1,))
    partition.assign((1, 2), (), (2,))
    assert (
        explain_move(cluster, CoreSettings(), partition)[0]
        == "it is being reassigned: adding [], removing [2]"
    )


def test_a_broker_is_explained_by_what_it_leads_and_holds() -> None:
    cluster, partition = cluster_with((1, 2), state(2, (2, 1), 3, 5), (1, 2))
    topic = partition.topic
    for number, (replicas, leader, isr) in enumerate(
        [((1, 2), 1, (1, 2)), ((2, 1), 2, (2,)), ((1, 2), -1, (2,))], start=1
    ):
        topic.partitions[number] = Partition(topic, number, replicas)
        topic.partitions[number].leadership = state(leader, isr, 3, 5)
    topic.partitions[4] = Partition(topic, 4, (1,))
    found = explain_broker(cluster, 1)
    assert found.words() == [
        "broker 1: it is online, broker epoch 51, rack r1",
        "leads 1 partition, 1 of the 4 that prefer it; in sync for 2 of 5 replicas",
        "lacks: t-0 prefers it but is led by 2: a preferred election would give it back",
        "lacks: t: 2 partitions have its replica out of sync",
        "lacks: t-4 was never led",
        "would change it: 2 replicas catch up with their leaders, which then propose them for the ISR",
        "would change it: a preferred election gives it 1 more leadership (pctl elect --all)",
    ]
    cluster.shutting_down.add(1)
    found = explain_broker(cluster, 1)
    assert found.summary.startswith("it is shutting down")
    assert found.lacks[0].text == "t-0 prefers it but is led by 2: 1 is shutting down"
    cluster.offline_dirs[2] = {partition}
    assert "t-0 is on a disk that failed" in [lack.text for lack in explain_broker(cluster, 2).lacks]


def test_a_broker_s_leaderships_and_deficits_are_told_topic_by_topic() -> None:
    """What it leads though it prefers another is not led by preference."""
    cluster, _ = cluster_with((1, 2), state(1, (1, 2), 3, 5), (1, 2))
    for name, count in (("u", 1), ("v", 2)):
        topic = Topic(name, f"id of {name}", 1)
        cluster.add_topic(topic)
        for number in range(count):
            partition = topic.partitions[number] = Partition(topic, number, (2, 1))
            partition.leadership = state(1, (1,), 3, 5)
    one, two = explain_broker(cluster, 1), explain_broker(cluster, 2)
    assert (one.leads, one.preferred, one.leads_preferred, one.lacks) == (4, 1, 1, ())
    assert [line for line in two.words() if line.startswith("lacks: ")] == [
        "lacks: u-0: its replica is not in the ISR [1]",
        "lacks: v: 2 partitions have its replica out of sync",
    ]


def test_a_broker_flaps_from_its_second_loss_on() -> None:
    cluster, _ = cluster_with((1,), state(1, (1,), 3, 5), (1,))
    for losses, told in ((1, 0), (2, 1)):
        cluster.flapping = {1: Flapping(losses, 0, 300_000_000)}
        notes = explain_broker(cluster, 1).notes
        assert len(notes) == told
    assert notes[0].endswith("once it is up for 300 s")


def test_unknown_brokers() -> None:
    cluster, _ = cluster_with((1, 2), state(1, (1,), 3, 5), (1,))
    assert explain_broker(cluster, 2).summary == "it is not registered"
    assert explain_broker(cluster, 9).summary == "it is not registered, and no partition is assigned to it"
    cluster.problems["/brokers/ids/9"] = "port = 0"
    assert explain_broker(cluster, 9).summary == "its registration cannot be used: port = 0"


@pytest.mark.parametrize("leader", [1, -1])
def test_of_a_partition_whose_replicas_are_deleted_it_is_said_that_nothing_helps(leader: int) -> None:
    """Its znodes are still there: they could not be deleted yet."""
    found = explained([], state(leader, [1], 5, 7), [1])
    assert list(found.changes) == ["nothing: its replicas are deleted, and what is left of its topic will be"]
