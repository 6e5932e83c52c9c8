"""The tables of the report: their list ``TABLES``, and the functions that make them, except those in ``leaderless``
and ``quality``. They take the records (`staging.Staged.records`) or `condense` of them.

To add a table: a function here and its row in ``TABLES``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from controller.analysis import leaderless
from controller.analysis.columns import ShownColumn, numbers, size, spans, texts
from controller.analysis.condensing import STATE_KINDS
from controller.analysis.intake import quality
from controller.analysis.local_files import LogFile
from proto.statelog.schema import PHASES, READY

#: Points of a time axis.
_BUCKETS_MAX = 240
_BUCKETS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400)
#: Rows of a table on the page, and of a table that a chart shows; all rows are in Parquet.
ROWS_MAX, POINTS_MAX = 50, 5_000
#: Records of committed writes, and all records that only the active controller writes.
_COMMIT_KINDS = ("partition", "leader", "isr")
_ACTING_KINDS = (*_COMMIT_KINDS, "replica", "push", "ack", "failover")


@dataclass(frozen=True)
class Input:
    """The input: ``records`` are the ok lines without copies, ``condensed`` the same (`condense`); the other fields
    describe the files."""

    records: DataFrame
    condensed: DataFrame
    files: list[LogFile]
    file_table: DataFrame
    problem_table: DataFrame
    lines: int
    copies: int
    first_us: int
    last_us: int

    @property
    def bucket_us(self) -> int:
        """A round bucket width that divides the log's time into at most `_BUCKETS_MAX` buckets."""
        wanted_s = (self.last_us - self.first_us) / 1e6 / _BUCKETS_MAX
        days = max(1, int(wanted_s / 86400) + 1)
        return next((width for width in _BUCKETS_S if width >= wanted_s), days * 86400) * 1_000_000


def transitions(condensed: DataFrame) -> DataFrame:
    """Out: ``kind``, ``role``, ``from``, ``to``, ``count`` (summaries by their ``count``), ``lines``."""
    states = condensed.where(F.col("kind").isin(*STATE_KINDS))
    sums = [F.try_sum("meant").alias("count"), F.sum("lines").alias("lines")]
    return states.groupBy("kind", "role", "from", "to").agg(*sums)


def failovers(condensed: DataFrame) -> DataFrame:
    """Out, a row for each controller epoch (two when two nodes claim it): ``controller_epoch``,
    ``node``, ``ts`` (of ready, or of its last record), ``ready`` (false: the failover was not completed),
    ``total_us``, for each phase ``<phase>_us`` and ``<phase>_count``, ``other_us`` (phases unknown to this
    version), ``previous_epoch``, ``gap_us`` (from the previous controller's last record to ready; negative if that
    controller wrote records after it)."""
    lines = condensed.where((F.col("kind") == "failover") & (F.col("role") == "controller"))
    is_ready = F.col("to") == READY

    def total(when: Column, column: str, name: str) -> Column:
        return F.try_sum(F.when(when, F.col(column))).alias(name)

    phases: list[Column] = []
    for phase in PHASES:
        phases += [total(F.col("to") == phase, name, f"{phase}_{end}") for name, end in _PHASE_MEASURES]
    rows = lines.groupBy("controller_epoch", "node").agg(
        F.max("last_ts").alias("ts"),
        F.max(is_ready).alias("ready"),
        F.max(F.when(is_ready, F.col("longest_us"))).alias("total_us"),
        *phases,
        total(~F.col("to").isin(*PHASES, READY), "spent_us", "other_us"),
    )
    gap = F.when(F.col("ready"), F.unix_micros("ts") - F.unix_micros("last_sign"))
    return (
        rows.join(_signs_of_previous(condensed), "controller_epoch", "left")
        .withColumn("gap_us", gap)
        .drop("last_sign")
        .orderBy("controller_epoch", "node")
    )


_PHASE_MEASURES = (("spent_us", "us"), ("counted", "count"))


def _signs_of_previous(condensed: DataFrame) -> DataFrame:
    """Out: ``controller_epoch``, ``previous_epoch``, ``last_sign`` (time of its last record as active controller)."""
    resigned = (F.col("kind") == "controller") & F.col("to").isin("active", "resigned")
    acting = F.col("kind").isin(*_ACTING_KINDS) | resigned
    signs = (
        condensed.where((F.col("role") == "controller") & acting & (F.col("controller_epoch") >= 0))
        .groupBy("controller_epoch")
        .agg(F.max("last_ts").alias("seen"))
    )
    by_epoch = Window.orderBy("controller_epoch")
    return signs.select(
        "controller_epoch",
        F.lag("controller_epoch").over(by_epoch).alias("previous_epoch"),
        F.lag("seen").over(by_epoch).alias("last_sign"),
    )


def _led(condensed: DataFrame) -> DataFrame:
    """Leaderships won and lost: ``second_us``, ``broker``, ``direction`` (gained, lost), ``reason``, ``lines``."""
    changes = condensed.where(
        (F.col("kind") == "leader") & (F.col("role") == "controller") & (F.col("from") != F.col("to"))
    )
    broker = F.explode(F.map_from_arrays(F.array(F.lit("gained"), F.lit("lost")), F.array("to", "from")))
    sides = changes.select("second_us", "reason", "lines", broker.alias("direction", "broker"))
    return sides.withColumn("broker", F.col("broker").cast("int")).where(F.col("broker") >= 0)


def leader_changes(condensed: DataFrame) -> DataFrame:
    """Out: ``broker``, ``direction`` (gained, lost), ``reason``, ``count``."""
    return _led(condensed).groupBy("broker", "direction", "reason").agg(F.sum("lines").alias("count"))


def leader_changes_over_time(condensed: DataFrame, bucket_us: int) -> DataFrame:
    """Out: ``bucket_ts``, ``broker``, ``gained``, ``lost``; only buckets with any. ``bucket_us``: whole seconds."""
    bucket = F.timestamp_micros(F.floor(F.col("second_us") / F.lit(bucket_us)).cast("bigint") * bucket_us)
    sides = [
        F.sum(F.when(F.col("direction") == name, F.col("lines")).otherwise(0)).alias(name)
        for name in ("gained", "lost")
    ]
    return _led(condensed).groupBy(bucket.alias("bucket_ts"), "broker").agg(*sides)


def _examples() -> Column:
    """The first and the last reason: two are enough to recognise a problem, and bound the memory."""
    ends = F.array(F.min_by("reason", "first_ts"), F.max_by("reason", "last_ts"))
    return F.array_distinct(F.array_compact(ends)).alias("examples")


def rejects(condensed: DataFrame) -> DataFrame:
    """Refused actions, as recorded by the node that refused.

    Out: ``error``, ``role``, ``node``, ``count``, ``first_ts``, ``last_ts``, ``examples``.
    """
    return (
        condensed.where(F.col("kind") == "reject")
        .groupBy("error", "role", "node")
        .agg(*_counted_times(), _examples())
    )


def requests(records: DataFrame) -> DataFrame:
    """Requests that changed something, and denied ones: the audit log.

    In: records. Out: ``ts``, ``role``, ``node``, ``request``, ``principal``, ``address``, ``subject``, ``outcome``
    (done or the error), ``count`` (denials that the line stands for), ``reason``.
    """
    return records.where(F.col("kind") == "request").select(
        "ts",
        "role",
        "node",
        F.col("to").alias("request"),
        "principal",
        "address",
        "subject",
        F.coalesce("error", F.lit("done")).alias("outcome"),
        F.coalesce("count", F.lit(1)).alias("count"),
        "reason",
    )


def refusals(condensed: DataFrame) -> DataFrame:
    """Requests that brokers refused, as recorded by the controllers that sent them.

    Out: ``broker``, ``request``, ``error``, ``count``, ``first_ts``, ``last_ts``, ``examples``.
    """
    refused = condensed.where((F.col("kind") == "ack") & F.col("error").isNotNull())
    return refused.groupBy(
        F.col("replica").cast("int").alias("broker"), F.col("to").alias("request"), "error"
    ).agg(*_counted_times(), _examples())


def _counted_times() -> list[Column]:
    return [
        F.sum("lines").alias("count"),
        F.min("first_ts").alias("first_ts"),
        F.max("last_ts").alias("last_ts"),
    ]


_PERCENTILES = (("p50_us", 50), ("p95_us", 95), ("p99_us", 99))


def pushes(condensed: DataFrame) -> DataFrame:
    """Control requests to brokers.

    Out, for each broker and request, and each broker's ``all``: ``broker``, ``request``, ``pushes``, ``partitions``
    pushed, ``acks``, ``errors``, and of the acks' latency, exactly: ``p50_us``, ``p95_us``, ``p99_us``, ``max_us``.
    """
    sent, answered, n = F.col("kind") == "push", F.col("kind") == "ack", F.col("lines")
    keys = ("broker", "request")
    by_latency = (
        condensed.where((F.col("role") == "controller") & F.col("kind").isin("push", "ack"))
        .select(
            "*",
            F.col("replica").cast("int").alias("broker"),
            F.explode(F.array("to", F.lit("all"))).alias("request"),
        )
        .groupBy(*keys, "duration_us")
        .agg(
            F.sum(F.when(sent, n).otherwise(0)).alias("pushes"),
            F.coalesce(F.try_sum(F.when(sent, F.col("counted"))), F.lit(0)).alias("partitions"),
            F.sum(F.when(answered, n).otherwise(0)).alias("acks"),
            F.sum(F.when(answered & F.col("error").isNotNull(), n).otherwise(0)).alias("errors"),
        )
    )
    timed = F.when(F.col("duration_us").isNotNull(), F.col("acks")).otherwise(0)
    group = Window.partitionBy(*keys)
    ranked = by_latency.withColumn(
        "upto", F.sum(timed).over(group.orderBy(F.asc_nulls_first("duration_us")))
    ).withColumn("of", F.sum(timed).over(group))
    # The value at rank ceil(percent / 100 * of), as a histogram of all values has it.
    percentiles = [
        F.min(F.when(F.col("upto") * 100 >= F.col("of") * percent, F.col("duration_us"))).alias(name)
        for name, percent in _PERCENTILES
    ]
    sums = [F.sum(name).alias(name) for name in ("pushes", "partitions", "acks", "errors")]
    return ranked.groupBy(*keys).agg(*sums, *percentiles, F.max("duration_us").alias("max_us"))


def two_masters(condensed: DataFrame) -> DataFrame:
    """Controller epochs in which more than one node committed writes. There must be none.

    Out: ``controller_epoch``, ``nodes``, ``lines``, ``first_ts``, ``last_ts``.
    """
    nodes = _commits(condensed).groupBy("controller_epoch", "node").agg(*_counted_times())
    return (
        nodes.groupBy("controller_epoch")
        .agg(
            F.array_sort(F.collect_list("node")).alias("nodes"),
            F.sum("count").alias("lines"),
            F.min("first_ts").alias("first_ts"),
            F.max("last_ts").alias("last_ts"),
        )
        .where(F.size("nodes") > 1)
    )


def superseded(records: DataFrame, condensed: DataFrame) -> DataFrame:
    """Decisions logged under a controller epoch after a newer epoch had begun.

    A record is logged after its write is confirmed. A few milliseconds are therefore the reply's latency and the
    difference of two clocks; more means that a deposed controller continued to act.

    Out: ``controller_epoch``, ``node``, ``kind``, ``count``, ``first_ts``, ``last_ts``,
    ``superseded_by``, ``superseded_ts``, ``latest_after_us``, ``example`` (topic-partition).
    """
    started = (
        condensed.where((F.col("role") == "controller") & (F.col("controller_epoch") >= 0))
        .where(
            F.col("kind").isin(*_ACTING_KINDS) | ((F.col("kind") == "controller") & (F.col("to") == "active"))
        )
        .groupBy("controller_epoch")
        .agg(F.min("first_ts").alias("started_ts"))
    )
    newer = Window.orderBy(F.desc("controller_epoch")).rowsBetween(Window.unboundedPreceding, -1)
    first_newer = F.min(F.struct("started_ts", "controller_epoch")).over(newer)
    ends = started.select("controller_epoch", first_newer.alias("end")).where("end is not null")
    # The lines are read again only if there is something to find.
    suspects = _commits(condensed).join(ends, "controller_epoch").where("last_ts > end.started_ts")
    epochs = [row.controller_epoch for row in suspects.select("controller_epoch").distinct().collect()]
    of_epochs = F.col("controller_epoch").isin(epochs) if epochs else F.lit(False)
    commits = _commits(records).where(of_epochs).join(F.broadcast(ends), "controller_epoch")
    return (
        commits.where("ts > end.started_ts")
        .groupBy("controller_epoch", "node", "kind")
        .agg(
            F.count("*").alias("count"),
            F.min("ts").alias("first_ts"),
            F.max("ts").alias("last_ts"),
            F.first("end.controller_epoch").alias("superseded_by"),
            F.first("end.started_ts").alias("superseded_ts"),
            F.max(F.unix_micros("ts") - F.unix_micros("end.started_ts")).alias("latest_after_us"),
            F.min(F.concat_ws("-", "topic", "partition")).alias("example"),
        )
    )


def _commits(records: DataFrame) -> DataFrame:
    return records.where(
        (F.col("role") == "controller")
        & F.col("kind").isin(*_COMMIT_KINDS)
        & (F.col("controller_epoch") >= 0)
    )


# --- all of them -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TableSpec:
    """One table. ``build``: makes it from the input and from other tables by name. ``order``: order of the rows if not
    all are shown (a function, as columns need a running Spark). A table with ``columns`` is shown on the page."""

    name: str
    build: Callable[[Input, Callable[[str], DataFrame]], DataFrame]
    order: Callable[[], Sequence[Column]] | None = None
    title: str = ""
    note: str = ""
    columns: Sequence[ShownColumn] = ()
    rows_max: int = ROWS_MAX


_MEASURES = [*numbers("intervals"), *spans("total_us", "p50_us", "longest_us"), *numbers("open")]

#: In the order of the page.
TABLES: Sequence[TableSpec] = (
    TableSpec(
        "leaderless_by_partition",
        lambda _, table: leaderless.by_partition(table("leaderless_intervals")),
        lambda: [F.desc(F.col("class") == leaderless.OUTAGE), F.desc("total_us"), F.col("topic")],
        "Leaderless time by partition",
        "Outages first; creation is the time from NewPartition to the first leader.",
        [*texts("class", "topic", "partition"), *_MEASURES],
    ),
    TableSpec(
        "leaderless_by_cause",
        lambda _, table: leaderless.by_cause(table("leaderless_intervals")),
        lambda: [F.desc(F.col("class") == leaderless.OUTAGE), F.desc("total_us"), F.col("cause")],
        "Leaderless time by cause",
        "The cause and the reason of the record that began the interval.",
        [*texts("class", "cause", "reason"), *numbers("partitions"), *_MEASURES],
    ),
    TableSpec(
        "leaderless_intervals",
        lambda source, _: leaderless.leaderless_intervals(source.records, source.condensed, source.last_us),
        lambda: [F.desc(F.col("class") == leaderless.OUTAGE), F.desc("duration_us"), F.col("topic")],
        "Longest leaderless intervals",
        "Open intervals have no end in the log and are measured to its last line.",
        [
            *texts("topic", "partition", "class", "start_ts"),
            *spans("duration_us"),
            *texts("ended_by", "cause", "reason", "controller_epoch", "leader"),
        ],
    ),
    TableSpec(
        "failovers",
        lambda source, _: failovers(source.condensed),
        lambda: [F.desc("controller_epoch"), F.col("node")],
        "Failovers",
        "Newest first. The gap is from the previous controller's last record to ready.",
        [
            *texts("controller_epoch", "node", "ts"),
            *spans("total_us", "gap_us", *(f"{phase}_us" for phase in PHASES)),
            *numbers("partitions_count"),
        ],
    ),
    TableSpec(
        "leader_changes",
        lambda source, _: leader_changes(source.condensed),
        lambda: [F.desc("count"), F.col("broker")],
        "Leader changes by broker",
        "Leaderships gained and lost, by reason.",
        [*texts("broker", "direction", "reason"), *numbers("count")],
    ),
    TableSpec(
        "rejects",
        lambda source, _: rejects(source.condensed),
        lambda: [F.desc("count"), F.col("error"), F.col("node")],
        "Refused actions",
        "Illegal transitions, fenced writes, stale requests, as recorded by the node that refused.",
        [*texts("error", "role", "node"), *numbers("count"), *texts("first_ts", "last_ts", "examples")],
    ),
    TableSpec(
        "requests",
        lambda source, _: requests(source.records),
        lambda: [F.desc("ts"), F.col("node"), F.col("request")],
        "Who asked for what",
        "Requests that changed something, and those that were denied, newest first.",
        [
            *texts("ts", "role", "node", "request", "principal", "address", "subject", "outcome"),
            *numbers("count"),
            *texts("reason"),
        ],
    ),
    TableSpec(
        "refusals",
        lambda source, _: refusals(source.condensed),
        lambda: [F.desc("count"), F.col("error"), F.col("broker")],
        "Requests that brokers refused",
        "As recorded by the controllers that sent them.",
        [
            *texts("broker", "request", "error"),
            *numbers("count"),
            *texts("first_ts", "last_ts", "examples"),
        ],
    ),
    TableSpec(
        "pushes",
        lambda source, _: pushes(source.condensed),
        lambda: [F.desc(F.col("request") == "all"), F.desc("p99_us"), F.col("broker")],
        "Control requests by broker",
        "Latency is from send to response; “all” is the total of a broker.",
        [
            *texts("broker", "request"),
            *numbers("pushes", "partitions", "acks", "errors"),
            *spans("p50_us", "p95_us", "p99_us", "max_us"),
        ],
    ),
    TableSpec(
        "transitions",
        lambda source, _: transitions(source.condensed),
        lambda: [F.desc("count"), F.col("kind"), F.col("from"), F.col("to")],
        "State transitions",
        "By kind and by who recorded them.",
        [*texts("kind", "role", "from", "to"), *numbers("count", "lines")],
    ),
    TableSpec(
        "two_masters",
        lambda source, _: two_masters(source.condensed),
        lambda: [F.desc("controller_epoch")],
        "Two controllers in one epoch",
        "There must be none: more than one node committed writes in the same controller epoch.",
        [*texts("controller_epoch", "nodes"), *numbers("lines"), *texts("first_ts", "last_ts")],
    ),
    TableSpec(
        "superseded",
        lambda source, _: superseded(source.records, source.condensed),
        lambda: [F.desc("latest_after_us"), F.desc("controller_epoch")],
        "Decisions after a newer controller began",
        "A few milliseconds are a reply's latency and the difference of two clocks; more is a zombie.",
        [
            *texts("controller_epoch", "node", "kind"),
            *numbers("count"),
            *texts("superseded_by", "superseded_ts", "last_ts"),
            *spans("latest_after_us"),
            *texts("example"),
        ],
    ),
    TableSpec(
        "input_nodes",
        lambda source, _: quality.input_nodes(source.condensed),
        lambda: [F.desc("role"), F.col("node")],
        "What each node wrote",
        "Dropped: records that the node itself reports lost.",
        [*texts("role", "node"), *numbers("files", "lines", "dropped"), *texts("first_ts", "last_ts")],
    ),
    TableSpec(
        "input_files",
        lambda source, _: source.file_table,
        lambda: [F.col("problem").isNull(), F.desc(F.col("lines") - F.col("ok")), F.col("file")],
        "Files",
        "Damaged ones first.",
        [
            *texts("file"),
            ShownColumn("size", "size", size, numeric=True),
            *numbers("lines", "ok", "torn", "malformed", "newer_schema"),
            *texts("problem", "first_ts", "last_ts"),
        ],
    ),
    TableSpec(
        "input_problems",
        lambda source, _: source.problem_table,
        lambda: [F.desc("count"), F.col("file"), F.col("problem")],
        "Unread lines",
        "By reason, with the beginning of the first such line.",
        [*texts("file", "status", "problem"), *numbers("count"), *texts("sample")],
    ),
    # Not shown as tables, only as charts.
    TableSpec(
        "leaderless_over_time",
        lambda source, table: leaderless.over_time(table("leaderless_intervals"), source.bucket_us),
        lambda: [F.col("bucket_ts")],
        rows_max=POINTS_MAX,
    ),
    TableSpec(
        "leader_changes_over_time",
        lambda source, _: leader_changes_over_time(source.condensed, source.bucket_us),
    ),
)
