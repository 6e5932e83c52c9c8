"""Files converted by Arrow: with all that their lines say, in bounded memory, whatever is in them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.compute as pc
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.analysis.errors import ReportError
from controller.analysis.intake import conversion, screening
from controller.analysis.intake.conversion import convert
from controller.analysis.intake.fields import COMMIT_KINDS, EVENT_KINDS, fields_kept
from controller.analysis.intake.screening import FileCheck
from controller.analysis.job import _reading_early
from controller.analysis.lines import time_of
from proto.statelog.schema import INT_FIELDS, KINDS, LIST_FIELDS, TEXT_CHARS_MAX
from tests.support.analysis.verdict_logs import GOOD, JUDGEMENTS, changed


def converted(
    directory: Path, content: bytes, *, complete: bool = True
) -> tuple[FileCheck, list[dict[str, Any]]]:
    log, target = directory / "state-change.jsonl", directory / "out" / "0.parquet"
    log.write_bytes(content)
    check, made = convert(str(log), "file:///a", str(target), complete)
    assert made is not None
    parts = [pyarrow.parquet.read_table(path) for path in (made.records, made.events) if path is not None]
    assert set(pc.unique(parts[-1]["kind"]).to_pylist()) <= set(EVENT_KINDS) or made.events is None
    rows = pyarrow.concat_tables(parts).to_pylist()
    assert made.odd == len(odd(rows))
    counted = 0 if made.condensed is None else pc.sum(made.condensed["lines"]).as_py()
    assert made.odd + counted == check.lines
    return check, rows


def odd(rows: list[dict[str, Any]]) -> list[bytes]:
    return [row["odd"] for row in rows if row["odd"] is not None]


@pytest.mark.parametrize("number", range(len(JUDGEMENTS)))
def test_a_line_is_a_record_only_if_it_is_usual(number: int, tmp_path: Path) -> None:
    """Of the others all bytes are kept, in their place."""
    line, status, _ = JUDGEMENTS[number]
    raw = line.encode() if isinstance(line, str) else line
    good = GOOD.encode()
    for content in ((good, raw, good, good), (raw, good, good), (good, raw, raw, good, raw)):
        check, rows = converted(tmp_path, b"\n".join(content) + b"\n")
        assert check.lines == len(content)
        assert sorted(row["line"] for row in rows) == list(range(len(content)))
        kept = {row["line"]: row["odd"] for row in rows if row["odd"] is not None}
        assert kept in ({}, {at: one for at, one in enumerate(content) if one != good})
        assert kept or status == "ok"


@pytest.mark.parametrize(("alone", "more"), [(100, 0), (1, conversion._FEW_LINES - 1)])
def test_few_lines_are_odd_for_a_bad_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: int, more: int
) -> None:
    """So that a damaged log costs little more than a whole one: of the first ones none, of later ones few."""
    monkeypatch.setattr(conversion, "_DOUBTS_ALONE", alone)
    lines = [changed(partition=number).encode() for number in range(5_000)]
    wrong = [changed(node="x").encode(), changed(controller_epoch="x").encode()]
    bad = {700: wrong[0], 3000: wrong[1], 4000: b"garbage", 4999: b""}
    for number, line in bad.items():
        lines[number] = line
    _, rows = converted(tmp_path, b"\n".join(lines) + b"\n")
    assert set(bad.values()) <= set(odd(rows))
    assert len(bad) + min(more, 1) <= len(odd(rows)) <= len(bad) + more
    read = [row["partition"] for row in rows if row["odd"] is None]
    assert len(read) == len(set(read)) == len(lines) - len(odd(rows))


def test_lines_of_our_writers_are_usual(tmp_path: Path) -> None:
    for line in (GOOD, changed(extra=1), changed(kind="unheard-of"), changed(isr=[1, 2], leader=-1)):
        assert odd(converted(tmp_path, f"{GOOD}\n{line}\n".encode())[1]) == [], line
    assert odd(converted(tmp_path, f"{GOOD}\n{GOOD[:-9]}".encode())[1]) == [GOOD[:-9].encode()]
    assert converted(tmp_path, b"") == (FileCheck(0), [])
    absent = FileCheck(0, "unreadable: No such file or directory", readable=False)
    assert convert(str(tmp_path / "absent"), "", str(tmp_path / "x"), True) == (absent, None)
    assert convert(str(tmp_path / "state-change.jsonl"), "", None, True)[1] is None


def test_no_record_goes_over_two_lines(tmp_path: Path) -> None:
    """Also if as many records as lines are read."""
    head, two = GOOD[:-1], GOOD + GOOD
    lines = [head + ',"x":{"y":{}', "}}", two]
    _, rows = converted(tmp_path, "\n".join([*lines, GOOD]).encode())
    assert {line.encode() for line in lines} <= set(odd(rows))


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(TEXT_CHARS_MAX, _TEXTS),
    **{field.name: st.integers(field.low, field.high) for field in INT_FIELDS},
    **{name: st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3) for name in LIST_FIELDS},
    "kind": st.sampled_from(sorted({*KINDS, "unheard-of"} - {"leader"})),
    "role": st.sampled_from(["controller", "broker"]),
    "schema": st.just(1),
    "ts": st.integers(0, 100 * 365 * 86_400_000_000 - 1).map(
        lambda us: (datetime(2000, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)).isoformat()
    ),
}
_REQUIRED = {"ts", "role", "cause", "kind", *(field.name for field in INT_FIELDS if field.required)}


@st.composite
def _records(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(_VALUES["kind"])
    needed = _REQUIRED | set(KINDS.get(kind, ()))
    names = [name for name in _VALUES if name in needed or draw(st.booleans())]
    drawn = {name: kind if name == "kind" else draw(_VALUES[name]) for name in names}
    return {"schema": drawn.pop("schema"), **drawn}


@given(records=st.lists(_records(), min_size=1, max_size=8), torn=st.booleans(), ascii_only=st.booleans())
def test_a_converted_line_says_what_it_said(
    tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, Any]], torn: bool, ascii_only: bool
) -> None:
    lines = [json.dumps(one, ensure_ascii=ascii_only, separators=(",", ":")) for one in records]
    if torn:
        lines.insert(len(lines) // 2, '{"schema":1,"ts":"2026')
    content = "\n".join(lines).encode()
    for complete in (True, False):
        check, rows = converted(tmp_path_factory.mktemp("log"), content, complete=complete)
        assert check == FileCheck(len(content), None, len(lines))
        by_line = {row["line"]: row for row in rows}
        kept = fields_kept(complete)
        for number, line in enumerate(lines):
            whole = line.endswith("}")
            said = json.loads(line) if whole else {}
            if whole and not complete and said["kind"] not in {*COMMIT_KINDS, *EVENT_KINDS}:
                assert number not in by_line
                continue
            row = by_line.pop(number)
            assert row["odd"] == (None if whole else line.encode())
            assert (row["ts"] is None) == (not whole)
            if whole:
                at = row["ts"].replace(tzinfo=None)
                assert time_of(f"{at.isoformat()}Z") == time_of(said["ts"])
            expected = {
                name: said.get(name) if whole and (kinds is None or said["kind"] in kinds) else None
                for name, kinds in kept.items()
            }
            assert {name: row[name] for name in kept} == expected
        assert not by_line


def test_lists_in_lists_do_not_end_the_process(tmp_path: Path) -> None:
    for depth in (100, 10_000, 8_000_000):
        line = changed(reason="X").replace('"X"', "[" * depth + "]" * depth)
        assert line.encode() in odd(converted(tmp_path, f"{GOOD}\n{line}\n".encode())[1])
        foreign = changed(foreign="X").replace('"X"', "[" * depth + "]" * depth)
        assert odd(converted(tmp_path, f"{GOOD}\n{foreign}\n".encode())[1]) == []


def test_blocks_are_written_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screening, "_CHUNK_BYTES", 1000)
    monkeypatch.setattr(conversion, "_GROUP_ROWS", 10)
    lines = [changed(partition=number) for number in range(200)]
    check, rows = converted(tmp_path, "\n".join(lines).encode())
    assert check.lines == 200
    assert [(row["line"], row["partition"]) for row in rows] == [(number, number) for number in range(200)]
    groups = pyarrow.parquet.ParquetFile(tmp_path / "out" / "0.parquet").metadata
    assert max(groups.row_group(number).num_rows for number in range(groups.num_row_groups)) < 30


def test_a_full_disk_is_no_unreadable_file(tmp_path: Path) -> None:
    log = tmp_path / "state-change.jsonl"
    log.write_text(GOOD)
    with pytest.raises(OSError):
        convert(str(log), "", "/dev/full", True)


def test_a_file_that_cannot_be_read_to_its_end_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what was converted of it either: the report does not count a part of a file."""
    log, target = tmp_path / "state-change.jsonl", tmp_path / "out" / "0.parquet"
    log.write_text(f"{GOOD}\n{changed(kind='failover')}\n" * 50)
    monkeypatch.setattr(conversion, "_GROUP_ROWS", 1)
    chunks = screening._chunks

    def half(path: str) -> Iterator[bytes]:
        yield from chunks(path)
        assert any(target.parent.iterdir()), "some of it was written"
        raise screening._ReadError("Input/output error")

    monkeypatch.setattr(screening, "_CHUNK_BYTES", 1 << 10)
    monkeypatch.setattr(screening, "_chunks", half)
    failed = FileCheck(0, "unreadable: Input/output error", readable=False)
    assert convert(str(log), "", str(target), True) == (failed, None)
    assert list(target.parent.iterdir()) == []


def test_what_was_converted_early_goes_with_a_report_that_fails(tmp_path: Path) -> None:
    (tmp_path / "state-change.jsonl").write_text(f"{GOOD}\n")
    staging = tmp_path / "out" / "_staging"

    def failing() -> None:
        with _reading_early([tmp_path], str(tmp_path / "out")) as begun:
            assert begun is not None
            staging.mkdir(parents=True, exist_ok=True)
            raise ReportError("Spark failed")

    with pytest.raises(ReportError):
        failing()
    assert not staging.exists()
