"""What a broker finds on its disk: segments, checkpoints, its journal, the records of ``__consumer_offsets``.

Recovery takes any damage: it raises nothing, each problem names a file, what is kept are whole batches whose checksums
match, in order; the log takes more, and is found the same the next time. Whatever else is read is a value or the
documented error, naming file, line and field.
"""

from __future__ import annotations

import asyncio
import atexit
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from broker_stub import storage
from broker_stub.client import assignor
from broker_stub.control import journal
from broker_stub.control.replicas import Replica
from broker_stub.errors import StorageFault
from broker_stub.group import messages, replay
from broker_stub.group.messages import (
    GroupKey,
    GroupValue,
    OffsetKey,
    OffsetValue,
    StoredMember,
    StoredProtocol,
)
from broker_stub.log import batches, checkpoints, dump
from broker_stub.log.batches import Batch, BatchError
from broker_stub.log.errors import CheckpointFault, LogError, LogFault
from broker_stub.log.interface import LogConfig
from broker_stub.log.log import PartitionLog
from broker_stub.log.segment import file_name
from tests.provers.fuzz.harness import MEMORY, Outcome, Target, UnclearError, require_clear, require_line
from tests.provers.fuzz.mutation import chooser, choosing, chosen, mutate_bytes, mutate_json
from tests.support.broker.builders import ID_X
from tests.support.broker.memory_log import MemoryLog

CONFIG = LogConfig(segment_bytes=360, message_max_bytes=10_000)
EPOCHS = (1, 1, 1, 2, 2, 4, 4, 4, 4)
BASES = (0, 6, 12)
FILES = (*map(file_name, BASES), checkpoints.LEADER_EPOCHS)
ALL = 2**62


@cache
def scratch() -> Path:
    """A directory of this process's, gone with it."""
    directory = tempfile.mkdtemp(prefix="fuzz-", dir=MEMORY)
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)


def _file(data: bytes) -> Path:
    path = scratch() / "file"
    path.write_bytes(data)
    return path


# --- recovery --------------------------------------------------------------------------------------------------


def _record(number: int) -> bytes:
    return batches.encode([(b"k", b"record %d" % number), (None, b"x" * 40)], 1000 + number)


@cache
def _whole() -> dict[str, bytes]:
    """Nine batches of two records in segments of three: the files by name."""
    folder = scratch() / "whole"
    folder.mkdir()
    log = PartitionLog.open(folder, CONFIG, 0)
    for number, epoch in enumerate(EPOCHS):
        log.append_as_leader(_record(number), epoch)
    log.close()
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert sorted(found) == sorted(FILES)
    return found


#: One damage: a file, what is done to it, where, and two bytes more.
_OP_BYTES = 6


def _damaged(program: bytes) -> dict[str, bytes]:
    """The files after up to eight damages. Beyond them, bytes are added to the last file that was damaged."""
    files = dict(_whole())
    name = FILES[2]
    steps = [program[at : at + _OP_BYTES] for at in range(0, min(len(program), 8 * _OP_BYTES), _OP_BYTES)]
    for step in steps:
        if len(step) < _OP_BYTES:
            break
        name = FILES[step[0] % len(FILES)]
        if name not in files:
            continue
        content = bytearray(files[name])
        at = int.from_bytes(step[2:4], "big") % (len(content) + 1)
        match step[1] % 8:
            case 0:
                del content[at:]
            case 1 if at < len(content):
                content[at] ^= step[4] or 1
            case 2:
                content[at : at + step[4]] = bytes(len(content[at : at + step[4]]))
            case 3:
                other = _whole()[FILES[step[4] % len(FILES)]]
                start = step[5] * 8 % (len(other) + 1)
                content[at : at + 80] = other[start : start + 80]
            case 4:
                del content[at : at + step[4]]
            case 5:
                content[at:at] = content[-step[4] :]
            case 6:
                del files[name]
                continue
            case _:
                other_name = file_name(step[4] % 40)
                files[other_name] = files.pop(name)
                continue
        files[name] = bytes(content)
    if name in files:
        files[name] += program[8 * _OP_BYTES :]
    return files


def _require_whole(log: PartitionLog, content: bytes) -> list[Batch]:
    """Batches with matching checksums, offsets without a gap, leader epochs that never go back."""
    kept = list(batches.iterate(content))
    offset, epoch = log.log_start_offset, -1
    for batch in kept:
        assert batch.base_offset == offset, f"offset {batch.base_offset} where {offset} is due"
        assert batch.leader_epoch >= epoch, f"leader epoch {batch.leader_epoch} after {epoch}"
        offset, epoch = batch.next_offset, batch.leader_epoch
    assert offset == log.log_end_offset
    return kept


def _content(log: PartitionLog, folder: Path, *, looked_at: bool, sound: bool) -> bytes:
    """All of it. What was flushed is not looked at again, and checksums that somebody made right hide what is bad."""
    content = b""
    try:
        content = log.read(log.log_start_offset, ALL, ALL)
        if looked_at:
            _require_whole(log, content)
        log.offset_for_timestamp(1004, log.log_end_offset)
    except LogFault as error:
        require_clear(str(error), str(folder))
        if sound:
            raise
    return content


@cache
def _written() -> dict[int, bytes]:
    """Each batch of `_whole` by its offset, from the checksum on: that covers neither offset nor epoch."""
    data = b"".join(_whole()[name] for name in FILES[:3])
    return {batch.base_offset: data[batch.start + 17 : batch.end] for batch in batches.iterate(data)}


def _require_written(content: bytes) -> None:
    """All of it was written like this, and there."""
    for batch in batches.iterate(content):
        assert content[batch.start + 17 : batch.end] == _written().get(batch.base_offset), batch


def _check_recovery(data: bytes) -> Outcome:
    """First byte: the recovery point, up to 20; 128 and more: the rest is the only segment, nothing was flushed."""
    head, program = (data[0], data[1:]) if data else (0, b"")
    folder = scratch() / "log"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    raw = head >= 128
    for name, content in ({file_name(0): program} if raw else _damaged(program)).items():
        (folder / name).write_bytes(content)
    list(dump.rows(folder, with_records=True))
    point = 0 if raw else head % 21
    log = PartitionLog.open(folder, CONFIG, point)
    problems = log.problems
    for problem in problems:
        require_line(problem, str(folder))
    content = _content(log, folder, looked_at=point == 0, sound=point == 0 and not raw)
    # A batch that is copied whole to another place keeps its checksum, which does not cover the place.
    copied = len(program) > 8 * _OP_BYTES or any(kind % 8 in (3, 5) for kind in program[1::_OP_BYTES])
    if point == 0 and not raw and not copied:
        _require_written(content)
    log.end_offset_for_epoch(2)
    end = log.log_end_offset
    latest = -1 if log.latest_epoch is None else log.latest_epoch
    assert log.append_as_leader(_record(99), min(latest + 1, 2**31 - 1)) == (end, end + 2)
    more = log.read(end, ALL, ALL)
    assert [r.value for r in batches.decode(more)][:1] == [b"record 99"]
    flushed = log.recovery_point
    log.close(flush=False)
    if point == 0:
        again = PartitionLog.open(folder, CONFIG, flushed)
        assert again.problems == [], again.problems
        assert again.read(again.log_start_offset, ALL, ALL) == content + more
        again.close(flush=False)
    return Outcome.REFUSED if problems else Outcome.VALID


def _mutate_recovery(data: bytes, rng: Random) -> bytes:
    if data and data[0] >= 128:
        return data[:1] + _mutate_batches(data[1:], rng)
    steps = bytes(rng.randrange(256) for _ in range(_OP_BYTES * rng.choice((1, 1, 1, 2, 3))))
    tail = rng.choice((b"", b"", rng.randbytes(30), _record(7)))
    return bytes([rng.choice((0, 0, 6, 8, 12, 14, 18, rng.randrange(21))), *steps]) + tail * (
        len(steps) == 48
    )


# --- batches ---------------------------------------------------------------------------------------------------

_STORED = batches.encode([(b"k", b"v"), (None, b"w")], 1000, 0, 3) + batches.encode([(None, None)], 5, 2, 4)


def _resealed(data: bytes) -> bytes:
    """With the length and the checksum of the first batch made right."""
    if len(data) < batches.HEADER_BYTES:
        return data
    header = batches._HEADER.unpack_from(data)
    return batches.seal(data[batches.HEADER_BYTES :], header[6], header[7], header[8], header[0], header[2])


def _mutate_batches(data: bytes, rng: Random) -> bytes:
    mutated = mutate_bytes(data, rng)
    return _resealed(mutated) if rng.randrange(2) else mutated


def _check_batches(data: bytes) -> Outcome:
    """Bytes as a client sends them (even first byte) or a leader (odd): stored all or not at all."""
    index, body = chosen(data, 2)
    log = MemoryLog(CONFIG)
    try:
        list(batches.decode(body))
        readable = True
    except BatchError as error:
        require_clear(str(error))
        readable = False
    try:
        taken = log.append_as_follower(body) if index else log.append_as_leader(body, 7)
    except LogError as error:
        require_clear(str(error))
        assert log.log_end_offset == 0, "refused, and stored"
        return Outcome.REFUSED
    assert taken.next_offset == log.log_end_offset
    stored = log.read(0, 10**9, 10**9)
    assert sum(batch.record_count for batch in batches.iterate(stored)) == log.log_end_offset
    assert readable or index, "a client's records were taken that cannot be read"
    return Outcome.VALID


# --- checkpoints, journal, data directory -----------------------------------------------------------------------


def _check_checkpoints(data: bytes) -> Outcome:
    index, body = chosen(data, 2)
    path = _file(body)
    try:
        if index:
            epochs = checkpoints.read_epochs(path)
            assert epochs is not None
            checkpoints.write_epochs(path, epochs)
            assert checkpoints.read_epochs(path) == epochs
        else:
            offsets = checkpoints.read_offsets(path)
            checkpoints.write_offsets(path, offsets)
            assert checkpoints.read_offsets(path) == offsets
    except CheckpointFault as error:
        require_clear(str(error), str(path))
        return Outcome.REFUSED
    return Outcome.VALID


def _check_broker_id(body: bytes) -> Outcome:
    directory = scratch() / "data"
    directory.mkdir(exist_ok=True)
    (directory / storage.META_PROPERTIES).write_bytes(body)
    try:
        broker_id = storage.read_broker_id(directory)
    except StorageFault as error:
        require_clear(str(error), storage.META_PROPERTIES)
        return Outcome.REFUSED
    assert broker_id is not None
    assert 0 <= broker_id < 2**31, f"broker id {broker_id}"
    return Outcome.VALID


def _check_topic_id(body: bytes) -> Outcome:
    try:
        found = storage.parse_partition_metadata(body)
    except ValueError as error:
        require_clear(str(error))
        return Outcome.REFUSED
    assert found is None or len(found) == 22
    return Outcome.VALID


def _check_journal(body: bytes) -> Outcome:
    path = _file(body)
    replicas, problems = journal.read(path)
    for problem in problems:
        require_clear(problem.problem)
        if not problem.path.startswith(str(path)):
            raise UnclearError(f"does not name {path}: {problem}")
    for replica in replicas.values():
        assert msgspec.json.decode(msgspec.json.encode(replica), type=Replica) == replica
    return Outcome.REFUSED if problems else Outcome.VALID


_DATA_DIR: tuple[tuple[Callable[[bytes], Outcome], Any, tuple[bytes, ...]], ...] = (
    (_check_broker_id, mutate_bytes, (b"#\nversion=0\nbroker.id=7\n",)),
    (_check_topic_id, mutate_bytes, (f"version: 0\ntopic_id: {ID_X}".encode(), b"")),
    (_check_journal, mutate_json, (msgspec.json.encode(Replica("foo", 0, topic_id=ID_X)) + b"\n", b"")),
)


def _check_data_dir(data: bytes) -> Outcome:
    index, body = chosen(data, len(_DATA_DIR))
    return _DATA_DIR[index][0](body)


# --- __consumer_offsets, and what members of a group tell each other ---------------------------------------------

_OFFSET_KEY = OffsetKey(group="g", topic="t", partition=0)
_OFFSET = OffsetValue(offset=5, leader_epoch=1, metadata="m", commit_timestamp_ms=7)
_GROUP = GroupValue(
    protocol_type="consumer",
    generation_id=3,
    protocol="range",
    leader="m",
    members=(StoredMember("m", "c", 10_000, 10_000, (StoredProtocol("range", b"x"),), b"y"),),
)
_PAIRS = ((_OFFSET_KEY, _OFFSET), (GroupKey(group="g"), _GROUP))


def _check_message(body: bytes) -> Outcome:
    """Key and value, divided by the first NUL; without one there is no value."""
    key, nul, value = body.partition(b"\0")
    try:
        found = messages.decode(key, value if nul else None)
    except messages.MalformedRecord as error:
        require_clear(str(error))
        return Outcome.REFUSED
    again = messages.decode(
        messages.encode(found[0]), None if found[1] is None else messages.encode(found[1])
    )
    assert again == found
    return Outcome.VALID


class _Chunk:
    """A partition of the topic that holds these bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def log_start_offset(self, partition: int) -> int:
        return 0

    def read(self, partition: int, offset: int) -> bytes:
        return self._data if offset == 0 else b""


def _check_replay(body: bytes) -> Outcome:
    found = asyncio.run(replay.replay_log(_Chunk(body), 0))  # type: ignore[arg-type]
    for problem in found.problems:
        require_line(problem)
    assert len(found.problems) == min(found.problem_count, replay.PROBLEMS_MAX)
    msgspec.json.encode(found.describe())
    return Outcome.REFUSED if found.problem_count else Outcome.VALID


def _check_assignor(body: bytes) -> Outcome:
    """Even first byte: a subscription; odd: an assignment."""
    index, text = chosen(body, 2)
    try:
        if index:
            assigned = assignor.decode_assignment(text)
            assert assignor.decode_assignment(assignor.encode_assignment(assigned)) == assigned
        else:
            topics = assignor.decode_subscription(text)
            assert assignor.decode_subscription(assignor.encode_subscription(topics)) == sorted(topics)
    except assignor.AssignmentError as error:
        require_clear(str(error))
        return Outcome.REFUSED
    return Outcome.VALID


def _mutate_message(data: bytes, rng: Random) -> bytes:
    key, nul, value = data.partition(b"\0")
    if rng.randrange(2):
        return mutate_json(key, rng) + nul + value
    return key + nul + mutate_json(value, rng)


def _mutate_assignor(data: bytes, rng: Random) -> bytes:
    return data[:1] + mutate_json(data[1:], rng)


_REPLAYED = batches.encode([(messages.encode(key), messages.encode(value)) for key, value in _PAIRS], 1, 0, 0)
_GROUPS: tuple[tuple[Callable[[bytes], Outcome], Any, tuple[bytes, ...]], ...] = (
    (
        _check_message,
        _mutate_message,
        tuple(messages.encode(key) + b"\0" + messages.encode(value) for key, value in _PAIRS),
    ),
    (_check_replay, _mutate_batches, (_REPLAYED, b"")),
    (
        _check_assignor,
        _mutate_assignor,
        (
            b"\0" + assignor.encode_subscription(["t"]),
            b"\1" + assignor.encode_assignment([("t", 0), ("u", 1)]),
        ),
    ),
)


def _check_groups(data: bytes) -> Outcome:
    index, body = chosen(data, len(_GROUPS))
    return _GROUPS[index][0](body)


def _seeds(rows: Any) -> list[bytes]:
    return [choosing(index, seed) for index, (_, _, seeds) in enumerate(rows) for seed in seeds]


TARGETS = (
    Target(
        "log-recovery",
        _check_recovery,
        [b"\0", bytes([18]), bytes([128]) + _STORED],
        _mutate_recovery,
        weight=3,
        quick=80,
    ),
    Target("batches", _check_batches, [b"\0" + _STORED, b"\1" + _STORED], _mutate_batches, weight=15),
    Target(
        "checkpoints",
        _check_checkpoints,
        [
            b"\0" + b"0\n2\norders 0 1500\norders 1 9223372036854775807\n",
            b"\1" + b"0\n2\n3 0\n5 1200\n",
            b"\0" + b"0\n0\n",
        ],
        weight=8,
    ),
    Target("data-dir", _check_data_dir, _seeds(_DATA_DIR), chooser([row[1] for row in _DATA_DIR]), weight=8),
    Target("groups", _check_groups, _seeds(_GROUPS), chooser([row[1] for row in _GROUPS]), weight=10),
)
