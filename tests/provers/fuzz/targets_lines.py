"""The state-change log: its lines and files as ``pctl history`` reads them, and a writer that finds them.

A line is a record, or BadLine says in one printable line which field is wrong; records can be filtered, put into words
and printed. A file that ends in the midst of a line swallows nothing of what is written next.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from random import Random
from typing import Any

from controller.analysis import lines
from controller.analysis.lines import BadLine
from controller.analysis.local_files import LogFile
from controller.cli.common import record_format
from controller.cli.common.output import _cell, print_rows
from controller.runtime.observe.history_filter import Filter, brokers_of
from proto.statelog.writer import FILE_NAME, StateLogWriter, envelope, format_ts
from tests.provers.fuzz.harness import Outcome, Target, UnclearError, require_line
from tests.provers.fuzz.mutation import chooser, choosing, chosen, mutate_bytes, mutate_json
from tests.provers.fuzz.targets_log import scratch
from tests.support.analysis.records import ZERO_US, record, text

PARTITION: dict[str, Any] = {"topic": "t", "partition": 0}
RECORDS = (
    record("partition", **PARTITION, old="NewPartition", to="OnlinePartition"),
    record("leader", **PARTITION, old="1", to="2", leader_epoch=3, isr=[1, 2], reason="broker failure"),
    record("isr", **PARTITION, old="[1,2]", to="[2]", isr=[2], leader=2, leader_epoch=3, partition_epoch=4),
    record("replica", **PARTITION, replica=1, old="OnlineReplica", to="OfflineReplica"),
    record("push", replica=1, to="LeaderAndIsr", count=1),
    record("ack", replica=1, to="LeaderAndIsr", count=1, duration_us=5, error="NONE"),
    record("controller", old="standby", to="active", reason="elected"),
    record("reject", error="CONFLICT", reason="bad version", **PARTITION),
    record("log", to="dropped", count=7),
    record("failover", to="election", count=1, duration_us=100),
)
_WANTED = (
    Filter(topic="t", partition=0),
    Filter(brokers=frozenset({1, 2})),
    Filter(kinds=frozenset({"leader", "isr"})),
)


def _require_readable(found: Sequence[tuple[int, lines.Record]]) -> None:
    """Whatever a person or a filter asks of records."""
    rows = []
    for ts_us, one in found:
        assert lines.time_of(format_ts(ts_us)) == ts_us
        brokers_of(one)
        for wanted in _WANTED:
            wanted.passes(one)
        row = record_format.record_row(one)
        rows.append(row)
        if not all(_cell(value).isprintable() for value in row.values()):
            raise UnclearError(f"not one printable line: {row}")
        if not (line := record_format.record_line(one)).isprintable():
            raise UnclearError(f"not one printable line: {line!r}")
    if len(rows) < 2:
        return
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with redirect_stdout(printed):
        print_rows(rows, record_format.COLUMNS, "table")
    printed.seek(0)
    shown = printed.read().split("\n")
    if len(shown) > len(rows) + 2 or not all(line.isprintable() for line in shown):
        raise UnclearError(f"not one printable line for each record: {shown!r}")


def _check_line(body: bytes) -> Outcome:
    try:
        found = lines._decode(body)
    except ValueError as error:
        require_line(str(error))
        return Outcome.REFUSED
    _require_readable([found])
    return Outcome.VALID


def _read(path: Path) -> tuple[list[tuple[int, lines.Record]], list[BadLine]]:
    bad: list[BadLine] = []
    file = LogFile(path.as_uri(), path.stat().st_size)
    return list(lines.read([file], bad.append)), bad


def _check_file(body: bytes, gzipped: bool) -> Outcome:
    path = scratch() / (FILE_NAME + ".gz" * gzipped)
    path.write_bytes(body)
    found, bad = _read(path)
    for line in bad:
        require_line(str(line), str(path))
    _require_readable(found)
    return Outcome.REFUSED if bad else Outcome.VALID


_WRITTEN = {"kind": "log", "to": "written"}


def _check_writer(body: bytes) -> Outcome:
    """What was there stays as it was; what is written is read."""
    directory = scratch() / "written"
    directory.mkdir(exist_ok=True)
    path = directory / FILE_NAME
    path.write_bytes(body)
    before, bad = _read(path)
    # What its thread does first; the thread itself would only cost time here.
    StateLogWriter._end_torn_line(path)
    with path.open("ab") as file:
        file.write(json.dumps({**envelope("broker", 1, ZERO_US, 1, 1, "Fuzz"), **_WRITTEN}).encode() + b"\n")
    after, bad_after = _read(path)
    # A torn line that is whole but for its end counts from now on.
    assert after[: len(before)] == before
    assert after[-1][1]["to"] == "written"
    assert len(after) + len(bad_after) == len(before) + len(bad) + 1
    path.unlink()
    return Outcome.REFUSED if bad else Outcome.VALID


def _lines(*records: dict[str, object]) -> bytes:
    return b"".join(text(one).encode() + b"\n" for one in records)


def _check(data: bytes) -> Outcome:
    index, body = chosen(data, 4)
    match index:
        case 0:
            return _check_line(body)
        case 3:
            return _check_writer(body)
    return _check_file(body, gzipped=index == 2)


def _mutate_lines(data: bytes, rng: Random) -> bytes:
    found = data.split(b"\n")
    at = rng.randrange(len(found))
    found[at] = mutate_json(found[at], rng)
    return b"\n".join(found)


def _mutate_gzip(data: bytes, rng: Random) -> bytes:
    if rng.randrange(2):
        return mutate_bytes(data, rng)
    try:
        return gzip.compress(_mutate_lines(gzip.decompress(data), rng), 1)
    except (OSError, EOFError, ValueError, zlib.error):
        return mutate_bytes(data, rng)


TARGETS = (
    Target(
        "state-log",
        _check,
        [
            *(choosing(0, json.dumps(one).encode()) for one in RECORDS),
            choosing(1, _lines(*RECORDS)),
            choosing(2, gzip.compress(_lines(*RECORDS), 1)),
            choosing(3, _lines(*RECORDS[:3])),
        ],
        chooser([mutate_json, _mutate_lines, _mutate_gzip, _mutate_lines]),
        weight=3,
        quick=150,
    ),
)
