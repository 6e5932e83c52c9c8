"""Outages by cause, broker, rack and hour, the time to repair them, and the availability of topics."""

from __future__ import annotations

import json

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from controller.analysis.intake.fields import COMMIT_KINDS
from controller.analysis.leaderless import OUTAGE, ranked, value_at
from controller.analysis.questions.asked import Asked
from proto.statelog.schema import GONE, NEW

HOUR_US = 3_600_000_000
#: Dimensions of `by_dimension`; `RACK` only where racks are told.
ALL, CAUSE, BROKER, RACK = "all", "cause", "broker", "rack"
#: How an outage ends that somebody repaired.
REPAIRED = ("online", "failover")


def by_dimension(intervals: DataFrame, asked: Asked) -> DataFrame:
    """Outages in all, by cause, by the broker that was lost, and by its rack.

    In: `leaderless_intervals`. Out: ``dimension`` (`ALL`, `CAUSE`, `BROKER`, `RACK`), ``value`` (null: not known),
    ``outages``, ``open``, ``total_us``, ``detection_us`` (the part of it that passed until the controller recorded the
    loss, where that is known), ``detected`` (outages of which it is), and of those that were repaired, exactly:
    ``repaired`` (how many), ``mean_us``, ``p50_us``, ``p95_us``, ``max_us``.
    """
    broker = F.col("lost_leader").cast("string")
    values = {ALL: F.lit(ALL), CAUSE: F.col("cause"), BROKER: broker}
    if asked.racks:
        told = F.lit(json.dumps({str(broker_id): rack for broker_id, rack in asked.racks.items()}))
        values[RACK] = F.from_json(told, "map<string,string>")[broker]
    each = [F.struct(F.lit(name).alias("dimension"), value.alias("value")) for name, value in values.items()]
    keys = ("dimension", "value", "mended")
    rows = intervals.where(F.col("class") == OUTAGE).select(
        F.inline(F.array(*each)),
        F.col("ended_by").isin(*REPAIRED).alias("mended"),
        "duration_us",
        F.when(F.col("detection_us").isNotNull(), F.least("detection_us", "duration_us")).alias(
            "detection_us"
        ),
        "open",
    )
    mended = F.col("mended")
    return (
        ranked(rows, keys)
        .groupBy("dimension", "value")
        .agg(
            F.count("*").alias("outages"),
            F.count_if("open").alias("open"),
            F.try_sum("duration_us").alias("total_us"),
            F.coalesce(F.try_sum("detection_us"), F.lit(0)).alias("detection_us"),
            F.count("detection_us").alias("detected"),
            F.count_if("mended").alias("repaired"),
            F.round(F.avg(F.when(mended, F.col("duration_us")))).cast("bigint").alias("mean_us"),
            F.max(F.when(mended & value_at(50), F.col("duration_us"))).alias("p50_us"),
            F.max(F.when(mended & value_at(95), F.col("duration_us"))).alias("p95_us"),
            F.max(F.when(mended, F.col("duration_us"))).alias("max_us"),
        )
    )


def by_hour(intervals: DataFrame) -> DataFrame:
    """In which hours partitions were without a leader.

    In: `leaderless_intervals`. Out: ``hour_ts``, ``begun`` (outages that began in it), ``leaderless_us`` (time of all
    partitions in it, whenever the outages began). Only hours with any. An outage of a year costs no more than a short
    one: whole hours are counted by where they begin and end.
    """
    start, end = F.unix_micros("start_ts"), F.unix_micros("start_ts") + F.col("duration_us")
    given = intervals.where(F.col("class") == OUTAGE).select(
        start.alias("start"),
        end.alias("end"),
        _hour(start).alias("first"),
        _hour(end).alias("last"),
    )
    steps = given.selectExpr(
        f"""stack(3,
            first, 1L, least(end, (first + 1) * {HOUR_US}) - start, 0L,
            first + 1, 0L, 0L, if(last > first, 1L, 0L),
            last, 0L, if(last > first, end - last * {HOUR_US}, 0L), if(last > first, -1L, 0L)
        ) as (hour, begun, part, step)"""
    )
    changes = steps.groupBy("hour").agg(*(F.sum(name).alias(name) for name in ("begun", "part", "step")))
    ordered = Window.orderBy("hour")
    whole = changes.withColumns(
        {"running": F.sum("step").over(ordered), "following": F.lead("hour").over(ordered)}
    )
    hours = whole.selectExpr(
        "hour",
        "begun",
        "part",
        "running",
        "explode(sequence(hour, if(running > 0, following - 1, hour))) as at",
    )
    first = F.col("at") == F.col("hour")
    return hours.select(
        F.timestamp_micros(F.col("at") * HOUR_US).alias("hour_ts"),
        F.when(first, F.col("begun")).otherwise(0).alias("begun"),
        (F.col("running") * HOUR_US + F.when(first, F.col("part")).otherwise(0)).alias("leaderless_us"),
    ).where("begun > 0 or leaderless_us > 0")


def _hour(moment_us: Column) -> Column:
    return F.floor(moment_us / F.lit(HOUR_US)).cast("bigint")


def moved(records: DataFrame) -> DataFrame:
    """What controllers' records of commits say of each partition: by Spark. `arrow_commits` does the same for files of
    this machine.

    Out: `MOVED_COLUMNS`: ``leader_changes``, ``isr_changes``, and times, microseconds since 1970: of the first and the
    last record, the first creation and the last deletion.
    """
    kind, to = F.col("kind"), F.col("to")
    at = F.unix_micros("ts")
    commits = records.where((F.col("role") == "controller") & kind.isin(*COMMIT_KINDS)).select(
        "topic",
        F.col("partition").cast("int").alias("partition"),
        at.alias("at"),
        F.when((kind == "partition") & (F.col("from") == GONE) & (to == NEW), at).alias("created"),
        F.when((kind == "partition") & (to == GONE), at).alias("gone"),
        ((kind == "leader") & (F.col("from") != to)).alias("led"),
        (kind == "isr").alias("synced"),
    )
    return commits.groupBy("topic", "partition").agg(
        F.count_if("led").alias("leader_changes"),
        F.count_if("synced").alias("isr_changes"),
        *(F.min(name).alias(f"first_{name}") for name in ("at", "created")),
        *(F.max(name).alias(f"last_{name}") for name in ("at", "gone")),
    )


#: The columns of `moved` and their types.
MOVED_COLUMNS = {"topic": "string", "partition": "int"} | dict.fromkeys(
    ("leader_changes", "isr_changes", "first_at", "first_created", "last_at", "last_gone"), "bigint"
)


def partitions(moved: DataFrame, by_partition: DataFrame, first_us: int, last_us: int) -> DataFrame:
    """Every partition that the controllers' log names, and what happened to it.

    In: `moved`, `leaderless.by_partition`, times of the log's first and last line. Out: ``topic``, ``partition``,
    ``leader_changes``, ``isr_changes``, ``outages``, ``leaderless_us``, ``longest_us``, ``open`` (it has no leader at
    the end), ``since_ts`` (its creation, if its first record is that, else the log's beginning), ``until_ts`` (its
    deletion, if its last record is that, else the log's end), ``observed_us`` (between these two).
    """
    facts = [name for name in MOVED_COLUMNS if name not in ("topic", "partition")]
    of_outages = {
        "outages": "intervals",
        "leaderless_us": "total_us",
        "longest_us": "longest_us",
        "left": "open",
    }
    none = F.lit(None).cast("bigint")
    out = by_partition.where(F.col("class") == OUTAGE)
    # A union needs no sort, as a join does.
    sums = (
        moved.select("topic", "partition", *facts, *(none.alias(name) for name in of_outages))
        .unionAll(
            out.select(
                *("topic", "partition"),
                *(none.alias(name) for name in facts),
                *(F.col(column).alias(name) for name, column in of_outages.items()),
            )
        )
        .groupBy("topic", "partition")
        .agg(*(F.max(name).alias(name) for name in (*facts, *of_outages)))
    )
    since = F.when(F.col("first_created") == F.col("first_at"), F.col("first_at")).otherwise(first_us)
    until = F.when(F.col("last_gone") == F.col("last_at"), F.col("last_at")).otherwise(last_us)
    return sums.select(
        "topic",
        "partition",
        *("leader_changes", "isr_changes"),
        *(F.coalesce(name, F.lit(0)).alias(name) for name in ("outages", "leaderless_us", "longest_us")),
        (F.coalesce("left", F.lit(0)) > 0).alias("open"),
        F.timestamp_micros(since).alias("since_ts"),
        F.timestamp_micros(until).alias("until_ts"),
        F.greatest(until - since, F.lit(0)).alias("observed_us"),
    )


def availability(by_partition: DataFrame, asked: Asked) -> DataFrame:
    """How much of the time the partitions of a topic had a leader.

    In: `partitions`. Out: ``topic`` (null: all), ``partitions``, ``outages``, ``observed_us``, ``leaderless_us`` (sums
    over partitions), ``availability`` (percent; of no time: null), ``slo`` (percent), ``budget_us`` (time without a
    leader that it permits), ``budget_used`` (percent of it; null without an SLO, or with one of 100).
    """
    sums = by_partition.rollup("topic").agg(
        F.count("*").alias("partitions"),
        F.sum("outages").alias("outages"),
        F.try_sum("observed_us").alias("observed_us"),
        F.try_sum("leaderless_us").alias("leaderless_us"),
        F.sum(F.col("observed_us").cast("double")).alias("observed"),
        F.sum(F.col("leaderless_us").cast("double")).alias("leaderless"),
    )
    slo = F.lit(asked.slo).cast("double")
    budget = F.col("observed") * (100 - slo) / 100
    spent = F.least("leaderless", "observed")
    return sums.select(
        *("topic", "partitions", "outages", "observed_us", "leaderless_us"),
        F.try_divide((F.col("observed") - spent) * 100, F.col("observed")).alias("availability"),
        slo.alias("slo"),
        F.round(budget).cast("bigint").alias("budget_us"),
        F.try_divide(F.col("leaderless") * 100, budget).alias("budget_used"),
    )
