"""The cluster under test: an ensemble, controllers and brokers, each a process on a host of its own."""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from controller.embedded_zookeeper.ensemble import EmbeddedZooKeeper, Security, ZooKeeperServer
from controller.playground.cluster import Member, Playground
from controller.runtime.config import ENV_PREFIX
from proto.security.grpc_channels import GrpcTls
from proto.zookeeper_access import OPEN_ACCESS, ZooKeeperAccess
from tests.provers.chaos.network import Network, NetworkError, possible, run
from tests.provers.chaos.plan import BROKERS, CONTROLLERS, EVERYBODY, ZOOKEEPERS, Means
from tests.provers.chaos.secured import SecuredPlayground, ZooKeeperTls
from tests.provers.chaos.wall_clocks import WallClocks

SESSION_TIMEOUT_MS = 4000
DISK_BYTES = 256 * 2**20
STATE_LOG_DISK_BYTES = 64 * 2**20
_FILLER = "filler"
_ZK_PORT, _BROKER_PORT, _CONTROLLER_PORT = 2181, 9092, 9190
#: Hosts in namespaces of their own have other addresses than loopback.
_OPEN = {"ALLOW_EVERYONE": "true", "INSECURE_LISTEN": "accepted"}
_CONTROLLER_SETTINGS = {
    "AUTO_LEADER_REBALANCE_ENABLE": "true",
    "LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS": "10",
    # It enters by itself when most brokers are gone; the next episode is not to find it there.
    "MAINTENANCE_HEALTHY_SECONDS": "2",
    # Full within minutes: a soak could not tell records that are kept from a leak.
    "HISTORY_RECORDS_MAX": "5000",
}
#: Followers that are cut from their leader leave the ISR while somebody watches.
_LAG_MS = 3000


@dataclass
class Ended:
    """A process that ended, and nobody had told it to."""

    name: str
    at_us: int
    returncode: int


@dataclass
class Nodes:
    """Every process by its name, and what can be done to it. ``directory`` gets data and logs."""

    directory: Path
    network: Network
    #: By mutual TLS with rules, ZooKeeper too.
    secure: bool = False
    #: Each process has a wall clock of its own.
    own_clocks: bool = False
    zookeeper_tls: ZooKeeperTls | None = field(default=None, init=False)
    wall_clocks: WallClocks | None = field(default=None, init=False)
    ensemble: EmbeddedZooKeeper = field(init=False)
    playground: Playground = field(init=False)
    #: Those that are down because we took them down.
    down: set[str] = field(default_factory=set)
    frozen: set[str] = field(default_factory=set)
    ended: list[Ended] = field(default_factory=list)
    mounts: list[Path] = field(default_factory=list)

    async def start(self) -> None:
        """Everything is launched. Raises EnvironmentFault, NetworkError."""
        if self.own_clocks:
            self.wall_clocks = WallClocks(self.directory / "clocks")
        hosts = tuple(dict.fromkeys(self.network.host(name) for name in EVERYBODY))
        security = Security()
        if self.secure:
            self.zookeeper_tls = ZooKeeperTls(self.directory / "zookeeper-certificates", hosts)
            security = self.zookeeper_tls.security
        self.ensemble = EmbeddedZooKeeper(
            self.directory / "zookeeper", servers=3, heap_mb=256, security=security
        )
        if Means.PACKETS in self.network.means:
            self.ensemble.servers = self._servers(security)
        for name, server in zip(ZOOKEEPERS, self.ensemble.servers, strict=True):
            server.launcher = self._launcher(name)
        self.ensemble.start()
        kind = SecuredPlayground if self.secure else Playground
        self.playground = kind(
            self.directory,
            len(CONTROLLERS),
            len(BROKERS),
            self.ensemble.connect_string,
            SESSION_TIMEOUT_MS,
            secure=self.secure,
            hosts=hosts,
        )
        self.playground.prepare()
        for name, member in self.playground.members.items():
            await self._place(name, member)
            member.start()

    @property
    def access(self) -> ZooKeeperAccess:
        """To ZooKeeper, for whoever looks on."""
        return OPEN_ACCESS if self.zookeeper_tls is None else self.zookeeper_tls.access

    @property
    def tls(self) -> GrpcTls | None:
        """The operators'."""
        return self.playground.tls

    def _servers(self, security: Security) -> list[ZooKeeperServer]:
        hosts = {name: self.network.host(name) for name in ZOOKEEPERS}
        peers = tuple(
            f"server.{n}={host}:2888:3888" + ("" if security.tls else f";{host}:{_ZK_PORT}")
            for n, host in enumerate(hosts.values(), 1)
        )
        return [
            ZooKeeperServer(
                client_port=_ZK_PORT,
                data_dir=self.directory / "zookeeper" / name,
                server_id=number,
                peers=peers,
                heap_mb=256,
                host=host,
                security=security,
            )
            for number, (name, host) in enumerate(hosts.items(), 1)
        ]

    async def _place(self, name: str, member: Member) -> None:
        """On its host, with its disk."""
        options = {"--zookeeper": await self.network.connect_string(name, self.playground.connect)}
        host = self.network.host(name)
        apart = Means.PACKETS in self.network.means
        settings = _OPEN if self.zookeeper_tls is None else self.zookeeper_tls.settings
        prefix = ENV_PREFIX if name in CONTROLLERS else "BROKER_STUB_"
        if name in CONTROLLERS:
            settings = {**settings, **_CONTROLLER_SETTINGS}
            if apart:
                options["--grpc-listen"] = f"{host}:{_CONTROLLER_PORT}"
                options["--http-listen"] = f"{host}:{_CONTROLLER_PORT + 1}"
            self._mount(self.state_log(name), STATE_LOG_DISK_BYTES)
        else:
            options["--replica-lag-time-max-ms"] = str(_LAG_MS)
            if apart:
                options["--listen"] = f"{host}:{_BROKER_PORT}"
            self._mount(self.data_dir(name), DISK_BYTES)
        ours = {prefix + key: value for key, value in settings.items()}
        member.environment = {**member.environment, **ours}
        kept = [word for word in member.command if word.partition("=")[0] not in options]
        member.command = [*self._launcher(name), *kept, *(f"{k}={v}" for k, v in options.items())]

    def _launcher(self, name: str) -> tuple[str, ...]:
        clock = self.wall_clocks.launcher(name) if self.wall_clocks is not None else ()
        return *self.network.launcher(name), *clock

    def _mount(self, directory: Path, size: int) -> None:
        directory.mkdir(parents=True)
        if Means.MOUNTS in self.network.means:
            run("mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(directory))
            self.mounts.append(directory)

    def state_log(self, name: str) -> Path:
        return self.playground.state_logs / name

    def data_dir(self, name: str) -> Path:
        return self.playground.data_dir(int(name.partition("-")[2]))

    # what is done to them

    def _server(self, name: str) -> ZooKeeperServer:
        return self.ensemble.servers[ZOOKEEPERS.index(name)]

    def kill(self, name: str) -> None:
        """SIGKILL; returns when it is gone."""
        self.down.add(name)
        self.frozen.discard(name)
        if name in ZOOKEEPERS:
            self._server(name).kill()
            self._server(name).stop()
        else:
            self.playground.members[name].kill()

    def terminate(self, name: str) -> None:
        """SIGTERM; returns when it is gone."""
        self.down.add(name)
        self.playground.members[name].stop()

    def launch(self, name: str) -> None:
        if name in ZOOKEEPERS:
            self._server(name).start()
        else:
            self.playground.members[name].start()
        self.down.discard(name)

    def freeze(self, name: str) -> None:
        self.frozen.add(name)
        self._signal(name, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self.frozen.discard(name)
        self._signal(name, signal.SIGCONT)

    def _signal(self, name: str, signum: int) -> None:
        if name in ZOOKEEPERS:
            self._server(name).kill(signum)
        else:
            self.playground.members[name].signal(signum)

    def fill(self, directory: Path) -> None:
        """Until nothing more fits. Only for a directory of ``mounts``."""
        with (directory / _FILLER).open("wb") as file, suppress(OSError):
            free = os.statvfs(directory)
            os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize)

    def free(self, directory: Path) -> None:
        (directory / _FILLER).unlink(missing_ok=True)

    def set_clock(self, name: str, offset_s: float) -> None:
        """Its wall clock jumps, and is off by so much from now on. Raises NetworkError."""
        if self.wall_clocks is None:
            raise NetworkError("no wall clock can jump here")
        self.wall_clocks.set(name, offset_s)

    # what they do by themselves

    def look_after(self) -> None:
        """Note who ended by himself, and start him again, as a service manager does."""
        for name in (*ZOOKEEPERS, *CONTROLLERS, *BROKERS):
            if name in self.down:
                continue
            process = (
                self._server(name).process if name in ZOOKEEPERS else self.playground.members[name].process
            )
            if process is not None and (code := process.poll()) is not None:
                self.ended.append(Ended(name, time.time_ns() // 1000, code))
                self.launch(name)

    def serving(self) -> list[str]:
        """ZooKeeper servers that are in a quorum."""
        return [name for name in ZOOKEEPERS if name not in self.frozen and self._server(name).serving()]

    def stop(self) -> None:
        """Everything ended, and the disks' contents are left in ordinary directories."""
        for name in list(self.frozen):
            self.thaw(name)
        if hasattr(self, "playground"):
            self.playground.stop()
        self.ensemble.stop()
        for directory in self.mounts:
            self.free(directory)
            kept = directory.with_name(directory.name + ".kept")
            shutil.copytree(directory, kept)
            possible("umount", str(directory))
            directory.rmdir()
            kept.rename(directory)
        self.mounts.clear()
