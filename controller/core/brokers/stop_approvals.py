"""Approvals: brokers that were told that they may stop, kept until they did, or until somebody takes it back.

Durable in ``/controllers/approvals`` (ours). An approval is for one incarnation of a broker (its epoch): when the
broker is gone or comes back, it is void. Until then every later question counts that broker as gone already, so that
two operators cannot each get a yes that together is a no. Whoever got a yes may act on it at any time, so it does not
run out by itself; it is shown with its age, author and reason, and can be withdrawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from controller.core.cluster.maintenance import unsigned
from controller.core.context import Procedure, Turn
from controller.core.effects import Problem, ReadNodes
from controller.core.model import Broker, Cluster, StopApproval
from controller.core.requests.errors import ErrorCode
from controller.core.requests.operator import ApproveStop, StopApprovalsReply, WithdrawStopApproval
from controller.core.znode_updates import change_node

PATH = "/controllers/approvals"
#: Reasons against a stop that are kept with an override; the rest is counted.
OVERRIDDEN_MAX = 5

_Change = Callable[[Mapping[int, StopApproval]], dict[int, StopApproval]]


def load(turn: Turn) -> Procedure[None]:
    """At failover. One that does not decode is shown, and counts as none."""
    (found,) = yield from turn.read(ReadNodes([PATH]))
    if isinstance(found, Problem):
        turn.problem(found)
    elif found is not None:
        turn.cluster.approvals = found.value


def standing(brokers: Mapping[int, Broker], approvals: Mapping[int, StopApproval]) -> dict[int, StopApproval]:
    """Those that hold: of brokers that are registered, and still the incarnation that was meant."""
    return {
        broker_id: approval
        for broker_id, approval in sorted(approvals.items())
        if broker_id in brokers and brokers[broker_id].epoch == approval.broker_epoch
    }


def approve_stop(turn: Turn, serial: int, request: ApproveStop) -> Procedure[None]:
    """Record that brokers may stop, if what the judgement counted on still holds (serialised: one request at a time).

    OPERATION_NOT_ATTEMPTED: other approvals stand now than those it counted; judge again. BROKER_NOT_AVAILABLE,
    STALE_BROKER_EPOCH: a broker is gone, or another incarnation. One that is approved already stays as it is.
    """
    cluster = turn.cluster
    refusal = _why_not(cluster, request)
    if refusal is not None:
        _refuse(turn, serial, *refusal)
        return
    overridden = request.overridden[:OVERRIDDEN_MAX]
    if more := len(request.overridden) - len(overridden):
        overridden = (*overridden, f"and {more} more")

    def change(before: Mapping[int, StopApproval]) -> dict[int, StopApproval]:
        kept = standing(cluster.brokers, before)
        new = {
            broker_id: StopApproval(epoch, request.reason, request.author, request.at_ms, overridden)
            for broker_id, epoch in request.brokers.items()
        }
        return {**new, **kept}

    yield from _write(turn, serial, request.brokers, change, "stop_approved", request)


def withdraw_approval(turn: Turn, serial: int, request: WithdrawStopApproval) -> Procedure[None]:
    """Take approvals back: these brokers do not count as gone any more. One that has none is fine."""
    if (problem := unsigned(request.reason, request.author, reason_needed=False)) is not None:
        _refuse(turn, serial, ErrorCode.INVALID_REQUEST, problem)
        return

    def change(before: Mapping[int, StopApproval]) -> dict[int, StopApproval]:
        kept = standing(turn.cluster.brokers, before)
        return {b: approval for b, approval in kept.items() if b not in request.brokers}

    brokers = standing(turn.cluster.brokers, turn.cluster.approvals).keys() & request.brokers
    yield from _write(
        turn, serial, dict.fromkeys(sorted(brokers)), change, "stop_approval_withdrawn", request
    )


def _why_not(cluster: Cluster, request: ApproveStop) -> tuple[ErrorCode, str] | None:
    if (problem := unsigned(request.reason, request.author)) is not None:
        return ErrorCode.INVALID_REQUEST, problem
    for broker_id, epoch in request.brokers.items():
        broker = cluster.brokers.get(broker_id)
        if broker is None:
            return ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not registered any more"
        if broker.epoch != epoch:
            why = f"broker {broker_id} was judged with epoch {epoch}, and is back with epoch {broker.epoch}"
            return ErrorCode.STALE_BROKER_EPOCH, why
    now = {(b, a.broker_epoch) for b, a in standing(cluster.brokers, cluster.approvals).items()}
    if now != request.counted:
        who = ", ".join(str(b) for b, _ in sorted(now)) or "none"
        return (
            ErrorCode.OPERATION_NOT_ATTEMPTED,
            f"other approvals stand than were counted on: now those of brokers {who}; judge again",
        )
    return None


def _write(
    turn: Turn,
    serial: int,
    brokers: Mapping[int, object],
    change: _Change,
    to: str,
    request: ApproveStop | WithdrawStopApproval,
) -> Procedure[None]:
    before: dict[int, StopApproval] = {}
    after, failure = yield from change_node(turn, PATH, before, change)
    if after is None:
        _refuse(turn, serial, ErrorCode.UNKNOWN_SERVER_ERROR, failure)
        return
    turn.cluster.approvals = after
    reason = f"{request.author}: {request.reason}"
    turn.log("record", [{"kind": "broker", "replica": b, "to": to, "reason": reason} for b in brokers])
    turn.reply(serial, StopApprovalsReply(ErrorCode.NONE, "", standing(turn.cluster.brokers, after)))


def _refuse(turn: Turn, serial: int, error: ErrorCode, message: str) -> None:
    turn.reject(error.name, message)
    turn.reply(serial, StopApprovalsReply(error, message))
