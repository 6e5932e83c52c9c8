"""Maintenance: restrictions of the controller's automatic work, each with reason and author.

Durable in ``/controllers/maintenance`` (ours), so that the next controller continues them. There are four, independent
of each other:

*Drained* brokers lead only partitions that no other replica can lead, and get new replicas only where no other broker
can take them.

*Paused*: the controller does no automatic work. Partitions that lose their leader stay without one, preferred leaders
are not restored, queued reassignments and deletions do not begin, and reassignments that need another leader do not
finish. Leaders still change their ISRs, and new partitions get their first leader.

*Maintenance mode* still allows clean elections after failures. These do not begin: automatic rebalance, queued
reassignments, topic deletions, and unclean elections by configuration. The controller enters it automatically when too
many brokers are offline (``automatic_maintenance``).

*Frozen*: elections for availability go on as ever, unclean ones by configuration included. No leadership returns to its
preferred replica, no reassignment begins, requested ones wait, and no deletion begins. It ends by request alone; after
the time until which it was meant it is shown as overdue.

Under a pause or in maintenance mode, requests of operators are still handled: elections, also unclean ones,
reassignments, drains, creations. Only deletions wait, since they cannot be undone. Ongoing reassignments and deletions
continue. After a failover it is unknown which deletions had started, so all of them wait, without elections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from controller.core.cluster import automatic_maintenance
from controller.core.cluster.automatic_maintenance import change, record
from controller.core.context import EventContext, Handler, Pause, replicas_on, slices
from controller.core.model import Attribution, BrokerIds, Cluster, Freeze, Maintenance, Partition
from controller.core.partitions import leader_election, partition_state_machine
from controller.core.partitions.leader_election import Ballot, ElectionKind, Strategy
from controller.core.partitions.replica_state_machine import to_online
from controller.core.reassignment import phases
from controller.core.records import BrokerChange
from controller.core.requests.brokers import UNKNOWN_BROKER_EPOCH
from controller.core.requests.errors import ErrorCode
from controller.core.requests.operator import (
    CancelShutdown,
    OperatorReply,
    SetDrain,
    SetFreeze,
    SetMaintenance,
    SetPause,
    attribution_problem,
)
from controller.core.topics import deletion

#: Interval of the checks whether maintenance mode may end, or leaderships of drained brokers can move.
LOOK_EVERY_US = 5_000_000
_DRAIN = ElectionKind(Strategy.DRAIN)


# --- requests ------------------------------------------------------------------------------------------------


def set_drain(context: EventContext, serial: int, request: SetDrain) -> Handler[None]:
    """Drain a broker or undrain it; answers with the partitions that a drained broker still leads.

    INVALID_REQUEST without reason or author, BROKER_NOT_AVAILABLE for a broker that is not registered,
    POLICY_VIOLATION, unless ``force``, where no broker would be left to lead.
    """
    broker_id = request.broker_id
    problem = attribution_problem(request.reason, request.author, reason_needed=request.drained)
    if problem is not None:
        _refuse(context, serial, ErrorCode.INVALID_REQUEST, problem)
        return
    if broker_id not in context.cluster.brokers and request.drained:
        _refuse(
            context, serial, ErrorCode.BROKER_NOT_AVAILABLE, f"drain: no broker {broker_id} is registered"
        )
        return
    if request.drained and not request.force and (why := _last(context.cluster, broker_id)):
        _refuse(context, serial, ErrorCode.POLICY_VIOLATION, why)
        return

    def changed(before: Maintenance) -> Maintenance:
        drained = {b: attribution for b, attribution in before.drained.items() if b != broker_id}
        if request.drained:
            drained[broker_id] = Attribution(request.reason, request.author)
        return msgspec.structs.replace(before, drained=drained)

    if (failure := (yield from change(context, changed))) is not None:
        _refuse(context, serial, ErrorCode.UNKNOWN_SERVER_ERROR, failure)
        return
    to = "drained" if request.drained else "undrained"
    reason = f"{request.author}: {request.reason}"
    context.log([BrokerChange(broker_id, to, reason=reason)])
    yield from keep_drained(context)
    remaining: list[tuple[str, int]] = []
    for some in slices(context.cluster.partitions() if request.drained else ()):
        led = [p for p in some if p.leadership is not None and p.leadership.leader == broker_id]
        remaining += [(p.topic.name, p.number) for p in led]
        yield Pause.YIELD
    context.reply(serial, OperatorReply(ErrorCode.NONE, "", remaining))


def _last(cluster: Cluster, broker_id: int) -> str:
    """Why draining a broker leaves no broker that may lead, as text; empty if one is left."""
    others = cluster.live_ids() - cluster.maintenance.drained.keys() - {broker_id}
    if others or broker_id in cluster.maintenance.drained:
        return ""
    return (
        f"drain: broker {broker_id} is the last one that is registered, not drained and not shutting down: every "
        "partition would go on being led by drained brokers (undrain another one first, or force it)"
    )


def set_pause(context: EventContext, serial: int, request: SetPause) -> Handler[None]:
    """Pause automatic work, or resume it: then waiting work is done at once."""
    problem = attribution_problem(request.reason, request.author, reason_needed=request.paused)
    if problem is not None:
        _refuse(context, serial, ErrorCode.INVALID_REQUEST, problem)
        return
    attribution = Attribution(request.reason, request.author)

    paused, to = (attribution, "paused") if request.paused else (None, "resumed")
    changed = partial(msgspec.structs.replace, paused=paused)
    yield from _switch(context, serial, changed, to, attribution, begins=request.paused)


def set_maintenance(context: EventContext, serial: int, request: SetMaintenance) -> Handler[None]:
    """Enter maintenance mode, or leave it: then waiting work is done at once.

    If an operator enters a mode that the controller entered automatically, it no longer ends automatically. If an
    operator leaves it, the offline brokers are accepted: they count again only after they have returned.
    """
    problem = attribution_problem(request.reason, request.author, reason_needed=request.entered)
    if problem is not None:
        _refuse(context, serial, ErrorCode.INVALID_REQUEST, problem)
        return
    attribution = Attribution(request.reason, request.author)
    gone: BrokerIds = ()
    if context.settings.maintenance_offline_brokers_percentage:
        gone = (yield from automatic_maintenance.offline_brokers(context.cluster, context.settings)).gone

    def changed(before: Maintenance) -> Maintenance:
        if request.entered:
            return msgspec.structs.replace(before, entered=attribution, automatic=False, accepted=())
        if before.entered is None:
            return before
        return msgspec.structs.replace(before, entered=None, automatic=False, accepted=gone)

    to = "maintenance" if request.entered else "left_maintenance"
    yield from _switch(context, serial, changed, to, attribution, begins=request.entered)


def set_freeze(context: EventContext, serial: int, request: SetFreeze) -> Handler[None]:
    """Freeze the cluster, or end that: then waiting work is done at once."""
    problem = attribution_problem(request.reason, request.author, reason_needed=request.frozen)
    if problem is None and request.frozen and request.until_ms <= 0:
        problem = f"until_ms = {request.until_ms}: must be a time, in ms since 1970"
    if problem is not None:
        _refuse(context, serial, ErrorCode.INVALID_REQUEST, problem)
        return
    freeze = Freeze(request.reason, request.author, request.until_ms) if request.frozen else None
    to, attribution = "frozen" if freeze else "unfrozen", Attribution(request.reason, request.author)
    changed = partial(msgspec.structs.replace, freeze=freeze)
    yield from _switch(context, serial, changed, to, attribution, begins=request.frozen)


def _switch(
    context: EventContext,
    serial: int,
    changed: Callable[[Maintenance], Maintenance],
    to: str,
    attribution: Attribution,
    *,
    begins: bool,
) -> Handler[None]:
    """Write, record and answer that a restriction begins, or ends: then what waited is done before the answer."""
    failure = yield from change(context, changed)
    if failure is not None:
        _refuse(context, serial, ErrorCode.UNKNOWN_SERVER_ERROR, failure)
        return
    record(context, to, attribution)
    if not begins:
        yield from _go_on(context)
    context.reply(serial, OperatorReply(ErrorCode.NONE))


def cancel_shutdown(context: EventContext, serial: int, request: CancelShutdown) -> Handler[None]:
    """Cancel a controlled shutdown: the broker may lead again, and gets LeaderAndIsr (section 14, point 6)."""
    cluster, broker_id = context.cluster, request.broker_id
    broker = cluster.brokers.get(broker_id)
    if broker is None:
        why = f"CancelShutdown of broker {broker_id}: no such broker is registered"
        _refuse(context, serial, ErrorCode.BROKER_NOT_AVAILABLE, why)
        return
    if request.broker_epoch not in (UNKNOWN_BROKER_EPOCH, broker.epoch):
        why = f"CancelShutdown of broker {broker_id}: its present epoch is {broker.epoch}"
        _refuse(context, serial, ErrorCode.STALE_BROKER_EPOCH, why)
        return
    if broker_id in cluster.shutting_down:
        cluster.shutting_down.discard(broker_id)
        context.log([BrokerChange(broker_id, "online", "shutting_down")])
        replicas = yield from replicas_on(context, [broker_id])
        healthy = [r for r in replicas if cluster.is_online(*r)]
        to_online(context, healthy, "its broker stays after all")
        yield from partition_state_machine.bring_online(context)
    context.reply(serial, OperatorReply(ErrorCode.NONE))


# --- automatically -------------------------------------------------------------------------------------------


def due(cluster: Cluster, now_us: int) -> bool:
    """Whether ``check_maintenance`` may have work to do; ``now_us`` on the driver's clock."""
    state = cluster.maintenance
    return bool(state.automatic or state.drained) and now_us >= cluster.maintenance_check_us


def check_maintenance(context: EventContext) -> Handler[None]:
    """MaintenanceCheck: leave automatic maintenance mode if the cluster is healthy again; move leaderships of drained
    brokers that another replica can take now."""
    cluster = context.cluster
    cluster.maintenance_check_us = context.now_us + LOOK_EVERY_US
    yield from automatic_maintenance.reconsider(context)
    yield from end_if_healthy(context)
    if cluster.maintenance.paused is None:
        yield from keep_drained(context)


def end_if_healthy(context: EventContext) -> Handler[None]:
    """Leave maintenance mode if it was entered automatically and may end."""
    found = yield from automatic_maintenance.ends(context)
    if found is not None:
        why = f"{found.known - len(found.gone)} of {found.known} brokers are there again"
        yield from _end(context, Attribution(why, f"controller {context.cluster.controller_id}"))


def _end(context: EventContext, attribution: Attribution) -> Handler[None]:
    def changed(before: Maintenance) -> Maintenance:
        # An operator may have taken it over through another controller meanwhile.
        return msgspec.structs.replace(before, entered=None, automatic=False) if before.automatic else before

    if (failure := (yield from change(context, changed))) is not None:
        context.reject("CONFLICT", failure)
    elif context.cluster.maintenance.entered is None:
        record(context, "left_maintenance", attribution)
        yield from _go_on(context)


def _go_on(context: EventContext) -> Handler[None]:
    """Begin the work that waited, unless another restriction still applies."""
    if context.cluster.maintenance.paused is None:
        yield from partition_state_machine.bring_online(context)
        yield from keep_drained(context)
        yield from phases.resumed(context)
    # Where they wait on, they wait for what is left.
    yield from deletion.resumed(context)


def keep_drained(context: EventContext) -> Handler[None]:
    """Move leaderships from drained brokers to replicas that can lead now."""
    if context.cluster.maintenance.drained:
        found: list[Partition] = []
        for some in slices(context.cluster.partitions()):
            found += movable(context.cluster, some)
            yield Pause.YIELD
        if found:
            yield from partition_state_machine.to_online(context, found, _DRAIN)


def movable(cluster: Cluster, partitions: Iterable[Partition]) -> list[Partition]:
    """The partitions led by a drained broker that an undrained replica could lead."""
    drained = cluster.maintenance.drained
    live = cluster.live_ids()

    def by_another(p: Partition) -> bool:
        if p.leadership is None or p.leadership.leader not in drained or cluster.is_deleting(p):
            return False
        lacking = cluster.without_data(p.leadership)
        online = cluster.online_set(p, live)
        ballot = Ballot(p.replicas, p.leadership, online, drained=drained, without_data=lacking)
        return leader_election.elect(Strategy.DRAIN, ballot) is not None

    return [p for p in partitions if by_another(p)]


def _refuse(context: EventContext, serial: int, error: ErrorCode, message: str) -> None:
    context.reject(error.name, message)
    context.reply(serial, OperatorReply(error, message))
