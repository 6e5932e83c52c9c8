"""What the model of the cluster takes up, and what it forgets."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from controller.core.model import (
    RECOVERING,
    Attribution,
    Broker,
    Cluster,
    Endpoint,
    LeaderAndIsr,
    Maintenance,
    Partition,
    PartitionState,
    ReplicaState,
    SuspensionKind,
    Topic,
    broker_ids,
    states,
)
from controller.core.model.cluster import PROBLEMS_SHOWN_MAX
from controller.core.model.reassignments import Ineligible, Reassignments
from controller.core.topics.reasons import CreatedAnew
from controller.core.znode_paths import state_path, topic_config_path
from tests.support.core.world import a_broker, state

GONE, KEPT = (Partition(Topic(name), 0, (1, 2)) for name in ("gone", "kept"))


def test_of_a_topic_that_vanished_no_reassignment_is_known_any_more() -> None:
    known = Reassignments()
    for partition in (GONE, KEPT):
        known.ongoing[partition] = (1,)
        known.queued[partition] = (3,)
        known.problems[partition] = CreatedAnew()
        known.strays[partition] = {4: Ineligible(CreatedAnew())}
        known.in_sync[partition] = None
        known.confirmed[partition] = 5
        known.refusals[partition, 4] = 1
    known.forget([GONE])
    kept: list[Mapping[Partition, object]] = [
        known.ongoing,
        known.queued,
        known.problems,
        known.strays,
        known.in_sync,
        known.confirmed,
    ]
    assert [list(by_partition) for by_partition in kept] == [[KEPT]] * len(kept)
    assert list(known.refusals) == [(KEPT, 4)]
    assert known.abandoned == {("gone", 0)}


def test_queued_moves_begin_in_the_order_in_which_they_were_asked_for() -> None:
    known = Reassignments()
    topic = Topic("t")
    moves = [Partition(topic, number, (1, 2)) for number in (7, 3, 10, 1)]
    known.queued = dict.fromkeys(moves, (3,))
    known.stalled = {moves[1]: Ineligible(CreatedAnew(), 9), moves[2]: Ineligible(CreatedAnew())}
    assert known.in_turn() == [moves[0], moves[2], moves[3]], "but for those that are tried later"


def test_a_stray_replica_that_is_gone_was_never_refused() -> None:
    known = Reassignments()
    for broker_id in (4, 5):
        known.keep_stray(KEPT, broker_id, Ineligible(CreatedAnew()))
        known.refusals[KEPT, broker_id] = 3
    assert [known.drop_stray(KEPT, 4), known.drop_stray(KEPT, 4), known.strays_of(KEPT)] == [
        True,
        False,
        (5,),
    ]
    assert known.refusals == {(KEPT, 5): 3}
    assert known.drop_stray(KEPT, 5)
    assert not known.strays


@pytest.mark.parametrize("count", [2, 40])
def test_who_is_assigned_again_is_not_departing(count: int) -> None:
    """Of few replicas and of many."""
    everyone = tuple(range(count))
    partition = Partition(Topic("t"), 0, everyone)
    for broker_id in everyone:
        partition.set_states([broker_id], ReplicaState.ONLINE)
    partition.reassign(everyone[:-2] or everyone[:1])
    leaving = set(everyone) - set(partition.replicas)
    assert set(partition.departing) == leaving
    partition.assign((*partition.replicas, everyone[-1]))
    assert set(partition.departing) == leaving - {everyone[-1]}


def test_topics_that_were_prepared_come_beside_those_that_are_known() -> None:
    cluster = Cluster(100, 7)
    known, prepared = Topic("known", "id of known"), Topic("prepared", "id of prepared")
    cluster.add_topic(known)
    # One that was made anew since: what has been read now counts.
    former = Topic("known", "former id")
    cluster.adopt(
        {"prepared": prepared, "known": former}, {"id of prepared": prepared, "id of known": former}
    )
    assert cluster.topics == {"known": known, "prepared": prepared}
    assert cluster.topic_by_id("id of known") is known
    assert cluster.topic_by_id("id of prepared") is prepared


def test_replicas_that_leave_one_after_the_other_are_all_known_until_they_are_deleted() -> None:
    partition = Partition(Topic("t"), 0, (1, 2, 3))
    partition.set_states((1, 2, 3), ReplicaState.ONLINE)
    partition.reassign((1, 2))
    partition.reassign((1,))
    assert partition.departing == {2: ReplicaState.ONLINE, 3: ReplicaState.ONLINE}
    partition.set_departing({3: ReplicaState.NON_EXISTENT})
    assert [partition.replica_state(b) for b in (1, 2, 3)] == [
        ReplicaState.ONLINE,
        ReplicaState.ONLINE,
        ReplicaState.NON_EXISTENT,
    ]


def test_a_topic_that_goes_leaves_its_id_to_who_has_it_now() -> None:
    cluster, former, present = Cluster(100, 7), Topic("former", "id"), Topic("present", "id")
    cluster.add_topic(former)
    cluster.add_topic(present)
    cluster.remove_topic("former")
    assert cluster.topic_by_id("id") is present
    cluster.remove_topic("present")
    assert cluster.topic_by_id("id") is None


def test_what_is_shared_is_kept_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, limit in ((broker_ids, "_INTERNED_MAX"), (states, "_SHARED_STATES_MAX")):
        monkeypatch.setattr(module, limit, 3)
    for module, cache in ((broker_ids, "_interned"), (states, "_shared_states"), (states, "_with_state")):
        monkeypatch.setattr(module, cache, {})
    sizes = set()
    for number in range(20):
        broker_ids.interned((number,))
        states.with_state((ReplicaState.ONLINE,) * (number % 10 + 1), 0, ReplicaState.NEW)
        sizes.add((len(broker_ids._interned), len(states._shared_states), len(states._with_state)))
    assert [max(size) for size in zip(*sizes, strict=True)] == [4, 3, 3]


def test_so_many_problems_are_shown() -> None:
    cluster = Cluster(100, 1)
    cluster.problems.update({f"/brokers/topics/{n}": "odd" for n in range(PROBLEMS_SHOWN_MAX + 5)})
    assert cluster.some_problems() == dict(list(cluster.problems.items())[:PROBLEMS_SHOWN_MAX])


@pytest.mark.parametrize(
    ("isr", "min_isr", "spare"), [((1, 2, 3), 2, 1), ((1, 2), 2, 0), ((1,), 2, -1), ((1, 2, 3), 5, 0)]
)
def test_members_beyond_those_that_writes_need(isr: tuple[int, ...], min_isr: int, spare: int) -> None:
    assert state(1, isr).spare((1, 2, 3), min_isr) == spare


@pytest.mark.parametrize(
    ("adding", "isr", "imbalanced"), [((), (1, 2), True), ((2,), (1, 2), True), ((2,), (1,), False)]
)
def test_who_is_being_added_first_misses_the_lead_once_it_is_in_sync(
    adding: tuple[int, ...], isr: tuple[int, ...], imbalanced: bool
) -> None:
    partition = Partition(Topic("t"), 0, (2, 1), adding)
    partition.leadership = state(1, isr)
    assert Cluster(100, 1).is_imbalanced(partition) is imbalanced


# --- brokers ---------------------------------------------------------------------------------------------------

GRPC, PLAINTEXT = Endpoint("GRPC", "GRPC", "host", 9001), Endpoint("PLAINTEXT", "PLAINTEXT", "host", 9002)


def test_a_broker_is_told_at_its_grpc_listener_wherever_that_is_in_the_list() -> None:
    assert Broker(1, 1, (PLAINTEXT, GRPC)).control_endpoint is GRPC
    assert Broker(1, 1, (PLAINTEXT,)).control_endpoint is PLAINTEXT


@pytest.mark.parametrize(
    ("endpoint", "registration", "known"), [(PLAINTEXT, 4, False), (PLAINTEXT, 5, True), (GRPC, 4, True)]
)
def test_only_kafka_brokers_may_not_know_topic_ids(
    endpoint: Endpoint, registration: int, known: bool
) -> None:
    assert Broker(1, 1, (endpoint,), registration=registration).knows_topic_ids is known


def test_replicas_that_cannot_fetch_from_each_other_are_named_by_what_they_are() -> None:
    cluster = Cluster(100, 1)
    cluster.brokers = {1: a_broker(1, 1), 2: Broker(2, 2, (PLAINTEXT,)), 3: a_broker(3, 3)}
    assert cluster.strangers([3, 2, 1]) == (
        "Kafka brokers [2] and brokers led by gRPC [3, 1] cannot replicate from each other"
    )
    assert [cluster.strangers(ids) for ids in ([1, 3], [2, 9], [9], [])] == [""] * 4


# --- partitions ------------------------------------------------------------------------------------------------


def test_a_failed_disk_takes_its_broker_out_of_its_own_partitions_alone() -> None:
    cluster, live = Cluster(100, 1), frozenset({1, 2})
    cluster.offline_dirs = {1: {GONE}}
    assert [sorted(cluster.online_set(partition, live)) for partition in (GONE, KEPT)] == [[2], [1, 2]]


def test_topics_may_change_while_all_partitions_are_walked() -> None:
    cluster = Cluster(100, 1)
    for name in ("a", "b"):
        topic = Topic(name)
        topic.partitions = {number: Partition(topic, number, (1,)) for number in range(3)}
        cluster.add_topic(topic)
    walk = cluster.partitions()
    first = next(walk)
    first.topic.partitions[3] = Partition(first.topic, 3, (1,))
    cluster.add_topic(Topic("c"))
    cluster.remove_topic("b")
    assert [p.name for p in (first, *walk)] == ["a-0", "a-1", "a-2"]


def test_an_offline_partition_counts_until_the_deletion_of_its_topic_has_started() -> None:
    cluster, partition = Cluster(100, 1), Partition(Topic("t"), 0, (1,))
    partition.state = PartitionState.OFFLINE
    cluster.topics_to_delete = {"t"}
    assert cluster.counts_as_offline(partition)
    cluster.topics_deletion_started = {"t"}
    assert not cluster.counts_as_offline(partition)


def test_a_topic_whose_deletion_is_complete_is_under_deletion_still() -> None:
    cluster, topic = Cluster(100, 1), Topic("t")
    partition = Partition(topic, 0, (1,))
    assert not cluster.is_deleting(partition)
    topic.deleted = True
    assert cluster.is_deleting(partition)


def test_a_move_adds_or_removes() -> None:
    cluster, topic = Cluster(100, 1), Topic("t")
    cluster.add_topic(topic)
    for number, (adding, removing) in enumerate([((2,), ()), ((), (1,)), ((), ())]):
        topic.partitions[number] = Partition(topic, number, (1, 2), adding, removing)
    assert [p.number for p in cluster.reassigning("t")] == [0, 1]


def test_of_a_topic_that_is_gone_nothing_is_left_for_another_of_its_name() -> None:
    cluster, topic = Cluster(100, 1), Topic("t", "id")
    topic.partitions[0] = partition = Partition(topic, 0, (1,))
    cluster.add_topic(topic)
    for names in (cluster.topics_to_delete, cluster.topics_deletion_started, cluster.deletions_to_resume):
        names.add("t")
    cluster.deletions_ineligible["t"] = Ineligible(CreatedAnew())
    cluster.deletions_ineligible_count["t"] = 3
    cluster.unreadable_topics["t"] = ""
    cluster.problems = {str(topic_config_path("t")): "odd", state_path("t", 0): "odd", "/other": "odd"}
    cluster.offline_dirs = {1: {partition}}
    cluster.reassignments.ongoing[partition] = (1,)
    assert cluster.remove_topic("t") == [partition]
    assert cluster.remove_topic("t") == []
    assert (cluster.topics, cluster.topic_by_id("id"), topic.partitions) == ({}, None, {})
    assert not cluster.topics_to_delete | cluster.topics_deletion_started | cluster.deletions_to_resume
    assert (cluster.deletions_ineligible, cluster.deletions_ineligible_count) == ({}, {})
    assert (cluster.problems, cluster.unreadable_topics) == ({"/other": "odd"}, {})
    assert (cluster.offline_dirs, cluster.reassignments.ongoing) == ({1: set()}, {})


# --- states and moves ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, 40])
def test_one_replica_s_state_changes_no_other_s(count: int) -> None:
    before = (ReplicaState.ONLINE,) * count
    after = states.with_state(before, 1, ReplicaState.OFFLINE)
    assert [n for n, known in enumerate(after) if known is not ReplicaState.ONLINE] == [1]
    assert len(after) == count
    other = states.with_state(before, 2, ReplicaState.OFFLINE)
    assert [n for n, known in enumerate(other) if known is not ReplicaState.ONLINE] == [2]


@pytest.mark.parametrize("count", [3, 40])
def test_replicas_that_stay_keep_their_state(count: int) -> None:
    partition = Partition(Topic("t"), 0, tuple(range(count)))
    partition.set_states(range(1, count), ReplicaState.ONLINE)
    partition.reassign((count, *range(1, count)))
    assert partition.departing == {}, "what never was does not depart"
    assert partition.replica_states == (ReplicaState.NON_EXISTENT, *[ReplicaState.ONLINE] * (count - 1))


def test_who_departs_has_a_state_until_it_is_deleted() -> None:
    partition = Partition(Topic("t"), 0, (1,))
    partition.set_states((1, 2, 3), ReplicaState.OFFLINE)
    assert partition.states_by_broker() == dict.fromkeys((1, 2, 3), ReplicaState.OFFLINE)
    partition.set_states((3,), ReplicaState.DELETION_STARTED)
    assert partition.departing == {2: ReplicaState.OFFLINE, 3: ReplicaState.DELETION_STARTED}
    partition.set_departing({2: ReplicaState.NON_EXISTENT, 3: ReplicaState.NON_EXISTENT})
    assert partition.departing == {}


def test_directories_stay_with_their_members() -> None:
    before = LeaderAndIsr(1, 4, (1, 2, 3), 7, 1, directories=(11, 12, 13))
    assert before.directories_of((3, 1)) == (13, 11)
    assert before.directories_of((3, 2, 1)) == (13, 12, 11)
    after = before.successor(3, (3, 4), 2, RECOVERING)
    assert after == LeaderAndIsr(3, 5, (3, 4), 8, 2, RECOVERING, (13, 0))


def test_what_has_no_time_to_be_tried_again_is_never_due() -> None:
    due = [Ineligible(CreatedAnew(), at_us).is_due(5) for at_us in (None, 0, 4, 5, 6)]
    assert due == [False, True, True, True, False]


def test_a_move_that_waited_and_vanished_is_abandoned_too() -> None:
    known = Reassignments()
    known.queued[GONE] = (3,)
    known.strays[KEPT] = {4: Ineligible(CreatedAnew())}
    known.forget([GONE, KEPT])
    assert known.abandoned == {("gone", 0)}


def test_where_the_cluster_is_paused_and_in_maintenance_it_is_paused() -> None:
    paused, entered = Attribution("a", "ann"), Attribution("b", "bob")
    found = Maintenance(paused=paused, entered=entered).suspension
    assert found is not None
    assert (found.kind, found.by) == (SuspensionKind.PAUSED, paused)
