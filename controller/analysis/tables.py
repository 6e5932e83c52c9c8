"""The tables of the report: their list ``TABLES``, and the functions that make them, except those in ``leaderless``,
``quality`` and ``questions``. They take the records (`staging.Staged.records`) or `condense` of them.

To add a table: a function here and its row in ``TABLES``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from controller.analysis import arrow_intervals, leaderless
from controller.analysis.answers import Row
from controller.analysis.arrow_intervals import LocalCommits, Made
from controller.analysis.columns import ShownColumn, named, numbers, percents, size, spans, texts, yes
from controller.analysis.intake import quality
from controller.analysis.intake.fields import COMMIT_KINDS, STATE_KINDS
from controller.analysis.local_files import LogFile
from controller.analysis.questions import departures, operations, outages
from controller.analysis.questions.asked import NOTHING_TOLD, Asked
from controller.analysis.singles import Singles
from proto.statelog.schema import PHASES, READY

#: Points of a time axis.
_BUCKETS_MAX = 240
_BUCKETS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400)
#: Rows of a table on the page, and of a table that a chart shows; all rows are in Parquet.
ROWS_MAX, POINTS_MAX = 50, 5_000
#: All records that only the active controller writes.
_ACTING_KINDS = (*COMMIT_KINDS, "replica", "push", "ack", "failover")


_MAKING = threading.Lock()


@dataclass(frozen=True)
class Input:
    """The input: ``records`` are the ok lines without copies, ``condensed`` and ``singles`` what tables take of them;
    the other fields describe the files."""

    records: DataFrame
    condensed: DataFrame
    singles: Singles
    files: list[LogFile]
    file_table: DataFrame
    problem_table: DataFrame
    lines: int
    copies: int
    first_us: int
    last_us: int
    asked: Asked = NOTHING_TOLD
    #: What Arrow makes tables of, if all of the input could be put in order on this machine.
    commits: LocalCommits | None = None

    @property
    def made(self) -> dict[str, Made]:
        """`_made`, by the first thread that asks."""
        with _MAKING:
            return self._made

    @cached_property
    def _made(self) -> dict[str, Made]:
        """Tables that Spark need not make, by name, and ``caused``."""
        if self.commits is None:
            return {}
        return arrow_intervals.make(
            self.commits, self.first_us, self.last_us, self.asked.racks, self.bucket_us
        )

    def caused(self, table: Callable[[str], DataFrame]) -> DataFrame:
        """`departures.caused`. In: tables by name."""
        if (made := self.made.get("caused")) is not None:
            return read_made(self.records.sparkSession, made)
        return departures.caused(table("leaderless_intervals"))

    def top_rows(self) -> dict[str, DataFrame]:
        """Of large tables that Spark did not make: rows among which the first ones are."""
        tops = {name: self.made.get(top) for name, top in arrow_intervals.TOP.items()}
        spark = self.records.sparkSession
        return {name: read_made(spark, made) for name, made in tops.items() if made is not None}

    @property
    def bucket_us(self) -> int:
        """A round bucket width that divides the log's time into at most `_BUCKETS_MAX` buckets."""
        wanted_s = (self.last_us - self.first_us) / 1e6 / _BUCKETS_MAX
        days = max(1, int(wanted_s / 86400) + 1)
        return next((width for width in _BUCKETS_S if width >= wanted_s), days * 86400) * 1_000_000


def read_made(spark: SparkSession, made: Made, directory: str | None = None) -> DataFrame:
    """``directory``: where the files were moved to."""
    paths = made.paths if directory is None else [directory]
    return spark.read.schema(from_arrow_schema(made.schema)).parquet(*(f"file:{path}" for path in paths))


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


def requests(events: DataFrame) -> DataFrame:
    """Requests that changed something, and denied ones: the audit log.

    In: ``events`` of `singles.Singles`. Out: ``ts``, ``role``, ``node``, ``request``, ``principal``, ``address``,
    ``subject``, ``outcome`` (done or the error), ``count`` (denials that the line stands for), ``reason``.
    """
    return events.where(F.col("kind") == "request").select(
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
        (F.col("role") == "controller") & F.col("kind").isin(*COMMIT_KINDS) & (F.col("controller_epoch") >= 0)
    )


# --- all of them -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Details:
    """``belongs``: takes a row of this table and one of ``table``; whether the second counts in the first."""

    table: str
    belongs: Callable[[Row, Row], bool]


@dataclass(frozen=True)
class TableSpec:
    """One table. ``build``: makes it from the input and from other tables by name. ``order``: order of the rows if not
    all are shown (a function, as columns need a running Spark). A table with ``columns`` is shown on the page.
    ``details``: of which rows of another table a row is the sum, where the page has them. ``few_rows``: made from
    condensed records or small tables alone, so that it is little work for any log."""

    name: str
    build: Callable[[Input, Callable[[str], DataFrame]], DataFrame]
    order: Callable[[], Sequence[Column]] | None = None
    title: str = ""
    note: str = ""
    columns: Sequence[ShownColumn] = ()
    rows_max: int = ROWS_MAX
    details: Details | None = None
    few_rows: bool = False


_MEASURES = [*numbers("intervals"), *spans("total_us", "p50_us", "longest_us"), *numbers("open")]


def _in_dimension(row: Row, interval: Row) -> bool:
    """Whether an interval counts in a row of `outages.by_dimension`; an interval does not tell its rack."""
    broker = interval["lost_leader"]
    values = {outages.ALL: outages.ALL, outages.CAUSE: interval["cause"]}
    values[outages.BROKER] = None if broker is None else str(broker)
    counts = interval["class"] == leaderless.OUTAGE and row["dimension"] in values
    return counts and bool(values[row["dimension"]] == row["value"])


def _in_hour(row: Row, interval: Row) -> bool:
    begin: datetime = row["hour_ts"]
    begun: datetime = interval["start_ts"]
    lasting = begun < begin + timedelta(hours=1) and interval["end_ts"] >= begin
    return lasting and bool(interval["class"] == leaderless.OUTAGE)


#: In the order of the page.
TABLES: Sequence[TableSpec] = (
    TableSpec(
        "availability",
        lambda source, table: outages.availability(table("partitions"), source.asked),
        lambda: [F.col("topic").isNotNull(), F.col("availability"), F.col("topic")],
        "Availability by topic",
        "The share of the time in which the partitions that the log names had a leader. Creation and deletion do not "
        "count against it.",
        [
            ShownColumn("topic", "topic", named("all topics")),
            *numbers("partitions", "outages"),
            *spans("leaderless_us"),
            *percents("availability", "slo", "budget_used"),
            *spans("budget_us"),
        ],
        details=Details("partitions", lambda row, of: bool(of["outages"] and row["topic"] == of["topic"])),
    ),
    TableSpec(
        "outages_by",
        lambda source, table: outages.by_dimension(table("leaderless_intervals"), source.asked),
        lambda: [
            F.desc(F.col("dimension") == outages.ALL),
            F.col("dimension"),
            F.desc("total_us"),
            F.col("value"),
        ],
        "Time without a leader, and time to repair",
        "Outages in all, by cause, by the broker that was lost, and by its rack (with --brokers). Detection: the part "
        "that passed before the controller recorded the loss. Mean, p50, p95 and max: of outages that were repaired.",
        [
            *texts("dimension"),
            ShownColumn("value", "value", named("not known")),
            *numbers("outages", "open"),
            *spans("total_us", "detection_us"),
            *numbers("repaired"),
            *spans("mean_us", "p50_us", "p95_us", "max_us"),
        ],
        rows_max=2 * ROWS_MAX,
        details=Details("leaderless_intervals", _in_dimension),
    ),
    TableSpec(
        "outages_by_hour",
        lambda _, table: outages.by_hour(table("leaderless_intervals")),
        lambda: [F.desc("leaderless_us"), F.col("hour_ts")],
        "Worst hours",
        "Time without a leader that lies in the hour, of all partitions, and the outages that began in it.",
        [*texts("hour_ts"), *numbers("begun"), *spans("leaderless_us")],
        details=Details("leaderless_intervals", _in_hour),
    ),
    TableSpec(
        "partitions",
        lambda source, table: outages.partitions(
            source.singles.moved, table("leaderless_by_partition"), source.first_us, source.last_us
        ),
        lambda: [F.desc("leaderless_us"), F.desc("leader_changes"), F.col("topic"), F.col("partition")],
        "Partitions with the most time without a leader",
        "And how often leader and in-sync set changed.",
        [
            *texts("topic", "partition"),
            *numbers("outages"),
            *spans("leaderless_us", "longest_us"),
            ShownColumn("open", "open", yes),
            *numbers("leader_changes", "isr_changes"),
        ],
        details=Details(
            "leaderless_intervals",
            lambda row, of: (row["topic"], row["partition"]) == (of["topic"], of["partition"]),
        ),
    ),
    TableSpec(
        "broker_stability",
        lambda _, table: departures.stability(table("broker_departures")),
        lambda: [F.desc("flapping"), F.desc("lost"), F.desc("departures"), F.col("broker")],
        "Brokers that left",
        f"Flapping: lost {departures.FLAPPING_LOSSES} times within an hour, each without a controlled shutdown.",
        [
            *texts("broker"),
            ShownColumn("flapping", "flapping", yes),
            *numbers("departures", "controlled", "lost", "most_lost"),
            *texts("most_lost_ts"),
            *spans("away_us", "longest_away_us"),
            *numbers("partitions"),
            *spans("leaderless_us"),
        ],
        details=Details("broker_departures", lambda row, of: bool(row["broker"] == of["broker"])),
        few_rows=True,
    ),
    TableSpec(
        "rolling_restarts",
        lambda _, table: departures.rolling_restarts(table("broker_departures")),
        lambda: [F.desc(F.size("findings")), F.desc("first_ts")],
        "Rolling restarts",
        "Brokers that left one after the other, at most ten minutes after the last return. Clean: each once, by a "
        "controlled shutdown, none while another was away, no partition without a leader, all back.",
        [
            *texts("first_ts", "last_ts", "brokers"),
            *numbers("departures", "controlled", "overlapping"),
            *spans("longest_away_us", "detection_us"),
            *numbers("partitions"),
            *spans("leaderless_us"),
            ShownColumn("findings", "findings", lambda found: "; ".join(found) or "clean"),
        ],
        details=Details("broker_departures", lambda row, of: bool(row["together"] == of["together"])),
        few_rows=True,
    ),
    TableSpec(
        "broker_departures",
        lambda source, table: departures.departures(
            source.singles.events.where(F.col("kind") == "broker"), source.caused(table)
        ),
        lambda: [F.desc("leaderless_us"), F.desc("left_ts"), F.col("broker")],
        "Departures of brokers",
        "Those with the most time without a leader first. Overlapping: another broker was away.",
        [
            *texts("broker", "left_ts", "to"),
            *(ShownColumn(name, name, yes) for name in ("controlled", "overlapping", "returned")),
            *texts("back_ts"),
            *spans("away_us", "detection_us"),
            *numbers("partitions"),
            *spans("leaderless_us"),
        ],
        rows_max=2 * ROWS_MAX,
    ),
    TableSpec(
        "operations",
        lambda source, _: operations.operations(source.singles.events, source.last_us),
        lambda: [F.desc(F.col("outcome") == operations.OPEN), F.desc("took_us"), F.col("topic")],
        "Reassignments and deletions",
        "Those without an end in the log first, then the slowest.",
        [
            *texts("operation", "topic", "partition", "outcome", "asked_ts"),
            *spans("waited_us", "took_us"),
            *numbers("begun", "held_up"),
            *texts("reason"),
        ],
    ),
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
        lambda source, _: leaderless.leaderless_intervals(
            source.singles.edges, source.condensed, source.last_us
        ),
        lambda: [F.desc(F.col("class") == leaderless.OUTAGE), F.desc("duration_us"), F.col("topic")],
        "Longest leaderless intervals",
        "Open intervals have no end in the log and are measured to its last line.",
        [
            *texts("topic", "partition", "class", "start_ts"),
            *spans("duration_us", "detection_us"),
            *texts("ended_by", "cause", "reason", "controller_epoch", "lost_leader", "leader"),
        ],
        rows_max=4 * ROWS_MAX,
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
        few_rows=True,
    ),
    TableSpec(
        "leader_changes",
        lambda source, _: leader_changes(source.condensed),
        lambda: [F.desc("count"), F.col("broker")],
        "Leader changes by broker",
        "Leaderships gained and lost, by reason.",
        [*texts("broker", "direction", "reason"), *numbers("count")],
        few_rows=True,
    ),
    TableSpec(
        "rejects",
        lambda source, _: rejects(source.condensed),
        lambda: [F.desc("count"), F.col("error"), F.col("node")],
        "Refused actions",
        "Illegal transitions, fenced writes, stale requests, as recorded by the node that refused.",
        [*texts("error", "role", "node"), *numbers("count"), *texts("first_ts", "last_ts", "examples")],
        few_rows=True,
    ),
    TableSpec(
        "requests",
        lambda source, _: requests(source.singles.events),
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
        few_rows=True,
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
        few_rows=True,
    ),
    TableSpec(
        "transitions",
        lambda source, _: transitions(source.condensed),
        lambda: [F.desc("count"), F.col("kind"), F.col("from"), F.col("to")],
        "State transitions",
        "By kind and by who recorded them.",
        [*texts("kind", "role", "from", "to"), *numbers("count", "lines")],
        few_rows=True,
    ),
    TableSpec(
        "two_masters",
        lambda source, _: two_masters(source.condensed),
        lambda: [F.desc("controller_epoch")],
        "Two controllers in one epoch",
        "There must be none: more than one node committed writes in the same controller epoch.",
        [*texts("controller_epoch", "nodes"), *numbers("lines"), *texts("first_ts", "last_ts")],
        few_rows=True,
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
        few_rows=True,
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
        few_rows=True,
    ),
    TableSpec(
        "input_problems",
        lambda source, _: source.problem_table,
        lambda: [F.desc("count"), F.col("file"), F.col("problem")],
        "Unread lines",
        "By reason, with the beginning of the first such line.",
        [*texts("file", "status", "problem"), *numbers("count"), *texts("sample")],
        few_rows=True,
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
        few_rows=True,
    ),
)
