"""Consumer: reads records of assigned partitions from their leaders."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from broker_stub.client.connection import Connections
from broker_stub.client.errors import (
    ClientError,
    FatalError,
    OffsetRangeError,
    RetriableError,
    TruncatedError,
    UnreachableError,
    error_of,
)
from broker_stub.client.metadata import Key, Leader, Metadata, backoff_s, retry
from broker_stub.log import batches
from proto.gen import broker_data_pb2 as wire
from proto.gen import common_pb2 as codes
from proto.tasks import end_all

EARLIEST, LATEST = -2, -1
#: Added to the broker's long poll time for the timeout of a call.
ANSWER_SLACK_S = 2.0
CALL_TIMEOUT_S = 5.0

Reset = Literal["earliest", "latest", "error"]


class ConsumedRecord(NamedTuple):
    """A record as read. ``timestamp``: ms since 1970; ``high_watermark``: from the same fetch response."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    high_watermark: int


class Truncation(NamedTuple):
    """Records that were read are lost: the log now ends or diverges at ``end_offset``, below ``position``."""

    topic: str
    partition: int
    position: int
    end_offset: int


@dataclass
class _Position:
    """``offset``: of the next record. ``epoch``: of the last record read, -1: none. ``checked``: leader epoch of the
    last check for truncation."""

    offset: int
    epoch: int = -1
    checked: int = -1
    high_watermark: int = -1


class _Fetched(NamedTuple):
    """Records fetched for a partition at ``offset``. ``position`` advances when `poll` returns them."""

    key: Key
    position: _Position
    offset: int
    records: list[ConsumedRecord]
    high_watermark: int


#: The records of one request, and the first error that a retry does not cure.
_FetchResult = tuple[list[_Fetched], ClientError | None]


class Consumer:
    """Reads partitions. Not for concurrent ``poll`` calls.

    ``bootstrap``: addresses, host:port. ``reset``: where to continue when a position is outside the log. ``error`` also
    raises when records before the position are lost. ``on_truncation`` is called when records are lost.
    ``max_wait_ms``: how long a broker waits for data. ``max_bytes``: limit of records per partition and response (a
    single larger batch is returned whole).
    """

    def __init__(
        self,
        bootstrap: Sequence[str],
        *,
        reset: Reset = "earliest",
        max_wait_ms: int = 500,
        max_bytes: int = 1024 * 1024,
        on_truncation: Callable[[Truncation], None] = lambda _: None,
        connections: Connections | None = None,
    ) -> None:
        self._connections = connections or Connections()
        self.metadata = Metadata(self._connections, bootstrap)
        self._reset, self._max_wait_ms, self._max_bytes = reset, max_wait_ms, max_bytes
        self._on_truncation = on_truncation
        self._positions: dict[Key, _Position] = {}
        self._fetches: dict[str, asyncio.Task[_FetchResult]] = {}
        self._fetched_keys: dict[str, list[Key]] = {}
        self._failures = 0
        #: Raised by the next poll, after the records of the same response have been returned.
        self._refusal: ClientError | None = None

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- positions -------------------------------------------------------------------------------------------

    async def assign(self, positions: Mapping[Key, int], timeout_s: float = 30.0) -> None:
        """Read exactly these partitions, from these offsets; EARLIEST and LATEST are looked up now.

        Raises GaveUpError when that takes longer than ``timeout_s``.
        """
        found = {}
        for key, offset in positions.items():
            known = await self.list_offset(key, offset, timeout_s) if offset < 0 else offset
            found[key] = _Position(known)
        await self._stop_fetches()
        self._positions = found

    def seek(self, key: Key, offset: int) -> None:
        """Continue at this offset (0 or more). Raises KeyError for a partition that is not assigned."""
        del self._positions[key]
        self._positions[key] = _Position(offset)

    def position(self, key: Key) -> int:
        """The offset of the next record."""
        return self._positions[key].offset

    def high_watermark(self, key: Key) -> int:
        """The one in the last fetch response; -1: there was none yet."""
        return self._positions[key].high_watermark

    def assignment(self) -> list[Key]:
        return sorted(self._positions)

    async def list_offset(self, key: Key, timestamp: int, timeout_s: float = 30.0) -> int:
        """Offset of the first record at or after ``timestamp`` (ms), or of LATEST or EARLIEST; -1: none.

        Raises GaveUpError after ``timeout_s`` seconds, FatalError for an error that a retry does not cure.
        """
        return await retry(lambda: self._offset_at(key, timestamp), timeout_s, self.metadata.try_refresh)

    async def _offset_at(self, key: Key, timestamp: int) -> int:
        """`list_offset`, once. Raises ClientError."""
        leader = await self.metadata.leader(key)
        item = wire.ListOffsetsPartition(
            topic=key[0],
            partition=key[1],
            timestamp=timestamp,
            current_leader_epoch=leader.leader_epoch,
        )
        response = await self._connections.call(
            leader.address,
            "ListOffsets",
            wire.ListOffsetsRequest(partitions=[item]),
            wire.ListOffsetsResponse,
            CALL_TIMEOUT_S,
        )
        for answer in response.partitions:
            if (answer.topic, answer.partition) == key:
                _raise_for(answer.error_code, "ListOffsets", key, leader)
                return answer.offset
        raise UnreachableError(_asked("ListOffsets", key, leader), "partition not answered", sent=True)

    async def _end_of_epoch(self, key: Key, epoch: int, leader: Leader) -> tuple[int, int]:
        """The largest leader epoch not above ``epoch`` and its end offset, -1 and -1 for none.

        One attempt; raises ClientError (reference, section 10.4; KIP-101).
        """
        item = wire.OffsetForLeaderEpochPartition(
            topic=key[0], partition=key[1], leader_epoch=epoch, current_leader_epoch=leader.leader_epoch
        )
        response = await self._connections.call(
            leader.address,
            "OffsetsForLeaderEpoch",
            wire.OffsetsForLeaderEpochRequest(partitions=[item]),
            wire.OffsetsForLeaderEpochResponse,
            CALL_TIMEOUT_S,
        )
        for answer in response.partitions:
            if (answer.topic, answer.partition) == key:
                _raise_for(answer.error_code, "OffsetsForLeaderEpoch", key, leader)
                return answer.leader_epoch, answer.end_offset
        asked = _asked("OffsetsForLeaderEpoch", key, leader)
        raise UnreachableError(asked, "partition not answered", sent=True)

    # --- reading ---------------------------------------------------------------------------------------------

    async def poll(self, timeout_ms: int) -> list[ConsumedRecord]:
        """The next records, in order within a partition; advances the positions.

        Waits up to ``timeout_ms`` for the first ones. Retriable errors are retried until then and not reported. Raises
        OffsetRangeError or TruncatedError with reset policy ``error``, FatalError for other errors.
        """
        self._raise_refusal()
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            await self._start_fetches()
            tasks = list(self._fetches.values())
            left = deadline - time.monotonic()
            if tasks:
                await asyncio.wait(tasks, timeout=max(left, 0), return_when=asyncio.FIRST_COMPLETED)
            records = await self._collect()
            if records:
                return records
            if time.monotonic() >= deadline:
                return []
            if self._failures or not tasks:
                pause = min(backoff_s(self._failures), max(deadline - time.monotonic(), 0))
                await asyncio.sleep(pause)
                await self.metadata.try_refresh()

    async def _start_fetches(self) -> None:
        """Send one request to each leader, for its partitions that no other request in flight contains."""
        busy = {key for keys in self._fetched_keys.values() for key in keys}
        wanted: dict[Leader, list[Key]] = {}
        for key in [key for key in self._positions if key not in busy]:
            try:
                leader = await self.metadata.leader(key)
                await self._check_truncation(key, leader)
            except RetriableError:
                self._failures += 1
                continue
            if key in self._positions:
                wanted.setdefault(leader._replace(leader_epoch=-1), []).append(key)
        for leader, keys in wanted.items():
            if leader.address not in self._fetches:
                self._fetched_keys[leader.address] = keys
                self._fetches[leader.address] = asyncio.create_task(self._fetch(leader, keys))

    async def _check_truncation(self, key: Key, leader: Leader) -> None:
        """Under a new leader epoch, check whether the records that were read still exist (KIP-320)."""
        position = self._positions.get(key)
        if position is None or position.checked >= leader.leader_epoch:
            return
        if position.epoch >= 0:
            epoch, end_offset = await self._end_of_epoch(key, position.epoch, leader)
            if 0 <= end_offset < position.offset and self._positions.get(key) is position:
                self._on_truncation(Truncation(*key, position.offset, end_offset))
                if self._reset == "error":
                    raise TruncatedError(f"records of {key[0]}-{key[1]}", position.offset, end_offset)
                position.offset, position.epoch = end_offset, epoch
        # Only after success: a failure above must be retried.
        position.checked = leader.leader_epoch

    async def _fetch(self, leader: Leader, keys: list[Key]) -> _FetchResult:
        """One fetch. Raises ClientError when the request as a whole failed."""
        positions = {key: self._positions[key] for key in keys if key in self._positions}
        offsets = {key: position.offset for key, position in positions.items()}
        request = wire.FetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=1,
            max_bytes=self._max_bytes * max(len(keys), 1),
            partitions=[
                wire.FetchPartition(
                    topic=key[0],
                    partition=key[1],
                    fetch_offset=position.offset,
                    partition_max_bytes=self._max_bytes,
                    current_leader_epoch=position.checked,
                )
                for key, position in positions.items()
            ],
        )
        response = await self._connections.call(
            leader.address,
            "Fetch",
            request,
            wire.FetchResponse,
            self._max_wait_ms / 1000 + ANSWER_SLACK_S,
        )
        if response.error_code:
            raise error_of(response.error_code, f"Fetch of broker {leader.broker_id} at {leader.address}")
        if not any(answer.error_code for answer in response.partitions):
            self._failures = 0
        return await self._handle_answers(response.partitions, positions, offsets, leader)

    async def _handle_answers(
        self,
        answers: Iterable[wire.FetchedPartition],
        positions: Mapping[Key, _Position],
        offsets: Mapping[Key, int],
        leader: Leader,
    ) -> _FetchResult:
        fetched: list[_Fetched] = []
        refusal: ClientError | None = None
        for answer in answers:
            key = (answer.topic, answer.partition)
            position = self._positions.get(key)
            # The partition was assigned or sought again meanwhile: the response is for another position.
            if position is None or position is not positions.get(key):
                continue
            try:
                if answer.error_code:
                    await self._refused(key, leader, position, answer)
                else:
                    records = _decoded(key, offsets[key], answer)
                    fetched.append(_Fetched(key, position, offsets[key], records, answer.high_watermark))
            except RetriableError:
                self._failures += 1
            except batches.BatchError as error:
                asked = _asked("Fetch", key, leader)
                refusal = refusal or FatalError(codes.CORRUPT_MESSAGE, asked, str(error))
            except ClientError as error:
                refusal = refusal or error
        return fetched, refusal

    async def _refused(
        self, key: Key, leader: Leader, position: _Position, answer: wire.FetchedPartition
    ) -> None:
        """Handle a partition's error. Raises ClientError, unless the position was reset."""
        if answer.error_code == codes.OFFSET_OUT_OF_RANGE:
            await self._out_of_range(key, position, leader)
            return
        if answer.error_code == codes.NOT_LEADER_OR_FOLLOWER:
            self.metadata.notified(key, answer.leader, answer.leader_epoch)
        raise error_of(answer.error_code, _asked("Fetch", key, leader), answer.error_message)

    async def _out_of_range(self, key: Key, position: _Position, leader: Leader) -> None:
        if self._reset == "error":
            asked = _asked("Fetch", key, leader)
            raise OffsetRangeError(codes.OFFSET_OUT_OF_RANGE, asked, f"offset {position.offset}")
        end = await self._offset_at(key, LATEST)
        offset = end if self._reset == "latest" else await self._offset_at(key, EARLIEST)
        # Only now: what failed above is tried again.
        if position.epoch >= 0 and end < position.offset:
            self._on_truncation(Truncation(*key, position.offset, end))
        if self._positions.get(key) is position:
            position.offset, position.epoch = offset, -1

    async def _collect(self) -> list[ConsumedRecord]:
        """Records of completed requests. Raises their error if it is not retriable and there are no records."""
        records: list[ConsumedRecord] = []
        for address, task in list(self._fetches.items()):
            if not task.done():
                continue
            del self._fetches[address], self._fetched_keys[address]
            try:
                fetched, refusal = task.result()
            except RetriableError:
                self._failures += 1
                continue
            except ClientError as error:
                fetched, refusal = [], error
            self._refusal = self._refusal or refusal
            for one in fetched:
                records += self._take_records(one)
        if not records:
            self._raise_refusal()
        return records

    def _take_records(self, fetched: _Fetched) -> list[ConsumedRecord]:
        position, records = fetched.position, fetched.records
        if self._positions.get(fetched.key) is not position or position.offset != fetched.offset:
            return []
        position.high_watermark = fetched.high_watermark
        if records:
            position.offset, position.epoch = records[-1].offset + 1, records[-1].leader_epoch
        return records

    def _raise_refusal(self) -> None:
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal

    async def _stop_fetches(self) -> None:
        tasks = list(self._fetches.values())
        self._fetches.clear()
        self._fetched_keys.clear()
        self._refusal = None
        await end_all(tasks)

    async def close(self) -> None:
        await self._stop_fetches()
        await self.metadata.close()
        await self._connections.close()


def _decoded(key: Key, offset: int, answer: wire.FetchedPartition) -> list[ConsumedRecord]:
    """The records of a response from ``offset`` on. Raises BatchError."""
    return [
        ConsumedRecord(
            *key,
            record.offset,
            record.leader_epoch,
            record.timestamp,
            record.key,
            record.value,
            answer.high_watermark,
        )
        for record in batches.decode(answer.records)
        if record.offset >= offset
    ]


def _asked(method: str, key: Key, leader: Leader) -> str:
    return f"{method} {key[0]}-{key[1]} of broker {leader.broker_id} at {leader.address}"


def _raise_for(code: int, method: str, key: Key, leader: Leader) -> None:
    if code:
        raise error_of(code, _asked(method, key, leader))
