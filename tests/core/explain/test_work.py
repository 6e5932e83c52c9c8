"""Deletions, moves, brokers and the controller explained: every phase has words, and says what would change it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from controller.core.context import CoreSettings
from controller.core.explain.brokers import explain_broker
from controller.core.explain.controllers import explain_controller
from controller.core.explain.partitions import explain_partition
from controller.core.explain.work import (
    NONE,
    WorkExplanation,
    controller_notes,
    explain_reassignment,
    explain_topic_deletion,
)
from controller.core.model import (
    Attribution,
    Cluster,
    Ineligible,
    Maintenance,
    Partition,
    ReplicaState,
    StopApproval,
    Topic,
    uniform_states,
)
from controller.core.partitions.leader_election import Rule
from controller.core.reassignment.reasons import Notified
from controller.core.topics.deletion_status import DeletionPhase, deletions
from controller.core.topics.reasons import BeingReassigned, ReplicaNotDeleted, Unreachable, ZnodeUnreadable
from tests.support.core.world import a_broker, state

SETTINGS = CoreSettings()
MARK = Attribution("new disks", "ann")


def cluster_of(*broker_ids: int, replicas: tuple[int, ...] = (1, 2)) -> tuple[Cluster, Partition]:
    """Topic t with one partition, led by its first replica, all in sync."""
    cluster = Cluster(100, 7)
    cluster.brokers.update({b: a_broker(b, 50 + b) for b in broker_ids})
    topic = Topic("t", "id", 1)
    cluster.add_topic(topic)
    partition = topic.partitions[0] = Partition(topic, 0, replicas)
    partition.leadership = state(replicas[0], replicas, 3, 5)
    return cluster, partition


def has_words(explained: WorkExplanation) -> None:
    lines = explained.words()
    assert len(explained.summary.split()) > 4
    assert explained.changes
    assert all(f"would change it: {change}" in lines for change in explained.changes)
    assert all(len(change.split()) > 3 for change in explained.changes)


# --- deletions -------------------------------------------------------------------------------------------


def waiting(cluster: Cluster, partition: Partition) -> None:
    partition.assign((1, 2, 3), (3,))
    cluster.deletions_waiting["t"] = BeingReassigned("t-0")


def queued(cluster: Cluster, partition: Partition) -> None:
    del partition
    cluster.topics_to_delete.add("t")


def started(cluster: Cluster, partition: Partition) -> None:
    queued(cluster, partition)
    cluster.topics_deletion_started.add("t")
    partition.replica_states = uniform_states(ReplicaState.DELETION_STARTED, 2)


def ineligible(cluster: Cluster, partition: Partition) -> None:
    queued(cluster, partition)
    cluster.deletions_ineligible["t"] = Ineligible(ReplicaNotDeleted(2, "t-0", Unreachable.BROKER_GONE), 9)
    partition.replica_states = (ReplicaState.DELETION_SUCCESSFUL, ReplicaState.DELETION_INELIGIBLE)


PHASES: dict[DeletionPhase, tuple[Callable[[Cluster, Partition], None], list[str], list[str]]] = {
    DeletionPhase.WAITING: (
        waiting,
        ["broker 1, which was not told to delete it yet: t-0"],
        ["the reassignment of t-0 ends, or is taken back: pctl reassign cancel"],
    ),
    DeletionPhase.QUEUED: (
        queued,
        ["broker 1, which was not told to delete it yet: t-0", "broker 2, which is not registered: t-0"],
        ["the controller, which sends StopReplica in one of its next events"],
    ),
    DeletionPhase.STARTED: (
        started,
        [
            "broker 1, which was told to delete it and has not answered yet: t-0",
            "broker 2, which is not registered: t-0",
        ],
        [
            "brokers 2 return and delete theirs; else they are forgotten (pctl brokers forget)",
            "brokers 1 answer that theirs are deleted",
        ],
    ),
    DeletionPhase.INELIGIBLE: (
        ineligible,
        ["broker 2, which is not registered: t-0"],
        [
            "brokers 2 return and delete theirs; else they are forgotten (pctl brokers forget)",
            "it is retried automatically, after a pause that grows with every refusal",
        ],
    ),
}


@pytest.mark.parametrize("phase", DeletionPhase)
def test_every_phase_of_a_deletion(phase: DeletionPhase) -> None:
    put, waits, changes = PHASES[phase]
    cluster, partition = cluster_of(1)
    put(cluster, partition)
    (status,) = deletions(cluster)
    assert status.phase is phase
    found = explain_topic_deletion(cluster, SETTINGS, "t")
    assert found is not None
    assert found.phase == phase.value
    has_words(found)
    assert set(waits) <= set(found.waits_for)
    assert set(changes) <= set(found.changes)
    if status.reason is not None:
        assert str(status.reason) in found.summary
    if phase is not DeletionPhase.WAITING:
        left = "1 replica is" if status.replicas_left == 1 else f"{status.replicas_left} replicas are"
        assert f"{left} not known to be deleted" in found.summary


def test_of_several_deletions_the_one_that_was_asked_for_is_explained() -> None:
    cluster, _ = cluster_of(1)
    cluster.topics_to_delete |= {"t", "a"}
    cluster.topics_deletion_started.add("t")
    explained = [explain_topic_deletion(cluster, SETTINGS, name) for name in ("a", "t")]
    assert [found and (found.subject, found.phase) for found in explained] == [
        ("a", DeletionPhase.QUEUED.value),
        ("t", DeletionPhase.STARTED.value),
    ]


def test_who_has_deleted_its_replicas_is_not_waited_for() -> None:
    cluster, partition = cluster_of(1, 2)
    started(cluster, partition)
    partition.set_states([1], ReplicaState.DELETION_SUCCESSFUL)
    found = explain_topic_deletion(cluster, SETTINGS, "t")
    assert found is not None
    assert found.changes == ("brokers 2 answer that theirs are deleted",)


def test_what_only_adds_replicas_is_a_move() -> None:
    cluster, partition = cluster_of(1, 2, 3)
    for adding, removing in (((3,), ()), ((), (2,))):
        partition.assign((1, 2, 3) if adding else (1, 2), adding, removing)
        assert explain_reassignment(cluster, SETTINGS, partition).phase == "ongoing"


def test_a_failed_disk_and_a_refusal_hold_a_deletion() -> None:
    cluster, partition = cluster_of(1, 2)
    ineligible(cluster, partition)
    partition.replica_states = uniform_states(ReplicaState.DELETION_INELIGIBLE, 2)
    cluster.offline_dirs[2] = {partition}
    found = explain_topic_deletion(cluster, SETTINGS, "t")
    assert found is not None
    assert found.waits_for == (
        "broker 1, which could not delete it: t-0",
        "broker 2, which has it on a disk that failed: t-0",
    )
    assert found.changes[:2] == (
        "the failed disks of brokers 2 are repaired or replaced, and these restarted",
        "brokers 1 answer that theirs are deleted",
    )


def test_who_was_told_and_could_not_be_is_not_one_that_was_never_told() -> None:
    cluster, partition = cluster_of(1, 2)
    ineligible(cluster, partition)
    partition.replica_states = (ReplicaState.OFFLINE, ReplicaState.DELETION_SUCCESSFUL)
    found = explain_topic_deletion(cluster, SETTINGS, "t")
    assert found is not None
    assert found.waits_for == ("broker 1, which has not deleted it: t-0",)


def test_a_move_that_waits_is_told_by_its_target() -> None:
    cluster, partition = cluster_of(1, 2)
    waits_for_room(cluster, partition)
    summary = explain_reassignment(cluster, SETTINGS, partition).summary
    assert summary == "its move to [3, 1] waits in the queue"


def test_a_waiting_topic_that_is_unreadable_or_moved_already() -> None:
    cluster, _ = cluster_of(1)
    cluster.deletions_waiting["u"] = ZnodeUnreadable("expected object")
    cluster.problems["/brokers/topics/u"] = "expected object"
    found = explain_topic_deletion(cluster, SETTINGS, "u")
    assert found is not None
    assert found.changes == ("/brokers/topics/u is repaired: the controller watches it",)
    cluster.deletions_waiting["t"] = BeingReassigned("t-0")
    found = explain_topic_deletion(cluster, SETTINGS, "t")
    assert found is not None
    has_words(found)


def test_no_deletion_was_asked_for() -> None:
    cluster, _ = cluster_of(1)
    found = explain_topic_deletion(cluster, SETTINGS, "t")
    assert found is not None
    assert (found.phase, found.changes) == (NONE, ("pctl topics delete t asks for it",))
    has_words(found)
    off = explain_topic_deletion(cluster, CoreSettings(delete_topic_enable=False), "t")
    assert off is not None
    assert "delete_topic_enable = true" in off.changes[0]
    cluster.problems["/brokers/topics/bad"] = "expected object"
    bad = explain_topic_deletion(cluster, SETTINGS, "bad")
    assert bad is not None
    assert bad.summary.endswith("its znode is unreadable: expected object")
    assert explain_topic_deletion(cluster, SETTINGS, "nope") is None


def test_many_partitions_are_counted() -> None:
    cluster, partition = cluster_of(1, replicas=(1,))
    for number in range(1, 15):
        partition.topic.partitions[number] = Partition(partition.topic, number, (1,))
    queued(cluster, partition)
    found = explain_topic_deletion(cluster, SETTINGS, "t")
    assert found is not None
    assert found.waits_for[0].endswith("t-8, t-9 and 5 more")
    for number in range(10, 15):
        del partition.topic.partitions[number]
    found = explain_topic_deletion(cluster, SETTINGS, "t")
    assert found is not None
    assert found.waits_for[0].endswith("t-8, t-9")


def test_brokers_are_named_in_order() -> None:
    cluster, partition = cluster_of(1, replicas=(17, 2, 9))
    queued(cluster, partition)
    cluster.topics_deletion_started.add("t")
    found = explain_topic_deletion(cluster, SETTINGS, "t")
    assert found is not None
    assert found.changes[0].startswith("brokers 2, 9, 17 return")


# --- moves -----------------------------------------------------------------------------------------------


def moving(cluster: Cluster, partition: Partition) -> None:
    partition.assign((3, 1, 2), (3,), (2,))
    cluster.reassignments.ongoing[partition] = (1, 2)


def waits_for_room(cluster: Cluster, partition: Partition) -> None:
    cluster.reassignments.queued[partition] = (3, 1)


def left_over(cluster: Cluster, partition: Partition) -> None:
    cluster.reassignments.keep_stray(partition, 4, Ineligible(Notified()))


def nothing(cluster: Cluster, partition: Partition) -> None:
    del cluster, partition


@pytest.mark.parametrize(
    ("put", "phase", "changes"),
    [
        (
            moving,
            "ongoing",
            [
                "broker 3 returns and catches up with 1",
                "pctl reassign cancel --topic t --partition 0 takes it back",
            ],
        ),
        (
            waits_for_room,
            "queued",
            [
                "a move that ends and makes room, or a larger reassignment_concurrent_moves_max (none) or "
                "reassignment_concurrent_moves_per_broker_max (none)",
                "pctl reassign cancel --topic t --partition 0 takes it back",
            ],
        ),
        (
            left_over,
            "stray_replicas",
            [
                "broker 4 returns and deletes it; StopReplica is sent again at failover and when it returns",
            ],
        ),
        (nothing, NONE, ["pctl reassign execute --topic t --partition 0 --replicas ... moves it"]),
    ],
)
def test_every_phase_of_a_move(
    put: Callable[[Cluster, Partition], None], phase: str, changes: list[str]
) -> None:
    cluster, partition = cluster_of(1, 2)
    put(cluster, partition)
    found = explain_reassignment(cluster, SETTINGS, partition)
    assert found.phase == phase
    assert list(found.changes) == changes
    has_words(found)
    # What holds it up is said, unless nothing does.
    assert bool(found.waits_for) == (phase != NONE)


def test_a_move_without_a_leader_or_a_state() -> None:
    cluster, partition = cluster_of(2)
    moving(cluster, partition)
    waits_for_room(cluster, partition)
    partition.leadership = state(-1, (1,), 3, 5)
    found = explain_reassignment(cluster, SETTINGS, partition)
    assert found.summary == "it is moving to [3, 1]: adding [3], removing [2]; after that to [3, 1]"
    assert found.changes[0] == "a leader to copy from: pctl explain partition t 0"
    partition.leadership = None
    found = explain_reassignment(cluster, SETTINGS, partition)
    assert found.changes[0] == "a replica that comes online: the partition was never led"
    cluster.reassignments.ongoing.clear()
    assert explain_reassignment(cluster, SETTINGS, partition).changes == found.changes, "its znode says so"


# --- what operators told, and what only the controller knows -----------------------------------------------


def test_a_drained_broker_comes_last_and_never_leads_by_a_preferred_election() -> None:
    cluster, partition = cluster_of(1, 2)
    cluster.maintenance = Maintenance(drained={1: MARK})
    partition.leadership = state(2, (1, 2), 3, 5)
    found = explain_partition(cluster, partition, unclean_allowed=False)
    assert [c.broker for c in found.rules[0].candidates] == [2, 1]
    assert found.rules[0].leader == 2
    (preferred,) = found.rules[2].candidates
    assert (preferred.unmet, found.rules[2].leader) == (Rule.UNDRAINED, -1)
    notified = "1 is kept free of leaderships by ann: new disks"
    assert found.changes == (f"preferred replica 1 takes over once this is solved: {notified}",)


def test_a_pause_keeps_a_partition_without_a_leader() -> None:
    cluster, partition = cluster_of(2)
    partition.leadership = state(-1, (1, 2), 3, 5)
    found = explain_partition(cluster, partition, unclean_allowed=False)
    assert "the controller will elect it" in found.changes[0]
    cluster.maintenance = Maintenance(paused=MARK)
    found = explain_partition(cluster, partition, unclean_allowed=False)
    assert found.changes == ("the end of the pause by ann (new disks): 2 qualifies, and is elected then",)


def test_every_rule_that_a_replica_fails_has_words() -> None:
    cluster, partition = cluster_of(1, 2, replicas=(1, 2, 3))
    cluster.shutting_down.add(1)
    partition.leadership = state(-1, (1, 3), 3, 5)
    found = explain_partition(cluster, partition, unclean_allowed=False)
    failed = {c.unmet: str(c) for c in found.rules[0].candidates}
    assert failed.keys() == {*Rule} - {Rule.UNDRAINED, Rule.KEPT_DATA}
    assert all(len(reason.split()) > 3 for reason in failed.values())
    assert found.changes


def test_a_broker_with_everything() -> None:
    cluster, partition = cluster_of(1, 2)
    partition.leadership = state(2, (2,), 3, 5)
    topic = partition.topic
    topic.partitions[1] = Partition(topic, 1, (1, 2))
    topic.partitions[1].leadership = state(2, (1, 2), 3, 5)
    cluster.maintenance = Maintenance(drained={1: MARK})
    cluster.approvals = {1: StopApproval(51, "kernel", "bob", 1, ("t-0 would have no leader",))}
    cluster.offline_dirs[1] = {partition}
    found = explain_broker(cluster, 1)
    assert found.notes == (
        "kept free of leaderships by ann: new disks",
        "approved to stop for bob: kernel, though t-0 would have no leader; later stop checks count it as offline",
    )
    assert found.changes == (
        "the drain is ended (pctl maintenance undrain 1): then leadership may return to it",
        "its failed disks, with 1 replica, are repaired or replaced, and it is restarted",
        "1 replica catches up with its leader, which then proposes it for the ISR",
    )
    assert [lack.text for lack in found.lacks] == [
        "t-0 is on a disk that failed",
        "t-1 prefers it but is led by 2: 1 is kept free of leaderships by ann: new disks",
    ]
    assert set(found.notes) <= set(found.words())
    assert f"would change it: {found.changes[0]}" in found.words()
    cluster.shutting_down.add(1)
    assert explain_broker(cluster, 1).changes[0].startswith("it leaves or restarts")
    cluster.approvals = {1: StopApproval(50, "kernel", "bob", 1)}
    assert len(explain_broker(cluster, 1).notes) == 1


def test_a_broker_that_is_not_there_says_what_would_bring_it() -> None:
    cluster, _ = cluster_of(1)
    assert explain_broker(cluster, 2).changes == ("it starts and registers in /brokers/ids/2",)
    cluster.problems["/brokers/ids/2"] = "port = 0"
    assert explain_broker(cluster, 2).changes == ("/brokers/ids/2 is repaired or written again",)
    assert explain_broker(cluster, 1).changes == ()


def test_what_the_controller_goes_by() -> None:
    cluster, partition = cluster_of(1, 2)
    quiet = controller_notes(cluster, SETTINGS)
    assert quiet == (
        "unclean elections of topics without their own setting: off (by its setting)",
        "topic deletion: on",
        "moves at once: no cap, per broker: no cap",
        "leadership returns automatically: on, above 10 % of a broker's partitions",
    )
    cluster.unclean_default = False
    assert controller_notes(cluster, SETTINGS)[0].endswith(": off (by /config/brokers/<default>)")
    cluster.unclean_default = True
    cluster.maintenance = Maintenance(MARK, {2: MARK})
    cluster.shutting_down.add(1)
    cluster.offline_dirs[2] = {partition}
    capped = CoreSettings(reassignment_concurrent_moves_max=5, auto_leader_rebalance_enable=False)
    notified = controller_notes(cluster, capped)
    assert notified[0].endswith(": on (by /config/brokers/<default>)")
    assert notified[2:] == (
        "moves at once: 5, per broker: no cap",
        "leadership returns automatically: off, above 10 % of a broker's partitions",
        "automatic work is suspended: paused by ann: new disks (pctl maintenance resume ends that)",
        "broker 2 is kept free of leaderships by ann: new disks",
        "in controlled shutdown: brokers 1",
        "broker 2 has 1 replica on failed disks",
    )
    assert replace(explain_controller(1, 4, [1]), notes=notified).words()[2:-1] == list(notified)


def test_a_move_waits_for_no_replica_that_it_removes() -> None:
    cluster, partition = cluster_of(1, 2, 3)
    partition.assign((1, 3, 2), (3,), (2,))
    partition.leadership = state(1, (1,), 3, 5)
    assert explain_reassignment(cluster, SETTINGS, partition).changes == (
        "the replica on 3 catches up with 1, which then proposes it for the ISR",
        "pctl reassign cancel --topic t --partition 0 takes it back",
    )


def test_a_move_that_waits_names_both_limits() -> None:
    cluster, partition = cluster_of(1, 2, 3)
    cluster.reassignments.queued[partition] = (3, 1)
    for moves, each, told in ((5, 2, ("(5)", "(2)")), (0, 2, ("(none)", "(2)")), (5, 0, ("(5)", "(none)"))):
        limits = CoreSettings(
            reassignment_concurrent_moves_max=moves, reassignment_concurrent_moves_per_broker_max=each
        )
        (found,) = (c for c in explain_reassignment(cluster, limits, partition).changes if "makes room" in c)
        assert found.endswith(
            f"reassignment_concurrent_moves_max {told[0]} or reassignment_concurrent_moves_per_broker_max {told[1]}"
        )


def test_what_is_not_moving_waits_for_nobody() -> None:
    cluster, partition = cluster_of(1, 2)
    partition.leadership = state(1, (1,), 3, 5)
    explained = explain_reassignment(cluster, SETTINGS, partition)
    assert explained.changes == ("pctl reassign execute --topic t --partition 0 --replicas ... moves it",)
