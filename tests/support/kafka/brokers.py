"""Real Kafka brokers of tests: started together, killed, frozen, stopped."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from controller.child_processes import release
from controller.core import znode_paths
from controller.embedded_kafka.brokers import KafkaBroker
from controller.embedded_zookeeper.ensemble import LOOPBACK
from controller.errors import EnvironmentFault
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.session import NoNodeError, Session

READY_TIMEOUT_S = 90.0
#: A controlled shutdown without a controller takes three tries of 5 s.
STOP_TIMEOUT_S = 40.0


class Process:
    """A process that can be started again. ``process``: None while it does not run."""

    process: subprocess.Popen[bytes] | None = None

    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, signum: int) -> None:
        """Send a signal to the process, if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signum)

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end: what it registered stays until its session times out."""
        self.signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()
            self._release()

    def freeze(self) -> None:
        """Send SIGSTOP."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Send SIGCONT."""
        self.signal(signal.SIGCONT)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """Send SIGTERM, which begins a broker's controlled shutdown, and SIGKILL when the time is up.

        Returns whether the process ended by itself.
        """
        if self.process is None:
            return True
        self.thaw()
        self.signal(signal.SIGTERM)
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        self._release()
        return True

    def _release(self) -> None:
        release(self.process)
        self.process = None


@dataclass
class Broker(Process, KafkaBroker):
    """One broker and its process."""

    @property
    def controller_log(self) -> Path:
        return self.directory / "controller.log"

    @property
    def state_change_log(self) -> Path:
        return self.directory / "state-change.log"

    def listening(self) -> bool:
        """Whether every listener accepts connections, which a broker begins to do after its registration."""
        for port in self.listeners.values():
            try:
                socket.create_connection((LOOPBACK, port), timeout=1.0).close()
            except OSError:
                return False
        return True

    def check(self) -> None:
        """Raises EnvironmentFault with the end of its logs if the process has ended by itself."""
        if self.process is not None and self.process.poll() is not None:
            logs = [path for path in (self.output, self.server_log) if path.exists()]
            ends = "\n".join(path.read_text(errors="replace")[-1500:] for path in logs)
            raise EnvironmentFault(
                f"broker {self.broker_id} (Kafka {self.version}) ended with {self.process.returncode}; "
                f"its logs in {self.directory} end: {ends}"
            )


def start_all(brokers: Sequence[Broker], timeout_s: float = READY_TIMEOUT_S) -> None:
    """Start brokers of one cluster at once and wait until all are registered and accept connections.

    A registration that an earlier process of a broker left has to go first: Kafka refuses to start beside it.
    Not to be called inside an event loop (use a thread). Raises EnvironmentFault when one ends or is not registered in
    time.
    """
    asyncio.run(_start_all(brokers, time.monotonic() + timeout_s))


def await_registrations(
    brokers: Iterable[Broker], *, present: bool, timeout_s: float = READY_TIMEOUT_S
) -> None:
    """Wait until all these brokers are registered, or none is. As ``start_all``."""
    asyncio.run(_await(list(brokers), present, time.monotonic() + timeout_s))


async def _start_all(brokers: Sequence[Broker], deadline: float) -> None:
    await _await(brokers, False, deadline)
    for broker in brokers:
        broker.start()
    await _await(brokers, True, deadline)
    while not all(broker.listening() for broker in brokers):
        for broker in brokers:
            broker.check()
        if time.monotonic() > deadline:
            raise EnvironmentFault(f"not all brokers listen; logs are in {brokers[0].directory.parent}")
        await asyncio.sleep(0.05)


async def _await(brokers: Sequence[Broker], present: bool, deadline: float) -> None:
    if not brokers:
        return
    reached: Callable[[set[int]], bool]
    ids = {broker.broker_id for broker in brokers}
    reached = ids.issubset if present else ids.isdisjoint
    async with cluster_reader.connected(brokers[0].zookeeper, 10_000) as session:
        while not reached(found := await _registered(session)):
            for broker in brokers:
                broker.check()
            if time.monotonic() > deadline:
                raise EnvironmentFault(
                    f"brokers {sorted(ids - found if present else ids & found)} are "
                    f"{'not' if present else 'still'} registered; logs are in {brokers[0].directory.parent}"
                )
            await asyncio.sleep(0.05)


async def _registered(session: Session) -> set[int]:
    try:
        return {int(name) for name in await session.children(znode_paths.BROKER_IDS) if name.isdigit()}
    except NoNodeError:
        return set()
