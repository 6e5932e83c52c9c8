"""The machine: one event at a time, waiting ones collapse, outcomes find the request they belong to."""

from __future__ import annotations

from typing import Any

import pytest

from controller.core import machine
from controller.core.context import FollowUp
from controller.core.effects import (
    Answer,
    Commit,
    Committed,
    DeleteNode,
    Read,
    ReadTopicNames,
    Unconfirmed,
    described,
)
from controller.core.events import DiskReport, Event, EventKind, StatesCheck, StopReport, TellAgain, change_of
from controller.core.handlers import BODIES, FOLLOW_UPS, LOOKS, BodyType
from controller.core.model import Partition, Topic
from controller.core.requests.brokers import AlterPartition, Proposal
from controller.core.requests.errors import ErrorCode
from tests.support.core.harness import MachineHarness
from tests.support.core.world import (
    BROKER_CHANGE,
    ELECTION_REQUESTED,
    RECONNECTED,
    TOPIC_CHANGE,
    World,
    modified,
    state,
)

A, B, C = (Partition(Topic("t"), number, (1,)) for number in range(3))


def idle(*brokers: int) -> MachineHarness:
    rig = MachineHarness.active(World(*brokers))
    rig.forget()
    return rig


def test_waiting_events_of_the_same_kind_are_one() -> None:
    rig = idle(1)
    rig.step(BROKER_CHANGE)
    for _ in range(3):
        rig.step(BROKER_CHANGE)
        rig.step(TOPIC_CHANGE)
    assert rig.machine.queue_size == 2
    rig.run()
    assert [done.kind.value for done in rig.finished] == ["BrokerChange", "BrokerChange", "TopicChange"]


def test_an_event_during_the_processing_of_its_like_is_not_lost() -> None:
    rig = idle(1)
    rig.step(BROKER_CHANGE)  # has asked for the brokers: what changes from now on needs another look
    rig.step(BROKER_CHANGE)
    assert rig.machine.queue_size == 1


def test_modifications_of_different_topics_are_different_events() -> None:
    rig = idle(1)
    rig.step(TOPIC_CHANGE)
    for name in ("a", "b", "a"):
        rig.step(modified(name))
    assert rig.machine.queue_size == 2


def test_one_event_at_a_time_in_order() -> None:
    rig = idle(1)
    for event in (TOPIC_CHANGE, BROKER_CHANGE, ELECTION_REQUESTED):
        rig.step(event)
    assert rig.machine.current_event == TOPIC_CHANGE
    assert rig.reads() == ["ReadTopicNames"]
    rig.run()
    assert rig.reads() == ["ReadTopicNames", "ReadTopics", "ReadBrokers", "ReadPreferredElection"]
    assert rig.machine.current_event is None


def test_event_ids_count_up_and_name_every_record_and_push() -> None:
    world = World(1, 2)
    rig = MachineHarness.active(world)
    assert rig.machine.event_id == 1
    rig.forget()
    world.create_topic("t", {0: [1, 2]})
    rig.run()
    assert rig.machine.event_id == 2
    assert {batch.event_id for batch in rig.batches} == {2}
    assert {batch.cause for batch in rig.batches} == {"TopicChange"}
    assert {s.message.event_id for s in rig.sent} == {2}
    assert [done.event_id for done in rig.finished] == [2]


def test_effect_ids_are_never_used_twice_in_a_term() -> None:
    world = World(1, 2)
    rig = MachineHarness.active(world)
    for number in range(5):
        world.create_topic(f"t{number}", {0: [1, 2]})
        rig.run()
        world.bounce(1)
        rig.run()
    ids = [effect.id for effect in rig.effects]
    assert len(ids) == len(set(ids)) > 20


def test_outcomes_out_of_order_go_to_their_own_effects() -> None:
    """Two reads of states in flight at failover; the later answer comes first."""
    from controller.core import failover

    world = World(1)
    world.create_topic("t", {n: [1] for n in range(6)})
    for number in range(6):
        world.put_state("t", number, state(1, [1], number, number))
    rig = MachineHarness(world)
    rig.pick = lambda n: n - 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failover, "READ_STATES_CHUNK", 2)
        rig.failover()
    assert [rig.partition("t", n).leadership for n in range(6)] == [world.states[("t", n)] for n in range(6)]
    rig.check_converged()


def test_an_outcome_nobody_waits_for_changes_nothing() -> None:
    rig = idle(1)
    for outcome in (Committed(9999), Unconfirmed(9998, "late"), Answer(9997, None)):
        ready = rig.machine.step(outcome, 0)
        assert (ready.records, ready.effects, ready.finished, ready.more) == ([], [], [], False)
    rig.step(BROKER_CHANGE)
    ready = rig.machine.step(Committed(9996), 0)
    assert ready.effects == []
    assert rig.machine.current_event == BROKER_CHANGE
    rig.run()
    rig.check_converged()


def test_the_same_outcome_twice_is_taken_once() -> None:
    world = World(1, 2)
    rig = MachineHarness.active(world)
    world.create_topic("t", {0: [1, 2]})
    while not rig.commits():
        rig.advance()
    (request,) = rig.outstanding
    outcome = rig.perform(request)
    rig.outstanding.clear()
    rig.step(outcome)
    rig.step(outcome)
    rig.run()
    assert rig.stored() == (1, 0, [1, 2])
    rig.check_converged()


def test_more_says_step_again_between_batches_and_between_events() -> None:
    rig = MachineHarness(World(1))
    ready = rig.machine.step(Event(EventKind.FAILOVER), 0)
    assert isinstance(ready.effects[0], Read)
    assert not ready.more
    ready = rig.machine.step(rig.perform(ready.effects[0]), 1)
    assert ready.more  # a phase is over: requests and senders may run
    assert ready.effects == []
    rig.machine.step(BROKER_CHANGE, 2)
    ready = rig.machine.step(None, 3)
    assert [type(r) for r in ready.effects] == [Read]
    while not ready.finished:
        outcome = rig.perform(ready.effects[0]) if ready.effects else None
        ready = rig.machine.step(outcome, 4)
    assert ready.more  # the failover is done, another event waits
    ready = rig.machine.step(None, 5)
    assert rig.machine.current_event == BROKER_CHANGE
    assert len(ready.effects) == 1


def test_stepping_without_an_outcome_while_waiting_changes_nothing() -> None:
    rig = idle(1)
    rig.step(BROKER_CHANGE)
    for _ in range(3):
        ready = rig.machine.step(None, 0)
        assert (ready.effects, ready.more) == ([], False)
    rig.run()


def test_idle_machine_has_nothing_to_do() -> None:
    rig = idle(1)
    ready = rig.machine.step(None, 0)
    assert (ready.records, ready.effects, ready.finished, ready.more) == ([], [], [], False)
    assert rig.machine.oldest_queued_us() is None


def test_times_of_an_event() -> None:
    rig = idle(1)
    first = rig.machine.step(TOPIC_CHANGE, 100)
    rig.machine.step(BROKER_CHANGE, 150)
    assert rig.machine.oldest_queued_us() == 150
    second = rig.machine.step(rig.perform(first.effects[0]), 300)
    done = rig.machine.step(rig.perform(second.effects[0]), 400)
    assert [(d.queued_us, d.took_us, d.ended_us) for d in done.finished] == [(0, 300, 400)]
    assert done.more
    asked = rig.machine.step(None, 1000)
    done = rig.machine.step(rig.perform(asked.effects[0]), 1700)
    assert [(d.kind, d.queued_us, d.took_us) for d in done.finished] == [(EventKind.BROKER_CHANGE, 850, 700)]


@pytest.mark.parametrize(
    "event", [BROKER_CHANGE, TOPIC_CHANGE, ELECTION_REQUESTED, RECONNECTED, modified("t")]
)
def test_every_kind_of_event_is_current_while_it_runs_and_finished_once(event: Event) -> None:
    rig = idle(1)
    rig.step(event)
    during = rig.machine.current_event
    rig.run()
    assert (during, rig.machine.current_event) == (event, None)
    assert [done.kind for done in rig.finished] == [event.kind]


def test_reconnected_reads_all_that_was_watched_and_arms_it_again() -> None:
    world = World(1, 2)
    rig = MachineHarness.active(world)
    world.create_topic("t", {0: [1, 2]})
    rig.run()
    rig.forget()
    world.watches.clear()
    world.broker_down(2)
    world.expand_topic("t", {1: [1]})
    world.create_topic("u", {0: [1]})
    world.ask_preferred(("t", 0))
    world.lose_watches()
    rig.run()
    # The second is our own deletion of what was asked for, which took the watch along.
    assert [done.kind for done in rig.finished] == [EventKind.RECONNECTED, EventKind.PREFERRED_ELECTION]
    assert rig.stored("t") == (1, 1, [1])
    assert rig.stored("t", 1) == rig.stored("u") == (1, 0, [1])
    assert world.preferred is None
    assert world.watches >= {"/brokers/ids", "/brokers/topics", "/brokers/topics/t", "/brokers/topics/u"}
    rig.check_converged()
    world.broker_up(2)
    rig.run()
    rig.check_converged()


def test_the_same_input_gives_the_same_output() -> None:
    """Determinism: nothing depends on hash order, time or chance."""

    def play() -> tuple[list[str], list[str]]:
        world = World(1, 2, 3)
        rig = MachineHarness.active(world)
        world.create_topic("t", {n: [1 + n % 3, 1 + (n + 1) % 3] for n in range(9)})
        rig.run()
        world.broker_down(2)
        rig.run()
        world.bounce(1, 3)
        rig.run()
        return rig.lines(), [repr(batch.records) for batch in rig.batches]

    assert play() == play()


def test_a_bug_in_a_procedure_is_not_swallowed() -> None:
    """The original logs and goes on; here the exception leaves ``step`` and ends the term."""
    rig = idle(1)
    rig.step(BROKER_CHANGE)
    with pytest.raises(AttributeError):
        rig.machine.step(Answer(rig.effects[-1].id, None), 0)


def test_collecting_waiting_modifications_is_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failover that gives ids to 10,000 topics is followed by as many events, its own writes' watches."""
    rig = idle(1)
    rig.step(TOPIC_CHANGE)
    count = 300
    for number in range(count):
        rig.step(modified(f"t{number}"))
    compared = 0

    def equal(one: Event, other: object) -> bool:
        nonlocal compared
        compared += 1
        return isinstance(other, Event) and (one.kind, one.topic) == (other.kind, other.topic)

    monkeypatch.setattr(Event, "__eq__", equal)
    rig.run()
    assert compared < 10 * count


def test_waiting_modifications_are_handled_in_the_order_of_their_topics() -> None:
    rig = idle(1)
    rig.step(TOPIC_CHANGE)
    names = [f"t{number:02}" for number in range(30)]
    for name in reversed(names):
        rig.step(modified(name))
    handled = rig.machine._all_waiting_like(modified("first"))
    assert [event.topic for event in handled] == ["first", *names]


def test_what_was_handled_with_another_event_may_come_again() -> None:
    rig = idle(1)
    rig.step(TOPIC_CHANGE)
    for name in ("a", "b"):
        rig.step(modified(name))
    rig.run()
    rig.forget()
    rig.step(modified("b"))
    rig.run()
    assert [done.kind for done in rig.finished] == [EventKind.PARTITION_MODIFICATIONS]


def test_requests_that_are_handled_together_are_bounded_and_none_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "GATHERED_MAX", 4)
    world = World(1)
    world.create_topic("t", {0: [1], 1: [1]})
    rig = MachineHarness.active(world)
    rig.forget()
    rig.step(TOPIC_CHANGE)
    for _ in range(5):
        rig.send(rig.alter(1, rig.proposal([1]), rig.proposal([1], number=1)))
    rig.run()
    assert [done.kind for done in rig.finished] == [EventKind.TOPIC_CHANGE, *[EventKind.ALTER_PARTITION] * 3]
    assert not rig.machine._waiting


@pytest.mark.parametrize(
    ("body", "size"),
    [
        (None, 0),
        (DiskReport(1, 1, [A], [B, C]), 3),
        (StopReport(1, 1, [A], [(B, "KAFKA_STORAGE_ERROR")]), 2),
        (TellAgain(1, 1, [A], [(B, 5)], [C], [("gone", 0)], [A]), 5),
        (StatesCheck([A, B]), 2),
        (AlterPartition(1, 1, [Proposal("t", "", 0, 1, (1,), 0, 1)]), 1),
    ],
    ids=lambda given: type(given).__name__,
)
def test_an_event_s_size_is_the_number_of_partitions_in_it(body: Any, size: int) -> None:
    assert Event(EventKind.BROKER_CHANGE, body=body).size == size


@pytest.mark.parametrize(
    ("path", "event"),
    [
        ("/brokers/ids", BROKER_CHANGE),
        ("/brokers/ids/7", BROKER_CHANGE),
        ("/brokers/topics", TOPIC_CHANGE),
        ("/brokers/topics/t", modified("t")),
        ("/admin/preferred_replica_election", ELECTION_REQUESTED),
    ],
)
def test_a_watch_that_fires_names_the_topic_only_of_a_change_of_its_data(path: str, event: Event) -> None:
    found = change_of(path)
    assert (found, found.topic) == (event, event.topic)


@pytest.mark.parametrize("path", ["/admin/delete_topics/t", "/isr_change_notification/x"])
def test_a_child_whose_data_is_not_watched_is_no_event(path: str) -> None:
    with pytest.raises(KeyError):
        change_of(path)


def test_how_effects_are_called() -> None:
    assert described(Read(1, ReadTopicNames())) == ("ReadTopicNames", 0)
    assert described(Commit(2, [DeleteNode("/a"), DeleteNode("/b")])) == ("Commit", 2)


#: Requests of which several have one kind of response.
SHARED = {"SetDrain", "SetPause", "SetMaintenance", "SetFreeze", "ForgetBroker", "CancelShutdown"}
APPROVALS = {"ApproveStop", "WithdrawStopApproval"}


def test_every_kind_of_event_has_one_handler() -> None:
    """A look, or the body that it carries; ``PartitionModifications`` names topics instead."""
    bodies = [row.kind for row in BODIES.values()]
    assert len({*bodies}) == len(bodies)
    assert sorted([*LOOKS, *bodies, EventKind.PARTITION_MODIFICATIONS], key=str) == sorted(EventKind, key=str)
    assert set(FOLLOW_UPS) == set(FollowUp)
    assert LOOKS.keys() >= {*FOLLOW_UPS.values()}, "deferred work carries no body"


@pytest.mark.parametrize(("body", "row"), BODIES.items())
def test_a_request_is_answered_by_its_own_response(body: type, row: BodyType[Any]) -> None:
    assert (row.alone is None) != (row.together is None)
    name = body.__name__
    if row.answer is None:
        assert not name.startswith(("Set", "Alter", "Create", "Delete"))
        return
    own = "OperatorReply" if name in SHARED else "StopApprovalsReply" if name in APPROVALS else f"{name}Reply"
    assert type(row.answer(ErrorCode.NOT_CONTROLLER)).__name__ == own
    # KafkaController.processControlledShutdown throws ControllerMovedException; the others, NOT_CONTROLLER.
    is_shutdown = name == "ControlledShutdown"
    assert row.not_active is (ErrorCode.STALE_CONTROLLER_EPOCH if is_shutdown else ErrorCode.NOT_CONTROLLER)
