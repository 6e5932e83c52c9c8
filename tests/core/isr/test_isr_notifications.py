"""Notification nodes of brokers: ISR changes (reference 8.4) and failed disks (8.5)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from controller.core import commits
from controller.core.effects import DeleteNode
from controller.core.events import DiskReport, Event, EventKind
from controller.core.model import Partition, PartitionState, ReplicaState
from controller.core.records import LeadershipChange
from controller.core.znode_paths import ISR_NOTIFICATIONS, LOG_DIR_NOTIFICATIONS
from tests.support.core.harness import MachineHarness
from tests.support.core.world import ISR_CHANGE, LOG_DIR, RECONNECTED, World, state


def cluster(assignment: dict[int, list[int]]) -> MachineHarness:
    """Partitions of one topic, each led by its first replica at leader epoch 5, on brokers 1 to 3."""
    world = World(1, 2, 3)
    world.create_topic("t", assignment)
    for number, replicas in assignment.items():
        world.put_state("t", number, state(replicas[0], replicas, 5, 7))
    rig = MachineHarness.active(world)
    rig.forget()
    return rig


# --- ISR changes -----------------------------------------------------------------------------------------


def test_isr_changes_are_taken_over_and_told_as_metadata() -> None:
    rig = cluster({0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]})
    rig.world.shrink_or_grow("t", 0, [1, 2])
    rig.world.shrink_or_grow("t", 1, [2])
    rig.world.notify_isr(("t", 0), ("t", 1), ("t", 2))
    rig.run()
    assert rig.partition("t", 0).leadership == rig.world.states[("t", 0)]
    # Everything that was named is told to everybody, changed or not; replicas hear nothing.
    assert {line.split()[2] for line in rig.lines()} == {"t-0", "t-1", "t-2"}
    assert {line.split()[1] for line in rig.lines()} == {"UMR"}
    assert len(rig.lines()) == 9
    assert rig.world.notifications == []
    changed = [(change.partition.number, change.new.isr) for change in rig.recorded(LeadershipChange)]
    assert changed == [(0, (1, 2)), (1, (2,))]
    rig.check_converged()


@pytest.mark.parametrize(("leader", "leader_epoch"), [(1, 6), (2, 6), (1, 5)])
def test_a_state_with_another_leader_epoch_is_told_to_the_replicas_too(
    leader: int, leader_epoch: int
) -> None:
    """Whoever wrote it: a leader keeps its epoch."""
    rig = cluster({0: [1, 2, 3]})
    rig.world.put_state("t", 0, state(leader, [1, 2], leader_epoch, 8))
    rig.world.notify_isr(("t", 0))
    rig.run()
    told = {line.split()[0] for line in rig.lines("LISR")}
    assert told == (set() if leader_epoch == 5 else {"1", "2", "3"})


def test_many_nodes_are_one_reading_and_one_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "BATCH_WRITES", 3)
    rig = cluster({0: [1, 2]})
    rig.slow = {1, 2, 3}
    paths = [rig.world.notify_isr(("t", 0)) for _ in range(5)]
    rig.run()
    assert [list(c.writes) for c in rig.commits()] == [
        [DeleteNode(p) for p in paths[:3]],
        [DeleteNode(p) for p in paths[3:]],
    ]
    assert rig.reads().count("ReadStates") == 1


def test_a_bad_node_hides_no_other_and_goes_too() -> None:
    rig = cluster({0: [1, 2]})
    rig.world.shrink_or_grow("t", 0, [1])
    bad = rig.world.notify_isr(("t", 0))
    rig.world.unreadable[bad] = "field partitions: expected array"
    rig.world.notify_isr(("nowhere", 0), ("t", 9), ("t", 0))
    rig.run()
    assert rig.stored() == (1, 5, [1])
    assert rig.partition().leadership == rig.world.states[("t", 0)]
    assert rig.rejects() == ["MALFORMED", "UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_OR_PARTITION"]
    assert rig.world.notifications == []
    assert rig.cluster.problems == {}


def test_an_unreadable_state_keeps_no_node() -> None:
    rig = cluster({0: [1, 2], 1: [1, 2]})
    rig.world.unreadable["/brokers/topics/t/partitions/0/state"] = "junk"
    rig.world.shrink_or_grow("t", 1, [1])
    rig.world.notify_isr(("t", 0), ("t", 1))
    rig.run()
    assert rig.partition("t", 1).leadership == rig.world.states[("t", 1)]
    assert rig.world.notifications == []


@pytest.mark.parametrize("leader", [1, 2])
def test_another_leader_epoch_is_told_to_the_replicas(leader: int) -> None:
    """Nobody but us should write one; if somebody did, replicas must hear of it."""
    rig = cluster({0: [1, 2]})
    rig.world.put_state("t", 0, state(leader, [1, 2], 6, 8))
    rig.world.notify_isr(("t", 0))
    rig.run()
    assert [line.split()[0] for line in rig.lines("LISR")] == ["1", "2"]


@pytest.mark.parametrize("event", [ISR_CHANGE, LOG_DIR])
def test_nothing_to_read_is_nothing_to_do(event: Event) -> None:
    rig = cluster({0: [1, 2]})
    rig.world.events.append(event)
    rig.run()
    assert (rig.lines(), rig.commits(), rig.rejects()) == ([], [], [])


def test_watches_are_armed_at_failover_and_by_every_reading() -> None:
    rig = cluster({0: [1, 2]})
    for _ in range(3):
        assert {ISR_NOTIFICATIONS, LOG_DIR_NOTIFICATIONS} <= rig.world.watches
        rig.world.notify_isr(("t", 0))
        rig.world.notify_log_dir(1)
        rig.run()
        assert rig.world.notifications == []


def test_what_came_while_the_connection_was_away_is_read() -> None:
    rig = cluster({0: [1, 2]})
    rig.world.watches.clear()
    rig.world.shrink_or_grow("t", 0, [1])
    rig.world.notify_isr(("t", 0))
    rig.world.lost[2] = {("t", 0)}
    rig.world.notify_log_dir(2)
    rig.world.events.append(RECONNECTED)
    rig.run()
    assert rig.world.notifications == []
    assert rig.partition().replica_state(2) is ReplicaState.OFFLINE


# --- failed disks ----------------------------------------------------------------------------------------


def lose(rig: MachineHarness, broker_id: int, *numbers: int) -> None:
    """The disk with these partitions fails, the broker tells."""
    rig.world.lost.setdefault(broker_id, set()).update(("t", n) for n in numbers)
    rig.world.notify_log_dir(broker_id)
    rig.run()


def states(rig: MachineHarness, numbers: Iterable[int], broker_id: int) -> list[ReplicaState]:
    return [rig.partition("t", n).replica_state(broker_id) for n in numbers]


def test_a_failed_disk_moves_leaders_and_shrinks_sets() -> None:
    """Broker 1 leads 0 and 1 and follows 2; the disk with 0 and 2 fails."""
    rig = cluster({0: [1, 2, 3], 1: [1, 2, 3], 2: [2, 1, 3]})
    lose(rig, 1, 0, 2)
    assert rig.stored("t", 0) == (2, 6, [2, 3])
    assert rig.stored("t", 1) == (1, 5, [1, 2, 3])
    assert rig.stored("t", 2) == (2, 6, [2, 3])
    assert states(rig, range(3), 1) == [ReplicaState.OFFLINE, ReplicaState.ONLINE, ReplicaState.OFFLINE]
    assert rig.cluster.offline_dirs == {1: {rig.partition("t", 0), rig.partition("t", 2)}}
    assert rig.world.notifications == []
    # First it was asked about all its replicas, then told to stop those it lost.
    asked = [line for line in rig.lines("LISR") if line.startswith("1 ") and "epoch 5" in line]
    assert len(asked) == 3
    assert sorted({line.split()[2] for line in rig.lines("SR")}) == ["t-0", "t-2"]
    for broker_id in (1, 2, 3):
        offline = {n: list(rig.received[broker_id].metadata[("t", n)].offline_replicas) for n in range(3)}
        assert offline == {0: [1], 1: [], 2: [1]}
    rig.check_converged()


def test_a_whole_data_directory() -> None:
    rig = cluster({0: [1, 2], 1: [2, 1], 2: [1]})
    lose(rig, 1, 0, 1, 2)
    assert [rig.stored("t", n) for n in range(3)] == [(2, 6, [2]), (2, 6, [2]), (-1, 6, [1])]
    assert rig.partition("t", 2).state is PartitionState.OFFLINE
    rig.check_converged()
    rig.world.bounce(1)
    rig.run()
    assert rig.cluster.offline_dirs == {}
    assert rig.stored("t", 2) == (1, 7, [1])
    rig.check_converged()


def test_known_failures_stay_offline_when_the_next_disk_fails() -> None:
    """Beyond the original, which takes all replicas of the broker for online again and forgets the first."""
    rig = cluster({0: [1, 2], 1: [1, 2]})
    lose(rig, 1, 0)
    lose(rig, 1, 1)
    assert states(rig, range(2), 1) == [ReplicaState.OFFLINE, ReplicaState.OFFLINE]
    assert [rig.stored("t", n) for n in range(2)] == [(2, 6, [2]), (2, 6, [2])]
    rig.check_converged()


def test_a_lost_replica_does_not_join_nor_lead() -> None:
    rig = cluster({0: [1, 2]})
    lose(rig, 1, 0)
    (answer,) = rig.ask(rig.alter(2, rig.proposal([2, 1])))
    assert answer.partitions[0].error.name == "INELIGIBLE_REPLICA"
    rig.world.ask_preferred(("t", 0))
    rig.run()
    assert rig.stored() == (2, 6, [2])


def test_an_event_of_a_healthy_broker_changes_nothing() -> None:
    rig = cluster({0: [1, 2]})
    path = rig.world.notify_log_dir(1)
    rig.run()
    assert [list(c.writes) for c in rig.commits()] == [[DeleteNode(path)]]
    assert rig.cluster.offline_dirs == {}
    assert [line.split()[0] for line in rig.lines("LISR")] == ["1"]


def test_bad_and_unknown_events_go_with_the_others() -> None:
    rig = cluster({0: [1, 2]})
    bad = rig.world.notify_log_dir(2)
    rig.world.unreadable[bad] = "field event: expected 1"
    rig.world.notify_log_dir(99)
    lose(rig, 1, 0)
    assert rig.stored() == (2, 6, [2])
    assert rig.rejects()[:2] == ["MALFORMED", "BROKER_NOT_AVAILABLE"]
    assert rig.world.notifications == []
    assert rig.cluster.problems == {}


# --- answers to LeaderAndIsr -----------------------------------------------------------------------------


def report(
    rig: MachineHarness, failed: Iterable[Partition], healthy: Iterable[Partition] = (), age: int = 0
) -> None:
    epoch = rig.world.brokers[1].epoch - age
    body = DiskReport(1, epoch, list(failed), list(healthy))
    rig.world.events.append(Event(EventKind.LEADER_AND_ISR_RESPONSE, body=body, serial=len(rig.finished)))
    rig.run()


def test_a_disk_that_came_back_is_a_replica_again() -> None:
    rig = cluster({0: [1]})
    rig.world.lost[1] = {("t", 0)}
    report(rig, [rig.partition()])
    assert rig.stored() == (-1, 6, [1])
    rig.world.lost.clear()
    report(rig, [], [rig.partition()])
    assert rig.cluster.offline_dirs == {}
    assert rig.stored() == (1, 7, [1])
    assert rig.partition().replica_state(1) is ReplicaState.ONLINE
    rig.check_converged()


def test_a_former_incarnations_answer_is_void() -> None:
    rig = cluster({0: [1, 2]})
    report(rig, [rig.partition()], age=1)
    assert rig.stored() == (1, 5, [1, 2])
    assert rig.cluster.offline_dirs == {}


def test_an_answer_about_a_partition_that_is_no_more_is_void() -> None:
    rig = cluster({0: [1, 2]})
    gone = rig.partition()
    rig.world.delete_topic("t")
    rig.run()
    rig.world.create_topic("t", {0: [1, 2]})
    rig.run()
    report(rig, [gone])
    assert rig.stored() == (1, 0, [1, 2])
    assert rig.cluster.offline_dirs == {}


def test_answers_that_wait_together_are_handled_together() -> None:
    """A thousand partitions an answer: one round of elections for all of them, not one each."""
    rig = cluster({n: [1, 2] for n in range(6)})
    epoch = rig.world.brokers[1].epoch
    for number in range(6):
        body = DiskReport(1, epoch, [rig.partition("t", number)])
        kind = EventKind.LEADER_AND_ISR_RESPONSE
        rig.world.events.append(Event(kind, body=body, serial=number + 1))
    rig.run()
    assert [rig.stored("t", n) for n in range(6)] == [(2, 6, [2])] * 6
    assert len(rig.finished) == 2
