"""An offsets log in memory, a clock set by hand, and a coordinator on both."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from broker_stub.errors import BrokerError
from broker_stub.group.coordinator import GroupCoordinator
from broker_stub.group.members import JoinRequest, JoinResult
from broker_stub.group.messages import OffsetKey, OffsetValue, encode
from broker_stub.group.partitioner import partition_for
from broker_stub.group.settings import GroupSettings
from broker_stub.log import batches
from proto.gen import common_pb2 as codes

PARTITIONS = 4
#: Two groups of partition 1, and one of partition 2.
GROUP, NEIGHBOUR, OTHER = [f"g{n}" for n in range(100) if partition_for(f"g{n}", PARTITIONS) == 1][:2] + [
    f"g{n}" for n in range(100) if partition_for(f"g{n}", PARTITIONS) == 2
][:1]
SETTINGS = GroupSettings(group_initial_rebalance_delay_ms=3_000)
_T = TypeVar("_T")


class MemoryLog:
    """Partitions as lists of batches. ``errors`` are answered, one each, before appends succeed."""

    def __init__(self, count: int | None = PARTITIONS) -> None:
        self.count = count
        self.batches: dict[int, list[bytes]] = {p: [] for p in range(count or PARTITIONS)}
        self.ends = dict.fromkeys(self.batches, 0)
        self.start = 0
        self.errors: list[codes.ErrorCode | Exception] = []
        #: Cleared: appends are in the log, but not acknowledged until it is set.
        self.acknowledge = asyncio.Event()
        self.acknowledge.set()
        #: Cleared: reads raise this instead.
        self.read_error: Exception | None = None
        self.reads = 0

    def partition_count(self) -> int | None:
        return self.count

    async def append(self, partition: int, records: bytes) -> codes.ErrorCode:
        if self.errors:
            error = self.errors.pop(0)
            if isinstance(error, Exception):
                raise error
            return error
        found = list(batches.iterate(records))
        stamped, placed = batches.stamp(records, found, self.ends[partition], 0)
        self.put(partition, bytes(stamped), placed)
        await self.acknowledge.wait()
        return codes.NONE

    def put(self, partition: int, data: bytes, found: list[batches.Batch]) -> None:
        self.batches[partition].append(data)
        self.ends[partition] += sum(batch.record_count for batch in found)

    def write(self, partition: int, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """One batch, whoever leads."""
        data = batches.encode(list(records), 1, self.ends[partition])
        self.put(partition, data, list(batches.iterate(data)))

    def read(self, partition: int, offset: int) -> bytes:
        self.reads += 1
        if self.read_error is not None:
            raise self.read_error
        for data in self.batches[partition]:
            last = list(batches.iterate(data, check=False))[-1]
            if last.next_offset > offset:
                return data
        return b""

    def log_start_offset(self, partition: int) -> int:
        return self.start


class Refused(BrokerError):  # noqa: N818
    pass


class CoordinatorHarness:
    """A started coordinator on a `MemoryLog`, at a time set by hand."""

    def __init__(self, log: MemoryLog | None = None, settings: GroupSettings = SETTINGS) -> None:
        self.log = log or MemoryLog()
        self.now_ms = 1_000
        self.bugs: list[BaseException] = []
        self.ids = 0
        self.coordinator = GroupCoordinator(
            self.log, settings, self._new_id, self.bugs.append, lambda: self.now_ms, lambda: 77
        )
        self.coordinator.start()
        asyncio.get_running_loop().set_exception_handler(self._failed)

    def _failed(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback of the loop ended with an exception, which nobody else would see."""
        self.bugs.append(context.get("exception") or RuntimeError(context["message"]))

    def _new_id(self) -> str:
        self.ids += 1
        return str(self.ids)

    async def elect(self, *partitions: int, epoch: int = 0) -> None:
        for partition in partitions:
            self.coordinator.on_election(partition, epoch)
        await run_ready_tasks()

    async def pass_ms(self, ms: int) -> None:
        self.now_ms += ms
        self.coordinator.timer.run_due()
        await run_ready_tasks()

    async def join(self, group: str = GROUP, member: str = "", **kinds: Any) -> asyncio.Task[JoinResult]:
        return await begin(self.coordinator.join_group(group, request(member, **kinds)))

    async def stable(self, group: str = GROUP, size: int = 1) -> list[str]:
        """A Stable group of new members; their ids, the leader's first. Member N is assigned ``aN``."""
        joins = [await self.join(group) for _ in range(size)]
        while not all(join.done() for join in joins):
            await self.pass_ms(SETTINGS.group_initial_rebalance_delay_ms)
        results = [await join for join in joins]
        ids = [result.member_id for result in results]
        assert results[0].leader == ids[0]
        assignments = {member: f"a{n}".encode() for n, member in enumerate(ids)}
        generation = results[0].generation_id
        syncs = [
            await begin(self.coordinator.sync_group(group, member, generation, assignments))
            for member in reversed(ids)
        ]
        assert {(await sync).error for sync in syncs} == {codes.NONE}
        return ids

    def group(self, group: str = GROUP) -> dict[str, Any]:
        found: dict[str, Any] = self.coordinator.describe()["groups"][group]
        return found


async def run_ready_tasks() -> None:
    """Let everything run that waits for nothing but its turn."""
    for _ in range(20):
        await asyncio.sleep(0)


async def begin(work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
    task = asyncio.create_task(work)
    await run_ready_tasks()
    return task


def request(
    member: str = "",
    protocols: tuple[tuple[str, bytes], ...] = (("range", b"m"),),
    protocol_type: str = "consumer",
    session_ms: int = 10_000,
    rebalance_ms: int = 60_000,
) -> JoinRequest:
    return JoinRequest(member, "client", session_ms, rebalance_ms, protocol_type, protocols)


def offset_record(group: str, partition: int, offset: int, topic: str = "t") -> tuple[bytes, bytes]:
    return (
        encode(OffsetKey(group=group, topic=topic, partition=partition)),
        encode(OffsetValue(offset=offset, leader_epoch=0, metadata="", commit_timestamp_ms=1)),
    )
