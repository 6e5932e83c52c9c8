"""Stop approvals: permissions for brokers to stop, valid until the broker stops or an operator withdraws them.

Durable in ``/controllers/approvals`` (ours). An approval is for one incarnation of a broker (its epoch). Until that
incarnation stops, every later stop check counts the broker as offline, so that two approvals are also safe together.
An approval does not expire with time: its operator may stop the broker at any time. It is shown with its age, author
and reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from controller.core.commits import change_node, load_node
from controller.core.context import EventContext, Handler
from controller.core.model import Broker, Cluster, StopApproval
from controller.core.records import BrokerChange
from controller.core.requests.errors import ErrorCode
from controller.core.requests.operator import (
    ApproveStop,
    StopApprovalsReply,
    WithdrawStopApproval,
    attribution_problem,
)
from controller.core.znode_paths import APPROVALS, NodePath

PATH: NodePath[dict[int, StopApproval]] = NodePath(APPROVALS)
#: Overridden objections that are stored; further ones are only counted.
OVERRIDDEN_MAX = 5

_Change = Callable[[Mapping[int, StopApproval]], dict[int, StopApproval]]


def load(context: EventContext) -> Handler[None]:
    """Read the approvals at failover."""
    context.cluster.approvals = yield from load_node(context, PATH, {})


def standing(brokers: Mapping[int, Broker], approvals: Mapping[int, StopApproval]) -> dict[int, StopApproval]:
    """The valid approvals: those of registered brokers of the same incarnation."""
    return {
        broker_id: approval
        for broker_id, approval in sorted(approvals.items())
        if broker_id in brokers and brokers[broker_id].epoch == approval.broker_epoch
    }


def approve_stop(context: EventContext, serial: int, request: ApproveStop) -> Handler[None]:
    """Store that brokers may stop, if the assumptions of the stop check still hold. Requests are handled one at a time.

    OPERATION_NOT_ATTEMPTED: the valid approvals have changed since; check again. BROKER_NOT_AVAILABLE,
    STALE_BROKER_EPOCH: a broker is not registered, or of another incarnation. An existing approval is not changed.
    """
    cluster = context.cluster
    refusal = _why_not(cluster, request)
    if refusal is not None:
        _refuse(context, serial, *refusal)
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

    yield from _write(context, serial, request.brokers, change, "stop_approved", request)


def withdraw_approval(context: EventContext, serial: int, request: WithdrawStopApproval) -> Handler[None]:
    """Withdraw approvals: these brokers no longer count as offline. Brokers without one are ignored."""
    if (problem := attribution_problem(request.reason, request.author, reason_needed=False)) is not None:
        _refuse(context, serial, ErrorCode.INVALID_REQUEST, problem)
        return

    def change(before: Mapping[int, StopApproval]) -> dict[int, StopApproval]:
        kept = standing(context.cluster.brokers, before)
        return {b: approval for b, approval in kept.items() if b not in request.brokers}

    brokers = standing(context.cluster.brokers, context.cluster.approvals).keys() & request.brokers
    yield from _write(context, serial, sorted(brokers), change, "stop_approval_withdrawn", request)


def _why_not(cluster: Cluster, request: ApproveStop) -> tuple[ErrorCode, str] | None:
    if (problem := attribution_problem(request.reason, request.author)) is not None:
        return ErrorCode.INVALID_REQUEST, problem
    for broker_id, epoch in request.brokers.items():
        broker = cluster.brokers.get(broker_id)
        if broker is None:
            return ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not registered any more"
        if broker.epoch != epoch:
            why = f"broker {broker_id} was checked with epoch {epoch}, and is back with epoch {broker.epoch}"
            return ErrorCode.STALE_BROKER_EPOCH, why
    now = {(b, a.broker_epoch) for b, a in standing(cluster.brokers, cluster.approvals).items()}
    if now != request.counted:
        who = ", ".join(str(b) for b, _ in sorted(now)) or "none"
        return (
            ErrorCode.OPERATION_NOT_ATTEMPTED,
            f"the approvals have changed since the check, now those of brokers {who}: check again",
        )
    return None


def _write(
    context: EventContext,
    serial: int,
    brokers: Iterable[int],
    change: _Change,
    to: str,
    request: ApproveStop | WithdrawStopApproval,
) -> Handler[None]:
    before: dict[int, StopApproval] = {}
    after, failure = yield from change_node(context, PATH, before, change)
    if after is None:
        _refuse(context, serial, ErrorCode.UNKNOWN_SERVER_ERROR, failure)
        return
    context.cluster.approvals = after
    reason = f"{request.author}: {request.reason}"
    context.log([BrokerChange(b, to, reason=reason) for b in brokers])
    context.reply(serial, StopApprovalsReply(ErrorCode.NONE, "", standing(context.cluster.brokers, after)))


def _refuse(context: EventContext, serial: int, error: ErrorCode, message: str) -> None:
    context.reject(error.name, message)
    context.reply(serial, StopApprovalsReply(error, message))
