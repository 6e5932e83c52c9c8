"""Maintenance: what operators, or the controller itself, keep the controller from; kept with reason and author.

Durable in ``/controllers/maintenance`` (ours), so that the next controller goes on with it. Three things, each by
itself:

*Drained* brokers lead only what nobody else can, and get no new replicas where there are others to take them.

*Paused*, the controller does nothing of its own accord: partitions whose leader goes stay without one, leadership does
not return, moves that wait do not begin, those that need another leader wait for their end, deletions do not begin.
The data plane goes on: leaders change their ISRs, and new partitions get their first leader.

*Maintenance mode* is milder: clean elections after failures go on. What does not begin: the automatic rebalance, moves
that wait, deletions of topics, and unclean elections by configuration. The controller enters it by itself when too
many brokers are gone (``safeguard``).

In both, what operators ask for is still done: elections, also unclean ones, moves, drains, creations; only deletions
wait, since there is no way back from them. What is under way goes on: a move half copied, or a topic half deleted, is
worse than either end. After a failover nobody knows which deletions were under way, so all of them wait, without
elections.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from controller.core.brokers.changes import replicas_on
from controller.core.brokers.controlled_shutdown import UNKNOWN_BROKER_EPOCH
from controller.core.cluster import automatic_maintenance
from controller.core.cluster.automatic_maintenance import PATH as PATH
from controller.core.cluster.automatic_maintenance import change, record
from controller.core.context import Procedure, Turn
from controller.core.model import BrokerIds, Cluster, Maintenance, Mark, Partition
from controller.core.partitions import leader_election, partition_state_machine
from controller.core.partitions.leader_election import ElectionKind, Strategy
from controller.core.partitions.replica_state_machine import to_online
from controller.core.reassignment import phases
from controller.core.requests.errors import ErrorCode
from controller.core.requests.operator import (
    CancelShutdown,
    OperatorReply,
    SetDrain,
    SetMaintenance,
    SetPause,
)
from controller.core.topics import deletion

REASON_MAX, AUTHOR_MAX = 1000, 200
#: How often somebody looks whether the mode may end, or a drained broker's leaderships may go.
LOOK_EVERY_US = 5_000_000
_DRAIN = ElectionKind(Strategy.DRAIN)


# --- requests ------------------------------------------------------------------------------------------------


def set_drain(turn: Turn, serial: int, request: SetDrain) -> Procedure[None]:
    """Keep leaderships off a broker, or no longer; answers with what it leads all the same.

    INVALID_REQUEST without reason or author, BROKER_NOT_AVAILABLE for a broker that is not registered,
    POLICY_VIOLATION where nobody would be left to lead, unless ``force`` says that this is meant.
    """
    broker_id = request.broker_id
    if (problem := unsigned(request.reason, request.author, reason_needed=request.drained)) is not None:
        _refuse(turn, serial, ErrorCode.INVALID_REQUEST, problem)
        return
    if broker_id not in turn.cluster.brokers and request.drained:
        _refuse(turn, serial, ErrorCode.BROKER_NOT_AVAILABLE, f"drain: no broker {broker_id} is registered")
        return
    if request.drained and not request.force and (why := _last(turn.cluster, broker_id)):
        _refuse(turn, serial, ErrorCode.POLICY_VIOLATION, why)
        return

    def changed(before: Maintenance) -> Maintenance:
        drained = {b: mark for b, mark in before.drained.items() if b != broker_id}
        if request.drained:
            drained[broker_id] = Mark(request.reason, request.author)
        return msgspec.structs.replace(before, drained=drained)

    if (failure := (yield from change(turn, changed))) is not None:
        _refuse(turn, serial, ErrorCode.UNKNOWN_SERVER_ERROR, failure)
        return
    to = "drained" if request.drained else "undrained"
    reason = f"{request.author}: {request.reason}"
    turn.log("record", [{"kind": "broker", "replica": broker_id, "to": to, "reason": reason}])
    yield from keep_drained(turn)
    remaining = [
        (p.topic.name, p.number)
        for p in turn.cluster.partitions()
        if request.drained and p.leadership is not None and p.leadership.leader == broker_id
    ]
    turn.reply(serial, OperatorReply(ErrorCode.NONE, "", remaining))


def _last(cluster: Cluster, broker_id: int) -> str:
    """Why draining a broker leaves nobody who may lead, in words; empty: somebody is left."""
    others = cluster.live_ids() - cluster.maintenance.drained.keys() - {broker_id}
    if others or broker_id in cluster.maintenance.drained:
        return ""
    return (
        f"drain: broker {broker_id} is the last one that is registered, not drained and not shutting down: every "
        "partition would go on being led by drained brokers (undrain another one first, or force it)"
    )


def set_pause(turn: Turn, serial: int, request: SetPause) -> Procedure[None]:
    """Pause all that nobody asked for, or go on: then whatever waits is done at once."""
    if (problem := unsigned(request.reason, request.author, reason_needed=request.paused)) is not None:
        _refuse(turn, serial, ErrorCode.INVALID_REQUEST, problem)
        return
    mark = Mark(request.reason, request.author)
    failure = yield from change(
        turn, lambda before: msgspec.structs.replace(before, paused=mark if request.paused else None)
    )
    if failure is not None:
        _refuse(turn, serial, ErrorCode.UNKNOWN_SERVER_ERROR, failure)
        return
    record(turn, "paused" if request.paused else "resumed", mark)
    if not request.paused:
        yield from _go_on(turn)
    turn.reply(serial, OperatorReply(ErrorCode.NONE))


def set_maintenance(turn: Turn, serial: int, request: SetMaintenance) -> Procedure[None]:
    """Enter maintenance mode, or leave it: then whatever waits is done at once.

    An operator who enters it where the controller did already takes it over: it does not end by itself any more. An
    operator who leaves it accepts the brokers that are gone: they bring it back only once they returned and went again.
    """
    if (problem := unsigned(request.reason, request.author, reason_needed=request.entered)) is not None:
        _refuse(turn, serial, ErrorCode.INVALID_REQUEST, problem)
        return
    mark = Mark(request.reason, request.author)
    gone: BrokerIds = ()
    if turn.settings.maintenance_offline_brokers_percentage:
        gone = automatic_maintenance.census(turn.cluster, turn.settings).gone

    def changed(before: Maintenance) -> Maintenance:
        if request.entered:
            return msgspec.structs.replace(before, entered=mark, by_itself=False, accepted=())
        if before.entered is None:
            return before
        return msgspec.structs.replace(before, entered=None, by_itself=False, accepted=gone)

    if (failure := (yield from change(turn, changed))) is not None:
        _refuse(turn, serial, ErrorCode.UNKNOWN_SERVER_ERROR, failure)
        return
    record(turn, "maintenance" if request.entered else "left_maintenance", mark)
    if not request.entered:
        yield from _go_on(turn)
    turn.reply(serial, OperatorReply(ErrorCode.NONE))


def cancel_shutdown(turn: Turn, serial: int, request: CancelShutdown) -> Procedure[None]:
    """A broker that was to leave stays: it is eligible again, and told what it holds (design, section 1, point 6)."""
    cluster, broker_id = turn.cluster, request.broker_id
    broker = cluster.brokers.get(broker_id)
    if broker is None:
        why = f"CancelShutdown of broker {broker_id}: no such broker is registered"
        _refuse(turn, serial, ErrorCode.BROKER_NOT_AVAILABLE, why)
        return
    if request.broker_epoch not in (UNKNOWN_BROKER_EPOCH, broker.epoch):
        why = f"CancelShutdown of broker {broker_id}: its present epoch is {broker.epoch}"
        _refuse(turn, serial, ErrorCode.STALE_BROKER_EPOCH, why)
        return
    if broker_id in cluster.shutting_down:
        cluster.shutting_down.discard(broker_id)
        row = {"kind": "broker", "replica": broker_id, "from": "shutting_down", "to": "online"}
        turn.log("record", [row])
        turn.push_brokers()
        healthy = [r for r in replicas_on(turn, [broker_id]) if cluster.is_online(*r)]
        to_online(turn, healthy, "its broker stays after all")
        yield from partition_state_machine.bring_online(turn)
    turn.reply(serial, OperatorReply(ErrorCode.NONE))


# --- by itself -----------------------------------------------------------------------------------------------


def due(cluster: Cluster, now_us: int) -> bool:
    """Whether ``look`` may have something to do; ``now_us`` on the driver's clock."""
    state = cluster.maintenance
    return bool(state.by_itself or state.drained) and now_us >= cluster.maintenance_look_us


def look(turn: Turn) -> Procedure[None]:
    """MaintenanceCheck: leave the mode if it was entered by itself and the cluster is healthy again; move what drained
    brokers still lead and somebody else can by now."""
    cluster = turn.cluster
    cluster.maintenance_look_us = turn.now_us + LOOK_EVERY_US
    yield from automatic_maintenance.reconsider(turn)
    yield from end_if_healthy(turn)
    if cluster.maintenance.paused is None:
        yield from keep_drained(turn)


def end_if_healthy(turn: Turn) -> Procedure[None]:
    """Leave the mode if it was entered by itself and there is no more need for it."""
    cluster = turn.cluster
    if automatic_maintenance.may_end(cluster, turn.settings, turn.now_us):
        found = automatic_maintenance.census(cluster, turn.settings)
        why = f"{found.known - len(found.gone)} of {found.known} brokers are there again"
        yield from _end(turn, Mark(why, f"controller {cluster.controller_id}"))


def _end(turn: Turn, mark: Mark) -> Procedure[None]:
    def changed(before: Maintenance) -> Maintenance:
        # An operator may have taken it over by another controller meanwhile.
        return msgspec.structs.replace(before, entered=None, by_itself=False) if before.by_itself else before

    if (failure := (yield from change(turn, changed))) is not None:
        turn.reject("CONFLICT", failure)
    elif turn.cluster.maintenance.entered is None:
        record(turn, "left_maintenance", mark)
        yield from _go_on(turn)


def _go_on(turn: Turn) -> Procedure[None]:
    """What was held begins, as far as nothing else still holds it."""
    if turn.cluster.maintenance.paused is None:
        yield from partition_state_machine.bring_online(turn)
        yield from keep_drained(turn)
        yield from phases.released(turn)
    if not turn.cluster.maintenance.why_held():
        yield from deletion.released(turn)


def keep_drained(turn: Turn) -> Procedure[None]:
    """Move off drained brokers what another replica can lead (now)."""
    if turn.cluster.maintenance.drained:
        found = movable(turn.cluster, turn.cluster.partitions())
        if found:
            yield from partition_state_machine.to_online(turn, found, _DRAIN)


def movable(cluster: Cluster, partitions: Iterable[Partition]) -> list[Partition]:
    """Those led by a drained broker that another replica, not drained, could lead."""
    drained = cluster.maintenance.drained
    live = cluster.live_ids()

    def by_another(p: Partition) -> bool:
        if p.leadership is None or p.leadership.leader not in drained or cluster.is_deleting(p):
            return False
        others = tuple(b for b in p.replicas if b not in drained)
        return leader_election.elect_reassign(others, p.leadership, cluster.online_set(p, live)) is not None

    return [p for p in partitions if by_another(p)]


def unsigned(reason: str, author: str, *, reason_needed: bool = True) -> str | None:
    """What is wrong with the signature of a request, in words; None: nothing."""
    if not reason_needed and not author.strip():
        return "author: must be given, so that others know whom to ask"
    if not author.strip() or (reason_needed and not reason.strip()):
        return "reason and author: must both be given, so that others know why and whom to ask"
    for name, text, allowed in (("reason", reason, REASON_MAX), ("author", author, AUTHOR_MAX)):
        if len(text) > allowed:
            return f"{name}: has {len(text)} characters, must have at most {allowed}"
    return None


def _refuse(turn: Turn, serial: int, error: ErrorCode, message: str) -> None:
    turn.reject(error.name, message)
    turn.reply(serial, OperatorReply(error, message))
