"""Log files on this machine. Imports no Spark.

A path without a scheme is local; for a report, to the machine of the job's driver. `hdfs://`, `s3a://`, ... (and
`file:`) are read through Hadoop's file systems.
"""

from __future__ import annotations

import fcntl
import fnmatch
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from controller.analysis.errors import ReportError

#: The third: a rotated file that was not gzipped because its node was killed.
FILE_PATTERNS = ("state-change.jsonl", "state-change.*.jsonl.gz", "state-change.*.jsonl")
#: Listings at most, where a file is rotated between listing and opening.
LISTINGS_MAX = 3
#: Hadoop names S3 so.
S3_SCHEME = "s3a:"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


@dataclass(frozen=True)
class LogFile:
    """One file of a state-change log. ``path``: Spark's name (``file:/...``, ``hdfs://...``). ``descriptor``: of what
    was listed, if it is open."""

    path: str
    size: int
    descriptor: int | None = field(default=None, compare=False)

    @property
    def gzipped(self) -> bool:
        return self.path.endswith(".gz")

    @property
    def shown(self) -> str:
        """The name as a user would type it."""
        return self.path.removeprefix("file:") if self.path.startswith("file:/") else self.path

    @property
    def readable(self) -> str:
        """The name by which this machine reads what was listed, also when another file has its place by now."""
        return self.shown if self.descriptor is None else f"/dev/fd/{self.descriptor}"

    def opened(self) -> LogFile:
        """Open, if it is of this machine and may yet be rotated. What cannot be opened is told of when it is read."""
        if self.gzipped or not self.path.startswith("file:/"):
            return self
        try:
            return replace(self, descriptor=os.open(self.shown, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            return self

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)


def list_and_open(listed: Callable[[], list[LogFile]]) -> list[LogFile]:
    """List files, and open those that may yet be rotated: when their turn comes, others could be in their places, and
    what was in them in files that nobody listed. Listed again if that happens meanwhile. Close them."""
    for left in reversed(range(LISTINGS_MAX)):
        files = listed()
        found = [file.opened() for file in files]
        names = [file.path for file in files]
        if (
            not left
            or all(file.descriptor is None for file in found)
            or [file.path for file in listed()] == names
        ):
            return found
        for file in found:
            file.close()
    raise AssertionError("the loop returns")


def has_scheme(path: str) -> bool:
    """Whether the path names a Hadoop file system rather than a local file."""
    return _SCHEME.match(path) is not None


def spark_path(path: str) -> str:
    """The name by which Spark finds a path, which is absolute if it is of this machine."""
    return path if has_scheme(path) else f"file:{path}"


@contextmanager
def output(out_dir: Path | str) -> Iterator[tuple[str, Path]]:
    """The directory that a report writes, made if it is of this machine: its full name, and where Spark's log goes.

    Raises ReportError while another process writes there.
    """
    if has_scheme(str(out_dir)):
        yield str(out_dir), Path.cwd()
        return
    directory = Path(out_dir)
    directory.mkdir(parents=True, exist_ok=True)
    locked = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ReportError(f"{out_dir}: another report is being written there") from None
        except OSError:
            pass  # NFS does not lock directories.
        yield str(directory.resolve()), directory
    finally:
        os.close(locked)


def check_local(log_dirs: Sequence[Path | str]) -> int | None:
    """Bytes of log files; None if a directory is not local. Called before Spark is started.

    Raises ReportError if a local directory is absent, or if all are local and have no log.
    """
    if not log_dirs:
        raise ReportError("no log directory given")
    local = [str(path) for path in log_dirs if not has_scheme(str(path))]
    for path in local:
        if not os.path.exists(path):
            raise ReportError(f"{path}: no such directory")
    if len(local) < len(log_dirs):
        return None
    sizes = [file.size for path in local for file in walk_local(path)]
    if not sizes:
        raise nothing_found(log_dirs)
    return sum(sizes)


def nothing_found(log_dirs: Sequence[Path | str]) -> ReportError:
    names = ", ".join(map(str, log_dirs))
    return ReportError(f"no state-change log ({' or '.join(FILE_PATTERNS[:2])}) in or below: {names}")


def is_log(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in FILE_PATTERNS)


def walk_local(log_dir: str) -> Iterator[LogFile]:
    """Log files in and below a directory. Follows symbolic links, but not in cycles; a file with two names has one
    path. Raises ReportError for a name that Spark cannot be told."""
    if os.path.isfile(log_dir):
        yield _local_file(log_dir)
        return
    seen: set[str] = set()
    for directory, subdirectories, names in os.walk(log_dir, followlinks=True):
        real = os.path.realpath(directory)
        if real in seen:
            subdirectories.clear()
            continue
        seen.add(real)
        for name in names:
            path = os.path.join(directory, name)
            if is_log(name) and os.path.isfile(path):
                yield _local_file(path)


def _local_file(path: str) -> LogFile:
    real = os.path.realpath(path)
    try:
        real.encode()
    except UnicodeEncodeError:
        raise ReportError(f"{real!r}: names of log files and their directories must be UTF-8") from None
    return LogFile(f"file:{real}", os.path.getsize(real))
