"""Operators who keep creating, expanding, moving, electing and deleting, whatever else goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Any, NamedTuple

from controller.client import admin
from controller.runtime.zookeeper.cluster_reader import ClusterState
from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2, inspection_pb2
from proto.security.grpc_channels import GrpcTls
from tests.provers.chaos.apply import now_us
from tests.provers.chaos.recovery import Eye

ANSWER_S = 8.0
PAUSE_S = (0.2, 1.0)
TOPICS_MAX = 12
BROKER_IDS = (1, 2, 3, 4, 5)


class Verb(StrEnum):
    CREATE = "create"
    EXPAND = "expand"
    MOVE = "move"
    CANCEL = "cancel move"
    ELECT = "elect"
    DELETE = "delete"


class Outcome(StrEnum):
    ACCEPTED = "accepted"
    REFUSED = "refused"
    #: Whether it was carried out is not known.
    UNANSWERED = "unanswered"


class ControllerRequest(NamedTuple):
    """What an operator asked for. ``partition`` -1: of no one partition. ``target``: the replicas wanted."""

    verb: Verb
    topic: str
    partition: int
    target: tuple[int, ...]
    at_us: int
    episode: int
    outcome: Outcome
    words: str = ""

    def __str__(self) -> str:
        where = self.topic + (f"-{self.partition}" if self.partition >= 0 else "")
        to = f" to {list(self.target)}" if self.target else ""
        return f"{self.verb} {where}{to}, asked in episode {self.episode}, {self.outcome}"


@dataclass
class Operators:
    """``asked`` is all they ever asked for, in order. ``moved``: a topic that they move, too, and never delete."""

    eye: Eye
    random: Random
    moved: str
    tls: GrpcTls | None = None
    episode: int = 0
    asked: list[ControllerRequest] = field(default_factory=list)
    _made: int = 0

    async def work(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            cluster_state = await self.eye.look()
            if cluster_state is not None and cluster_state.controller_endpoint:
                await self._one(cluster_state)
            await asyncio.sleep(self.random.uniform(*PAUSE_S))

    async def _one(self, cluster_state: ClusterState) -> None:
        mine = sorted(
            name
            for name in cluster_state.topics
            if name.startswith("op-") and name not in cluster_state.deleting
        )
        random = self.random
        verbs = [Verb.CREATE] * 3 if len(mine) < TOPICS_MAX else [Verb.DELETE] * 3
        if mine:
            verbs += [Verb.EXPAND, Verb.MOVE, Verb.MOVE, Verb.DELETE, Verb.DELETE]
        verbs += [Verb.ELECT, Verb.CANCEL, Verb.MOVE]
        verb = random.choice(verbs)
        topic = random.choice([*mine, self.moved] if verb is Verb.MOVE else mine or [self.moved])
        match verb:
            case Verb.CREATE:
                await self._create()
            case Verb.EXPAND:
                count = len(cluster_state.topics[topic].partitions) + random.randint(1, 2)
                request = pb.CreatePartitionsRequest(topics=[pb.NewPartitions(name=topic, count=count)])
                await self._ask(verb, topic, "CreatePartitions", request)
            case Verb.DELETE:
                request_ = pb.DeleteTopicsRequest(
                    topics=[pb.DeletableTopic(name=topic)], reason="it is no longer needed"
                )
                await self._ask(verb, topic, "DeleteTopics", request_)
            case Verb.ELECT:
                await self._ask(verb, "", "ElectLeaders", pb.ElectLeadersRequest(all_partitions=True))
            case Verb.MOVE:
                partition = random.choice(sorted(cluster_state.topics[topic].partitions))
                factor = len(cluster_state.topics[topic].partitions[partition])
                await self._move(topic, partition, random.sample(BROKER_IDS, min(factor, 3)))
            case Verb.CANCEL:
                moving = [
                    (t.name, n) for t in cluster_state.topics.values() for n in {*t.adding, *t.removing}
                ]
                if moving:
                    await self._move(*random.choice(sorted(moving)), None)

    async def _create(self) -> None:
        self._made += 1
        name = f"op-{self._made}"
        partitions, factor = self.random.randint(1, 4), self.random.choice((2, 3, 3))
        topic = pb.CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor)
        await self._ask(Verb.CREATE, name, "CreateTopics", pb.CreateTopicsRequest(topics=[topic]))

    async def _move(self, topic: str, partition: int, replicas: Sequence[int] | None) -> None:
        one = pb.ReassignablePartition(topic=topic, partition=partition)
        if replicas is not None:
            one.replicas.broker_ids.extend(replicas)
        request = pb.AlterPartitionReassignmentsRequest(partitions=[one])
        verb = Verb.CANCEL if replicas is None else Verb.MOVE
        await self._ask(verb, topic, "AlterPartitionReassignments", request, partition, tuple(replicas or ()))

    async def _ask(
        self,
        verb: Verb,
        topic: str,
        method: str,
        request: Any,
        partition: int = -1,
        target: tuple[int, ...] = (),
    ) -> None:
        at_us, episode = now_us(), self.episode
        outcome, words = Outcome.UNANSWERED, "nobody was active"
        cluster_state = await self.eye.look()
        if cluster_state is None:
            return
        try:
            answer = await admin.ask(cluster_state.controller_endpoint, method, request, ANSWER_S, self.tls)
            outcome, words = _judge(answer)
        except admin.RefusedError as error:
            outcome, words = Outcome.REFUSED, str(error)
        except admin.NoAnswerError as error:
            words = str(error)
        self.asked.append(ControllerRequest(verb, topic, partition, target, at_us, episode, outcome, words))


def _judge(answer: Any) -> tuple[Outcome, str]:
    entries = next(
        (getattr(answer, name) for name in ("topics", "responses", "results") if hasattr(answer, name)), ()
    )
    errors = [entry for entry in entries if entry.error_code]
    if errors and len(errors) == len(entries):
        name = common_pb2.ErrorCode.Name(errors[0].error_code)
        return Outcome.REFUSED, f"{name}: {errors[0].error_message}"
    return Outcome.ACCEPTED, ""


async def explain(
    cluster_state: ClusterState,
    tls: GrpcTls | None,
    deletion: str = "",
    reassignment: tuple[str, int] | None = None,
) -> str:
    """What the active controller says of it, in words."""
    if reassignment is None:
        request = inspection_pb2.ExplainRequest(deletion=deletion)
    else:
        name = common_pb2.PartitionName(topic=reassignment[0], partition=reassignment[1])
        request = inspection_pb2.ExplainRequest(reassignment=name)
    try:
        answer = await admin.ask(cluster_state.controller_endpoint, "Explain", request, ANSWER_S, tls)
    except admin.RequestFailedError as error:
        return str(error)
    return "; ".join(answer.words) or answer.summary
