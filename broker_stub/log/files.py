"""A limited pool of open files, and atomic replacement of small files."""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from pathlib import Path

FILES_MAX = 512


class FilePool:
    """The open segment files of many logs; closes the least recently used one first. Used by one thread.

    A broker with fifty thousand replicas cannot keep a file open for each. Closing a file with unsynced data is
    safe: a sync through a later descriptor covers the whole file. Methods raise OSError.
    """

    def __init__(self, files_max: int = FILES_MAX) -> None:
        self._files_max = files_max
        self._fds: OrderedDict[Path, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._fds)

    def fd(self, path: Path, *, create: bool = False) -> int:
        """A descriptor for reading and writing, valid until the next call. ``create``: the file must not exist yet."""
        if (found := self._fds.get(path)) is not None:
            self._fds.move_to_end(path)
            return found
        while len(self._fds) >= self._files_max:
            os.close(self._fds.popitem(last=False)[1])
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        opened = os.open(path, flags, 0o644)
        self._fds[path] = opened
        return opened

    def forget(self, path: Path) -> None:
        """Close the file if it is open."""
        if (found := self._fds.pop(path, None)) is not None:
            os.close(found)

    def close(self) -> None:
        while self._fds:
            os.close(self._fds.popitem()[1])


def sync_directory(path: Path) -> None:
    """Make creations, renames and removals in a folder durable. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file durably: a reader sees the old or the new content, also after the process was killed.

    Raises OSError; the old content then remains.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(fd, rest) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_directory(path.parent)
