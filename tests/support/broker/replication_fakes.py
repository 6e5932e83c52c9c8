"""A broker's replication with nothing outside it: logs in memory, a clock that is told, other brokers by hand."""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, ParamSpec

from broker_stub.control.metadata import MetadataCache
from broker_stub.control.replicas import Answer, Replicas
from broker_stub.control.requests import (
    Endpoint,
    Key,
    LeaderAndIsr,
    LiveBroker,
    MetadataUpdate,
    PartitionMetadata,
    StopReplica,
)
from broker_stub.errors import BrokerError
from broker_stub.log import batches
from broker_stub.log.errors import LogError, LogFault
from broker_stub.log.interface import Appended, Log, LogConfig, TimestampOffset
from broker_stub.replication.fetcher import Address, FetchSettings, Following
from broker_stub.replication.manager import Dependencies, ReplicaManager
from broker_stub.replication.partition import Partition
from broker_stub.replication.ports import IsrProposal, IsrResult, IsrUnanswered, IsrWriter
from broker_stub.replication.service import DataService
from broker_stub.replication.throttle import ALL_PARTITIONS, Quotas, ReplicationQuota
from proto.gen import broker_data_pb2 as wire
from proto.gen import common_pb2 as codes
from tests.support.broker.memory_log import MemoryLog

_P = ParamSpec("_P")
#: Not partition 0: that is also what a message says that leaves the partition out.
FOO: Key = ("foo", 3)
#: Turns of the loop after which everything that can happen without time or network has happened.
_TURNS = 14


class SteppedClock(asyncio.SelectorEventLoop):
    """A loop whose time stands still until `now` is set: timers fire when they are told."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__()

    def time(self) -> float:
        return self.now

    @property
    def now_ms(self) -> int:
        return round(self.now * 1000)


class LeapingClock(asyncio.SelectorEventLoop):
    """A loop whose time leaps to the next timer when nothing else is left to do."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_LeapingSelector(self))

    def time(self) -> float:
        return self._now

    def leap(self, seconds: float) -> None:
        self._now += seconds


class _LeapingSelector(selectors.DefaultSelector):
    """Looks at what is ready instead of waiting; waits only when there is no timer at all."""

    def __init__(self, clock: LeapingClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(None if timeout is None else 0)
        if timeout and not ready:
            self._clock.leap(timeout)
        return list(ready)


def leaping(test: Callable[_P, Awaitable[None]]) -> Callable[_P, None]:
    """Run an async test on a `LeapingClock`: it waits for nothing and does not depend on speed. It fails, too, when a
    callback of the loop does."""

    @functools.wraps(test)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        loop = LeapingClock()
        failed: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _loop, context: failed.append(context))
        try:
            loop.run_until_complete(_run_and_end(test(*args, **kwargs)))
        finally:
            loop.close()
        assert not failed, failed

    return run


async def _run_and_end(test: Awaitable[None]) -> None:
    try:
        await test
    finally:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await run_ready_tasks()


async def run_ready_tasks(turns: int = _TURNS) -> None:
    """Let everything run that is not waiting for time or for the network."""
    for _ in range(turns):
        await asyncio.sleep(0)


def batch(*values: str, timestamp_ms: int = 0) -> bytes:
    """One batch, as a client sends it."""
    return batches.encode([(None, value.encode()) for value in values], timestamp_ms)


def stored(*values: str, epoch: int, offset: int) -> bytes:
    """One batch, as a leader has it."""
    return batches.encode([(None, value.encode()) for value in values], 0, offset, epoch)


def decoded(records: bytes) -> list[tuple[int, str]]:
    """Leader epoch and value of each record."""
    return [(r.leader_epoch, (r.value or b"").decode()) for r in batches.decode(records)]


def content(log: Log) -> list[tuple[int, str]]:
    return decoded(log.read(log.log_start_offset, 2**31, log.log_end_offset))


def log_of(*terms: tuple[int, Sequence[str]]) -> MemoryLog:
    """A log with a batch for each value, by leader epoch."""
    log = MemoryLog()
    for epoch, values in terms:
        for value in values:
            log.append_as_leader(batch(value), epoch)
    return log


class FailingLog(MemoryLog):
    """A log whose disk refuses what `refuses` names: append, read, truncate or search."""

    def __init__(self, config: LogConfig | None = None) -> None:
        super().__init__(config)
        self.refuses: set[str] = set()

    def _disk(self, what: str) -> None:
        if what in self.refuses:
            raise LogFault(f"{what}: Input/output error")

    def append_as_leader(self, records: bytes, leader_epoch: int) -> Appended:
        self._disk("append")
        return super().append_as_leader(records, leader_epoch)

    def append_as_follower(self, records: bytes) -> Appended:
        self._disk("append")
        return super().append_as_follower(records)

    def read(self, offset: int, max_bytes: int, upto_offset: int) -> bytes:
        self._disk("read")
        return super().read(offset, max_bytes, upto_offset)

    def truncate_to(self, offset: int) -> bool:
        self._disk("truncate")
        return super().truncate_to(offset)

    def offset_for_timestamp(self, timestamp_ms: int, upto_offset: int) -> TimestampOffset | None:
        self._disk("search")
        return super().offset_for_timestamp(timestamp_ms, upto_offset)


class MemoryLogs:
    """Logs by partition, kept over restarts; those in `broken` cannot be opened."""

    def __init__(self) -> None:
        self.by_key: dict[Key, FailingLog] = {}
        self.broken: set[Key] = set()
        self.forgotten: list[Key] = []

    def open(self, key: Key) -> FailingLog:
        if key in self.broken:
            raise LogFault(f"{key[0]}-{key[1]} cannot be opened: Input/output error")
        return self.by_key.setdefault(key, FailingLog(LogConfig(message_max_bytes=10_000)))

    def forget(self, key: Key) -> None:
        self.forgotten.append(key)


class Topics:
    """min.insync.replicas, the same for all topics; None: not read yet."""

    def __init__(self, least: int | None) -> None:
        self.least = least
        self.forgotten: list[str] = []
        self.read = asyncio.Event()
        if least is not None:
            self.read.set()

    def min_isr(self, topic: str) -> int | None:
        return self.least

    def forget(self, topic: str) -> None:
        self.forgotten.append(topic)


class ManualWriter:
    """An ISR writer whose answers the test gives: `asked` holds what waits for one."""

    def __init__(self) -> None:
        self.asked: list[Sequence[IsrProposal]] = []
        self._answers: list[asyncio.Future[Sequence[IsrResult]]] = []

    async def propose(self, proposals: Sequence[IsrProposal]) -> Sequence[IsrResult]:
        answer: asyncio.Future[Sequence[IsrResult]] = asyncio.get_running_loop().create_future()
        self.asked.append(proposals)
        self._answers.append(answer)
        return await answer

    async def answer(self, error: codes.ErrorCode = codes.NONE) -> None:
        """Answer the oldest request: grant all of it, or refuse all of it."""
        proposals = self.asked[len(self.asked) - len(self._answers)]
        self._answers.pop(0).set_result(
            [granted(p) if error == codes.NONE else IsrResult(p.key, error) for p in proposals]
        )
        await run_ready_tasks()

    async def fail(self) -> None:
        """Nobody knows what became of the oldest request."""
        self._answers.pop(0).set_exception(IsrUnanswered("the controller is away"))
        await run_ready_tasks()


def granted(proposal: IsrProposal, leader: int = 0) -> IsrResult:
    return IsrResult(
        proposal.key, codes.NONE, leader, proposal.leader_epoch, proposal.isr, proposal.partition_epoch + 1
    )


Respond = Callable[[str, int, object], Awaitable[object]]


class Network:
    """Other brokers as a follower calls them: every call goes to ``respond(method, broker, request)``."""

    def __init__(self, respond: Respond) -> None:
        self._respond = respond

    async def fetch(
        self, address: Address, request: wire.FetchRequest, timeout_s: float
    ) -> wire.FetchResponse:
        answer = await self._call("fetch", address, request, timeout_s)
        assert isinstance(answer, wire.FetchResponse)
        return answer

    async def offsets_for_leader_epoch(
        self, address: Address, request: wire.OffsetsForLeaderEpochRequest, timeout_s: float
    ) -> wire.OffsetsForLeaderEpochResponse:
        answer = await self._call("offsets_for_leader_epoch", address, request, timeout_s)
        assert isinstance(answer, wire.OffsetsForLeaderEpochResponse)
        return answer

    async def list_offsets(
        self, address: Address, request: wire.ListOffsetsRequest, timeout_s: float
    ) -> wire.ListOffsetsResponse:
        answer = await self._call("list_offsets", address, request, timeout_s)
        assert isinstance(answer, wire.ListOffsetsResponse)
        return answer

    async def _call(self, method: str, address: Address, request: object, timeout_s: float) -> object:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._respond(method, address[1], request)
        except TimeoutError:
            raise BrokerError(f"{method} of {address}: no answer in {timeout_s} s") from None


async def nobody(method: str, broker: int, request: object) -> object:
    raise BrokerError(f"broker {broker} does not answer")


class Broker:
    """One broker's partitions: what control requests decide, the manager, and what it serves. Needs a running loop.

    ``quotas`` are for all partitions and have no limit until the test sets one. ``crashes`` collects what the manager
    reports as lost partitions; ``bugs`` what ended a fetcher.
    """

    def __init__(
        self,
        broker_id: int = 0,
        *,
        respond: Respond = nobody,
        writer: IsrWriter | None = None,
        logs: MemoryLogs | None = None,
        least: int | None = 1,
        live: Iterable[int] = (0, 1, 2),
        high_watermarks: dict[Key, int] | None = None,
        fetch: FetchSettings | None = None,
        lag_max_ms: int = 1000,
    ) -> None:
        self.broker_id = broker_id
        self.loop = asyncio.get_running_loop()
        self.logs = MemoryLogs() if logs is None else logs
        self.writer = ManualWriter() if writer is None else writer
        self.topics = Topics(least)
        self.metadata = MetadataCache()
        self.know(live)
        self.replicas = Replicas(broker_id)
        self.failures: list[tuple[Key, str]] = []
        self.bugs: list[BaseException] = []
        self.isr_changes: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        self._network, self._fetch = Network(respond), fetch or FetchSettings()
        quota = ReplicationQuota(lambda _topic: ALL_PARTITIONS, self._now_ms)
        self.quotas = Quotas(quota, ReplicationQuota(lambda _topic: ALL_PARTITIONS, self._now_ms))
        self.manager = ReplicaManager(
            Dependencies(
                broker_id,
                self.logs,
                self.topics,
                self.writer,
                self.metadata.is_live,
                self._now_ms,
                self._isr_changed,
                lambda key, why: self.failures.append((key, why)),
                lag_max_ms,
            ),
            self._following,
            dict(high_watermarks or {}),
        )
        self.service = DataService(self.manager, self.metadata, self._known, self.quotas.leader)

    def _now_ms(self) -> int:
        return round(self.loop.time() * 1000)

    def _following(self, failed: Callable[[Key, str], None]) -> Following:
        return Following(
            self.broker_id,
            self._network,
            self.metadata.address,
            lambda: 1,
            self._fetch,
            failed,
            self.bugs.append,
            self.quotas.follower,
        )

    async def _known(self, topic: str) -> None:
        await self.topics.read.wait()
        self.manager.config_changed(topic)

    def _isr_changed(self, partition: Partition, before: tuple[int, ...]) -> None:
        self.isr_changes.append((before, partition.isr))
        self.replicas.isr_changed(
            partition.key, partition.leader_epoch, partition.isr, partition.partition_epoch
        )

    def know(self, live: Iterable[int], *partitions: PartitionMetadata) -> None:
        """As UpdateMetadata: who is alive, and who leads."""
        brokers = tuple(LiveBroker(b, (Endpoint("GRPC", "PLAINTEXT", "h", b),), None) for b in live)
        self.metadata.merge(9, MetadataUpdate(list(partitions), {}, brokers))

    async def leader_and_isr(self, *items: LeaderAndIsr) -> list[Answer]:
        """As LeaderAndIsr."""
        plan = self.replicas.plan_leader_and_isr(items, self.metadata.is_live)
        outcome = self.replicas.complete(plan, {})
        refused = await self.manager.apply(outcome.transitions)
        return self.replicas.refuse(outcome, refused).answers if refused else outcome.answers

    async def stopped(self, *items: StopReplica) -> list[Answer]:
        """As StopReplica."""
        outcome = self.replicas.complete(self.replicas.plan_stop_replica(items), {})
        await self.manager.apply(outcome.transitions)
        return outcome.answers

    def partition(self, key: Key = FOO) -> Partition:
        found = self.manager.get(key)
        assert found is not None
        return found

    def log(self, key: Key = FOO) -> FailingLog:
        return self.logs.by_key[key]


def order(
    leader: int = 0,
    leader_epoch: int = 0,
    isr: Iterable[int] = (0, 1, 2),
    partition_epoch: int = 0,
    replicas: Iterable[int] = (0, 1, 2),
    key: Key = FOO,
) -> LeaderAndIsr:
    """A partition of a LeaderAndIsr request."""
    return LeaderAndIsr(
        key, None, 1, leader, leader_epoch, tuple(isr), partition_epoch, tuple(replicas), (), ()
    )


def fetch_request(
    offset: int = 0,
    *,
    replica: int | None = None,
    epoch: int | None = None,
    last_epoch: int | None = None,
    wait_ms: int = 0,
    key: Key = FOO,
    high_watermark: int = 0,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
) -> wire.FetchRequest:
    """A fetch of one partition; ``replica`` None: by a consumer."""
    return wire.FetchRequest(
        replica_id=replica,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        partitions=[
            wire.FetchPartition(
                topic=key[0],
                partition=key[1],
                fetch_offset=offset,
                partition_max_bytes=partition_max_bytes,
                current_leader_epoch=epoch,
                last_fetched_epoch=last_epoch,
                high_watermark=high_watermark,
            )
        ],
    )


def produce_request(
    records: bytes, acks: int = -1, timeout_ms: int = 1000, key: Key = FOO
) -> wire.ProduceRequest:
    return wire.ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        partitions=[wire.ProducePartition(topic=key[0], partition=key[1], records=records)],
    )


def log_error(error: BrokerError) -> codes.ErrorCode:
    assert isinstance(error, LogError)
    return error.error_code
