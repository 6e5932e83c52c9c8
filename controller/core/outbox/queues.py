"""What one broker has to be told: what collapses, what comes first."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from controller.core.model import Broker, Partition
from controller.core.outbox.whole_state import Everything, Snapshot

T = TypeVar("T")


class Round:
    """Pending LeaderAndIsr and StopReplica of one broker that may be reordered and collapsed."""

    __slots__ = ("deleting", "leader_and_isr", "leading", "small", "stop_replica")

    def __init__(self) -> None:
        #: Names of partitions to delete: a recreated topic has other Partition objects with these names.
        self.deleting: set[str] = set()
        #: LeaderAndIsr of small changes; of others, partitions that the broker leads, and the rest. None is in two.
        self.small: dict[Partition, bool] = {}
        self.leading: dict[Partition, bool] = {}
        self.leader_and_isr: dict[Partition, bool] = {}
        self.stop_replica: dict[Partition, bool] = {}

    def __bool__(self) -> bool:
        return bool(self.stop_replica or self.tells)

    @property
    def tells(self) -> bool:
        """Whether LeaderAndIsr is pending."""
        return bool(self.small or self.leading or self.leader_and_isr)

    def __len__(self) -> int:
        """Partitions pending, once for each kind of request."""
        return len(self.small) + len(self.leading) + len(self.leader_and_isr) + len(self.stop_replica)

    def __contains__(self, partition: Partition) -> bool:
        """Whether LeaderAndIsr of it is pending."""
        return partition in self.small or partition in self.leading or partition in self.leader_and_isr

    def take_small(self, broker_id: int, count_max: int) -> list[tuple[Partition, bool]]:
        """LeaderAndIsr of small changes, of what the broker leads first."""
        taken = pop_items(self.small, count_max)
        return sorted(taken, key=lambda item: (s := item[0].leadership) is None or s.leader != broker_id)

    def drop(self, partition: Partition) -> bool:
        """Take back LeaderAndIsr of a partition; returns its is_new."""
        if not self.tells:
            return False
        is_new = self.leading.pop(partition, False) | self.leader_and_isr.pop(partition, False)
        return is_new | self.small.pop(partition, False)


class BrokerQueue:
    """Pending requests for one incarnation of a broker."""

    def __init__(self, broker: Broker, cursors: list[int], event_id: int, cause: str) -> None:
        self.broker = broker
        #: Its position in each metadata stream. Before ``leaders_told``, LeaderAndIsr of the same change has been sent;
        #: what is before ``stops_after`` was queued before StopReplica, and goes first.
        self.cursors = cursors
        self.leaders_told, self.stops_after = [0] * len(cursors), [0] * len(cursors)
        #: How many of the last requests were of small changes.
        self.small_in_row = 0
        self.rounds: deque[Round] = deque([Round()])
        #: The event that opened it: no request to an earlier incarnation has this number or a higher one.
        self.opened_by = event_id
        #: The whole state waits until it is known what of it the broker holds already.
        self.comparing = False
        #: Of the whole state: replicas still to be told by LeaderAndIsr.
        self.whole: dict[Partition, None] = {}
        #: The same, while they are not listed: all but those that were queued by themselves.
        self.unlisted: Everything | None = None
        self.listed = 0
        self.left_out: set[Partition] = set()
        #: Of the whole state: a full metadata snapshot, and this broker's position in it.
        self.snapshot: Snapshot | None = None
        self.snapshot_position = 0
        #: The broker knows no metadata yet, so the snapshot goes before all else.
        self.snapshot_first = False
        #: The topics that the snapshot is of; None: all.
        self.snapshot_of: Sequence[str] | None = None
        #: The broker's next push that leaves no metadata pending must be marked as the end of its snapshot.
        self.snapshot_open = False
        self.refresh = True
        self.event_id, self.cause = event_id, cause

    def positions(self, number: int) -> list[int]:
        """All that it remembers of one metadata stream."""
        return [places[number] for places in self._places]

    def move(self, number: int, moved: Mapping[int, int]) -> None:
        """The positions of a metadata stream are others now."""
        for places in self._places:
            places[number] = moved[places[number]]

    @property
    def _places(self) -> tuple[list[int], ...]:
        return self.cursors, self.leaders_told, self.stops_after

    def caused_by(self, event_id: int, cause: str) -> None:
        """Something is queued by an event. Brokers refuse an older event's request after a newer one's, and a long
        event may queue after those that it gave way to."""
        if event_id >= self.event_id:
            self.event_id, self.cause = event_id, cause

    def add_leader_and_isr(self, partitions: Collection[Partition], is_new: bool, small: bool) -> None:
        """``small``: of a small change, which goes before all others."""
        round_ = self.rounds[-1]
        deleting, stopping = round_.deleting, round_.stop_replica
        if (
            self.whole
            or self.unlisted is not None
            or (deleting and any(p.name in deleting for p in partitions))
        ):
            for partition in partitions:
                self._add_one(partition, is_new, small)
            return
        # There may be thousands.
        id_, first, leading, others = self.broker.id, round_.small, round_.leading, round_.leader_and_isr
        for partition in partitions:
            if stopping:
                stopping.pop(partition, None)
            new = is_new
            if partition in leading:
                new |= leading.pop(partition)
            elif partition in others:
                new |= others.pop(partition)
            elif first and partition in first:
                first[partition] |= new
                continue
            state = partition.leadership
            leads = state is not None and state.leader == id_
            (first if small else leading if leads else others)[partition] = new

    def _add_one(self, partition: Partition, is_new: bool, small: bool) -> None:
        round_ = self.rounds[-1]
        if round_.deleting and partition.name in round_.deleting:
            # The old incarnation must be deleted before the new one is created.
            round_ = Round()
            self.rounds.append(round_)
        elif round_.stop_replica:
            round_.stop_replica.pop(partition, None)
        small |= partition in round_.small
        is_new |= round_.drop(partition)
        self._leave_out(partition)
        state = partition.leadership
        leads = state is not None and state.leader == self.broker.id
        (round_.small if small else round_.leading if leads else round_.leader_and_isr)[partition] = is_new

    def add_all_leader_and_isr(self, partitions: Sequence[Partition]) -> None:
        """Queue LeaderAndIsr of many existing partitions."""
        round_ = self.rounds[-1]
        if round_ or self.whole or self.unlisted is not None:
            self.add_leader_and_isr(partitions, False, small=False)
        else:
            round_.leader_and_isr = dict.fromkeys(partitions, False)

    def add_stop_replica(self, partitions: Collection[Partition], delete: bool, ends: list[int]) -> None:
        """``ends``: of the metadata streams."""
        self.stops_after = ends
        round_ = self.rounds[-1]
        stopping = round_.stop_replica
        # The whole state may be told later than this.
        affected = bool(round_.tells or self.whole or self.unlisted is not None)
        for partition in partitions:
            if affected:
                round_.drop(partition)
                self._leave_out(partition)
            if delete:
                stopping[partition] = True
            else:
                stopping.setdefault(partition, False)
        if delete:
            round_.deleting.update([p.name for p in partitions])

    def add_whole(self, partitions: Iterable[Partition]) -> None:
        """Queue LeaderAndIsr of existing partitions that the broker may know already."""
        self.comparing = True
        rounds = [round_ for round_ in self.rounds if round_]
        self.whole.update(
            dict.fromkeys(p for p in partitions if not any(p in r or p in r.stop_replica for r in rounds))
        )

    def add_everything(self, everything: Everything) -> None:
        """As ``add_whole``, of all replicas that the broker has; they are listed once it is known what it holds."""
        self.comparing, self.unlisted, self.listed = True, everything, 0
        self.whole = {}
        self.left_out = {
            p
            for r in self.rounds
            for pending in (r.small, r.leading, r.leader_and_isr, r.stop_replica)
            for p in pending
        }

    def list_some(self) -> bool:
        """The broker is to be told of all topics: list the next ones. Whether there are more."""
        everything = self.unlisted
        if everything is None:
            return False
        found, self.listed = everything.some(self.listed)
        id_, left_out = self.broker.id, self.left_out
        self.whole.update({p: None for p in found if p not in left_out and everything.is_told(p, id_)})
        if self.listed >= len(everything.names):
            self.unlisted, self.left_out = None, set()
        return self.unlisted is not None

    def list_whole(self, names: Collection[str] | None) -> None:
        """The broker is to be told of these topics; None: of all."""
        while names is None and self.list_some():
            pass
        everything, self.unlisted = self.unlisted, None
        if names is None:
            return
        if everything is not None:
            listed = everything.leadership(self.broker.id, names)
            self.whole = {p: None for p in listed if p not in self.left_out}
            self.left_out = set()
        else:
            self.whole = {p: None for p in self.whole if p.topic.name in names} if names else {}

    def is_due(self, ends: Sequence[int]) -> bool:
        """Whether something may be sent now. ``ends``: of the metadata streams. Brokers are many, so it is no count."""
        if self.refresh or self.cursors != ends or self.rounds[0] or len(self.rounds) > 1:
            return True
        return not self.comparing and bool(self.whole or self.snapshot is not None or self.snapshot_open)

    def size_max(self, ends: Sequence[int]) -> int:
        """Partitions that may be sent now, at most."""
        size = sum(ends) - sum(self.cursors) + sum(map(len, self.rounds))
        if self.comparing:
            return size
        return size + len(self.whole) + (len(self.snapshot.partitions) if self.snapshot is not None else 0)

    def owes(self, partition: Partition) -> bool:
        """Whether LeaderAndIsr of a partition is still to be sent."""
        if partition in self.whole or any(partition in round_ for round_ in self.rounds):
            return True
        unlisted = self.unlisted is not None and partition not in self.left_out
        return unlisted and self.broker.id in partition.replicas

    def _leave_out(self, partition: Partition) -> None:
        if self.whole:
            self.whole.pop(partition, None)
        if self.unlisted is not None:
            self.left_out.add(partition)

    def forget(self, partitions: frozenset[Partition]) -> None:
        """Drop requests about vanished partitions; StopReplica with delete stays."""
        for partition in partitions & self.whole.keys():
            del self.whole[partition]
        for round_ in self.rounds:
            for pending in (round_.small, round_.leading, round_.leader_and_isr):
                for partition in partitions & pending.keys():
                    del pending[partition]
            for partition in partitions & round_.stop_replica.keys():
                if not round_.stop_replica[partition]:
                    del round_.stop_replica[partition]


def pop_items(
    pending: dict[Partition, T], count_max: int, *, in_order: bool = True
) -> list[tuple[Partition, T]]:
    """``in_order``: the oldest first. Each look for them passes over all that were taken before, of which there may be
    hundreds of thousands."""
    if len(pending) <= count_max:
        items = list(pending.items())
        # Emptied entry by entry, a dictionary stays as large, and each look at it passes over all places.
        pending.clear()
    elif not in_order:
        items = [pending.popitem() for _ in range(count_max)]
    else:
        items = list(islice(pending.items(), count_max))
        for partition, _ in items:
            del pending[partition]
    return items
