"""Hosts of a chaos run: network namespaces of its own where permitted, else loopback and relays to ZooKeeper."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from controller.embedded_zookeeper.ensemble import LOOPBACK
from tests.provers.chaos import wall_clocks
from tests.provers.chaos.plan import EVERYBODY, ZOOKEEPERS, Means

#: Set in the process that runs inside.
INSIDE = "PARTITION_CONTROLLER_TEST_CHAOS_INSIDE"
#: New network, mounts and process ids: when the run ends, however it does, the kernel takes all of it down.
_UNSHARE = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_NETWORK = "10.77.0"
_FIRST = {"zk": 10, "controller": 20, "broker": 30}


class NetworkError(Exception):
    """A command that lays or cuts a network failed; the message is what it said."""


def run(*command: str) -> str:
    """Raises NetworkError."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NetworkError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def possible(*command: str) -> bool:
    try:
        run(*command)
    except (NetworkError, OSError):
        return False
    return True


def namespaces_permitted() -> bool:
    """Whether hosts with networks of their own can be made here."""
    return all(map(shutil.which, ("ip", "nsenter", "unshare"))) and possible(
        *_UNSHARE, "sh", "-c", "mkdir -p /run/netns && mount -t tmpfs none /run/netns && ip netns add probe"
    )


def enter(arguments: Sequence[str]) -> None:
    """Go on as ``python -m tests.provers.chaos`` in namespaces of its own; returns where that is not permitted."""
    if inside() or not namespaces_permitted():
        return
    command = [*_UNSHARE, sys.executable, "-m", "tests.provers.chaos", *arguments]
    os.execvpe(command[0], command, {**os.environ, INSIDE: "yes"})


def inside() -> bool:
    """Whether this process runs in a world of its own."""
    return INSIDE in os.environ


class Network(ABC):
    """Where members are, what of them can be cut, and how it heals. ``words``: what it is, for the report."""

    words: list[str]
    means: frozenset[Means]

    @staticmethod
    def clocks() -> frozenset[Means]:
        return frozenset({Means.WALL_CLOCKS} if wall_clocks.possible() else ())

    @staticmethod
    def clock_words() -> str:
        return (
            "wall clocks jump" if wall_clocks.possible() else "no C compiler: no wall clock is off or jumps"
        )

    @abstractmethod
    def host(self, name: str) -> str: ...

    @abstractmethod
    def launcher(self, name: str) -> tuple[str, ...]:
        """What comes before a member's command line."""

    @abstractmethod
    def block(self, source: str, target: str) -> None:
        """``target`` hears nothing more from ``source``."""

    @abstractmethod
    def lose(self, name: str, share: float) -> None: ...

    @abstractmethod
    def slow_down(self, name: str, bits_a_second: float) -> None: ...

    @abstractmethod
    def heal(self) -> None:
        """Everybody hears everybody again."""

    async def connect_string(self, name: str, zookeeper: str) -> str:
        """Where a member finds ZooKeeper, which is at ``zookeeper``."""
        return zookeeper

    @abstractmethod
    async def close(self) -> None:
        """Nothing is left."""


class Namespaces(Network):
    """A namespace for each member, all on one bridge. For a process that `enter` brought inside."""

    def __init__(self) -> None:
        """Raises NetworkError."""
        Path("/run/netns").mkdir(exist_ok=True)
        run("mount", "-t", "tmpfs", "none", "/run/netns")
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "hub", "type", "bridge")
        run("ip", "address", "add", f"{_NETWORK}.1/24", "dev", "hub")
        run("ip", "link", "set", "hub", "up")
        for name in EVERYBODY:
            self._lay(name)
        inside = ("ip", "netns", "exec", EVERYBODY[0])
        self._iptables = possible(*inside, "iptables", "-w", "-L", "INPUT")
        self._netem = possible(*inside, "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms")
        shaped = self._netem or possible(*inside, "tc", "qdisc", "add", "dev", "lo", "root", *_bucket(1e6))
        self._time = possible("unshare", "-T", "--monotonic", "1000", "--boottime", "1000", "true")
        means = {Means.PACKETS, Means.ZOOKEEPER_PACKETS, Means.MOUNTS}
        if self._iptables or self._netem:
            means.add(Means.LOSS)
        if shaped:
            means.add(Means.SLOW)
        self.means = frozenset(means) | self.clocks()
        self.words = [
            "each process in a network namespace of its own",
            "partitions by iptables" if self._iptables else "partitions by blackhole routes",
            "delay by netem"
            if self._netem
            else "no netem: slow links by a token bucket"
            if shaped
            else "no delay",
            "monotonic clocks days apart (time namespaces)" if self._time else "no time namespaces",
            self.clock_words(),
        ]

    def _lay(self, name: str) -> None:
        number = EVERYBODY.index(name)
        run("ip", "netns", "add", name)
        run("ip", "link", "add", f"hub{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "link", "set", f"hub{number}", "master", "hub", "up")
        for what in (
            ("address", "add", f"{self.host(name)}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
        ):
            run("ip", "-n", name, *what)

    def host(self, name: str) -> str:
        kind, _, number = name.partition("-")
        return f"{_NETWORK}.{_FIRST[kind] + int(number)}"

    def launcher(self, name: str) -> tuple[str, ...]:
        launcher: tuple[str, ...] = ("nsenter", f"--net=/run/netns/{name}")
        if self._time and name not in ZOOKEEPERS:
            ahead = str(100_000 * (1 + EVERYBODY.index(name)))
            launcher += ("unshare", "-T", "--monotonic", ahead, "--boottime", ahead)
        return launcher

    def block(self, source: str, target: str) -> None:
        if self._iptables:
            self._filter(target, "-A", "INPUT", "-s", self.host(source), "-j", "DROP")
        else:
            run("ip", "-n", source, "route", "replace", "blackhole", f"{self.host(target)}/32")

    def lose(self, name: str, share: float) -> None:
        if self._netem:
            run("ip", "netns", "exec", name, *_qdisc("netem", "loss", f"{share * 100:.0f}%"))
        else:
            chance = ("-m", "statistic", "--mode", "random", "--probability", f"{share:.2f}")
            self._filter(name, "-A", "INPUT", "-i", "eth0", *chance, "-j", "DROP")

    def slow_down(self, name: str, bits_a_second: float) -> None:
        how = ("netem", "delay", "200ms", "100ms") if self._netem else _bucket(bits_a_second)
        run("ip", "netns", "exec", name, *_qdisc(*how))

    def heal(self) -> None:
        for name in EVERYBODY:
            if self._iptables:
                self._filter(name, "-F", "INPUT")
            else:
                run("ip", "-n", name, "route", "flush", "type", "blackhole")
            with contextlib.suppress(NetworkError):  # there may be none
                run("ip", "netns", "exec", name, "tc", "qdisc", "del", "dev", "eth0", "root")

    async def close(self) -> None:
        """The kernel does it when this process ends."""

    def _filter(self, name: str, *rule: str) -> None:
        run("ip", "netns", "exec", name, "iptables", "-w", *rule)


def _qdisc(*how: str) -> tuple[str, ...]:
    return ("tc", "qdisc", "replace", "dev", "eth0", "root", *how)


def _bucket(bits_a_second: float) -> tuple[str, ...]:
    return ("tbf", "rate", f"{bits_a_second:.0f}bit", "burst", "16kb", "latency", "400ms")


class Relays(Network):
    """Loopback: members reach ZooKeeper through relays, which can hold back what goes either way."""

    def __init__(self) -> None:
        self.means = frozenset({Means.ZOOKEEPER_PACKETS}) | self.clocks()
        self.words = [
            "no namespaces (not permitted, or not wanted): loopback, SIGSTOP, relays between members and ZooKeeper",
            self.clock_words(),
        ]
        self._relays: dict[tuple[str, str], Relay] = {}

    def host(self, name: str) -> str:
        return LOOPBACK

    def launcher(self, name: str) -> tuple[str, ...]:
        return ()

    async def connect_string(self, name: str, zookeeper: str) -> str:
        hosts, slash, chroot = zookeeper.partition("/")
        ports = []
        for server, address in zip(ZOOKEEPERS, hosts.split(","), strict=True):
            relay = self._relays[name, server] = Relay(int(address.rpartition(":")[2]))
            ports.append(await relay.start())
        return ",".join(f"{LOOPBACK}:{port}" for port in ports) + slash + chroot

    def block(self, source: str, target: str) -> None:
        if (source, target) in self._relays:
            self._relays[source, target].forth.clear()
        elif (target, source) in self._relays:
            self._relays[target, source].back.clear()
        else:
            raise NetworkError(f"nothing can be dropped between {source} and {target} here")

    def lose(self, name: str, share: float) -> None:
        raise NetworkError("packets cannot be lost by chance here")

    def slow_down(self, name: str, bits_a_second: float) -> None:
        raise NetworkError("links cannot be slowed down here")

    def heal(self) -> None:
        for relay in self._relays.values():
            relay.forth.set()
            relay.back.set()

    async def close(self) -> None:
        for relay in self._relays.values():
            await relay.stop()


class Relay:
    """Forwards connections to a port. ``forth`` and ``back``: whether bytes pass; what does not pass now comes later,
    as TCP repeats what was dropped."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.forth, self.back = asyncio.Event(), asyncio.Event()
        self.forth.set()
        self.back.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """The port that it listens on."""
        self._server = await asyncio.start_server(self._accept, LOOPBACK, 0)
        listening: socket.socket = self._server.sockets[0]
        return int(listening.getsockname()[1])

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self.forth.wait()
            up_reader, up_writer = await asyncio.open_connection(LOOPBACK, self._port)
            await asyncio.gather(_pump(reader, up_writer, self.forth), _pump(up_reader, writer, self.back))
        writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: asyncio.Event) -> None:
    try:
        while data := await reader.read(65536):
            await passes.wait()
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
