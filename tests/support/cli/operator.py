"""pctl in the hands of a test."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from kazoo.client import KazooClient

from controller.cli.pctl.main import main
from controller.playground.cluster import Playground
from controller.runtime.zookeeper import cluster_reader


def pctl(connect: str, *arguments: str) -> Result:
    """Run a command; anything but a result or an exit code fails the test."""
    result = CliRunner().invoke(main, [f"--zookeeper={connect}", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@dataclass
class Operator:
    """A cluster, pctl on it, and hands that write znodes."""

    cluster: Playground
    zk: KazooClient

    def run(self, *arguments: str) -> Result:
        return pctl(self.cluster.connect, *arguments)

    def ok(self, *arguments: str) -> Result:
        result = self.run(*arguments)
        assert result.exit_code == 0, result.output
        return result

    def json(self, *arguments: str) -> Any:
        return json.loads(self.ok("-o", "json", *arguments).stdout)

    def table(self, *arguments: str) -> list[list[str]]:
        """Cells, where no cell holds two spaces in a row."""
        lines = self.ok(*arguments).stdout.splitlines()
        return [line.split() for line in lines]

    def state(self, topic: str, partition: int) -> Any:
        return json.loads(self.zk.get(f"/brokers/topics/{topic}/partitions/{partition}/state")[0])

    def topic_by_hand(self, name: str, replicas: list[int], leader: int, isr: list[int]) -> None:
        """A topic of one partition with a state that a former controller left."""
        state = {"version": 1, "leader": leader, "leader_epoch": 3, "controller_epoch": 0, "isr": isr}
        base = f"/brokers/topics/{name}"
        # All at once: the controller must see the state when it sees the topic.
        transaction = self.zk.transaction()
        # An id of its own: topics that share one are not loaded.
        data = {"version": 3, "topic_id": f"{name[:21]:A<22}", "partitions": {"0": replicas}}
        transaction.create(base, json.dumps(data).encode())
        transaction.create(f"{base}/partitions", b"")
        transaction.create(f"{base}/partitions/0", b"")
        transaction.create(f"{base}/partitions/0/state", json.dumps(state).encode())
        assert not any(isinstance(r, Exception) for r in transaction.commit())

    def wait(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not reached():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.02)

    @contextmanager
    def controller_away(self) -> Iterator[None]:
        """What is written meanwhile, its next failover loads as it is, if its leaders live."""
        member = self.cluster.members["controller-1"]
        member.stop()
        try:
            yield
        finally:
            member.start()
        self.wait(lambda: self.json("cluster").get("controller_answers") == "yes")

    @contextmanager
    def frozen_controller(self) -> Iterator[None]:
        """One that was frozen for long is elected anew before this ends."""
        member = self.cluster.members["controller-1"]
        member.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            member.signal(signal.SIGCONT)
        self.wait(lambda: self.json("cluster").get("controller_answers") == "yes")


@contextmanager
def operating(
    server: str, directory: Path, brokers: int, session_timeout_ms: int = 20_000
) -> Iterator[Operator]:
    """An operator of a running cluster of one controller and this many brokers, below a chroot of its own.

    Sessions last so long that nobody loses his by being slow, or frozen for a test.
    """
    chroot = f"operator-{os.getpid()}-{directory.name}"
    cluster = Playground(directory / "run", 1, brokers, f"{server}/{chroot}", session_timeout_ms)
    hands = KazooClient(cluster.connect)
    try:
        cluster.start()
        asyncio.run(_complete(cluster))
        hands.start(20)
        yield Operator(cluster, hands)
    finally:
        hands.stop()
        hands.close()
        for member in cluster.members.values():
            member.kill()


async def _complete(cluster: Playground) -> None:
    async with cluster_reader.connected(cluster.connect, 20_000) as session:
        await cluster.active(session)
        await cluster.until(session, "all brokers", lambda seen: len(seen.brokers) == cluster.brokers)
