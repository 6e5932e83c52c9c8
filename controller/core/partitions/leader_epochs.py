"""A new leader epoch for partitions whose leader and ISR stay: brokers refuse LeaderAndIsr at one they know."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from controller.core.commits import StateChange, write_states
from controller.core.context import EventContext, Handler
from controller.core.model import Partition
from controller.core.reasons import NewerController, Reason
from controller.core.records import LeadershipChange


def raise_leader_epochs(
    context: EventContext,
    floors: Mapping[Partition, int],
    reason: str,
    push: Callable[[list[Partition]], None] | None = None,
) -> Handler[dict[Partition, Reason]]:
    """Write the same leader and ISR at a leader epoch above the present one and above each partition's floor.

    ``push`` queues LeaderAndIsr of partitions once they are durable; by default for all their replicas. Partitions
    without a state are left out. Returns those that could not be written, with the reason.
    """
    epoch = context.cluster.controller_epoch
    newer: dict[Partition, Reason] = {}

    def decide(partition: Partition) -> StateChange | None:
        current = partition.leadership
        if current is None:
            return None
        if current.controller_epoch > epoch:
            newer[partition] = NewerController(current.controller_epoch, epoch)
            return None
        new = current.successor(current.leader, current.isr, epoch, current.recovery)
        if floors[partition] >= new.leader_epoch:
            new = msgspec.structs.replace(new, leader_epoch=floors[partition] + 1)
        return StateChange(partition, current, new)

    def applied(batch: list[StateChange]) -> None:
        for change in batch:
            change.partition.leadership = change.new
        written = [c.partition for c in batch]
        if push is not None:
            push(written)
        else:
            context.push_leadership([(p.replicas, p) for p in written])
        context.push_metadata(written)
        context.log([LeadershipChange(c.partition, c.old, c.new) for c in batch], reason)

    failed = yield from write_states(context, map(decide, floors), applied, decide)
    return {**failed, **newer}
