"""From pieces of logs to rows of the table, and what they say of each log."""

from __future__ import annotations

import os
import shutil
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
    Action,
    DeltaLog,
    Snapshot,
    add_action,
    domain_action,
)
from controller.analysis.lake.errors import LakeError, SetAsideError
from controller.analysis.lake.identity import TakenFile
from controller.analysis.lake.spool import Piece, Spool
from controller.analysis.local_files import LogFile
from controller.errors import in_words
from proto.statelog.schema import INT_FIELDS, KINDS, LIST_FIELDS, TEXT_CHARS_MAX

#: Partitions by kind for lines that cannot be read, and for records of kinds unknown to this version.
UNREAD, OTHER = "unread", "other"
#: Rows of one Parquet file at most.
_ROWS_MAX = 8_000_000
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_DOMAIN = "statelog.file."

#: Of the table: where a line is from (``block``: byte of its log where its split began; ``line``: ascending within
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
        self.spark, self.log, self.root = spark, log, log.root
        self._new = self.root / "_new"

    def open(self) -> Snapshot:
        """The table, without what a killed writer left; made if there is none, changed if an earlier version did."""
        snapshot = self.log.read()
        schema = COLUMNS.json()
        shutil.rmtree(self._new, ignore_errors=True)
        if snapshot.version < 0:
            snapshot = self.log.create(schema)
        elif (snapshot.lake_version, snapshot.metadata["schemaString"]) != (LAKE_VERSION, schema):
            before = [condensed.replaced(self.root, name) for name in condensed.condensed_files(snapshot)]
            anew = self.write_condensed(condensed.condense_rows(self.rows(snapshot.files)))
            snapshot = self.log.change_schema(snapshot, schema, [*before, *anew])
        self.log.sweep(snapshot)
        condensed.sweep(self.root, snapshot)
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
        split.partitionBy(*PARTITION_COLUMNS).parquet(f"file:{draft}")
        actions = []
        for path in sorted(draft.glob("day=*/kind=*/*.parquet")):
            relative = path.relative_to(draft)
            size = self._settle(path, relative)
            actions.append(add_action(relative.as_posix(), _partition(relative), size, new_data=new_data))
        shutil.rmtree(draft)
        return actions

    def write_condensed(self, rows: DataFrame) -> list[Action]:
        """Write `condensed.condense_rows` as Parquet files, for a commit. Out: the actions that name them."""
        draft = self._draft()
        rows.write.parquet(f"file:{draft}")
        actions = []
        for path in sorted(draft.glob("*.parquet")):
            size = self._settle(path, Path(condensed.DIRECTORY, path.name))
            actions.append(condensed.added(path.name, size))
        shutil.rmtree(draft)
        return actions

    def rows(self, paths: Iterable[str]) -> DataFrame:
        """The rows of files of the table."""
        return read_rows(self.spark, self.root, paths)

    def condensed(self, names: Iterable[str]) -> DataFrame:
        """Condensed records, by the names of their files."""
        return condensed.read_condensed(self.spark, self.root, names)

    def _draft(self) -> Path:
        return self._new / uuid.uuid4().hex

    def _settle(self, path: Path, where: Path) -> int:
        """Move a new file to its place in the lake. Out: its size."""
        target = self.root / where
        target.parent.mkdir(parents=True, exist_ok=True)
        _sync(path)
        path.rename(target)
        return target.stat().st_size

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


def read_rows(spark: SparkSession, root: Path, paths: Iterable[str]) -> DataFrame:
    """The rows of files of the table in ``root``."""
    given = [f"file:{root / path}" for path in paths]
    if not given:
        return spark.createDataFrame([], COLUMNS)
    options = {"basePath": f"file:{root}", "__globPaths__": "false"}
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
    """With the counts of a piece added."""

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


def _partition(path: Path) -> dict[str, str | None]:
    values = dict(part.split("=", 1) for part in path.parts[:-1])
    return {name: None if value == _NULL_PARTITION else unquote(value) for name, value in values.items()}


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
