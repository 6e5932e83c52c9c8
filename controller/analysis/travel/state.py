"""The state of partitions and brokers at a moment, from the last record of each before it."""

from __future__ import annotations

from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from controller.analysis.travel.moments import Corrections, Cut
from controller.analysis.travel.terms import COMMITS, before, order
from proto.statelog.schema import GONE, NEW, ONLINE

KNOWN, UNKNOWN, ABSENT = "known", "unknown", "absent"
#: What a controller says of a broker's registration.
_REGISTERED = ("found", "online", "bounced", "modified")
_LEFT = "offline"
#: Cause of records about what a new controller finds.
_FAILOVER = "ControllerFailover"
_STATE = ("leader", "leader_epoch", "isr", "partition_epoch")
_SOURCE = ("ts", "controller_epoch", "event_id", "cause", "reason", "role", "node")


def state_partitions(records: DataFrame, cut: Cut, corrections: Corrections) -> DataFrame:
    """Every partition that existed at the moment, as far as the logs tell.

    Out: ``topic``, ``partition``; ``status``: known, or unknown (the logs name the partition, but not its state
    then: the other columns are null); ``state`` (of the partition state machine, null if the logs do not tell);
    ``leader`` (-1: none; null of a known partition: it had no state yet), ``leader_epoch``, ``isr``,
    ``partition_epoch``; ``replicas`` (null: the logs do not tell); and of the record of that change of leader or ISR
    (of the last that told them, if the logs do not have it): ``changed_ts``, ``controller_epoch``, ``event_id``,
    ``cause``, ``reason``, ``role``, ``node``.

    A broker's record of what it was told counts, too: it is there where a controller was killed between its write and
    its record.
    """
    seen = _evidence(records).withColumns({"past": before(cut, corrections), "at": order()})
    past, controller, kind = F.col("past"), F.col("role") == "controller", F.col("kind")
    machine, told = past & controller & (kind == "partition"), past & F.col("leader").isNotNull()
    assigned = past & F.col("replicas").isNotNull()
    change = controller & kind.isin("leader", "isr")

    def at(when: Column) -> Column:
        return F.when(when, F.col("at"))

    found = seen.groupBy("topic", "partition").agg(
        F.max(at(past)).alias("said_at"),
        F.max_by(F.struct(*_STATE, *_SOURCE), at(told)).alias("told"),
        F.max(at(told)).alias("told_at"),
        F.max_by(F.struct(*_STATE, *_SOURCE), at(told & change)).alias("decided"),
        F.max(at(told & change)).alias("decided_at"),
        F.max_by("replicas", at(assigned)).alias("replicas"),
        F.max(at(assigned)).alias("assigned_at"),
        F.max_by("to", at(machine)).alias("state"),
        F.max(at(machine)).alias("state_at"),
        F.max(at(machine & (F.col("to") == GONE))).alias("gone_at"),
        F.min_by(F.struct("kind", "to", "cause"), at(~past & controller)).alias("next"),
    )
    found = found.join(_gone_topics(records, cut, corrections), "topic", "left").withColumn(
        "gone_at", F.greatest("gone_at", "topic_gone_at")
    )
    judged = found.withColumn("status", _status()).where(F.col("status") != ABSENT)
    known = F.col("status") == KNOWN
    judged = judged.withColumn("told", F.when(_is_decided(), F.col("decided")).otherwise(F.col("told")))
    since = [
        F.when(known & _since_gone("told_at"), F.col(f"told.{name}"))
        .alias("changed_ts" if name == "ts" else name)
        for name in (*_STATE, *_SOURCE)
    ]  # fmt: skip
    return judged.select(
        "topic",
        F.col("partition").cast("int").alias("partition"),
        "status",
        F.when(known & (F.col("state") != GONE), _state()).alias("state"),
        *since[: len(_STATE)],
        F.when(known & _since_gone("assigned_at"), F.col("replicas")).alias("replicas"),
        *since[len(_STATE) :],
    )


def _state() -> Column:
    """A new partition of which a leader was told since has been created, though nobody recorded it."""
    led = (F.col("told_at") > F.col("state_at")) & (F.col("told.leader") >= 0)
    return F.when((F.col("state") == NEW) & led, F.lit(ONLINE)).otherwise(F.col("state"))


def _is_decided() -> Column:
    """Whether the last change that a controller recorded is the state: then that record tells why."""
    same = (F.col(f"told.{name}").eqNullSafe(F.col(f"decided.{name}")) for name in _STATE)
    return F.coalesce(reduce(and_, same, _since_gone("decided_at")), F.lit(False))


def _evidence(records: DataFrame) -> DataFrame:
    """Records that tell of a partition's state: controllers' decisions, and what brokers took from LeaderAndIsr."""
    kind, role = F.col("kind"), F.col("role")
    decided = (role == "controller") & kind.isin(*COMMITS)
    obeyed = (
        (role == "broker")
        & (kind == "replica")
        & F.col("to").isin("leader", "follower")
        & (F.col("event_id") > 0)
        & F.col("partition_epoch").isNotNull()
        & F.col("reason").isNull()
    )
    return records.where((decided | obeyed) & (F.col("controller_epoch") >= 0))


def _gone_topics(records: DataFrame, cut: Cut, corrections: Corrections) -> DataFrame:
    """Out: ``topic``, ``topic_gone_at`` (`order`): deleted, or removed by hand."""
    gone = (F.col("kind") == "topic") & F.col("to").isin("deleted", "vanished")
    of_controllers = (F.col("role") == "controller") & (F.col("controller_epoch") >= 0)
    past = records.where(of_controllers & gone & before(cut, corrections))
    return past.groupBy("topic").agg(F.max(order()).alias("topic_gone_at"))


def _since_gone(at: str) -> Column:
    return F.col(at).isNotNull() & (F.col("gone_at").isNull() | (F.col(at) > F.col("gone_at")))


def _status() -> Column:
    """A partition that is first named after the moment existed, unless the record is that of its creation."""
    later = F.col("said_at").isNull() & F.col("next").isNotNull()
    created_later = (
        (F.col("next.kind") == "partition") & (F.col("next.to") == NEW) & (F.col("next.cause") != _FAILOVER)
    )
    named = F.when(_since_gone("told_at") | (F.col("state") == NEW), F.lit(KNOWN)).otherwise(F.lit(UNKNOWN))
    return (
        F.when(_since_gone("said_at"), named)
        .when(later & ~F.coalesce(created_later, F.lit(False)), F.lit(UNKNOWN))
        .otherwise(F.lit(ABSENT))
    )


def state_brokers(records: DataFrame, cut: Cut, corrections: Corrections) -> DataFrame:
    """Every broker that controllers had named by then.

    Out: ``broker``, ``live`` (registered in ZooKeeper, as the controller knew it; null: the logs do not tell, as the
    last failover's brokers are not all named), ``told`` (what was said last: found, online, bounced, modified or
    offline; not found: not at the last failover), ``since_ts`` and ``controller_epoch`` of that record.
    """
    of_brokers = (F.col("role") == "controller") & (F.col("kind") == "broker")
    named = of_brokers & F.col("to").isin(*_REGISTERED, _LEFT) & F.col("replica").isNotNull()
    past = records.where(named & (F.col("controller_epoch") >= 0) & before(cut, corrections))
    last = past.groupBy(F.col("replica").cast("int").alias("broker")).agg(
        F.max_by(F.struct("to", "ts", "controller_epoch"), order()).alias("last")
    )
    epoch, to = F.col("last.controller_epoch"), F.col("last.to")
    missing = (epoch < cut.base.epoch) & (to != _LEFT) if cut.base is not None else F.lit(False)
    absent = False if cut.base is not None and cut.base.names_all_brokers else None
    return last.select(
        "broker",
        F.when(~missing, to != _LEFT).otherwise(F.lit(absent).cast("boolean")).alias("live"),
        F.when(missing, F.lit("not found")).otherwise(to).alias("told"),
        F.col("last.ts").alias("since_ts"),
        epoch.alias("controller_epoch"),
    )


def partitions_expected(records: DataFrame, cut: Cut, corrections: Corrections) -> int | None:
    """How many partitions there were: as many as the last failover counted, and those created and deleted since.

    None: no failover was over by then, or a topic was removed by hand since.
    """
    base = cut.base
    if base is None or base.partitions is None or base.counted_us is None:
        return None
    epoch, event = F.col("controller_epoch"), F.col("event_id")
    same = (event == F.lit(base.ready_event)) & (F.unix_micros("ts") >= base.counted_us)
    later = (epoch > base.epoch) | ((epoch == base.epoch) & (same | (event > F.lit(base.ready_event))))
    since = records.where((F.col("role") == "controller") & later & before(cut, corrections))
    moves, to = F.col("kind") == "partition", F.col("to")
    counted = since.agg(
        F.count_if(moves & (to == NEW) & (F.col("cause") != _FAILOVER)).alias("created"),
        F.count_if(moves & (to == GONE)).alias("deleted"),
        F.count_if((F.col("kind") == "topic") & (to == "vanished")).alias("vanished"),
    ).first()
    assert counted is not None
    return None if counted.vanished else int(base.partitions + counted.created - counted.deleted)
