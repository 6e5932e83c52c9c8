"""Two controller processes, each with a proxy before ZooKeeper, three brokers that accept everything, and an operator
who asks for one thing after the other while the active controller is killed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from kazoo.client import KazooClient

from controller.client import admin
from controller.core import znode_paths
from controller.playground.cluster import Playground
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.session import Session
from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2
from proto.gen.admin_service_pb2_grpc import AdminServiceStub
from proto.gen.controller_service_pb2_grpc import ControllerServiceStub
from tests.provers.durability.crashes import CONTROLLER_TIMEOUT_MS, behind_proxies
from tests.provers.durability.traps import StepTrap
from tests.support.runtime.proxy import Proxy
from tests.support.runtime.pushes import FakeBroker, carried_out
from tests.support.runtime.sessions import until

BROKERS = (1, 2, 3)
OF_BROKERS = ("AlterPartition", "ControlledShutdown", "AllocateProducerIds")
#: No answer may take longer than the lease, and whatever else happens on a busy machine.
ANSWER_S = 20.0


@dataclass
class Pair:
    """The cluster. ``hands``: an operator's own client of ZooKeeper."""

    cluster: Playground
    session: Session
    proxies: Mapping[int, Proxy]
    hands: KazooClient
    brokers: Mapping[int, FakeBroker]

    async def active(self) -> int:
        """Wait until one leads."""
        return (await self.cluster.active(self.session))[0]

    async def endpoint(self) -> str:
        await self.active()
        return (await cluster_reader.look(self.session, topics=())).controller_endpoint

    async def both(self) -> None:
        async def registered() -> bool:
            return len(await self.session.children(znode_paths.CONTROLLER_IDS)) == len(self.proxies)

        await until(registered, "both controllers")

    async def ask(self, method: str, request: Any) -> Any:
        """The active controller's answer."""
        return await ask(await self.endpoint(), method, request)

    async def topic(self, name: str, *replicas: Sequence[int], led: bool = True) -> None:
        """Created, led if anybody can, and everybody has heard of it: nothing is left to write."""
        topic = pb.CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
        for number, ids in enumerate(replicas):
            topic.assignments[number].broker_ids.extend(ids)
        (made,) = (await self.ask("CreateTopics", pb.CreateTopicsRequest(topics=[topic]))).topics
        assert made.error_code == common_pb2.NONE, made
        states = [f"/brokers/topics/{name}/partitions/{number}/state" for number in range(len(replicas))]
        await until(lambda: not led or all(map(self.hands.exists, states)), "its leaders")
        await self.idle()

    async def idle(self) -> None:
        """Everything asked for is carried out: no event comes for a while, and no push is left."""
        seen: list[int] = []

        async def still() -> bool:
            answer = await self.ask("DescribeCluster", pb.DescribeClusterRequest())
            seen.append(answer.event_id)
            await asyncio.sleep(0.15)
            pushed = not any(b.pending_pushes for b in answer.brokers)
            return pushed and seen[-3:] == [answer.event_id] * 3

        await until(still, "the end of all work")

    async def killed_while(self, method: str, request: Any, *, landed: bool) -> None:
        """Ask, and kill the active controller at the request's first write; the caller is told. It is started again."""
        await self.both()
        active = await self.active()
        endpoint = await self.endpoint()
        member = self.cluster.members[f"controller-{active}"]
        trap = self.proxies[active].trap = StepTrap(0, landed, member.kill)
        try:
            if method in OF_BROKERS:
                with pytest.raises(grpc.aio.AioRpcError) as cut:
                    await ask(endpoint, method, request)
                assert cut.value.code() is grpc.StatusCode.UNAVAILABLE
            else:
                with pytest.raises(
                    admin.NoAnswerError, match="check whether it was carried out before trying again"
                ):
                    await admin.ask(endpoint, method, request, ANSWER_S)
        finally:
            self.proxies[active].trap = None
        assert trap.killed, f"{method} wrote nothing"
        await self.cluster.active(self.session, other_than=active)
        member.start()

    # what is stored

    def stored(self, path: str) -> Any:
        return json.loads(self.hands.get(path)[0])

    def state(self, topic: str, number: int = 0) -> Any:
        return self.stored(znode_paths.state_path(topic, number))


def _register(hands: KazooClient, broker: FakeBroker) -> None:
    features = '{"f":{"min_version":1,"max_version":9}}'
    data = f'{{"version":5,"endpoints":["GRPC://127.0.0.1:{broker.port}"],"features":{features}}}'
    hands.create(znode_paths.broker_path(broker.id), data.encode())
    broker.epoch = hands.exists(znode_paths.broker_path(broker.id)).czxid


async def ask(endpoint: str, method: str, request: Any) -> Any:
    """Raises grpc.aio.AioRpcError where there is no answer."""
    async with grpc.aio.insecure_channel(endpoint) as channel:
        stub: Any = ControllerServiceStub(channel) if method in OF_BROKERS else AdminServiceStub(channel)
        return await getattr(stub, method)(request, timeout=ANSWER_S)


@asynccontextmanager
async def pair(zookeeper: str, directory: Path, controllers: int = 2) -> AsyncIterator[Pair]:
    """Started, complete and idle; everything is ended afterwards."""
    cluster = Playground(directory, controllers, 0, zookeeper, CONTROLLER_TIMEOUT_MS)
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(cluster_reader.connected(cluster.connect, 20_000))
        cluster.prepare()
        proxies = await behind_proxies(cluster, stack)
        brokers = {id_: await FakeBroker(id_).start() for id_ in BROKERS}
        for broker in brokers.values():
            broker.answer = carried_out
            stack.push_async_callback(broker.stop)
        # Blocks, and the proxies must serve meanwhile.
        stack.push_async_callback(asyncio.to_thread, cluster.stop)
        for member in cluster.members.values():
            member.start()
        await cluster.active(session)
        hands = KazooClient(cluster.connect)
        await asyncio.to_thread(hands.start, 20)
        stack.push_async_callback(asyncio.to_thread, hands.close)
        stack.push_async_callback(asyncio.to_thread, hands.stop)
        for broker in brokers.values():
            _register(hands, broker)
        made = Pair(cluster, session, proxies, hands, brokers)
        await made.both()
        await made.idle()
        yield made
