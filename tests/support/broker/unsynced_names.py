"""Which folders a power cut could take back: names that were made, changed or removed in them and not synced since."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock


def _folder_of(path: Any, dir_fd: int | None) -> Path:
    base = Path(os.readlink(f"/proc/self/fd/{dir_fd}")) if dir_fd is not None else Path.cwd()
    return (base / os.fsdecode(path)).parent


@contextmanager
def unsynced_names() -> Iterator[set[Path]]:
    """The set is kept up to date within the context. Not counted: what is in folders that are being removed."""
    found: set[Path] = set()

    def changed(path: Any, dir_fd: int | None) -> None:
        folder = _folder_of(path, dir_fd)
        if not folder.name.endswith("-delete"):
            found.add(folder)

    mkdir, rename, unlink, open_, fsync = os.mkdir, os.rename, os.unlink, os.open, os.fsync

    def making(path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        mkdir(path, mode, dir_fd=dir_fd)
        changed(path, dir_fd)

    def renaming(
        source: Any, target: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        changed(source, src_dir_fd)
        changed(target, dst_dir_fd)

    def removing(path: Any, *, dir_fd: int | None = None) -> None:
        unlink(path, dir_fd=dir_fd)
        changed(path, dir_fd)

    def opening(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        fd = open_(path, flags, mode, dir_fd=dir_fd)
        if flags & os.O_CREAT and os.fstat(fd).st_size == 0:
            changed(path, dir_fd)
        return fd

    def syncing(fd: int) -> None:
        fsync(fd)
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            found.discard(Path(os.readlink(f"/proc/self/fd/{fd}")))

    watched: dict[str, Callable[..., Any]] = {
        "mkdir": making, "rename": renaming, "unlink": removing, "open": opening, "fsync": syncing,
    }  # fmt: skip
    with ExitStack() as stack:
        for name, watching in watched.items():
            stack.enter_context(mock.patch.object(os, name, watching))
        yield found
