"""States that brokers were told and that ZooKeeper has lost, because it was restored from a backup.

Who leads by the older state may have been out of sync since. Told to lead, even under a new leader epoch, it would have
the others forget what they acknowledged. So the state of the broker that was told the newest one is taken over: its
leader, and of the ISR whoever is known to be in it. Others get in sync again by fetching.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from controller.core.audit.stored_states import finding, tell_replicas, words
from controller.core.commits import BATCH_WRITES
from controller.core.context import EventContext, Handler
from controller.core.effects import Committed, SetState
from controller.core.model import EPOCH_MAX, LeaderAndIsr, Partition, interned
from controller.core.reasons import NewerController, NoEpochLeft
from controller.core.records import LeadershipChange, Rejection

REASON = "newer_than_zookeeper"


def newest(told: LeaderAndIsr, other: LeaderAndIsr | None) -> LeaderAndIsr:
    """Of the states that two brokers were told. In one leader epoch its leader knows best who is in sync."""
    return told if other is None else max(other, told, key=_order)


def _order(told: LeaderAndIsr) -> tuple[int, int, int]:
    return told.leader_epoch, len(told.isr), told.partition_epoch


class _Change(NamedTuple):
    partition: Partition
    known: LeaderAndIsr
    new: LeaderAndIsr
    told: LeaderAndIsr


def take_over(context: EventContext, told: Sequence[tuple[Partition, LeaderAndIsr]]) -> Handler[None]:
    """Write what brokers were told over the older states, under higher leader and partition epochs than they know.

    ``told``: of each partition the newest; an empty ISR tells of no leader.
    """
    written: list[Partition] = []
    for changes in _batches(c for item in told if (c := _change(context, *item)) is not None):
        outcome = yield from context.commit([step for change in changes for step in _steps(change)])
        if not isinstance(outcome, Committed):
            # Written meanwhile, or the connection was lost: the next look tells.
            why = f"not taken over: {outcome.reason}"
            context.log([Rejection("CONFLICT", why, change.partition) for change in changes])
            continue
        for partition, known, new, newer in changes:
            finding(
                context,
                partition,
                "taken_over",
                f"a broker was told {words(newer)}, ZooKeeper has {words(known)}",
            )
            partition.leadership = new
            written.append(partition)
        context.log([LeadershipChange(c.partition, c.known, c.new) for c in changes], REASON)
    context.push_metadata(written)
    yield from tell_replicas(context, written)


def _change(context: EventContext, partition: Partition, told: LeaderAndIsr) -> _Change | None:
    """None: what was told is not newer any more, or must not be written."""
    cluster, known = context.cluster, partition.leadership
    if known is None or not context.is_present(partition):
        return None
    forgotten = told.leader_epoch == known.leader_epoch and told.leader != known.leader
    if (
        told.leader_epoch <= known.leader_epoch
        and told.partition_epoch <= known.partition_epoch
        and not forgotten
    ):
        return None
    epoch = max(told.leader_epoch, known.leader_epoch) + 1
    if known.controller_epoch > cluster.controller_epoch:
        why = NewerController(known.controller_epoch, cluster.controller_epoch)
        context.reject("NOT_TOLD_AGAIN", str(why), partition)
        return None
    if epoch > EPOCH_MAX:
        context.reject("NOT_TOLD_AGAIN", str(NoEpochLeft(epoch - 1)), partition)
        return None
    new = known.successor(known.leader, known.isr, cluster.controller_epoch, known.recovery)
    if told.isr and told.leader_epoch >= known.leader_epoch:
        # Their directories are those of now: of the older state's nobody knows whether they still are.
        new = msgspec.structs.replace(new, leader=told.leader, isr=interned(told.isr), directories=())
    new = cluster.with_directories(new, new.isr)
    wanted = max(told.partition_epoch, known.partition_epoch) + 1
    version = min(wanted, known.partition_epoch + BATCH_WRITES)
    new = msgspec.structs.replace(new, leader_epoch=epoch, partition_epoch=version)
    return _Change(partition, known, new, told)


def _steps(change: _Change) -> Iterator[SetState]:
    """Brokers skip a partition epoch below the one they know, and each write raises it by one."""
    for epoch in range(change.known.partition_epoch + 1, change.new.partition_epoch + 1):
        yield SetState(change.partition, msgspec.structs.replace(change.new, partition_epoch=epoch))


def _batches(changes: Iterable[_Change]) -> Iterator[list[_Change]]:
    batch: list[_Change] = []
    writes = 0
    for change in changes:
        steps = change.new.partition_epoch - change.known.partition_epoch
        if batch and writes + steps > BATCH_WRITES:
            yield batch
            batch, writes = [], 0
        batch.append(change)
        writes += steps
    if batch:
        yield batch
