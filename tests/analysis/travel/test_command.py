"""``pctl report --at`` and ``--diff`` as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from controller.analysis.errors import ReportError
from controller.analysis.local_files import output
from controller.cli.pctl.main import main
from tests.support.analysis.travel_logs import Life


def report(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ("--at", "yesterday"),
            2,
            "'yesterday': must be a time like 2026-01-14T10:15:00Z, an age like 10m, a controller epoch",
        ),
        (("--at", "7:x"), 2, "an age like 10m, a controller epoch like 7, or an event of one like 7:12"),
        (("--at", "9" * 20), 2, "must be a time like"),
        (("--diff", "1", ""), 2, "'': must be a time like"),
        (("--diff", "1"), 2, "requires 2 arguments"),
        (("--at", "1", "--diff", "1", "2"), 2, "--at and --diff: give one of them"),
        (("--at", "1"), 1, "no such directory"),
    ],
)
def test_bad_moments_are_refused_before_spark_is_started(
    tmp_path: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    out = tmp_path / "out"
    found = report("report", str(tmp_path / "nowhere"), "--out", str(out), *arguments)
    assert not out.exists()
    assert found.exit_code == code
    assert message in " ".join(found.stderr.split())


def update_lake(logs: str, lake: Path) -> Result:
    return report("lake", "update", logs, "--lake", str(lake))


@pytest.mark.parametrize(
    "verb",
    [
        ("report", "logs", "--out={}"),
        ("report", "--lake={}"),
        ("lake", "update", "logs", "--lake={}"),
        ("lake", "follow", "logs", "--lake={}"),
        ("man", "{}"),
    ],
)
def test_directories_that_spark_cannot_be_told_are_refused(verb: tuple[str, ...]) -> None:
    for name, message in (("\udcff", r"'\udcff': must be UTF-8"), ("", "must name a file or a directory")):
        found = report(*(word.format(name) for word in verb))
        assert (found.exit_code, message in found.stderr) == (2, True), found.output


@pytest.mark.parametrize("more", [(), ("--at=1",)])
def test_two_reports_are_not_written_to_one_place(more: tuple[str, ...], tmp_path: Path) -> None:
    """They would take each other's files away."""
    Life(tmp_path / "logs", 1)
    out = tmp_path / "out"
    with output(out):
        refused = report("report", str(tmp_path / "logs"), f"--out={out}", *more)
    assert (refused.exit_code, refused.stderr) == (1, f"pctl: {out}: another report is being written there\n")
    assert list(out.iterdir()) == []
    with output(out):
        pass


def test_the_report_goes_to_the_file_system_that_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ``s3a://bucket/x`` a local path would make ``s3a:/bucket/x``."""
    asked: list[object] = []

    def refused(_: object, out_dir: object, **__: object) -> None:
        asked.append(out_dir)
        raise ReportError("enough")

    monkeypatch.setattr("controller.analysis.job.run_report", refused)
    monkeypatch.setattr(
        "controller.analysis.travel.job.run_travel", lambda *args, **_: refused(None, args[1])
    )
    for more in ([], ["--at=1"]):
        report("report", str(tmp_path), "--out", "s3a://bucket/x", *more)
    assert asked == ["s3a://bucket/x"] * 2


@pytest.mark.parametrize("style", ["json", "yaml", "tsv"])
def test_programs_get_what_was_found_as_data(
    style: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "controller.analysis.travel.job.run_travel", lambda *_, **__: {"later": {"at": "7:1"}}
    )
    told = report("-o", style, "report", str(tmp_path), "--out", str(tmp_path / "out"), "--at=7:1")
    assert (told.exit_code, "7:1" in told.stdout) == (0, True), told.output


@pytest.mark.long
@pytest.mark.slow
def test_a_state_and_differences_are_printed_and_written(spark: SparkSession, tmp_path: Path) -> None:
    life = Life(tmp_path / "logs", 9)
    logs, out = str(tmp_path / "logs"), str(tmp_path / "out")
    epoch, event, _, state = life.states[-1]
    told = report("report", logs, "--out", out, "--at", f"{epoch}:{event}")
    assert told.exit_code == 0, told.stderr
    lines = dict(line.split("  ", 1) for line in told.stdout.splitlines() if "  " in line)
    shown = {name: value.strip() for name, value in lines.items()}
    assert shown["controller"] == f"{state.controller}, epoch {epoch}, active"
    assert shown["live brokers"] == str(sorted(state.live))
    assert shown["partitions"].endswith(f"{len(state.partitions)} expected")
    assert [path.name for path in Path(out).iterdir()] == ["tables"]
    tables = {path.name for path in Path(out, "tables").iterdir()}
    assert tables == {"state_partitions", "state_brokers", "clock_skew"}

    early, late = life.states[3], life.states[-1]
    moments = [f"{one[0]}:{one[1]}" for one in (early, late)]
    told = report("-o", "json", "report", logs, "--out", out, "--diff", *moments)
    assert told.exit_code == 0, told.stderr
    summary = json.loads(told.stdout)
    assert (summary["former"]["at"], summary["later"]["at"]) == tuple(moments)
    assert update_lake(logs, tmp_path / "lake").exit_code == 0
    from_lake = ("--lake", str(tmp_path / "lake"), "--out", str(tmp_path / "of-lake"))
    again = report("report", *from_lake, "--json", "--diff", *moments)
    assert again.exit_code == 0, again.stderr
    assert json.loads(again.stdout) | {"tables": summary["tables"]} == summary
    for name in ("state_partitions", "state_differences", "state_brokers", "clock_skew"):
        frames = [spark.read.parquet(f"{at}/tables/{name}") for at in (out, tmp_path / "of-lake")]
        first, second = (sorted(map(str, frame.collect())) for frame in frames)
        assert first == second != []
    written = spark.read.parquet(f"{out}/tables/state_differences")
    assert written.count() == len(summary["partitions"]) == sum(summary["differences"].values())
    leaders = {
        (row["topic"], row["partition"]): (row["before"], row["after"])
        for row in summary["partitions"]
        if row["field"] == "leader" and row["topic"] != "old"
    }
    both = early[3].partitions.keys() & late[3].partitions.keys()
    of = [{key: one[3].partitions[key][0] for key in both if key[0] != "old"} for one in (early, late)]
    assert leaders == {key: (str(of[0][key]), str(of[1][key])) for key in of[0] if of[0][key] != of[1][key]}
    table = report("report", *from_lake, "--diff", *moments)
    assert "WHAT" in table.stdout
    assert "clocks" not in table.stdout

    missing = report("report", *from_lake, "--at", "99")
    assert (missing.exit_code, "controller epoch 99: not in the logs" in missing.stderr) == (1, True)
