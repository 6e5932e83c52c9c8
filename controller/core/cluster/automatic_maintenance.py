"""Maintenance as it is stored, and the mode that the controller enters and leaves by itself.

Durable in ``/controllers/maintenance`` (ours): the next controller goes on with it. Too many brokers gone at the same
time are an outage of something else (a rack, a network, a bad rollout), and whatever is moved, deleted or elected
uncleanly then makes it worse (Helix has such a maintenance mode).

*Known* are the brokers that are registered or that an assignment names, *gone* the known ones that are not registered:
both are found in ZooKeeper alone, so every controller comes to the same answer. The mode is entered with

    gone >= max(minimum, percentage of known, rounded up)

and left, if it was entered so, at once when nobody is gone any more, or after ``maintenance_healthy_seconds`` in which
always ``2 * gone`` was below that: brokers that come and go do not end it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

import msgspec

from controller.core.commits import change_node
from controller.core.context import CoreSettings, EventContext, Handler
from controller.core.effects import Problem, ReadNodes
from controller.core.model import Attribution, Cluster, Maintenance
from controller.core.records import ControllerChange
from controller.core.znode_paths import MAINTENANCE, NodePath

PATH: NodePath[Maintenance] = NodePath(MAINTENANCE)


class OfflineBrokers(NamedTuple):
    """``known`` brokers, which of them are ``gone``, and how many of those bring maintenance, 0: never. ``accepted``:
    those gone that do not count, since an operator knows of them."""

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
        """Whether maintenance entered by itself may end; so also where it is turned off meanwhile."""
        return not self.limit or 2 * len(self.counted) < self.limit


def offline_brokers(
    cluster: Cluster, settings: CoreSettings, registered: Collection[int] | None = None
) -> OfflineBrokers:
    """Count brokers. ``registered``: those that are there now, if the context does not know yet."""
    present = frozenset(cluster.brokers if registered is None else registered)
    # Assignments are shared tuples: few are distinct.
    assignments = {p.replicas for topic in cluster.topics.values() for p in topic.partitions.values()}
    known = present.union(*assignments)
    gone = tuple(sorted(known - present))
    percentage = settings.maintenance_offline_brokers_percentage
    limit = 0
    if percentage:
        limit = max(settings.maintenance_offline_brokers_min, -(-len(known) * percentage // 100))
    accepted = tuple(b for b in cluster.maintenance.accepted if b in gone)
    return OfflineBrokers(len(known), gone, limit, accepted)


def load(context: EventContext) -> Handler[None]:
    """At failover. One that does not decode is shown, and counts as none."""
    (found,) = yield from context.read(ReadNodes([PATH]))
    if isinstance(found, Problem):
        context.problem(found)
    elif found is not None:
        context.cluster.maintenance = found.value


def change(context: EventContext, changed: Callable[[Maintenance], Maintenance]) -> Handler[str | None]:
    """Read, change, write until it lands, then remember; the reason in words if it never does."""
    after, failure = yield from change_node(context, PATH, Maintenance(), changed)
    if after is None:
        return failure
    context.cluster.maintenance = after
    return None


def reconsider(context: EventContext, registered: Collection[int] | None = None) -> Handler[None]:
    """Enter the mode where too many brokers are gone, before anything is decided on account of them; remember since
    when it might end. ``registered``: the brokers that are there now, if the context does not know yet.

    What cannot be written is recorded, and tried again when brokers change: nothing is held that others would not
    know of.
    """
    cluster = context.cluster
    state = cluster.maintenance
    if (
        not context.settings.maintenance_offline_brokers_percentage
        and not state.automatic
        and not state.accepted
    ):
        return
    found = offline_brokers(cluster, context.settings, registered)
    if not found.healthy:
        cluster.healthy_since_us = None
    elif cluster.healthy_since_us is None:
        cluster.healthy_since_us = context.now_us
    if found.accepted != state.accepted:
        yield from _store(context, lambda now: msgspec.structs.replace(now, accepted=found.accepted))
    if cluster.maintenance.entered is None and found.too_many:
        attribution = Attribution(_in_words(context.settings, found), f"controller {cluster.controller_id}")
        yield from _store(
            context,
            lambda now: (
                now if now.entered else msgspec.structs.replace(now, entered=attribution, automatic=True)
            ),
        )
        if cluster.maintenance.automatic:
            record(context, "maintenance", attribution)


def may_end(cluster: Cluster, settings: CoreSettings, now_us: int) -> bool:
    """Whether the mode was entered by itself, and everybody is back, or enough have been there for long enough."""
    since = cluster.healthy_since_us
    if not cluster.maintenance.automatic or since is None:
        return False
    if not offline_brokers(cluster, settings).counted:
        return True
    return now_us - since >= settings.maintenance_healthy_seconds * 1_000_000


def record(context: EventContext, to: str, attribution: Attribution) -> None:
    """What changed for the controller as a whole, who did it, and why."""
    context.log([ControllerChange(to, f"{attribution.author}: {attribution.reason}")])


def _store(context: EventContext, changed: Callable[[Maintenance], Maintenance]) -> Handler[None]:
    if (failure := (yield from change(context, changed))) is not None:
        context.reject("CONFLICT", failure)


def _in_words(settings: CoreSettings, found: OfflineBrokers) -> str:
    which = ", ".join(map(str, found.counted[:20])) + (", ..." if len(found.counted) > 20 else "")
    return (
        f"{len(found.counted)} of {found.known} brokers are gone ({which}); {found.limit} are too many "
        f"(maintenance_offline_brokers_percentage = {settings.maintenance_offline_brokers_percentage}, "
        f"maintenance_offline_brokers_min = {settings.maintenance_offline_brokers_min})"
    )
