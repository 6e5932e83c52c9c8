"""Replica fetchers: one per leader broker, for all partitions that this broker follows from it.

A fetcher repeats: send a fetch, wait for the response, append. It finds divergence by leader epoch: the leader's
response says where the logs diverge (KIP-595), or, in the older protocol, the follower asks before its first
fetch (KIP-101). Reference, section 10.1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import structlog

from broker_stub.control.requests import NO_EPOCH, Key
from broker_stub.errors import BrokerError
from broker_stub.log.errors import LogError
from broker_stub.replication.partition import Partition
from broker_stub.replication.throttle import ReplicationQuota
from proto.error_names import error_name
from proto.gen import broker_data_pb2 as wire
from proto.gen import common_pb2 as codes
from proto.tasks import end_all, failures_to

_log = structlog.get_logger("broker_stub.replication.fetcher")

Address = tuple[str, int]
#: Seconds before the first retry. It is short, because brokers learn of a new leader at slightly different times.
_FIRST_PAUSE_S = 0.02
#: Seconds that a response may take beyond ``max_wait_ms``.
_RESPONSE_EXTRA_S = 10.0
LATEST, EARLIEST = -1, -2


class Leaders(Protocol):
    """Calls to leader brokers (`broker_stub.rpc.peers`). Each raises BrokerError."""

    async def fetch(
        self, address: Address, request: wire.FetchRequest, timeout_s: float
    ) -> wire.FetchResponse: ...

    async def offsets_for_leader_epoch(
        self, address: Address, request: wire.OffsetsForLeaderEpochRequest, timeout_s: float
    ) -> wire.OffsetsForLeaderEpochResponse: ...

    async def list_offsets(
        self, address: Address, request: wire.ListOffsetsRequest, timeout_s: float
    ) -> wire.ListOffsetsResponse: ...


@dataclass(frozen=True)
class FetchSettings:
    """Kafka's ``replica.fetch.*``; times in ms. ``truncation_on_fetch`` false: OffsetsForLeaderEpoch first."""

    wait_max_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 1024 * 1024
    response_max_bytes: int = 10 * 1024 * 1024
    backoff_ms: int = 1000
    truncation_on_fetch: bool = True


@dataclass(frozen=True)
class Following:
    """What all fetchers of a broker share.

    ``failed(key, why)`` is called when a partition's log failed, ``on_bug`` when a fetcher ended with an exception.
    ``quota``: of what this broker copies as follower.
    """

    broker_id: int
    leaders: Leaders
    address_of: Callable[[int], Address | None]
    broker_epoch: Callable[[], int]
    settings: FetchSettings
    failed: Callable[[Key, str], None]
    on_bug: Callable[[BaseException], None]
    quota: ReplicationQuota


class Fetchers:
    """All fetchers of a broker."""

    def __init__(self, following: Following) -> None:
        self._following = following
        self._by_leader: dict[int, _Fetcher] = {}
        self._leader_of: dict[Key, int] = {}

    def change(self, removed: Iterable[Key], added: Iterable[Partition]) -> None:
        """Stop fetching ``removed``; start fetching ``added`` in their present leader epoch. Idle fetchers end."""
        for key in removed:
            self._remove(key)
        for partition in added:
            self._remove(partition.key)
            self._leader_of[partition.key] = partition.leader
            fetcher = self._by_leader.get(partition.leader)
            if fetcher is None:
                fetcher = self._by_leader[partition.leader] = _Fetcher(partition.leader, self._following)
            fetcher.add(partition)
        for leader in [b for b, fetcher in self._by_leader.items() if fetcher.idle]:
            self._by_leader.pop(leader).cancel()

    def _remove(self, key: Key) -> None:
        leader = self._leader_of.pop(key, None)
        if leader is not None:
            self._by_leader[leader].remove(key)

    def describe(self) -> Mapping[int, int]:
        """Number of partitions fetched, by leader."""
        return {leader: len(fetcher) for leader, fetcher in sorted(self._by_leader.items())}

    async def stop(self) -> None:
        fetchers = list(self._by_leader.values())
        self._by_leader.clear()
        self._leader_of.clear()
        await end_all(fetcher.task for fetcher in fetchers)


@dataclass
class _Followed:
    """A partition in a fetcher. ``epoch``: leader epoch when it was added; ``not_before``: next fetch (loop time).

    ``in_sync``: at its last fetch it had everything before the leader's high watermark.
    """

    partition: Partition
    epoch: int
    truncating: bool
    not_before: float = 0.0
    failures: int = 0
    in_sync: bool = False


class _Fetcher:
    def __init__(self, leader: int, following: Following) -> None:
        self._leader, self._following = leader, following
        self._settings = following.settings
        self._followed: dict[Key, _Followed] = {}
        self._changed = asyncio.Event()
        self._log = _log.bind(leader=leader)
        self._failures = 0
        self.task = asyncio.get_running_loop().create_task(self._run(), name=f"fetcher-{leader}")
        self.task.add_done_callback(failures_to(following.on_bug))

    def __len__(self) -> int:
        return len(self._followed)

    @property
    def idle(self) -> bool:
        return not self._followed

    def add(self, partition: Partition) -> None:
        truncating = not self._settings.truncation_on_fetch and partition.log.latest_epoch is not None
        self._followed[partition.key] = _Followed(partition, partition.leader_epoch, truncating)
        self._changed.set()

    def remove(self, key: Key) -> None:
        self._followed.pop(key, None)
        self._changed.set()

    def cancel(self) -> None:
        self.task.cancel()

    async def _run(self) -> None:
        while self._followed:
            try:
                await self._round()
                self._failures = 0
            except BrokerError as error:
                if self._failures == 0:
                    self._log.warning("request to the leader failed: trying again", why=str(error))
                await self._pause(self._backoff_s(self._failures))
                self._failures += 1

    def _backoff_s(self, failures: int) -> float:
        """Exponential, from the first pause up to ``replica.fetch.backoff.ms``."""
        return min(_FIRST_PAUSE_S * 2.0 ** min(failures, 20), self._settings.backoff_ms / 1000)

    async def _round(self) -> None:
        self._changed.clear()
        address = self._following.address_of(self._leader)
        now = asyncio.get_running_loop().time()
        due = [f for f in self._followed.values() if f.not_before <= now]
        if not due:
            await self._pause(min(f.not_before for f in self._followed.values()) - now)
            return
        if address is None:
            await self._pause(self._settings.backoff_ms / 1000)
            return
        truncating = [f for f in due if f.truncating]
        if truncating:
            await self._truncate(address, truncating)
            return
        fetched = self._not_throttled(due)
        if not fetched:
            await self._pause(self._settings.backoff_ms / 1000)
            return
        await self._fetch(address, fetched)

    def _not_throttled(self, due: list[_Followed]) -> list[_Followed]:
        quota = self._following.quota
        if not quota.is_exceeded():
            return due
        return [f for f in due if f.in_sync or not quota.is_throttled(f.partition.key)]

    async def _pause(self, seconds: float) -> None:
        """Sleep; wake early when a partition is added or removed."""
        try:
            async with asyncio.timeout(max(seconds, 0.001)):
                await self._changed.wait()
        except TimeoutError:
            return

    # fetching

    async def _fetch(self, address: Address, due: list[_Followed]) -> None:
        settings = self._settings
        request = wire.FetchRequest(
            replica_id=self._following.broker_id,
            replica_epoch=self._following.broker_epoch(),
            max_wait_ms=settings.wait_max_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            partitions=[self._fetch_partition(f) for f in due],
        )
        timeout_s = settings.wait_max_ms / 1000 + _RESPONSE_EXTRA_S
        call = asyncio.ensure_future(self._following.leaders.fetch(address, request, timeout_s))
        change = asyncio.ensure_future(self._changed.wait())
        try:
            # A newly added partition must not wait for the end of this long poll.
            await asyncio.wait({call, change}, return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                return
            response = call.result()
        finally:
            for future in (call, change):
                future.cancel()
        if response.error_code != codes.NONE:
            raise BrokerError(f"Fetch refused: {error_name(response.error_code)}")
        asked = {f.partition.key: f for f in due}
        for answer in response.partitions:
            followed = asked.pop((answer.topic, answer.partition), None)
            if followed is not None and self._follows(followed):
                await self._take(address, followed, answer)
        for unchanged in asked.values():
            unchanged.in_sync = True

    def _follows(self, followed: _Followed) -> bool:
        """Whether this fetcher still owns the partition: a role change removes it before it changes the log."""
        return self._followed.get(followed.partition.key) is followed

    def _fetch_partition(self, followed: _Followed) -> wire.FetchPartition:
        partition = followed.partition
        epoch = partition.log.latest_epoch
        item = wire.FetchPartition(
            topic=partition.key[0],
            partition=partition.key[1],
            fetch_offset=partition.log.log_end_offset,
            partition_max_bytes=self._settings.max_bytes,
            current_leader_epoch=followed.epoch,
            log_start_offset=partition.log.log_start_offset,
            high_watermark=partition.high_watermark,
            replica_directory=partition.directory,
        )
        if epoch is not None and self._settings.truncation_on_fetch:
            item.last_fetched_epoch = epoch
        return item

    async def _take(self, address: Address, followed: _Followed, answer: wire.FetchedPartition) -> None:
        partition = followed.partition
        try:
            if answer.error_code == codes.OFFSET_OUT_OF_RANGE:
                await self._find_range(address, followed)
            elif answer.error_code != codes.NONE:
                self._refused(followed, answer)
            elif answer.HasField("diverging_epoch"):
                diverging = answer.diverging_epoch
                self._cut(partition, partition.truncation_offset(diverging.epoch, diverging.end_offset))
            else:
                if answer.records:
                    partition.log.append_as_follower(answer.records)
                    self._following.quota.record(partition.key, len(answer.records))
                followed.in_sync = partition.log.log_end_offset >= answer.high_watermark
                partition.follow_high_watermark(answer.high_watermark)
                followed.not_before, followed.failures = 0.0, 0
        except LogError as error:
            self._log_refused(followed, error)
        except BrokerError as error:
            # Only this partition failed: the response's other partitions are still handled.
            self._log.info("the leader's offsets could not be read", **_named(partition), why=str(error))
            self._back_off(followed)

    def _log_refused(self, followed: _Followed, error: LogError) -> None:
        if error.error_code == codes.KAFKA_STORAGE_ERROR:
            self._following.failed(followed.partition.key, str(error))
        else:
            self._log.error(
                "records of the leader not appended", **_named(followed.partition), why=str(error)
            )
        self._back_off(followed)

    def _refused(self, followed: _Followed, answer: wire.FetchedPartition) -> None:
        error = error_name(answer.error_code)
        level = self._log.info if followed.failures == 0 else self._log.debug
        level("leader refuses a fetch", **_named(followed.partition), error=error, why=answer.error_message)
        self._back_off(followed)

    def _back_off(self, followed: _Followed) -> None:
        followed.not_before = asyncio.get_running_loop().time() + self._backoff_s(followed.failures)
        followed.failures += 1

    def _cut(self, partition: Partition, offset: int) -> None:
        end, committed = partition.log.log_end_offset, partition.high_watermark
        if not partition.truncate(offset):
            return
        # A truncation below the high watermark happens only after an unclean election.
        level = self._log.info if offset >= committed else self._log.warning
        level("truncated", **_named(partition), was=end, to=offset, high_watermark=committed)

    # finding the offset to continue from

    async def _truncate(self, address: Address, followed: list[_Followed]) -> None:
        request = wire.OffsetsForLeaderEpochRequest(
            replica_id=self._following.broker_id,
            partitions=[
                wire.OffsetForLeaderEpochPartition(
                    topic=f.partition.key[0],
                    partition=f.partition.key[1],
                    leader_epoch=_latest_epoch(f.partition),
                    current_leader_epoch=f.epoch,
                )
                for f in followed
            ],
        )
        leaders = self._following.leaders
        response = await leaders.offsets_for_leader_epoch(address, request, _RESPONSE_EXTRA_S)
        asked = {f.partition.key: f for f in followed}
        for answer in response.partitions:
            found = asked.pop((answer.topic, answer.partition), None)
            if found is None or not self._follows(found):
                continue
            if answer.error_code != codes.NONE:
                self._refused(found, wire.FetchedPartition(error_code=answer.error_code))
                continue
            try:
                self._cut_to_epoch(found, answer)
            except LogError as error:
                self._log_refused(found, error)
        for missing in asked.values():
            self._back_off(missing)

    def _cut_to_epoch(self, followed: _Followed, answer: wire.OffsetForLeaderEpoch) -> None:
        partition = followed.partition
        before = _latest_epoch(partition)
        self._cut(partition, partition.truncation_offset(answer.leader_epoch, answer.end_offset))
        # If our log lacks the leader's epoch, ask again with the epoch that is now our latest (KIP-279).
        followed.truncating = answer.leader_epoch not in (before, NO_EPOCH) and _latest_epoch(
            partition
        ) not in (answer.leader_epoch, NO_EPOCH)

    async def _find_range(self, address: Address, followed: _Followed) -> None:
        """Our log end is outside the leader's log: truncate to its end, or restart the log at its start."""
        partition = followed.partition
        latest = await self._leader_offset(address, followed, LATEST)
        if not self._follows(followed):
            return
        if latest < partition.log.log_end_offset:
            self._cut(partition, latest)
            return
        earliest = await self._leader_offset(address, followed, EARLIEST)
        if not self._follows(followed):
            return
        if earliest > partition.log.log_end_offset:
            self._log.warning(
                "log restarted at the leader's start offset", **_named(partition), offset=earliest
            )
            partition.log.truncate_fully_and_start_at(earliest)
            partition.high_watermark = earliest
            return
        # The offset is in range, so the leader refused our last epoch, which it never had. Everything before the high
        # watermark is committed.
        self._cut(partition, partition.high_watermark)
        self._back_off(followed)

    async def _leader_offset(self, address: Address, followed: _Followed, timestamp: int) -> int:
        topic, number = followed.partition.key
        asked = wire.ListOffsetsPartition(
            topic=topic, partition=number, timestamp=timestamp, current_leader_epoch=followed.epoch
        )
        request = wire.ListOffsetsRequest(replica_id=self._following.broker_id, partitions=[asked])
        response = await self._following.leaders.list_offsets(address, request, _RESPONSE_EXTRA_S)
        for answer in response.partitions:
            if answer.error_code == codes.NONE:
                return answer.offset
            raise BrokerError(f"ListOffsets refused: {error_name(answer.error_code)}")
        raise BrokerError("ListOffsets: the response names no partition")


def _latest_epoch(partition: Partition) -> int:
    epoch = partition.log.latest_epoch
    return NO_EPOCH if epoch is None else epoch


def _named(partition: Partition) -> dict[str, str | int]:
    return {"topic": partition.key[0], "partition": partition.key[1]}
