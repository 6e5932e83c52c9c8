"""A broker's data in this process: the real `DataPlane` on real logs, in virtual time, alone in its cluster.

It leads ``foo-0`` with a few records and ``__consumer_offsets-0``, follows ``foo-1``. A world in which something has
changed is not used again.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

from broker_stub import data_plane, settings
from broker_stub.control.replicas import Replicas
from broker_stub.data_dirs import DataDirs
from broker_stub.data_plane import DataPlane
from broker_stub.errors import BrokerError
from broker_stub.group import coordinator
from broker_stub.log import batches
from broker_stub.log.directories import LogDirectories
from broker_stub.log.interface import LogConfig
from tests.provers.fuzz.harness import MEMORY
from tests.provers.fuzz.virtual import Loop
from tests.provers.sim.environment.loop import Clock
from tests.support.broker.builders import BrokerHarness, metadata_state
from tests.support.broker.replication_fakes import order

ANSWER_S = 7200.0
OFFSETS = "__consumer_offsets"
LED = (("foo", 0), (OFFSETS, 0))
FOLLOWED = ("foo", 1)


class _Clock(Clock):
    def time_ns(self) -> int:
        return self.monotonic_ns()


class _Store:
    """ZooKeeper as a broker sees it: no topic has a configuration, nobody is the controller."""

    async def topic_config(self, topic: str) -> dict[str, str]:
        return {}

    async def create_topic(self, *_: object) -> None:
        raise BrokerError("nothing is created here")

    async def controller(self) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        async def away(*_: object, **__: object) -> None:
            raise BrokerError(f"{name}: ZooKeeper is away")

        return away

    def watch_config_changes(self, changed: object) -> None:
        pass


class FuzzedBroker:
    """The data plane and its methods, from bytes to bytes."""

    def __init__(self) -> None:
        self.bugs: list[BaseException] = []
        self._stack = ExitStack()
        self.loop = Loop()
        self._stack.callback(self.loop.close)
        asyncio.set_event_loop(self.loop)
        directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="fuzz-", dir=MEMORY)))
        clock = _Clock(self.loop)
        for module in (data_plane, coordinator):
            self._stack.enter_context(mock.patch.object(module, "time", clock))
        self.loop.run_until_complete(self._begin(directory))
        self._made = self._state()

    async def _begin(self, directory: Path) -> None:
        chosen = settings.load(
            {
                "broker_id": "0",
                "zookeeper": "h:1",
                "listen": "h:1",
                "data_dir": str(directory),
                "offsets_topic_num_partitions": "1",
            },
            {},
        )
        for topic, number in (*LED, FOLLOWED):
            (directory / f"{topic}-{number}").mkdir()
        harness = BrokerHarness()
        self._dirs = DataDirs([directory], 0)
        self._logs = LogDirectories([directory], LogConfig(message_max_bytes=10_000), self._dirs.path_of)
        self._plane = DataPlane(
            chosen,
            self._logs,
            self._dirs,
            harness.handlers,
            _Store(),  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
            self.bugs.append,
            None,
        )
        self._plane.start()
        transitions = []
        for key in LED:
            harness.update(metadata_state(*key, leader=0, isr=[0], replicas=[0]))
            transitions.append(order(0, 1, [0], 0, [0], key))
        transitions.append(order(1, 1, [0, 1], 0, [0, 1], FOLLOWED))
        harness.update(metadata_state(*FOLLOWED, leader=1))
        replicas = Replicas(0)
        plan = replicas.plan_leader_and_isr(transitions, harness.handlers.metadata.is_live)
        outcome = replicas.complete(plan, {})
        assert await self._plane.apply("LeaderAndIsr", outcome.transitions) == {}
        self.methods = self._plane.methods()
        foo = self._plane.manager.require("foo", 0)
        for value in (b"one", b"two"):
            self._plane.manager.append(foo, batches.encode([(b"k", value)], 1000), 1)
        await asyncio.sleep(1)

    def _state(self) -> tuple[Any, ...]:
        described = self._plane.describe()
        partitions = described["replication"]["partitions"]
        ends = [(p["topic"], p["partition"], p["log_end_offset"]) for p in partitions]
        return ends, str(described["groups"])

    @property
    def worn(self) -> bool:
        return self._state() != self._made

    def problems(self) -> list[str]:
        logs = [log for directory in self._logs.working() for log in directory._logs.values()]
        return [str(failure) for log in logs if (failure := log.failure)]

    def call(self, method: str, request: bytes) -> bytes:
        """The answer. Raises UnreadableRequest, and whatever the handler or a background task fails with."""

        async def answered() -> bytes:
            async with asyncio.timeout(ANSWER_S):
                to = self.methods[method]
                return (await to.handler(to.parse(request))).SerializeToString()

        answer = self.loop.run_until_complete(answered())
        if self.bugs:
            raise self.bugs[0]
        return answer

    def close(self) -> None:
        try:
            self.loop.run_until_complete(self._plane.stop())
            self._plane.close_logs()
            if self.bugs:
                raise self.bugs[0]
        finally:
            self.discard()

    def discard(self) -> None:
        try:
            self.loop.end_tasks()
        finally:
            self._stack.close()
