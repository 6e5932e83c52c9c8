"""Stray replicas, which left an assignment: removed from the ISR, stopped, deleted; recorded until their broker
confirms.

As in the original, a reassignment is complete once StopReplica is queued. But the replica stays recorded, in the topic
znode too, and StopReplica is sent again after a refusal, when the broker returns, and by the next controller
(reference, section 14, point 7).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from controller.core.backoff import RETRY_FIRST_US, retry_pause_us
from controller.core.context import EventContext, FollowUp, Handler
from controller.core.events import StopReport
from controller.core.model import (
    NO_LEADER,
    SHARED_LENGTH_MAX,
    Cluster,
    Ineligible,
    Partition,
    PartitionState,
    ReplicaState,
    Topic,
    members,
)
from controller.core.partitions import partition_state_machine, replica_state_machine
from controller.core.partitions.replica_state_machine import Replica
from controller.core.reasons import Reason, Refused
from controller.core.reassignment.reasons import AloneInSync, BrokerAbsent, Notified
from controller.core.reassignment.topic_znode import entry_of, write_entries

#: The longest delay before deleted replicas are removed from a topic znode, while responses for other replicas of the
#: topic are awaited.
RECORD_LATEST_US = 1_000_000
#: The reasons in records: an ISR shrinks; the replica leaves the state machine before its broker's response.
NOT_ASSIGNED = "not assigned any more"
NOT_AWAITED = "it left the assignment; its broker has not answered yet"


def stop(context: EventContext, replicas: Sequence[Replica]) -> Handler[None]:
    """Set replicas outside the assignment Offline, then delete them without waiting for the response; not one that is
    in sync while nobody who is assigned is, as its leader may have just written."""
    going: dict[Partition, list[int]] = {}
    for partition, broker_id in replicas:
        going.setdefault(partition, []).append(broker_id)
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
    left: list[Replica] = []
    for partition, broker_id in (r for r in replicas if r[0] not in failed):
        isr = members(partition.leadership.isr) if partition.leadership is not None else ()
        if broker_id in isr and not any(b in isr for b in partition.replicas):
            context.cluster.reassignments.keep_stray(
                partition, broker_id, Ineligible(AloneInSync(), context.now_us + RETRY_FIRST_US)
            )
        else:
            left.append((partition, broker_id))
    delete(context, left)


def out_of_isr(
    context: EventContext, going: Mapping[Partition, Sequence[int]]
) -> Handler[dict[Partition, Reason]]:
    """Set replicas Offline, one per partition at a time: each gets its own leader epoch (reference, section 8.2).

    Where there are many, those outside the ISR need none, and go together. Returns the partitions that failed, with
    the reason.
    """
    failed: dict[Partition, Reason] = {}
    going = dict(going)
    for partition, ids in going.items():
        if len(ids) > SHARED_LENGTH_MAX and partition.leadership is not None:
            in_sync = members(partition.leadership.isr)
            outside = [(partition, b) for b in ids if b not in in_sync]
            failed.update((yield from replica_state_machine.to_offline(context, outside, NOT_ASSIGNED)))
            going[partition] = [b for b in ids if b in in_sync]
    for position in range(max(map(len, going.values()), default=0)):
        each = [(p, ids[position]) for p, ids in going.items() if p not in failed and position < len(ids)]
        failed.update((yield from replica_state_machine.to_offline(context, each, NOT_ASSIGNED)))
    return failed


def delete(context: EventContext, replicas: Sequence[Replica]) -> None:
    """Queue StopReplica with delete for Offline replicas, and remove them from the state machine."""
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
    """Send unconfirmed deletions again: to these brokers, or to all (None) at failover."""
    yield from _again(context, [(p, b) for p, b, _ in _all(context.cluster) if ids is None or b in ids])


def retry_of(context: EventContext, partitions: Collection[Partition]) -> Handler[None]:
    """Send the deletions of these partitions' stray replicas again."""
    yield from _again(context, [(p, b) for p, b, _ in _all(context.cluster) if p in partitions])


def retry_overdue(context: EventContext) -> Handler[None]:
    """Send refused deletions again whose retry time has come."""
    yield from _again(
        context, [(p, b) for p, b, held in _all(context.cluster) if held.is_due(context.now_us)]
    )


def due(cluster: Cluster, now_us: int) -> bool:
    """Whether a refused deletion is due for a retry, or a confirmed one must be recorded."""
    overdue = any(_is_overdue(since, now_us) for since in cluster.reassignments.confirmed.values())
    return overdue or any(held.is_due(now_us) for _, _, held in _all(cluster))


def _is_overdue(confirmed_us: int, now_us: int) -> bool:
    return confirmed_us + RECORD_LATEST_US <= now_us


def _all(cluster: Cluster) -> Iterator[tuple[Partition, int, Ineligible]]:
    for partition, by_broker in cluster.reassignments.strays.items():
        for broker_id, held in by_broker.items():
            yield partition, broker_id, held


def _again(context: EventContext, replicas: Sequence[Replica]) -> Handler[None]:
    present = [r for r in replicas if not context.cluster.is_deleting(r[0])]
    tracked: list[Replica] = []
    untracked: list[Replica] = []
    for replica, state in replica_state_machine.states(present):
        (untracked if state is ReplicaState.NON_EXISTENT else tracked).append(replica)
    yield from stop(context, tracked)
    context.push_stop(untracked, delete=True)
    for partition, broker_id in untracked:
        _notified(context, partition, broker_id)


def answered(context: EventContext, reports: Sequence[StopReport]) -> None:
    """Handle StopReplica responses: forget deleted replicas, soon also in the topic znode (``record``); retry refused
    ones later."""
    cluster = context.cluster
    known = cluster.reassignments
    touched: dict[Topic, None] = {}
    for report in reports if known.strays else ():
        broker = cluster.brokers.get(report.broker_id)
        if broker is None or broker.epoch != report.broker_epoch:
            continue
        gone = [p for p in report.deleted if known.drop_stray(p, broker.id)]
        for partition in gone:
            known.confirmed.setdefault(partition, context.now_us)
            touched[partition.topic] = None
        if broker.id in cluster.offline_dirs:
            cluster.offline_dirs[broker.id].difference_update(gone)
        for partition, error in report.failed:
            if broker.id in cluster.reassignments.strays_of(partition):
                _refused(context, partition, broker.id, error)
    if not all(_awaited(cluster, topic) for topic in touched):
        context.later(FollowUp.DELETIONS)


def record(context: EventContext) -> Handler[None]:
    """Remove deleted replicas from topic znodes: once brokers have responded for all of the topic, or
    ``RECORD_LATEST_US`` after the first response. If a failover comes first, the next controller sends StopReplica
    again."""
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
    """Whether a response for a stray replica of the topic is still expected."""
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
