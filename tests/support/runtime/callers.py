"""A controller daemon with its gRPC server in the test's event loop, and a broker that calls it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from kazoo.client import KazooClient

from controller.core import znode_paths
from controller.core.model import Partition
from controller.runtime.config import Settings
from controller.runtime.daemon import Daemon
from controller.runtime.rpc.server import start_server
from controller.runtime.state import Gauges
from controller.runtime.term import Term
from controller.runtime.zookeeper import codecs
from proto.gen import controller_service_pb2 as pb
from tests.support.runtime.daemons import running
from tests.support.runtime.pushes import FakeBroker
from tests.support.runtime.sessions import until

SERVICE = "/partition_controller.v1.ControllerService/"
RESPONSES: dict[str, Any] = {
    "AlterPartition": pb.AlterPartitionResponse,
    "ControlledShutdown": pb.ControlledShutdownResponse,
}


class Caller:
    """A broker's line to one controller: it sends bytes and parses what comes back."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def raw(self, method: str, message: bytes, timeout_s: float = 20) -> bytes:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(SERVICE + method)
        return await call(message, timeout=timeout_s)

    async def alter(self, request: pb.AlterPartitionRequest, timeout_s: float = 20) -> Any:
        answer = await self.raw("AlterPartition", request.SerializeToString(), timeout_s)
        return pb.AlterPartitionResponse.FromString(answer)

    async def shut_down(self, broker_id: int, broker_epoch: int, timeout_s: float = 20) -> Any:
        request = pb.ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch)
        answer = await self.raw("ControlledShutdown", request.SerializeToString(), timeout_s)
        return pb.ControlledShutdownResponse.FromString(answer)


@asynccontextmanager
async def calling(endpoint: str) -> AsyncIterator[Caller]:
    async with grpc.aio.insecure_channel(endpoint) as channel:
        yield Caller(channel)


class Active:
    """A controller that leads a cluster of fake brokers."""

    def __init__(self, daemon: Daemon, caller: Caller, zk: KazooClient) -> None:
        self.daemon, self.caller, self.zk = daemon, caller, zk

    @property
    def term(self) -> Term:
        term = self.daemon.term
        assert term is not None
        return term

    def partition(self, topic: str = "t", number: int = 0) -> Partition:
        found = self.term.machine.cluster.partition(topic, number)
        assert found is not None
        return found

    def stored(self, topic: str = "t", number: int = 0) -> tuple[int, int, list[int], int]:
        """Leader, leader epoch, ISR and partition epoch in ZooKeeper."""
        data, stat = self.zk.get(znode_paths.state_path(topic, number))
        found = codecs.decode_state(topic, number, data, stat.version)
        return found.leader, found.leader_epoch, list(found.isr), found.partition_epoch

    def proposal(self, isr: Sequence[int], number: int = 0, **changes: Any) -> Any:
        """What the present leader of a partition of t would propose, with some fields otherwise."""
        partition = self.partition("t", number)
        state = partition.leadership
        assert state is not None
        fields = {
            "topic": "t",
            "topic_id": partition.topic.id,
            "partition": number,
            "leader_epoch": state.leader_epoch,
            "new_isr": isr,
            "partition_epoch": state.partition_epoch,
        }
        return pb.AlterPartitionState(**{**fields, **changes})

    def request(self, broker_id: int, *proposals: Any) -> pb.AlterPartitionRequest:
        epoch = self.term.machine.cluster.brokers[broker_id].epoch
        return pb.AlterPartitionRequest(broker_id=broker_id, broker_epoch=epoch, partitions=proposals)

    def idle(self) -> bool:
        """No event is under way or waits, and every broker has heard everything."""
        term = self.term
        return (
            term.machine.current_event is None
            and term.machine.queue_size == 0
            and all(term.machine.outbox.pending(b) == 0 for b in term.machine.cluster.brokers)
        )


def register(zk: KazooClient, broker: FakeBroker) -> None:
    data = f'{{"version":4,"endpoints":["GRPC://127.0.0.1:{broker.port}"]}}'
    zk.create(f"/brokers/ids/{broker.id}", data.encode())
    broker.epoch = zk.exists(f"/brokers/ids/{broker.id}").czxid


@asynccontextmanager
async def controller(
    connect: str,
    zk: KazooClient,
    directory: Path,
    *brokers: FakeBroker,
    topics: Mapping[str, str] = {},
    before: Callable[[Daemon], None] = lambda daemon: None,
) -> AsyncIterator[Active]:
    """Brokers registered, topics (name to the JSON of ``partitions``) initialised, everyone told."""
    daemon = Daemon(Settings(zookeeper=connect, state_log_dir=directory))
    Gauges(daemon)
    before(daemon)
    server, port = await start_server(daemon, "127.0.0.1", 0)
    daemon.grpc_endpoint = f"127.0.0.1:{port}"
    try:
        async with running(daemon), calling(daemon.grpc_endpoint) as caller:
            await until(lambda: daemon.active, "the failover")
            active = Active(daemon, caller, zk)
            for broker in brokers:
                await broker.start()
                register(zk, broker)
            await until(lambda: len(active.term.machine.cluster.brokers) == len(brokers), "the brokers")
            for name, partitions in topics.items():
                zk.create(f"/brokers/topics/{name}", f'{{"version":1,"partitions":{partitions}}}'.encode())
            await until(
                lambda: len(active.term.machine.cluster.topics) == len(topics) and active.idle(), "the topics"
            )
            yield active
    finally:
        await server.stop(0)
        for broker in brokers:
            await broker.stop()
