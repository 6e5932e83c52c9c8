"""`leaderless.edges` and `outages.moved` of files of this machine: records of controllers' decisions, put in order by
partition with Arrow, which takes a twentieth of the time of Spark's windows.

Partitions are divided into buckets of which one is in memory at a time, so that any number of records will do.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from controller.analysis.intake.arrow_condensing import is_one_of
from controller.analysis.intake.fields import COMMIT_KINDS
from controller.analysis.leaderless import BEING_CREATED, EDGE_COLUMNS, END, LED, LED_STATES, OFFLINE, ORDER
from controller.analysis.questions.outages import MOVED_COLUMNS
from proto.statelog.schema import GONE, NEW

#: Records of which a bucket has about so many.
_BUCKET_ROWS = 4_000_000
_BATCH_ROWS = 1 << 17
#: Few enough that even a small log is read by several tasks.
_GROUP_ROWS = 1 << 16
#: Bits of a key that hold the partition's number (at most INT32_MAX); the others hold the topic's.
_PARTITION_BITS = 31
#: Read as dictionaries: they have few values.
_TEXTS = ("role", "kind", "topic", "from", "to", "cause", "reason", "file")
_NUMBERS = ("line", "node", "controller_epoch", "event_id", "partition", "leader", "silent_us")
#: What only records have that Spark has read.
_MAYBE = ("block", "copy")
_TIME = pa.timestamp("us", "UTC")
#: `leaderless.ORDER` within a partition.
_ORDER = ("key", *ORDER)
_ARROW_TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": _TIME,
}
_EDGES, _MOVED = (
    pa.schema([(name, _ARROW_TYPES[kind]) for name, kind in columns.items()])
    for columns in (EDGE_COLUMNS, MOVED_COLUMNS)
)

_NO_RECORDS = pa.RecordBatch.from_pylist(
    [],
    pa.schema(
        [
            *((name, pa.dictionary(pa.int32(), pa.string())) for name in _TEXTS),
            *((name, pa.int64()) for name in _NUMBERS),
            ("ts", _TIME),
        ]
    ),
)


def write_commits(names: Sequence[str], parts: Sequence[str], directory: str) -> list[tuple[str, str]]:
    """``names``: of all log files, in order. ``parts``: Parquet files of records.

    Out: pairs of Parquet files, of `leaderless.edges` and `outages.moved`, each of other partitions. Raises OSError."""
    count = sum(pyarrow.parquet.read_metadata(file).num_rows for file in parts)
    Path(directory).mkdir(parents=True, exist_ok=True)
    written = []
    with ExitStack() as stack:
        buckets = _Buckets(names, directory, 1 << (count // _BUCKET_ROWS).bit_length(), stack)
        with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
            list(pool.map(buckets.take, parts))
        for number, commits in enumerate(buckets.each()):
            moves = commits.filter(pc.is_valid(commits["state"]))
            targets = f"{directory}/edges-{number}.parquet", f"{directory}/moved-{number}.parquet"
            tables = buckets.named(_edges(moves), _EDGES), buckets.named(_moved(commits), _MOVED)
            for target, table in zip(targets, tables, strict=True):
                pyarrow.parquet.write_table(table, target, row_group_size=_GROUP_ROWS, store_schema=False)
            written.append(targets)
    return written


class _Buckets:
    """Records of commits by bucket; all of a partition are in one. If there are several, they are on disk."""

    def __init__(self, names: Sequence[str], directory: str, count: int, stack: ExitStack) -> None:
        self._names = pa.array(names, pa.string())
        self._count, self._directory, self._stack = count, directory, stack
        self._lock = threading.Lock()
        self._topics: dict[str, int] = {}
        self._kept: list[pa.Table] = []
        self._writers: dict[int, Any] = {}

    def take(self, path: str) -> None:
        """The records of a Parquet file, but copies."""
        columns = [*_TEXTS, *_NUMBERS, "ts", *_MAYBE]
        with pyarrow.parquet.ParquetFile(
            path, read_dictionary=list(_TEXTS), coerce_int96_timestamp_unit="us"
        ) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=columns, use_threads=False):
                self._keep(self._commits(batch))

    def _keep(self, commits: pa.Table) -> None:
        if not commits.num_rows:
            return
        with self._lock:
            if self._count == 1:
                self._kept.append(commits)
                return
            key = commits["key"]
            mixed = pc.add(key, pc.shift_right(key, _PARTITION_BITS))
            bucket = pc.bit_wise_and(mixed, self._count - 1)
            for wanted in range(self._count):
                self._spill(wanted, commits.filter(pc.equal(bucket, wanted)))

    def each(self) -> Iterator[pa.Table]:
        """The records, a bucket at a time, each column in one piece; at least one bucket."""
        if not self._writers and not self._kept:
            self._kept.append(self._commits(_NO_RECORDS))
        if self._kept:
            yield _in_one_piece(pa.concat_tables(self._kept))
            self._kept = []
        for bucket, writer in self._writers.items():
            writer.close()
            path = self._path(bucket)
            with pa.OSFile(path) as source, pa.ipc.open_stream(source) as stream:
                commits = _in_one_piece(stream.read_all())
            os.unlink(path)
            yield commits

    def named(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        """The rows with ``topic`` and ``partition`` in the place of ``key``."""
        topic = pc.shift_right(rows["key"], _PARTITION_BITS)
        names = pa.array(self._topics, pa.string())
        given = {"topic": names.take(topic.combine_chunks())}
        given["partition"] = pc.bit_wise_and(rows["key"], (1 << _PARTITION_BITS) - 1)
        columns = [given.get(one.name) for one in schema]
        return pa.table(
            [
                (rows[one.name] if column is None else column).cast(one.type)
                for one, column in zip(schema, columns, strict=True)
            ],
            schema=schema,
        )

    def _commits(self, batch: pa.RecordBatch) -> pa.Table:
        columns = {name: batch.column(name) for name in batch.schema.names}
        wanted = pc.and_(
            is_one_of(columns["role"], ("controller",)), is_one_of(columns["kind"], COMMIT_KINDS)
        )
        if "copy" in columns:
            wanted = pc.and_(wanted, pc.invert(columns["copy"]))
        columns = {name: column.filter(wanted) for name, column in columns.items()}
        kinds, to, was = columns["kind"], columns["to"], columns["from"]
        is_move, is_lead = is_one_of(kinds, ("partition",)), is_one_of(kinds, ("leader",))
        state = pc.if_else(
            is_one_of(to, LED_STATES), LED, pc.if_else(is_one_of(to, (NEW,)), BEING_CREATED, OFFLINE)
        )
        created = pc.and_(is_move, pc.and_(is_one_of(was, (GONE,)), is_one_of(to, (NEW,))))
        columns["ts"] = columns["ts"].cast(_TIME)
        at = columns["ts"].cast(pa.int64())
        changed = pc.not_equal(was.cast(pa.string()), to.cast(pa.string()))
        kept = ("ts", "line", "node", "controller_epoch", "event_id", "leader", "silent_us")
        return pa.table(
            {
                "key": self._keys(columns["topic"], columns["partition"]),
                "file": pc.index_in(columns["file"].dictionary, self._names).take(columns["file"].indices),
                "block": columns.get("block", pa.repeat(pa.scalar(0, pa.int64()), len(at))),
                **{name: columns[name] for name in (*kept, "to", "cause", "reason")},
                "state": pc.if_else(is_move, state, pa.NULL).cast(pa.int32()),
                "led": pc.and_kleene(is_lead, changed).cast(pa.int8()),
                "synced": is_one_of(kinds, ("isr",)).cast(pa.int8()),
                "created": pc.if_else(created, at, pa.NULL),
                "gone": pc.if_else(pc.and_(is_move, is_one_of(to, (GONE,))), at, pa.NULL),
            }
        )

    def _keys(self, topics: pa.DictionaryArray, partitions: pa.Array) -> pa.Array:
        """A number for each partition."""
        with self._lock:
            known = [
                self._topics.setdefault(name, len(self._topics)) for name in topics.dictionary.to_pylist()
            ]
        numbers = pa.array(known, pa.int64()).take(topics.indices)
        return pc.add(pc.shift_left(numbers, _PARTITION_BITS), partitions)

    def _path(self, bucket: int) -> str:
        return f"{self._directory}/commits-{bucket}.arrow"

    def _spill(self, bucket: int, commits: pa.Table) -> None:
        if bucket not in self._writers:
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            writer = pa.ipc.new_stream(self._path(bucket), commits.schema, options=options)
            self._writers[bucket] = self._stack.enter_context(writer)
        self._writers[bucket].write_table(commits)


def _in_one_piece(commits: pa.Table) -> pa.Table:
    return commits.unify_dictionaries().combine_chunks()


def _moved(commits: pa.Table) -> pa.Table:
    at = commits["ts"].cast(pa.int64())
    given = commits.select(["key", "led", "synced", "created", "gone"]).append_column("at", at)
    sums = {
        "leader_changes": ("led", "sum"),
        "isr_changes": ("synced", "sum"),
        "first_at": ("at", "min"),
        "first_created": ("created", "min"),
        "last_at": ("at", "max"),
        "last_gone": ("gone", "max"),
    }
    grouped = given.group_by(["key"], use_threads=False).aggregate(list(sums.values()))
    return grouped.rename_columns(["key", *sums])


def _edges(moves: pa.Table) -> pa.Table:
    """`leaderless.edges` of all records of kind ``partition`` of some partitions; with ``key``."""
    if not moves.num_rows:
        return pa.table({name: [] for name in ("key", *EDGE_COLUMNS)})
    order = pc.sort_indices(moves, sort_keys=[(name, "ascending") for name in _ORDER])
    moves = moves.take(order).combine_chunks()
    key, state = _column(moves, "key"), _column(moves, "state")
    first, last = _ends(key)
    # The last state but one of being created, among the earlier records.
    earlier = pc.if_else(pc.equal(state, BEING_CREATED), pa.NULL, state)
    settled = pc.fill_null_forward(pc.if_else(first, LED, _before(earlier)))
    before = pc.if_else(first, LED, _before(state))
    epochs = _column(moves, "controller_epoch")
    moves = moves.append_column("last_epoch", pc.fill_null_backward(pc.if_else(last, epochs, pa.NULL)))
    # `leaderless._is_edge` has the same rule for Spark.
    changes = pc.if_else(
        pc.equal(state, LED),
        pc.not_equal(before, LED),
        pc.if_else(pc.equal(state, BEING_CREATED), pc.equal(before, LED), pc.not_equal(settled, OFFLINE)),
    )
    edges = moves.filter(changes).combine_chunks()
    if not edges.num_rows:
        return _edges(edges)
    _, last = _ends(_column(edges, "key"))
    following = pc.if_else(last, pa.NULL, pa.array(range(1, edges.num_rows + 1), pa.int64()))
    begun = pc.not_equal(_column(edges, "state"), LED)
    following = following.filter(begun)
    given = edges.filter(begun)
    ends = {name: edges[column].take(following) for name, column in END.items()}
    for name, column in ends.items():
        given = given.append_column(name, column)
    return given


def _column(rows: pa.Table, name: str) -> pa.Array:
    return rows[name].combine_chunks()


def _before(values: pa.Array) -> pa.Array:
    """The value of the row before."""
    return pa.concat_arrays([pa.nulls(1, values.type), values.slice(0, len(values) - 1)])


def _ends(keys: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Which rows are the first and which are the last of those with an equal key, which follow each other."""
    differs = pc.not_equal(keys.slice(1), keys.slice(0, len(keys) - 1))
    end = pa.array([True])
    return pa.concat_arrays([end, differs]), pa.concat_arrays([differs, end])
