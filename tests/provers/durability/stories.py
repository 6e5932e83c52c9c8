"""What crash tests interrupt: a deletion, moves, a move taken back, another replication factor; and how each ends."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controller.client import admin
from controller.core import znode_paths
from controller.playground.cluster import Playground
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ClusterState
from controller.runtime.zookeeper.session import Session
from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2

Assignments = Mapping[str, Mapping[int, Sequence[int]]]

BROKERS = 4
#: Never touched.
KEPT: Assignments = {"kept": {0: [1, 2, 3]}}
#: Topics as every story finds them. Broker 4 has nothing, so that it can be frozen.
BEFORE: Assignments = {**KEPT, "t": {0: [1, 2, 3], 1: [1], 2: [2, 3]}, "u": {0: [2]}}
MOVED: Assignments = {**KEPT, "t": {0: [3, 4], 1: [4], 2: [2, 3]}, "u": {0: [4]}}
RESIZED: Assignments = {**KEPT, "t": {0: [2, 1], 1: [1, 4], 2: [2, 3, 4, 1]}, "u": {0: [2, 3]}}

ANSWER_TIMEOUT_S = 20.0


class RefusedError(Exception):
    """The controller refused what nothing speaks against."""


@dataclass(frozen=True)
class Story:
    """``play`` asks for everything, again where nobody answered and nothing was recorded; ``after``: the topics at
    its end."""

    name: str
    play: Callable[[Playground, Session], Awaitable[None]]
    after: Assignments


# --- asking ----------------------------------------------------------------------------------------------


async def ask(
    session: Session,
    method: str,
    request: Any,
    recorded: Callable[[ClusterState], bool],
    may: Sequence[int] = (),
) -> None:
    """Ask whoever is active until it is answered, or recorded without an answer.

    ``may``: errors that only say that an earlier, unanswered request was carried out. Raises RefusedError.
    """
    repeated = False
    while True:
        cluster_state = await cluster_reader.look(session)
        if repeated and recorded(cluster_state):
            return
        try:
            answer = await admin.ask(cluster_state.controller_endpoint, method, request, ANSWER_TIMEOUT_S)
        except admin.RequestFailedError:
            repeated = True
            await asyncio.sleep(0.05)
            continue
        for entry in answer.responses:
            if entry.error_code and not (repeated and entry.error_code in may):
                error = common_pb2.ErrorCode.Name(entry.error_code)
                raise RefusedError(f"{method}: {error}: {entry.error_message}")
        return


def changed(target: Assignments) -> list[tuple[str, int, Sequence[int]]]:
    """The partitions that are elsewhere than before."""
    return [
        (topic, number, replicas)
        for topic, partitions in target.items()
        for number, replicas in partitions.items()
        if replicas != BEFORE[topic][number]
    ]


def _is_moving(cluster_state: ClusterState, topic: str, number: int) -> bool:
    info = cluster_state.topics[topic]
    return bool(info.adding.get(number) or info.removing.get(number))


async def _move(session: Session, target: Assignments) -> None:
    request = pb.AlterPartitionReassignmentsRequest(
        partitions=[
            pb.ReassignablePartition(
                topic=topic, partition=number, replicas=pb.ReplicaList(broker_ids=replicas)
            )
            for topic, number, replicas in changed(target)
        ]
    )

    def recorded(cluster_state: ClusterState) -> bool:
        return all(
            _is_moving(cluster_state, topic, number)
            or list(cluster_state.topics[topic].partitions[number]) == list(replicas)
            for topic, number, replicas in changed(target)
        )

    await ask(session, "AlterPartitionReassignments", request, recorded)


# --- the stories -----------------------------------------------------------------------------------------


async def deletion(_: Playground, session: Session) -> None:
    """One topic by its marker, as tools do, and one by request."""
    await session.create(f"{znode_paths.DELETE_TOPICS}/t", b"")
    await ask(
        session,
        "DeleteTopics",
        pb.DeleteTopicsRequest(topics=[pb.DeletableTopic(name="u")]),
        lambda cluster_state: "u" in cluster_state.deleting or "u" not in cluster_state.topics,
        [common_pb2.UNKNOWN_TOPIC_OR_PARTITION],
    )


async def move(_: Playground, session: Session) -> None:
    await _move(session, MOVED)


async def move_by_znode(_: Playground, session: Session) -> None:
    listed = [{"topic": t, "partition": n, "replicas": ids} for t, n, ids in changed(MOVED)]
    data = json.dumps({"version": 1, "partitions": listed}).encode()
    await session.create(znode_paths.REASSIGN_PARTITIONS, data)


async def cancelled_move(cluster: Playground, session: Session) -> None:
    """A target that is frozen keeps the moves from ending before they are cancelled."""
    target = cluster.members["broker-4"]
    target.signal(signal.SIGSTOP)
    try:
        await _move(session, MOVED)
        request = pb.AlterPartitionReassignmentsRequest(
            partitions=[pb.ReassignablePartition(topic=t, partition=n) for t, n, _ in changed(MOVED)]
        )
        await ask(
            session,
            "AlterPartitionReassignments",
            request,
            lambda cluster_state: not any(_is_moving(cluster_state, t, n) for t, n, _ in changed(MOVED)),
            [common_pb2.NO_REASSIGNMENT_IN_PROGRESS],
        )
    finally:
        target.signal(signal.SIGCONT)


async def resize(_: Playground, session: Session) -> None:
    await _move(session, RESIZED)


STORIES = (
    Story("deletion", deletion, KEPT),
    Story("move", move, MOVED),
    Story("move by znode", move_by_znode, MOVED),
    Story("cancelled move", cancelled_move, BEFORE),
    Story("replication factor", resize, RESIZED),
)
