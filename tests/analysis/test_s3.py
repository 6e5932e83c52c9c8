"""Logs and reports on S3, by a local Spark; on a cluster: `test_standalone`."""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from controller.analysis.lake.delta_log import DeltaLog
from controller.analysis.lake.loading import read_rows
from controller.analysis.lake.storage import LocalStorage
from tests.analysis.conftest import Report
from tests.support.analysis.followed import Node, follow, until
from tests.support.analysis.s3 import Bucket, fetched_jars, s3
from tests.support.runtime.programs import BIN, run_to_end

pytestmark = [pytest.mark.slow, pytest.mark.s3_long]

WAIT_S = 700


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    fetched_jars()
    with s3(tmp_path) as running:
        yield running


@pytest.mark.timeout(1500)
def test_a_report_from_s3_to_s3_is_the_local_one(
    bucket: Bucket, spark: SparkSession, damaged_logs: Path, local_report: Report, tmp_path: Path
) -> None:
    bucket.put(damaged_logs, "logs")
    command = [str(BIN / "pctl"), "report", f"{bucket.url}/logs", "--out", f"{bucket.url}/report", "--json"]
    done = run_to_end(command, tmp_path, bucket.configured(tmp_path / "hadoop"), WAIT_S)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["page"] == f"{bucket.url}/report/report.html"
    assert not bucket.names("report/_staging")
    bucket.get("report/", tmp_path)
    assert Report.read(spark, tmp_path / "report") == local_report.of(str(damaged_logs), f"{bucket.url}/logs")


@pytest.mark.timeout(2400)
def test_a_lake_on_s3_is_made_in_two_updates_and_its_report_is_the_local_one(
    bucket: Bucket, spark: SparkSession, damaged_logs: Path, local_report: Report, tmp_path: Path
) -> None:
    logs, environment = tmp_path / "logs", bucket.configured(tmp_path / "hadoop")
    shutil.copytree(damaged_logs, logs)
    later = logs / "controller-2" / "state-change.jsonl"
    whole = later.read_bytes()
    later.write_bytes(whole[: len(whole) // 2])
    update = [str(BIN / "pctl"), "-o", "json", "lake", "update", str(logs), "--lake", f"{bucket.url}/lake"]
    for content in (whole[: len(whole) // 2], whole):
        later.write_bytes(content)
        done = run_to_end(update, tmp_path, environment, WAIT_S)
        assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["version"] == 2
    command = [str(BIN / "pctl"), "report", "--lake", f"{bucket.url}/lake", "--out", "report"]
    done = run_to_end(command, tmp_path, environment, WAIT_S)
    assert done.returncode == 0, done.stderr
    expected, found = local_report.of(str(damaged_logs), str(logs)), Report.read(spark, tmp_path / "report")
    # What an open log ends with is left for the next update.
    told = {"input_files", "input_problems"}
    assert {k: v for k, v in found.tables.items() if k not in told} == {
        k: v for k, v in expected.tables.items() if k not in told
    }


@pytest.mark.timeout(2400)
def test_a_log_followed_to_s3_is_taken_once_though_the_process_is_killed(
    bucket: Bucket, spark: SparkSession, tmp_path: Path
) -> None:
    """By ``kill -9`` with rows that are not committed, and after a commit; the log is rotated then. What was set aside
    went with the process: the next one reads it from the logs again."""
    node, environment = Node(tmp_path / "logs"), bucket.configured(tmp_path / "hadoop")
    node.write(50)

    before = 0

    def commits() -> int:
        return sum(name.endswith(".json") for name in bucket.names("lake/_delta_log/0"))

    def written() -> bool:
        return bool(bucket.names("lake/_new/"))

    def committed() -> bool:
        return commits() > before

    for reached in (written, committed):
        process = follow(node.directory, f"{bucket.url}/lake", environment)
        until(reached, process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        node.write(20)
        node.rotate()
        node.write(20)
        before = commits()
    process = follow(node.directory, f"{bucket.url}/lake", environment)
    until(committed, process)
    # As by Ctrl-C, which PySpark would take for itself.
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    assert f"lines          {node.written}" in output
    bucket.get("lake/", tmp_path)
    storage = LocalStorage(tmp_path / "lake")
    rows = read_rows(spark, storage, DeltaLog(storage).read().files)
    assert Counter(row.event_id for row in rows.select("event_id").collect()) == node.each_once()


def test_a_bucket_that_is_not_there(bucket: Bucket, tmp_path: Path) -> None:
    command = [str(BIN / "pctl"), "report", "s3a://another/logs", "--out", "report"]
    done = run_to_end(command, tmp_path, bucket.configured(tmp_path / "hadoop"), WAIT_S)
    assert done.returncode == 1
    assert "s3a://another/logs: " in done.stderr.splitlines()[-1]
