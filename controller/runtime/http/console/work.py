"""What is under way: reassignments and deletions, each with how far it is and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiohttp import web

from controller.core.topics.deletion_status import deletions
from controller.runtime.http.console.asking import ROWS_MAX, Asking
from controller.runtime.http.console.whatif import Answer
from controller.runtime.term import Term
from proto.gen import admin_service_pb2


class Work:
    """Answers about work of the controller that takes a while."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    def answers(self) -> Iterator[tuple[str, Answer]]:
        yield "work", self._work

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
