"""The durable leadership of a partition."""

from __future__ import annotations

from enum import Enum

import msgspec

from controller.core.model.broker_ids import BrokerIds, DirectoryIds, shared_directories


class LeaderRecoveryState(Enum):
    """Whether an uncleanly elected leader still has to recover (KIP-704)."""

    RECOVERED = 0
    RECOVERING = 1


RECOVERED, RECOVERING = LeaderRecoveryState.RECOVERED.value, LeaderRecoveryState.RECOVERING.value


class LeaderAndIsr(msgspec.Struct, frozen=True, gc=False):
    """Durable leadership of one partition: the content of its state znode, and the znode's version.

    ``partition_epoch`` is the zkVersion. ``controller_epoch`` is the epoch of the controller that decided.
    ``recovery`` is 0 (RECOVERED) or 1 (RECOVERING). ``directories``: parallel to ``isr``, the data directory with which
    each member got in sync, 0: unknown; empty: none is known (docs/adr/0017).
    """

    leader: int
    leader_epoch: int
    isr: BrokerIds
    partition_epoch: int
    controller_epoch: int
    recovery: int = RECOVERED
    directories: DirectoryIds = ()

    def successor(self, leader: int, isr: BrokerIds, controller_epoch: int, recovery: int) -> LeaderAndIsr:
        """The next decision about this partition: leader epoch and partition epoch go up by one. Members that stay keep
        their directories."""
        return LeaderAndIsr(
            leader,
            self.leader_epoch + 1,
            isr,
            self.partition_epoch + 1,
            controller_epoch,
            recovery,
            self.directories_of(isr),
        )

    def spare(self, replicas: BrokerIds, min_isr: int) -> int:
        """In-sync replicas beyond ``min.insync.replicas``, of which as many count as there are replicas (as in
        ``kafka.cluster.Partition``); below 0, writes with acks=all fail."""
        return len(self.isr) - min(min_isr, len(replicas))

    def directories_of(self, isr: BrokerIds) -> DirectoryIds:
        """The directories of these members, as far as known."""
        if not self.directories or isr == self.isr:
            return self.directories
        known = dict(zip(self.isr, self.directories, strict=True))
        return shared_directories([known.get(b, 0) for b in isr])
