"""States that brokers were told and that ZooKeeper has lost, because it was restored from a backup.

Who leads by the older state may have been out of sync since. Told to lead, even under a new leader epoch, it would have
the others forget what they acknowledged. So the state of the broker that was told the newest one is taken over: its
leader, and of the ISR whoever is known to be in it. Others get in sync again by fetching.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from controller.core.audit.stored_states import finding, tell_replicas, words
from controller.core.commits import BATCH_WRITES
from controller.core.context import EventContext, Handler
from controller.core.effects import Committed, SetState
from controller.core.model import EPOCH_MAX, BrokerIds, LeaderAndIsr, Partition, interned
from controller.core.reasons import NewerController, NoEpochLeft
from controller.core.records import LeadershipChange, Rejection

REASON = "newer_than_zookeeper"
#: Writes of one partition in one event. The next look finds what is left to be raised; a broker that is started again
#: takes any partition epoch.
STEPS_MAX = 1000


def newest(told: LeaderAndIsr, other: LeaderAndIsr | None) -> LeaderAndIsr:
    """Of the states that two brokers were told: of one leader epoch its leader knows best who is in sync. With a
    partition epoch that is as high as either knows."""
    if other is None:
        return told
    best = max(other, told, key=lambda state: (state.leader_epoch, len(state.isr)))
    version = max(other.partition_epoch, told.partition_epoch)
    return msgspec.structs.replace(best, partition_epoch=version)


def is_newer(told: LeaderAndIsr, known: LeaderAndIsr) -> bool:
    """Whether a broker was told what ZooKeeper has forgotten: a higher epoch, or another leader of the same one."""
    if told.leader_epoch == known.leader_epoch and told.leader != known.leader:
        return True
    return told.leader_epoch > known.leader_epoch or told.partition_epoch > known.partition_epoch


class _Change(NamedTuple):
    partition: Partition
    known: LeaderAndIsr
    new: LeaderAndIsr
    told: LeaderAndIsr


def take_over(context: EventContext, told: Sequence[tuple[Partition, LeaderAndIsr]]) -> Handler[None]:
    """Write what brokers were told over the older states, under higher leader and partition epochs than they know.

    ``told``: of each partition the newest; an empty ISR tells of no leader.
    """
    changes = [change for item in told if (change := _change(context, *item)) is not None]
    for start in range(0, len(changes), BATCH_WRITES):
        yield from _write(context, changes[start : start + BATCH_WRITES])


def _change(context: EventContext, partition: Partition, told: LeaderAndIsr) -> _Change | None:
    """None: what was told is not newer any more, or must not be written."""
    cluster, known = context.cluster, partition.leadership
    if known is None or not context.is_present(partition):
        return None
    if not is_newer(told, known):
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
    if (leader_isr := _as_told(known, told)) is not None:
        leader, isr = leader_isr
        # Their directories are those of now: of the older state's nobody knows whether they still are.
        new = msgspec.structs.replace(new, leader=leader, isr=interned(isr), directories=())
    new = cluster.with_directories(new, new.isr)
    return _Change(partition, known, msgspec.structs.replace(new, leader_epoch=epoch), told)


def _as_told(known: LeaderAndIsr, told: LeaderAndIsr) -> tuple[int, BrokerIds] | None:
    """Who leads, and who is known to be in sync with it; None: ZooKeeper knows that as well as brokers."""
    if told.isr and told.leader_epoch >= known.leader_epoch:
        return told.leader, told.isr
    # Decided by the older ISR since, as when a member of it is gone: who was not known to be in sync leaves it.
    both = tuple(b for b in known.isr if b in told.isr)
    return (known.leader, both) if known.leader in both and both != known.isr else None


def _write(context: EventContext, changes: Sequence[_Change]) -> Handler[None]:
    """Brokers skip a partition epoch below the one they know, and each write raises it by one."""
    pending = changes
    for _ in range(STEPS_MAX):
        steps = [_step(change) for change in pending]
        outcome = yield from context.commit(
            [SetState(c.partition, s) for c, s in zip(pending, steps, strict=True)]
        )
        if not isinstance(outcome, Committed):
            # Written meanwhile, or the connection was lost: the next look tells.
            why = f"not taken over: {outcome.reason}"
            context.log([Rejection("CONFLICT", why, change.partition) for change in pending])
            break
        for change, step in zip(pending, steps, strict=True):
            change.partition.leadership = step
        ends = zip(pending, steps, strict=True)
        pending = [change for change, step in ends if step.partition_epoch <= change.told.partition_epoch]
        if not pending:
            break
    written = [c for c in changes if c.partition.leadership is not c.known]
    for change in written:
        reason = f"a broker was told {words(change.told)}, ZooKeeper had {words(change.known)}"
        finding(context, change.partition, "taken_over", reason)
    partitions = [c.partition for c in written]
    records = [
        LeadershipChange(c.partition, c.known, now) for c in written if (now := c.partition.leadership)
    ]
    context.log(records, REASON)
    context.push_metadata(partitions)
    yield from tell_replicas(context, partitions)


def _step(change: _Change) -> LeaderAndIsr:
    now = change.partition.leadership
    assert now is not None
    return msgspec.structs.replace(change.new, partition_epoch=now.partition_epoch + 1)
