"""What is under way: reassignments and deletions, each with how far it is and what it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from aiohttp import web

from controller.core.model import BROKER_ID_MAX, BrokerIds
from controller.core.partitions.replica_placement import PlacementError
from controller.core.reassignment.assignment import assignment_of
from controller.core.reassignment.vacating import vacated
from controller.core.requests.errors import ErrorCode
from controller.core.topics.deletion_status import deletions
from controller.runtime.http.console.asking import ROWS_MAX, Asking, RefusedError, number_in
from controller.runtime.http.console.changes import PARTITIONS_MAX
from controller.runtime.http.console.whatif import Answer
from controller.runtime.observe.loop_lag import in_turns
from controller.runtime.term import Term
from proto.gen import admin_service_pb2


class Work:
    """Answers about work of the controller that takes a while."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._one_at_a_time = asyncio.Lock()

    def answers(self) -> Iterator[tuple[str, Answer]]:
        yield "work", self._work
        yield "vacate", self._vacate

    async def _work(self, request: web.Request) -> dict[str, Any]:
        """The RPCs ``ListPartitionReassignments`` and ``ListTopicDeletions``."""
        asked = admin_service_pb2.ListPartitionReassignmentsRequest()
        moves = (await self._asking.rpc(request, "ListPartitionReassignments", asked)).partitions
        listed = admin_service_pb2.ListTopicDeletionsRequest()
        topics = (await self._asking.rpc(request, "ListTopicDeletions", listed)).topics
        term = self._asking.leading()
        phases = {status.topic: status for status in deletions(term.machine.cluster)}
        return {
            "reassignments": [_move(term, move) for move in moves[:ROWS_MAX]],
            "reassignments_count": len(moves),
            "deletions": [
                {
                    "topic": one.name,
                    "phase": phases[one.name].phase.value if one.name in phases else "deleted",
                    "why": one.pending_reason,
                    "replicas_left": one.replicas_left,
                    "replicas": _replicas(term, one.name),
                }
                for one in topics[:ROWS_MAX]
            ],
            "deletions_count": len(topics),
        }

    async def _vacate(self, request: web.Request) -> dict[str, Any]:
        """Where the replicas of a broker would go for good, as by ``pctl brokers decommission`` where sizes are not
        known: the first of them, as many as one change takes. What leaves it already is left out."""
        broker_id = number_in(request, "broker", 0, BROKER_ID_MAX)
        term = self._asking.leading()
        async with self._one_at_a_time:
            current = await _targets(term, broker_id, partial(self._asking.may_see, request))
            cluster = term.machine.cluster
            others = [b for id_, b in cluster.brokers.items() if id_ != broker_id]
            avoided = frozenset(cluster.maintenance.drained)
            try:
                # It waits for nothing, but takes a while of a thread.
                moved = await asyncio.to_thread(vacated, current, [broker_id], others, avoided=avoided)
            except PlacementError as error:
                raise RefusedError(ErrorCode.INVALID_REQUEST, str(error)) from None
        return {
            "moves": [
                {"topic": topic, "partition": number, "replicas": ids}
                for (topic, number), ids in sorted(moved.items())[:PARTITIONS_MAX]
            ],
            "of": len(moved),
        }


async def _targets(
    term: Term, leaving: int, may_see: Callable[[str], bool]
) -> dict[tuple[str, int], BrokerIds]:
    """The replicas that each partition will have, of topics that are not being deleted.

    Of a topic that the caller may not see, without the one on the ``leaving`` broker: nothing is said of it then, not
    even that it is in the way.
    """
    cluster = term.machine.cluster
    queued, found = cluster.reassignments.queued, dict[tuple[str, int], BrokerIds]()
    async for some in in_turns(cluster.partitions()):
        for partition in some:
            if not cluster.deletion_requested(partition.topic.name):
                target = queued.get(partition) or assignment_of(partition).target
                if leaving in target and not may_see(partition.topic.name):
                    target = tuple(b for b in target if b != leaving)
                found[partition.topic.name, partition.number] = target
    return found


def _move(term: Term, move: Any) -> dict[str, Any]:
    """``synced``: how many of the new replicas are in sync."""
    partition = term.machine.cluster.partition(move.topic, move.partition)
    isr = partition.leadership.isr if partition is not None and partition.leadership is not None else ()
    return {
        "topic": move.topic,
        "partition": move.partition,
        "replicas": list(move.replicas),
        "adding": list(move.adding_replicas),
        "removing": list(move.removing_replicas),
        "queued": move.queued,
        "synced": sum(b in isr for b in move.adding_replicas),
        "why": "; ".join(move.reasons),
    }


def _replicas(term: Term, name: str) -> int:
    topic = term.machine.cluster.topics.get(name)
    return sum(len(p.replicas) for p in topic.partitions.values()) if topic is not None else 0
