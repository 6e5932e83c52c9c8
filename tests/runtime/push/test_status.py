"""What operators are told of the pushes to one broker."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from controller.core.model import Broker, Partition, Topic
from controller.core.outbox import Push, PushKind
from controller.runtime.push import status as module
from controller.runtime.push.status import SenderStatus

FIRST, SECOND = (Partition(Topic("t"), number, (1,)) for number in (0, 1))
REFUSED = "KAFKA_STORAGE_ERROR"


def push(kind: PushKind, *partitions: Partition) -> Push:
    return Push(kind, Broker(1, 7, ()), list(partitions))


@pytest.mark.parametrize("kind", list(PushKind))
def test_a_refusal_lasts_until_one_of_its_kind_is_acknowledged(kind: PushKind) -> None:
    status = SenderStatus(7)
    for each in PushKind:
        status.refuse(push(each, FIRST), "STALE_CONTROLLER_EPOCH", 9)
    status.acknowledge(kind, 1, 0.0)
    assert status.refused == {
        each: f"refuses {each.value}: STALE_CONTROLLER_EPOCH: it has seen controller epoch 9"
        for each in PushKind
        if each is not kind
    }


@pytest.mark.parametrize("kind", list(PushKind))
def test_only_a_refused_leader_and_isr_leaves_partitions_untold(kind: PushKind) -> None:
    status = SenderStatus(7)
    status.refuse(push(kind, FIRST, SECOND), REFUSED, 0)
    untold = [FIRST, SECOND] if kind is PushKind.LEADER_AND_ISR else []
    assert list(status.not_led) == untold


def test_a_partition_is_refused_until_it_is_led_or_stopped() -> None:
    status = SenderStatus(7)
    status.led([], {FIRST: REFUSED, SECOND: REFUSED})
    assert status.refused_partitions == f"refuses LeaderAndIsr of 2 partitions: {REFUSED} x2"
    assert status.why_not_led(FIRST) == f"refused to lead it: {REFUSED}"
    status.led([], {FIRST: "ABC", SECOND: REFUSED})
    status.led([], {SECOND: REFUSED})
    assert status.refused_partitions == f"refuses LeaderAndIsr of 2 partitions: ABC x1, {REFUSED} x1"
    status.led([], {FIRST: "XYZ"})
    assert status.refused_partitions == f"refuses LeaderAndIsr of 2 partitions: {REFUSED} x1, XYZ x1"
    status.led([FIRST, Partition(Topic("t"), 2, (1,))], {})
    assert status.refused_partitions == f"refuses LeaderAndIsr of 1 partition: {REFUSED} x1"
    status.forget([SECOND])
    assert (status.refused_partitions, status.why_not_led(SECOND)) == ("", "")


def test_what_was_sent_is_not_led_until_there_is_an_answer() -> None:
    status = SenderStatus(7)
    status.begin(push(PushKind.UPDATE_METADATA, FIRST))
    assert status.why_not_led(FIRST) == ""
    status.begin(push(PushKind.LEADER_AND_ISR, FIRST))
    status.unreachable = "connection refused"
    assert status.why_not_led(FIRST) == "has not answered yet (connection refused)"
    assert status.why_not_led(SECOND) == ""
    status.answered()
    assert status.why_not_led(FIRST) == ""


def test_a_broker_that_does_not_answer_is_a_problem_before_what_it_refused() -> None:
    status = SenderStatus(7)
    assert status.problem == ""
    status.refuse(push(PushKind.UPDATE_METADATA), REFUSED, 0)
    assert status.problem == f"refuses UpdateMetadata: {REFUSED}"
    status.unreachable = "connection refused"
    assert status.problem == "connection refused"


def test_requests_and_partitions_are_counted_and_the_age_is_that_of_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 250.0))
    status = SenderStatus(7)
    never = status.age_s
    assert never is None
    for count, now_s in ((3, 200.0), (4, 240.0)):
        status.acknowledge(PushKind.LEADER_AND_ISR, count, now_s)
    assert (status.acknowledged_requests, status.acknowledged_partitions) == (2, 7)
    assert status.age_s == 10.0
