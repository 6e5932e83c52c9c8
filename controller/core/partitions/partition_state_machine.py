"""The partition state machine: four states, their legal transitions and effects (reference, section 5).

New, Offline and NonExistent only change memory. Online first makes leadership durable: it creates the state of a new
partition, or elects a leader for an existing one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from controller.core.commits import StateChange, refresh, write_states
from controller.core.config_keys import UNCLEAN
from controller.core.context import SLICE_MAX, EventContext, FollowUp, Handler, Pause, slices
from controller.core.effects import Problem, ReadTopicConfigs
from controller.core.model import (
    NO_LEADER,
    BrokerIds,
    DirectoryIds,
    LeaderAndIsr,
    Partition,
    PartitionState,
)
from controller.core.partitions import leader_election, lost_data
from controller.core.partitions.initial_state import initialise
from controller.core.partitions.leader_election import Ballot, Elected, ElectionKind, Strategy
from controller.core.reasons import NewerController, NoState, Reason
from controller.core.records import LeadershipChange, PartitionTransition, Rejection
from controller.core.znode_paths import topic_config_path

NON_EXISTENT, NEW = PartitionState.NON_EXISTENT, PartitionState.NEW
ONLINE, OFFLINE = PartitionState.ONLINE, PartitionState.OFFLINE

#: Legal transitions: target to the states it may be reached from (reference, section 5.1).
VALID_PREVIOUS: dict[PartitionState, frozenset[PartitionState]] = {
    NEW: frozenset({NON_EXISTENT}),
    ONLINE: frozenset({NEW, ONLINE, OFFLINE}),
    OFFLINE: frozenset({NEW, ONLINE, OFFLINE}),
    NON_EXISTENT: frozenset({OFFLINE}),
}


def legal(context: EventContext, partitions: Iterable[Partition], target: PartitionState) -> list[Partition]:
    """The partitions with a legal transition to ``target``; each other one is refused with a record."""
    previous = VALID_PREVIOUS[target]
    allowed = []
    for partition in partitions:
        if partition.state in previous:
            allowed.append(partition)
        else:
            context.reject(
                "ILLEGAL_TRANSITION",
                f"{target.value} is only reached from {sorted(s.value for s in previous)}",
                partition,
                partition.state.value,
                target.value,
            )
    return allowed


def _move(
    context: EventContext,
    partitions: Iterable[Partition],
    target: PartitionState,
    reason: str,
    silent: Mapping[int, int] | None = None,
) -> None:
    records = []
    for partition in legal(context, partitions, target):
        if partition.state is not target:
            known = partition.leadership
            silent_us = silent.get(known.leader) if silent and known is not None else None
            replicas = partition.replicas if target is NEW else None
            records.append(
                PartitionTransition(partition, partition.state, target, known, silent_us, replicas)
            )
            partition.state = target
    context.log(records, reason)


def to_new(context: EventContext, partitions: Iterable[Partition]) -> None:
    _move(context, partitions, NEW, "created")


def to_offline(
    context: EventContext,
    partitions: Iterable[Partition],
    reason: str,
    silent: Mapping[int, int] | None = None,
) -> None:
    """``silent``: by leader that is gone, how long ago it gave its last sign, microseconds."""
    _move(context, partitions, OFFLINE, reason, silent or {})


def led(context: EventContext, partitions: Iterable[Partition]) -> None:
    """Partitions whose stored leader, written by somebody else, is online."""
    _move(context, partitions, ONLINE, "led already")


def to_non_existent(context: EventContext, partitions: Iterable[Partition]) -> None:
    _move(context, partitions, NON_EXISTENT, "deleted")


def to_online(
    context: EventContext, partitions: Iterable[Partition], kind: ElectionKind
) -> Handler[dict[Partition, Reason]]:
    """Bring partitions online: initialise New ones, elect leaders for Online and Offline ones.

    Returns the partitions that failed, with the reason; they keep their state.
    """
    allowed = legal(context, partitions, ONLINE)
    fresh = [p for p in allowed if p.state is NEW]
    existing = [p for p in allowed if p.state is not NEW]
    failed: dict[Partition, Reason] = {}
    if fresh:
        adopted = yield from initialise(context, fresh, failed)
        existing.extend(_to_be_led(context, adopted))
    if existing:
        failed.update((yield from _elect(context, existing, kind)))
    context.log(
        [Rejection("ELECTION_FAILED", str(why), p, p.state.value, ONLINE.value) for p, why in failed.items()]
    )
    return failed


def _to_be_led(context: EventContext, adopted: Sequence[Partition]) -> Sequence[Partition]:
    """The adopted partitions that need an election. None while elections are paused: then those with an online leader
    become Online, the others wait."""
    if context.cluster.maintenance.paused is None:
        return adopted
    led(context, [p for p in adopted if p.leadership and context.cluster.is_online(p, p.leadership.leader)])
    return ()


def startup(context: EventContext, partitions: Sequence[Partition]) -> Handler[None]:
    """Set initial states, then try to elect leaders for partitions without one (reference, section 5.1).
    ``partitions``: those that are not Online already."""
    leaderless = []
    cluster = context.cluster
    live = cluster.live_ids()
    simple = not cluster.offline_dirs
    for count, partition in enumerate(partitions):
        if count % (2 * SLICE_MAX) == 2 * SLICE_MAX - 1:
            yield Pause.YIELD
        leadership = partition.leadership
        if leadership is None:
            partition.state = NEW
        elif leadership.leader in live and (simple or cluster.is_online(partition, leadership.leader)):
            partition.state = ONLINE
            continue
        else:
            partition.state = OFFLINE
        leaderless.append(
            PartitionTransition(
                partition, NON_EXISTENT, partition.state, leadership, replicas=partition.replicas
            )
        )
    context.log(leaderless, "found at failover")
    yield Pause.YIELD
    yield from bring_online(context, partitions)


def bring_online(context: EventContext, partitions: Iterable[Partition] | None = None) -> Handler[None]:
    """Try to bring every New or Offline partition (None: of all) online, except those under deletion; unclean only
    where configured."""
    waiting: list[Partition] = []
    for some in slices(context.cluster.partitions() if partitions is None else partitions):
        waiting += _waiting(context, some)
        # Leaders first: until they are elected, nobody is let in.
        yield Pause.YIELD
    yield from _elect_waiting(context, waiting)


def elect_from_live_isr(
    context: EventContext, partitions: Iterable[Partition] | None = None
) -> Handler[None]:
    """After replicas have left ISRs: ``bring_online``, of partitions with a live member in the ISR. One may have been
    read with another leader than the election knew: that one left, too."""
    cluster = context.cluster
    waiting: list[Partition] = []
    for some in slices(cluster.partitions() if partitions is None else partitions):
        left = [p for p in some if p.state is ONLINE and (s := p.leadership) and s.leader == NO_LEADER]
        to_offline(
            context, [p for p in left if not cluster.is_deleting(p)], "its leader, named by another, is gone"
        )
        waiting += _waiting(context, some)
        yield from context.give_way()
    electable = [
        p
        for p in waiting
        if p.leadership is not None
        and p.leadership.controller_epoch <= cluster.controller_epoch
        and any(cluster.is_online(p, b) for b in p.leadership.isr)
    ]
    yield from _elect_waiting(context, electable)


def _waiting(context: EventContext, partitions: Sequence[Partition]) -> list[Partition]:
    is_deleting = context.cluster.is_deleting
    return [p for p in partitions if (p.state is OFFLINE or p.state is NEW) and not is_deleting(p)]


def _elect_waiting(context: EventContext, waiting: list[Partition]) -> Handler[None]:
    if context.cluster.maintenance.paused is not None:
        waiting = [p for p in waiting if p.state is NEW]
    for part in context.parts(waiting, elected=True):
        yield from to_online(context, [p for p in part if context.is_present(p)], leader_election.OFFLINE)
        yield from context.give_way()


# --- Online and Offline to Online ------------------------------------------------------------------------


class _Election:
    """The election of leaders for many partitions by one strategy."""

    def __init__(self, context: EventContext, kind: ElectionKind) -> None:
        self.context, self.kind = context, kind
        #: Whether a topic permits unclean election, for the topics read so far.
        self.unclean: dict[str, bool] = {}
        self.failed: dict[Partition, Reason] = {}
        cluster = context.cluster
        #: Brokers that count as online. One that is shutting down must be notified of the new leaders.
        leaving = kind.strategy is Strategy.CONTROLLED_SHUTDOWN
        self.live = frozenset(cluster.brokers) if leaving else cluster.live_ids()
        self.shutting_down = cluster.shutting_down
        self.drained = cluster.maintenance.drained
        self.suspension = cluster.maintenance.suspension if cluster.maintenance.entered else None
        self.epoch = cluster.controller_epoch
        #: Partitions with an unclean choice: counted once they are durable, not once per attempt.
        self.chosen_unclean: set[Partition] = set()
        #: Thousands of partitions have one of few assignments and ISRs, and those elect alike.
        self._alike: dict[tuple[object, ...], Elected | None] = {}
        self._has_clean: dict[tuple[BrokerIds, DirectoryIds], bool] = {}

    def decide(self, partition: Partition) -> StateChange | None:
        """The next state of one partition; None (and a reason in ``failed``) when no leader can be elected."""
        current = partition.leadership
        if current is None:
            self.failed[partition] = NoState()
            return None
        if current.controller_epoch > self.epoch:
            self.failed[partition] = NewerController(current.controller_epoch, self.epoch)
            return None
        elected = self._elected(partition, current)
        if elected is None:
            ballot = self._ballot(partition, current)
            self.failed[partition] = leader_election.why_nobody(self.kind.strategy, ballot, self.suspension)
            return None
        if elected.unclean:
            self.chosen_unclean.add(partition)
        else:
            self.chosen_unclean.discard(partition)
        new = current.successor(elected.leader, elected.isr, self.epoch, elected.recovery)
        if elected.unclean and new.directories:
            # It begins with what it has.
            new = msgspec.structs.replace(new, directories=())
        return StateChange(partition, current, new, elected.recipients)

    def _elected(self, partition: Partition, current: LeaderAndIsr) -> Elected | None:
        if self.context.cluster.offline_dirs:
            return leader_election.elect(self.kind.strategy, self._ballot(partition, current))
        # All of a ballot that differs between partitions whose disks are healthy, but for epochs.
        key = (
            partition.replicas,
            partition.removing,
            current.leader,
            current.isr,
            current.directories,
            current.recovery,
            self.unclean.get(partition.topic.name, False),
        )
        try:
            return self._alike[key]
        except KeyError:
            elected = leader_election.elect(self.kind.strategy, self._ballot(partition, current))
            self._alike[key] = elected
            return elected

    def online(self, partition: Partition) -> frozenset[int]:
        cluster = self.context.cluster
        return self.live if not cluster.offline_dirs else cluster.online_set(partition, self.live)

    def _ballot(self, partition: Partition, current: LeaderAndIsr) -> Ballot:
        kind = self.kind
        return Ballot(
            partition.replicas,
            current,
            self.online(partition),
            self.shutting_down,
            self.drained,
            partition.removing,
            kind.leader,
            # As in Kafka, an operator's permission counts only where no member of the ISR is online (``ask``).
            self.unclean.get(partition.topic.name, False),
            kind.supports_recovery,
            self.context.cluster.without_data(current),
        )

    def decisions(self, partitions: Iterable[Partition]) -> Iterator[StateChange | None]:
        return map(self.decide, partitions)

    def applied(self, batch: list[StateChange]) -> None:
        """A batch is durable: update memory first, then queue pushes (UpdateMetadata reads the cache, KAFKA-9212)."""
        context = self.context
        moved = []
        for change in batch:
            partition = change.partition
            partition.leadership = change.new
            if partition.state is not ONLINE:
                moved.append(PartitionTransition(partition, partition.state, ONLINE, change.new))
                partition.state = ONLINE
        context.push_leadership([(c.recipients, c.partition) for c in batch])
        context.push_metadata([c.partition for c in batch])
        unclean = self.chosen_unclean
        if unclean:
            context.cluster.unclean_elections += sum(c.partition in unclean for c in batch)
            # Whoever is alone in the ISR now may be all that a move waited for.
            moves = context.cluster.reassignments
            moving = [c.partition for c in batch if c.partition in unclean and c.partition in moves.ongoing]
            if moving:
                moves.in_sync.update(dict.fromkeys(moving))
                context.later(FollowUp.REASSIGNMENTS)
        reason = self.kind.reason
        by_cleanness: dict[str, list[LeadershipChange]] = {}
        for change in batch:
            name = f"{reason}_unclean" if change.partition in unclean else reason
            by_cleanness.setdefault(name, []).append(
                LeadershipChange(change.partition, change.old, change.new)
            )
        for name, changes in by_cleanness.items():
            context.log(changes, name)
        context.log(moved, f"elected: {reason}")

    def unasked(self, partitions: Iterable[Partition]) -> list[Partition]:
        """The partitions that only an unclean election could help, and whose topic config is not read yet."""
        if self.kind.strategy is not Strategy.OFFLINE:
            return []
        return [
            p
            for p in partitions
            if p.leadership is not None
            and p.topic.name not in self.unclean
            and not self._has_clean_candidate(p, p.leadership)
            and not self.online(p).isdisjoint(p.replicas)
        ]

    def _has_clean_candidate(self, partition: Partition, state: LeaderAndIsr) -> bool:
        """Whether a member of the ISR is online and has kept its data."""
        cluster = self.context.cluster
        key = state.isr, state.directories
        found = None if cluster.offline_dirs else self._has_clean.get(key)
        if found is None:
            found = bool(self.online(partition) & (frozenset(state.isr) - cluster.without_data(state)))
            self._has_clean[key] = found
        return found

    def ask(self, partitions: Iterable[Partition]) -> Handler[None]:
        """Read which topics permit unclean election (reference, section 5.2); in maintenance mode none does, unless an
        operator's request allows it."""
        names = list(dict.fromkeys(p.topic.name for p in self.unasked(partitions)))
        if self.kind.allow_unclean:
            self.unclean.update(dict.fromkeys(names, True))
        elif self.context.cluster.maintenance.entered is not None:
            self.unclean.update(dict.fromkeys(names, False))
        elif names:
            configs = yield from self.context.read(ReadTopicConfigs(names))
            for name, config in zip(names, configs, strict=True):
                self.unclean[name] = permits_unclean(self.context, name, config)


def _elect(
    context: EventContext, partitions: Sequence[Partition], kind: ElectionKind
) -> Handler[dict[Partition, Reason]]:
    chosen = _Election(context, kind)
    yield from refresh(context, [p for p in partitions if p.leadership is None])
    lost: dict[Partition, Reason] = {}
    pending: Sequence[Partition] = partitions
    reread: set[Partition] = set()
    while pending:
        for partition in pending:
            chosen.failed.pop(partition, None)
        yield from chosen.ask(pending)
        lost.update(
            (yield from write_states(context, chosen.decisions(pending), chosen.applied, chosen.decide))
        )
        # Do not fail a partition on cached state alone: its leader may have changed the ISR itself.
        stale = [p for p in chosen.failed if p not in reread]
        reread.update(stale)
        changed = yield from refresh(context, stale)
        yield from lost_data.take_out(context, changed)
        pending = list(dict.fromkeys([*changed, *chosen.unasked(chosen.failed)]))
    return {**chosen.failed, **lost}


def permits_unclean(context: EventContext, topic: str, config: Mapping[str, str] | Problem) -> bool:
    """Whether a topic permits unclean election: by its configuration, else by the default."""
    path = topic_config_path(topic)
    if isinstance(config, Problem):
        context.problem(config)
        return False
    value = config.get(UNCLEAN)
    given = value.strip().lower() if value is not None else ""
    if value is not None and given not in ("true", "false"):
        context.problem(Problem(path, f"{UNCLEAN} = {value!r}: must be true or false"))
        return False
    context.solved(path)
    return context.unclean_default if value is None else given == "true"
