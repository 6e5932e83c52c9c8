"""Long events give way between their parts to the prompt ones behind them (docs/adr/0022)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from controller.core import context as context_module
from controller.core import handlers, machine
from controller.core.brokers import changes as broker_changes
from controller.core.context import EventContext, Handler
from controller.core.effects import Outcome, ReadTopicNames, SetState
from controller.core.events import Event, EventKind, Finished
from controller.core.machine import Ready
from controller.core.model import ReplicaState
from controller.core.records import ReplicaTransition
from controller.core.requests.brokers import AllocateProducerIds, AlterPartition, ControlledShutdown
from controller.core.requests.errors import ErrorCode
from controller.core.requests.reassignment import AlterPartitionReassignments, PartitionReassignment
from tests.support.core.harness import MachineHarness
from tests.support.core.world import World, state

PARTITIONS = 4


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part is one partition."""
    monkeypatch.setattr(context_module, "PASSED_MAX", 1)
    monkeypatch.setattr(context_module, "PART_MAX", 1)
    monkeypatch.setattr(context_module, "ELECTED_PART_MAX", 1)
    monkeypatch.setattr(broker_changes, "SLICE_MAX", 1)
    monkeypatch.setattr(machine, "PART_MAX", 2)
    monkeypatch.setattr(handlers, "SMALL_MAX", 1)


def led_by_one() -> MachineHarness:
    """Broker 1 leads each partition of ``t``, broker 2 follows; broker 3 leads ``other``, and 2 follows there, too."""
    world = World(1, 2, 3)
    world.create_topic("t", {n: [1, 2] for n in range(PARTITIONS)})
    world.create_topic("other", {0: [3, 2]})
    for number in range(PARTITIONS):
        world.put_state("t", number, state(1, [1, 2], 0, 0))
    world.put_state("other", 0, state(3, [3, 2], 0, 0))
    rig = MachineHarness.active(world)
    rig.forget()
    return rig


def advance_until(rig: MachineHarness, elected: int) -> None:
    """Until so many partitions have the new leader."""
    while sum(found.leader == 2 for found in rig.world.states.values()) < elected:
        assert rig.advance()


def order(finished: list[Finished]) -> list[str]:
    return [done.kind.value for done in finished]


def shrink(rig: MachineHarness) -> AlterPartition:
    return rig.alter(3, rig.proposal([3], "other"))


def test_leaders_are_answered_while_a_broker_failure_is_handled() -> None:
    rig = led_by_one()
    rig.world.broker_down(1)
    advance_until(rig, 1)
    serial = rig.send(shrink(rig))
    rig.run()
    assert order(rig.finished) == ["AlterPartitionReceived", "BrokerChange"]
    assert rig.replies[serial].partitions[0].error is ErrorCode.NONE  # type: ignore[attr-defined]
    assert [rig.stored("t", n)[0] for n in range(PARTITIONS)] == [2] * PARTITIONS
    rig.check_converged()


def many(rig: MachineHarness, isr: list[int]) -> AlterPartition:
    """A long request: of all partitions of ``t``, each of them a part."""
    return rig.alter(1, *(rig.proposal(isr, number=number) for number in range(PARTITIONS)))


@pytest.mark.parametrize("part", [2, 5])
def test_who_asks_about_few_partitions_overtakes_who_asks_about_many(
    monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    monkeypatch.setattr(machine, "PART_MAX", part)
    rig = led_by_one()
    held = rig.send(AllocateProducerIds(3, rig.world.brokers[3].epoch))
    long, few, behind = rig.send(many(rig, [1])), rig.send(shrink(rig)), rig.send(many(rig, [1]))
    also = [rig.send(shrink(rig)) for _ in range(2)]
    rig.run()
    assert list(rig.replies) == [held, few, *also, long, behind]
    # The last two are handled together.
    assert len(rig.finished) == 5
    answers = [rig.replies[serial].partitions for serial in (long, few)]  # type: ignore[attr-defined]
    assert {p.error for found in answers for p in found} == {ErrorCode.NONE}
    assert [rig.stored("t", n)[2] for n in range(PARTITIONS)] == [[1]] * PARTITIONS


def test_a_long_request_gives_way_between_its_parts_and_is_answered_once() -> None:
    rig = led_by_one()
    long = rig.send(many(rig, [1]))
    handled_at: list[int] = []
    while long not in rig.replies:
        assert rig.advance()
        if not rig.machine.queue_size and not rig.world.events:
            rig.send(AllocateProducerIds(3, rig.world.brokers[3].epoch))
        written = sum(found.isr == (1,) for found in rig.world.states.values())
        handled_at += [written] * (len(rig.finished) - len(handled_at))
    assert {1, 2, 3} <= set(handled_at)
    assert len(rig.replies[long].partitions) == PARTITIONS  # type: ignore[attr-defined]


def test_a_move_that_any_part_of_a_long_request_ends_is_ended() -> None:
    rig = led_by_one()
    rig.ask(AlterPartitionReassignments([PartitionReassignment("t", n, (1, 3)) for n in range(PARTITIONS)]))
    rig.send(many(rig, [1, 2, 3]))
    rig.run()
    assert not rig.cluster.reassignments.ongoing


def test_a_long_request_that_is_let_in_gives_way_too() -> None:
    rig = led_by_one()
    rig.world.broker_down(2)
    while rig.machine.current_event is None or not rig.outstanding:
        assert rig.advance()
    long = rig.send(many(rig, [1]))
    while not (current := rig.machine.current_event) or current.kind is not EventKind.ALTER_PARTITION:
        assert rig.advance()
    few = rig.send(shrink(rig))
    rig.run()
    assert list(rig.replies) == [few, long]
    assert order(rig.finished)[-3:] == ["AlterPartitionReceived", "AlterPartitionReceived", "BrokerChange"]
    rig.check_converged()


def test_long_requests_are_handled_together_up_to_a_part() -> None:
    rig = led_by_one()
    rig.send(AllocateProducerIds(3, rig.world.brokers[3].epoch))
    pairs = [[rig.proposal([1], number=n) for n in (at, at + 1)] for at in (0, 2)]
    for two in pairs:
        rig.send(rig.alter(1, *two))
    rig.run()
    assert order(rig.finished)[1:] == ["AlterPartitionReceived"] * 2


def test_of_a_topic_that_vanishes_within_a_long_request_the_rest_is_refused() -> None:
    rig = led_by_one()
    long = rig.send(many(rig, [1]))
    while sum(found.isr == (1,) for found in rig.world.states.values()) < 1:
        assert rig.advance()
    rig.world.delete_topic("t")
    rig.run()
    errors = [p.error for p in rig.replies[long].partitions]  # type: ignore[attr-defined]
    assert errors[0] is ErrorCode.NONE
    assert errors[-1] is ErrorCode.UNKNOWN_TOPIC_ID
    assert order(rig.finished)[-1] == "AlterPartitionReceived"


def test_each_part_is_followed_by_what_waited_at_its_end() -> None:
    rig = led_by_one()
    rig.world.broker_down(1)
    handled_at: list[int] = []
    for elected in (1, 2):
        advance_until(rig, elected)
        serial = rig.send(AllocateProducerIds(3, rig.world.brokers[3].epoch))
        while serial not in rig.replies:
            assert rig.advance()
        handled_at.append(sum(found.leader == 2 for found in rig.world.states.values()))
    rig.run()
    # Not at the end: the next part is all that may have come before.
    assert handled_at[0] <= 2
    assert handled_at[1] <= 3
    assert order(rig.finished) == ["AllocateProducerIds", "AllocateProducerIds", "BrokerChange"]


def test_what_arrives_meanwhile_waits_for_the_next_part() -> None:
    """However fast requests come, the long event goes on."""
    rig = led_by_one()
    rig.world.broker_down(1)
    advance_until(rig, 1)
    serials: list[int] = []
    while "BrokerChange" not in order(rig.finished):
        assert len(serials) < 50, "it never goes on"
        if not rig.machine.queue_size and not rig.world.events:
            serials.append(rig.send(AllocateProducerIds(3, rig.world.brokers[3].epoch)))
        assert rig.advance()
    rig.run()
    assert set(serials) <= rig.replies.keys()


def test_what_is_not_prompt_keeps_its_turn_and_so_does_what_is_behind_it() -> None:
    rig = led_by_one()
    rig.world.broker_down(1)
    advance_until(rig, 1)
    rig.world.ask_preferred(("other", 0))
    rig.send(shrink(rig))
    rig.run()
    expected = ["BrokerChange", "ReplicaLeaderElection", "AlterPartitionReceived"]
    assert order(rig.finished)[:3] == expected


def test_brokers_get_requests_of_events_in_order() -> None:
    """They refuse an older event's request after a newer one's: the long event goes on under its own number."""
    rig = led_by_one()
    rig.world.broker_down(1)
    advance_until(rig, 1)
    rig.send(shrink(rig))
    rig.run()
    for broker_id in (2, 3):
        told = [s.message.event_id for s in rig.sent if s.broker == broker_id]
        assert told == sorted(told)
    long = {b.event_id for b in rig.batches if b.cause == "BrokerChange"}
    assert long == {done.event_id for done in rig.finished if done.kind is EventKind.BROKER_CHANGE}


def test_topics_are_created_while_a_broker_is_let_go() -> None:
    rig = led_by_one()
    rig.send(ControlledShutdown(1, rig.world.brokers[1].epoch))
    advance_until(rig, 1)
    rig.world.create_topic("new", {0: [1, 2]})
    rig.run()
    assert order(rig.finished) == ["TopicChange", "ControlledShutdown"]
    # Who is let go leads nothing that is new.
    assert rig.stored("new")[0] == 2
    rig.check_converged()


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_topic_that_vanishes_meanwhile_is_not_told_of(at: int) -> None:
    rig = led_by_one()
    rig.world.broker_down(1)
    advance_until(rig, at)
    rig.world.delete_topic("t")
    rig.run()
    assert order(rig.finished)[-1] == "BrokerChange"
    assert rig.cluster.topics.keys() == {"other"}
    for queue in rig.machine.outbox.queues.values():
        assert not any(queue.rounds)


def test_a_broker_that_comes_is_not_told_of_a_topic_that_vanishes_meanwhile() -> None:
    rig = led_by_one()
    rig.world.broker_down(2)
    rig.run()
    rig.world.broker_up(2)
    rig.slow = {2}
    queues = rig.machine.outbox.queues
    rig.one_step(rig.world.events.popleft())
    while 2 not in queues or len(queues[2].whole) < 2:
        # None of its parts waits for an answer once the brokers are read.
        rig.one_step(rig.perform(rig.outstanding.pop()) if rig.outstanding else None)
    rig.world.delete_topic("t")
    while rig.world.events:
        rig.machine.enqueue(rig.world.events.popleft(), rig.now_us)
    rig.step(None)
    rig.run()
    assert [p.name for p in queues[2].whole] == ["other-0"]


def test_nobody_is_elected_for_a_topic_that_vanishes_meanwhile() -> None:
    """Its leader was alone in sync, and comes back."""
    rig = led_by_one()
    rig.ask(many(rig, [1]))
    rig.world.broker_down(1)
    rig.run()
    rig.world.broker_up(1)
    while not any(found.leader == 1 for found in rig.world.states.values()):
        assert rig.advance()
    rig.world.delete_topic("t")
    rig.forget()
    rig.run()
    assert rig.rejects().count("ELECTION_FAILED") <= 1, "that of the part under way"


def test_after_a_broker_that_is_back_the_failure_of_another_gives_way() -> None:
    rig = led_by_one()
    rig.world.bounce(3)
    rig.world.broker_down(1)
    advance_until(rig, 1)
    rig.send(AllocateProducerIds(2, rig.world.brokers[2].epoch))
    rig.run()
    assert order(rig.finished)[:2] == ["AllocateProducerIds", "BrokerChange"]


def run_with(rig: MachineHarness, moment: int, meanwhile: Callable[[], object]) -> None:
    """Something happens after so many steps, and is heard of at once."""
    left, one_step = iter(range(moment, -1, -1)), rig.one_step

    def step(stimulus: Event | Outcome | None) -> Ready:
        if next(left, None) == 0:
            meanwhile()
            while rig.world.events:
                rig.machine.enqueue(rig.world.events.popleft(), rig.now_us)
            rig.forget()
        return one_step(stimulus)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rig, "one_step", step)
        rig.run()


def made_anew_at(moment: int, *, let_go: bool = False) -> MachineHarness:
    """While broker 1 goes, or is let go, ``t`` is made anew with other replicas, so many steps after its beginning."""
    rig = led_by_one()

    def anew() -> None:
        rig.world.delete_topic("t")
        rig.world.create_topic("t", {n: [2] for n in range(PARTITIONS)})

    if let_go:
        rig.send(ControlledShutdown(1, rig.world.brokers[1].epoch))
    else:
        rig.world.broker_down(1)
    run_with(rig, moment, anew)
    return rig


def test_of_a_topic_that_is_made_anew_meanwhile_no_replica_goes_but_in_the_part_under_way() -> None:
    gone = [
        sum(r.after is ReplicaState.OFFLINE for r in rig.recorded(ReplicaTransition))
        for rig in map(made_anew_at, range(40))
        if "TopicChange" in order(rig.finished)
    ]
    assert set(gone) == {0, 1}


def test_of_a_topic_that_is_made_anew_meanwhile_no_leadership_goes_but_in_the_part_under_way() -> None:
    tried = [
        sum(
            isinstance(w, SetState) and w.partition.replicas == (1, 2)
            for c in rig.commits()
            for w in c.writes
        )
        for rig in (made_anew_at(moment, let_go=True) for moment in range(40))
        if "TopicChange" in order(rig.finished)
    ]
    assert set(tried) <= {0, 1}
    assert len(tried) > 5


def test_nobody_decides_by_the_absence_of_a_broker_that_is_back() -> None:
    rig = led_by_one()
    rig.world.bounce(1)
    advance_until(rig, 1)
    rig.world.create_topic("new", {0: [1, 2]})
    rig.run()
    # Only once it counts as there: with all its parts done.
    assert rig.stored("new") == (1, 0, [1, 2])


def test_nothing_may_be_under_way_when_an_event_gives_way() -> None:
    rig = led_by_one()

    def hasty(context: EventContext) -> Handler[None]:
        context.submit_read(ReadTopicNames())
        yield from context.give_way()

    with pytest.raises(AssertionError, match="not all of its effects"):
        rig.drive(hasty)


def steps_with_one_waiting(rig: MachineHarness) -> Iterator[int]:
    """Until the event is over, with a prompt request that waits at each step: how many are answered by then."""
    ready, first = rig.one_step(rig.world.events.popleft()), len(rig.finished)
    while not {"BrokerChange", "ControlledShutdown"} & set(order(rig.finished[first:])):
        if not rig.machine.queue_size:
            rig.send(AllocateProducerIds(3, rig.world.brokers[3].epoch))
            rig.machine.enqueue(rig.world.events.pop(), rig.now_us)
        ready = rig.one_step(None if ready.more else rig.perform(rig.outstanding.pop(0)))
        yield len(rig.finished) - first


def comes_back(rig: MachineHarness) -> None:
    rig.world.broker_down(2)
    rig.run()
    rig.world.broker_up(2)


def lets_go(broker_id: int) -> Callable[[MachineHarness], object]:
    return lambda rig: rig.send(ControlledShutdown(broker_id, rig.world.brokers[broker_id].epoch))


@pytest.mark.parametrize(
    ("begins", "least"),
    [
        (comes_back, 10),
        (lambda rig: rig.world.broker_down(2), 30),
        (lambda rig: rig.world.broker_down(1), 36),
        (lets_go(1), 26),
        (lets_go(2), 28),
    ],
    ids=["comes", "follower goes", "leader goes", "leader is let go", "follower is let go"],
)
def test_who_waits_is_answered_between_each_two_parts_and_within_looks_at_all_partitions(
    begins: Callable[[MachineHarness], object], least: int
) -> None:
    """Two at each part and at each partition that is looked at."""
    rig = led_by_one()
    begins(rig)
    *_, answered = steps_with_one_waiting(rig)
    assert answered >= least


def test_nobody_is_let_in_before_leaders_are_elected() -> None:
    rig = led_by_one()
    rig.world.broker_down(1)
    next(answered for answered in steps_with_one_waiting(rig) if answered)
    assert rig.stored("t")[0] == 2


def test_nobody_is_let_in_before_it_is_known_what_a_broker_that_comes_has_lost() -> None:
    rig = led_by_one()
    comes_back(rig)
    rig.slow = {2}
    next(answered for answered in steps_with_one_waiting(rig) if answered)
    assert rig.machine.outbox.queues[2].whole


def test_of_a_topic_that_vanishes_meanwhile_nothing_remains_for_who_is_let_go() -> None:
    vanished_first = 0
    for moment in range(40):
        rig = led_by_one()
        # Nobody else can lead it.
        rig.ask(many(rig, [1]))
        rig.forget()
        serial = rig.send(ControlledShutdown(1, rig.world.brokers[1].epoch))
        run_with(rig, moment, partial(rig.world.delete_topic, "t"))
        kinds = order(rig.finished)
        if kinds[-1] == "ControlledShutdown" and "TopicChange" in kinds:
            assert not rig.replies[serial].remaining  # type: ignore[attr-defined]
            vanished_first += 1
    assert vanished_first > 10
