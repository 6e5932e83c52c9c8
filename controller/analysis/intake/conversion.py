"""A log file as records in columns, by Arrow's JSON reader: a tenth of the work of Spark's. Imports no Spark.

Lines that need a second look are odd, with few usual ones beside them at most: they are kept as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import pyarrow.parquet

from controller.analysis.intake.arrow_condensing import condense, is_one_of, merge
from controller.analysis.intake.fields import COMMIT_KINDS, EVENT_KINDS, NEEDED_BY, fields_kept
from controller.analysis.intake.screening import Block, FileCheck, check_local_file
from proto.statelog.schema import (
    BROKER_ID,
    INT_FIELDS,
    LIST_FIELDS,
    SCHEMA_VERSION,
    STRING_FIELDS,
    STRINGS_REQUIRED,
    TEXT_CHARS_MAX,
    TS_END,
    TS_MIN,
)

_TIME = pa.timestamp("us", "UTC")
_LINE = pa.schema(
    [
        *((name, pa.string()) for name in STRING_FIELDS),
        *((field.name, pa.int64()) for field in INT_FIELDS),
        *((name, pa.list_(pa.int64())) for name in LIST_FIELDS),
    ]
)
_TS_MIN_US, _TS_END_US = (
    pa.scalar(f"{day}T00:00:00Z").cast(_TIME).cast(pa.int64()).as_py() for day in (TS_MIN, TS_END)
)
_T = pa.scalar("T")
#: Rows that Parquet keeps together: many share a dictionary, and few enough to be kept in memory.
_GROUP_ROWS = 1 << 17
#: Lines that are not usual are found one by one, if they are so few in a file that it spares Spark the good ones beside
#: them. Of more, it would take longer to find which of so many lines are not usual than to judge all.
_DOUBTS_ALONE, _FEW_LINES = 100, 16


class Converted(NamedTuple):
    """A file's lines in Parquet. ``name``: what the rows call the file. ``records``: its odd lines and those records
    that are looked at one by one, decisions; ``events``: those that happen seldom, None if there are none;
    ``condensed``: `arrow_condensing.condense` of all records, None if there are none; ``odd``: how many lines are."""

    name: str
    records: str
    events: str | None
    condensed: pa.Table | None
    odd: int


def convert(path: str, name: str, target: str | None, complete: bool) -> tuple[FileCheck, Converted | None]:
    """Look at a file of this machine, and write its lines to ``target``.

    ``name``: what the rows call the file. ``target``: a Parquet file to be made, None for none. ``complete``: all
    records with all fields. Out: the check; what ``target`` has, None if it is not made (the file cannot be read, a sum
    would be too large): ``file``, ``line`` (its number, from 0), ``odd`` (the bytes of a line that `reading.classify`
    must judge, null of a usual record), ``ts`` and `fields_kept`.

    Raises OSError if ``target`` cannot be written.
    """
    if target is None:
        return check_local_file(path), None
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        rows = _Rows(name, target, complete, stack)
        check = check_local_file(path, rows.take)
        made = rows.done() if check.readable else None
    if made is None:
        for written in (target, events_beside(target)):
            Path(written).unlink(missing_ok=True)
    return check, made


def events_beside(target: str) -> str:
    return f"{target.removesuffix('.parquet')}-events.parquet"


class _Rows:
    """Writes the lines of one file, a block at a time."""

    def __init__(self, name: str, target: str, complete: bool, stack: ExitStack) -> None:
        self._name, self._complete, self._stack = name, complete, stack
        self._kept = fields_kept(complete)
        kept = [(name, _LINE.field(name).type) for name in self._kept]
        places = [("file", pa.string()), ("line", pa.int64()), ("odd", pa.binary())]
        self._schema = pa.schema([*places, ("ts", _TIME), *kept])
        self._records, self._events = _Part(target), _Part(events_beside(target))
        self._condensed: list[pa.Table] = []
        self._lines = self._odd = self._doubts = 0

    def take(self, block: Block) -> None:
        odd = dict(block.odd)
        for lines, numbers in self._usual_parts(block.records, block.numbers):
            if isinstance(lines, pa.Table):
                kinds = lines["kind"].combine_chunks().dictionary_encode()
                columns = self._narrow(lines, kinds)
                self._condensed.append(condense(columns, kinds))
                self._keep(columns, kinds, numbers)
            else:
                odd.update(zip(numbers, lines.split(b"\n"), strict=False))
        if odd:
            texts = pa.array(odd.values(), pa.binary())
            self._write(self._records, self._table({"odd": texts}, list(odd)))
        self._lines += block.lines
        self._odd += len(odd)

    def _usual_parts(
        self, lines: bytes, numbers: Sequence[int]
    ) -> Iterator[tuple[pa.Table | bytes, Sequence[int]]]:
        """The lines in parts: records if all of the part are usual, else its few lines."""
        if not numbers:
            return
        records = _usual_records(lines)
        if records is not None and records.num_rows == len(numbers):
            yield records, numbers
        elif len(numbers) <= (1 if self._doubts < _DOUBTS_ALONE else _FEW_LINES):
            self._doubts += 1
            yield lines, numbers
        else:
            half, cut = len(numbers) // 2, 0
            for _ in range(half):
                cut = lines.index(b"\n", cut) + 1
            yield from self._usual_parts(lines[:cut], numbers[:half])
            yield from self._usual_parts(lines[cut:], numbers[half:])

    def done(self) -> Converted | None:
        """Write what is kept. Out: None if its condensed records cannot be told."""
        condensed = merge(self._condensed) if self._condensed else None
        if condensed is None and self._condensed:
            return None
        self._flush(self._records)
        if self._events.rows:
            self._flush(self._events)
        events = None if self._events.writer is None else self._events.target
        return Converted(self._name, self._records.target, events, condensed, self._odd)

    def _narrow(self, records: pa.Table, kinds: pa.DictionaryArray) -> dict[str, Any]:
        """The columns that are kept, each empty in records whose kind does not need it, as in `reading._narrow`."""
        columns = {"ts": records["ts"]}
        for name, of in self._kept.items():
            value = records[name]
            columns[name] = value if of is None else pc.if_else(is_one_of(kinds, of), value, pa.NULL)
        return columns

    def _keep(self, columns: dict[str, Any], kinds: pa.DictionaryArray, numbers: Sequence[int]) -> None:
        whole = self._table(columns, numbers)
        events = is_one_of(kinds, EVENT_KINDS)
        others = pc.invert(events) if self._complete else is_one_of(kinds, COMMIT_KINDS)
        for part, of in ((self._records, others), (self._events, events)):
            count = pc.sum(of).as_py() or 0
            if count:
                self._write(part, whole if count == len(kinds) else whole.filter(of))

    def _table(self, columns: dict[str, Any], numbers: Sequence[int]) -> pa.Table:
        count = len(numbers)
        places = {
            "file": pa.repeat(self._name, count),
            "line": pc.add(pa.array(numbers, pa.int64()), self._lines),
        }
        given = columns | places
        full = [given[one.name] if one.name in given else pa.nulls(count, one.type) for one in self._schema]
        return pa.table(full, schema=self._schema)

    def _write(self, part: _Part, rows: pa.Table) -> None:
        part.tables.append(rows)
        part.rows += rows.num_rows
        if part.rows >= _GROUP_ROWS:
            self._flush(part)

    def _flush(self, part: _Part) -> None:
        if part.writer is None:
            writer = pyarrow.parquet.ParquetWriter(part.target, self._schema, store_schema=False)
            part.writer = self._stack.enter_context(writer)
        if part.tables:
            part.writer.write_table(pa.concat_tables(part.tables))
        part.tables, part.rows = [], 0


@dataclass
class _Part:
    """A Parquet file, with rows that are still to be written."""

    target: str
    writer: Any = None
    tables: list[pa.Table] = field(default_factory=list)
    rows: int = 0


def _usual_records(lines: bytes) -> pa.Table | None:
    """The records, with ``ts`` as a time, if each is as the schema says: `reading._usual`, of all of them at once."""
    try:
        read = pyarrow.json.read_json(
            pa.BufferReader(lines),
            pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            pyarrow.json.ParseOptions(explicit_schema=_LINE, unexpected_field_behavior="ignore"),
        )
        texts, times = read["ts"], read["ts"].cast(_TIME)
    except pa.ArrowInvalid:
        return None
    required = [*STRINGS_REQUIRED, *(field.name for field in INT_FIELDS if field.required)]
    if any(read[name].null_count for name in required):
        return None
    kinds = read["kind"].combine_chunks().dictionary_encode()
    of_leaders = read.select(["from", "to"]).filter(is_one_of(kinds, ("leader",)))
    usual = (
        _all(pc.equal(pc.utf8_slice_codeunits(texts, 10, 11), _T))
        and _all(pc.or_(pc.ends_with(texts, "Z"), pc.ends_with(texts, "+00:00")))
        and _within(times.cast(pa.int64()), _TS_MIN_US, _TS_END_US - 1)
        and set(read["role"].unique().to_pylist()) <= {"controller", "broker"}
        and pc.max(read["schema"]).as_py() <= SCHEMA_VERSION
        and all(_within(read[field.name], field.low, field.high) for field in INT_FIELDS)
        and all(
            (pc.max(pc.binary_length(read[name])).as_py() or 0) <= size
            for name, size in TEXT_CHARS_MAX.items()
        )
        and not any(
            _any(pc.and_(read[name].is_null(), is_one_of(kinds, of))) for name, of in NEEDED_BY.items()
        )
        and all(
            _all(pc.match_substring_regex(of_leaders[name], BROKER_ID)) for name in of_leaders.column_names
        )
    )
    return read.set_column(read.schema.get_field_index("ts"), "ts", times) if usual else None


def _within(values: Any, low: int, high: int) -> bool:
    """Whether no value is outside; null is in."""
    ends = pc.min_max(values).as_py()
    return ends["min"] is None or (low <= ends["min"] and ends["max"] <= high)


def _all(which: Any) -> bool:
    return pc.all(which, skip_nulls=False, min_count=0).as_py() is True


def _any(which: Any) -> bool:
    return bool(pc.any(which, min_count=0).as_py())
