"""The server side of AdminService: every controller serves it, other than the active one with NOT_CONTROLLER.

Requests to the machine wait in the same queue as those of brokers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from google.protobuf.message import Message

from controller.core.cluster.automatic_maintenance import offline_brokers
from controller.core.handlers import not_controller
from controller.core.model import Broker
from controller.core.requests.api import ControllerRequest
from controller.core.requests.errors import ErrorCode
from controller.core.topics.deletion_status import deletions
from controller.runtime import state
from controller.runtime.daemon import Daemon
from controller.runtime.observe.loop_lag import AT_ONCE, given_way, in_turns
from controller.runtime.push.messages import endpoints_of
from controller.runtime.rpc.access import Stream, Unary
from controller.runtime.rpc.history_service import HistoryService
from controller.runtime.rpc.inspection_service import (
    InspectionRefusedError,
    InspectionService,
    Look,
    check_leading,
)
from controller.runtime.rpc.leadership_service import LeadershipService
from controller.runtime.rpc.methods import ADMIN_SERVICE, ASKED, Asked, response_of
from controller.runtime.rpc.plan_queue import AbandonedError, BusyError
from controller.runtime.rpc.translate.maintenance import describe
from controller.runtime.rpc.translate.topics import BadRequestError
from controller.runtime.term import Term
from proto.gen import admin_service_pb2 as pb
from proto.gen import maintenance_pb2
from proto.security.access import Openness

#: What a reply may have by the thousand, and how many are translated in one turn: topics have up to thousands of
#: partitions, resources have settings.
_AT_ONCE = {"topics": 5, "resources": 100, "partitions": AT_ONCE}


def at_once(look: Callable[[Term], Message]) -> Look:
    """A handler that answers from memory, without waiting and without reading its request."""

    async def waiting(term: Term, request: Any) -> Message:
        del request
        return look(term)

    return waiting


class AdminService:
    """Handlers run on the daemon's event loop, between its steps."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._history = HistoryService(daemon)
        self._inspection = InspectionService(daemon)
        self._leadership = LeadershipService(daemon)

    def streams(self) -> dict[str, Stream]:
        """Handlers of streaming methods by the method's name on the wire."""
        return {"Watch": self._history.watch}

    def methods(self) -> dict[str, Unary]:
        """Handlers by the method's name on the wire."""
        looks: dict[str, Look] = {
            **self._inspection.looks(),
            "DescribeCluster": self._describe_cluster,
            "ListTopicDeletions": at_once(_list_deletions),
            "ListQuarantine": at_once(_list_quarantine),
            "DescribeMaintenance": self._describe_maintenance,
        }
        return {
            **{name: self._asking(name, method) for name, method in ASKED.items()},
            **{name: self._looking(name, look) for name, look in looks.items()},
            **self._leadership.methods(),
            "ListHistory": self._history.list_history,
        }

    def _asking(self, name: str, method: Asked) -> Unary:
        """A handler that translates a request, passes it to the machine, and translates the response."""

        async def handle(request: Message) -> Message:
            try:
                asked: ControllerRequest = method.read(request)
            except BadRequestError as error:
                return self._refusal(name, ErrorCode.INVALID_REQUEST, str(error))
            term = self._daemon.leading
            if term is not None and (suspect := term.refuses(asked)) is not None:
                why = f"in quarantine, because it raised before: {suspect}"
                return self._refusal(name, ErrorCode.UNKNOWN_SERVER_ERROR, why)
            reply = not_controller(asked) if term is None else await term.ask(asked)
            return await _shown(method, reply)

        return handle

    def _looking(self, name: str, look: Look) -> Unary:
        """A handler that answers from the controller's state, or from a copy of it."""

        async def handle(request: Message) -> Message:
            term = self._daemon.leading
            if term is None:
                return self._refusal(name, ErrorCode.NOT_CONTROLLER, "")
            try:
                return await look(term, request)
            except BadRequestError as error:
                return self._refusal(name, ErrorCode.INVALID_REQUEST, str(error))
            except InspectionRefusedError as error:
                return self._refusal(name, error.error, str(error))
            except BusyError as error:
                return self._refusal(name, ErrorCode.OPERATION_NOT_ATTEMPTED, str(error))
            except AbandonedError as error:
                return self._refusal(name, ErrorCode.NOT_CONTROLLER, str(error))

        return handle

    def _refusal(self, name: str, error: ErrorCode, message: str) -> Message:
        response: Any = response_of(ADMIN_SERVICE, name)
        if response is pb.DescribeClusterResponse:
            known = self._daemon.current_controller
            standby = self._standby() if error is ErrorCode.NOT_CONTROLLER else None
            return pb.DescribeClusterResponse(error_code=error.value, controller_id=known, standby=standby)  # type: ignore[arg-type]
        answer: Message = response(error_code=error.value, error_message=message)
        return answer

    def _standby(self) -> pb.StandbyDescription | None:
        """What this candidate has in memory; None: it does not follow."""
        if self._daemon.standby is None:
            return None
        mirror = self._daemon.standby.mirror
        behind_s = mirror.behind_s(time.monotonic())
        return pb.StandbyDescription(
            warmth=mirror.warmth.value, states=mirror.size, behind=mirror.behind, behind_s=behind_s
        )

    async def _describe_cluster(self, term: Term, _: Message) -> pb.DescribeClusterResponse:
        """The active controller's view. Others answer NOT_CONTROLLER with the last known controller id."""
        cluster = term.machine.cluster
        counts = await state.census(cluster)
        check_leading(self._daemon, term)
        return pb.DescribeClusterResponse(
            controller_id=self._daemon.current_controller,
            controller_epoch=term.won.epoch,
            event_id=term.machine.event_id,
            brokers=[_describe_broker(term, broker, counts) for _, broker in sorted(cluster.brokers.items())],
            topic_count=len(cluster.topics),
            partition_count=sum(len(t.partitions) for t in cluster.topics.values()),
            offline_partition_count=counts.offline,
            preferred_replica_imbalance_count=counts.imbalanced,
            problems=cluster.some_problems(),
            problem_count=len(cluster.problems),
            unguarded=self._daemon.openness is Openness.BY_DEFAULT,
            state_log_problem=self._daemon.state_log.not_written,
            state_log_dropped=self._daemon.state_log.dropped,
        )

    async def _describe_maintenance(
        self, term: Term, _: Message
    ) -> maintenance_pb2.DescribeMaintenanceResponse:
        cluster = term.machine.cluster
        topics = list(cluster.topics.values())
        found = await given_way(offline_brokers(cluster, term.machine.settings, topics=topics))
        check_leading(self._daemon, term)
        return describe(cluster, found)


async def _shown(method: Asked, reply: Any) -> Message:
    """The response, made bit by bit: others have their turn."""
    name = next((name for name in _AT_ONCE if hasattr(reply, name)), None)
    if name is None or not (entries := getattr(reply, name)):
        return method.show(reply)
    whole: Message = method.show(replace(reply, **{name: ()}))
    async for some in in_turns(entries, _AT_ONCE[name]):
        whole.MergeFrom(method.show(replace(reply, **{name: some})))
    return whole


def _describe_broker(term: Term, broker: Broker, counts: state.Census) -> pb.BrokerDescription:
    status = term.senders.status.get(broker.id)
    flapping = term.machine.cluster.flapping.get(broker.id)
    newer, newer_wait = term.auditor.newer_states(broker.id)
    return pb.BrokerDescription(
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        endpoints=endpoints_of(broker),
        rack=broker.rack or "",
        leader_count=counts.led[broker.id],
        replica_count=counts.held[broker.id],
        pending_pushes=term.machine.outbox.pending(broker.id),
        push_problem=status.problem or status.refused_partitions if status else "",
        refuses_pushes=bool(status and status.refused),
        losses=flapping.losses if flapping else 0,
        hold_s=flapping.hold_us // 1_000_000 if flapping else 0,
        newer_states=newer,
        newer_wait=newer_wait,
    )


def _list_quarantine(term: Term) -> maintenance_pb2.ListQuarantineResponse:
    return maintenance_pb2.ListQuarantineResponse(
        suspects=[
            maintenance_pb2.Suspect(
                name=name,
                event=suspect.event,
                detail=suspect.detail,
                error=suspect.error,
                digest=suspect.digest,
                count=suspect.count,
                quarantined=suspect.quarantined,
                controller_id=suspect.controller_id,
                controller_epoch=suspect.controller_epoch,
                at_ms=suspect.at_ms,
            )
            for name, suspect in sorted(term.quarantine.suspects.items())
        ]
    )


def _list_deletions(term: Term) -> pb.ListTopicDeletionsResponse:
    return pb.ListTopicDeletionsResponse(
        topics=[
            pb.TopicDeletion(name=d.topic, pending_reason=str(d.reason or ""), replicas_left=d.replicas_left)
            for d in deletions(term.machine.cluster)
        ]
    )
