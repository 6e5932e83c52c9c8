"""What changed between two moments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from controller.analysis.travel.state import ABSENT, KNOWN

_FIELDS = ("leader", "leader_epoch", "isr", "replicas", "state")
_CAUSES = ("changed_ts", "controller_epoch", "event_id", "cause", "reason")


def partition_differences(former: DataFrame, later: DataFrame) -> DataFrame:
    """In: `state_partitions` of two moments. Out, for each field of a partition that differs: ``topic``,
    ``partition``, ``field`` (status, or one of leader, leader_epoch, isr, replicas, state where both are known),
    ``before``, ``after`` as text, and of the later state's record ``changed_ts``, ``controller_epoch``, ``event_id``,
    ``cause``, ``reason``.

    What is not known at one of the moments is no change: only the status tells.
    """
    both = _joined(former, later, ("topic", "partition"))
    known = (F.col("a.status") == KNOWN) & (F.col("b.status") == KNOWN)
    status = _change("status", F.lit(True), F.lit(ABSENT))
    fields = [_change(name, known & _told(name), F.lit(None)) for name in _FIELDS]
    return _exploded(both, ("topic", "partition"), [status, *fields], {name: name for name in _CAUSES})


def broker_differences(former: DataFrame, later: DataFrame) -> DataFrame:
    """In: `state_brokers` of two moments. Out: ``broker``, ``field`` (live), ``before``, ``after`` as text (a broker
    that nobody had named is absent), ``changed_ts``, ``controller_epoch``. Where it is not known, it is no change."""
    both = _joined(former, later, ("broker",))
    known = [F.col(side).isNull() | F.col(f"{side}.live").isNotNull() for side in "ab"]
    causes = {"changed_ts": "since_ts", "controller_epoch": "controller_epoch"}
    return _exploded(both, ("broker",), [_change("live", known[0] & known[1], F.lit(ABSENT))], causes)


def _joined(former: DataFrame, later: DataFrame, keys: Sequence[str]) -> DataFrame:
    sides = [
        table.select(*keys, F.struct(*(name for name in table.columns if name not in keys)).alias(side))
        for table, side in ((former, "a"), (later, "b"))
    ]
    return sides[0].join(sides[1], list(keys), "full_outer")


def _told(name: str) -> Column:
    """Leader and ISR of a known partition are told, if null: it had none yet."""
    if name in ("replicas", "state"):
        return F.col(f"a.{name}").isNotNull() & F.col(f"b.{name}").isNotNull()
    return F.lit(True)


def _change(name: str, when: Column, absent: Column) -> Column:
    """A struct of what differs; null if nothing does."""
    sides = [F.coalesce(F.col(f"{side}.{name}").cast("string"), absent.cast("string")) for side in "ab"]
    differs = when & ~sides[0].eqNullSafe(sides[1])
    told = F.struct(F.lit(name).alias("field"), sides[0].alias("before"), sides[1].alias("after"))
    return F.when(differs, told)


def _exploded(
    both: DataFrame, keys: Sequence[str], changes: Sequence[Column], causes: Mapping[str, str]
) -> DataFrame:
    """``causes``: column of the later state by the name it gets."""
    change = F.explode(F.array_compact(F.array(*changes))).alias("change")
    told = [F.col(f"b.{column}").alias(name) for name, column in causes.items()]
    return both.select(*keys, change, *told).select(*keys, "change.*", *causes)
