"""Finding log files, checking gzipped ones, and writing the page: on this machine or any file system Spark knows.

A path without a scheme is local to the machine the job's driver runs on; `hdfs://`, `s3a://`, ... (and
`file:`) go through Hadoop's file systems.
"""

from __future__ import annotations

import fnmatch
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrameReader, SparkSession

from controller.analysis.errors import ReportError

#: The third is a rotated file whose node was killed before it was gzipped.
FILE_PATTERNS = ("state-change.jsonl", "state-change.*.jsonl.gz", "state-change.*.jsonl")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_CHUNK_BYTES = 1 << 20
#: Remote gzip files above this are read but not checked: Spark hands a file to the check in one piece.
_REMOTE_CHECK_BYTES_MAX = 512 << 20


@dataclass(frozen=True)
class LogFile:
    """One file of a state-change log. ``path`` is how Spark names it (``file:/...``, ``hdfs://...``)."""

    path: str
    size: int

    @property
    def gzipped(self) -> bool:
        return self.path.endswith(".gz")

    @property
    def shown(self) -> str:
        """The name as a user would type it."""
        return self.path.removeprefix("file:") if self.path.startswith("file:/") else self.path


@dataclass(frozen=True)
class GzipCheck:
    """What reading a gzipped file through gave: its inflated size, and what is wrong with it, if anything."""

    size: int
    problem: str | None = None


def has_scheme(path: str) -> bool:
    """Whether the path names a Hadoop file system rather than a local file."""
    return _SCHEME.match(path) is not None


def check_local(log_dirs: Sequence[Path | str]) -> int | None:
    """How many bytes of log there are; None when some are not local. Done before Spark is even started.

    Raises ReportError when a local directory is absent or, all being local, they hold no log.
    """
    if not log_dirs:
        raise ReportError("no log directory given")
    local = [str(path) for path in log_dirs if not has_scheme(str(path))]
    for path in local:
        if not os.path.exists(path):
            raise ReportError(f"{path}: no such directory")
    if len(local) < len(log_dirs):
        return None
    sizes = [file.size for path in local for file in _walk_local(path)]
    if not sizes:
        raise _nothing_found(log_dirs)
    return sum(sizes)


def list_files(spark: SparkSession, log_dirs: Sequence[Path | str]) -> list[LogFile]:
    """Every log file in and below the directories, each once, ordered by path.

    Raises ReportError when there is none.
    """
    found: dict[str, LogFile] = {}
    for log_dir in map(str, log_dirs):
        walk = _walk_hadoop(spark, log_dir) if has_scheme(log_dir) else _walk_local(log_dir)
        found.update((file.path, file) for file in walk)
    if not found:
        raise _nothing_found(log_dirs)
    return [found[path] for path in sorted(found)]


def reader(spark: SparkSession) -> DataFrameReader:
    """A reader that takes paths as they are (no globs) and outlives damaged and vanishing files.

    ``recursiveFileLookup`` keeps Spark from reading a file once per sibling when its directory's name looks
    like a glob.
    """
    return spark.read.options(
        __globPaths__="false",
        recursiveFileLookup="true",
        ignoreCorruptFiles="true",
        ignoreMissingFiles="true",
    )


def check_gzip(spark: SparkSession, files: Sequence[LogFile]) -> dict[str, GzipCheck]:
    """Read every gzipped file through once and say what is wrong with it, by path.

    Spark skips the rest of a damaged file without a word (``ignoreCorruptFiles``); this is what names it.
    """
    local = [file for file in files if file.gzipped and file.path.startswith("file:/")]
    remote = [file for file in files if file.gzipped and not file.path.startswith("file:/")]
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:  # zlib lets other threads run
        checks = dict(zip((f.path for f in local), pool.map(_check_local_file, local), strict=True))
    return checks | check_gzip_in_spark(spark, remote)


def check_gzip_in_spark(spark: SparkSession, files: Sequence[LogFile]) -> dict[str, GzipCheck]:
    """The same for file systems that only Spark can read; a file must fit into a Python worker's memory."""
    checkable = [file.path for file in files if file.size <= _REMOTE_CHECK_BYTES_MAX]
    if not checkable:
        return {}
    contents = reader(spark).format("binaryFile").load(checkable).select("path", "content")
    return dict(contents.rdd.map(lambda row: (row.path, inflate([bytes(row.content)]))).collect())


def inflate(chunks: Iterable[bytes]) -> GzipCheck:
    """Inflate a gzip file (of one or more members) from its chunks, keeping only its size."""
    size, member, begun = 0, zlib.decompressobj(wbits=31), False
    try:
        for piece in chunks:
            chunk = piece
            while chunk:
                begun = True
                size += len(member.decompress(chunk, _CHUNK_BYTES))
                chunk = member.unconsumed_tail
                if member.eof:
                    chunk = member.unused_data
                    member, begun = zlib.decompressobj(wbits=31), False
    except zlib.error as error:
        return GzipCheck(size, f"damaged gzip: {error}")
    return GzipCheck(size, "truncated gzip" if begun else None)


def write_text(spark: SparkSession, path: str, text: str) -> None:
    """Write a file whole: locally by rename, elsewhere through Hadoop."""
    if not has_scheme(path):
        draft = Path(f"{path}.part")
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
        return
    hadoop_path, file_system = _hadoop(spark, path)
    stream = file_system.create(hadoop_path, True)
    stream.write(bytearray(text.encode()))
    stream.close()


def delete(spark: SparkSession, path: str) -> None:
    """Delete a directory and all in it, if it is there."""
    hadoop_path, file_system = _hadoop(spark, path)
    file_system.delete(hadoop_path, True)


def _nothing_found(log_dirs: Sequence[Path | str]) -> ReportError:
    names = ", ".join(map(str, log_dirs))
    return ReportError(f"no state-change log ({' or '.join(FILE_PATTERNS[:2])}) in or below: {names}")


def _wanted(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in FILE_PATTERNS)


def _walk_local(log_dir: str) -> Iterator[LogFile]:
    """Follows symbolic links, never in circles; the same file by two names comes out under one."""
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
            if _wanted(name) and os.path.isfile(path):
                yield _local_file(path)


def _local_file(path: str) -> LogFile:
    real = os.path.realpath(path)
    return LogFile(f"file:{real}", os.path.getsize(real))


def _walk_hadoop(spark: SparkSession, log_dir: str) -> Iterator[LogFile]:
    try:
        path, file_system = _hadoop(spark, log_dir)
        if not file_system.exists(path):
            raise ReportError(f"{log_dir}: no such directory")
        statuses = file_system.listFiles(path, True)
        while statuses.hasNext():
            status = statuses.next()
            if _wanted(status.getPath().getName()):
                yield LogFile(status.getPath().toString(), status.getLen())
    except PySparkException as error:
        raise ReportError(f"{log_dir}: {str(error).splitlines()[0]}") from error


def _hadoop(spark: SparkSession, path: str) -> tuple[Any, Any]:
    jvm: Any = spark.sparkContext._jvm
    configuration: Any = spark.sparkContext._jsc
    hadoop_path = jvm.org.apache.hadoop.fs.Path(
        path if has_scheme(path) else f"file:{os.path.realpath(path)}"
    )
    return hadoop_path, hadoop_path.getFileSystem(configuration.hadoopConfiguration())


def _check_local_file(file: LogFile) -> GzipCheck:
    try:
        with open(file.shown, "rb") as source:
            return inflate(iter(lambda: source.read(_CHUNK_BYTES), b""))
    except OSError as error:
        return GzipCheck(0, f"unreadable: {error.strerror or error}")
