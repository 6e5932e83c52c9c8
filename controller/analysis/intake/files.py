"""Lists log files, looks at their bytes, and writes the page and tables of few rows, locally or on any file system that
Spark supports."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrameReader, SparkSession

from controller.analysis.errors import ReportError
from controller.analysis.intake.conversion import Converted, convert
from controller.analysis.intake.screening import FileCheck, inflate
from controller.analysis.local_files import LogFile, has_scheme, is_log, nothing_found, walk_local
from controller.analysis.session import first_line

#: Larger remote gzip files are read but not checked: Spark passes a whole file to the check.
_REMOTE_CHECK_BYTES_MAX = 512 << 20


def list_local(log_dirs: Sequence[Path | str]) -> list[LogFile]:
    """`list_files` of directories of this machine, which needs no Spark."""
    found = {file.path: file for log_dir in map(str, log_dirs) for file in walk_local(log_dir)}
    return [found[path] for path in sorted(found)]


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


class Conversion:
    """Local files that threads look at and `convert` into a directory, if that is local, too; they are closed with it.

    Here, not by Spark, which need not have started: its Python processes would take longer to start than a small log
    takes, and workers of a cluster need no Arrow. That releases the GIL, as zlib does.
    """

    def __init__(self, files: Sequence[LogFile], directory: str, complete: bool) -> None:
        self.files = files
        self._open = ExitStack()
        for file in files:
            self._open.callback(file.close)
        self._pool = ThreadPoolExecutor(max_workers=os.cpu_count() or 1)
        self._begun = {
            file: self._pool.submit(
                convert, file.readable, f"file://{quote(file.shown)}", _target(directory, number), complete
            )
            for number, file in enumerate(file for file in files if file.path.startswith("file:/"))
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._open.close()

    def done(self) -> tuple[dict[str, FileCheck], dict[str, Converted]]:
        """Out: the results by path; what was made of the files that could be converted."""
        looked_at = {file.path: begun.result() for file, begun in self._begun.items()}
        checks = {path: check for path, (check, _) in looked_at.items()}
        return checks, {path: made for path, (_, made) in looked_at.items() if made is not None}


def check_files(
    spark: SparkSession, conversion: Conversion
) -> tuple[dict[str, FileCheck], dict[str, Converted]]:
    """Look at every byte of every local file and of every gzipped one. Out: as of `Conversion.done`.

    Spark skips the rest of a damaged gzip file in silence; these tell of it.
    """
    remote = [file for file in conversion.files if file.gzipped and not file.path.startswith("file:/")]
    remotely = check_gzip_in_spark(spark, remote)
    checks, converted = conversion.done()
    return checks | remotely, converted


def _target(directory: str, number: int) -> str | None:
    local = directory.removeprefix("file:")
    return None if has_scheme(local) else f"{local}/{number}.parquet"


def check_gzip_in_spark(spark: SparkSession, files: Sequence[LogFile]) -> dict[str, FileCheck]:
    """The same for file systems that only Spark can read; a file must fit in a Python worker's memory."""
    checkable = [file.path for file in files if file.size <= _REMOTE_CHECK_BYTES_MAX]
    if not checkable:
        return {}
    contents = reader(spark).format("binaryFile").load(checkable).select("path", "content")
    return dict(contents.rdd.map(lambda row: (row.path, inflate([bytes(row.content)]))).collect())


def write_text(spark: SparkSession, path: str, text: str) -> None:
    """Write a file: locally by rename, elsewhere through Hadoop."""
    if not has_scheme(path):
        draft = Path(f"{path}.part")
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
        return
    _write(spark, path, text.encode())


def move_local(paths: Sequence[str], directory: str) -> None:
    """Make files of this machine a table in ``directory``, as Spark writes one, instead of what is there."""
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    for number, path in enumerate(paths):
        os.rename(path, f"{directory}/part-{number:05}.parquet")
    Path(directory, "_SUCCESS").touch()


def write_rows(spark: SparkSession, directory: str, rows: pa.Table) -> None:
    """Make a table of few rows in ``directory``, as Spark writes one, instead of what is there."""
    written = pa.BufferOutputStream()
    # Spark writes times so.
    pyarrow.parquet.write_table(rows, written, store_schema=False, use_deprecated_int96_timestamps=True)
    content, name = written.getvalue(), "part-00000.parquet"
    local = directory.removeprefix("file:")
    if not has_scheme(local):
        shutil.rmtree(local, ignore_errors=True)
        os.makedirs(local)
        Path(local, name).write_bytes(content)
        Path(local, "_SUCCESS").touch()
        return
    delete(spark, directory)
    _write(spark, f"{directory}/{name}", content.to_pybytes())
    _write(spark, f"{directory}/_SUCCESS", b"")


def _write(spark: SparkSession, path: str, content: bytes) -> None:
    """Write a file through Hadoop."""
    hadoop_path, file_system = _hadoop(spark, path)
    stream = file_system.create(hadoop_path, True)
    stream.write(bytearray(content))
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
    except (PySparkException, Py4JError) as error:
        raise ReportError(f"{log_dir}: {first_line(error)}") from error


def _hadoop(spark: SparkSession, path: str) -> tuple[Any, Any]:
    jvm: Any = spark.sparkContext._jvm
    configuration: Any = spark.sparkContext._jsc
    hadoop_path = jvm.org.apache.hadoop.fs.Path(
        path if has_scheme(path) else f"file:{os.path.realpath(path)}"
    )
    return hadoop_path, hadoop_path.getFileSystem(configuration.hadoopConfiguration())
