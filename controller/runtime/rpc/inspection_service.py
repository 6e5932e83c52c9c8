"""Inspection and planning by gRPC: topics, replicas on disk, explanations, plans, dry runs and approvals of stops.

Explanations read the controller's state between two steps of its machine. Plans run on a copy of it in a thread, one
at a time (``plan_queue``); only the copying, which is short, blocks the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
from google.protobuf.message import Message

from controller.core import znode_paths
from controller.core.context import unclean_default
from controller.core.explain.brokers import explain_broker
from controller.core.explain.controllers import explain_controller
from controller.core.explain.partitions import Deciding, explain_deletion, explain_move, explain_partition
from controller.core.explain.remedies import Change
from controller.core.explain.work import NONE, controller_notes, explain_reassignment, explain_topic_deletion
from controller.core.model import Partition
from controller.core.names import name_shown
from controller.core.requests.errors import ErrorCode
from controller.core.requests.operator import StopApprovalsReply, attribution_problem
from controller.errors import ControllerError, LeadershipError, reason_of
from controller.planning.advice import checked
from controller.planning.context import take
from controller.planning.scenarios import Terms
from controller.planning.snapshot import PlanError, Snapshot, unclean_by
from controller.planning.stoppable import Stoppable
from controller.runtime.audit.problems import ReplicaProblem, problems_of
from controller.runtime.daemon import Daemon
from controller.runtime.observe.loop_lag import in_turns
from controller.runtime.rpc import audit, dry_run, replicas
from controller.runtime.rpc.plan_queue import AbandonedError, PlanQueue
from controller.runtime.rpc.translate import inspection as wire
from controller.runtime.rpc.translate.plan_data import Explanation, explanation_data, plan_data
from controller.runtime.rpc.translate.topics import BadRequestError
from controller.runtime.term import Term
from controller.runtime.zookeeper import cluster_reader, single_codecs
from controller.runtime.zookeeper.session import ConnectionLossError
from proto.gen import inspection_pb2 as pb
from proto.limits import MESSAGE_BYTES_MAX
from proto.statelog.writer import format_ts

T = TypeVar("T")

#: Partitions described before the handler yields to the event loop.
DESCRIBED_AT_ONCE = 1000
#: How often a verdict is made if other approvals change meanwhile.
JUDGED_MAX = 3
_BYTES_MAX = MESSAGE_BYTES_MAX // 2


class InspectionRefusedError(ControllerError):
    """The request is refused: ``error`` and why."""

    def __init__(self, error: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.error = error


Look = Callable[[Term, Any], Awaitable[Message]]


def check_leading(daemon: Daemon, term: Term) -> None:
    """After others have had their turn. Raises AbandonedError when the term is over."""
    if daemon.leading is not term:
        raise AbandonedError("the controller resigned")


class InspectionService:
    """Handlers run on the daemon's event loop, between its steps."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self.plans = PlanQueue()
        self._asking = asyncio.Semaphore(replicas.CALLERS_MAX)

    def looks(self) -> dict[str, Look]:
        """Handlers by method name, for the active controller and requests that parsed.

        They raise BadRequestError, InspectionRefusedError, BusyError, and, when the term ends, AbandonedError.
        """
        return {
            "DescribeTopics": self._describe_topics,
            "Audit": audit.audit,
            "DescribeReplicas": self._describe_replicas,
            "Explain": self._explain,
            "Plan": self._plan,
            "DryRun": self._dry_run,
            "CheckStoppable": self._check,
            "ApproveStop": self._approve,
        }

    # topics

    async def _describe_topics(
        self, term: Term, request: pb.DescribeTopicsRequest
    ) -> pb.DescribeTopicsResponse:
        """Topics in the request's order, or all, sorted by name. Each topic's description is consistent in itself."""
        cluster = term.machine.cluster
        described, since = [], 0
        for name in request.topics or sorted(cluster.topics):
            topic = cluster.topics.get(name)
            if topic is None:
                if request.topics:
                    described.append(wire.unknown_topic(cluster, name))
                continue
            described.append(wire.show_topic(cluster, topic, term.senders.unacknowledged))
            since += len(topic.partitions)
            if since >= DESCRIBED_AT_ONCE:
                since = 0
                await asyncio.sleep(0)
        answer = pb.DescribeTopicsResponse(topics=described)
        if answer.ByteSize() > _BYTES_MAX:
            raise InspectionRefusedError(
                ErrorCode.INVALID_REQUEST, f"topics: all of them are over {_BYTES_MAX} bytes: name fewer"
            )
        return answer

    async def _describe_replicas(
        self, term: Term, request: pb.DescribeReplicasRequest
    ) -> pb.DescribeReplicasResponse:
        async with self._asking:
            check_leading(self._daemon, term)
            answer = await replicas.describe(
                term.machine.cluster, self._daemon.questions, term.open_transport, request.topics
            )
        check_leading(self._daemon, term)
        if answer.ByteSize() > _BYTES_MAX:
            raise InspectionRefusedError(
                ErrorCode.INVALID_REQUEST, f"topics: the answer is over {_BYTES_MAX} bytes: name fewer"
            )
        return answer

    # explanations

    async def _explain(self, term: Term, request: pb.ExplainRequest) -> pb.ExplainResponse:
        explained = explanation_data(await self._explained(term, request))
        return pb.ExplainResponse(explanation=msgspec.json.encode(explained).decode())

    async def _explained(self, term: Term, request: pb.ExplainRequest) -> Explanation:
        cluster, settings = term.machine.cluster, term.machine.settings
        subject = request.WhichOneof("subject")
        match subject:
            case "partition":
                return await self._partition(term, *wire.read_partition(subject, request.partition))
            case "broker":
                (broker_id,) = wire.read_brokers("broker", [request.broker])
                mine: list[Partition] = []
                async for some in in_turns(cluster.partitions()):
                    mine += [p for p in some if broker_id in p.replicas]
                return explain_broker(cluster, broker_id, mine)
            case "controller":
                candidates = await _or_refused(cluster_reader.candidates(term.session))
                known = explain_controller(cluster.controller_id, cluster.controller_epoch, candidates)
                return replace(known, notes=controller_notes(cluster, settings))
            case "deletion":
                found = explain_topic_deletion(cluster, settings, request.deletion)
                if found is None:
                    why = f"no topic {request.deletion!r}: it was deleted, or never existed"
                    raise InspectionRefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
                return found
            case "reassignment":
                topic, number = wire.read_partition(subject, request.reassignment)
                partition = _known(term, topic, number)
                moving = explain_reassignment(cluster, settings, partition)
                waits = tuple(_not_told(term, partition)) if moving.phase != NONE else ()
                mends = tuple(p.mend for p in _problems(term, partition))
                return replace(
                    moving, waits_for=(*waits, *moving.waits_for), changes=(*mends, *moving.changes)
                )
            case _:
                names = ", ".join(
                    f.name for f in pb.ExplainRequest.DESCRIPTOR.oneofs_by_name["subject"].fields
                )
                raise BadRequestError(f"subject: must be one of {names}")

    async def _partition(self, term: Term, topic: str, number: int) -> Explanation:
        _known(term, topic, number)
        configs, defaults, problems = await _or_refused(cluster_reader.read_configs(term.session, [topic]))
        # It may have been deleted while its settings were read.
        partition = _known(term, topic, number)
        machine, cluster = term.machine, term.machine.cluster
        explained = explain_partition(
            cluster,
            partition,
            unclean_allowed=unclean_by(configs.get(topic, {}), unclean_default(machine.settings, cluster)),
            deciding=self._deciding(partition),
            unacknowledged=term.senders.unacknowledged(partition),
            config_problem=problems.get(znode_paths.topic_config_path(topic), ""),
        )
        taken = take(cluster, machine.settings, topic)
        explained = await asyncio.to_thread(
            lambda: checked(taken.snapshot(configs, defaults, problems), explained)
        )
        refused = _problems(term, partition)
        notes = (
            *explained.notes,
            *_not_told(term, partition),
            *map(str, refused),
            *explain_deletion(cluster, topic),
            *explain_move(cluster, machine.settings, partition),
        )
        mends = tuple(Change(p.mend) for p in refused)
        return replace(explained, notes=notes, advice=(*mends, *explained.advice))

    def _deciding(self, partition: Partition) -> Deciding | None:
        """The event that led to the current leadership; None: the newest kept record is of another one."""
        state = partition.leadership
        about = self._daemon.recent.last_about(partition.topic.name, partition.number)
        if state is None or about is None or about.partition_epoch != state.partition_epoch:
            return None
        if about.controller_epoch < state.controller_epoch:
            # The record is of an earlier topic of this name.
            return None
        return Deciding(about.event_id, about.cause, about.controller_epoch, format_ts(about.ts_us))

    # plans

    async def _plan(self, term: Term, request: pb.PlanRequest) -> pb.PlanResponse:
        scenario, min_isr = wire.read_scenario(request), wire.read_min_isr(request.min_isr_default)

        def made(snapshot: Snapshot, give_way: Callable[[], None]) -> tuple[bytes, bool]:
            plan = scenario(snapshot, Terms(min_isr, give_way))
            return msgspec.json.encode(plan_data(plan, request.list_writes)), plan.safe

        async with self.plans.turn():
            data, safe = await self._on_snapshot(term, made)
        if len(data) > _BYTES_MAX:
            raise InspectionRefusedError(
                ErrorCode.INVALID_REQUEST,
                f"the plan takes {len(data)} bytes, more than {_BYTES_MAX}: ask without list_writes, or for fewer",
            )
        return pb.PlanResponse(plan=data.decode(), safe=safe)

    async def _dry_run(self, term: Term, request: pb.DryRunRequest) -> pb.DryRunResponse:
        steps = dry_run.read(request)
        paths = dry_run.paths(steps)
        async with self.plans.turn():
            found = await _or_refused(single_codecs.read_nodes(term.session, paths))

            def made(snapshot: Snapshot, give_way: Callable[[], None]) -> pb.DryRunResponse:
                responses, data = dry_run.run(dry_run.with_nodes(snapshot, paths, found), steps, give_way)
                return pb.DryRunResponse(
                    responses=[response.SerializeToString() for response in responses],
                    dry_run=msgspec.json.encode(data).decode(),
                )

            answer = await self._on_snapshot(term, made)
        if (size := answer.ByteSize()) > _BYTES_MAX:
            why = f"the dry run takes {size} bytes, more than {_BYTES_MAX}"
            raise InspectionRefusedError(ErrorCode.OPERATION_NOT_ATTEMPTED, why)
        return answer

    async def _check(self, term: Term, request: pb.CheckStoppableRequest) -> pb.CheckStoppableResponse:
        dry_run.read_check(request)
        async with self.plans.turn():
            _, answer = await self._on_snapshot(term, _judging(request))
        return wire.show_stoppable(answer)

    async def _approve(self, term: Term, request: pb.ApproveStopRequest) -> pb.CheckStoppableResponse:
        """Make a verdict and record an approval; repeat both if other approvals were recorded meanwhile."""
        dry_run.read_check(request.check)
        if (problem := attribution_problem(request.reason, request.author)) is not None:
            raise BadRequestError(problem)
        async with self.plans.turn():
            for _ in range(JUDGED_MAX):
                snapshot, answer = await self._on_snapshot(term, _judging(request.check))
                if not dry_run.may_record(answer, request.override):
                    return wire.show_stoppable(answer)
                response = await term.ask(dry_run.approval(snapshot, answer, request))
                assert isinstance(response, StopApprovalsReply)
                reply = response
                if reply.error is not ErrorCode.OPERATION_NOT_ATTEMPTED:
                    break
        if reply.error is not ErrorCode.NONE:
            raise InspectionRefusedError(reply.error, reply.message)
        recorded = replace(answer, standing=reply.approvals)
        return wire.show_stoppable(recorded, overridden=bool(answer.reasons))

    async def _on_snapshot(self, term: Term, work: Callable[[Snapshot, Callable[[], None]], T]) -> T:
        """Run ``work`` in a thread on a copy of the current cluster."""
        names = list(term.machine.cluster.topics)
        configs, defaults, problems = await _or_refused(cluster_reader.read_configs(term.session, names))
        # In one go, between two steps of the machine.
        taken = take(term.machine.cluster, term.machine.settings)

        def in_thread(give_way: Callable[[], None]) -> T:
            return work(taken.snapshot(configs, defaults, problems), give_way)

        try:
            return await self.plans.run(in_thread, lambda: self._daemon.term is not term)
        except PlanError as error:
            raise InspectionRefusedError(ErrorCode.INVALID_REQUEST, str(error)) from None


def _judging(
    request: pb.CheckStoppableRequest,
) -> Callable[[Snapshot, Callable[[], None]], tuple[Snapshot, Stoppable]]:
    return lambda snapshot, give_way: (snapshot, dry_run.judge(snapshot, request, give_way))


def _problems(term: Term, partition: Partition) -> list[ReplicaProblem]:
    return problems_of(term.machine.cluster, term.senders, term.auditor, partition)


def _not_told(term: Term, partition: Partition) -> Iterator[str]:
    """Replicas other than the leader's that have not been told, and did not refuse: they copy nothing yet."""
    cluster, state = term.machine.cluster, partition.leadership
    for broker_id in partition.replicas:
        follows = broker_id in cluster.brokers and state is not None and broker_id != state.leader
        refused = term.senders.refusal(broker_id, partition)
        if follows and not refused and (why := term.senders.not_told(broker_id, partition)):
            yield f"its replica does not follow the present leader: {why}"


def _known(term: Term, topic: str, number: int) -> Any:
    """A partition. Raises InspectionRefusedError if it does not exist."""
    cluster = term.machine.cluster
    found = cluster.partition(topic, number)
    if found is None:
        problem = cluster.problems.get(znode_paths.topic_path(topic))
        why = (
            f"no partition {name_shown(topic)}-{number}"
            if problem is None
            else f"{znode_paths.topic_path(topic)}: {problem}"
        )
        raise InspectionRefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
    return found


async def _or_refused(reading: Awaitable[T]) -> T:
    try:
        return await reading
    except LeadershipError as error:
        raise AbandonedError(str(error)) from None
    except (ConnectionLossError, ControllerError) as error:
        why = f"ZooKeeper does not answer: {reason_of(error)}; ask again"
        raise InspectionRefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, why) from None
