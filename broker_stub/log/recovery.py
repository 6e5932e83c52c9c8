"""Recovery: opens a replica's folder and truncates what a kill or a disk fault left damaged.

Segments wholly below the recovery point were flushed. Recovery reads only their first header and takes their
leader epochs from the checkpoint, which a flush writes before it moves the recovery point. Every other segment
is walked: recovery verifies the checksums and takes the leader epochs from the batches. It skips the checksums of
the last segment if the recovery point is exactly its end (a clean shutdown). If the checkpoint is missing, damaged
or contradicts a batch, all segments are walked.

The log ends at the first bad batch. The rest of that file is cut off and copied to ``<name>.corrupt``; later
segments are renamed to ``<name>.corrupt``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from broker_stub.log.batches import BatchError
from broker_stub.log.checkpoints import LEADER_EPOCHS, read_epochs
from broker_stub.log.epochs import EpochEntry, LeaderEpochCache
from broker_stub.log.errors import CheckpointFault
from broker_stub.log.files import FilePool, sync_directory
from broker_stub.log.segment import SUFFIX, Segment, file_name, parse_file_name, walk

CORRUPT_SUFFIX = ".corrupt"
_COPY_BYTES = 1 << 20


@dataclass
class Recovered:
    """A folder's segments in order, their leader epochs, and the problems found.

    ``saved``: the epochs in the checkpoint file; None: the file must be rewritten.
    """

    segments: list[Segment] = field(default_factory=list)
    epochs: LeaderEpochCache = field(default_factory=LeaderEpochCache)
    saved: tuple[EpochEntry, ...] | None = ()
    problems: list[str] = field(default_factory=list)
    #: Files were truncated or renamed: the folder must be synced.
    changed: bool = False

    @property
    def end_offset(self) -> int:
        return self.segments[-1].next_offset if self.segments else 0


class _MismatchError(Exception):
    """A flushed segment contradicts the checkpoint or is damaged: all segments must be walked."""


def recover(path: Path, recovery_point: int, files: FilePool) -> Recovered:
    """Open the replica in ``path``; everything below ``recovery_point`` was flushed. Raises OSError."""
    names, problems = list_segments(path)
    try:
        checkpoint = read_epochs(path / LEADER_EPOCHS)
        found = Recovered(problems=list(problems), saved=checkpoint or ())
    except CheckpointFault as error:
        problems.append(f"{error}: rebuilt from the batches")
        checkpoint = ()
        found = Recovered(problems=list(problems), saved=None)
    try:
        _load(path, names, recovery_point, files, checkpoint, found)
    except _MismatchError as error:
        problems.append(f"{error}: all batches checked, leader epochs rebuilt from them")
        found = Recovered(problems=problems, saved=None)
        _load(path, names, recovery_point, files, None, found)
    else:
        _compare_epochs(path, checkpoint, recovery_point, found)
    if found.end_offset < recovery_point:
        found.problems.append(
            f"{path}: the log ends at offset {found.end_offset}, {recovery_point} was flushed: "
            "records are gone, or it was truncated just before the stop"
        )
    if found.changed:
        sync_directory(path)
    return found


def list_segments(path: Path) -> tuple[list[tuple[int, str]], list[str]]:
    """Base offset and name of each segment file, in order; and a problem for each badly named ``.log`` file."""
    found, problems = [], []
    for name in os.listdir(path):
        if name.endswith(SUFFIX):
            base_offset = parse_file_name(name)
            if base_offset is None:
                problems.append(f"{path / name}: a segment is named by 20 digits, at most 2^63-1: skipped")
            else:
                found.append((base_offset, name))
    return sorted(found), problems


def _load(
    path: Path,
    names: Sequence[tuple[int, str]],
    recovery_point: int,
    files: FilePool,
    checkpoint: tuple[EpochEntry, ...] | None,
    found: Recovered,
) -> None:
    flushed = sum(following <= recovery_point for following, _ in names[1:]) if checkpoint else 0
    if checkpoint and flushed:
        walked_from = names[flushed][0]
        found.epochs = LeaderEpochCache(entry for entry in checkpoint if entry.start_offset < walked_from)
    for number, (base_offset, name) in enumerate(names):
        if number and base_offset != found.end_offset:
            reason = f"begins at offset {base_offset}, but the log before it ends at {found.end_offset}"
            _set_aside(path, names[number:], reason, files, found)
            break
        if number < flushed:
            found.segments.append(_known(path, base_offset, names[number + 1][0], files, found.epochs))
            continue
        if number == flushed > 0:
            _check_junction(path / name, base_offset, files, found.epochs)
        last = number == len(names) - 1
        if not _take_walked(path, base_offset, files, recovery_point, found, last=last):
            _set_aside(path, names[number + 1 :], f"follows {name}, which was cut", files, found)
            break


def _known(
    path: Path, base_offset: int, next_offset: int, files: FilePool, epochs: LeaderEpochCache
) -> Segment:
    """A flushed segment, of which only the first batch header is read. Raises _MismatchError."""
    fd = files.fd(path / file_name(base_offset))
    size = os.fstat(fd).st_size
    segment = Segment.known(path, base_offset, size, next_offset, files)
    found = _first_epoch(segment.path, base_offset, fd, size)
    expected = epochs.epoch_for_offset(base_offset)
    if found != expected:
        raise _MismatchError(
            f"{path / LEADER_EPOCHS}: epoch at offset {base_offset} is {expected}, the batch there has {found}"
        )
    return segment


def _check_junction(file: Path, base_offset: int, files: FilePool, epochs: LeaderEpochCache) -> None:
    """Raises _MismatchError when the last epoch from the checkpoint is above that of the first walked batch."""
    fd = files.fd(file)
    size = os.fstat(fd).st_size
    if size == 0:
        return
    found = _first_epoch(file, base_offset, fd, size)
    if epochs.latest_epoch is not None and found < epochs.latest_epoch:
        raise _MismatchError(
            f"{file.parent / LEADER_EPOCHS}: epoch before offset {base_offset} is {epochs.latest_epoch}, "
            f"the batch there has {found}"
        )


def _first_epoch(file: Path, base_offset: int, fd: int, size: int) -> int:
    try:
        for batch, _ in walk(fd, 0, size, base_offset, -1, check=False):
            return batch.leader_epoch
    except BatchError as error:
        raise _MismatchError(f"{file} {error}") from error
    raise _MismatchError(f"{file}: empty, later segments follow")


def _take_walked(
    path: Path, base_offset: int, files: FilePool, recovery_point: int, found: Recovered, *, last: bool
) -> bool:
    """Add a segment after checking all its batches. False: it was damaged and truncated."""
    before = found.epochs.entries
    segment = Segment(path, base_offset, files)
    size = os.fstat(segment.fd()).st_size
    damage: BatchError | None = None
    for check in (False, True) if last else (True,):
        segment = Segment(path, base_offset, files)
        found.epochs = LeaderEpochCache(before)
        damage = _walk_into(segment, size, found.epochs, check=check)
        if damage is None and segment.next_offset == recovery_point:
            break
    found.segments.append(segment)
    if damage is None:
        return True
    _cut(segment, size, damage, found)
    return False


def _walk_into(segment: Segment, size: int, epochs: LeaderEpochCache, *, check: bool) -> BatchError | None:
    """Index the valid batches. Returns the error of the first bad one, or None."""
    latest = -1 if epochs.latest_epoch is None else epochs.latest_epoch
    try:
        for batch, _ in walk(segment.fd(), 0, size, segment.base_offset, latest, check=check):
            segment.note(batch, batch.start)
            segment.size = batch.end
            if batch.leader_epoch != latest:
                latest = batch.leader_epoch
                epochs.assign(latest, batch.base_offset)
    except BatchError as error:
        return error
    return None


def _cut(segment: Segment, size: int, damage: BatchError, found: Recovered) -> None:
    """Truncate the file before a bad batch. A copy of the rest is kept if the disk has room for it."""
    kept = segment.path.with_name(segment.path.name + CORRUPT_SUFFIX)
    message = f"{segment.path} {damage}: {size - segment.size} bytes cut off, the log ends at offset "
    found.problems.append(f"{message}{segment.next_offset}")
    found.changed = True
    fd = segment.fd()
    try:
        _copy(fd, segment.size, size, kept)
    except OSError as error:
        found.problems.append(f"{kept}: the bytes cut off could not be copied: {error.strerror or error}")
    os.ftruncate(fd, segment.size)
    os.fdatasync(fd)


def _copy(fd: int, start: int, end: int, target: Path) -> None:
    out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        while start < end and (data := os.pread(fd, min(_COPY_BYTES, end - start), start)):
            start += os.write(out, data)
        os.fsync(out)
    finally:
        os.close(out)


def _set_aside(
    path: Path, names: Sequence[tuple[int, str]], reason: str, files: FilePool, found: Recovered
) -> None:
    """Rename segments that cannot be part of the log. The last goes first: a kill then leaves no gap."""
    for _, name in reversed(names):
        files.forget(path / name)
        os.rename(path / name, path / f"{name}{CORRUPT_SUFFIX}")
        found.problems.append(f"{path / name}: {reason}: kept aside as {name}{CORRUPT_SUFFIX}")
        found.changed = True


def _compare_epochs(
    path: Path, checkpoint: tuple[EpochEntry, ...] | None, recovery_point: int, found: Recovered
) -> None:
    """Clear ``found.saved`` if the checkpoint must be rewritten: a flushed epoch is missing or an entry is wrong.

    Only a difference that no kill explains is a problem. Missing epochs may have been appended since the last
    flush; entries at or above the log's end may belong to a truncation that was interrupted.
    """
    file, entries = path / LEADER_EPOCHS, found.epochs.entries
    in_file = checkpoint or ()
    flushed = {entry for entry in entries if entry.start_offset < recovery_point}
    if checkpoint is None and flushed:
        found.problems.append(f"{file}: missing: rebuilt from the batches")
    for entry in in_file:
        if entry.start_offset < found.end_offset and entry not in entries:
            found.problems.append(
                f"{file}: epoch {entry.epoch} does not begin at offset {entry.start_offset}: "
                "rebuilt from the batches"
            )
    if not flushed <= set(in_file) <= set(entries):
        found.saved = None
