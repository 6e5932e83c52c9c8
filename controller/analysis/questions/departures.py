"""Brokers that left and came back: flapping brokers, and rolling restarts.

The controllers' records of kind ``broker`` tell. Not known from them: brokers that left while no controller was
active, and how many in-sync replicas a topic wants.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from controller.analysis.leaderless import ORDER, OUTAGE

#: A broker flaps that is lost, without a controlled shutdown, so often within so long.
FLAPPING_LOSSES, FLAPPING_WINDOW_US = 3, 3_600_000_000
#: Departures that follow each other within this time, counted from the last return, belong together.
TOGETHER_US = 600_000_000
#: What a broker's records say that move it between live and gone.
_LEFT = ("offline", "bounced")
_MOVES = (*_LEFT, "online", "shutting_down")
#: A new controller saw it registered: it is alive, and may be shutting down all the same.
_FOUND = "found"


def departures(events: DataFrame, caused: DataFrame) -> DataFrame:
    """Each time that a broker's registration was lost, as a controller saw it.

    In: records of kind ``broker``, `caused`. Out: ``broker``, ``left_ts`` (its last sign, where the
    record tells, else the record), ``recorded_ts``, ``to`` (offline, or bounced: it had registered anew before the loss
    was seen), ``controlled`` (after a controlled shutdown), ``back_ts`` (null: its return is not in the log),
    ``away_us``, ``returned`` (whether the log shows it alive later), ``detection_us``, ``overlapping`` (another broker
    was away), ``together`` (a number that departures have in common which follow each other), ``partitions`` and
    ``leaderless_us`` (the outages that the same event began with this broker as lost leader), ``controller_epoch``,
    ``event_id``, ``node``.
    """
    of_broker = Window.partitionBy("replica").orderBy(*ORDER)
    told = (F.col("role") == "controller") & F.col("to").isin(*_MOVES, _FOUND) & (F.col("replica") >= 0)
    moved = F.when(F.col("to") != _FOUND, F.col("to"))
    earlier_of_broker = of_broker.rowsBetween(Window.unboundedPreceding, -1)
    around = events.where(told).withColumns(
        {
            "before": F.last(moved, ignorenulls=True).over(earlier_of_broker),
            "following": F.lead(F.struct("from", "to", "ts")).over(of_broker),
        }
    )
    came_back = (F.col("following.from") == "offline") & (F.col("following.to") == "online")
    bounced = F.col("to") == "bounced"
    left = around.where(F.col("to").isin(*_LEFT)).select(
        F.col("replica").cast("int").alias("broker"),
        F.timestamp_micros(F.unix_micros("ts") - F.coalesce("silent_us", F.lit(0))).alias("left_ts"),
        F.col("ts").alias("recorded_ts"),
        "to",
        (F.coalesce("before", F.lit("")) == "shutting_down").alias("controlled"),
        F.when(bounced, F.col("ts")).when(came_back, F.col("following.ts")).alias("back_ts"),
        (bounced | F.col("following").isNotNull()).alias("returned"),
        F.col("silent_us").alias("detection_us"),
        *("controller_epoch", "event_id", "node"),
    )
    ordered = Window.orderBy("left_ts", "recorded_ts", "broker")
    earlier = ordered.rowsBetween(Window.unboundedPreceding, -1)
    known_end = F.greatest("left_ts", F.coalesce("back_ts", "left_ts"))
    away_until = F.coalesce(
        "back_ts", F.when(F.col("returned"), F.col("left_ts")), F.lit(_NEVER).cast("timestamp")
    )
    gap_us = F.unix_micros("left_ts") - F.unix_micros(F.max(known_end).over(earlier))
    numbered = left.withColumns(
        {
            "overlapping": F.coalesce(F.max(away_until).over(earlier) > F.col("left_ts"), F.lit(False)),
            "begins": F.coalesce(gap_us > TOGETHER_US, F.lit(False)).cast("int"),
        }
    ).withColumn("together", F.sum("begins").over(ordered) + 1)
    away_us = F.unix_micros("back_ts") - F.unix_micros("left_ts")
    costly = numbered.join(caused, ["broker", "controller_epoch", "event_id"], "left")
    return costly.select(
        *("broker", "left_ts", "recorded_ts", "to", "controlled", "back_ts"),
        F.when(F.col("back_ts").isNotNull(), F.greatest(away_us, F.lit(0))).alias("away_us"),
        *("returned", "detection_us", "overlapping", "together"),
        *(F.coalesce(name, F.lit(0)).alias(name) for name in ("partitions", "leaderless_us")),
        *("controller_epoch", "event_id", "node"),
    )


def caused(intervals: DataFrame) -> DataFrame:
    """The outages that an event began with the same lost leader.

    In: `leaderless_intervals`. Out: ``broker``, ``controller_epoch``, ``event_id``, ``partitions``, ``leaderless_us``.
    """
    return (
        intervals.where((F.col("class") == OUTAGE) & F.col("lost_leader").isNotNull())
        .groupBy(F.col("lost_leader").cast("int").alias("broker"), "controller_epoch", "event_id")
        .agg(F.count("*").alias("partitions"), F.try_sum("duration_us").alias("leaderless_us"))
    )


#: Later than any record's time.
_NEVER = "2999-01-01"


def stability(left: DataFrame) -> DataFrame:
    """How often each broker left.

    In: `departures`. Out: ``broker``, ``departures``, ``controlled``, ``lost`` (without a controlled shutdown),
    ``away_us``, ``longest_away_us``, ``most_lost`` (losses within any FLAPPING_WINDOW_US), ``most_lost_ts`` (where that
    began), ``flapping`` (at least FLAPPING_LOSSES), ``partitions``, ``leaderless_us``.
    """
    at = F.unix_micros("left_ts")
    within = Window.partitionBy("broker").orderBy(at).rangeBetween(0, FLAPPING_WINDOW_US)
    lost = ~F.col("controlled")
    counted = left.withColumn("most", F.when(lost, F.count_if(lost).over(within)).otherwise(0))
    first = F.when(F.max("most") > 0, F.max_by("left_ts", F.struct("most", -at)))
    return counted.groupBy("broker").agg(
        F.count("*").alias("departures"),
        F.count_if("controlled").alias("controlled"),
        F.count_if(lost).alias("lost"),
        F.coalesce(F.try_sum("away_us"), F.lit(0)).alias("away_us"),
        F.max("away_us").alias("longest_away_us"),
        F.max("most").alias("most_lost"),
        first.alias("most_lost_ts"),
        (F.max("most") >= FLAPPING_LOSSES).alias("flapping"),
        F.sum("partitions").alias("partitions"),
        F.try_sum("leaderless_us").alias("leaderless_us"),
    )


#: What is wrong with a rolling restart, in this order.
FINDINGS = ("uncontrolled", "overlapping", "leaderless", "repeated", "not back")


def rolling_restarts(left: DataFrame) -> DataFrame:
    """Departures of at least two brokers, one after the other, and how well that went.

    In: `departures`. Out: ``together``, ``first_ts``, ``last_ts`` (the last return, or departure), ``brokers`` (array),
    ``departures``, ``controlled``, ``overlapping``, ``longest_away_us``, ``detection_us``, ``partitions``,
    ``leaderless_us``, ``findings`` (array of FINDINGS; empty: every broker left once, after a controlled shutdown,
    while no other was away, no partition lost its leader, and all came back).
    """
    sums = left.groupBy("together").agg(
        F.min("left_ts").alias("first_ts"),
        F.max(F.coalesce("back_ts", "left_ts")).alias("last_ts"),
        F.array_sort(F.collect_set("broker")).alias("brokers"),
        F.count("*").alias("departures"),
        *(F.count_if(name).alias(name) for name in ("controlled", "overlapping", "returned")),
        F.max("away_us").alias("longest_away_us"),
        F.coalesce(F.try_sum("detection_us"), F.lit(0)).alias("detection_us"),
        F.sum("partitions").alias("partitions"),
        F.try_sum("leaderless_us").alias("leaderless_us"),
    )
    brokers, count = F.size("brokers"), F.col("departures")
    wrong = (
        F.col("controlled") < count,
        F.col("overlapping") > 0,
        F.col("partitions") > 0,
        brokers < count,
        F.col("returned") < count,
    )
    found = [F.when(is_so, F.lit(name)) for name, is_so in zip(FINDINGS, wrong, strict=True)]
    return (
        sums.where((brokers > 1) & (count - F.col("overlapping") > 1))
        .withColumn("findings", F.array_compact(F.array(*found)))
        .drop("returned")
    )
