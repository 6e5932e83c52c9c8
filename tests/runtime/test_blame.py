"""Every kind of event with an exception planted in it: what is blamed for it, and that it is left out afterwards."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import Any
from unittest import mock

import pytest

from controller.core import handlers
from controller.core.cluster.quarantine import NEEDED, Quarantine, Suspect
from controller.core.context import CoreSettings, EventContext
from controller.core.effects import Outcome
from controller.core.events import Body, DiskReport, Event, EventKind, StopReport
from controller.core.failover import part_of_failover
from controller.core.handlers import BODIES, LOOKS, event_of
from controller.core.machine import Machine, Ready
from controller.core.model import Broker, Partition, Topic
from controller.core.requests.api import ControllerRequest
from controller.core.requests.brokers import AlterPartition, ControlledShutdown
from controller.core.requests.errors import ErrorCode
from controller.core.requests.operator import CancelShutdown
from controller.runtime.blame import NO_EVENT, Blame, blame, request_digest

NOTHING = Quarantine()


def machine(quarantine: Quarantine = NOTHING) -> Machine:
    return Machine(1, 1, CoreSettings(), lambda: "id", quarantine.events())


def step(made: Machine, stimulus: Event | Outcome) -> Ready:
    return made.step(stimulus, 0)


def raised_by(made: Machine, event: Event, quarantine: Quarantine = NOTHING) -> Blame:
    with pytest.raises(ZeroDivisionError) as caught:
        step(made, event)
    return blame(caught.value, made.current_event, quarantine)


def noted(found: Blame, epoch: int, quarantine: Quarantine = NOTHING) -> Quarantine:
    return quarantine.remember(
        Suspect(found.subject.kind, found.subject.name, found.event, found.error, found.digest, 1, epoch, 0)
    )


def raising(*_: Any) -> Any:
    yield 1 // 0


@pytest.mark.parametrize("kind", sorted(LOOKS.keys() - NEEDED, key=attrgetter("name")))
def test_a_kind_of_event_is_skipped(kind: EventKind) -> None:
    with mock.patch.dict(LOOKS, {kind: raising}):
        found = raised_by(machine(), Event(kind))
        assert str(found.subject) == f"event/{kind.value}"
        quarantine = noted(found, 2, noted(found, 1))
        ready = step(machine(quarantine), Event(kind))
        while ready.more:
            ready = machine(quarantine).step(None, 0)


@pytest.mark.parametrize("kind", sorted(NEEDED, key=attrgetter("name")))
def test_what_no_controller_leads_without_is_named(kind: EventKind) -> None:
    with mock.patch.dict(LOOKS, {kind: raising}):
        found = raised_by(machine(), Event(kind))
        quarantine = noted(found, 2, noted(found, 1))
        assert [str(s.subject) for s in quarantine.quarantined()] == [f"event/{kind.value}"]
        assert raised_by(machine(quarantine), Event(kind), quarantine).subject == found.subject


@pytest.mark.parametrize("body", sorted(BODIES, key=str))
def test_a_request_or_its_kind_is_refused(body: type[Body]) -> None:
    row = BODIES[body]
    empty: Any = body.__new__(body)
    for field in getattr(body, "__struct_fields__", ()) or getattr(body, "__dataclass_fields__", ()):
        object.__setattr__(empty, field, () if field != "broker_id" else 3)
    broken = replace(row, alone=raising if row.alone else None, together=raising if row.together else None)
    with mock.patch.dict(BODIES, {body: broken}):
        found = raised_by(machine(), event_of(empty, 1))
        quarantine = noted(found, 2, noted(found, 1))
    if issubclass(body, ControllerRequest):
        assert str(found.subject) == f"request/{row.kind.value}-{request_digest(empty)}"
        assert quarantine.refuses(row.kind, lambda: request_digest(empty)) is not None
        assert handlers.answer_with(empty, ErrorCode.UNKNOWN_SERVER_ERROR).error.value == -1
    elif body in (DiskReport, StopReport):
        assert str(found.subject) == "broker/3"
    else:
        assert str(found.subject) == f"event/{row.kind.value}"


@pytest.mark.parametrize("part", [EventKind.PREFERRED_ELECTION, EventKind.REASSIGNMENT])
def test_a_part_of_failover_is_skipped(part: EventKind) -> None:
    def failing(context: EventContext) -> Any:
        broker = Broker(7, 1, ())  # as after a loop over all of them
        done.append(f"before {broker.id}")
        yield from part_of_failover(context, part, raising(), 0)
        done.append("after")

    done: list[str] = []
    with mock.patch.dict(LOOKS, {EventKind.FAILOVER: failing}):
        found = raised_by(machine(), Event(EventKind.FAILOVER))
        assert str(found.subject) == f"event/{part.value}"
        assert found.event == EventKind.FAILOVER.value
        quarantine = noted(found, 2, noted(found, 1))
        step(machine(quarantine), Event(EventKind.FAILOVER))
    assert done == ["before 7", "before 7", "after"]


def test_the_topic_or_broker_that_the_innermost_frame_is_about() -> None:
    topic = Topic("inner", "id")

    def inner(partition: Partition) -> None:
        raise ZeroDivisionError(partition)

    def outer(context: Any) -> Any:
        del context
        broker = Broker(5, 1, ())
        inner(Partition(topic, 3, (1,)))
        yield broker

    with mock.patch.dict(LOOKS, {EventKind.BROKER_CHANGE: outer}):
        found = raised_by(machine(), Event(EventKind.BROKER_CHANGE))
    assert (str(found.subject), found.detail) == ("topic/inner", "inner-3")

    def only_a_broker(context: Any) -> Any:
        del context
        broker = Broker(5, 1, ())
        yield from raising(broker)

    with mock.patch.dict(LOOKS, {EventKind.BROKER_CHANGE: only_a_broker}):
        found = raised_by(machine(), Event(EventKind.BROKER_CHANGE))
    assert str(found.subject) == "broker/5"


def test_a_changed_topic_is_blamed_without_any_frame_about_it() -> None:
    with mock.patch.object(handlers, "_topics_modified", raising):
        found = raised_by(machine(), Event(EventKind.PARTITION_MODIFICATIONS, "t"))
    assert str(found.subject) == "topic/t"


def test_what_raises_beside_the_events_blames_no_event() -> None:
    try:
        raise ZeroDivisionError
    except ZeroDivisionError as error:
        found = blame(error, Event(EventKind.TOPIC_CHANGE), Quarantine())
    assert (str(found.subject), found.event) == (f"event/{NO_EVENT}", NO_EVENT)


def test_equal_faults_have_equal_digests() -> None:
    found = []
    for kind in (EventKind.LOG_DIR, EventKind.LEADER_REBALANCE):
        for _ in range(2):
            with mock.patch.dict(LOOKS, {kind: raising}):
                found.append(raised_by(machine(), Event(kind)).digest)
    assert len(set(found)) == 1
    with mock.patch.dict(LOOKS, {EventKind.LOG_DIR: lambda *_: 1 // 0}):
        assert raised_by(machine(), Event(EventKind.LOG_DIR)).digest != found[0]


def test_requests_are_told_apart_by_their_content() -> None:
    asked = [ControlledShutdown(1, 5), ControlledShutdown(1, 5), ControlledShutdown(2, 5)]
    digests = [request_digest(request) for request in asked]
    assert digests[0] == digests[1] != digests[2]


def test_in_one_frame_a_topic_is_blamed_before_a_broker() -> None:
    def failing(broker: Broker, topic: Topic) -> None:
        raise KeyError(broker, topic)

    with pytest.raises(KeyError) as caught:
        failing(Broker(3, 1, ()), Topic("t"))
    assert str(blame(caught.value, None, NOTHING).subject) == "topic/t"


def about_a_partition(*_: Any) -> Any:
    partition = Partition(Topic("inner", "id"), 3, (1,))
    yield 1 // (partition.number - 3)


def test_of_a_broker_s_request_its_topic_is_blamed_and_of_an_operator_s_the_request() -> None:
    for request, subject in (
        (AlterPartition(3, 1, ()), "topic/inner"),
        (CancelShutdown(3, 1), "request/"),
    ):
        row = BODIES[type(request)]
        broken = replace(
            row,
            alone=about_a_partition if row.alone else None,
            together=about_a_partition if row.together else None,
        )
        with mock.patch.dict(BODIES, {type(request): broken}):
            assert str(raised_by(machine(), event_of(request, 1)).subject).startswith(subject)


def test_a_partition_is_named_only_where_its_topic_is_blamed() -> None:
    with mock.patch.dict(LOOKS, {EventKind.BROKER_CHANGE: about_a_partition}):
        found = raised_by(machine(), Event(EventKind.BROKER_CHANGE))
        assert (str(found.subject), found.detail) == ("topic/inner", "inner-3")
        known = noted(found, 2, noted(found, 1))
        # Leaving the topic out did not help.
        found = raised_by(machine(), Event(EventKind.BROKER_CHANGE), known)
    assert (str(found.subject), found.detail) == ("event/BrokerChange", "")
