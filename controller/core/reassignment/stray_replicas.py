"""Replicas that left an assignment: out of the ISR, stopped, deleted, and not forgotten until their broker says so.

The original takes a replica for deleted as soon as its broker was told. A move is complete then here as well, but
the replica stays recorded, in the topic znode too, and its broker is told again after a refusal, when it returns and
by the next controller (reference, section 14, point 7).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from controller.core.backoff import RETRY_FIRST_US, retry_pause_us
from controller.core.context import EventContext, FollowUp, Handler
from controller.core.events import StopReport
from controller.core.model import (
    NO_LEADER,
    BrokerIds,
    Cluster,
    Ineligible,
    Partition,
    PartitionState,
    ReplicaState,
    Topic,
)
from controller.core.partitions import partition_state_machine, replica_state_machine
from controller.core.partitions.replica_state_machine import Replica
from controller.core.reasons import Reason, Refused
from controller.core.reassignment.reasons import BrokerAbsent, Notified
from controller.core.reassignment.topic_znode import entry_of, write_entries

#: How long a topic znode names deleted replicas at most, while brokers have not answered for others of its topic.
RECORD_LATEST_US = 1_000_000
#: Why a replica is out of the state machine already; its broker's answer is awaited outside of it.
NOT_AWAITED = "it left the assignment; its broker has not answered yet"


def stop(context: EventContext, replicas: Sequence[Replica]) -> Handler[None]:
    """Replicas outside their assignment: Offline, then deleted without waiting for the answer."""
    going: dict[Partition, BrokerIds] = {}
    for partition, broker_id in replicas:
        going[partition] = (*going.get(partition, ()), broker_id)
    failed = yield from out_of_isr(context, going)
    for partition, why in failed.items():
        for broker_id in going[partition]:
            context.cluster.reassignments.keep_stray(
                partition, broker_id, Ineligible(why, context.now_us + RETRY_FIRST_US)
            )
    leaderless = [p for p in going if p.leadership is not None and p.leadership.leader == NO_LEADER]
    led_before = [p for p in leaderless if p.state is PartitionState.ONLINE]
    if led_before:
        partition_state_machine.to_offline(
            context, led_before, "its leader's replica is not assigned any more"
        )
        yield from partition_state_machine.bring_online(context)
    delete(context, [r for r in replicas if r[0] not in failed])


def out_of_isr(
    context: EventContext, going: Mapping[Partition, BrokerIds]
) -> Handler[dict[Partition, Reason]]:
    """Replicas go Offline, one of each partition at a time: a leader epoch each (reference, section 8.2).

    Returns the partitions that keep theirs, with the reason.
    """
    failed: dict[Partition, Reason] = {}
    for position in range(max(map(len, going.values()), default=0)):
        each = [(p, ids[position]) for p, ids in going.items() if p not in failed and position < len(ids)]
        failed.update((yield from replica_state_machine.to_offline(context, each, "not assigned any more")))
    return failed


def delete(context: EventContext, replicas: Sequence[Replica]) -> None:
    """Offline replicas are told to delete, and leave the context."""
    replica_state_machine.to_deletion_started(context, replicas)
    replica_state_machine.to_deletion_successful(context, replicas, NOT_AWAITED)
    replica_state_machine.to_non_existent(context, replicas, NOT_AWAITED)
    for partition, broker_id in replicas:
        _notified(context, partition, broker_id)


def _notified(context: EventContext, partition: Partition, broker_id: int) -> None:
    there = broker_id in context.cluster.brokers
    context.cluster.reassignments.keep_stray(
        partition, broker_id, Ineligible(Notified() if there else BrokerAbsent())
    )


def retry(context: EventContext, ids: Collection[int] | None) -> Handler[None]:
    """Tell brokers again what they were told in vain: these brokers, or all of them at failover."""
    yield from _again(context, [(p, b) for p, b, _ in _all(context.cluster) if ids is None or b in ids])


def retry_of(context: EventContext, partitions: Collection[Partition]) -> Handler[None]:
    """Tell the brokers of these partitions' leftovers again."""
    yield from _again(context, [(p, b) for p, b, _ in _all(context.cluster) if p in partitions])


def retry_overdue(context: EventContext) -> Handler[None]:
    """Tell brokers again whose refusal is some time ago."""
    yield from _again(
        context, [(p, b) for p, b, held in _all(context.cluster) if _is_due(held, context.now_us)]
    )


def due(cluster: Cluster, now_us: int) -> bool:
    """Whether a refused deletion is to be tried again, or one that was confirmed is to be recorded."""
    overdue = any(_is_overdue(since, now_us) for since in cluster.reassignments.confirmed.values())
    return overdue or any(_is_due(held, now_us) for _, _, held in _all(cluster))


def _is_due(held: Ineligible, now_us: int) -> bool:
    return held.retry_at_us is not None and held.retry_at_us <= now_us


def _is_overdue(confirmed_us: int, now_us: int) -> bool:
    return confirmed_us + RECORD_LATEST_US <= now_us


def _all(cluster: Cluster) -> Iterator[tuple[Partition, int, Ineligible]]:
    for partition, by_broker in cluster.reassignments.strays.items():
        for broker_id, held in by_broker.items():
            yield partition, broker_id, held


def _again(context: EventContext, replicas: Sequence[Replica]) -> Handler[None]:
    present = [r for r in replicas if not context.cluster.is_deleting(r[0])]
    tracked = [r for r in present if r[0].replica_state(r[1]) is not ReplicaState.NON_EXISTENT]
    untracked = [r for r in present if r[0].replica_state(r[1]) is ReplicaState.NON_EXISTENT]
    yield from stop(context, tracked)
    for partition, broker_id in untracked:
        context.push_stop(broker_id, partition, delete=True)
        _notified(context, partition, broker_id)


def answered(context: EventContext, reports: Sequence[StopReport]) -> None:
    """Brokers answered: what is deleted is forgotten, and soon in the topic znode too (``record``); what is not is
    tried again later."""
    cluster = context.cluster
    for report in reports if cluster.reassignments.strays else ():
        broker = cluster.brokers.get(report.broker_id)
        if broker is None or broker.epoch != report.broker_epoch:
            continue
        for partition in report.deleted:
            if cluster.reassignments.drop_stray(partition, broker.id):
                cluster.reassignments.confirmed.setdefault(partition, context.now_us)
                cluster.offline_dirs.get(broker.id, set()).discard(partition)
        for partition, error in report.failed:
            if broker.id in cluster.reassignments.strays_of(partition):
                _refused(context, partition, broker.id, error)
    if _recordable(context):
        context.later(FollowUp.DELETIONS)


def record(context: EventContext) -> Handler[None]:
    """Write that replicas are deleted: each topic znode once its brokers have answered for all of its partitions, or
    soon after the first of them did. A successor that finds it unwritten asks its broker again."""
    cluster = context.cluster
    done = _recordable(context)
    for partition in done:
        del cluster.reassignments.confirmed[partition]
    failed = yield from write_entries(context, {p: entry_of(cluster, p) for p in done})
    for partition, why in failed.items():
        context.reject("CONFLICT", f"deleted replicas are still recorded: {why}", partition)
        cluster.reassignments.confirmed[partition] = context.now_us + RETRY_FIRST_US


def _recordable(context: EventContext) -> list[Partition]:
    confirmed = context.cluster.reassignments.confirmed
    awaited = {topic: _awaited(context.cluster, topic) for topic in dict.fromkeys(p.topic for p in confirmed)}
    return [p for p, since in confirmed.items() if not awaited[p.topic] or _is_overdue(since, context.now_us)]


def _awaited(cluster: Cluster, topic: Topic) -> bool:
    """Whether a broker will answer for a replica of a topic."""
    strays = cluster.reassignments.strays
    return any(
        isinstance(held.reason, Notified) and broker_id in cluster.brokers
        for partition in topic.partitions.values()
        for broker_id, held in strays.get(partition, {}).items()
    )


def _refused(context: EventContext, partition: Partition, broker_id: int, error: str) -> None:
    reassignments = context.cluster.reassignments
    count = reassignments.refusals.get((partition, broker_id), 0)
    reassignments.refusals[(partition, broker_id)] = count + 1
    pause_us = retry_pause_us(count)
    held = Ineligible(Refused(error, count + 1), context.now_us + pause_us)
    reassignments.keep_stray(partition, broker_id, held)
    context.reject(error, f"replica {broker_id}, not assigned any more, is not deleted", partition)
