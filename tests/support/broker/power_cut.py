"""What a power cut may leave of a folder that real code writes to: of names and contents what was synced for certain,
of the rest as much as is drawn."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from unittest import mock

#: Thousands of syncs, and none of this is about whether the disk does them.
MEMORY_DISK = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
#: A disk writes whole sectors, in any order.
SECTOR_BYTES = 64
#: Contents by name.
Image = dict[str, bytes]


class Platter:
    """The stable part of ``folder``, which must be without folders; ``links``: an empty folder on the same disk.

    Not shown: a name of which a rename is half done. Journaling file systems do not leave that.
    """

    def __init__(self, folder: Path, links: Path) -> None:
        self._folder, self._links = folder, links
        self._names = self._listed()
        self._contents = {inode: (folder / name).read_bytes() for name, inode in self._names.items()}

    @contextmanager
    def watching(self, before_sync: Callable[[], None]) -> Iterator[None]:
        """Calls ``before_sync`` before each sync of the folder or of a file in it."""
        fsync, fdatasync = os.fsync, os.fdatasync

        def synced(fd: int, sync: Callable[[int], None]) -> None:
            path, found = Path(os.readlink(f"/proc/self/fd/{fd}")), os.fstat(fd)
            mine = path == self._folder or path.parent == self._folder
            if mine:
                before_sync()
            sync(fd)
            if not mine:
                return
            if stat.S_ISDIR(found.st_mode):
                self._names = self._listed()
            else:
                self._keep(found.st_ino, Path(f"/proc/self/fd/{fd}"))
                self._contents[found.st_ino] = Path(f"/proc/self/fd/{fd}").read_bytes()

        with (
            mock.patch.object(os, "fsync", lambda fd: synced(fd, fsync)),
            mock.patch.object(os, "fdatasync", lambda fd: synced(fd, fdatasync)),
        ):
            yield

    def after_cut(self, rng: Random) -> Image:
        names = rng.choice((self._names, self._listed()))
        return {name: self._surviving(inode, rng) for name, inode in names.items()}

    def _surviving(self, inode: int, rng: Random) -> bytes:
        """A shorter file is as before or as it is now. Of what was written over or added each sector may be there or
        not; what was added and is not there is zeros."""
        stable, written = self._contents.get(inode, b""), (self._links / str(inode)).read_bytes()
        if len(written) < len(stable):
            return rng.choice((stable, written))
        before = stable.ljust(len(written), b"\0")
        mixed = [
            rng.choice((before, written))[at : at + SECTOR_BYTES]
            for at in range(0, len(written), SECTOR_BYTES)
        ]
        return rng.choice((stable, written, before, b"".join(mixed)))

    def _listed(self) -> dict[str, int]:
        """Inodes by name."""
        found = {entry.name: entry.inode() for entry in os.scandir(self._folder)}
        for name, inode in found.items():
            self._keep(inode, self._folder / name)
        return found

    def _keep(self, inode: int, path: Path) -> None:
        """The inode is not used for another file as long as this link is there."""
        if not (link := self._links / str(inode)).exists():
            os.link(path, link, follow_symlinks=True)
