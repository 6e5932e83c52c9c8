"""How much the nodes' clocks differ, as far as the logs prove it.

A control request binds three times of one event: the controller sent it, the broker wrote what it did, the controller
had the answer. And what a controller decided was durable before the next controller was elected.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from controller.analysis.travel.moments import Term, Writer

PUSHES, EPOCHS = "pushes", "epochs"
_SKEW_TYPE = """array<struct<role string, node bigint, against_role string, against_node bigint, evidence string,
 observations bigint, least_us bigint, most_us bigint, correction_us bigint, consistent boolean,
 applied_us bigint>>"""


@dataclass(frozen=True)
class Bound:
    """What must be added to the clock of ``node`` to agree with that of ``against``: from ``least_us`` to ``most_us``
    (None: no upper limit), by so many observations."""

    node: Writer
    against: Writer
    evidence: str
    observations: int
    least_us: int
    most_us: int | None = None

    @property
    def consistent(self) -> bool:
        """False: one of the clocks was set, or drifted, in the time of the logs."""
        return self.most_us is None or self.least_us <= self.most_us

    @property
    def correction_us(self) -> int:
        """The smallest correction that puts their records in order; 0 where none does."""
        if not self.consistent:
            return 0
        most = max(self.least_us, 0) if self.most_us is None else self.most_us
        return min(max(0, self.least_us), most)


def bounds_of(records: DataFrame, terms: Sequence[Term]) -> list[Bound]:
    """In: records with all fields, and their epochs."""
    return [*_by_pushes(records), *_by_epochs(terms)]


def _by_pushes(records: DataFrame) -> list[Bound]:
    kind, us = F.col("kind"), F.unix_micros("ts")
    asked = (F.col("role") == "controller") & kind.isin("push", "ack")
    did = (F.col("role") == "broker") & kind.isin("replica", "unchanged")
    talk = records.where((asked | did) & (F.col("controller_epoch") >= 0) & (F.col("event_id") > 0))
    broker = F.when(asked, F.col("replica")).otherwise(F.col("node"))
    rounds = talk.groupBy("controller_epoch", "event_id", broker.alias("broker")).agg(
        F.min(F.when(asked, F.col("node"))).alias("controller"),
        F.min(F.when(kind == "push", us)).alias("sent_us"),
        F.max(F.when(kind == "ack", us)).alias("answered_us"),
        F.min(F.when(did, us)).alias("first_us"),
        F.max(F.when(did, us)).alias("last_us"),
    )
    whole = rounds.where("sent_us is not null and answered_us is not null and first_us is not null")
    pairs = whole.groupBy("controller", "broker").agg(
        F.count("*").alias("observations"),
        F.max(F.col("sent_us") - F.col("first_us")).alias("least_us"),
        F.min(F.col("answered_us") - F.col("last_us")).alias("most_us"),
    )
    return [
        Bound(
            ("broker", row.broker),
            ("controller", row.controller),
            PUSHES,
            row.observations,
            row.least_us,
            row.most_us,
        )
        for row in pairs.orderBy("controller", "broker").collect()
    ]


def _by_epochs(terms: Sequence[Term]) -> list[Bound]:
    found: dict[tuple[Writer, Writer], list[int]] = {}
    for former, later in pairwise(terms):
        if former.node != later.node and former.last_us is not None:
            pair = ("controller", later.node), ("controller", former.node)
            found.setdefault(pair, []).append(former.last_us - later.began_us)
    return [
        Bound(node, against, EPOCHS, len(gaps), max(gaps)) for (node, against), gaps in sorted(found.items())
    ]


def corrections_of(bounds: Sequence[Bound]) -> dict[Writer, int]:
    """What is added to each node's clock so that all bounds hold: clocks that are behind are put forward, or the others
    back, whichever moves them less in all.

    Where that cannot be, what epochs say is left out: a controller that was stopped between a write and its record
    seems to have a clock that is ahead.
    """
    sound = [bound for bound in bounds if bound.consistent]
    for taken in (sound, [bound for bound in sound if bound.evidence == PUSHES]):
        nodes = sorted({writer for bound in taken for writer in (bound.node, bound.against)})
        limits = [limit for bound in taken for limit in _limits(bound)]
        forward = _solve(nodes, limits)
        if forward is None:
            continue
        turned = [(later, earlier, us) for earlier, later, us in limits]
        back = {node: -us for node, us in (_solve(nodes, turned) or {}).items()}
        return min(forward, back, key=lambda found: sum(map(abs, found.values())))
    return {}


_Limit = tuple[Writer, Writer, int]


def _limits(bound: Bound) -> Iterable[_Limit]:
    """As (a, b, us): what is added to b's clock is at least what is added to a's, and ``us``."""
    yield bound.against, bound.node, bound.least_us
    if bound.most_us is not None:
        yield bound.node, bound.against, -bound.most_us


def _solve(nodes: Sequence[Writer], limits: Sequence[_Limit]) -> dict[Writer, int] | None:
    """The least values from 0 on that meet all limits (Bellman and Ford); None if nothing does."""
    found = dict.fromkeys(nodes, 0)
    for _ in range(len(nodes) + 1):
        changed = False
        for a, b, us in limits:
            if found[b] < found[a] + us:
                found[b] = found[a] + us
                changed = True
        if not changed:
            return found
    return None


def skew_table(spark: SparkSession, bounds: Sequence[Bound], corrections: dict[Writer, int]) -> DataFrame:
    """Out, for each pair of nodes and kind of evidence: ``role``, ``node``, ``against_role``, ``against_node``,
    ``evidence`` (pushes or epochs), ``observations``, ``least_us``, ``most_us``, ``correction_us``, ``consistent``
    (`Bound`), and ``applied_us``: what was added to the node's times."""
    rows = []
    for bound in bounds:
        row = asdict(bound) | {"correction_us": bound.correction_us, "consistent": bound.consistent}
        (row["role"], row["node"]), (row["against_role"], row["against_node"]) = bound.node, bound.against
        rows.append(row | {"applied_us": corrections.get(bound.node, 0)})
    # Not by createDataFrame, for which Spark starts Python workers.
    given = F.from_json(F.lit(json.dumps(rows)), _SKEW_TYPE)
    return spark.range(1).select(F.inline(given))
