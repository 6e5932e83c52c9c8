"""Which process one is: a random id, and those of its former selves, which a locked directory remembers.

Two processes that claim one id are told apart by it: who finds the incarnation of a former self deletes what that one
left in ZooKeeper; who finds a stranger's does not (docs/adr/0013). Only the process that holds the directory's lock
has its former selves, so they are dead.
"""

from __future__ import annotations

import fcntl
import os
import re
import uuid
from pathlib import Path
from typing import NamedTuple

LOCK, FORMER = ".lock", ".incarnations"
#: Former selves that are remembered: all that can have a session still, even when restarts come fast.
KEPT = 100
_INCARNATION = re.compile("[0-9a-f]{32}")
_FILE_BYTES_MAX = 100_000


class InUseError(OSError):
    """Another process has the directory."""


class Incarnation(NamedTuple):
    """``own``: of this process; ``former``: of dead processes that it continues."""

    own: str
    former: frozenset[str] = frozenset()

    def includes(self, other: str) -> bool:
        """Whether it is this process or a former self; an empty one is a stranger's."""
        return other == self.own or other in self.former


def new_incarnation(former: frozenset[str] = frozenset()) -> Incarnation:
    return Incarnation(uuid.uuid4().hex, former)


def lock(directory: Path) -> int:
    """Lock a directory for as long as the returned descriptor is open. Raises InUseError, OSError."""
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(descriptor, 20).decode(errors="replace").strip()
        os.close(descriptor)
        raise InUseError(f"process {holder}" if holder.isdecimal() else "unknown process") from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def begin(directory: Path, own: str = "") -> Incarnation:
    """A new incarnation of the process that has this directory locked; it is on the disk. ``own``: the one that the
    process has already from another directory. Raises OSError.

    What is not an incarnation in the file is dropped.
    """
    file = directory / FORMER
    try:
        with file.open("rb") as stream:
            lines = stream.read(_FILE_BYTES_MAX).decode(errors="replace").split("\n")
    except FileNotFoundError:
        lines = []
    former = [line for line in lines if _INCARNATION.fullmatch(line)][: KEPT - 1]
    known = frozenset(former)
    incarnation = Incarnation(own, known) if own else new_incarnation(known)
    temporary = file.with_name(f"{FORMER}.tmp")
    with temporary.open("w", encoding="ascii") as stream:
        stream.write("\n".join([incarnation.own, *former, ""]))
        stream.flush()
        os.fsync(stream.fileno())
    temporary.rename(file)
    renamed = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(renamed)
    finally:
        os.close(renamed)
    return incarnation
