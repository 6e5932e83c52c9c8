"""Dry runs: requests from the wire, carried out on a copy of the cluster.

The active controller runs them on its own state, ``pctl`` on a snapshot from ZooKeeper when no controller answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError, Message

from controller.core.brokers.stop_approvals import standing
from controller.core.cluster import dynamic_settings
from controller.core.effects import Problem, StoredNode
from controller.core.names import topic_name_problem
from controller.core.requests.api import ControllerRequest
from controller.core.requests.configs import AlterConfigs, ConfigResource, ConfigScope
from controller.core.requests.operator import ApproveStop, attribution_problem
from controller.core.requests.topics import CreateTopics
from controller.core.znode_paths import NodePath, config_path, topic_config_path
from controller.planning.dry_run import DryRunTrace, trace
from controller.planning.executor import Pushes
from controller.planning.scenarios import Terms
from controller.planning.snapshot import Snapshot
from controller.planning.stoppable import Stoppable, Why, stoppable
from controller.runtime.rpc.limits import excess
from controller.runtime.rpc.methods import ADMIN_SERVICE, ASKED, request_of
from controller.runtime.rpc.translate import inspection as wire
from controller.runtime.rpc.translate.plan_data import write_row
from controller.runtime.rpc.translate.topics import BadRequestError
from proto.gen import inspection_pb2 as pb

APPROVE = "ApproveStop"
#: Methods that change something.
CHANGING = (*(name for name, method in ASKED.items() if method.recorded), APPROVE)
STEPS_MAX = 1000


class Step(NamedTuple):
    """A request and its method's name. ``asked``: the core's request; None: it needs a verdict first (ApproveStop)."""

    method: str
    request: Any
    asked: ControllerRequest | None


class Made(NamedTuple):
    """``responses``: one for each step. ``data``: everything else, as JSON values."""

    responses: list[Message]
    data: dict[str, Any]


def read(request: pb.DryRunRequest) -> list[Step]:
    """The steps of a request. Raises BadRequestError."""
    if not 0 < len(request.steps) <= STEPS_MAX:
        raise BadRequestError(f"steps: must be from 1 to {STEPS_MAX}, there are {len(request.steps)}")
    return [_read(position, step, len(request.steps)) for position, step in enumerate(request.steps)]


def _read(position: int, step: Any, count: int) -> Step:
    method = step.method
    if method not in CHANGING:
        raise BadRequestError(
            f"steps[{position}].method = {method!r}: must be one of {', '.join(sorted(CHANGING))}"
        )
    kind = request_of(ADMIN_SERVICE, method)
    try:
        request: Any = kind.FromString(step.request)
    except DecodeError:
        raise BadRequestError(f"steps[{position}].request: is no request of {method}") from None
    if (problem := excess(request)) is not None:
        raise BadRequestError(f"steps[{position}].request: {problem}")
    if method != APPROVE:
        return Step(method, request, ASKED[method].read(request))
    if count > 1:
        raise BadRequestError(f"steps[{position}].method = {method!r}: must be the only step")
    read_check(request.check)
    if (problem := attribution_problem(request.reason, request.author)) is not None:
        raise BadRequestError(problem)
    return Step(method, request, None)


def paths(steps: Sequence[Step]) -> list[NodePath[Any]]:
    """Paths of the znodes that these requests read and that a snapshot does not contain."""
    found: list[NodePath[Any]] = []
    for step in steps:
        match step.asked:
            case AlterConfigs(resources):
                named = [r.resource for r in resources]
                found.extend(config_path(r.entity) for r in named if _names_broker(r))
                if any(r.scope is ConfigScope.CONTROLLER for r in named):
                    found.append(dynamic_settings.PATH)
            case CreateTopics(topics):
                found.extend(topic_config_path(t.name) for t in topics if topic_name_problem(t.name) is None)
    return list(dict.fromkeys(found))


def _names_broker(resource: ConfigResource) -> bool:
    return resource.scope is ConfigScope.BROKER and resource.name.isascii() and resource.name.isdigit()


def with_nodes(
    snapshot: Snapshot,
    asked: Sequence[NodePath[Any]],
    found: Sequence[StoredNode[object] | Problem | None],
) -> Snapshot:
    """The snapshot with these znodes added. ``found`` is parallel to the paths ``asked``."""
    nodes = {str(at): node for at, node in zip(asked, found, strict=True) if isinstance(node, StoredNode)}
    problems = {node.path: node.problem for node in found if isinstance(node, Problem)}
    return replace(snapshot, nodes=nodes, problems={**snapshot.problems, **problems})


def run(
    snapshot: Snapshot,
    steps: Sequence[Step],
    give_way: Callable[[], None] = lambda: None,
    *,
    controller_active: bool = True,
) -> Made:
    """Carry out the steps. Raises PlanError for what cannot be planned on this cluster."""
    if steps[0].asked is None:
        return _approve(snapshot, steps[0].request, give_way, controller_active)
    made = trace(snapshot, [step.asked for step in steps if step.asked is not None], give_way)
    shown: list[Message] = [
        ASKED[step.method].show(reply) for step, reply in zip(steps, made.replies, strict=True)
    ]
    return Made(shown, _data(made))


def _data(made: DryRunTrace) -> dict[str, Any]:
    """A trace as JSON values. ``pushes``: total partitions sent, by broker and kind of push."""
    pushes: Pushes = {}
    for phase in made.phases:
        for broker_id, notified in phase.pushes.items():
            for kind, number in notified.items():
                counted = pushes.setdefault(broker_id, {})
                counted[kind] = counted.get(kind, 0) + number
    return {
        "writes": [
            {**write_row(change), "when": phase.when} for phase in made.phases for change in phase.writes
        ],
        "pushes": {str(broker_id): notified for broker_id, notified in sorted(pushes.items())},
        "notes": made.notes,
    }


# --- approvals to stop -----------------------------------------------------------------------------------------


def read_check(request: pb.CheckStoppableRequest) -> tuple[tuple[int, ...], int]:
    """Broker ids and the default of min.insync.replicas. Raises BadRequestError."""
    return wire.read_brokers("broker_ids", request.broker_ids), wire.read_min_isr(request.min_isr_default)


def judge(
    snapshot: Snapshot,
    request: pb.CheckStoppableRequest,
    give_way: Callable[[], None],
    *,
    controller_active: bool = True,
) -> Stoppable:
    """May these brokers stop? Raises PlanError."""
    ids, min_isr = read_check(request)
    return stoppable(
        snapshot,
        ids,
        Terms(min_isr, give_way),
        controller_active=controller_active,
        tolerate_under_replicated=request.tolerate_under_replicated,
    )


def may_record(answer: Stoppable, override: bool) -> bool:
    """Whether to record an approval: never for a broker that is not registered, even with ``override``."""
    unknown = any(reason.why is Why.UNKNOWN_BROKER for reason in answer.reasons)
    return not unknown and (override or not answer.reasons)


def approval(snapshot: Snapshot, answer: Stoppable, request: pb.ApproveStopRequest) -> ApproveStop:
    """The request that records a verdict, bound to the brokers' incarnations and to the approvals it considered."""
    counted = standing(snapshot.brokers, snapshot.approvals)
    return ApproveStop(
        {b: snapshot.brokers[b].epoch for b in answer.brokers},
        frozenset((b, a.broker_epoch) for b, a in counted.items()),
        request.reason,
        request.author,
        time.time_ns() // 1_000_000,
        tuple(r.text for r in answer.reasons),
    )


def _approve(
    snapshot: Snapshot, request: pb.ApproveStopRequest, give_way: Callable[[], None], controller_active: bool
) -> Made:
    answer = judge(snapshot, request.check, give_way, controller_active=controller_active)
    if not may_record(answer, request.override):
        return Made([wire.show_stoppable(answer)], _data(DryRunTrace((), (), ())))
    made = trace(snapshot, [approval(snapshot, answer, request)], give_way)
    return Made([wire.show_stoppable(answer, overridden=bool(answer.reasons))], _data(made))
