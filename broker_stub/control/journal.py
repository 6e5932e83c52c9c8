"""The journal of replica states: one file for all partitions, with one write and one sync per request.

Each line is one `Replica` as JSON. The last line of a partition is its state; role ``deleted`` removes it. With one
file per replica a large request would write fifty thousand small files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from broker_stub.control.replicas import Replica, Role
from broker_stub.control.requests import Key
from broker_stub.log.files import sync_directory
from proto.texts import in_words

FILE_NAME = "replica-states.jsonl"
#: Bytes. The file is rewritten when it is larger than this and more than three quarters of it is outdated.
COMPACT_BYTES_MIN = 16 * 1024 * 1024


class Problem(NamedTuple):
    """Something on the disk that is unreadable and was skipped."""

    path: str
    problem: str


def read(path: Path) -> tuple[dict[Key, Replica], list[Problem]]:
    """The last state of each partition, and the unreadable lines. A missing file counts as empty.

    Raises OSError when the file cannot be read at all.
    """
    replicas: dict[Key, Replica] = {}
    problems: list[Problem] = []
    decoder = msgspec.json.Decoder(Replica)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}, []
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line:
            continue
        try:
            replica = decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            problems.append(Problem(f"{path}:{number}", f"unreadable state, skipped: {in_words(error)}"))
            continue
        if replica.role is Role.DELETED:
            replicas.pop(replica.key, None)
        else:
            replicas[replica.key] = replica
    return replicas, problems


class Journal:
    """The open journal of a data directory. Every method raises OSError when the disk fails."""

    def __init__(self, path: Path, replicas: dict[Key, Replica]) -> None:
        """Rewrite the file with exactly ``replicas``, and open it for appending."""
        self._path = path
        self._encoder = msgspec.json.Encoder()
        self._lines = {key: self._encoder.encode(replica) + b"\n" for key, replica in replicas.items()}
        self._fd = -1
        self._bytes = self._rewrite()

    def append(self, replicas: Iterable[Replica]) -> None:
        """Make these states durable: one write, one sync."""
        lines = []
        for replica in replicas:
            line = self._encoder.encode(replica) + b"\n"
            lines.append(line)
            if replica.role is Role.DELETED:
                self._lines.pop(replica.key, None)
            else:
                self._lines[replica.key] = line
        if not lines:
            return
        data = b"".join(lines)
        write_all(self._fd, data)
        os.fdatasync(self._fd)
        self._bytes += len(data)
        if self._bytes > COMPACT_BYTES_MIN and self._bytes > 4 * sum(map(len, self._lines.values())):
            self._bytes = self._rewrite()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _rewrite(self) -> int:
        """Replace the file atomically and durably. Returns its size in bytes."""
        temporary = self._path.with_suffix(".tmp")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        data = b"".join(self._lines.values())
        try:
            write_all(fd, data)
            os.fsync(fd)
            temporary.rename(self._path)
        except OSError:
            os.close(fd)
            raise
        self.close()
        self._fd = fd
        # Else a power cut may bring the former file back, without what is appended from now on.
        sync_directory(self._path.parent)
        return len(data)


def write_all(fd: int, data: bytes) -> None:
    """``os.write`` until all of it is written."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
