"""A whole controller in this process: the real daemon on the ZooKeeper in memory, in virtual time, with brokers that
accept everything. Its gRPC handlers are called as gRPC calls them, from bytes to bytes.

Whatever it does takes no real time, and each world is as new: one in which something was written is not used again.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import grpc
from google.protobuf.message_factory import GetMessageClass

from controller.core import znode_paths
from controller.runtime import term
from controller.runtime.config import Settings
from controller.runtime.daemon import Daemon
from controller.runtime.rpc import server
from controller.runtime.rpc.admin_service import AdminService
from controller.runtime.rpc.controller_service import ControllerService
from controller.runtime.rpc.methods import ADMIN_SERVICE, CONTROLLER_SERVICE
from proto.arrivals import Arrivals
from proto.gen.broker_control_pb2 import StopReplicaRequest
from tests.provers.fuzz.harness import MEMORY
from tests.provers.fuzz.virtual import Loop
from tests.provers.sim.environment.rpc import only
from tests.provers.sim.zookeeper.ensemble import Ensemble
from tests.provers.sim.zookeeper.messages import Stat
from tests.provers.sim.zookeeper.network import Network
from tests.provers.sim.zookeeper.session import sessions_on
from tests.provers.sim.zookeeper.tree import Tree
from tests.support.runtime.fuzzed_cluster import BROKERS, METHODS, stored_problems, topics
from tests.support.runtime.pushes import stopped

#: Virtual seconds that an answer may take: every limit of ours is shorter.
ANSWER_S = 600.0
#: Those of brokers 1 to 3 in every new world: zxids.
BROKER_EPOCHS = (29, 30, 31)


class _Context:
    """What handlers may ask of a call."""

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    def invocation_metadata(self) -> tuple[()]:
        return ()


class _Hands:
    """An operator's client, looking straight into the tree."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def get(self, path: str) -> tuple[bytes, Stat]:
        node = self._tree.node(path)
        assert node is not None
        return node.data or b"", node.stat()

    def get_children(self, path: str) -> list[str]:
        node = self._tree.node(path)
        return sorted(node.children) if node is not None else []


class _Channel:
    """A broker that does whatever it is told."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def unary_unary(self, method: str, *_: object, **__: object) -> Callable[..., Any]:
        async def call(request: bytes, **___: object) -> bytes:
            return stopped(StopReplicaRequest.FromString(request)) if method.endswith("/StopReplica") else b""

        return call

    async def close(self, *_: object) -> None:
        pass


class FuzzedController:
    """A controller that leads topics t and u on three brokers."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.loop = Loop()
        self._stack.callback(self.loop.close)
        asyncio.set_event_loop(self.loop)
        self._directory = Path(
            self._stack.enter_context(tempfile.TemporaryDirectory(prefix="fuzz-", dir=MEMORY))
        )
        self.loop.run_until_complete(self._begin())
        self._made = self._transactions()

    async def _begin(self) -> None:
        self._ensemble = Ensemble()
        network = Network(self._ensemble)
        self._stack.enter_context(sessions_on(network))
        self._stack.enter_context(mock.patch.object(grpc.aio, "insecure_channel", _Channel))
        settings = Settings(controller_id=1, zookeeper="controller:1", state_log_dir=self._directory)
        self.daemon = Daemon(settings)
        self._services = self._made_services()
        ids = (f"{number:021d}A" for number in itertools.count())
        self._stack.enter_context(mock.patch.object(term, "new_topic_id", side_effect=ids))
        self._task = asyncio.create_task(self.daemon.run())
        await self._until(lambda: self.daemon.session is not None and self.daemon.active)
        session = self.daemon.session
        assert session is not None
        for broker_id in BROKERS:
            data = (
                b'{"version":5,"endpoints":["GRPC://b:1"],"features":{"f":{"min_version":1,"max_version":3}}}'
            )
            await session.create(znode_paths.broker_path(broker_id), data, ephemeral=True)
        await self._until(lambda: len(self._term().machine.cluster.brokers) == len(BROKERS))
        answer = await self._call("CreateTopics", topics("t", "u").SerializeToString())
        assert [topic.error_code for topic in answer.topics] == [0, 0], answer
        await self._until(lambda: not self._busy())
        self._led = self._term()
        assert self._broker_epochs() == BROKER_EPOCHS, self._broker_epochs()

    def _broker_epochs(self) -> tuple[int, ...]:
        return tuple(broker.epoch for broker in self._led.machine.cluster.brokers.values())

    def _term(self) -> Any:
        assert self.daemon.term is not None
        return self.daemon.term

    def _busy(self) -> bool:
        machine = self._term().machine
        return machine.current_event is not None or any(machine.outbox.pending(b) for b in BROKERS)

    async def _until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(ANSWER_S):
            while not reached():
                assert not self._task.done(), "the controller ended"
                await asyncio.sleep(0.01)

    def _made_services(self) -> dict[str, Any]:
        admin = AdminService(self.daemon)
        made = {
            ADMIN_SERVICE: (admin.methods(), admin.streams()),
            CONTROLLER_SERVICE: (ControllerService(self.daemon).methods(), {}),
        }
        arrivals = Arrivals(1)
        return {
            name: server._service(self.daemon, arrivals, name, methods, streams)
            for name, (methods, streams) in made.items()
        }

    def _transactions(self) -> int:
        return self._ensemble.servers[0].tree.zxid

    @property
    def worn(self) -> bool:
        """Something was written, or the controller ended: the next input is to have another world."""
        return self._transactions() != self._made or self._task.done() or self._busy()

    def call(self, method: str, request: bytes) -> Any:
        """The answer, of a stream the first one. Raises whatever the handler or the controller fails with."""
        return self.loop.run_until_complete(self._answered(method, request))

    async def _answered(self, method: str, request: bytes) -> Any:
        answer = await self._call(method, request)
        # What it leads to, it leads to now.
        for _ in range(50):
            if not self._busy_or_over():
                break
            await asyncio.sleep(0.05)
        if self._task.done():
            self._task.result()
        assert self.daemon.term is self._led, "the controller resigned"
        return answer

    def _busy_or_over(self) -> bool:
        return not self._task.done() and self.daemon.term is not None and self._busy()

    def problems(self) -> list[str]:
        """What is wrong with what it has written."""
        return list(stored_problems(_Hands(self._ensemble.servers[0].tree)))

    async def _call(self, method: str, request: bytes) -> Any:
        known = METHODS[method]
        path = f"/{known.containing_service.full_name}/{method}"
        handler: Any = self._services[known.containing_service.full_name].service(
            SimpleNamespace(method=path)
        )
        asked = only(handler.request_deserializer(request))
        async with asyncio.timeout(ANSWER_S):
            if not known.server_streaming:
                answer = await handler.stream_unary(asked, _Context())
            else:
                async with aclosing(handler.stream_stream(asked, _Context())) as answers:
                    answer = await anext(aiter(answers))
        return GetMessageClass(known.output_type).FromString(handler.response_serializer(answer))

    def close(self) -> None:
        """Let the controller resign and end. Raises what it fails with."""
        try:
            self.daemon.stop()
            self.loop.run_until_complete(asyncio.wait([self._task], timeout=ANSWER_S))
            self._task.result()
        finally:
            self.discard()

    def discard(self) -> None:
        """As it is."""
        try:
            self.loop.end_tasks()
        finally:
            self.daemon.state_log.close()
            self._stack.close()
