"""The notebook example of docs/report.md runs, and its tables have the columns that are documented."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from controller.analysis import open_logs
from tests.support.analysis.make_log import write_cluster
from tests.support.paths import DOCS, ROOT

DOCUMENT = (DOCS / "report.md").read_text(encoding="utf-8")


def documented(table: str) -> list[str]:
    """Names of the columns of a table in the section on time travel."""
    (row,) = re.findall(rf"^\| `{table}` \| .+? \| (.+) \|$", DOCUMENT, re.MULTILINE)
    return re.findall(r"`(\w+)`", re.sub(r"\([^()]*\)", "", row))


def test_the_command_line_starts_without_spark_and_spark_submit_with_little() -> None:
    """A cluster's Python has what docs/report.md says, and no more."""
    heavy = {"pyspark", "grpc", "google", "kazoo", "structlog", "rich"}
    modules = "controller.analysis, controller.cli.pctl.analysis.submitted"
    code = f"import sys, {modules}; print({heavy} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("set()\n", "")


def test_what_is_not_offered_is_an_attribute_error() -> None:
    import controller.analysis

    with pytest.raises(AttributeError, match="nothing"):
        controller.analysis.nothing  # noqa: B018


@pytest.mark.slow
def test_the_example_runs_and_the_columns_are_those_documented(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cluster(tmp_path / "state-logs", partitions=4, rounds=1)
    (example,) = re.findall(r"```python\n(.+?)```", DOCUMENT, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "report.md", "exec"), {})
    with open_logs("state-logs") as logs:
        assert [*logs.state_at(1).columns, "moment"] == documented("state_partitions")
        assert [*logs.brokers_at(1).columns, "moment"] == documented("state_brokers")
        assert logs.differences(1, 2).columns == documented("state_differences")
        assert logs.broker_differences(1, 2).columns == documented("state_broker_differences")
        assert logs.clock_skew().columns == documented("clock_skew")
        assert {"ts", "isr", "replicas", "leader_epoch", "file", "line"} <= set(logs.records.columns)
        for name in ("leaderless_intervals", "failovers", "pushes"):
            assert getattr(logs, name)().columns == logs.table(name).columns
