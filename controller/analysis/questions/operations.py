"""Reassignments and deletions from request to end: what took long, and what is stuck."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from controller.analysis.leaderless import ORDER

REASSIGNMENT, DELETION = "reassignment", "deletion"
OPEN = "open"
_BEGINS = ("moving", "settling", "deleting")
_ENDS = ("moved", "cancelled", "deleted", "vanished", "known")
_WAITS = ("held up", "waiting for deletion", "ineligible for deletion")
#: The category of a reject.
HELD_UP = "REASSIGNMENT_HELD_UP"
_STEPS = ("queued", *_BEGINS, *_ENDS, *_WAITS)


def operations(events: DataFrame, log_end_us: int) -> DataFrame:
    """Reassignments of partitions, and deletions of topics.

    In: records of kinds ``reassignment`` and ``topic``, and rejects. Out: ``operation`` (`REASSIGNMENT`, `DELETION`),
    ``topic``, ``partition`` (null of a deletion), ``outcome`` (moved, cancelled, deleted, vanished, known; `OPEN`: no
    end in the log), ``asked_ts`` (its first record), ``begun_ts`` (null: it has not begun in this log), ``ended_ts``,
    ``waited_us`` (from asked to begun, or to the end if it never began), ``took_us`` (from asked to the end;
    if open, to the log's last line, ``log_end_us``), ``begun`` (how often: more than once if replaced or begun anew),
    ``held_up`` (records of it that say why it cannot go on), ``reason`` (the last).
    """
    kind = F.col("kind")
    held_up = (kind == "reject") & (F.col("error") == HELD_UP)
    # A topic removed by hand, or one that could not be created, was not asked to be deleted.
    unasked = F.col("from").isin("known", "created") & F.col("to").isin("vanished", "deleted")
    asked = (kind == "reassignment") | held_up | ((kind == "topic") & ~F.coalesce(unasked, F.lit(False)))
    steps = (
        events.where((F.col("role") == "controller") & F.col("topic").isNotNull() & asked)
        .withColumns(
            {
                "operation": F.when(kind == "topic", F.lit(DELETION)).otherwise(F.lit(REASSIGNMENT)),
                "step": F.when(held_up, F.lit("held up")).otherwise(F.col("to")),
            }
        )
        .where(F.col("step").isin(*_STEPS))
    )
    whose = ("operation", "topic", "partition")
    earlier = Window.partitionBy(*whose).orderBy(*ORDER).rowsBetween(Window.unboundedPreceding, -1)
    ends = F.col("step").isin(*_ENDS)
    numbered = steps.withColumn("number", F.coalesce(F.count_if(ends).over(earlier), F.lit(0)))
    begins, at = F.col("step").isin(*_BEGINS), F.unix_micros("ts")
    each = numbered.groupBy(*whose, "number").agg(
        F.coalesce(F.max(F.when(ends, F.col("step"))), F.lit(OPEN)).alias("outcome"),
        F.min(at).alias("asked"),
        F.min(F.when(begins, at)).alias("began"),
        F.max(F.when(ends, at)).alias("ended"),
        F.count_if(begins).alias("begun"),
        F.count_if(F.col("step").isin(*_WAITS)).alias("held_up"),
        F.max_by("reason", F.when(F.col("reason").isNotNull(), F.struct(*ORDER))).alias("reason"),
    )
    until = F.coalesce("ended", F.lit(log_end_us))
    return each.select(
        *("operation", "topic"),
        F.col("partition").cast("int").alias("partition"),
        "outcome",
        F.timestamp_micros("asked").alias("asked_ts"),
        F.timestamp_micros("began").alias("begun_ts"),
        F.timestamp_micros("ended").alias("ended_ts"),
        F.greatest(F.coalesce("began", until) - F.col("asked"), F.lit(0)).alias("waited_us"),
        F.greatest(until - F.col("asked"), F.lit(0)).alias("took_us"),
        *("begun", "held_up", "reason"),
    )
