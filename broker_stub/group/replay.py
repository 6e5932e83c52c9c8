"""Rebuilds groups and offsets from the log of one partition of ``__consumer_offsets``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import structlog

from broker_stub.control.requests import Key
from broker_stub.errors import BrokerError
from broker_stub.group import messages
from broker_stub.group.ports import OffsetsLog
from broker_stub.log import batches

#: Records (or groups) handled before yielding to other tasks.
RECORDS_PER_TURN = 200
#: Problems of one load kept as text; the rest are only counted.
PROBLEMS_MAX = 20

_log = structlog.get_logger("broker_stub.group")


class Replay:
    """The state after the records so far: the last value of each key; a tombstone removes it. Pure."""

    def __init__(self) -> None:
        self.groups: dict[str, messages.GroupValue] = {}
        self.offsets: dict[str, dict[Key, messages.OffsetValue]] = {}
        self.records = 0
        self.problem_count = 0
        #: Text of the first problems.
        self.problems: list[str] = []

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Apply one record. Raises MalformedRecord; then nothing changes."""
        decoded = messages.decode(key, value)
        if isinstance(decoded[0], messages.GroupKey):
            self._apply_group(decoded[0].group, decoded[1])
        else:
            self._apply_offset(decoded[0], decoded[1])

    def _apply_group(self, group_id: str, value: Any) -> None:
        if value is None:
            self.groups.pop(group_id, None)
        else:
            self.groups[group_id] = value

    def _apply_offset(self, key: messages.OffsetKey, value: Any) -> None:
        offsets = self.offsets.setdefault(key.group, {})
        if value is None:
            offsets.pop((key.topic, key.partition), None)
        else:
            offsets[(key.topic, key.partition)] = value
        if not offsets:
            del self.offsets[key.group]

    def group_ids(self) -> list[str]:
        """All groups that have metadata or offsets."""
        return list(self.groups | dict.fromkeys(self.offsets))

    def report(self, problem: str) -> None:
        """Count an unusable record or part of the log."""
        self.problem_count += 1
        if self.problem_count <= PROBLEMS_MAX:
            self.problems.append(problem)

    def describe(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"records": self.records, "problem_count": self.problem_count, "problems": list(self.problems)}


async def replay_log(log: OffsetsLog, partition: int) -> Replay:
    """Read the partition's local log from its start to its end, committed or not.

    Errors of the log and unusable records do not raise: they are reported in the result, and the rest is used.
    Yields to other tasks.
    """
    replay = Replay()
    try:
        offset = log.log_start_offset(partition)
        while chunk := log.read(partition, offset):
            end = await _apply_chunk(replay, chunk, offset)
            if end <= offset:
                replay.report(f"offset {offset}: the rest of the log cannot be read, the load ends here")
                break
            offset = end
            await asyncio.sleep(0)
    except BrokerError as error:
        replay.report(f"the log cannot be read: {error}")
    if replay.problem_count:
        _log.warning("offsets_load_problems", partition=partition, **replay.describe())
    return replay


async def _apply_chunk(replay: Replay, chunk: bytes, offset: int) -> int:
    """Apply the records from ``offset`` on. Returns the offset after the last batch whose bounds are known."""
    end = offset
    for batch in _batches(replay, chunk):
        try:
            batches.verify(chunk, batch)
            records = batches.body_of(chunk, batch).records
        except batches.BatchError as error:
            replay.report(f"batch of offset {batch.base_offset}: {error}")
            # record_count may be damaged: a batch has at most as many records as bytes.
            end = batch.base_offset + min(batch.record_count, batch.end - batch.start)
            continue
        end = batch.next_offset
        for position, record in enumerate(records, start=batch.base_offset):
            if position < offset:
                continue
            replay.records += 1
            if replay.records % RECORDS_PER_TURN == 0:
                await asyncio.sleep(0)
            try:
                replay.apply(
                    record.key if record.HasField("key") else None,
                    record.value if record.HasField("value") else None,
                )
            except messages.MalformedRecord as error:
                replay.report(f"offset {position}: {error}")
    return end


def _batches(replay: Replay, chunk: bytes) -> Iterator[batches.Batch]:
    """The batches of a chunk. Stops, and reports it, at the first whose bounds are unknown."""
    try:
        yield from batches.iterate(chunk, check=False)
    except batches.BatchError as error:
        replay.report(f"in a chunk of {len(chunk)} bytes: {error}")
