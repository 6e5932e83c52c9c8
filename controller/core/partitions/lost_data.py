"""Members of an ISR that came back with less than they had (docs/adr/0017): out of sync before anyone elects them.

A partition's state names the data directory with which each member got in sync, a registration names those that the
broker has. A member that is registered without its directory leaves the ISR, as long as another one stays that has lost
nothing, alive or not: that one can lead without loss when it returns. When all have lost theirs, the ISR stays, nobody
leads, and only an unclean election brings a leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from controller.core.commits import StateChange, take_effect, write_states
from controller.core.context import EventContext, Handler, Pause, slices
from controller.core.model import BrokerIds, DirectoryIds, LeaderAndIsr, Partition, PartitionState, interned
from controller.core.records import PartitionTransition, Rejection

REASON = "data_lost"


def take_out(context: EventContext, partitions: Iterable[Partition]) -> Handler[list[Partition]]:
    """Take members without their data out of the ISRs; what they led has no leader then. The elections are the
    caller's. Returns those whose ISR could not be written: nobody may be told of it before the stored state is put
    right. A state that names a controller epoch above ours is written over: if there is such a one, we are fenced."""
    removal = _Removal(context)
    # A partition may be named for each of its replicas.
    concerned: dict[Partition, None] = {}
    for number, some in enumerate(slices(partitions)):
        if number:
            yield Pause.YIELD
        concerned.update(dict.fromkeys(removal.concerned(some)))
    if not concerned:
        return []
    failed = yield from write_states(context, map(removal.decide, concerned), removal.applied, removal.decide)
    context.log([Rejection("CONFLICT", str(why), p) for p, why in failed.items()])
    return list(failed)


class _Removal:
    def __init__(self, context: EventContext) -> None:
        self.context = context
        self.epoch = context.cluster.controller_epoch

    def concerned(self, partitions: Iterable[Partition]) -> Iterator[Partition]:
        """Those with such members. Few ISRs occur, and each is looked at once."""
        cluster = self.context.cluster
        looked_at: dict[tuple[BrokerIds, DirectoryIds], bool] = {}
        for partition in partitions:
            state = partition.leadership
            if state is None or not state.directories:
                continue
            key = state.isr, state.directories
            lacking = looked_at.get(key)
            if lacking is None:
                lacking = looked_at[key] = bool(cluster.without_data(state))
            if lacking:
                yield partition

    def decide(self, partition: Partition) -> StateChange | None:
        cluster, current = self.context.cluster, partition.leadership
        if current is None:
            return None
        lacking = cluster.without_data(current)
        isr = tuple([b for b in current.isr if b not in lacking])
        if not any(b in partition.replicas for b in isr):
            isr = current.isr
        leader = -1 if current.leader in lacking else current.leader
        if (leader, isr) == (current.leader, current.isr):
            return None
        new = current.successor(leader, interned(isr), self.epoch, current.recovery)
        return StateChange(partition, current, new, self._recipients(partition))

    def _recipients(self, partition: Partition) -> BrokerIds:
        cluster = self.context.cluster
        return () if cluster.is_deleting(partition) else cluster.online_replicas(partition)

    def applied(self, batch: list[StateChange]) -> None:
        take_effect(self.context, batch, REASON)
        before, after = PartitionState.ONLINE, PartitionState.OFFLINE
        offline = [c for c in batch if _goes_offline(c.partition, c.new)]
        for change in offline:
            change.partition.state = after
        records = [PartitionTransition(c.partition, before, after, c.new) for c in offline]
        self.context.log(records, "its leader came back without its data")


def _goes_offline(partition: Partition, new: LeaderAndIsr) -> bool:
    """At a failover the states are not known yet: they are set from the leadership."""
    return new.leader < 0 and partition.state is PartitionState.ONLINE
