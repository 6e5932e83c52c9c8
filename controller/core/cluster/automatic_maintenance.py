"""Stored maintenance, and maintenance mode that the controller enters and leaves automatically.

Durable in ``/controllers/maintenance`` (ours), so that the next controller continues it. Many brokers offline at the
same time have a common cause (a rack, a network, a bad rollout); reassignments, deletions and unclean elections would
make such an outage worse. (Helix has a similar maintenance mode.)

*Known* brokers are registered, or hold replicas: they are assigned, and were registered in this term, are in a stored
ISR, or are assigned in two or more topics without being added there. *Gone* ones are known but not registered. So the
ids that one topic or one reassignment names, of brokers that never were, cause nothing. All but the first of these
come from ZooKeeper, so a new controller mostly gets the same result. The controller enters the mode when

    gone >= max(minimum, percentage of known, rounded up)

It leaves a mode entered automatically at once when no broker is gone, or after ``2 * gone`` was below that limit for
``maintenance_healthy_seconds`` without interruption.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from operator import attrgetter
from typing import NamedTuple

import msgspec

from controller.core.commits import change_node, load_node
from controller.core.context import PASSED_MAX, CoreSettings, EventContext, Handler, Pause
from controller.core.model import Attribution, BrokerIds, Cluster, Maintenance, Partition, Topic
from controller.core.records import ControllerChange
from controller.core.znode_paths import MAINTENANCE, NodePath

PATH: NodePath[Maintenance] = NodePath(MAINTENANCE)


class OfflineBrokers(NamedTuple):
    """``known``: number of known brokers. ``gone``: ids of the offline ones. ``limit``: number of them that causes
    maintenance mode; 0: never. ``accepted``: offline ones that an operator accepted, so they do not count."""

    known: int
    gone: tuple[int, ...]
    limit: int
    accepted: tuple[int, ...] = ()

    @property
    def counted(self) -> tuple[int, ...]:
        return tuple(b for b in self.gone if b not in self.accepted)

    @property
    def too_many(self) -> bool:
        return bool(self.limit) and len(self.counted) >= self.limit

    @property
    def healthy(self) -> bool:
        """Whether automatic maintenance may end; also true where it was disabled meanwhile."""
        return not self.limit or 2 * len(self.counted) < self.limit


#: Where few partitions share an assignment, keeping them gains nothing.
SETTLED_MAX = 50_000
_replicas = attrgetter("replicas")


class _Missing:
    """Assigned brokers that are not ``present``, and have been there."""

    def __init__(self, cluster: Cluster, present: Collection[int]) -> None:
        self.present = frozenset(present)
        self._registered_before = cluster.registered_before
        self._proven: set[int] = set()
        self._named_once: set[int] = set()
        self._named_twice: set[int] = set()
        #: Assignments of which no broker is left to be found. Partitions share them.
        self._settled: set[BrokerIds] = set()

    @property
    def found(self) -> set[int]:
        return self._proven | self._named_twice

    def look(self, topic: Topic) -> None:
        """Take one more topic into account."""
        partitions = topic.partitions.values()
        if self._settled.issuperset(map(_replicas, partitions)):
            return
        # Assignments and ISRs are shared tuples: few are distinct.
        assignments = set(map(_replicas, partitions))
        if assigned := set[int]().union(*assignments) - self.present:
            self._look_for(assigned, partitions)
        if len(self._settled) < SETTLED_MAX:
            known = self.present | self._proven
            self._settled.update(filter(known.issuperset, assignments))

    def _look_for(self, assigned: set[int], partitions: Collection[Partition]) -> None:
        self._proven |= assigned & self._registered_before
        isrs = {p.leadership.isr for p in partitions if p.leadership is not None}
        self._proven |= assigned.intersection(set[int]().union(*isrs))
        moving = [p for p in partitions if p.adding]
        settled = assigned
        if moving:
            still = {p.replicas for p in partitions if not p.adding}
            still.update(tuple(set(p.replicas).difference(p.adding)) for p in moving)
            settled = set[int]().union(*still) - self.present
        self._named_twice |= self._named_once & settled
        self._named_once |= settled


def offline_brokers(
    cluster: Cluster,
    settings: CoreSettings,
    registered: Collection[int] | None = None,
    topics: Iterable[Topic] | None = None,
) -> Handler[OfflineBrokers]:
    """Count brokers, in slices. ``registered``, ``topics``: as for ``reconsider``."""
    missing = _Missing(cluster, cluster.brokers if registered is None else registered)
    passed = 0
    for topic in cluster.topics.values() if topics is None else topics:
        missing.look(topic)
        if (passed := passed + len(topic.partitions)) >= PASSED_MAX:
            passed = 0
            yield Pause.YIELD
    gone = tuple(sorted(missing.found))
    known = len(missing.present) + len(gone)
    percentage = settings.maintenance_offline_brokers_percentage
    limit = 0
    if percentage:
        limit = max(settings.maintenance_offline_brokers_min, -(-known * percentage // 100))
    accepted = tuple(b for b in cluster.maintenance.accepted if b in gone)
    return OfflineBrokers(known, gone, limit, accepted)


def load(context: EventContext) -> Handler[None]:
    """Read maintenance at failover."""
    context.cluster.maintenance = yield from load_node(context, PATH, Maintenance())


def change(context: EventContext, changed: Callable[[Maintenance], Maintenance]) -> Handler[str | None]:
    """Change the stored maintenance, then the cluster state. Returns the reason as text if that failed."""
    after, failure = yield from change_node(context, PATH, Maintenance(), changed)
    if after is None:
        return failure
    context.cluster.maintenance = after
    return None


def reconsider(
    context: EventContext,
    registered: Collection[int] | None = None,
    topics: Iterable[Topic] | None = None,
) -> Handler[None]:
    """Enter maintenance mode if too many brokers are gone, before their failure is handled; remember since when the
    cluster is healthy. ``registered``: the ids registered now, if the cluster state is not updated yet. ``topics``: all
    that have replicas on other brokers, and perhaps more; None: all there are.

    A failed write is logged, and tried again when brokers change: maintenance is only in effect once it is durable.
    """
    cluster = context.cluster
    state = cluster.maintenance
    if (
        not context.settings.maintenance_offline_brokers_percentage
        and not state.automatic
        and not state.accepted
    ):
        return
    found = yield from offline_brokers(context.cluster, context.settings, registered, topics)
    if not found.healthy:
        cluster.healthy_since_us = None
    elif cluster.healthy_since_us is None:
        cluster.healthy_since_us = context.now_us
    if found.accepted != state.accepted:
        yield from _store(context, lambda now: msgspec.structs.replace(now, accepted=found.accepted))
    if cluster.maintenance.entered is None and found.too_many:
        attribution = Attribution(_cause_text(context.settings, found), f"controller {cluster.controller_id}")
        yield from _store(
            context,
            lambda now: (
                now if now.entered else msgspec.structs.replace(now, entered=attribution, automatic=True)
            ),
        )
        if cluster.maintenance.automatic:
            record(context, "maintenance", attribution)


def ends(context: EventContext) -> Handler[OfflineBrokers | None]:
    """The brokers, if maintenance mode was entered automatically, and none is gone or the cluster was healthy for long
    enough; else None."""
    cluster, since = context.cluster, context.cluster.healthy_since_us
    if not cluster.maintenance.automatic or since is None:
        return None
    found = yield from offline_brokers(context.cluster, context.settings)
    healthy_us = context.now_us - since
    if found.counted and healthy_us < context.settings.maintenance_healthy_seconds * 1_000_000:
        return None
    return found


def record(context: EventContext, to: str, attribution: Attribution) -> None:
    """Log a change of the controller's maintenance with its author and reason."""
    context.log([ControllerChange(to, f"{attribution.author}: {attribution.reason}")])


def _store(context: EventContext, changed: Callable[[Maintenance], Maintenance]) -> Handler[None]:
    if (failure := (yield from change(context, changed))) is not None:
        context.reject("CONFLICT", failure)


def _cause_text(settings: CoreSettings, found: OfflineBrokers) -> str:
    which = ", ".join(map(str, found.counted[:20])) + (", ..." if len(found.counted) > 20 else "")
    return (
        f"{len(found.counted)} of {found.known} brokers are gone ({which}); {found.limit} are too many "
        f"(maintenance_offline_brokers_percentage = {settings.maintenance_offline_brokers_percentage}, "
        f"maintenance_offline_brokers_min = {settings.maintenance_offline_brokers_min})"
    )
