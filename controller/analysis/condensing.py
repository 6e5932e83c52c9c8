"""Alike records as one row: nearly all tables are made from these, which are few for any number of lines."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from controller.analysis.intake.fields import CONDENSED_KINDS

SECOND_US = 1_000_000

#: What tells rows apart.
_KEYS = ("file", "role", "node", "controller_epoch", "kind", *CONDENSED_KINDS, "reason", "second_us")

#: The columns of `condense`.
COLUMNS = """file string, role string, node bigint, controller_epoch bigint, kind string, `from` string, `to` string,
 replica bigint, error string, duration_us bigint, reason string, second_us bigint, first_ts timestamp,
 last_ts timestamp, longest_us bigint, spent_us bigint, lines bigint, counted bigint, meant bigint"""


def condense(records: DataFrame, *more: Column) -> DataFrame:
    """One row for records that only the tables of single lines tell apart.

    In: records (`staging.Staged.records`). Out: ``file``, ``role``, ``node``, ``controller_epoch``, ``kind``;
    ``from``, ``to``, ``replica``, ``error``, ``duration_us`` for the kinds of CONDENSED_KINDS; ``reason`` of rejects,
    refused acks and leader changes; ``second_us``: a leader change's time, to the second. And of the lines that the row
    stands for: ``lines`` (how many), ``first_ts``, ``last_ts``, ``counted`` (sum of ``count``, null if none has it),
    ``meant`` (the same with 1 where it is absent), ``spent_us``, ``longest_us`` (sum and maximum of ``duration_us``),
    and ``more``, aggregates of the lines.
    """
    kind = F.col("kind")

    def kept(name: str, when: Column) -> Column:
        return F.when(when, F.col(name)).alias(name)

    second = F.floor(F.unix_micros("ts") / F.lit(SECOND_US)).cast("bigint") * SECOND_US
    refused = kind.isin("reject", "leader") | ((kind == "ack") & F.col("error").isNotNull())
    keys = [
        *(F.col(name) for name in ("file", "role", "node", "controller_epoch", "kind")),
        *(kept(name, kind.isin(*kinds)) for name, kinds in CONDENSED_KINDS.items()),
        kept("reason", refused),
        F.when(kind == "leader", second).alias("second_us"),
    ]
    return records.groupBy(*keys).agg(
        F.count("*").alias("lines"),
        F.min("ts").alias("first_ts"),
        F.max("ts").alias("last_ts"),
        F.sum("count").alias("counted"),
        F.sum(F.coalesce("count", F.lit(1))).alias("meant"),
        F.try_sum(F.col("duration_us")).alias("spent_us"),
        F.max("duration_us").alias("longest_us"),
        *more,
    )


def merge(condensed: DataFrame, *more: Column) -> DataFrame:
    """Rows of `condense` of several parts as those of the whole. ``more``: aggregates of their ``more``."""
    return condensed.groupBy(*_KEYS).agg(
        F.min("first_ts").alias("first_ts"),
        F.max("last_ts").alias("last_ts"),
        F.max("longest_us").alias("longest_us"),
        F.try_sum("spent_us").alias("spent_us"),
        *(F.sum(name).alias(name) for name in ("lines", "counted", "meant")),
        *more,
    )
