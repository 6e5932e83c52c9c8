"""Where a lake's files are: what is needed of it, and a directory of this machine. Imports no Spark."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from controller.analysis.lake.errors import LakeError
from controller.analysis.local_files import S3_SCHEME, has_scheme

_DRAFT = ".draft-"
_LOCK = "_lock"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Stored:
    """A file, by its name in the lake. ``changed_ms``: when it was written or last touched."""

    name: str
    size: int
    changed_ms: int


class Storage(Protocol):
    """Files by name, relative to the lake's directory. Raises OSError, or the JVM's errors, if it is out of reach."""

    @property
    def shown(self) -> str:
        """The lake's directory, as a user would type it."""

    @property
    def alone(self) -> bool:
        """Whether `writing` keeps other writers out: what no commit names is then nobody's."""

    def url(self, name: str = "") -> str:
        """The name by which Spark finds it."""

    def names(self, directory: str) -> list[str]:
        """What is directly in a directory; empty if it does not exist."""

    def found(self, beginning: str, end: str) -> Iterator[Stored]:
        """Files at any depth whose names begin and end so."""

    def read(self, name: str) -> bytes:
        """Raises FileNotFoundError."""

    def write(self, name: str, content: bytes) -> None:
        """Readers see what was there before, or all of the content."""

    def write_new(self, name: str, content: bytes) -> bool:
        """Write a file that appears whole; False if there is one already, which is left as it is."""

    def move(self, name: str, to: str) -> None:
        """Give a file another name, which no other file has; it outlives a power failure."""

    def touch(self, name: str) -> None:
        """Set ``changed_ms`` of `found` to the present time."""

    def delete(self, name: str) -> None:
        """A file, or a directory with all that is in it; nothing if it does not exist."""

    def now_ms(self) -> int:
        """The present time, by the clock that ``changed_ms`` of `found` comes from."""

    def writing(self) -> AbstractContextManager[None]:
        """Be a writer. Raises LakeError if another process is the only one, or nobody can be."""


@dataclass(frozen=True)
class LocalStorage:
    """On this machine, or mounted: a file system with hard links and locks."""

    root: Path
    alone = True

    @property
    def shown(self) -> str:
        return str(self.root)

    def url(self, name: str = "") -> str:
        return f"file:{self.root.resolve() / name}"

    def names(self, directory: str) -> list[str]:
        try:
            return os.listdir(self.root / directory)
        except FileNotFoundError:
            return []

    def found(self, beginning: str, end: str) -> Iterator[Stored]:
        folder, _, first = beginning.rpartition("/")
        for path in (self.root / folder).glob(f"{first}*"):
            for file in sorted(path.rglob(f"*{end}")) if path.is_dir() else [path]:
                if file.name.endswith(end) and file.is_file():
                    state = file.stat()
                    name = file.relative_to(self.root).as_posix()
                    yield Stored(name, state.st_size, state.st_mtime_ns // 1_000_000)

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        self._draft(name, content).replace(self.root / name)
        self._sync(name)

    def write_new(self, name: str, content: bytes) -> bool:
        draft = self._draft(name, content)
        try:
            os.link(draft, self.root / name)
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        self._sync(name)
        return True

    def move(self, name: str, to: str) -> None:
        target = self.root / to
        _make(target.parent)
        _sync(self.root / name)
        (self.root / name).rename(target)
        self._sync(to)

    def touch(self, name: str) -> None:
        (self.root / name).touch()

    def delete(self, name: str) -> None:
        path = self.root / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def now_ms(self) -> int:
        return now_ms()

    @contextmanager
    def writing(self) -> Iterator[None]:
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            lock = (self.root / _LOCK).open("a+")
        except OSError as error:
            raise LakeError(f"{self.root}: {error.strerror or error}") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                raise LakeError(
                    f"{self.root}: process {lock.read(20).strip() or '?'} is writing this lake; one writer at a time"
                ) from None
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n")
            lock.flush()
            # A writer that was killed has left them.
            for draft in self.root.glob(f"*/{_DRAFT}*"):
                draft.unlink()
            yield

    def _draft(self, name: str, content: bytes) -> Path:
        path = (self.root / name).with_name(f"{_DRAFT}{uuid.uuid4()}")
        _make(path.parent)
        with path.open("wb") as draft:
            draft.write(content)
            draft.flush()
            os.fsync(draft.fileno())
        return path

    def _sync(self, name: str) -> None:
        _sync((self.root / name).parent)


def local_storage(lake: Path | str) -> LocalStorage | None:
    """None if the lake is on S3. Raises LakeError if it is elsewhere."""
    if not has_scheme(str(lake)):
        return LocalStorage(Path(lake))
    if not str(lake).startswith(f"{S3_SCHEME}//"):
        raise LakeError(
            f"{lake}: a lake is a directory of this machine, or one on S3: {S3_SCHEME}//BUCKET/..."
        )
    return None


def _make(folder: Path) -> None:
    """Make a folder, and those above it, that outlives a power failure."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in missing:
        _sync(path.parent)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
