"""One hosted partition: role, leader, ISR, replicas, high watermark. Pure except for its log.

The local replica has a log, a remote replica only a position (reference, section 10.1). Times are arguments,
milliseconds of a monotonic clock. Nothing waits here: methods return what changed, and the replica manager completes
waiting requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from broker_stub.control.replicas import Replica
from broker_stub.control.requests import NO_EPOCH, NO_LEADER, Key
from broker_stub.errors import BrokerError
from broker_stub.log.interface import Log
from broker_stub.replication.ports import IsrProposal, IsrResult
from proto.gen import common_pb2 as codes

#: The log end of a remote replica is not known yet.
UNKNOWN_OFFSET = -1
#: A time before any clock reading: the follower was never caught up.
_NEVER_MS = -(2**62)
_NOTHING: Mapping[int, int] = MappingProxyType({})
#: Pause after the controller refused a proposal, ms. Without it every fetch of the follower would propose it again.
ISR_REFUSED_PAUSE_MS = 500


class PartitionError(BrokerError):
    """A refused request to one partition. ``error_code`` is Kafka's; the message gives the reason."""

    def __init__(self, error: codes.ErrorCode, reason: str) -> None:
        self.error_code = error
        super().__init__(reason)


class Divergence(NamedTuple):
    """Where a follower's log diverges: truncate to the end of this epoch and fetch again (KIP-595)."""

    epoch: int
    end_offset: int


class RemoteReplica:
    """A leader's view of a follower: its log end and when it was last caught up."""

    __slots__ = (
        "broker_epoch",
        "caught_up_ms",
        "directory",
        "fetched_ms",
        "leader_end_at_fetch",
        "log_end_offset",
    )

    def __init__(self, now_ms: int, in_sync: bool) -> None:
        self.log_end_offset = UNKNOWN_OFFSET
        #: That of its last fetch: its registration then (KIP-903).
        self.broker_epoch = NO_EPOCH
        #: The short id of its data directory; 0: its broker has only one.
        self.directory = 0
        self.leader_end_at_fetch = 0
        self.fetched_ms = _NEVER_MS
        # A member of the ISR may take the whole lag time before it counts as lagging.
        self.caught_up_ms = now_ms if in_sync else _NEVER_MS

    def fetched(self, offset: int, leader_end: int, now_ms: int) -> None:
        """The follower fetched from ``offset``, so it has everything before it.

        If it has reached the leader's log end of its previous fetch, it was caught up at that time. Otherwise the
        follower of a busy leader would never count as caught up.
        """
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.leader_end_at_fetch:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.log_end_offset = offset
        self.leader_end_at_fetch, self.fetched_ms = leader_end, now_ms

    def is_caught_up(self, leader_end: int, now_ms: int, lag_max_ms: int) -> bool:
        return self.log_end_offset == leader_end or now_ms - self.caught_up_ms <= lag_max_ms


class Partition:
    """A partition that this broker hosts.

    ``leader_epoch`` and ``partition_epoch`` are those of the last accepted LeaderAndIsr or ISR change.
    ``isr`` is the committed ISR, only on the leader; ``proposed_isr`` was sent and is not confirmed yet.
    ``high_watermark``: every record before it is on all in-sync replicas.
    """

    def __init__(self, key: Key, broker_id: int, log: Log, high_watermark: int = 0) -> None:
        self.key, self.broker_id, self.log = key, broker_id, log
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self.topic_id: str | None = None
        self.leader = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = NO_EPOCH
        self.controller_epoch = NO_EPOCH
        self.assigned: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        #: Not confirmed, but it may be durable; after some errors only a newer LeaderAndIsr clears it.
        self.proposed_isr: tuple[int, ...] | None = None
        #: After a refused proposal no expansion is proposed before this time.
        self.isr_retry_ms = 0
        self.leader_epoch_start_offset = 0
        self.remote: dict[int, RemoteReplica] = {}
        #: The short id of our own data directory; 0: this broker has only one.
        self.directory = 0
        #: The directories of members of the ISR that this leader has made durable, by broker id.
        self._directories_told: dict[int, int] = {}
        #: From the topic's configuration. None: not read yet; then acks=all is refused and the high watermark stays.
        self.min_isr: int | None = None

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else f"follower of {self.leader}"
        return f"Partition({self.key[0]}-{self.key[1]}, {role}, epoch {self.leader_epoch})"

    @property
    def is_leader(self) -> bool:
        return self.leader == self.broker_id

    @property
    def maximal_isr(self) -> frozenset[int]:
        """The replicas that must have a record before it is committed, whether or not the proposal succeeds."""
        return frozenset((*self.isr, *(self.proposed_isr or ())))

    # roles

    def make_leader(self, state: Replica, now_ms: int) -> bool:
        """Become leader, or update the state as leader (section 10.1, step 5). True if it was not leader before."""
        was_leader = self.is_leader
        new_epoch = state.leader_epoch > self.leader_epoch
        # Only a leader adds members: others than its own come from a ZooKeeper that was restored (ADR 23), or edited.
        caught_up = self.maximal_isr.intersection(state.isr) if was_leader else state.isr
        self._take(state)
        self.isr, self.proposed_isr = state.isr, None
        self._directories_told = {}
        if new_epoch:
            self.leader_epoch_start_offset = self.log.log_end_offset
            self.log.assign_epoch_start(state.leader_epoch)
        followers = [b for b in state.replicas if b != self.broker_id]
        kept = {} if new_epoch else self.remote
        self.remote = {b: kept.get(b) or RemoteReplica(now_ms, b in caught_up) for b in followers}
        return not was_leader

    def make_follower(self, state: Replica) -> bool:
        """Become follower (section 10.1, step 6). True if the leader changed."""
        changed = self.leader != state.leader
        self._take(state)
        self.isr, self.proposed_isr = (), None
        self.remote = {}
        return changed

    def _take(self, state: Replica) -> None:
        self.topic_id = state.topic_id
        self.leader, self.leader_epoch = state.leader, state.leader_epoch
        self.partition_epoch, self.controller_epoch = state.partition_epoch, state.controller_epoch
        self.assigned = state.replicas

    # checks of requests

    def require_leader(self, current_leader_epoch: int | None = None) -> None:
        """Raises PartitionError unless we lead, in the sender's leader epoch if it sent one (KIP-320)."""
        if current_leader_epoch is not None:
            if current_leader_epoch < self.leader_epoch:
                raise PartitionError(
                    codes.FENCED_LEADER_EPOCH,
                    f"leader epoch {current_leader_epoch} is older than ours, {self.leader_epoch}",
                )
            if current_leader_epoch > self.leader_epoch:
                raise PartitionError(
                    codes.UNKNOWN_LEADER_EPOCH,
                    f"leader epoch {current_leader_epoch} is newer than ours, {self.leader_epoch}",
                )
        if not self.is_leader:
            raise PartitionError(
                codes.NOT_LEADER_OR_FOLLOWER,
                f"broker {self.broker_id} is not the leader; the leader is {self.leader}",
            )

    @property
    def effective_min_isr(self) -> int | None:
        """min.insync.replicas, at most the number of replicas (as in Kafka); None: not known yet."""
        return None if self.min_isr is None else min(self.min_isr, len(self.assigned))

    def require_min_isr(self) -> None:
        """Raises PartitionError when too few replicas are in sync for a write with acks=all."""
        least = self.effective_min_isr
        if least is None:
            raise PartitionError(
                codes.NOT_ENOUGH_REPLICAS, "min.insync.replicas of the topic is not known yet"
            )
        if len(self.isr) < least:
            raise PartitionError(
                codes.NOT_ENOUGH_REPLICAS,
                f"in-sync replicas {list(self.isr)} are fewer than min.insync.replicas {least}",
            )

    # reads on the leader

    def consumer_end(self) -> int:
        """The offset before which a consumer may read.

        Raises PartitionError while a new leader's high watermark may be below that of the former leader.
        """
        if self.high_watermark < self.leader_epoch_start_offset:
            raise PartitionError(
                codes.OFFSET_NOT_AVAILABLE,
                f"the high watermark {self.high_watermark} is below the start offset of leader epoch"
                f" {self.leader_epoch}, {self.leader_epoch_start_offset}",
            )
        return self.high_watermark

    def divergence(self, fetch_offset: int, last_fetched_epoch: int) -> Divergence | None:
        """Where the log of a follower with this end offset and last epoch diverges from ours; None: it does not.

        Raises PartitionError when the leader does not know the epoch.
        """
        epoch, end_offset = self.log.end_offset_for_epoch(last_fetched_epoch)
        if epoch == NO_EPOCH or end_offset == UNKNOWN_OFFSET:
            raise PartitionError(
                codes.OFFSET_OUT_OF_RANGE,
                f"epoch {last_fetched_epoch} of the follower's last record is unknown to the leader",
            )
        if epoch < last_fetched_epoch or end_offset < fetch_offset:
            return Divergence(epoch, end_offset)
        return None

    # the leader's followers

    def record_fetch(
        self,
        replica_id: int,
        offset: int,
        now_ms: int,
        broker_epoch: int = NO_EPOCH,
        directory: int = 0,
    ) -> None:
        """A follower fetched from ``offset``, with its log in this data directory.

        Raises PartitionError when it is not a replica of this partition, or has fetched since under a newer broker
        epoch: a late fetch of its former process does not tell what it has now.
        """
        remote = self.remote.get(replica_id)
        if remote is None:
            raise PartitionError(
                codes.NOT_LEADER_OR_FOLLOWER,
                f"broker {replica_id} is not among the replicas {list(self.assigned)}",
            )
        if broker_epoch < remote.broker_epoch:
            raise PartitionError(
                codes.NOT_LEADER_OR_FOLLOWER,
                f"broker epoch {broker_epoch} of broker {replica_id} is older than {remote.broker_epoch}",
            )
        remote.broker_epoch, remote.directory = broker_epoch, directory
        remote.fetched(offset, self.log.log_end_offset, now_ms)

    def advance_high_watermark(self, now_ms: int, lag_max_ms: int, is_alive: Callable[[int], bool]) -> bool:
        """Raise the high watermark to the lowest log end of the maximal ISR and of followers about to join it.

        Leader only. True if it moved. It stays while the ISR is smaller than min.insync.replicas (section 10.1).
        """
        least = self.effective_min_isr
        if least is None or len(self.isr) < least:
            return False
        members = self.maximal_isr
        leader_end = target = self.log.log_end_offset
        for broker_id, remote in self.remote.items():
            if remote.log_end_offset < target and (
                broker_id in members
                or (remote.is_caught_up(leader_end, now_ms, lag_max_ms) and is_alive(broker_id))
            ):
                target = remote.log_end_offset
        if target <= self.high_watermark:
            return False
        self.high_watermark = target
        return True

    def propose_expansion(
        self, replica_id: int, now_ms: int, is_alive: Callable[[int], bool]
    ) -> IsrProposal | None:
        """Propose the ISR with a follower that has caught up, if it may join (section 10.1, end)."""
        remote = self.remote.get(replica_id)
        if (
            remote is None
            or replica_id in self.isr
            or not self._may_propose()
            or now_ms < self.isr_retry_ms
            or remote.log_end_offset < max(self.high_watermark, self.leader_epoch_start_offset)
            or not is_alive(replica_id)
        ):
            return None
        return self._propose((*self.isr, replica_id))

    def propose_shrink(self, now_ms: int, lag_max_ms: int) -> IsrProposal | None:
        """Propose the ISR without the followers that lag for more than ``lag_max_ms``, if there are any."""
        if not self._may_propose():
            return None
        leader_end = self.log.log_end_offset
        lagging = {
            b
            for b in self.isr
            if b != self.broker_id
            and ((r := self.remote.get(b)) is None or not r.is_caught_up(leader_end, now_ms, lag_max_ms))
        }
        return self._propose(tuple(b for b in self.isr if b not in lagging)) if lagging else None

    def propose_directories(self, now_ms: int) -> IsrProposal | None:
        """Propose the ISR as it is, if a member with several data directories has its replica in one that this leader
        has not told yet."""
        if not self._may_propose() or now_ms < self.isr_retry_ms:
            return None
        untold = self._known_directories(self.isr).items() - self._directories_told.items()
        return self._propose(self.isr) if untold else None

    def _known_directories(self, isr: tuple[int, ...]) -> dict[int, int]:
        known = {b: r.directory for b in isr if (r := self.remote.get(b)) is not None}
        return {b: d for b, d in {**known, self.broker_id: self.directory}.items() if d}

    def _may_propose(self) -> bool:
        return self.is_leader and self.proposed_isr is None

    def _propose(self, isr: tuple[int, ...]) -> IsrProposal:
        self.proposed_isr = isr
        remote = self.remote
        epochs = tuple([remote[b].broker_epoch if b in remote else NO_EPOCH for b in isr])
        known = self._known_directories(isr)
        return IsrProposal(
            self.key,
            self.topic_id,
            self.leader_epoch,
            isr,
            self.partition_epoch,
            self.controller_epoch,
            epochs,
            tuple([known.get(b, 0) for b in isr]) if known else (),
        )

    def owns(self, proposal: IsrProposal) -> bool:
        """Whether this proposal is still in flight: no LeaderAndIsr has replaced it."""
        return (
            self.is_leader
            and self.proposed_isr == proposal.isr
            and (self.leader_epoch, self.partition_epoch) == (proposal.leader_epoch, proposal.partition_epoch)
        )

    def apply_isr_result(self, result: IsrResult, now_ms: int, told: Mapping[int, int] = _NOTHING) -> bool:
        """Apply the result of our proposal (section 8.4, "Broker side"). True if the state changed. ``told``: the
        directories in the proposal.

        OPERATION_NOT_ATTEMPTED and INELIGIBLE_REPLICA return to the committed ISR. Other errors say that our state
        is outdated. Then the proposal stays and counts in `maximal_isr`, and no other is made before a newer
        LeaderAndIsr: an earlier attempt, whose response was lost, may have made it durable.
        """
        if result.error in (codes.OPERATION_NOT_ATTEMPTED, codes.INELIGIBLE_REPLICA):
            self.proposed_isr = None
            self.isr_retry_ms = now_ms + ISR_REFUSED_PAUSE_MS
            return False
        # What is stored under a lower partition epoch than ours comes from a ZooKeeper that was restored.
        outdated = result.leader_epoch != self.leader_epoch or result.partition_epoch < self.partition_epoch
        if result.error != codes.NONE or outdated:
            return False
        self.proposed_isr = None
        self._directories_told = dict(told)
        newer = result.partition_epoch > self.partition_epoch
        if newer:
            self.isr, self.partition_epoch = result.isr, result.partition_epoch
        return newer

    # the follower's side

    def follow_high_watermark(self, leader_high_watermark: int) -> bool:
        """Take the leader's high watermark, at most our own log end. True if it moved."""
        target = min(leader_high_watermark, self.log.log_end_offset)
        moved = target > self.high_watermark
        if moved:
            self.high_watermark = target
        return moved

    def truncate(self, offset: int) -> bool:
        """Truncate the log of a follower. True if a batch was removed."""
        cut = self.log.truncate_to(offset)
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)
        return cut

    def forget_uncertain(self) -> None:
        """Truncate a log without leader epochs to the high watermark: it cannot be compared with a leader's log."""
        if self.log.latest_epoch is None and self.log.log_end_offset > self.high_watermark:
            self.truncate(self.high_watermark)

    def truncation_offset(self, leader_epoch: int, leader_end_offset: int) -> int:
        """The offset to truncate to, given where ``leader_epoch`` ends on the leader (KIP-101, KIP-279).

        Both -1: the leader does not know the epoch asked for. Then only what is before the high watermark is
        certain to be on both.
        """
        end = self.log.log_end_offset
        if leader_end_offset == UNKNOWN_OFFSET:
            return min(self.high_watermark, end)
        if leader_epoch == NO_EPOCH:
            return min(leader_end_offset, end)
        own_epoch, own_end = self.log.end_offset_for_epoch(leader_epoch)
        if own_end == UNKNOWN_OFFSET:
            return min(leader_end_offset, end)
        if own_epoch != leader_epoch:
            return min(own_end, end)
        return min(own_end, leader_end_offset, end)
