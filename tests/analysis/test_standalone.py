"""The job on a Spark cluster of several processes, by spark-submit from the archive."""

from __future__ import annotations

import gzip
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from controller.analysis.job import run_report
from controller.analysis.tables import TABLES
from tests.support.analysis.make_log import write_cluster
from tests.support.analysis.records import record, text
from tests.support.analysis.standalone import WORKERS, Standalone, standalone

pytestmark = [pytest.mark.slow, pytest.mark.spark_long]

Tables = dict[str, list[str]]
WAIT_S = 300


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a cluster's life, with a gzip file that is damaged, a line that is torn and one that is no record."""
    folder = tmp_path_factory.mktemp("logs")
    write_cluster(folder, partitions=40, rounds=2)
    good = text(record("topic", topic="t", to="created"))
    packed = gzip.compress(f"{good}\n".encode() * 1000)
    (folder / "broker-1" / "state-change.20260114T101500.000000Z.jsonl.gz").write_bytes(packed[:-9])
    with (folder / "broker-2" / "state-change.jsonl").open("a") as log:
        log.write(f"nonsense\n{good[:-9]}\n")
    return folder


@pytest.fixture(scope="module")
def local(spark: SparkSession, logs: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tables, str]:
    """The tables and the page of a report that one process made."""
    out = tmp_path_factory.mktemp("local")
    run_report([logs], out, progress=lambda _line: None)
    return read(spark, out), page(out)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("standalone")) as running:
        yield running


def read(spark: SparkSession, out: Path) -> Tables:
    """The rows of each table, in no order."""
    found = {spec.name: spark.read.parquet(f"{out}/tables/{spec.name}").collect() for spec in TABLES}
    return {name: sorted(map(str, rows)) for name, rows in found.items()}


def page(out: Path) -> str:
    return (out / "report.html").read_text(encoding="utf-8")


def hear(submitted: subprocess.Popen[str], word: str) -> None:
    """Wait for a line of progress."""
    assert submitted.stdout is not None
    heard = []
    for line in submitted.stdout:
        heard.append(line)
        if word in line:
            return
    pytest.fail("".join(heard[-50:]))


def test_executors_and_a_worker_are_lost_and_the_report_is_the_local_one(
    cluster: Standalone, spark: SparkSession, logs: Path, local: tuple[Tables, str], tmp_path: Path
) -> None:
    """One executor while lines are parsed, the other, with its worker, when parts of the tables are with it.

    By a file system that only Spark reads: files are listed, checked, staged and written through Hadoop. The workers'
    Python has our archive and nothing else.
    """
    first, second = WORKERS
    mounts = "spark.hadoop.fs.viewfs.mounttable.shared.link"
    folders = {"in": logs, "out": tmp_path}
    settings = [f"--conf={mounts}./{name}={folder.as_uri()}" for name, folder in folders.items()]
    with ExitStack() as stack:
        shared = ["viewfs://shared/in", "--out", "viewfs://shared/out/report"]
        submitted = stack.enter_context(cluster.submit(shared, settings))
        stack.callback(submitted.kill)
        hear(submitted, "reading")
        while not (cluster.executors(first) and cluster.executors(second)):
            assert submitted.poll() is None
            time.sleep(0.02)
        assert cluster.kill(first, executors_only=True)
        hear(submitted, "unreadable")
        assert cluster.kill(second)
        rest, _ = submitted.communicate(timeout=WAIT_S)
        assert submitted.returncode == 0, rest[-5000:]
    assert "failovers  3" in rest
    tables, shown = local
    expected = {name: [row.replace(str(logs), shared[0]) for row in rows] for name, rows in tables.items()}
    assert read(spark, tmp_path / "report") == {name: sorted(rows) for name, rows in expected.items()}
    assert page(tmp_path / "report") == shown.replace(str(logs), shared[0])
