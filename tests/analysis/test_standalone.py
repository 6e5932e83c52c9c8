"""The job on a Spark cluster of several processes, by spark-submit from the archive."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.analysis.conftest import Report
from tests.support.analysis.s3 import fetched_jars, s3
from tests.support.analysis.standalone import WORKERS, Standalone, standalone

pytestmark = pytest.mark.slow

WAIT_S = 600


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Standalone]:
    folder = tmp_path / "standalone"
    folder.mkdir()
    with standalone(folder) as running:
        yield running


def hear(submitted: subprocess.Popen[str], word: str) -> None:
    """Wait for a line of progress."""
    assert submitted.stdout is not None
    heard = []
    for line in submitted.stdout:
        heard.append(line)
        if word in line:
            return
    pytest.fail("".join(heard[-50:]))


def report_while_executors_are_lost(
    cluster: Standalone, arguments: Sequence[str], properties: Mapping[str, str]
) -> None:
    """One executor is killed while lines are parsed, the other, with its worker, when it has parts of the tables."""
    first, second = WORKERS
    with ExitStack() as stack:
        settings = [f"--conf={name}={value}" for name, value in properties.items()]
        submitted = stack.enter_context(cluster.submit(arguments, settings))
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


@pytest.mark.spark_long
def test_executors_and_a_worker_are_lost_and_the_report_is_the_local_one(
    cluster: Standalone, spark: SparkSession, damaged_logs: Path, local_report: Report, tmp_path: Path
) -> None:
    """By a file system that only Spark reads: files are listed, checked, staged and written through Hadoop. The
    workers' Python has our archive and nothing else."""
    mounts = "spark.hadoop.fs.viewfs.mounttable.shared.link"
    properties = {f"{mounts}./in": damaged_logs.as_uri(), f"{mounts}./out": tmp_path.as_uri()}
    arguments = ["viewfs://shared/in", "--out", "viewfs://shared/out/report"]
    report_while_executors_are_lost(cluster, arguments, properties)
    assert Report.read(spark, tmp_path / "report") == local_report.of(str(damaged_logs), arguments[0])


@pytest.mark.s3_long
@pytest.mark.timeout(1500)
def test_the_same_on_s3(
    cluster: Standalone, spark: SparkSession, damaged_logs: Path, local_report: Report, tmp_path: Path
) -> None:
    jars = f"{fetched_jars()}/*"
    with s3(tmp_path) as bucket:
        bucket.put(damaged_logs, "logs")
        properties = {f"spark.hadoop.{name}": value for name, value in bucket.properties.items()}
        properties |= {f"spark.{role}.extraClassPath": jars for role in ("driver", "executor")}
        arguments = [f"{bucket.url}/logs", "--out", f"{bucket.url}/report"]
        report_while_executors_are_lost(cluster, arguments, properties)
        bucket.get("report/", tmp_path)
    assert Report.read(spark, tmp_path / "report") == local_report.of(str(damaged_logs), arguments[0])
