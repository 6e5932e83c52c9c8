"""The tables of intervals without a leader, by Arrow, from files of this machine: a tenth of the work of Spark's.

What the tables mean is told where Spark makes them from any other input: `leaderless`, `questions.outages`,
`questions.departures`. Tests hold both against the same independent program.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from controller.analysis.leaderless import BEING_CREATED, CREATION, DELETION, OUTAGE
from controller.analysis.questions.outages import ALL, BROKER, CAUSE, HOUR_US, RACK, REPAIRED
from proto.statelog.schema import GONE, INT64_MAX, ONLINE

_TIME = pa.timestamp("us", "UTC")
_TEXTS = ("topic", "cause", "reason", "end_state", "end_cause")
#: The tables that are made.
NAMES = (
    *("leaderless_intervals", "leaderless_by_partition", "partitions", "leaderless_by_cause"),
    *("leaderless_over_time", "outages_by", "outages_by_hour", "caused"),
)
#: Large tables, and for each the name of a small one that has its first `TOP_ROWS`, in the order of `tables.TABLES`.
TOP = {name: f"top_{name}" for name in ("leaderless_intervals", "leaderless_by_partition", "partitions")}
TOP_ROWS = 500
_BY_CAUSE = ("class", "cause", "reason")
_GROUP_ROWS = 1 << 17
#: Sums of 64 bits that are larger have overflown; Spark's `try_sum` tells null then.
_SUM_MAX = float(INT64_MAX)


@dataclass(frozen=True)
class Made:
    """A table that is in Parquet files of this machine."""

    paths: Sequence[str]
    schema: pa.Schema


@dataclass(frozen=True)
class LocalCommits:
    """``files``: pairs of Parquet files (`arrow_commits.write_commits`), each of other partitions. ``ready``: when
    failovers were over, by controller epoch, microseconds since 1970. ``directory``: where tables may be written."""

    files: Sequence[tuple[str, str]]
    ready: Mapping[int, int]
    directory: str


def make(
    commits: LocalCommits, first_us: int, last_us: int, racks: Mapping[int, str], bucket_us: int
) -> dict[str, Made]:
    """Tables by their names, and ``caused`` (`departures.caused`). One pair of files is in memory at a time, but for
    the few columns that tables of few rows need. Raises OSError."""
    written = _Written(commits.directory)
    narrow, distinct = [], []
    for edges, moved in commits.files:
        given = pyarrow.parquet.read_table(edges, read_dictionary=list(_TEXTS), use_threads=False)
        intervals = _intervals(given, commits.ready, last_us)
        by_partition = _by_partition(intervals)
        named = pyarrow.parquet.read_table(moved, use_threads=False)
        partitions = _partitions(named, by_partition, first_us, last_us)
        large = (
            ("leaderless_intervals", intervals, ("duration_us",)),
            ("leaderless_by_partition", by_partition, ("total_us",)),
            ("partitions", partitions, ("leaderless_us", "leader_changes")),
        )
        for name, rows, order in large:
            written.add(name, rows)
            written.add(TOP[name], _top(rows, order))
        distinct.append(
            _grouped(_grouped(intervals, (*_BY_CAUSE, "topic", "partition"), {}), _BY_CAUSE, _COUNTED)
        )
        narrow.append(
            intervals.drop_columns(["topic", "partition", "end_cause", "end_epoch", "leader", "node"])
        )
    all_intervals = pa.concat_tables(narrow).unify_dictionaries().combine_chunks()
    outages = all_intervals.filter(pc.equal(all_intervals["class"], OUTAGE))
    written.add("leaderless_by_cause", _by_cause(all_intervals, pa.concat_tables(distinct)))
    written.add("leaderless_over_time", _over_time(all_intervals, bucket_us))
    written.add("outages_by", _by_dimension(outages, racks))
    written.add("outages_by_hour", _by_hour(outages))
    written.add("caused", _caused(outages))
    return written.made


class _Written:
    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.made: dict[str, Made] = {}
        Path(directory).mkdir(parents=True, exist_ok=True)

    def add(self, name: str, rows: pa.Table) -> None:
        """Rows of a table that may have others."""
        before = self.made.get(name)
        plain = pa.schema(
            [
                (one.name, one.type.value_type if pa.types.is_dictionary(one.type) else one.type)
                for one in rows.schema
            ]
        )
        paths = [] if before is None else before.paths
        path = f"{self._directory}/{name}-{len(paths)}.parquet"
        pyarrow.parquet.write_table(
            rows.cast(plain),
            path,
            row_group_size=_GROUP_ROWS,
            store_schema=False,
            # Spark writes times so, and reads both files as one table.
            use_deprecated_int96_timestamps=True,
        )
        self.made[name] = Made([*paths, path], plain)


def _intervals(edges: pa.Table, ready: Mapping[int, int], last_us: int) -> pa.Table:
    """`leaderless.leaderless_intervals`."""
    edges = edges.combine_chunks()
    at = {name: edges[name].combine_chunks() for name in edges.column_names}
    open_in_log = pc.is_null(at["end_at"])
    epochs = sorted(ready)
    known = at["last_epoch"].dictionary_encode()
    places = [bisect_right(epochs, epoch) for epoch in known.dictionary.to_pylist()]
    later = [ready[epochs[place]] if place < len(epochs) else None for place in places]
    ready_us = pc.if_else(open_in_log, pa.array(later, pa.int64()).take(known.indices), pa.NULL)
    start = pc.subtract(at["ts"].cast(pa.int64()), pc.fill_null(at["silent_us"], 0))
    end = pc.coalesce(at["end_at"].cast(pa.int64()), ready_us, pa.scalar(last_us))
    online, gone = (pc.fill_null(pc.equal(at["end_state"], state), False) for state in (ONLINE, GONE))
    ended_by = pc.case_when(
        pc.make_struct(online, gone, pc.is_valid(at["end_state"]), pc.is_valid(ready_us)),
        *("online", "deleted", "offline", "failover", "nothing"),
    )
    same_event = pc.and_(
        pc.equal(at["end_epoch"], at["controller_epoch"]), pc.equal(at["end_event"], at["event_id"])
    )
    of_deletion = pc.match_substring(at["cause"].cast(pa.string()), "delet", ignore_case=True)
    deleted = pc.or_kleene(pc.and_kleene(gone, same_event), of_deletion)
    return pa.table(
        {
            "topic": at["topic"],
            "partition": at["partition"],
            "class": pc.case_when(
                pc.make_struct(pc.equal(at["state"], BEING_CREATED), pc.fill_null(deleted, False)),
                *(CREATION, DELETION, OUTAGE),
            ),
            "start_ts": start.cast(_TIME),
            "end_ts": end.cast(_TIME),
            "duration_us": pc.max_element_wise(pc.subtract(end, start), 0),
            "ended_by": ended_by,
            "open": pc.equal(ended_by, "nothing"),
            **{name: at[name] for name in ("cause", "reason", "controller_epoch", "event_id", "node")},
            **{name: at[name] for name in ("end_cause", "end_epoch")},
            "leader": pc.if_else(online, at["end_leader"], pa.NULL),
            "lost_leader": pc.if_else(pc.greater_equal(at["leader"], 0), at["leader"], pa.NULL),
            "detection_us": at["silent_us"],
        }
    )


def _top(rows: pa.Table, order: Sequence[str]) -> pa.Table:
    """Of outages, and of the others, the rows that are among the first by these columns, the largest first; with all
    that are equal to the last of them."""
    if "class" not in rows.column_names:
        return _top_of(rows, order)
    is_outage = pc.equal(rows["class"], OUTAGE)
    return pa.concat_tables(
        _top_of(part, order) for part in (rows.filter(is_outage), rows.filter(pc.invert(is_outage)))
    )


def _top_of(rows: pa.Table, order: Sequence[str]) -> pa.Table:
    if rows.num_rows <= TOP_ROWS:
        return rows
    place = pc.sort_indices(rows, sort_keys=[(name, "descending") for name in order])[TOP_ROWS - 1].as_py()
    # Larger in the first column, or equal there and larger in the next.
    least = {name: rows[name][place].as_py() for name in order}
    if None in least.values():
        return rows
    kept = pa.scalar(True)
    for name in reversed(order):
        larger, equal = pc.greater(rows[name], least[name]), pc.equal(rows[name], least[name])
        kept = pc.or_(larger, pc.and_(equal, kept))
    return rows.filter(kept)


def _grouped(
    rows: pa.Table,
    keys: Sequence[str],
    sums: Mapping[str, tuple[Any, str]],
    percents: Mapping[str, int] | None = None,
) -> pa.Table:
    """Rows by equal ``keys``: by name the column and what is done with it, or which percentile of ``duration_us`` is
    asked for: exactly, of rank ceil(percent / 100 * rows)."""
    coded = {name: _coded(rows[name]) for name in keys if not pa.types.is_integer(rows[name].type)}
    for name, codes in coded.items():
        rows = rows.set_column(rows.column_names.index(name), name, codes.indices)
    if percents:
        keyed = [(name, "ascending") for name in (*keys, "duration_us")]
        needed = rows.select(list(dict.fromkeys([*keys, "duration_us", *_columns(sums)])))
        rows = needed.take(pc.sort_indices(needed, sort_keys=keyed)).combine_chunks()
    asked = [*sums.values(), ([], "count_all")]
    grouped = rows.group_by(list(keys), use_threads=False).aggregate(asked)
    grouped = grouped.rename_columns([*keys, *sums, "of"]).combine_chunks()
    if percents:
        # In the order of the rows.
        grouped = grouped.sort_by([(name, "ascending") for name in keys]).combine_chunks()
    for name, codes in coded.items():
        values = codes.dictionary.take(grouped[name].combine_chunks())
        grouped = grouped.set_column(grouped.column_names.index(name), name, values)
    for name, percent in (percents or {}).items():
        of = grouped["of"]
        begin = pc.subtract(pc.cumulative_sum(of), of)
        rank = pc.divide(pc.add(pc.multiply(of, percent), 99), 100)
        value = rows["duration_us"].take(pc.subtract(pc.add(begin, rank), 1))
        grouped = grouped.append_column(name, value)
    return grouped


def _coded(values: pa.ChunkedArray) -> pa.DictionaryArray:
    """Texts as numbers, which sort and compare faster."""
    if not pa.types.is_dictionary(values.type):
        values = values.dictionary_encode()
    return values.unify_dictionaries().combine_chunks()


def _columns(sums: Mapping[str, tuple[Any, str]]) -> list[str]:
    return [column for column, _ in sums.values() if column]


_COUNTED: dict[str, tuple[Any, str]] = {"partitions": ([], "count_all")}
#: The columns that `leaderless._measures` makes with Spark, each by its name.
_MEASURES: dict[str, tuple[Any, str]] = {
    "intervals": ([], "count_all"),
    "total_us": ("duration_us", "sum"),
    "rough_us": ("rough_us", "sum"),
    "longest_us": ("duration_us", "max"),
    "open": ("opened", "sum"),
}
_P50 = {"p50_us": 50}


def _measurable(rows: pa.Table) -> pa.Table:
    """The intervals, with those columns that `_MEASURES` takes and that they lack."""
    rough = rows["duration_us"].cast(pa.float64())
    return rows.append_column("rough_us", rough).append_column("opened", rows["open"].cast(pa.int64()))


def _total_or_null(rows: pa.Table) -> Any:
    return pc.if_else(pc.less(rows["rough_us"], _SUM_MAX), rows["total_us"], pa.NULL)


def _measured(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    grouped = _grouped(_measurable(rows), keys, _MEASURES, _P50)
    total = _total_or_null(grouped)
    return grouped.set_column(grouped.column_names.index("total_us"), "total_us", total)


def _by_partition(intervals: pa.Table) -> pa.Table:
    keys = ("class", "topic", "partition")
    return _measured(intervals, keys).select([*keys, "intervals", "total_us", "p50_us", "longest_us", "open"])


def _by_cause(intervals: pa.Table, distinct: pa.Table) -> pa.Table:
    measured = _measured(intervals, _BY_CAUSE)
    counts = defaultdict[tuple[Any, ...], int](int)
    for *key, count in zip(*(distinct[name].to_pylist() for name in (*_BY_CAUSE, "partitions")), strict=True):
        counts[tuple(key)] += count
    of_keys = zip(*(measured[name].to_pylist() for name in _BY_CAUSE), strict=True)
    partitions = pa.array([counts[key] for key in of_keys], pa.int64())
    names = [*_BY_CAUSE, "partitions", "intervals", "total_us", "p50_us", "longest_us", "open"]
    return measured.append_column("partitions", partitions).select(names)


def _partitions(moved: pa.Table, by_partition: pa.Table, first_us: int, last_us: int) -> pa.Table:
    """`outages.partitions`."""
    out = by_partition.filter(pc.equal(by_partition["class"], OUTAGE))
    names = {"intervals": "outages", "total_us": "leaderless_us", "longest_us": "longest_us", "open": "left"}
    out = out.select(["topic", "partition", *names]).rename_columns(["topic", "partition", *names.values()])
    out = out.set_column(0, "topic", out["topic"].cast(pa.string()))
    rows = moved.join(out, keys=["topic", "partition"], join_type="left outer", use_threads=False)

    def bound(end: str, event: str, otherwise: int) -> Any:
        is_event = pc.fill_null(pc.equal(rows[event], rows[end]), False)
        return pc.if_else(is_event, rows[end], otherwise)

    since = bound("first_at", "first_created", first_us)
    until = bound("last_at", "last_gone", last_us)
    return pa.table(
        {
            **{name: rows[name] for name in ("topic", "partition", "leader_changes", "isr_changes")},
            **{name: pc.fill_null(rows[name], 0) for name in ("outages", "leaderless_us", "longest_us")},
            "open": pc.greater(pc.fill_null(rows["left"], 0), 0),
            "since_ts": since.cast(_TIME),
            "until_ts": until.cast(_TIME),
            "observed_us": pc.max_element_wise(pc.subtract(until, since), 0),
        }
    )


def _by_dimension(outages: pa.Table, racks: Mapping[int, str]) -> pa.Table:
    """`outages.by_dimension`."""
    brokers = outages["lost_leader"]
    values: dict[str, Callable[[], Any]] = {
        ALL: lambda: pa.repeat(ALL, outages.num_rows),
        CAUSE: lambda: outages["cause"].cast(pa.string()),
        BROKER: lambda: brokers.cast(pa.string()),
    }
    if racks:
        known = pa.array(list(racks), pa.int64())
        names = pa.array([racks[broker] for broker in racks], pa.string())
        values[RACK] = lambda: names.take(pc.index_in(brokers, known))
    detection = pc.if_else(
        pc.is_valid(outages["detection_us"]),
        pc.min_element_wise(outages["detection_us"], outages["duration_us"]),
        pa.NULL,
    )
    rows = _measurable(outages).append_column("detected_us", detection)
    rows = rows.append_column("mended", pc.is_in(outages["ended_by"], pa.array(REPAIRED)))
    return pa.concat_tables(_of_dimension(rows, name, value()) for name, value in values.items())


def _of_dimension(rows: pa.Table, dimension: str, value: Any) -> pa.Table:
    rows = rows.append_column("value", value)
    sums = {**_MEASURES, "detection_us": ("detected_us", "sum"), "detected": ("detected_us", "count")}
    every = _grouped(rows, ("value",), sums)
    mended = _grouped(rows.filter(rows["mended"]), ("value",), _MEASURES, {"p50_us": 50, "p95_us": 95})
    # A join takes no null for equal to another.
    places = {value: place for place, value in enumerate(mended["value"].to_pylist())}
    place = pa.array([places.get(value) for value in every["value"].to_pylist()], pa.int64())
    of_mended = {name: mended[name].take(place) for name in mended.column_names}
    mean = pc.divide(of_mended["rough_us"], of_mended["intervals"].cast(pa.float64()))
    return pa.table(
        {
            "dimension": pa.repeat(dimension, every.num_rows),
            "value": every["value"],
            "outages": every["intervals"],
            "open": every["open"],
            "total_us": _total_or_null(every),
            "detection_us": pc.fill_null(every["detection_us"], 0),
            "detected": every["detected"],
            "repaired": pc.fill_null(of_mended["intervals"], 0),
            "mean_us": pc.round(mean, round_mode="half_towards_infinity").cast(pa.int64()),
            **{name: of_mended[name] for name in ("p50_us", "p95_us")},
            "max_us": of_mended["longest_us"],
        }
    )


def _by_hour(outages: pa.Table) -> pa.Table:
    """`outages.by_hour`."""
    start = outages["start_ts"].cast(pa.int64())
    end = pc.add(start, outages["duration_us"])
    first, last = _floor(start, HOUR_US), _floor(end, HOUR_US)
    longer = pc.greater(last, first).cast(pa.int64())
    following = pc.add(first, 1)
    none = pa.repeat(pa.scalar(0, pa.int64()), outages.num_rows)
    one = pa.repeat(pa.scalar(1, pa.int64()), outages.num_rows)
    in_first = pc.subtract(pc.min_element_wise(end, pc.multiply(following, HOUR_US)), start)
    in_last = pc.multiply(longer, pc.subtract(end, pc.multiply(last, HOUR_US)))
    steps = pa.concat_tables(
        pa.table({"hour": hour, "begun": begun, "part": part, "step": step})
        for hour, begun, part, step in (
            (first, one, in_first, none),
            (following, none, none, longer),
            (last, none, in_last, pc.negate(longer)),
        )
    )
    names = ("begun", "part", "step")
    changes = _grouped(steps, ("hour",), {name: (name, "sum") for name in names}).sort_by("hour").to_pylist()
    hours, running = [], 0
    for number, change in enumerate(changes):
        running += change["step"]
        until = changes[number + 1]["hour"] if running else change["hour"] + 1
        hours += [
            {
                "hour_ts": hour * HOUR_US,
                "begun": change["begun"] if hour == change["hour"] else 0,
                "leaderless_us": running * HOUR_US + (change["part"] if hour == change["hour"] else 0),
            }
            for hour in range(change["hour"], until)
        ]
    schema = pa.schema([("hour_ts", pa.int64()), ("begun", pa.int64()), ("leaderless_us", pa.int64())])
    rows = pa.Table.from_pylist([row for row in hours if row["begun"] or row["leaderless_us"]], schema)
    return rows.set_column(0, "hour_ts", rows["hour_ts"].cast(_TIME))


def _over_time(intervals: pa.Table, bucket_us: int) -> pa.Table:
    """`leaderless.over_time`."""
    start, end = (intervals[name].cast(pa.int64()) for name in ("start_ts", "end_ts"))
    first, last = _floor(start, bucket_us), _floor(pc.max_element_wise(start, end), bucket_us)
    steps = pa.concat_tables(
        pa.table(
            {
                "class": intervals["class"],
                "bucket": bucket,
                "step": pa.repeat(pa.scalar(step, pa.int64()), intervals.num_rows),
            }
        )
        for bucket, step in ((first, 1), (pc.add(last, 1), -1))
    )
    changes = _grouped(steps, ("class", "bucket"), {"step": ("step", "sum")})
    changes = changes.sort_by([("class", "ascending"), ("bucket", "ascending")])
    # By the end of a class all of its intervals have ended.
    return pa.table(
        {
            "class": changes["class"],
            "bucket_ts": pc.multiply(changes["bucket"], bucket_us).cast(_TIME),
            "intervals": pc.cumulative_sum(changes["step"]),
        }
    )


def _caused(outages: pa.Table) -> pa.Table:
    """`departures.caused`."""
    rows = _measurable(outages.filter(pc.is_valid(outages["lost_leader"])))
    grouped = _grouped(rows, ("lost_leader", "controller_epoch", "event_id"), _MEASURES)
    return pa.table(
        {
            "broker": grouped["lost_leader"].cast(pa.int32()),
            "controller_epoch": grouped["controller_epoch"],
            "event_id": grouped["event_id"],
            "partitions": grouped["intervals"],
            "leaderless_us": _total_or_null(grouped),
        }
    )


def _floor(moments_us: Any, width_us: int) -> Any:
    """Times from 1970 on."""
    return pc.divide(moments_us, width_us)
