"""What a report tells machines and terminals: the summary as JSON, exit codes, progress. Without Spark."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from controller.analysis import summary as summary_module
from controller.analysis.columns import percent
from controller.analysis.errors import ReportError
from controller.analysis.local_files import LogFile, check_local
from controller.analysis.machine_summary import failure_data, summary_data
from controller.analysis.progress import Meter, Phase, Reading, entered, estimated_lines, stepped
from controller.analysis.progress_bar import pace
from controller.analysis.questions import asked
from controller.analysis.questions.asked import Asked, read_racks
from controller.analysis.summary import Problem, ReportSummary
from controller.cli.pctl.main import main as pctl

DOCUMENT = Path(__file__).parents[2] / "docs" / "report.md"
MOMENT = datetime(2026, 1, 14, 10, 0, 1, 250_000, tzinfo=UTC)


def summary(**figures: Any) -> ReportSummary:
    zero: Any = {field.name: 0 for field in fields(ReportSummary)}
    times = {
        "first_ts": MOMENT,
        "last_ts": MOMENT,
        "page": "report.html",
        "tables_dir": "tables",
        "slo": None,
    }
    return ReportSummary(**{**zero, **times, **figures})


def keys_of(data: dict[str, Any], prefix: str = "") -> set[str]:
    found = set()
    for key, value in data.items():
        inner = value[0] if isinstance(value, list) and value else value
        found |= keys_of(inner, f"{prefix}{key}.") if isinstance(inner, dict) else {f"{prefix}{key}"}
    return found


def test_every_key_of_the_summary_is_documented() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    section = text[text.index("## For programs") : text.index("## Tables")]
    listed = set(re.findall(r"^\| `([\w.]+)` \|", section, re.MULTILINE))
    assert keys_of(summary_data(summary(dropped=1), 0)) == listed
    assert set(failure_data("why", 1)) <= listed
    for problem in Problem:
        assert f"`{problem.value}`" in section


@pytest.mark.parametrize(
    ("slo", "availability", "below"),
    [(99.9, 99.8, True), (99.9, 99.9, False), (None, 1.0, False), (99.9, None, False), (None, None, False)],
)
def test_below_an_slo_is_who_has_one_and_was_seen(
    slo: float | None, availability: float | None, below: bool
) -> None:
    row = {"slo": slo, "availability": availability}
    assert summary_module._is_below(row) is below


def test_durations_are_seconds_and_absent_ones_null() -> None:
    data = summary_data(summary(outages=2, outage_us=2_500_000, longest_us=2_000_000, mean_repair_us=None), 3)
    assert json.loads(json.dumps(data)) == data
    assert data["exit_status"] == 3
    assert data["first_ts"] == "2026-01-14T10:00:01.250000Z"
    assert (data["outages"]["seconds"], data["outages"]["longest_seconds"]) == (2.5, 2.0)
    assert data["outages"]["mean_repair_seconds"] is None
    assert summary_data(summary(), 0)["outages"]["longest_seconds"] is None


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ("two_masters", Problem.TWO_MASTERS),
        ("still_leaderless", Problem.LEADERLESS),
        ("superseded", Problem.SUPERSEDED),
        ("topics_below_slo", Problem.BELOW_SLO),
        ("flapping_brokers", Problem.FLAPPING),
        ("dropped", Problem.DROPPED),
        ("damaged_files", Problem.DAMAGED_FILES),
        ("torn", Problem.UNREAD),
    ],
)
def test_each_problem_is_named_with_its_count(field: str, problem: Problem) -> None:
    (found,) = summary(slo=99.95, **{field: 2}).problems()
    assert (found.problem, found.count) == (problem, 2)
    assert found.text.startswith("2 ")
    assert summary().problems() == []


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "—"),
        (100.0, "100 %"),
        (99.95, "99.95 %"),
        (99.99996, "99.9999 %"),
        (0.0, "0 %"),
        (1234.5, "1,234.5 %"),
    ],
)
def test_percentages_are_not_rounded_up(value: float | None, shown: str) -> None:
    assert percent(value) == shown


@pytest.mark.parametrize("slo", [0.0, -1.0, 100.5, float("nan"), float("inf")])
def test_an_slo_is_a_percentage(slo: float) -> None:
    with pytest.raises(ReportError, match="must be above 0 and at most 100"):
        Asked(slo=slo)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON: is nested too deeply"),
        (b"{}", "must be a list"),
        (b'[{"broker":1},5]', "item 1: broker: must be a number"),
        (b'[{"broker":true}]', "item 0: broker: must be a number"),
        (b'[{"broker":1,"rack":["a"]}]', "item 0: rack: must be a text"),
    ],
)
def test_a_bad_list_of_brokers_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "brokers.json"
    path.write_bytes(content)
    with pytest.raises(ReportError, match=f"brokers.json: {message}"):
        read_racks(path)


def test_racks_are_read_from_a_list_of_brokers(tmp_path: Path) -> None:
    path = tmp_path / "brokers.json"
    path.write_text('[{"broker":1,"rack":"a","state":"online"},{"broker":2,"rack":null},{"broker":3}]')
    assert read_racks(path) == {1: "a"}
    with pytest.raises(ReportError, match="No such file"):
        read_racks(tmp_path / "none")


def test_a_list_of_brokers_without_an_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device or a pipe, whose size is 0."""
    monkeypatch.setattr(asked, "_LIST_MAX", 4 << 20)
    with pytest.raises(ReportError, match="/dev/zero: 4 MB at most"):
        read_racks(Path("/dev/zero"))


def test_how_much_there_is_to_read_is_known_where_all_is_on_this_machine(tmp_path: Path) -> None:
    below = tmp_path / "node" / "old"
    below.mkdir(parents=True)
    with pytest.raises(ReportError, match="no state-change log"):
        check_local([tmp_path])
    for name, size in (("state-change.jsonl", 7), ("state-change.1.jsonl", 5), ("other.jsonl", 90)):
        (below / name).write_bytes(bytes(size))
    (below / "round").symlink_to(tmp_path)
    assert check_local([tmp_path]) == 12
    assert check_local([tmp_path, "s3a://bucket/logs"]) is None
    for wrong in ([], [str(tmp_path / "none")], ["hdfs://host/logs", str(tmp_path / "none")]):
        with pytest.raises(ReportError):
            check_local(wrong)


def test_a_meter_goes_from_nothing_to_all_and_never_back() -> None:
    seen: list[Reading] = []
    now = [0.0]
    said: list[str] = []
    meter = Meter(said.append, seen.append, lambda: now[0])
    meter("a line")
    entered(meter, Phase.SPARK)
    for phase in Phase:
        now[0] += 10
        entered(meter, phase, 1000.0 if phase is Phase.READ else None)
        now[0] += 5
        meter.tasks(1, 4)
        meter.tasks(3, 4)
        meter.tasks(1, 8)
    stepped(meter, 1, 1)
    done = [reading.done for reading in seen]
    assert said == ["a line"]
    assert done == sorted(done)
    assert done[0] == 0
    assert done[-1] == pytest.approx(1.0)
    assert seen[-1].left_s == pytest.approx(0.0)
    # Of the pace since the beginning: the table of 15 s ago says nothing of what Spark's start took.
    tables = next(n for n, reading in enumerate(seen) if reading.phase is Phase.TABLES)
    assert seen[tables].left_s == pytest.approx(40.0 * (1 - done[tables]) / done[tables])
    read = [reading.lines_s for reading in seen if reading.phase is Phase.READ]
    assert read == [None, 50.0, 150.0, 150.0]
    assert seen[0].left_s is None


def test_steps_of_a_phase_count_with_the_tasks_of_the_next() -> None:
    seen: list[Reading] = []
    meter = Meter(lambda _line: None, seen.append, lambda: 1.0)
    meter.enter(Phase.TABLES)
    start = seen[-1].done
    meter.step(1, 4)
    quarter = seen[-1].done - start
    meter.tasks(1, 2)
    assert seen[-1].done - start == pytest.approx(1.5 * quarter)
    meter.tasks(5, 4)
    meter.step(4, 4)
    meter.step(2, 4)
    assert seen[-1].done - start == pytest.approx(4 * quarter)


def test_plain_progress_is_not_measured() -> None:
    said: list[str] = []
    entered(said.append, Phase.READ, 5)
    stepped(said.append, 1, 2)
    assert said == []


def test_lines_are_estimated_from_the_first_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "state-change.jsonl"
    path.write_bytes(b"x" * 99 + b"\n" + b"y" * 99 + b"\n")
    files = [LogFile("hdfs://somewhere/a", 800), LogFile("file:/gone", 5), LogFile(f"file:{path}", 200)]
    assert estimated_lines(files) == pytest.approx(10.05)
    assert estimated_lines(files[:2]) is None
    unfinished = tmp_path / "state-change.jsonl.part"
    unfinished.write_bytes(b"z" * 100)
    assert estimated_lines([LogFile(f"file:{unfinished}", 100), files[-1]]) == pytest.approx(3.0)


def test_pace_is_told_as_far_as_it_is_known() -> None:
    assert pace(Reading(Phase.SPARK, 0.0, None, None)) == ""
    assert pace(Reading(Phase.READ, 0.5, 125.4, 22_600.4)) == "22,600 lines/s, about 2:05 left"


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--slo", "101"], 2, "SLO of 101 percent: must be above 0 and at most 100"),
        (["--slo", "nan"], 2, "SLO of nan percent: must be above 0 and at most 100"),
        (["--brokers", "none.json"], 2, "none.json: No such file or directory"),
        ([], 1, "logs: no such directory"),
    ],
)
def test_without_a_report_programs_get_the_reason_too(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    status: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(pctl, ["report", "logs", "--json", *words])
    assert done.exit_code == status
    assert json.loads(done.stdout) == {"schema": 1, "exit_status": status, "error": message}
    assert message in done.stderr
