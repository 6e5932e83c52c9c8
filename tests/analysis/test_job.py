"""The whole job: logs in, Parquet tables and one page out."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from controller.analysis import job, tables
from controller.analysis.columns import human_us
from controller.analysis.errors import ReportError
from controller.analysis.intake.files import Conversion
from controller.analysis.intake.reading import read_lines
from controller.analysis.job import _stage, read_input, run_report, write_tables
from controller.analysis.local_files import LogFile, output
from controller.analysis.questions.asked import Asked
from controller.analysis.summary import BROKERS_MAX, ReportSummary, collect_findings
from controller.analysis.travel.job import run_travel
from controller.analysis.travel.moments import parse_moment
from controller.errors import ControllerError
from tests.support.analysis.make_log import write_cluster
from tests.support.analysis.records import record, text

pytestmark = pytest.mark.slow

EVIL = "<script>alert(1)</script>"
EVIL_REASON = "</script><img src=x onerror=alert(2)>\" onload='alert(3)' {{ 7 * 7 }}"
TABLES = {spec.name for spec in tables.TABLES}


def evil_log(directory: Path) -> None:
    """One partition without a leader for ever, in a log of which half is unreadable."""
    directory.mkdir(parents=True)
    where = {"topic": EVIL, "partition": 3, "reason": EVIL_REASON, "cause": EVIL}
    lines = [
        record("partition", 1, old="OnlinePartition", to="OfflinePartition", **where),
        record("leader", 2, old="1", to="2", **where),
        record("reject", 3, error=EVIL, reason=EVIL_REASON),
        record("log", 4, to="dropped", count=5),
    ]
    bad = [f"not JSON {EVIL_REASON}", text({**lines[0], "schema": 2}), text(lines[0])[:50]]
    (directory / "state-change.jsonl").write_text("\n".join([*map(text, lines), *bad]))
    packed = gzip.compress(b"\n" * 100_000)
    (directory / "state-change.20260114T101500.000000Z.jsonl.gz").write_bytes(packed[:12])


@pytest.mark.long
def test_figures_are_of_lines_and_of_all_brokers(spark: SparkSession, tmp_path: Path) -> None:
    """Also of brokers beyond those that the page names, and of decisions that share a row of their table."""
    logs = tmp_path / "logs"
    logs.mkdir()
    where = {"topic": "t", "old": "-1"}
    lines = [
        record("leader", 1, to=str(broker), partition=broker, **where)
        for broker in range(1, BROKERS_MAX + 3)
        for _ in range(2 if broker <= BROKERS_MAX else 1)
    ]
    lines.append(record("controller", 10, to="active", controller_epoch=2, node=2))
    lines += [record("leader", at, to="1", partition=1, **where) for at in (11, 12, 13)]
    (logs / "state-change.jsonl").write_text("\n".join(map(text, lines)))
    source = read_input(spark, [logs], f"file:{tmp_path}/staging", lambda _: None)
    found = collect_findings(
        write_tables(spark, source, f"file:{tmp_path}/tables", lambda _: None), 100 * 1_000_000
    )
    assert found.figures["superseded"] == 3
    moves: Counter[str] = Counter()
    for row in found.rows["leader_moves"]:
        moves[row["broker"]] += row["gained"]
    assert moves.pop("others") == 2
    assert moves.pop("1") == 5
    assert set(moves.values()) == {2}


@dataclass(frozen=True)
class Life:
    """A report of a cluster's life: where it is, what it said, and how many lines the writers wrote, by node."""

    out: Path
    summary: ReportSummary
    progress: list[str]
    written: dict[tuple[str, int], int]


@pytest.fixture(scope="module")
def life(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Life:
    """Of logs that are named twice and one node's that are there twice, in place of an earlier report."""
    folder = tmp_path_factory.mktemp("life")
    logs, out, progress = folder / "logs", folder / "out", list[str]()
    cluster = write_cluster(logs, partitions=300, rounds=2)
    shutil.copytree(logs / "controller-1", folder / "copy" / "of" / "controller-1")
    for name in TABLES:
        (out / "tables" / name).mkdir(parents=True)
        (out / "tables" / name / "part-earlier.parquet").write_bytes(b"rows of other logs")
    (out / "report.html").write_text("earlier " * 1_000_000)
    asked = Asked(slo=99.95, racks={1: "a", 2: "b"})
    summary = run_report([logs, folder / "copy", logs], out, progress=progress.append, asked=asked)
    written = {node: writer.written for node, writer in cluster.writers.items()}
    return Life(out, summary, progress, written)


def test_a_clusters_life_becomes_tables_and_a_page(spark: SparkSession, life: Life) -> None:
    summary = life.summary
    assert summary.lines == sum(life.written.values()) + summary.copies
    assert summary.copies == life.written["controller", 1]
    assert (summary.failovers, summary.unread, summary.damaged_files, summary.rejects) == (3, 0, 0, 2)
    assert (summary.outages, summary.still_leaderless) == (225, 75)
    assert (summary.two_masters, summary.superseded) == (0, 0)
    assert summary.longest_partition is not None
    assert summary.longest_partition.startswith("orders-")
    assert life.progress[:2] == ["starting Spark", "reading 7 files, 1.0 MB"]
    longest = f"{human_us(summary.longest_us)} and still open: {summary.longest_partition}"
    assert f"leaderless 225 outages, longest {longest} (BrokerChange)" in summary.text_lines()
    assert {path.name for path in (life.out / "tables").iterdir()} == TABLES
    assert {path.name for path in life.out.iterdir()} == {"tables", "report.html"}
    found = {name: spark.read.parquet(f"{life.out}/tables/{name}").collect() for name in TABLES}
    assert {(row.role, row.node): row.lines for row in found["input_nodes"]} == life.written


def test_the_page_answers_questions_alone_in_any_light_and_stays_small(life: Life) -> None:
    """More partitions than the page shows; whatever the page names is in it. Nothing is left of an earlier report."""
    assert not any((life.out / "tables" / name / "part-earlier.parquet").exists() for name in TABLES)
    page = (life.out / "report.html").read_text(encoding="utf-8")
    assert len(page.encode()) < 2_000_000
    assert not re.search(
        r"(?i)https?://|[\"'(]//|<(script|link|img|iframe|object|embed|base|form)\b|@import|url\(", page
    )
    assert "default-src 'none'" in page
    assert "@media (prefers-color-scheme: dark)" in page
    targets = set(re.findall(r'href="([^"]*)"', page))
    assert {target for target in targets if not target.startswith("#")} == set()
    assert targets <= {f"#{anchor}" for anchor in re.findall(r' id="([^"]*)"', page)}
    for name in ("availability", "outages_by", "rolling_restarts", "operations", "broker_stability"):
        assert f'<section id="t-{name}">' in page
    partitions = page[page.index('<section id="t-partitions">') :]
    partitions = partitions[: partitions.index("</section>")]
    assert "<summary>rows 26 to 50</summary>" in partitions
    assert "The first 50 of 300 rows; all are in <code>tables/partitions</code>." in partitions
    assert re.search('<summary>[1-9] of <a href="#t-leaderless_intervals">longest leaderless', partitions)
    assert life.summary.topics_below_slo > 0
    assert f"{life.summary.topics_below_slo} topics are below 99.95 %" in page


@dataclass(frozen=True)
class Evil:
    """A report of an evil log: where it is, and what was said to others who wanted to write there meanwhile."""

    out: Path
    summary: ReportSummary
    refused: list[str]


@pytest.fixture(scope="module")
def evil(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Evil:
    folder = tmp_path_factory.mktemp("evil")
    logs, out, refused = folder / "logs", folder / "out", list[str]()
    evil_log(logs)

    def meanwhile(line: str) -> None:
        if line.startswith("tables:"):
            for another in (run_report, partial(run_travel, moments=[parse_moment("1")])):
                with pytest.raises(ReportError) as caught:
                    another([logs], out, progress=lambda _line: None)
                refused.append(str(caught.value))

    return Evil(out, run_report([logs], out, progress=meanwhile), refused)


def test_the_page_stands_alone_and_escapes_what_it_shows(evil: Evil) -> None:
    summary = evil.summary
    assert (summary.torn, summary.malformed, summary.newer_schema, summary.damaged_files) == (1, 1, 1, 1)
    assert (summary.still_leaderless, summary.longest_open, summary.dropped) == (1, True, 5)
    assert summary.longest_partition == f"{EVIL}-3"
    assert len(summary.troubles()) == 4
    page = (evil.out / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert not re.search(
        r"""(src|href)\s*=\s*["']?(?!#)""", page.replace("src=x onerror", "").replace('href="#', "")
    )
    assert "@import" not in page
    assert "url(" not in page
    assert "<img" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "49" not in re.findall(r"onload=.{0,40}", page)[0]
    assert page.count("<svg") >= 4
    assert len(page) < 200_000
    assert "truncated gzip" in page
    for title in (
        "Partitions without a leader over time, and failovers",
        "Time without a leader, by cause",
    ):
        assert f"<h2>{title}</h2>" in page


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda at: None, "no such directory"),
        (lambda at: at.mkdir(), "no state-change log"),
        (
            lambda at: [at.mkdir(), (at / "state-change.jsonl").touch()],
            "1 files, 0 lines, none of them usable",
        ),
        (
            lambda at: [at.mkdir(), (at / "state-change.jsonl").write_text("nonsense\n")],
            "1 files, 1 lines, none of them usable",
        ),
        (
            lambda at: [at.mkdir(), (at / "state-change.1.jsonl.gz").write_bytes(b"no gzip")],
            "none of them usable; .*state-change.1.jsonl.gz: damaged gzip",
        ),
    ],
    ids=["absent", "no log", "empty log", "no record", "only damage"],
)
def test_nothing_to_report_on_is_an_error_that_names_the_directory(
    spark: SparkSession, tmp_path: Path, make: object, message: str
) -> None:
    assert callable(make)
    logs = tmp_path / "of-node-1"
    make(logs)
    with pytest.raises(ControllerError, match=message) as caught:
        run_report([logs], tmp_path / "out", progress=lambda _line: None)
    assert isinstance(caught.value, ReportError)
    assert str(logs) in str(caught.value)
    assert not (tmp_path / "out" / "_staging").exists()


def test_an_unwritable_output_is_a_clear_error(spark: SparkSession, tmp_path: Path) -> None:
    evil_log(tmp_path / "logs")
    (tmp_path / "out").write_text("a file is in the way")
    with pytest.raises(ReportError, match="out: File exists"):
        run_report([tmp_path / "logs"], tmp_path / "out", progress=lambda _line: None)


def test_while_a_report_is_written_another_one_into_its_directory_is_refused(evil: Evil) -> None:
    assert evil.refused == [f"{evil.out}: another report is being written there"] * 2
    with output(evil.out):
        pass  # Nobody writes there any more.


def test_logs_that_are_rotated_before_they_are_opened_are_listed_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, listed = tmp_path / "logs", list[str]()
    logs.mkdir()
    (logs / "state-change.jsonl").touch()

    def rotated(_: object, conversion: Conversion, *__: object, **___: object) -> None:
        (file,) = conversion.files
        listed.append(Path(file.shown).name)
        if len(listed) != 3:
            Path(file.shown).rename(logs / f"state-change.{len(listed)}.jsonl")
        read_lines(spark, conversion.files)

    monkeypatch.setattr(job, "stage", rotated)
    monkeypatch.setattr(job, "size_for", lambda *_: None)

    def read() -> Sequence[LogFile]:
        return _stage(spark, [logs], f"file:{tmp_path}/staging", lambda _: None, False, None)[0]

    assert [Path(file.shown).name for file in read()] == ["state-change.2.jsonl"]
    with pytest.raises(AnalysisException, match="PATH_NOT_FOUND"):
        read()
    assert len(listed) == 6


def test_durations_read_well() -> None:
    given = (0, 999, 58_900, 1_234_567, 119_000_000, 125_000_000, 7_300_000_000, 10**13, -2_000_000)
    expected = "0 µs,999 µs,58.9 ms,1.23 s,119 s,2.08 min,2.03 h,116 days,−2 s"
    assert ",".join(map(human_us, given)) == expected


def run(tmp_path: Path, cache: Path, *command: str) -> subprocess.CompletedProcess[str]:
    workdir = tmp_path / "cwd"
    workdir.mkdir()
    unset = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "SPARK_ENV_LOADED")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {"PYSPARK_PYTHON": sys.executable, "XDG_CACHE_HOME": str(cache)}
    # Where Java has its temporary files by itself, which TMPDIR does not change, may be no room.
    environment |= {"JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={tmp_path / 'nowhere'}"}
    temporary = tmp_path / "temporary files"
    temporary.mkdir()
    environment |= {"TMPDIR": str(temporary)}
    done = subprocess.run(
        command, cwd=workdir, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert list(temporary.iterdir()) == []
    return done


@pytest.mark.parametrize(
    ("cache", "archives"),
    [
        pytest.param("no archives", [], marks=pytest.mark.long),
        pytest.param("cache", [".jsa"], marks=pytest.mark.spark_long),
    ],
)
def test_alone_the_job_is_quiet_and_leaves_no_litter(cache: str, archives: list[str], tmp_path: Path) -> None:
    """With an archive of Spark's classes, and in a path with a space, where there is none."""
    write_cluster(tmp_path / "logs", partitions=8, rounds=1)
    command = (
        sys.executable,
        "-m",
        "controller.cli.pctl.main",
        "report",
        str(tmp_path / "logs"),
        "--master",
        "local[2]",
    )
    done = run(tmp_path, tmp_path / cache, *command, "--out", "there")
    assert done.returncode == 0, done.stderr[-3000:]
    first_words = {"starting", "reading", "tables:", "writing", "stage"}
    unexpected = [line for line in done.stderr.splitlines() if line.split()[0] not in first_words]
    assert [line for line in unexpected if "lines" not in line] == []
    assert len(unexpected) == 2
    assert sorted(path.name for path in (tmp_path / "cwd").iterdir()) == ["there"]
    assert sorted(path.name for path in (tmp_path / "cwd" / "there").iterdir()) == [
        "report.html",
        "spark.log",
        "tables",
    ]
    made = [path.suffix for path in (tmp_path / cache / "partition-controller").glob("spark-*")]
    assert made == archives
    failed = subprocess.run(
        [*command[:4], str(tmp_path / "nowhere")], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (failed.returncode, failed.stderr) == (1, f"pctl: {tmp_path / 'nowhere'}: no such directory\n")


def test_spark_is_no_part_of_the_group_that_a_terminal_or_timeout_ends(spark: SparkSession) -> None:
    """Its end in the midst of our work would be an error."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    assert os.getpgid(gateway.proc.pid) != os.getpgrp()


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("verb", [("report", "--out=out"), ("lake", "update", "--lake=lake")])
def test_a_report_that_is_ended_says_so_and_leaves_no_files(
    number: signal.Signals, verb: tuple[str, ...], tmp_path: Path
) -> None:
    """In the midst of its work, by a signal to its group, as from a terminal or `timeout`."""
    write_cluster(tmp_path / "logs", partitions=8, rounds=1)
    (tmp_path / "scratch").mkdir()
    program = "import signal; from controller.cli.pctl.main import main; "
    # A test's shell may have it ignored.
    program += "signal.signal(signal.SIGINT, signal.default_int_handler); main()"
    command = (sys.executable, "-c", program, *verb, "--master=local[1]", "logs")
    own = os.environ | {"TMPDIR": str(tmp_path / "scratch"), "XDG_CACHE_HOME": str(tmp_path / "no archives")}
    with subprocess.Popen(
        command, cwd=tmp_path, env=own, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as job:
        assert job.stderr is not None
        said = [line for line, _ in zip(job.stderr, range(3 if verb[0] == "report" else 1), strict=False)]
        os.killpg(job.pid, number)
        said += job.stderr
    assert (job.returncode, "Traceback" in "".join(said), said[-1]) == (1, False, "Aborted!\n"), said
    assert list((tmp_path / "scratch").iterdir()) == []
    assert not (tmp_path / "out" / "_staging").exists()
