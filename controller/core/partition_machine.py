"""The partition state machine: four states, their legal transitions and effects (reference, section 5).

New, Offline and NonExistent are changes of memory. Online makes leadership durable first: it creates the
state of a new partition, or elects a leader for an existing one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from controller.core import election
from controller.core.commits import BATCH_WRITES, StateChange, write_states
from controller.core.effects import Committed, CreateState, Problem, ReadStates, ReadTopicConfigs
from controller.core.election import Elected, ElectionKind, Strategy
from controller.core.model import (
    RECOVERED,
    LeaderAndIsr,
    Partition,
    PartitionState,
    interned,
)
from controller.core.turn import Pause, Procedure, Turn

NON_EXISTENT, NEW = PartitionState.NON_EXISTENT, PartitionState.NEW
ONLINE, OFFLINE = PartitionState.ONLINE, PartitionState.OFFLINE

#: Legal transitions: target to the states it may be reached from (reference, section 5.1).
VALID_PREVIOUS: dict[PartitionState, frozenset[PartitionState]] = {
    NEW: frozenset({NON_EXISTENT}),
    ONLINE: frozenset({NEW, ONLINE, OFFLINE}),
    OFFLINE: frozenset({NEW, ONLINE, OFFLINE}),
    NON_EXISTENT: frozenset({OFFLINE}),
}

UNCLEAN_CONFIG = "unclean.leader.election.enable"


def legal(turn: Turn, partitions: Iterable[Partition], target: PartitionState) -> list[Partition]:
    """Those that may go to ``target``; each of the others is refused, recorded, and keeps its state."""
    previous = VALID_PREVIOUS[target]
    allowed = []
    for partition in partitions:
        if partition.state in previous:
            allowed.append(partition)
        else:
            turn.reject(
                "ILLEGAL_TRANSITION",
                f"{target.value} is only reached from {sorted(s.value for s in previous)}",
                partition,
                partition.state.value,
                target.value,
            )
    return allowed


def _move(turn: Turn, partitions: Iterable[Partition], target: PartitionState, reason: str) -> None:
    rows = []
    for partition in legal(turn, partitions, target):
        if partition.state is not target:
            rows.append((partition, partition.state, target, partition.leadership))
            partition.state = target
    turn.log("partition", rows, reason)


def to_new(turn: Turn, partitions: Iterable[Partition]) -> None:
    _move(turn, partitions, NEW, "created")


def to_offline(turn: Turn, partitions: Iterable[Partition], reason: str) -> None:
    _move(turn, partitions, OFFLINE, reason)


def to_non_existent(turn: Turn, partitions: Iterable[Partition]) -> None:
    _move(turn, partitions, NON_EXISTENT, "deleted")


def to_online(
    turn: Turn, partitions: Iterable[Partition], kind: ElectionKind
) -> Procedure[dict[Partition, str]]:
    """Bring partitions online: initialise New ones, elect a leader for Online and Offline ones.

    Returns the partitions that did not get there, with the reason in words; they keep their state.
    """
    allowed = legal(turn, partitions, ONLINE)
    fresh = [p for p in allowed if p.state is NEW]
    existing = [p for p in allowed if p.state is not NEW]
    failed: dict[Partition, str] = {}
    if fresh:
        adopted = yield from _initialise(turn, fresh, failed)
        existing.extend(adopted)
    if existing:
        failed.update((yield from _elect(turn, existing, kind)))
    turn.log(
        "reject", [(p, "ELECTION_FAILED", p.state.value, ONLINE.value, why) for p, why in failed.items()]
    )
    return failed


def startup(turn: Turn) -> Procedure[None]:
    """Initial states, then everything leaderless is tried (reference, section 5.1)."""
    leaderless = []
    cluster = turn.cluster
    live = cluster.live_ids()
    simple = not cluster.offline_dirs
    for partition in cluster.partitions():
        leadership = partition.leadership
        if leadership is None:
            partition.state = NEW
        elif leadership.leader in live and (simple or cluster.is_online(partition, leadership.leader)):
            partition.state = ONLINE
            continue
        else:
            partition.state = OFFLINE
        leaderless.append((partition, NON_EXISTENT, partition.state, leadership))
    turn.log("partition", leaderless, "found at failover")
    yield Pause.BREATHE
    yield from bring_online(turn)


def bring_online(turn: Turn) -> Procedure[None]:
    """Try every New or Offline partition whose topic is not being deleted, without unclean permission."""
    waiting = [
        p
        for p in turn.cluster.partitions()
        if (p.state is OFFLINE or p.state is NEW) and not turn.cluster.is_deleting(p)
    ]
    if waiting:
        yield from to_online(turn, waiting, election.OFFLINE)


# --- New to Online ---------------------------------------------------------------------------------------


def _initialise(
    turn: Turn, partitions: Sequence[Partition], failed: dict[Partition, str]
) -> Procedure[list[Partition]]:
    """Create the state of new partitions: leader is the first online replica, ISR all online ones.

    Returns partitions whose state turned out to exist: they were adopted and need an election.
    """
    adopted: list[Partition] = []
    epoch = turn.cluster.controller_epoch
    candidates: list[tuple[Partition, LeaderAndIsr]] = []
    for partition in partitions:
        online = turn.cluster.online_replicas(partition)
        if online:
            first = LeaderAndIsr(online[0], 0, interned(online), 0, epoch, RECOVERED)
            candidates.append((partition, first))
        else:
            failed[partition] = f"none of its replicas {list(partition.replicas)} is online"
    source = iter(candidates)
    in_flight: dict[int, list[tuple[Partition, LeaderAndIsr]]] = {}
    while True:
        while len(in_flight) < 4 and (batch := list(islice(source, BATCH_WRITES // 2))):
            in_flight[turn.submit_commit([CreateState(p, new) for p, new in batch])] = batch
            yield Pause.BREATHE
        if not in_flight:
            return adopted
        outcome = yield from turn.wait_any(in_flight)
        batch = in_flight.pop(outcome.id)
        if isinstance(outcome, Committed):
            _initialised(turn, batch)
        else:
            yield from _settle_creation(turn, batch, failed, adopted)


def _initialised(turn: Turn, batch: list[tuple[Partition, LeaderAndIsr]]) -> None:
    for partition, new in batch:
        partition.leadership = new
        turn.push_leadership(new.isr, partition, is_new=True)
        partition.state = ONLINE
    turn.push_metadata([p for p, _ in batch])
    turn.log("leadership", [(p, None, new) for p, new in batch], "initial")
    turn.log("partition", [(p, NEW, ONLINE, new) for p, new in batch], "initialised")


def _settle_creation(
    turn: Turn,
    batch: list[tuple[Partition, LeaderAndIsr]],
    failed: dict[Partition, str],
    adopted: list[Partition],
) -> Procedure[None]:
    """A batch of creations that did not land as a whole: read back; ours is a success, others are adopted.

    The rest is created one batch more, and what then fails is given up until the next event.
    """
    stored = yield from turn.read(ReadStates([p for p, _ in batch]))
    absent: list[tuple[Partition, LeaderAndIsr]] = []
    ours: list[tuple[Partition, LeaderAndIsr]] = []
    for (partition, new), found in zip(batch, stored, strict=True):
        if found is None:
            absent.append((partition, new))
        elif isinstance(found, Problem):
            turn.problem(found)
            failed[partition] = f"{found.path}: {found.problem}"
        elif found == new:
            ours.append((partition, new))
        elif found.controller_epoch > turn.cluster.controller_epoch:
            failed[partition] = f"its state was written by a newer controller, epoch {found.controller_epoch}"
        else:
            turn.reject("CONFLICT", "its state already exists: adopted", partition)
            partition.leadership = found
            to_offline(turn, [partition], "state found in ZooKeeper")
            adopted.append(partition)
    _initialised(turn, ours)
    if absent:
        outcome = yield from turn.commit([CreateState(p, new) for p, new in absent])
        if isinstance(outcome, Committed):
            _initialised(turn, absent)
        else:
            failed.update((p, f"its state could not be created: {outcome.reason}") for p, _ in absent)


# --- Online and Offline to Online ------------------------------------------------------------------------


class _Election:
    """One strategy applied to many partitions; decisions share what does not differ between them."""

    def __init__(self, turn: Turn, kind: ElectionKind, unclean: frozenset[str]) -> None:
        self.turn, self.kind = turn, kind
        #: Topics whose partitions may get an unclean leader.
        self.unclean = unclean
        self.failed: dict[Partition, str] = {}
        cluster = turn.cluster
        self.live = cluster.live_ids()
        self.registered = frozenset(cluster.brokers)
        self.epoch = cluster.controller_epoch
        #: Partitions with an unclean choice: counted once they land, not once per attempt.
        self.chosen_unclean: set[Partition] = set()

    def decide(self, partition: Partition) -> StateChange | None:
        """The next state of one partition; None (and a reason in ``failed``) without a candidate."""
        current = partition.leadership
        if current is None:
            self.failed[partition] = "it has no durable state"
            return None
        elected = self._apply(partition, current)
        if elected is None:
            self.failed[partition] = self._why(partition, current)
            return None
        if elected.unclean:
            self.chosen_unclean.add(partition)
        new = current.successor(elected.leader, elected.isr, self.epoch, elected.recovery)
        return StateChange(partition, current, new, elected.recipients)

    def _apply(self, partition: Partition, current: LeaderAndIsr) -> Elected | None:
        cluster = self.turn.cluster
        online = self.live if not cluster.offline_dirs else cluster.online_set(partition, self.live)
        strategy = self.kind.strategy
        if strategy is Strategy.OFFLINE:
            return election.elect_offline(
                partition.replicas,
                current,
                online,
                unclean_allowed=partition.topic.name in self.unclean,
                supports_recovery=self.kind.supports_recovery,
            )
        if strategy is Strategy.PREFERRED:
            return election.elect_preferred(partition.replicas, current, online)
        if strategy is Strategy.REASSIGN:
            targets = tuple(b for b in partition.replicas if b not in partition.removing)
            return election.elect_reassign(targets, current, online)
        reachable = online | (self.registered & cluster.shutting_down)
        return election.elect_controlled_shutdown(
            partition.replicas, current, reachable, cluster.shutting_down
        )

    def _why(self, partition: Partition, current: LeaderAndIsr) -> str:
        cluster = self.turn.cluster
        online = cluster.online_set(partition, self.live)
        return election.why_none(
            self.kind.strategy, partition.replicas, current, online, cluster.shutting_down
        )

    def decisions(self, partitions: Iterable[Partition]) -> Iterator[StateChange]:
        for partition in partitions:
            change = self.decide(partition)
            if change is not None:
                yield change

    def applied(self, batch: list[StateChange]) -> None:
        """A batch is durable: memory first, then pushes (UpdateMetadata reads the cache, KAFKA-9212)."""
        turn = self.turn
        moved = []
        for change in batch:
            partition = change.partition
            partition.leadership = change.new
            turn.push_leadership(change.recipients, partition)
            if partition.state is not ONLINE:
                moved.append((partition, partition.state, ONLINE, change.new))
                partition.state = ONLINE
        turn.push_metadata([c.partition for c in batch])
        unclean = self.chosen_unclean
        if unclean:
            turn.cluster.unclean_elections += sum(c.partition in unclean for c in batch)
        reason = self.kind.strategy.value
        by_cleanness: dict[str, list[tuple[Partition, LeaderAndIsr, LeaderAndIsr]]] = {}
        for change in batch:
            name = f"{reason}_unclean" if change.partition in unclean else reason
            by_cleanness.setdefault(name, []).append((change.partition, change.old, change.new))
        for name, rows in by_cleanness.items():
            turn.log("leadership", rows, name)
        turn.log("partition", moved, f"elected: {reason}")


def _elect(
    turn: Turn, partitions: Sequence[Partition], kind: ElectionKind
) -> Procedure[dict[Partition, str]]:
    readable = yield from _reread_problems(turn, partitions)
    unclean: frozenset[str] = frozenset()
    if kind.strategy is Strategy.OFFLINE:
        unclean = yield from _unclean_topics(turn, readable, kind.allow_unclean)
    chosen = _Election(turn, kind, unclean)
    lost = yield from write_states(turn, chosen.decisions(readable), chosen.applied, chosen.decide)
    return {**chosen.failed, **lost}


def _reread_problems(turn: Turn, partitions: Sequence[Partition]) -> Procedure[Sequence[Partition]]:
    """Partitions whose state was unreadable get another look: an operator may have mended it."""
    unknown = [p for p in partitions if p.leadership is None]
    if not unknown:
        return partitions
    stored = yield from turn.read(ReadStates(unknown))
    for partition, found in zip(unknown, stored, strict=True):
        if isinstance(found, Problem):
            turn.problem(found)
        elif found is not None:
            partition.leadership = found
    return partitions


def _unclean_topics(
    turn: Turn, partitions: Sequence[Partition], allowed_by_request: bool
) -> Procedure[frozenset[str]]:
    """Topics that may get an unclean leader: only asked where no ISR member lives (reference, section 5.2)."""
    live = turn.cluster.live_ids()
    names: dict[str, None] = {}
    for partition in partitions:
        current = partition.leadership
        if current is None:
            continue
        online = live if not turn.cluster.offline_dirs else turn.cluster.online_set(partition, live)
        if online.isdisjoint(current.isr) and not online.isdisjoint(partition.replicas):
            names[partition.topic.name] = None
    if allowed_by_request or not names:
        return frozenset(names)
    configs = yield from turn.read(ReadTopicConfigs(list(names)))
    allowed = set()
    for name, config in zip(names, configs, strict=True):
        if isinstance(config, Problem):
            turn.problem(config)
            continue
        value = config.get(UNCLEAN_CONFIG)
        if value is None:
            permitted = turn.settings.unclean_leader_election_enable
        elif value.strip().lower() in ("true", "false"):
            permitted = value.strip().lower() == "true"
        else:
            turn.problem(
                Problem(f"/config/topics/{name}", f"{UNCLEAN_CONFIG} = {value!r}: must be true or false")
            )
            continue
        if permitted:
            allowed.add(name)
    return frozenset(allowed)
