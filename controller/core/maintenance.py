"""Maintenance: brokers that are kept free of leaderships, elections that are paused; kept with reason and author.

Durable in ``/controllers/maintenance`` (ours), so that the next controller goes on with it. While elections are
paused, partitions whose leader goes stay without one, and leadership does not return by itself; what operators ask
for is still done, and the data plane goes on.
"""

from __future__ import annotations

from collections.abc import Callable

from controller.core import election, partition_machine
from controller.core.brokers import replicas_on
from controller.core.commits import ATTEMPTS_MAX
from controller.core.effects import Committed, Problem, ReadNodes, StoredNode, WriteNode
from controller.core.election import ElectionKind, Strategy
from controller.core.model import Maintenance, Mark, Partition
from controller.core.replica_machine import to_online
from controller.core.requests import CancelShutdown, ErrorCode, OperatorReply, SetDrain, SetPause
from controller.core.shutdown import UNKNOWN_BROKER_EPOCH
from controller.core.turn import Procedure, Turn

PATH = "/controllers/maintenance"
_DRAIN = ElectionKind(Strategy.DRAIN)


def load(turn: Turn) -> Procedure[None]:
    """At failover. One that does not decode is shown, and counts as none."""
    (found,) = yield from turn.read(ReadNodes([PATH]))
    if isinstance(found, Problem):
        turn.problem(found)
    elif found is not None:
        turn.cluster.maintenance = found.value


def set_drain(turn: Turn, serial: int, request: SetDrain) -> Procedure[None]:
    """Keep leaderships off a broker, or no longer; answers with what it leads all the same."""
    broker_id = request.broker_id
    if broker_id not in turn.cluster.brokers and request.drained:
        _refuse(turn, serial, ErrorCode.BROKER_NOT_AVAILABLE, f"drain: no broker {broker_id} is registered")
        return
    if (problem := _unsigned(request.drained, request.reason, request.author)) is not None:
        _refuse(turn, serial, ErrorCode.INVALID_REQUEST, problem)
        return

    def change(before: Maintenance) -> Maintenance:
        drained = {b: mark for b, mark in before.drained.items() if b != broker_id}
        if request.drained:
            drained[broker_id] = Mark(request.reason, request.author)
        return Maintenance(before.paused, drained)

    if (failure := (yield from _change(turn, change))) is not None:
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


def set_pause(turn: Turn, serial: int, request: SetPause) -> Procedure[None]:
    """Pause the elections and returns that nobody asked for, or go on: then whatever waits is elected at once."""
    if (problem := _unsigned(request.paused, request.reason, request.author)) is not None:
        _refuse(turn, serial, ErrorCode.INVALID_REQUEST, problem)
        return
    mark = Mark(request.reason, request.author) if request.paused else None
    failure = yield from _change(turn, lambda before: Maintenance(mark, before.drained))
    if failure is not None:
        _refuse(turn, serial, ErrorCode.UNKNOWN_SERVER_ERROR, failure)
        return
    to = "paused" if request.paused else "resumed"
    turn.log("record", [{"kind": "controller", "to": to, "reason": f"{request.author}: {request.reason}"}])
    if not request.paused:
        yield from partition_machine.bring_online(turn)
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
        yield from partition_machine.bring_online(turn)
    turn.reply(serial, OperatorReply(ErrorCode.NONE))


def keep_drained(turn: Turn) -> Procedure[None]:
    """Move off drained brokers what another replica can lead (now)."""
    cluster = turn.cluster
    drained = cluster.maintenance.drained
    if not drained:
        return
    live = cluster.live_ids()

    def movable(p: Partition) -> bool:
        if p.leadership is None or p.leadership.leader not in drained or cluster.is_deleting(p):
            return False
        others = tuple(b for b in p.replicas if b not in drained)
        return election.elect_reassign(others, p.leadership, cluster.online_set(p, live)) is not None

    found = [p for p in cluster.partitions() if movable(p)]
    if found:
        yield from partition_machine.to_online(turn, found, _DRAIN)


def _change(turn: Turn, change: Callable[[Maintenance], Maintenance]) -> Procedure[str | None]:
    """Read, change, write until it lands, then remember; the reason in words if it never does."""
    reason = ""
    for _ in range(ATTEMPTS_MAX):
        (found,) = yield from turn.read(ReadNodes([PATH]))
        if isinstance(found, Problem):
            turn.problem(found)
            return f"{found.path}: {found.problem}"
        before = found.value if isinstance(found, StoredNode) else Maintenance()
        after = change(before)
        if after != before:
            version = found.version if isinstance(found, StoredNode) else None
            outcome = yield from turn.commit([WriteNode(PATH, after, version)])
            if not isinstance(outcome, Committed):
                reason = outcome.reason
                continue
        turn.solved(PATH)
        turn.cluster.maintenance = after
        return None
    return f"{PATH}: not written in {ATTEMPTS_MAX} attempts; the last: {reason}"


def _unsigned(entered: bool, reason: str, author: str) -> str | None:
    if not author.strip() or (entered and not reason.strip()):
        return "reason and author: must both be given, so that others know why and whom to ask"
    return None


def _refuse(turn: Turn, serial: int, error: ErrorCode, message: str) -> None:
    turn.reject(error.name, message)
    turn.reply(serial, OperatorReply(error, message))
