"""Intervals in which partitions had no leader, and their causes."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from proto.statelog.schema import GONE, NEW, ONLINE, READY

#: Classes of intervals; `creation` and `deletion` are the normal life of a partition.
OUTAGE, CREATION, DELETION = "outage", "creation", "deletion"
#: The order of records across files, nodes and controllers.
ORDER = ("controller_epoch", "event_id", "ts", "file", "block", "line")

#: What a record says of a partition: a broker leads it, or nobody need; it waits for its first leader; it has none.
LED, BEING_CREATED, OFFLINE = 0, 1, 2
LED_STATES = (ONLINE, GONE)


def edges(records: DataFrame) -> DataFrame:
    """The records that begin a time in which a partition has no leader, each with the one that ends it: by Spark's
    windows. `arrow_commits` does the same for files of this machine.

    Out: ``topic``, ``partition``, ``state`` (BEING_CREATED, OFFLINE), ``last_epoch`` (the last controller epoch with a
    record of the partition); of the record that begins it ``ts``, ``silent_us``, ``cause``, ``reason``,
    ``controller_epoch``, ``event_id``, ``node``, ``leader``; of the next one that changes the state, null if there is
    none, the fields of `END`.
    """
    moves = records.where((F.col("kind") == "partition") & (F.col("role") == "controller"))
    state = (
        F.when(F.col("to").isin(*LED_STATES), LED).when(F.col("to") == NEW, BEING_CREATED).otherwise(OFFLINE)
    )
    # The digest is a number, which sorts faster than a name.
    ordered = Window.partitionBy("place", "topic", "partition").orderBy(*ORDER)
    earlier = ordered.rowsBetween(Window.unboundedPreceding, -1)
    whole = ordered.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    settled = F.last(F.when(F.col("state") != BEING_CREATED, F.col("state")), ignorenulls=True)
    changes = (
        moves.withColumns({"place": F.xxhash64("topic", "partition"), "state": state})
        .withColumns(
            {
                "before": F.lag("state", 1, LED).over(ordered),
                "settled": F.coalesce(settled.over(earlier), F.lit(LED)),
                "last_epoch": F.max("controller_epoch").over(whole),
            }
        )
        .where(_is_edge())
    )
    ends = {name: F.lead(column).over(ordered) for name, column in END.items()}
    return (
        changes.withColumns({**ends, "partition": F.col("partition").cast("int")})
        .where(F.col("state") != LED)
        .select(*EDGE_COLUMNS)
    )


#: The fields of the record that ends an interval, by their names in `edges`.
END = {
    "end_at": "ts",
    "end_state": "to",
    "end_cause": "cause",
    "end_epoch": "controller_epoch",
    "end_leader": "leader",
    "end_event": "event_id",
}
#: The columns of `edges` and their types.
EDGE_COLUMNS = {
    "topic": "string",
    "partition": "int",
    "state": "int",
    "last_epoch": "bigint",
    "ts": "timestamp",
    "silent_us": "bigint",
    "cause": "string",
    "reason": "string",
    **dict.fromkeys(("controller_epoch", "event_id", "node", "leader"), "bigint"),
    "end_at": "timestamp",
    "end_state": "string",
    "end_cause": "string",
    **dict.fromkeys(("end_epoch", "end_leader", "end_event"), "bigint"),
}


def leaderless_intervals(edges: DataFrame, condensed: DataFrame, log_end_us: int) -> DataFrame:
    """Every interval in which a partition had no leader.

    In: `edges`, and `condense` of all records. Out: ``topic``, ``partition``, ``class`` (outage, creation, deletion),
    ``start_ts`` (`_start`), ``end_ts``, ``duration_us``, ``ended_by`` (online, deleted, offline: a failed creation,
    failover, nothing), ``open`` (nothing ended it: measured to ``log_end_us``, microseconds since 1970),
    ``cause`` and ``reason`` of the record that began it, its ``controller_epoch``, ``event_id`` and ``node``,
    ``end_cause``, ``end_epoch``, ``leader`` (the leader afterwards), ``lost_leader`` (the one before; null: the record
    names none), ``detection_us`` (from that one's last sign to the record; null: not known).

    ended_by failover: the log has no end of the interval. But a later controller, which records each partition
    that it finds without a leader, did not record this one. So the partition had a leader by then: the previous
    controller was killed between the write and its log record.
    """
    begun = edges.join(_first_failover_after(condensed), _epoch_in_gap(), "left")
    return begun.select(
        "topic",
        "partition",
        _class().alias("class"),
        _start().alias("start_ts"),
        _end_ts(log_end_us).alias("end_ts"),
        F.greatest(F.lit(0), F.unix_micros(_end_ts(log_end_us)) - F.unix_micros(_start())).alias(
            "duration_us"
        ),
        _ended_by().alias("ended_by"),
        (_ended_by() == "nothing").alias("open"),
        "cause",
        "reason",
        "controller_epoch",
        "event_id",
        "node",
        "end_cause",
        "end_epoch",
        F.when(F.col("end_state") == ONLINE, F.col("end_leader")).alias("leader"),
        F.when(F.col("leader") >= 0, F.col("leader")).alias("lost_leader"),
        F.col("silent_us").alias("detection_us"),
    )


def by_partition(intervals: DataFrame) -> DataFrame:
    """In: `leaderless_intervals`. Out: ``class``, ``topic``, ``partition``, and `_measures`."""
    keys = ("class", "topic", "partition")
    return ranked(intervals, keys).groupBy(*keys).agg(*_measures())


def by_cause(intervals: DataFrame) -> DataFrame:
    """In: `leaderless_intervals`. Out: ``class``, ``cause``, ``reason``, ``partitions`` and `_measures`."""
    keys = ("class", "cause", "reason")
    counted = F.count_distinct("topic", "partition").alias("partitions")
    return ranked(intervals, keys).groupBy(*keys).agg(counted, *_measures())


def over_time(intervals: DataFrame, bucket_us: int) -> DataFrame:
    """Number of intervals that overlap each time bucket.

    In: `leaderless_intervals`. Out: ``class``, ``bucket_ts`` (only where the number changes), ``intervals``.
    An interval counts in every bucket that it overlaps, so that short ones are visible.
    """

    def bucket(column: str | Column) -> Column:
        return F.floor(F.unix_micros(column) / F.lit(bucket_us)).cast("bigint")

    steps = intervals.select("class", bucket("start_ts").alias("bucket"), F.lit(1).alias("step")).unionAll(
        intervals.select(
            "class", (bucket(F.greatest("start_ts", "end_ts")) + 1).alias("bucket"), F.lit(-1).alias("step")
        )
    )
    changes = steps.groupBy("class", "bucket").agg(F.sum("step").alias("step"))
    running = F.sum("step").over(Window.partitionBy("class").orderBy("bucket"))
    at = F.timestamp_micros(F.col("bucket") * bucket_us)
    return changes.select("class", at.alias("bucket_ts"), running.alias("intervals"))


def ranked(intervals: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The intervals, each with its ``rank`` by duration ``of`` how many of equal keys. Exact, where a sketch is not."""
    group = Window.partitionBy(*keys)
    rank = F.row_number().over(group.orderBy("duration_us"))
    return intervals.withColumns({"rank": rank, "of": F.count("*").over(group)})


def value_at(percent: int) -> Column:
    """Whether a row of `ranked` has its group's percentile: rank ceil(percent / 100 * of)."""
    return F.col("rank") == F.floor((F.col("of") * percent + 99) / 100)


def _measures() -> list[Column]:
    """``intervals``, ``total_us``, ``p50_us``, ``longest_us``, ``open`` (number without an end in the log)."""
    return [
        F.count("*").alias("intervals"),
        F.try_sum("duration_us").alias("total_us"),
        F.max(F.when(value_at(50), F.col("duration_us"))).alias("p50_us"),
        F.max("duration_us").alias("longest_us"),
        F.count_if("open").alias("open"),
    ]


def _is_edge() -> Column:
    """Whether the record changes the state. OfflinePartition to NewPartition is no recovery: until a broker leads, the
    state only increases."""
    state = F.col("state")
    return (
        F.when(state == LED, F.col("before") != LED)
        .when(state == BEING_CREATED, F.col("before") == LED)
        .otherwise(F.col("settled") != OFFLINE)
    )


def _first_failover_after(condensed: DataFrame) -> DataFrame:
    """Out: ``ready_epoch``, ``ready_ts``, ``ready_before`` (the failover before it, -2 at the first)."""
    ready = condensed.where((F.col("kind") == "failover") & (F.col("to") == READY)).groupBy(
        F.col("controller_epoch").alias("ready_epoch")
    )
    previous = F.lag("ready_epoch", 1, -2).over(Window.orderBy("ready_epoch"))
    return ready.agg(F.min("first_ts").alias("ready_ts")).withColumn("ready_before", previous)


def _epoch_in_gap() -> Column:
    open_in_log, last = F.col("end_at").isNull(), F.col("last_epoch")
    return open_in_log & (last >= F.col("ready_before")) & (last < F.col("ready_epoch"))


def _start() -> Column:
    """The last sign of the broker that led, where the record tells; else the record itself."""
    return F.timestamp_micros(F.unix_micros("ts") - F.coalesce("silent_us", F.lit(0)))


def _end_ts(log_end_us: int) -> Column:
    return F.coalesce(F.col("end_at"), F.col("ready_ts"), F.timestamp_micros(F.lit(log_end_us)))


def _ended_by() -> Column:
    return (
        F.when(F.col("end_state") == ONLINE, F.lit("online"))
        .when(F.col("end_state") == GONE, F.lit("deleted"))
        .when(F.col("end_state").isNotNull(), F.lit("offline"))
        .when(F.col("ready_ts").isNotNull(), F.lit("failover"))
        .otherwise(F.lit("nothing"))
    )


def _class() -> Column:
    same_event = (F.col("end_epoch") == F.col("controller_epoch")) & (F.col("end_event") == F.col("event_id"))
    deleted = (F.col("end_state") == GONE) & same_event
    return (
        F.when(F.col("state") == BEING_CREATED, F.lit(CREATION))
        .when(deleted | F.col("cause").rlike("(?i)delet"), F.lit(DELETION))
        .otherwise(F.lit(OUTAGE))
    )
