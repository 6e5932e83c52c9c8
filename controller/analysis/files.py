"""Lists log files, checks gzipped ones, and writes the page, locally or on any file system that Spark supports."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrameReader, SparkSession

from controller.analysis.errors import ReportError
from controller.analysis.local_files import LogFile, has_scheme, is_log, nothing_found, walk_local

_CHUNK_BYTES = 1 << 20
#: Larger remote gzip files are read but not checked: Spark passes a whole file to the check.
_REMOTE_CHECK_BYTES_MAX = 512 << 20


@dataclass(frozen=True)
class GzipCheck:
    """Result of inflating a gzipped file: its inflated size, and its problem, None if intact."""

    size: int
    problem: str | None = None


def list_files(spark: SparkSession, log_dirs: Sequence[Path | str]) -> list[LogFile]:
    """Every log file in and below the directories, each once, ordered by path.

    Raises ReportError if there is none.
    """
    found: dict[str, LogFile] = {}
    for log_dir in map(str, log_dirs):
        walk = _walk_hadoop(spark, log_dir) if has_scheme(log_dir) else walk_local(log_dir)
        found.update((file.path, file) for file in walk)
    if not found:
        raise nothing_found(log_dirs)
    return [found[path] for path in sorted(found)]


def reader(spark: SparkSession) -> DataFrameReader:
    """A reader that does not interpret globs in paths and skips damaged and vanished files.

    ``recursiveFileLookup`` keeps Spark from reading a file once per sibling if its directory's name looks
    like a glob.
    """
    return spark.read.options(
        __globPaths__="false",
        recursiveFileLookup="true",
        ignoreCorruptFiles="true",
        ignoreMissingFiles="true",
    )


def check_gzip(spark: SparkSession, files: Sequence[LogFile]) -> dict[str, GzipCheck]:
    """Read every gzipped file once and check it. Out: the results by path.

    Spark silently skips the rest of a damaged file (``ignoreCorruptFiles``); this check reports it.
    """
    local = [file for file in files if file.gzipped and file.path.startswith("file:/")]
    remote = [file for file in files if file.gzipped and not file.path.startswith("file:/")]
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:  # zlib releases the GIL
        checks = dict(zip((f.path for f in local), pool.map(_check_local_file, local), strict=True))
    return checks | check_gzip_in_spark(spark, remote)


def check_gzip_in_spark(spark: SparkSession, files: Sequence[LogFile]) -> dict[str, GzipCheck]:
    """The same for file systems that only Spark can read; a file must fit in a Python worker's memory."""
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
    """Write a file: locally by rename, elsewhere through Hadoop."""
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
    """Delete a directory and its contents, if it exists."""
    hadoop_path, file_system = _hadoop(spark, path)
    file_system.delete(hadoop_path, True)


def _walk_hadoop(spark: SparkSession, log_dir: str) -> Iterator[LogFile]:
    try:
        path, file_system = _hadoop(spark, log_dir)
        if not file_system.exists(path):
            raise ReportError(f"{log_dir}: no such directory")
        statuses = file_system.listFiles(path, True)
        while statuses.hasNext():
            status = statuses.next()
            if is_log(status.getPath().getName()):
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
