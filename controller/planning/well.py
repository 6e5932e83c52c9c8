"""What is wrong with a cluster, and what is not finished: for ``pctl health`` and the console.

Partitions are counted one by one (``Tally``), so that a million of them need no list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from controller.core.model import Attribution, BrokerIds, LeaderAndIsr, Maintenance
from controller.core.names import counted

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
    PAUSED = "paused"
    MAINTENANCE = "maintenance"
    PUSH_PROBLEM = "push_problem"
    IGNORED = "brokers_ignored"


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
        self, topic: str, number: int, replicas: BrokerIds, state: LeaderAndIsr | None, min_isr: int
    ) -> Wrong | None:
        """Count a partition; the worst that is wrong with it."""
        registered = self.registered
        if not registered.issuperset(replicas):
            self.lacking.update(b for b in replicas if b not in registered)
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
                named = _and_more(self._first[what], count)
                yield Finding(what, count, f"{counted(count, 'partition')} {text}: {named}")


def wrong(
    controller_id: int,
    tally: Tally,
    pushes: Mapping[int, str] | str | None,
    problems: Collection[str],
    maintenance: Maintenance,
) -> Iterator[Finding]:
    """Everything that is wrong. ``controller_id``: the active one, -1: none. ``pushes``: by broker that the controller
    knows, why it takes no pushes (empty: it does); as text why the controller did not answer; None: there is none to
    ask. ``problems``: paths of unreadable znodes."""
    if controller_id < 0:
        yield Finding(Wrong.NO_CONTROLLER, 1, "no controller is active")
    elif isinstance(pushes, str):
        yield Finding(Wrong.CONTROLLER_SILENT, 1, f"controller {controller_id} does not answer: {pushes}")
    for id_, lacking in sorted(tally.lacking.items()):
        yield Finding(Wrong.BROKERS_GONE, 1, f"broker {id_} is gone: {counted(lacking, 'partition')} lack it")
    if pushes is not None and not isinstance(pushes, str):
        yield from _of_pushes(tally.registered, pushes)
    yield from tally.findings()
    if problems:
        count = len(problems)
        yield Finding(
            Wrong.UNREADABLE, count, f"{counted(count, 'unreadable znode')}: {_named(sorted(problems))}"
        )
    for kind, mark in ((Wrong.PAUSED, maintenance.paused), (Wrong.MAINTENANCE, maintenance.entered)):
        if mark is not None:
            yield Finding(kind, 1, f"{kind.value} {_by(mark)}")


def _by(mark: Attribution) -> str:
    return f"by {mark.author}: {mark.reason}"


def _of_pushes(registered: Collection[int], pushes: Mapping[int, str]) -> Iterator[Finding]:
    for id_ in sorted(registered):
        if id_ not in pushes:
            yield Finding(Wrong.IGNORED, 1, f"broker {id_} is ignored by the controller")
        elif pushes[id_]:
            yield Finding(Wrong.PUSH_PROBLEM, 1, f"broker {id_} takes no pushes: {pushes[id_]}")


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
    every = list(names)
    return _and_more(every, len(every))


def _and_more(names: Sequence[str], count: int) -> str:
    more = f" and {count - NAMED_MAX} more" if count > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more
