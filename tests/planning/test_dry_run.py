"""What requests lead to: the whole course of deletions and moves, and what does not come to an end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from controller.core.context import CoreSettings
from controller.core.effects import StoredNode, TopicInfo
from controller.core.model import Attribution, LeaderAndIsr, Maintenance
from controller.core.requests.api import ControllerRequest
from controller.core.requests.configs import (
    AlterConfigs,
    ConfigAlteration,
    ConfigChange,
    ConfigResource,
    ConfigScope,
)
from controller.core.requests.reassignment import AlterPartitionReassignments, PartitionReassignment
from controller.core.requests.topics import CreateTopics, DeleteTopics, NewTopic, TopicRef
from controller.planning.dry_run import AT_ONCE, DELETED, IN_SYNC, DryRunTrace, trace
from controller.planning.snapshot import Snapshot
from tests.support.planning.clusters import Small, smalls

TOPIC, MARKER = "/brokers/topics/t", "/admin/delete_topics/t"
STATE = f"{TOPIC}/partitions/0/state"


def cluster(*alive: int, isr: tuple[int, ...] = (1, 2)) -> Snapshot:
    """Of topic t one partition, on brokers 1 and 2."""
    return Small(alive, {("t", 0): ((1, 2), 1, isr)}).snapshot()


def delete(*names: str) -> DeleteTopics:
    return DeleteTopics([TopicRef(name) for name in names])


def move(*replicas: int) -> AlterPartitionReassignments:
    return AlterPartitionReassignments([PartitionReassignment("t", 0, replicas or None)])


def written(made: DryRunTrace) -> list[tuple[str, str, bool]]:
    """When, where, and whether something is there afterwards."""
    return [(p.when, w.path, w.new is not None) for p in made.phases for w in p.writes]


def test_a_deletion_is_played_to_its_end() -> None:
    made = trace(cluster(1, 2), [delete("t")])
    first, *_, last = written(made)
    assert (first, last) == ((AT_ONCE, MARKER, True), (DELETED, MARKER, False))
    gone = [path for when, path, there in written(made) if when == DELETED and not there]
    assert gone == [STATE, f"{TOPIC}/partitions/0", f"{TOPIC}/partitions", TOPIC, MARKER]
    assert [phase.when for phase in made.phases] == [AT_ONCE, DELETED]
    assert {b: notified.get("StopReplica") for b, notified in made.phases[0].pushes.items()} == {1: 1, 2: 1}
    assert made.notes == ()


def test_a_deletion_that_a_dead_broker_holds_up_says_so() -> None:
    made = trace(cluster(1), [delete("t")])
    assert {when for when, _, _ in written(made)} == {AT_ONCE}
    (note,) = [n for n in made.notes if "deletion" in n]
    assert note == "the deletion of t waits: replica 2 of t-0: its broker or disk is not online"


def test_a_leader_that_may_not_expand_its_isr_holds_up_no_other_s_move() -> None:
    """The replica that t-1 waits for is on a broker that shuts down."""
    small = Small((1, 2, 3, 4), {("t", 0): ((1, 2), 1, (1, 2)), ("t", 1): ((2, 4, 1), 2, (2, 1))})
    snapshot = small.snapshot()
    begun = replace(snapshot.topics["t"], adding={1: (4,)}, removing={1: (1,)})
    snapshot = replace(snapshot, topics={"t": begun}, shutting_down=frozenset({4}))
    moves = [PartitionReassignment("t", 0, (1, 3)), PartitionReassignment("t", 1, (2, 4))]
    made = trace(snapshot, [AlterPartitionReassignments(moves)])
    assert [phase.when for phase in made.phases] == [AT_ONCE, IN_SYNC, DELETED]
    assert "t-1: target 4 is not in the ISR [2, 1]: its broker is shutting down" in made.notes


def test_a_move_is_played_through_both_phases() -> None:
    made = trace(cluster(1, 2, 3), [move(3, 2)])
    assert [phase.when for phase in made.phases] == [AT_ONCE, IN_SYNC, DELETED]
    topics = [w.new for phase in made.phases for w in phase.writes if isinstance(w.new, TopicInfo)]
    assert [(i.partitions[0], i.adding, i.stray) for i in topics][-1] == ((3, 2), {}, {})
    states = [w.new for phase in made.phases for w in phase.writes if isinstance(w.new, LeaderAndIsr)]
    assert (states[-1].leader, set(states[-1].isr)) == (3, {2, 3})
    assert made.phases[1].pushes[1]["StopReplica"] == 1
    assert made.notes == ()


def test_the_present_replicas_get_the_state_anew() -> None:
    made = trace(cluster(1, 2), [move(1, 2)])
    assert [(when, path) for when, path, _ in written(made)] == [(AT_ONCE, STATE)]
    assert {b: pushed["LeaderAndIsr"] for b, pushed in made.phases[0].pushes.items()} == {1: 1, 2: 1}


def test_a_move_to_a_broker_that_is_shutting_down_says_what_it_waits_for() -> None:
    there = replace(cluster(1, 2, 3), shutting_down=frozenset({3}))
    made = trace(there, [move(3, 2)])
    assert [type(reply).__name__ for reply in made.replies] == ["AlterPartitionReassignmentsReply"]
    assert "not live brokers" in made.replies[0].partitions[0].message  # type: ignore[attr-defined]
    assert made.phases == ()


def test_a_move_that_has_to_wait_for_room_says_so() -> None:
    there = replace(cluster(1, 2, 3), settings=CoreSettings(reassignment_concurrent_moves_max=1))
    there = replace(
        there,
        topics={
            **there.topics,
            "other": TopicInfo("other", "o" * 22, {0: (3, 1)}, {0: (3,)}, {0: (1,)}, 1, 0),
        },
        states={**there.states, ("other", 0): LeaderAndIsr(1, 1, (1,), 0, 1)},
    )
    made = trace(there, [move(3, 2)])
    assert {when for when, _, _ in written(made)} == {AT_ONCE}
    (why,) = [note for note in made.notes if note.startswith("t-0: ")]
    assert why == (
        "t-0: the move to [3, 2] waits: 1 move is ongoing, and reassignment_concurrent_moves_max is 1"
    )


def test_a_cancelled_move_deletes_what_was_copied() -> None:
    there = cluster(1, 2, 3)
    info = replace(there.topics["t"], partitions={0: (3, 2, 1)}, adding={0: (3,)}, removing={0: (1,)})
    made = trace(replace(there, topics={"t": replace(info, original={0: (1, 2)})}), [move()])
    assert [phase.when for phase in made.phases] == [AT_ONCE, DELETED]
    topics = [w.new for phase in made.phases for w in phase.writes if isinstance(w.new, TopicInfo)]
    assert (topics[-1].partitions[0], topics[-1].stray) == ((1, 2), {})


def test_in_maintenance_a_deletion_waits() -> None:
    there = replace(cluster(1, 2), maintenance=Maintenance(entered=Attribution("new disks", "ann")))
    made = trace(there, [delete("t")])
    assert written(made) == [(AT_ONCE, MARKER, True)]
    assert any("in maintenance, entered by ann: new disks" in note for note in made.notes)


def test_what_is_watched_is_acted_on() -> None:
    """A topic that may be led uncleanly from now on is."""
    there = cluster(2, isr=(1,))
    there = replace(there, states={("t", 0): LeaderAndIsr(-1, 3, (1,), 5, 1)})
    change = ConfigChange("unclean.leader.election.enable", "true")
    made = trace(there, [AlterConfigs([ConfigAlteration(ConfigResource(ConfigScope.TOPIC, "t"), [change])])])
    assert [path for _, path, _ in written(made)] == [
        "/config/topics/t",
        "/config/changes/config_change_",
        STATE,
    ]
    assert made.phases[0].writes[-1].new.leader == 2  # type: ignore[attr-defined]


def test_a_configuration_that_is_there_already_is_replaced() -> None:
    there = replace(cluster(1, 2), nodes={"/config/topics/new": StoredNode({"left": "over"}, 7)})
    made = trace(there, [CreateTopics([NewTopic("new", 1, 1, {}, {})])])
    old = {w.path: w.old for phase in made.phases for w in phase.writes}
    assert old["/config/topics/new"] == StoredNode({"left": "over"}, 7)
    assert [f"/brokers/topics/new/partitions{rest}" in old for rest in ("", "/0", "/0/state")] == [True] * 3


@pytest.mark.parametrize("request_", [delete("nope"), move(1, 1), move(9)])
def test_what_is_refused_writes_nothing(request_: ControllerRequest) -> None:
    made = trace(cluster(1, 2), [request_])
    assert (made.phases, len(made.replies)) == ((), 1)


@given(smalls(settled=True))
def test_a_settled_cluster_loses_its_topics_whole(small: Small) -> None:
    """Whatever it looks like: nothing of the topics is left, and the markers go last."""
    snapshot = small.snapshot()
    made = trace(snapshot, [delete(*snapshot.topics)])
    left = {w.path: w.new for phase in made.phases for w in phase.writes}
    assert {path for path, new in left.items() if new is not None} <= {"/cluster/id"}
    assert left.keys() >= {f"/brokers/topics/{name}" for name in snapshot.topics}
    assert made.notes == ()


def test_a_move_of_a_partition_that_nobody_leads_does_not_come_into_sync() -> None:
    snapshot = Small((3,), {("t", 0): ((1, 2), -1, (1,))}).snapshot()
    made = trace(snapshot, [move(1, 3)])
    assert [phase.when for phase in made.phases] == [AT_ONCE]


def test_a_move_of_a_partition_without_a_state_does_not_come_into_sync() -> None:
    snapshot = replace(Small((3,), {("t", 0): ((1, 2), 1, (1,))}).snapshot(), states={})
    made = trace(snapshot, [move(1, 2)])
    assert IN_SYNC not in {phase.when for phase in made.phases}


def test_who_has_its_disk_comes_into_sync_and_another_does_not() -> None:
    snapshot = replace(cluster(1, 2, 3, 4), offline_dirs={4: frozenset({("t", 0)})})
    made = trace(snapshot, [move(1, 3, 4)])
    (state,) = [w.new for p in made.phases for w in p.writes if p.when == IN_SYNC and w.path == STATE]
    assert isinstance(state, LeaderAndIsr)
    assert set(state.isr) == {1, 2, 3}


def test_leaders_propose_in_the_order_of_their_ids() -> None:
    small = Small((1, 2, 3), {("t", 0): ((2,), 2, (2,)), ("t", 1): ((1,), 1, (1,))})
    moves = [PartitionReassignment("t", number, (leader, 3)) for number, leader in ((0, 2), (1, 1))]
    made = trace(small.snapshot(), [AlterPartitionReassignments(moves)])
    paths = [w.path for p in made.phases if p.when == IN_SYNC for w in p.writes]
    states = [path for path in paths if path.endswith("/state")]
    assert list(dict.fromkeys(states)) == [f"{TOPIC}/partitions/1/state", STATE]


def test_what_is_due_before_is_said() -> None:
    (note,) = trace(cluster(2), [CreateTopics([NewTopic("u")])]).notes
    assert note == "1 write due before that: the cluster is not settled"
