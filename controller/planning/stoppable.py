"""Whether brokers may stop now: all reasons against it, the margin for further failures, the largest safe set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import combinations

from controller.core.brokers.stop_approvals import standing
from controller.core.model import StopApproval
from controller.core.znode_paths import BROKERS, CONFIG, is_below
from controller.planning.partition_health import Health, margin
from controller.planning.scenarios import Step, Terms, newly_troubled, stopped_after, there
from controller.planning.snapshot import Key, Snapshot, representatives

#: Up to this number of brokers the largest safe set is exact; for more brokers the search is greedy.
EXACT_MAX = 14


class Why(Enum):
    """Why brokers may not stop; the value is for programs."""

    OFFLINE = "offline"
    UNDER_MIN_ISR = "under_min_isr"
    UNCLEAN = "unclean_election"
    UNDER_REPLICATED = "already_under_replicated"
    UNREADABLE = "unreadable"
    NO_CONTROLLER = "no_controller"
    UNKNOWN_BROKER = "unknown_broker"


#: What would remove a reason.
CHANGES = {
    Why.OFFLINE: "stop fewer of them at once, or give the partition a replica elsewhere and wait until it is in sync",
    Why.UNDER_MIN_ISR: "stop fewer of them at once, wait until more replicas are in sync, or lower min.insync.replicas",
    Why.UNCLEAN: "wait until another replica is in sync, or set unclean.leader.election.enable=false for the topic",
    Why.UNDER_REPLICATED: "wait until its replicas are in sync again, or ask with --tolerate-under-replicated",
    Why.UNREADABLE: "repair or delete that znode: the controller watches it",
    Why.NO_CONTROLLER: "wait until a controller is elected: pctl controllers shows the candidates",
    Why.UNKNOWN_BROKER: "name brokers that are registered: pctl brokers lists them",
}


@dataclass(frozen=True)
class Reason:
    """One reason. ``topic`` is empty and ``partition`` -1 if it is not about a partition."""

    why: Why
    text: str
    topic: str = ""
    partition: int = -1
    brokers: tuple[int, ...] = ()

    @property
    def change(self) -> str:
        """What would remove it, as text."""
        return CHANGES[self.why]


@dataclass(frozen=True)
class Stoppable:
    """The verdict. ``margin``: how many more brokers, whichever they are, may fail once these are stopped before a
    healthy partition is offline or below min.insync.replicas; None: these may not stop. ``largest``: the largest
    subset that may stop together; ``exact``: no larger one exists. ``standing``: all approvals that hold now, by
    broker id; their brokers count as stopped, and so do those in ``shutting_down``."""

    brokers: tuple[int, ...]
    reasons: tuple[Reason, ...]
    margin: int | None
    largest: tuple[int, ...]
    exact: bool
    standing: Mapping[int, StopApproval] = field(default_factory=dict)
    shutting_down: tuple[int, ...] = ()

    @property
    def approved(self) -> bool:
        return not self.reasons


def stoppable(
    snapshot: Snapshot,
    broker_ids: Sequence[int],
    terms: Terms,
    *,
    controller_active: bool = True,
    tolerate_under_replicated: bool = False,
) -> Stoppable:
    """The verdict for brokers that would stop together, each by controlled shutdown.

    A partition already in trouble counts only if these brokers make it worse. Brokers that are approved to stop or are
    shutting down count as stopped before; a broker with an approval keeps it. Raises PlanError for an invalid
    ``min.insync.replicas``.
    """
    asked = tuple(dict.fromkeys(broker_ids))
    approved = standing(snapshot.brokers, snapshot.approvals)
    evaluated = [b for b in asked if b in snapshot.brokers and b not in approved]
    leaving = tuple(sorted(snapshot.shutting_down & snapshot.brokers.keys() - set(evaluated)))
    stopped_before = list(dict.fromkeys((*approved, *leaving)))
    evaluation = _Evaluation(snapshot, stopped_before, evaluated, terms, tolerate_under_replicated)
    now, step = stopped_after(snapshot, stopped_before, evaluated, terms)
    reasons = [*_of_cluster(snapshot, asked, controller_active), *evaluation.reasons(now, step)]
    largest, exact = (
        (tuple(evaluated), True) if not evaluation.troubled(now, step) else evaluation.largest(evaluated)
    )
    spare = None
    if not reasons:
        spare = margin(step.worst.partitions, len(snapshot.brokers) - len(evaluated) - len(stopped_before))
    largest = tuple(b for b in asked if b in largest or b in approved)
    return Stoppable(asked, tuple(reasons), spare, largest, exact, approved, leaving)


def _of_cluster(snapshot: Snapshot, asked: Sequence[int], controller_active: bool) -> Iterator[Reason]:
    if not controller_active:
        yield Reason(
            Why.NO_CONTROLLER,
            "no controller is active that would move leaderships or elect new leaders",
        )
    registered = there(snapshot)
    for broker_id in asked:
        if broker_id not in snapshot.brokers:
            text = f"broker {broker_id} is not registered: there are {registered}"
            yield Reason(Why.UNKNOWN_BROKER, text, brokers=(broker_id,))
    for path, problem in sorted(snapshot.problems.items()):
        if is_below(BROKERS, path) or is_below(CONFIG, path):
            yield Reason(Why.UNREADABLE, f"the effect on {path} is unknown: {problem}")


class _Evaluation:
    """Finds the partitions in trouble, the reasons, and the largest set of brokers without any."""

    def __init__(
        self,
        snapshot: Snapshot,
        stopped_before: Sequence[int],
        evaluated: Sequence[int],
        terms: Terms,
        tolerate_under_replicated: bool,
    ) -> None:
        #: Whichever of these brokers stop, no other partition gets into trouble.
        self._small = representatives(snapshot, [*stopped_before, *evaluated])
        self._stopped_before = stopped_before
        self._terms = terms
        self._tolerate = tolerate_under_replicated

    def troubled(self, now: Health, step: Step) -> list[Key]:
        """Partitions that forbid a stop; not those that are deleted by then, or appear only during it."""
        there = step.before.partitions.keys() & step.worst.partitions.keys()
        return sorted(there.intersection((*newly_troubled(step), *self._degraded(now, step))))

    def _degraded(self, now: Health, step: Step) -> list[Key]:
        """Partitions that are under-replicated now and would lose one more in-sync replica."""
        if self._tolerate:
            return []
        stopping = set(step.brokers)
        return [
            key
            for key, was in now.partitions.items()
            if was.under_replicated and not stopping.isdisjoint(was.in_sync)
        ]

    def reasons(self, present: Health, step: Step) -> Iterator[Reason]:
        """Every reason of every partition, not only the first."""
        newly, unclean = set(newly_troubled(step)), set(step.unclean)
        degraded = set(self._degraded(present, step))
        for key in self.troubled(present, step):
            was, now = step.before.partitions[key], step.worst.partitions[key]
            name, taken = f"{key[0]}-{key[1]}", tuple(b for b in was.in_sync if b in step.brokers)
            if key in unclean:
                text = f"{name} would be led by {now.leader}, which is not in its ISR: records are lost"
                yield Reason(Why.UNCLEAN, text, *key, taken)
            if key in newly and now.offline and not was.offline:
                text = f"{name} would have no leader: its ISR {list(was.in_sync)} stops as a whole"
                yield Reason(Why.OFFLINE, text, *key, taken)
            if key in newly and now.under_min_isr and key not in unclean:
                left = f"{len(now.in_sync)} of {now.min_isr}"
                text = f"{name} would have {left} in-sync replicas that min.insync.replicas asks for"
                yield Reason(Why.UNDER_MIN_ISR, text, *key, taken)
            if key in degraded:
                lagging = [b for b in was.replicas if b not in present.partitions[key].in_sync]
                text = f"{name} is under-replicated already: {lagging} not in sync"
                yield Reason(Why.UNDER_REPLICATED, text, *key, taken)

    def largest(self, asked: Sequence[int]) -> tuple[tuple[int, ...], bool]:
        """The largest set that may stop (of several the first in the order of ``asked``), and whether it is exact."""
        if len(asked) > EXACT_MAX:
            return self._greedy(asked), False
        #: Sets that no safe set contains as a whole, found by the attempts that failed.
        bad: list[frozenset[int]] = []
        for size in range(len(asked), 0, -1):
            for chosen in combinations(asked, size):
                if any(b.issubset(chosen) for b in bad):
                    continue
                found = self._conflicts(chosen)
                if not found:
                    return chosen, True
                bad.extend(found)
        return (), True

    def _greedy(self, asked: Sequence[int]) -> tuple[int, ...]:
        chosen: tuple[int, ...] = ()
        for broker_id in asked:
            if not self._conflicts((*chosen, broker_id)):
                chosen = (*chosen, broker_id)
        return chosen

    def _conflicts(self, chosen: Sequence[int]) -> set[frozenset[int]]:
        """For each partition in trouble, its brokers among ``chosen``: when all of these stop it is in trouble,
        whichever others stop."""
        now, step = stopped_after(self._small, self._stopped_before, chosen, self._terms)
        return {frozenset(chosen) & _members(step.before, key) for key in self.troubled(now, step)}


def _members(health: Health, key: Key) -> frozenset[int]:
    partition = health.partitions[key]
    return frozenset((*partition.replicas, *partition.in_sync))
