"""The controller epochs in the logs, and which records came before a moment."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from controller.analysis.travel.moments import Corrections, Cut, Term
from proto.statelog.schema import READY

#: Records of durable changes.
COMMITS = ("partition", "leader", "isr", "reassignment")
#: Records that only the active controller writes.
_ACTING = (*COMMITS, "failover", "replica", "broker", "topic", "push")


def terms_of(records: DataFrame) -> list[Term]:
    """The epochs, in order. Should two nodes claim one, the first to act is its controller.

    In: records with all fields (`notebook.Logs.records`).
    """
    kind, to, us = F.col("kind"), F.col("to"), F.unix_micros("ts")
    life = (kind == "controller") & to.isin("active", "resigned")
    failover = kind == "failover"
    counts = failover & (to == "partitions")
    acting = (F.col("role") == "controller") & (F.col("controller_epoch") >= 0)
    found = (
        records.where(acting & (kind.isin(*_ACTING) | life))
        .groupBy(F.col("controller_epoch").alias("epoch"))
        .agg(
            F.min_by("node", "ts").alias("node"),
            F.min(us).alias("began_us"),
            F.max(F.when(kind.isin(*COMMITS), us)).alias("last_us"),
            F.min(F.when(failover & (to == READY), us)).alias("ready_us"),
            F.min(F.when(failover & (to == READY), F.col("event_id"))).alias("ready_event"),
            F.max(F.when((kind == "controller") & (to == "resigned"), us)).alias("resigned_us"),
            F.max(F.when(failover & (to == "brokers"), F.col("count"))).alias("brokers"),
            F.max(F.when(counts, F.col("count"))).alias("partitions"),
            F.max(F.when(counts, us)).alias("counted_us"),
            F.count_distinct(F.when((kind == "broker") & (to == "found"), F.col("replica"))).alias("named"),
        )
    )
    return sorted((Term(**row.asDict()) for row in found.collect()), key=lambda term: term.epoch)


def corrected_us(corrections: Corrections) -> Column:
    """A record's time by corrected clocks, microseconds since 1970."""
    shift = F.lit(0)
    for (role, node), us in corrections.items():
        if us:
            shift = F.when((F.col("role") == role) & (F.col("node") == node), us).otherwise(shift)
    return F.unix_micros("ts") + shift


def before(cut: Cut, corrections: Corrections) -> Column:
    """Whether a record came before the cut."""
    epoch = F.col("controller_epoch")
    within = (
        F.col("event_id") <= cut.event
        if cut.event is not None
        else corrected_us(corrections) <= F.lit(cut.until_us)
    )
    return (epoch < cut.term.epoch) | ((epoch == cut.term.epoch) & within)


def order() -> Column:
    """The order of records of one partition, whichever clocks wrote them."""
    version = F.coalesce("partition_epoch", F.lit(-1))
    return F.struct("controller_epoch", "event_id", version.alias("version"), "ts", "file", "block", "line")
