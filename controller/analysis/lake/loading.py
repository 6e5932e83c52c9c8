"""From pieces of logs to rows of the table, and what they say of each log."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote

import msgspec
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    DateType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from controller.analysis.intake import reading
from controller.analysis.lake import condensed
from controller.analysis.lake.delta_log import (
    LAKE_VERSION,
    PARTITION_COLUMNS,
    RETENTION_MS,
    Action,
    DeltaLog,
    Snapshot,
    add_action,
    domain_action,
)
from controller.analysis.lake.errors import LakeError, SetAsideError
from controller.analysis.lake.identity import TakenFile
from controller.analysis.lake.spool import Piece, Spool
from controller.analysis.lake.storage import Storage
from controller.analysis.local_files import LogFile
from proto.statelog.schema import INT_FIELDS, KINDS, LIST_FIELDS, TEXT_CHARS_MAX
from proto.texts import in_words

#: Partitions by kind for lines that cannot be read, and for records of kinds unknown to this version.
UNREAD, OTHER = "unread", "other"
#: Rows of one Parquet file at most.
_ROWS_MAX = 8_000_000
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_DOMAIN = "statelog.file."
#: Files that have no place yet.
_NEW = "_new"

#: The table has where a line is from (``block``: byte of its log where its split began; ``line``: ascending within
#: it), the digest of its text, as what it was judged, and its record.
COLUMNS = StructType(
    [
        StructField("log_file", StringType()),
        StructField("block", LongType()),
        StructField("line", LongType()),
        StructField("digest", LongType()),
        StructField("status", StringType()),
        StructField("problem", StringType()),
        StructField("sample", StringType()),
        StructField("ts", TimestampType()),
        *(StructField(name, StringType()) for name in TEXT_CHARS_MAX if name != "kind"),
        *(StructField(field.name, LongType()) for field in INT_FIELDS),
        *(StructField(name, ArrayType(LongType())) for name in LIST_FIELDS),
        StructField("other_kind", StringType()),
        StructField("day", DateType()),
        StructField("kind", StringType()),
    ]
)


class Lake:
    """The table, for its one writer (`DeltaLog.writing`)."""

    def __init__(self, spark: SparkSession, log: DeltaLog) -> None:
        self.spark, self.log, self.storage = spark, log, log.storage

    def open(self) -> Snapshot:
        """The table, without what a killed writer left; made if there is none, changed if an earlier version did."""
        snapshot = self.log.read()
        schema = COLUMNS.json()
        if snapshot.version < 0:
            snapshot = self.log.create(schema)
        elif (snapshot.lake_version, snapshot.metadata["schemaString"]) != (LAKE_VERSION, schema):
            before = [condensed.replaced(self.storage, name) for name in condensed.condensed_files(snapshot)]
            anew = self.write_condensed(condensed.condense_rows(self.rows(snapshot.files)))
            snapshot = self.log.change_schema(snapshot, schema, [*before, *anew])
        self.log.sweep(snapshot)
        condensed.sweep(self.storage, snapshot)
        self._sweep_drafts()
        return snapshot

    def take(self, snapshot: Snapshot, pieces: Iterable[Piece], spool: Spool) -> Snapshot:
        """Add the lines of the pieces, in one commit. Pieces that the table has already are left out.

        Raises SetAsideError if Spark did not read each line, LakeError.
        """
        known = {one.id: one for one in taken_files(snapshot)}
        new = [piece for piece in pieces if _follows(piece, known.get(piece.after.id))]
        if not new:
            return snapshot
        paths = [spool.directory / piece.name for piece in new if piece.name]
        actions: list[Action] = []
        counts: dict[str, Row] = {}
        if paths:
            actions = self.write(self._rows(paths))
            rows = self.rows(action["add"]["path"] for action in actions)
            actions += self.write_condensed(condensed.condense_rows(rows))
            counts = self._count(actions)
        for piece in new:
            read = counts.get(piece.after.id)
            if piece.lines is not None and piece.lines != (0 if read is None else read.lines):
                raise SetAsideError(
                    f"{piece.after.path}: {piece.lines} lines were set aside, Spark read {read and read.lines}"
                )
            actions.append(_file_action(piece.after if read is None else _with_counts(piece.after, read)))
        return self.log.commit(snapshot, actions, "WRITE")

    def write(self, rows: DataFrame, *, new_data: bool = True) -> list[Action]:
        """Write rows as Parquet files, for a commit. Out: the files' `add_action`."""
        draft = self._draft()
        split = rows.repartition(*PARTITION_COLUMNS).write.option("maxRecordsPerFile", _ROWS_MAX)
        split.partitionBy(*PARTITION_COLUMNS).parquet(self.storage.url(draft))
        actions = []
        for name, size in self._settle(draft, ""):
            actions.append(add_action(name, _partition(name), size, new_data=new_data))
        return actions

    def write_condensed(self, rows: DataFrame) -> list[Action]:
        """Write `condensed.condense_rows` as Parquet files, for a commit. Out: the actions that name them."""
        draft = self._draft()
        rows.write.parquet(self.storage.url(draft))
        into = f"{condensed.DIRECTORY}/"
        return [condensed.added(name.removeprefix(into), size) for name, size in self._settle(draft, into)]

    def rows(self, paths: Iterable[str]) -> DataFrame:
        """The rows of files of the table."""
        return read_rows(self.spark, self.storage, paths)

    def condensed(self, names: Iterable[str]) -> DataFrame:
        """Condensed records, by the names of their files."""
        return condensed.read_condensed(self.spark, self.storage, names)

    def _draft(self) -> str:
        return f"{_NEW}/{uuid.uuid4().hex}"

    def _settle(self, draft: str, into: str) -> list[tuple[str, int]]:
        """Move new Parquet files to their places in the lake. Out: names and sizes."""
        settled = []
        for file in sorted(self.storage.found(f"{draft}/", ".parquet"), key=lambda file: file.name):
            name = into + file.name.removeprefix(f"{draft}/")
            self.storage.move(file.name, name)
            settled.append((name, file.size))
        self.storage.delete(draft)
        return settled

    def _sweep_drafts(self) -> None:
        """Delete what killed writers left."""
        if self.storage.alone:
            self.storage.delete(_NEW)
            return
        oldest_ms = self.storage.now_ms() - RETENTION_MS
        for file in self.storage.found(f"{_NEW}/", ""):
            if file.changed_ms < oldest_ms:
                self.storage.delete(file.name)

    def _rows(self, paths: Sequence[Path]) -> DataFrame:
        files = [LogFile(f"file:{path}", path.stat().st_size) for path in paths]
        typed = reading.type_lines(reading.read_lines(self.spark, files))
        ok, kind = F.col("status") == reading.OK, F.col("kind")
        known = kind.isin(*KINDS)

        def of_name(group: int) -> Column:
            return F.regexp_extract("file", r"([0-9a-f]{16})-(\d+)\.jsonl(?:\.gz)?$", group)

        derived = {
            "log_file": of_name(1),
            "block": of_name(2).cast("bigint") + F.col("block"),
            "ts": F.when(ok, F.col("ts")),
            "day": F.when(ok, F.to_date("ts")),
            "kind": F.when(~ok, F.lit(UNREAD)).when(known, kind).otherwise(F.lit(OTHER)),
            "other_kind": F.when(ok & ~known, kind),
        }
        return typed.select(*(derived.get(name, F.col(name)).alias(name) for name in COLUMNS.names))

    def _count(self, actions: Iterable[Action]) -> dict[str, Row]:
        """What the condensed records that these actions add tell of each log."""
        added = Snapshot()
        for action in actions:
            added.apply(action)
        counted = (
            self.condensed(condensed.condensed_files(added))
            .groupBy("file")
            .agg(
                *(F.sum(name).alias(name) for name in _COUNTS),
                F.max("role").alias("role"),
                F.max("node").alias("node"),
                F.unix_micros(F.min("first_ts")).alias("first_us"),
                F.unix_micros(F.max("last_ts")).alias("last_us"),
            )
        )
        return {row.file: row for row in counted.collect()}


def read_rows(spark: SparkSession, storage: Storage, paths: Iterable[str]) -> DataFrame:
    """The rows of files of the table."""
    given = [storage.url(path) for path in paths]
    if not given:
        return spark.createDataFrame([], COLUMNS)
    options = {"basePath": storage.url(), "__globPaths__": "false"}
    return spark.read.options(**options).schema(COLUMNS).parquet(*given)


def taken_files(snapshot: Snapshot) -> list[TakenFile]:
    """What is known of each log file. Raises LakeError if that is not ours."""
    found = []
    for domain, configuration in snapshot.domains.items():
        if domain.startswith(_DOMAIN):
            try:
                found.append(msgspec.json.decode(configuration, type=TakenFile))
            except msgspec.DecodeError as error:
                raise LakeError(f"the lake's commits: damaged: {domain}: {in_words(error)}") from None
    return found


def _follows(piece: Piece, known: TakenFile | None) -> bool:
    """Whether the piece begins where the table ends; otherwise the table has it already."""
    if piece.name:
        return piece.start == (0 if known is None else known.taken)
    return known is None or known.taken == piece.after.taken


def _file_action(file: TakenFile) -> Action:
    return domain_action(_DOMAIN + file.id, msgspec.json.encode(file).decode())


def _with_counts(file: TakenFile, read: Row) -> TakenFile:
    """The same file after a piece of it was read: the piece's counts are added."""

    def end(choose: Callable[..., int], name: str) -> int | None:
        return choose((v for v in (getattr(file, name), read[name]) if v is not None), default=None)

    return msgspec.structs.replace(
        file,
        **{name: getattr(file, name) + read[name] for name in _COUNTS},
        role=max(filter(None, (file.role, read.role)), default=None),
        node=end(max, "node"),
        first_us=end(min, "first_us"),
        last_us=end(max, "last_us"),
    )


_COUNTS = ("lines", *condensed.STATUSES)


def _partition(name: str) -> dict[str, str | None]:
    values = dict(part.split("=", 1) for part in name.split("/")[:-1])
    return {name: None if value == _NULL_PARTITION else unquote(value) for name, value in values.items()}
