"""What is wrong with a cluster, and what is not finished: for ``pctl health`` and the console.

Partitions are counted one by one (``Tally``), so that a million of them need no list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from controller.core.brokers.registrations import of_other_clusters, shared_endpoints
from controller.core.model import Broker, BrokerIds, LeaderAndIsr, Maintenance
from controller.core.names import counted, first_few
from controller.planning.restrictions import attribution_text, freeze_text

#: Partitions that one line names.
NAMED_MAX = 5


class Wrong(Enum):
    """The value is for programs."""

    __hash__ = object.__hash__

    NO_CONTROLLER = "no_controller"
    CONTROLLER_SILENT = "controller_does_not_answer"
    BROKERS_GONE = "brokers_gone"
    UNAVAILABLE = "unavailable_partitions"
    UNDER_MIN_ISR = "under_min_isr_partitions"
    UNDER_REPLICATED = "under_replicated_partitions"
    UNREADABLE = "unreadable_znodes"
    QUARANTINED = "in_quarantine"
    PAUSED = "paused"
    MAINTENANCE = "maintenance"
    FROZEN = "frozen"
    PUSH_PROBLEM = "push_problem"
    WENT_BACK = "zookeeper_went_back"
    IGNORED = "brokers_ignored"
    LOG_NOT_WRITTEN = "state_log_not_written"
    FLAPPING = "brokers_flapping"
    SHARED_ENDPOINT = "brokers_share_an_endpoint"
    OTHER_CLUSTER = "broker_of_another_cluster"


class Unfinished(Enum):
    """Work of the controller and of brokers that ends by itself; the value is for programs."""

    PUSHES = "pending_pushes"
    DELETIONS = "topics_being_deleted"
    REASSIGNMENTS = "reassignments"
    SHUTDOWNS = "brokers_shutting_down"


class Finding(NamedTuple):
    """``text``: for people, with the names of what it is about."""

    what: Wrong | Unfinished
    number: int
    text: str


#: What is said of partitions, in this order.
_OF_PARTITIONS = {
    Wrong.UNAVAILABLE: "without a leader that is alive",
    Wrong.UNDER_MIN_ISR: "below min.insync.replicas: writes with acks=all fail",
    Wrong.UNDER_REPLICATED: "with a replica out of sync",
}


class Tally:
    """Counts partitions by what is wrong with them. ``registered``: ids of the registered brokers; ``lacking``: number
    of partitions that lack a broker, by those that are not registered."""

    def __init__(self, registered: Collection[int]) -> None:
        self.registered = frozenset(registered)
        self.counts: Counter[Wrong] = Counter()
        self.lacking: Counter[int] = Counter()
        self._first: dict[Wrong, list[str]] = {kind: [] for kind in _OF_PARTITIONS}

    def add(
        self,
        topic: str,
        number: int,
        replicas: BrokerIds,
        state: LeaderAndIsr | None,
        min_isr: int,
        *,
        deleting: bool = False,
    ) -> Wrong | None:
        """Count a partition; the worst that is wrong with it. ``deleting``: its topic is to be deleted, so that nobody
        misses a leader or a replica, but brokers that are to delete theirs."""
        registered = self.registered
        if not registered.issuperset(replicas):
            self.lacking.update(b for b in replicas if b not in registered)
        if deleting:
            return None
        if state is None or state.leader not in registered:
            return self._found(Wrong.UNAVAILABLE, topic, number)
        worst = None
        if state.isr != replicas and not set(replicas) <= set(state.isr):
            worst = self._found(Wrong.UNDER_REPLICATED, topic, number)
        if state.spare(replicas, min_isr) < 0:
            worst = self._found(Wrong.UNDER_MIN_ISR, topic, number)
        return worst

    def _found(self, what: Wrong, topic: str, number: int) -> Wrong:
        self.counts[what] += 1
        if len(first := self._first[what]) < NAMED_MAX:
            first.append(f"{topic}-{number}")
        return what

    def findings(self) -> Iterator[Finding]:
        for what, text in _OF_PARTITIONS.items():
            if count := self.counts[what]:
                named = first_few(self._first[what], NAMED_MAX, count)
                yield Finding(what, count, f"{counted(count, 'partition')} {text}: {named}")


class Told(NamedTuple):
    """What the controller tells of a broker: why it takes no pushes (empty: it does), how often it was lost in a row,
    for how long no leadership returns to it, of how many partitions it was told newer states than ZooKeeper has, and
    why these cannot be taken over yet (empty: they can)."""

    push_problem: str = ""
    losses: int = 0
    hold_s: int = 0
    newer_states: int = 0
    newer_wait: str = ""


class Seen(NamedTuple):
    """A cluster, as it is looked at.

    ``controller_id``: the active one, -1: none. ``told``: by broker that it knows; as text why it did not answer; None:
    there is none to ask. ``problems``: paths of unreadable znodes. ``forgotten``: ids of brokers that never return.
    ``quarantined``: what the controller leaves out. ``kraft``: the active controller is one of KRaft.
    ``log_problem``: why the active one cannot write its state-change log (empty: it can), and how many records it lost
    since its start. ``brokers``: as they are registered. ``cluster_id``: empty if it is not known.
    """

    controller_id: int
    tally: Tally
    told: Mapping[int, Told] | str | None
    problems: Collection[str]
    maintenance: Maintenance
    forgotten: Collection[int]
    quarantined: Collection[str]
    kraft: bool = False
    log_problem: tuple[str, int] = ("", 0)
    brokers: Mapping[int, Broker] = MappingProxyType({})
    cluster_id: str = ""


def wrong(seen: Seen) -> Iterator[Finding]:
    """Everything that is wrong."""
    if seen.controller_id < 0:
        yield Finding(Wrong.NO_CONTROLLER, 1, "no controller is active")
    elif seen.told is None and not seen.kraft and seen.controller_id not in seen.tally.registered:
        # Without an address it should be a broker of Kafka.
        text = (
            f"no controller is active: /controller names {seen.controller_id}, which is no registered broker"
        )
        yield Finding(Wrong.NO_CONTROLLER, 1, text)
    elif isinstance(seen.told, str):
        text = f"controller {seen.controller_id} does not answer: {seen.told}"
        yield Finding(Wrong.CONTROLLER_SILENT, 1, text)
    for id_, lacking in sorted(seen.tally.lacking.items()):
        known = id_ in seen.forgotten
        forgotten = f" and forgotten (pctl brokers decommission {id_} moves them)" if known else ""
        lack = "lacks" if lacking == 1 else "lack"
        text = f"broker {id_} is gone{forgotten}: {counted(lacking, 'partition')} {lack} it"
        yield Finding(Wrong.BROKERS_GONE, 1, text)
    if seen.told is not None and not isinstance(seen.told, str):
        yield from _told(seen.tally.registered, seen.told)
    yield from (Finding(Wrong.SHARED_ENDPOINT, 1, text) for text in shared_endpoints(seen.brokers))
    others = of_other_clusters(seen.brokers, seen.cluster_id)
    yield from (Finding(Wrong.OTHER_CLUSTER, 1, text) for text in others)
    why, lost = seen.log_problem
    if why:
        text = f"controller {seen.controller_id} cannot write its state-change log ({why})"
        yield Finding(Wrong.LOG_NOT_WRITTEN, lost, f"{text}: {counted(lost, 'record')} lost")
    yield from seen.tally.findings()
    if seen.problems:
        count, named = len(seen.problems), _named(sorted(seen.problems))
        yield Finding(Wrong.UNREADABLE, count, f"{counted(count, 'unreadable znode')}: {named}")
    if seen.quarantined:
        text = f"in quarantine: {_named(seen.quarantined)}"
        yield Finding(Wrong.QUARANTINED, len(seen.quarantined), text)
    yield from _restricted(seen.maintenance)


def _restricted(marks: Maintenance) -> Iterator[Finding]:
    for kind, mark in ((Wrong.PAUSED, marks.paused), (Wrong.MAINTENANCE, marks.entered)):
        if mark is not None:
            yield Finding(kind, 1, f"{kind.value} {attribution_text(mark)}")
    if marks.freeze is not None:
        yield Finding(Wrong.FROZEN, 1, f"frozen {freeze_text(marks.freeze)}")


def _told(registered: Collection[int], told: Mapping[int, Told]) -> Iterator[Finding]:
    for id_ in sorted(registered):
        known = told.get(id_)
        if known is None:
            yield Finding(Wrong.IGNORED, 1, f"broker {id_} is ignored by the controller")
            continue
        if known.push_problem:
            yield Finding(
                Wrong.PUSH_PROBLEM, 1, f"broker {id_} does not take all pushes: {known.push_problem}"
            )
        if known.newer_states:
            partitions = counted(known.newer_states, "partition")
            text = f"broker {id_} was told newer states of {partitions} than ZooKeeper has, which went back"
            wait = f"not taken over, since {known.newer_wait}" if known.newer_wait else "to be taken over"
            yield Finding(Wrong.WENT_BACK, known.newer_states, f"{text}: they are {wait}")
        if known.hold_s:
            text = (
                f"broker {id_} comes and goes: it was lost {known.losses} times, and gets no leaderships back"
            )
            yield Finding(Wrong.FLAPPING, 1, f"{text} until it is up for {known.hold_s} s")


def unfinished(
    pending: int, deleting: Sequence[str], shutting_down: Collection[int], moving: int
) -> Iterator[Finding]:
    """Everything that is under way. ``pending``: pushes; ``moving``: number of partitions being reassigned."""
    if pending:
        yield Finding(Unfinished.PUSHES, pending, f"pushes pending: {pending}")
    if deleting:
        text = f"{counted(len(deleting), 'topic')} being deleted: {_named(deleting)}"
        yield Finding(Unfinished.DELETIONS, len(deleting), text)
    if moving:
        yield Finding(Unfinished.REASSIGNMENTS, moving, f"{counted(moving, 'partition')} being reassigned")
    if shutting_down:
        text = f"shutting down: {_named(map(str, shutting_down))}"
        yield Finding(Unfinished.SHUTDOWNS, len(shutting_down), text)


def _named(names: Iterable[str]) -> str:
    return first_few(list(names), NAMED_MAX)
