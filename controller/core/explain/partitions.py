"""Explains the state of a partition: checked rules, failed candidates, possible changes.

Pure functions of the cluster state, of the active controller or as read from ZooKeeper by a tool. Each explanation is
data; ``words`` returns it as lines of text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from controller.core.context import CoreSettings
from controller.core.explain.remedies import BROKERS, Change, Remedy
from controller.core.model import (
    NO_LEADER,
    RECOVERING,
    BrokerIds,
    Cluster,
    LeaderAndIsr,
    Maintenance,
    Partition,
    PartitionState,
    Suspension,
)
from controller.core.names import ids_shown, name_shown
from controller.core.partitions.leader_election import STRATEGIES, Ballot, Strategy, Tried, trace
from controller.core.reassignment.concurrency import pending_reasons
from controller.core.znode_paths import state_path, topic_config_path, topic_path


class Deciding(NamedTuple):
    """The event that decided a partition's leadership, its controller epoch, and its time."""

    event_id: int
    cause: str
    controller_epoch: int
    at: str


@dataclass(frozen=True)
class PartitionExplanation:
    """``summary``: the state in one sentence. ``decision``: who decided it. ``advice``: what would change it.

    ``event_id`` and ``cause``: the event that decided it; 0 and empty where it is unknown.
    """

    topic: str
    partition: int
    summary: str
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: BrokerIds
    replicas: BrokerIds
    rules: tuple[Tried, ...]
    decision: str
    advice: tuple[Change, ...]
    notes: tuple[str, ...] = ()
    event_id: int = 0
    cause: str = ""

    @property
    def changes(self) -> tuple[str, ...]:
        """What would change it, as texts."""
        return tuple(map(str, self.advice))

    def words(self) -> list[str]:
        lines = [f"{self.topic}-{self.partition}: {self.summary}"]
        lines.append(f"replicas {ids_shown(self.replicas)}, in sync {ids_shown(self.isr)}")
        lines.append(self.decision)
        lines.extend(f"rule {n}: {_tried_words(tried)}" for n, tried in enumerate(self.rules, 1))
        lines.extend(self.notes)
        lines.extend(f"would change it: {text}" for text in self.changes)
        return lines


# --- partitions ----------------------------------------------------------------------------------------------


def explain_partition(
    cluster: Cluster,
    partition: Partition,
    *,
    unclean_allowed: bool,
    controller_active: bool = True,
    deciding: Deciding | None = None,
    unacknowledged: str = "",
    config_problem: str = "",
) -> PartitionExplanation:
    """Explain a partition. ``unclean_allowed``: by the topic's configuration, or else by the default.
    ``unacknowledged``: why its leader does not know that it leads; empty: it does, or that is unknown.
    ``config_problem``: why the topic's configuration is unreadable; empty: it is not."""
    unclean_allowed = unclean_allowed and not config_problem
    state = partition.leadership
    # In maintenance mode the configuration permits no unclean election.
    unclean = unclean_allowed and cluster.maintenance.entered is None
    rules = tuple(_tried(cluster, partition, state, unclean)) if state else ()
    return PartitionExplanation(
        partition.topic.name,
        partition.number,
        _summary(cluster, partition, state, unacknowledged),
        state.leader if state else NO_LEADER,
        state.leader_epoch if state else -1,
        state.partition_epoch if state else -1,
        state.isr if state else (),
        partition.replicas,
        rules,
        _decision(cluster, state, controller_active, deciding),
        tuple(_changes(cluster, partition, state, rules, unclean_allowed, controller_active)),
        tuple(_notes(cluster, partition, config_problem)),
        event_id=deciding.event_id if deciding else 0,
        cause=deciding.cause if deciding else "",
    )


def _tried(
    cluster: Cluster, partition: Partition, state: LeaderAndIsr, unclean_allowed: bool
) -> Iterator[Tried]:
    """The traces of the strategies that explain any partition, in the order of their table."""
    ballot = ballot_of(cluster, partition, state, unclean_allowed)
    for strategy, method in STRATEGIES.items():
        if method.explained:
            yield from trace(strategy, ballot)


def ballot_of(
    cluster: Cluster, partition: Partition, state: LeaderAndIsr, unclean_allowed: bool = False
) -> Ballot:
    return Ballot(
        partition.replicas,
        state,
        frozenset(cluster.online_replicas(partition)),
        cluster.shutting_down,
        cluster.maintenance.drained,
        unclean_allowed=unclean_allowed,
        without_data=cluster.without_data(state),
    )


def _tried_words(tried: Tried) -> str:
    if not tried.candidates:
        return f"{tried.way.text}: no replica is assigned"
    nobody = tried.leader == NO_LEADER
    found = "; ".join(map(str, tried.candidates)) if nobody else f"{tried.leader} qualifies"
    return f"{tried.way.text}: {'' if tried.permitted else 'not permitted; '}{found}"


def _way(rules: Sequence[Tried], strategy: Strategy, *, unclean: bool = False) -> Tried:
    return next(t for t in rules if t.strategy is strategy and t.way.unclean is unclean)


def _summary(cluster: Cluster, partition: Partition, state: LeaderAndIsr | None, unacknowledged: str) -> str:
    path = state_path(partition.topic.name, partition.number)
    if (problem := cluster.problems.get(path)) is not None:
        return f"its state is unreadable: {path}: {problem}"
    if state is None:
        return "it was never led: it has no state yet"
    if state.leader == NO_LEADER:
        lacking = cluster.without_data(state)
        if lacking.issuperset(state.isr):
            return f"it has no leader: {ids_shown(state.isr)}, which were in sync, came back without the data they had"
        return "it has no leader"
    if state.leader not in cluster.brokers:
        return f"its leader {state.leader} is gone, and no new leader is elected yet"
    if partition in cluster.offline_dirs.get(state.leader, ()):
        return f"its leader {state.leader} has lost the disk it is on"
    words = f"{state.leader} leads it"
    if unacknowledged:
        words = f"{state.leader} is to lead it, but has not acknowledged that: {unacknowledged}"
    if state.recovery == RECOVERING:
        words += ", elected uncleanly and recovering"
    lagging = [b for b in partition.replicas if b not in state.isr]
    if lagging:
        words += f"; it is under-replicated, {lagging} not in sync"
    return words


def _notes(cluster: Cluster, partition: Partition, config_problem: str) -> Iterator[str]:
    path = topic_path(partition.topic.name)
    if (problem := cluster.problems.get(path)) is not None:
        yield f"its topic is unreadable, what was read before counts: {path}: {problem}"
    if config_problem:
        path = topic_config_path(partition.topic.name)
        yield f"its settings are unreadable, and permit no unclean election: {path}: {config_problem}"


def _decision(
    cluster: Cluster, state: LeaderAndIsr | None, controller_active: bool, deciding: Deciding | None
) -> str:
    now = cluster.controller_epoch
    if state is None:
        return f"no controller has decided about it; the present controller epoch is {now}"
    which = "the present one" if state.controller_epoch == now else f"the present one is {now}"
    if state.controller_epoch > now:
        which = f"newer than the present one, {now}: no controller of that epoch touches it"
    if not controller_active:
        which = "no controller is active now"
    event = "the event is in that controller's state-change log"
    if deciding is not None:
        number, cause, epoch, at = deciding
        event = f"decided by event {number} ({cause}) of controller epoch {epoch} at {at}"
    return (
        f"leader epoch {state.leader_epoch}, partition epoch {state.partition_epoch}, written under controller epoch "
        f"{state.controller_epoch} ({which}); {event}"
    )


def _changes(
    cluster: Cluster,
    partition: Partition,
    state: LeaderAndIsr | None,
    rules: Sequence[Tried],
    unclean_allowed: bool,
    controller_active: bool,
) -> Iterator[Change]:
    if not controller_active:
        yield Change("a controller that is elected: until then nothing changes")
    if state is None:
        absent = tuple(b for b in partition.replicas if b not in cluster.brokers)
        if absent:
            text = f"the return of any of {BROKERS}: its first online replicas become the ISR"
            yield from _also_unsuspended(cluster, Change(text, frozenset({Remedy.RETURN}), absent))
        else:
            yield Change("the controller, which creates the state of a partition once it has seen its topic")
        return
    if not partition.replicas:
        yield Change("nothing: its replicas are deleted, and what is left of its topic will be")
        return
    leads = state.leader in cluster.brokers and partition not in cluster.offline_dirs.get(state.leader, ())
    if not leads:
        yield from _ways_to_a_leader(cluster, partition, state, rules, unclean_allowed)
        return
    clean, preferred = _way(rules, Strategy.OFFLINE), _way(rules, Strategy.PREFERRED)
    if state.leader != partition.replicas[0]:
        if preferred.leader == NO_LEADER:
            unsolved = "; ".join(map(str, preferred.candidates))
            yield Change(
                f"preferred replica {partition.replicas[0]} takes over once this is solved: {unsolved}"
            )
        else:
            text = f"a preferred election gives it to {preferred.leader} (pctl elect)"
            yield Change(text, frozenset({Remedy.ELECT_PREFERRED}), leader=preferred.leader)
    for candidate in clean.candidates:
        if candidate.unmet is not None and candidate.broker not in state.isr:
            yield Change(back_in_sync(cluster, partition, candidate.broker, state.leader))


def back_in_sync(cluster: Cluster, partition: Partition, broker_id: int, leader: int) -> str:
    """What would bring a replica into the ISR, as text."""
    if broker_id not in cluster.brokers:
        return f"broker {broker_id} returns and catches up with {leader}"
    if broker_id in cluster.shutting_down:
        return f"broker {broker_id}, which is shutting down, restarts and catches up with {leader}"
    if partition in cluster.offline_dirs.get(broker_id, ()):
        return f"the failed disk of broker {broker_id} is repaired"
    return f"the replica on {broker_id} catches up with {leader}, which then proposes it for the ISR"


def _ways_to_a_leader(
    cluster: Cluster,
    partition: Partition,
    state: LeaderAndIsr,
    rules: Sequence[Tried],
    unclean_allowed: bool,
) -> Iterator[Change]:
    """What would give it a leader. Of a suspended controller, also what would do so once that has ended."""
    clean, unclean = _way(rules, Strategy.OFFLINE), _way(rules, Strategy.OFFLINE, unclean=True)
    maintenance, acts = cluster.maintenance, frozenset[Remedy]()
    electable = clean.leader != NO_LEADER or (unclean.permitted and unclean.leader != NO_LEADER)
    if electable and (mark := maintenance.paused) is not None:
        who = clean.leader if clean.leader != NO_LEADER else unclean.leader
        text = f"the end of the pause by {mark.author} ({mark.reason}): {who} qualifies, and is elected then"
        yield Change(text, frozenset({Remedy.RESUME}), leader=who)
        return
    if clean.leader != NO_LEADER:
        text = f"an election: {clean.leader} qualifies, and the controller will elect it"
        if partition.state is PartitionState.OFFLINE:
            # It was given up, or is just being held.
            where = f"--topic {name_shown(partition.topic.name)} --partition {partition.number}"
            text += f"; why it has not: pctl history --kind reject {where}"
        yield Change(text, acts, leader=clean.leader)
        return
    if unclean.permitted and unclean.leader != NO_LEADER:
        text = f"an election: {unclean.leader} qualifies uncleanly, and the controller will elect it"
        yield Change(text, acts, leader=unclean.leader)
        return
    isr, name = ids_shown(state.isr), partition.topic.name
    gone = tuple(b for b in partition.replicas if b in state.isr and b not in cluster.brokers)
    if gone:
        text = f"the return of any of {BROKERS} (ISR {isr}): it leads at once, nothing is lost"
        yield from _also_unsuspended(cluster, Change(text, frozenset({Remedy.RETURN}), gone))
    if leaving := tuple(b for b in state.isr if b in cluster.shutting_down and b in cluster.brokers):
        yield Change(
            f"the restart of any of {BROKERS}, which is shutting down: nothing is lost", None, leaving
        )
    failed = tuple(b for b in state.isr if partition in cluster.offline_dirs.get(b, ()))
    if failed:
        text = f"the failed disk of any of {BROKERS} is repaired"
        yield from _also_unsuspended(cluster, Change(text, frozenset({Remedy.REPAIR}), failed))
    if lacking := tuple(b for b in state.isr if b in cluster.without_data(state)):
        yield Change(
            f"the return of any of {BROKERS} with the data directory it had: nothing is lost", None, lacking
        )
    if unclean.leader == NO_LEADER:
        return
    lost = f"{unclean.leader} leads, and records that only {isr} hold are lost"
    leader = unclean.leader
    if unclean_allowed and (suspension := _barring(maintenance)) is not None:
        text = f"the end of being {suspension}: {leader} is elected uncleanly then"
        yield Change(text, _suspending(cluster), leader=leader)
    else:
        text = f"unclean.leader.election.enable=true for topic {name}: {lost}"
        change = Change(text, frozenset({Remedy.ALLOW_UNCLEAN}), leader=leader)
        yield from _also_unsuspended(cluster, change)
    text = f"pctl elect unclean --partition {partition.name}: {lost}"
    yield Change(text, frozenset({Remedy.ELECT_UNCLEAN}), leader=leader)


def _barring(maintenance: Maintenance) -> Suspension | None:
    """What keeps elections from being made; a freeze does not."""
    return None if maintenance.suspension == maintenance.frozen else maintenance.suspension


def _suspending(cluster: Cluster) -> frozenset[Remedy]:
    """The steps that end what suspends automatic work."""
    state = cluster.maintenance
    ends = ((state.paused, Remedy.RESUME), (state.entered, Remedy.LEAVE))
    return frozenset(step for mark, step in ends if mark is not None)


def _also_unsuspended(cluster: Cluster, change: Change) -> Iterator[Change]:
    """The change; where automatic work is suspended, also the change and the end of that."""
    yield change
    suspension = _barring(cluster.maintenance)
    if suspension is not None and change.steps is not None:
        text = f"{change.text}; once the controller is no longer {suspension}"
        yield change._replace(text=text, steps=change.steps | _suspending(cluster))


def explain_deletion(cluster: Cluster, topic: str) -> tuple[str, ...]:
    """The progress of a topic's deletion, and what blocks it; empty where none was requested."""
    if (reason := cluster.deletions_waiting.get(topic)) is not None:
        return (f"its topic is to be deleted, later: {reason}",)
    if topic not in cluster.topics_to_delete:
        return ()
    held = cluster.deletions_ineligible.get(topic)
    if held is not None:
        return (f"its topic is to be deleted; that is held up: {held.reason}",)
    started = topic in cluster.topics_deletion_started
    return (f"its topic is being deleted: {'brokers were notified' if started else 'it is queued'}",)


def explain_move(cluster: Cluster, settings: CoreSettings, partition: Partition) -> tuple[str, ...]:
    """The reassignment of a partition, and what it waits for; empty without one."""
    moving = partition.adding or partition.removing or partition in cluster.reassignments.ongoing
    notified = [f"reassignment: {reason}" for reason in pending_reasons(cluster, settings, partition)]
    if moving:
        notified.insert(
            0,
            f"it is being reassigned: adding {ids_shown(partition.adding)}, removing {ids_shown(partition.removing)}",
        )
    return tuple(notified)
