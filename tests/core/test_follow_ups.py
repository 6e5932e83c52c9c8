"""Work that several events leave to one of its own: it is done once for all, and nobody waits for it."""

from __future__ import annotations

import pytest

from controller.core.effects import SetTopic
from controller.core.events import Event, EventKind
from controller.core.reassignment import phases, stray_replicas
from controller.core.requests.reassignment import ListPartitionReassignments
from tests.support.core.harness import MachineHarness
from tests.support.core.reassignments import active, ask, check_moved


def moving() -> MachineHarness:
    """Three partitions of a topic, led by 1, 2 and 3, each on its way from there to 4 as well."""
    rig = active(1, 2, 3, 4, t=[[1, 2], [2, 3], [3, 1]])
    assert set(ask(rig, {("t", 0): [1, 4], ("t", 1): [2, 4], ("t", 2): [3, 4]}).values()) == {"NONE"}
    rig.forget()
    return rig


def caught_up(rig: MachineHarness, number: int) -> int:
    leader, _, isr = rig.stored("t", number)
    return rig.send(rig.alter(leader, rig.proposal([*isr, 4], "t", number)))


def kinds(rig: MachineHarness) -> list[str]:
    return [done.kind.name for done in rig.finished]


def topic_writes(rig: MachineHarness) -> int:
    return sum(isinstance(write, SetTopic) for commit in rig.commits() for write in commit.writes)


def test_moves_that_came_into_sync_by_several_reports_are_finished_together() -> None:
    rig = moving()
    rig.hold_stops = True
    caught_up(rig, 0)
    # The first is under way when the others come, with another event between them.
    rig.advance()
    caught_up(rig, 1)
    rig.send(ListPartitionReassignments(None))
    caught_up(rig, 2)
    rig.run()
    assert kinds(rig)[:5] == [
        "ALTER_PARTITION",
        "ALTER_PARTITION",
        "LIST_REASSIGNMENTS",
        "ALTER_PARTITION",
        "REASSIGNMENT_IN_SYNC",
    ]
    assert kinds(rig).count("REASSIGNMENT_IN_SYNC") == 1
    assert topic_writes(rig) == 1
    assert not rig.cluster.reassignments.ongoing


def test_a_leader_is_answered_before_its_move_is_finished() -> None:
    rig = moving()
    serial = caught_up(rig, 0)
    while serial not in rig.replies:
        assert rig.advance()
    assert rig.partition("t", 0) in rig.cluster.reassignments.ongoing
    rig.run()
    check_moved(rig, ("t", 0), [1, 4])


def test_very_many_moves_are_finished_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "FINISHED_MAX", 2)
    rig = active(1, 2, 3, a=[[1, 2], [1, 2]], b=[[1, 2]], c=[[1, 2]])
    keys = [("a", 0), ("a", 1), ("b", 0), ("c", 0)]
    ask(rig, {key: [1, 3] for key in keys})
    rig.forget()
    rig.ask(rig.alter(1, *(rig.proposal([1, 2, 3], *key) for key in keys)))
    assert kinds(rig).count("REASSIGNMENT_IN_SYNC") == 2
    for key in keys:
        check_moved(rig, key, [1, 3])


def test_deleted_replicas_are_recorded_once_for_all_brokers_of_a_topic() -> None:
    rig = moving()
    rig.hold_stops = True
    for number in range(3):
        caught_up(rig, number)
    rig.run()
    assert {p.number for p in rig.cluster.reassignments.strays} == {0, 1, 2}
    rig.forget()
    # One broker after another.
    stops, rig.stops = rig.stops, []
    for report in stops:
        rig.stops = [report]
        rig.answer_stops()
        rig.run()
    assert len(stops) == 3
    assert topic_writes(rig) == 1
    assert kinds(rig).count("DELETION_PROGRESS") == 1
    for number in range(3):
        check_moved(rig, ("t", number), [number + 1, 4])


def test_what_is_deleted_is_recorded_in_time_although_a_broker_does_not_answer() -> None:
    rig = moving()
    rig.hold_stops = True
    for number in range(3):
        caught_up(rig, number)
    rig.run()
    silent = rig.stops.pop()
    rig.answer_stops()
    rig.run()
    assert len(rig.world.topics["t"].stray) == 3
    assert not stray_replicas.due(rig.cluster, rig.now_us)
    rig.now_us += stray_replicas.RECORD_LATEST_US
    assert stray_replicas.due(rig.cluster, rig.now_us)
    rig.world.events.append(Event(EventKind.TOPIC_DELETION_RETRY))
    rig.run()
    assert list(rig.world.topics["t"].stray.values()) == [(silent.broker_id,)]
    assert not stray_replicas.due(rig.cluster, rig.now_us)


def test_topics_whose_last_replicas_are_deleted_at_different_times_end_together() -> None:
    rig = active(1, 2, t=[[1, 2]], u=[[2, 1]])
    rig.hold_stops = True
    rig.world.mark_for_deletion("t", "u")
    rig.run()
    rig.forget()
    first, second = rig.stops
    rig.stops = [first]
    rig.answer_stops()
    rig.run()
    assert "DELETION_PROGRESS" not in kinds(rig)
    rig.stops = [second]
    rig.answer_stops()
    rig.run()
    assert kinds(rig).count("DELETION_PROGRESS") == 1
    assert rig.world.topics == {}
