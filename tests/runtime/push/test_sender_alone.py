"""Senders with a transport that the test holds in its hands: nothing is sent anywhere, and time leaps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from controller.core.events import DiskReport, StopReport
from controller.core.model import Broker, ControlProtocol, Endpoint, Partition
from controller.core.outbox import Outbox, Push, PushKind
from controller.core.records import LogBatch, PushAcknowledged
from controller.errors import LeaseExpiredError
from controller.runtime.observe.metrics import ControllerMetrics
from controller.runtime.push import sender
from controller.runtime.push.sender import Senders
from controller.runtime.push.transport import Answer, PartitionError, UnreachableError
from proto.gen import common_pb2 as codes
from tests.support.broker.replication_fakes import leaping, run_ready_tasks
from tests.support.core.world import state
from tests.support.runtime.pushes import topic

NOBODY = UnreachableError("nobody is there")


class Hand:
    """Transports, and one transport of each sender. ``answers``: what each message gets, the last one for ever."""

    def __init__(self) -> None:
        #: Broker epoch, request, message.
        self.sent: list[tuple[int, str, bytes]] = []
        self.answers: list[Callable[[Push, bytes], Answer]] = [lambda _push, _message: Answer(0)]
        self.failures = 0
        self.connects = True
        #: Whom it connected to, or tried to.
        self.hosts: list[str] = []
        #: When it connected, sent, or tried to.
        self.times: list[float] = []
        #: Partitions in one message.
        self.size = 1000
        self.slow_s = 0.0
        self.open_now = 0

    def open(self) -> Hand:
        self.open_now += 1
        return self

    def forget(self) -> None: ...

    async def connect(self, broker: Broker) -> None:
        self.hosts.append(broker.control_endpoint.host)
        if not self.connects:
            self._note()
            raise NOBODY

    def _note(self) -> None:
        self.times.append(asyncio.get_running_loop().time())

    def build(self, push: Push) -> Iterator[tuple[bytes, int]]:
        names = [str(p).encode() for p in push.partitions]
        for start in range(0, max(len(names), 1), self.size):
            part = names[start : start + self.size]
            yield b",".join(part), len(part)

    async def send(self, broker: Broker, push: Push, message: bytes) -> Answer:
        self._note()
        await asyncio.sleep(self.slow_s)
        if self.failures:
            self.failures -= 1
            raise NOBODY
        self.sent.append((broker.epoch, push.kind.value, message))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return answer(push, message)

    async def close(self) -> None:
        self.open_now -= 1


class Rig:
    def __init__(self) -> None:
        self.hand, self.outbox = Hand(), Outbox()
        self.leads = True
        self.bugs: list[BaseException] = []
        self.reported: list[DiskReport | StopReport] = []
        self.suspected: list[int] = []
        self.records: list[LogBatch] = []
        self.heard: list[int] = []
        self.idle: Callable[[], None] = lambda: None
        self.senders = Senders(
            self.outbox,
            dict.fromkeys(ControlProtocol, self.hand),
            ControllerMetrics(CollectorRegistry()),
            require_lease=self._require_lease,
            record=self.records.append,
            suspect=lambda _why, epoch: self.suspected.append(epoch),
            report=self.reported.append,
            heard=self.heard.append,
            on_bug=self.bugs.append,
            on_idle=lambda: self.idle(),
        )

    @property
    def disks(self) -> list[DiskReport]:
        return [report for report in self.reported if isinstance(report, DiskReport)]

    @property
    def stops(self) -> list[StopReport]:
        return [report for report in self.reported if isinstance(report, StopReport)]

    def _require_lease(self) -> None:
        if not self.leads:
            raise LeaseExpiredError("over")

    async def joins(self, epoch: int = 5, host: str = "h", id_: int = 1) -> None:
        broker = Broker(id_, epoch, (Endpoint("GRPC", "PLAINTEXT", host, 1),))
        self.outbox.add_broker(broker, 1, "test")
        await self.go()
        self.hand.sent.clear()

    async def go(self, seconds: float = 0.0) -> None:
        self.senders.sync(deciding=False)
        await asyncio.sleep(seconds)
        await run_ready_tasks()

    async def told(self, partitions: Sequence[Partition], seconds: float = 0.0) -> None:
        for partition in partitions:
            self.outbox.leader_and_isr([([1], partition)], False, 2, "test")
        await self.go(seconds)

    async def stopped(self, partitions: Sequence[Partition], seconds: float = 0.0) -> None:
        for partition in partitions:
            self.outbox.stop_replica([(partition, 1)], True, 2, "test")
        await self.go(seconds)


def errors(*found: tuple[Partition, int]) -> Callable[[Push, bytes], Answer]:
    return lambda _push, _message: Answer(
        0, [PartitionError(p.topic.name, p.number, code) for p, code in found]
    )


@leaping
async def test_a_new_incarnation_is_told_only_when_the_former_one_s_request_is_over() -> None:
    rig = Rig()
    await rig.joins()
    rig.hand.slow_s = 5.0
    await rig.told(topic("t", 1))
    await rig.joins(epoch=6)
    assert rig.hand.open_now == 1
    await rig.go(20.0)
    assert {epoch for epoch, _, _ in rig.hand.sent} == {6}
    assert rig.hand.open_now == 1


@leaping
async def test_what_a_former_incarnation_refused_is_not_said_of_the_new_one() -> None:
    rig = Rig()
    await rig.joins()
    (partition,) = topic("t", 1)
    rig.hand.answers = [errors((partition, codes.KAFKA_STORAGE_ERROR))]
    await rig.told([partition])
    assert rig.senders.refusal(1, partition) == "KAFKA_STORAGE_ERROR"
    await rig.joins(epoch=6)
    assert (rig.senders.refusal(1, partition), rig.senders.status[1].broker_epoch) == ("", 6)


@pytest.mark.parametrize("connects", [True, False])
@leaping
async def test_what_is_tried_again_ends_with_the_lease(connects: bool) -> None:
    rig = Rig()
    await rig.joins()
    rig.hand.failures, rig.hand.connects = 10_000, connects
    await rig.told(topic("t", 1), 10.0)
    rig.leads = False
    await rig.go(10.0)
    assert [type(bug) for bug in rig.bugs] == [LeaseExpiredError]


@leaping
async def test_answers_count_for_the_partitions_of_their_message() -> None:
    rig = Rig()
    await rig.joins()
    partitions = topic("t", 3)
    rig.hand.size = 1
    rig.hand.answers = [errors((p, codes.NONE)) for p in partitions]
    await rig.stopped(partitions)
    assert [[p.number for p in report.deleted] for report in rig.stops] == [[0], [1], [2]]
    assert not any(report.failed for report in rig.stops)


@leaping
async def test_a_deletion_that_is_refused_or_not_named_has_failed() -> None:
    rig = Rig()
    await rig.joins()
    one, other = topic("t", 2)
    rig.hand.answers = [errors((one, codes.NONE)), lambda *_: Answer(codes.STALE_CONTROLLER_EPOCH)]
    await rig.stopped([one, other])
    await rig.stopped([one])
    assert [(len(report.deleted), [why for _, why in report.failed]) for report in rig.stops] == [
        (1, ["UNKNOWN_SERVER_ERROR"]),
        (0, ["STALE_CONTROLLER_EPOCH"]),
    ]


@leaping
async def test_a_broker_is_settled_once_it_has_answered_and_is_busy_no_more_when_it_goes() -> None:
    rig = Rig()
    await rig.joins()
    partition, *_ = topic("t", 1)
    rig.hand.slow_s = 5.0
    await rig.told([partition])
    assert not rig.senders.settled(1)
    assert "has not answered yet" in rig.senders.not_told(1, partition)
    await rig.go(6.0)
    assert rig.senders.settled(1)
    assert rig.senders.not_told(1, partition) == ""
    rig.outbox.leader_and_isr([([1], partition)], False, 3, "test")
    assert "has not been told yet" in rig.senders.not_told(1, partition)
    await rig.go()
    rig.outbox.remove_broker(1)
    await rig.go()
    assert not rig.senders.busy


@leaping
async def test_a_broker_whose_address_changed_is_reached_at_the_new_one() -> None:
    rig = Rig()
    await rig.joins()
    rig.hand.connects = False
    rig.hand.hosts.clear()
    await rig.told(topic("t", 1))
    queue = rig.outbox.queues[1]
    queue.broker = Broker(1, 5, (Endpoint("GRPC", "PLAINTEXT", "other", 1),))
    rig.hand.connects = True
    await rig.go(1.0)
    assert (rig.hand.hosts, len(rig.hand.sent)) == (["h", "other"], 1)


@leaping
async def test_what_is_queued_as_it_comes_to_rest_is_sent() -> None:
    rig = Rig()
    await rig.joins()
    first, second = topic("t", 2)

    def queue_another() -> None:
        rig.idle = lambda: None
        rig.outbox.leader_and_isr([([1], second)], False, 3, "test")
        asyncio.get_running_loop().call_soon(rig.senders.sync, False)

    rig.idle = queue_another
    await rig.told([first])
    await run_ready_tasks()
    assert [message for _, _, message in rig.hand.sent] == [str(first).encode(), str(second).encode()]


@leaping
async def test_disks_that_failed_and_were_repaired_are_reported() -> None:
    rig = Rig()
    await rig.joins()
    one, *_ = topic("t", 1)
    for code in (codes.NONE, codes.KAFKA_STORAGE_ERROR, codes.NONE):
        rig.hand.answers = [errors((one, code))]
        await rig.told([one])
    assert [(list(r.failed), list(r.healthy)) for r in rig.disks] == [([one], []), ([], [one])]


@leaping
async def test_a_refusal_is_recorded_when_its_reason_changes() -> None:
    rig = Rig()
    await rig.joins()
    one, *_ = topic("t", 1)
    for code in (codes.FENCED_LEADER_EPOCH, codes.FENCED_LEADER_EPOCH, codes.UNKNOWN_SERVER_ERROR):
        rig.hand.answers = [errors((one, code))]
        await rig.told([one])
    found: list[Any] = [r for batch in rig.records for r in batch.records if hasattr(r, "reason")]
    assert [record.reason for record in found] == ["FENCED_LEADER_EPOCH", "UNKNOWN_SERVER_ERROR"]
    await rig.stopped([one])
    assert rig.senders.refusal(1, one) == ""


@leaping
async def test_a_request_refused_as_a_whole_stays_a_problem_of_its_kind() -> None:
    rig = Rig()
    await rig.joins()
    one, *_ = topic("t", 1)
    rig.hand.answers = [lambda *_: Answer(codes.STALE_CONTROLLER_EPOCH, (), 9), lambda *_: Answer(0)]
    await rig.told([one])
    await rig.stopped(topic("u", 1))
    assert rig.suspected == [9]
    status = rig.senders.status[1]
    assert "LeaderAndIsr" in status.problem
    assert rig.senders.refusal(1, one) == "STALE_CONTROLLER_EPOCH"
    await rig.told([one])
    assert (status.problem, rig.senders.refusal(1, one)) == ("", "")


@leaping
async def test_the_benign_error_of_a_redundant_order_is_none_of_a_stop() -> None:
    rig = Rig()
    await rig.joins()
    one, *_ = topic("t", 1)
    rig.hand.answers = [errors((one, codes.STALE_CONTROLLER_EPOCH))]
    await rig.told([one])
    await rig.stopped([one])
    acks = [r for batch in rig.records for r in batch.records if isinstance(r, PushAcknowledged)]
    kinds = [(ack.message, ack.error) for ack in acks[-2:]]
    assert kinds == [
        (PushKind.LEADER_AND_ISR.value, ""),
        (PushKind.STOP_REPLICA.value, "STALE_CONTROLLER_EPOCH x1"),
    ]


@leaping
async def test_how_long_an_answer_took_is_recorded_in_microseconds() -> None:
    rig = Rig()
    clock = SimpleNamespace(monotonic=asyncio.get_running_loop().time, time=lambda: 0.0)
    with mock.patch.object(sender, "time", clock):
        await rig.joins()
        rig.hand.slow_s = 2.0
        await rig.told(topic("t", 1), 3.0)
    acks = [r for batch in rig.records for r in batch.records if isinstance(r, PushAcknowledged)]
    assert acks[-1].duration_us == pytest.approx(2_000_000, abs=1)


@pytest.mark.parametrize("connects", [True, False])
@leaping
async def test_a_broker_that_is_away_is_tried_ever_more_slowly_and_logged_ever_more_rarely(
    connects: bool,
) -> None:
    rig = Rig()
    await rig.joins()
    rig.hand.failures, rig.hand.connects = 10_000, connects
    rig.hand.times.clear()
    with capture_logs() as logs:
        await rig.told(topic("t", 1), 14.0)
    pauses = [after - before for before, after in pairwise(rig.hand.times)]
    assert pauses[:7] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0])
    assert [entry["attempt"] for entry in logs] == [1, 2, 4, 8]


@leaping
async def test_much_that_nobody_waits_for_is_told_within_a_pause_of_a_long_event() -> None:
    loop = asyncio.get_running_loop()
    rig = Rig()
    await rig.joins()
    with mock.patch.object(sender, "time", SimpleNamespace(monotonic=loop.time)):
        rig.hand.times.clear()
        rig.outbox.update_metadata(topic("t", 200), 2, "test")
        began = loop.time()
        for _ in range(20):
            rig.senders.sync(deciding=True)
            await asyncio.sleep(0.01)
        assert rig.hand.times == pytest.approx([began + sender.BUSY_PAUSE_S])


@leaping
async def test_small_changes_gather_and_an_urgent_one_is_told_at_once() -> None:
    loop = asyncio.get_running_loop()
    rig = Rig()
    await rig.joins()
    await rig.go(1.0)
    first, second, third = topic("t", 3)
    rig.hand.times.clear()
    began = loop.time()
    for partition in (first, second, third):
        rig.outbox.update_metadata([partition], 2, "test")
        await rig.go(0.004)
    await rig.go(0.1)
    assert rig.hand.times == pytest.approx([began, began + sender.REST_S])
    rig.hand.times.clear()
    began = loop.time()
    rig.outbox.update_metadata([first], 2, "test")
    await rig.go(0.004)
    rig.outbox.leader_and_isr([([1], first)], False, 2, "test")
    await rig.go(0.1)
    assert rig.hand.times == pytest.approx([began, began + 0.004])
    # Nor does much.
    rig.hand.times.clear()
    began = loop.time()
    rig.outbox.update_metadata([first], 2, "test")
    await rig.go(0.004)
    rig.outbox.update_metadata(topic("u", sender.SMALL_PARTITIONS + 1), 2, "test")
    await rig.go(0.1)
    assert rig.hand.times == pytest.approx([began, began + 0.004])


@leaping
async def test_whoever_is_woken_looks_for_something_to_send() -> None:
    rig = Rig()
    await rig.joins()
    partition, *_ = topic("t", 1)
    rig.outbox.leader_and_isr([([1], partition)], False, 2, "test")
    rig.senders.wake(7)
    await run_ready_tasks()
    assert not rig.hand.sent
    rig.senders.wake(1)
    await run_ready_tasks()
    assert [message for _, _, message in rig.hand.sent] == [str(partition).encode()]
    assert rig.heard == [1, 1], "it is there"


@leaping
async def test_who_has_not_been_told_is_said_with_the_reason() -> None:
    rig = Rig()
    await rig.joins()
    partition, other = topic("t", 2)
    rig.hand.connects = False
    await rig.told([partition])
    rig.outbox.leader_and_isr([([1], other)], False, 2, "test")
    assert rig.senders.unacknowledged(partition) == "broker 1 has not answered yet (nobody is there)"
    assert rig.senders.unacknowledged(other) == "broker 1 has not been told yet (nobody is there)"
    assert rig.senders.not_told(7, partition) == "broker 7 has not been told yet"
    assert partition.leadership is not None
    partition.leadership = state(-1, [1], 0, 0)
    assert rig.senders.unacknowledged(partition) == ""
    partition.leadership = None
    assert rig.senders.unacknowledged(partition) == ""


@leaping
async def test_refusals_are_listed_by_broker() -> None:
    rig = Rig()
    partition, *_ = topic("t", 1)
    rig.hand.answers = [errors((partition, codes.UNKNOWN_SERVER_ERROR))]
    for id_ in (3, 1, 2):
        await rig.joins(id_=id_)
    for id_ in (3, 1, 2):
        rig.outbox.leader_and_isr([([id_], partition)], False, 2, "test")
    await rig.go()
    assert list(rig.senders.refusals()) == [(id_, partition, "UNKNOWN_SERVER_ERROR") for id_ in (1, 2, 3)]
    rig.outbox.remove_broker(2)
    await rig.go()
    assert [id_ for id_, _, _ in rig.senders.refusals()] == [1, 3]


@leaping
async def test_only_a_stale_controller_epoch_makes_this_controller_doubt() -> None:
    rig = Rig()
    await rig.joins()
    rig.hand.answers = [lambda *_: Answer(codes.UNKNOWN_SERVER_ERROR, (), 9)]
    await rig.told(topic("t", 1))
    assert rig.suspected == []
    assert rig.senders.status[1].problem == "refuses LeaderAndIsr: UNKNOWN_SERVER_ERROR"


@leaping
async def test_an_answer_says_nothing_of_what_it_does_not_name() -> None:
    """Neither of another partition that was refused before, nor does a stranger's hide those that follow."""
    rig = Rig()
    await rig.joins()
    one, other = topic("t", 2)
    stranger, *_ = topic("u", 1)
    rig.hand.answers = [errors((one, codes.KAFKA_STORAGE_ERROR))]
    await rig.told([one])
    rig.hand.answers = [errors((stranger, codes.NONE), (other, codes.NONE))]
    await rig.told([one, other])
    assert (rig.senders.refusal(1, one), rig.senders.refusal(1, other)) == ("KAFKA_STORAGE_ERROR", "")
    assert [(list(r.failed), list(r.healthy)) for r in rig.disks] == [([one], []), ([], [other])]
    assert {batch.event_id for batch in rig.records[-5:]} == {2}
