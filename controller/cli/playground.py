"""``partition-controller playground``: a whole cluster of real processes on this machine, and a script of failures.

Nothing is simulated: the embedded ZooKeeper, controllers and brokers run as they would anywhere else, failures
are signals, and every time shown is measured from outside, by reading ZooKeeper.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from controller.cli.topics import create_topic, plan_topic
from controller.errors import ControllerError, EnvironmentFault
from controller.runtime import admin, inspection
from controller.runtime.embedded_zookeeper import EmbeddedZooKeeper
from controller.runtime.inspection import Seen
from controller.runtime.zookeeper import Session

#: Short, so that a killed process is noticed while somebody watches.
SESSION_TIMEOUT_MS = 3000
WAIT_S = 60.0

console = Console(highlight=False, soft_wrap=True)


class PlaygroundError(ControllerError):
    """The cluster did not do what the script waits for; the message says what and where the logs are."""


@dataclass
class Member:
    """One process of the cluster, and how to start it again."""

    name: str
    command: list[str]
    log_path: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log_path.open("ab") as out:
            self.process = subprocess.Popen(self.command, stdout=out, stderr=out, start_new_session=True)

    def signal(self, signum: int) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signum)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self.stop()

    def stop(self, timeout_s: float = 15.0) -> None:
        if self.process is None:
            return
        self.signal(signal.SIGTERM)
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def check(self) -> None:
        """Raises PlaygroundError when the process ended by itself."""
        if self.process is not None and self.process.poll() is not None:
            said = self.log_path.read_text(errors="replace")[-1500:]
            raise PlaygroundError(
                f"{self.name} ended with {self.process.returncode}; {self.log_path} ends: {said}"
            )


@dataclass
class Playground:
    """The cluster. ``directory`` gets all data and logs; ``zookeeper`` None starts the embedded server."""

    directory: Path
    controllers: int = 2
    brokers: int = 3
    zookeeper: str | None = None
    session_timeout_ms: int = SESSION_TIMEOUT_MS
    embedded: EmbeddedZooKeeper | None = None
    members: dict[str, Member] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def say(self, text: str, style: str = "") -> None:
        """One line of the story, with the time since the start."""
        console.print(f"[dim]{time.monotonic() - self.began:6.2f} s[/dim]  {text}", style=style)

    @property
    def connect(self) -> str:
        base = self.zookeeper or (self.embedded.connect_string if self.embedded else "")
        return f"{base}/playground"

    @property
    def state_logs(self) -> Path:
        return self.directory / "state-logs"

    def start(self) -> None:
        """ZooKeeper, controllers, brokers."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if self.zookeeper is None:
            self.embedded = EmbeddedZooKeeper(self.directory / "zookeeper", heap_mb=512)
            self.embedded.start()
        self.say(f"ZooKeeper serves at {self.connect}")
        bin_dir = Path(sys.executable).parent
        for id_ in range(1, self.controllers + 1):
            name = f"controller-{id_}"
            self._add(
                name,
                [
                    str(bin_dir / "partition-controller"),
                    "run",
                    f"--controller-id={id_}",
                    f"--zookeeper={self.connect}",
                    "--grpc-listen=127.0.0.1:0",
                    "--http-listen=127.0.0.1:0",
                    f"--session-timeout-ms={self.session_timeout_ms}",
                    f"--state-log-dir={self.state_logs / name}",
                ],
            )
        for id_ in range(1, self.brokers + 1):
            name = f"broker-{id_}"
            self._add(
                name,
                [
                    str(bin_dir / "broker-stub"),
                    "run",
                    f"--broker-id={id_}",
                    f"--zookeeper={self.connect}",
                    "--listen=127.0.0.1:0",
                    f"--data-dir={self.directory / name}",
                    f"--session-timeout-ms={self.session_timeout_ms}",
                    f"--state-log-dir={self.state_logs / name}",
                ],
            )
        for member in self.members.values():
            member.start()

    def _add(self, name: str, command: list[str]) -> None:
        self.members[name] = Member(name, command, self.directory / f"{name}.log")

    def stop(self) -> None:
        for member in reversed(self.members.values()):
            member.signal(signal.SIGTERM)
        for member in reversed(self.members.values()):
            member.stop()
        if self.embedded is not None:
            self.embedded.stop()

    async def until(
        self, session: Session, what: str, reached: Callable[[Seen], bool], ignore: Iterable[str] = ()
    ) -> tuple[Seen, float]:
        """Read ZooKeeper until something is so; what was seen, and after how many seconds.

        Raises PlaygroundError when it takes too long or a process ends by itself.
        """
        started = time.monotonic()
        while True:
            seen = await inspection.look(session)
            if reached(seen):
                return seen, time.monotonic() - started
            for name, member in self.members.items():
                if name not in ignore:
                    member.check()
            if time.monotonic() - started > WAIT_S:
                raise PlaygroundError(f"waited {WAIT_S:g} s for: {what}; logs are in {self.directory}")
            await asyncio.sleep(0.02)

    async def active(self, session: Session, other_than: int = -1) -> tuple[int, float]:
        """Wait for a controller that completed its failover; its id, and after how many seconds."""
        started = time.monotonic()
        while True:
            seen = await inspection.look(session, topics=(), states=False)
            if seen.controller_endpoint and seen.controller_id != other_than:
                answer = await admin.describe_cluster(seen.controller_endpoint, 1.0)
                if not isinstance(answer, str) and answer.error_code == 0:
                    return seen.controller_id, time.monotonic() - started
            if time.monotonic() - started > WAIT_S:
                raise PlaygroundError(
                    f"no active controller within {WAIT_S:g} s; logs are in {self.directory}"
                )
            await asyncio.sleep(0.02)


def healthy(seen: Seen) -> bool:
    """Every partition is led by a registered broker."""
    return bool(seen.partitions) and all(
        p.state is not None and p.state.leader in seen.brokers for p in seen.partitions
    )


def _leaders(seen: Seen) -> str:
    counts = dict.fromkeys(sorted(seen.brokers), 0)
    for partition in seen.partitions:
        if partition.state is not None and partition.state.leader in counts:
            counts[partition.state.leader] += 1
    return ", ".join(f"broker {id_} leads {n}" for id_, n in counts.items())


async def _prepare(playground: Playground, session: Session) -> int:
    """Wait for everybody, create two topics; the active controller's id."""
    active, took = await playground.active(session)
    playground.say(f"controller {active} is elected and active", "green")
    everyone = set(range(1, playground.brokers + 1))
    await playground.until(session, "all brokers registered", lambda seen: set(seen.brokers) == everyone)
    playground.say(f"{playground.brokers} brokers are registered")
    for name, partitions in (("orders", 24), ("payments", 12)):
        seen = await inspection.look(session, states=False)
        factor = min(3, playground.brokers)
        await create_topic(session, plan_topic(seen, name, partitions, factor, None, ()))
    seen, took = await playground.until(session, "all partitions led", healthy)
    playground.say(f"topics orders and payments: {len(seen.partitions)} partitions led after {took:.2f} s")
    playground.say(f"  {_leaders(seen)}", "dim")
    return active


async def _kill_broker(playground: Playground, session: Session, broker_id: int) -> None:
    seen = await inspection.look(session)
    led = sum(p.state is not None and p.state.leader == broker_id for p in seen.partitions)
    playground.say(f"kill -9 broker {broker_id}, which leads {led} partitions", "yellow")
    name = f"broker-{broker_id}"
    playground.members[name].kill()
    _, gone = await playground.until(
        session, "its registration expires", lambda s: broker_id not in s.brokers
    )
    playground.say(
        f"  its session expired after {gone:.2f} s (timeout {playground.session_timeout_ms / 1000:g} s)"
    )
    seen, took = await playground.until(session, "new leaders", healthy)
    playground.say(f"  all {len(seen.partitions)} partitions are led again {took:.2f} s later", "green")
    seen, _ = await playground.until(
        session,
        "it is out of every ISR",
        lambda s: all(p.state is not None and broker_id not in p.state.isr for p in s.partitions),
    )
    playground.say(f"  {_leaders(seen)}", "dim")


async def _kill_controller(playground: Playground, session: Session, active: int) -> int:
    playground.say(f"kill -9 the active controller, {active}", "yellow")
    playground.members[f"controller-{active}"].kill()
    successor, took = await playground.active(session, other_than=active)
    playground.say(
        f"  controller {successor} took over after {took:.2f} s, session timeout included", "green"
    )
    return successor


async def _restart(playground: Playground, session: Session, name: str) -> None:
    playground.say(f"restart {name}")
    playground.members[name].start()
    kind, _, number = name.partition("-")
    if kind == "broker":
        _, took = await playground.until(session, f"{name} registered", lambda s: int(number) in s.brokers)
    else:
        _, took = await playground.until(
            session,
            f"{name} is a candidate",
            lambda s: any(c.controller_id == int(number) for c in s.controllers),
        )
    playground.say(f"  {name} is back after {took:.2f} s", "green")


async def _hand_over(playground: Playground, session: Session, active: int) -> int:
    playground.say(f"SIGTERM controller {active}: a clean hand-over", "yellow")
    playground.members[f"controller-{active}"].signal(signal.SIGTERM)
    successor, took = await playground.active(session, other_than=active)
    playground.say(f"  controller {successor} is active after {took:.2f} s: no timeout had to pass", "green")
    playground.members[f"controller-{active}"].stop()
    return successor


async def _freeze(playground: Playground, session: Session, active: int) -> int:
    playground.say(f"SIGSTOP controller {active}: it does not know that time passes", "yellow")
    frozen = playground.members[f"controller-{active}"]
    frozen.signal(signal.SIGSTOP)
    try:
        successor, took = await playground.active(session, other_than=active)
    finally:
        frozen.signal(signal.SIGCONT)
    playground.say(f"  controller {successor} took over after {took:.2f} s; SIGCONT {active}", "green")
    await playground.until(
        session, "the woken one is a standby", lambda s: any(c.controller_id == active for c in s.controllers)
    )
    playground.say(f"  controller {active} woke up, found its lease over, and is a standby")
    return successor


async def demo(playground: Playground, session: Session) -> None:
    """A broker dies, the controller dies, both return, the controller is replaced cleanly."""
    active = await _prepare(playground, session)
    await _kill_broker(playground, session, 1)
    successor = await _kill_controller(playground, session, active)
    await _restart(playground, session, f"controller-{active}")
    await _restart(playground, session, "broker-1")
    successor = await _freeze(playground, session, successor)
    await _hand_over(playground, session, successor)
    seen, _ = await playground.until(session, "all partitions led", healthy)
    playground.say(
        f"the end: controller epoch {seen.controller_epoch}, every partition led; {_leaders(seen)}"
    )


async def failover(playground: Playground, session: Session) -> None:
    """The active controller dies three times over."""
    active = await _prepare(playground, session)
    for _ in range(3):
        successor = await _kill_controller(playground, session, active)
        await _restart(playground, session, f"controller-{active}")
        active = successor


async def rolling(playground: Playground, session: Session) -> None:
    """Every broker is stopped and started again, one after the other."""
    await _prepare(playground, session)
    for id_ in range(1, playground.brokers + 1):
        name = f"broker-{id_}"
        playground.say(f"SIGTERM {name}", "yellow")
        playground.members[name].stop()
        await playground.until(session, "it is gone", lambda s: len(s.brokers) < playground.brokers)
        seen, took = await playground.until(session, "whoever can lead does", _led_where_possible)
        waiting = sum(p.state is None or p.state.leader < 0 for p in seen.partitions)
        # Brokers hold no records yet, so a returning one is not taken back into the ISR.
        alone = f"; {waiting} wait for it, the last of their ISR" if waiting else ""
        playground.say(
            f"  {len(seen.partitions) - waiting} partitions are led {took:.2f} s later{alone}", "green"
        )
        await _restart(playground, session, name)
        await playground.until(session, "all partitions led", healthy)


def _led_where_possible(seen: Seen) -> bool:
    """Every partition with a live ISR member is led by one, the others by nobody."""
    return all(
        p.state is not None
        and (p.state.leader in seen.brokers if set(p.state.isr) & set(seen.brokers) else p.state.leader < 0)
        for p in seen.partitions
    )


async def idle(playground: Playground, session: Session) -> None:
    """Start everything and leave it running until interrupted."""
    await _prepare(playground, session)
    for name, member in playground.members.items():
        if member.process is not None:
            playground.say(f"  {name} is process {member.process.pid}", "dim")
    playground.say(f"try: pctl --zookeeper {playground.connect} cluster   (Ctrl-C ends the playground)")
    gone: set[str] = set()
    while True:
        await asyncio.sleep(0.2)
        for name, member in playground.members.items():
            if name not in gone and member.process is not None and member.process.poll() is not None:
                gone.add(name)
                playground.say(f"{name} ended with {member.process.returncode}", "yellow")


SCRIPTS: dict[str, Callable[[Playground, Session], Awaitable[None]]] = {
    "demo": demo,
    "failover": failover,
    "rolling": rolling,
    "idle": idle,
}


def fresh_directory(base: Path) -> Path:
    """A directory for this run below ``base``; those of earlier runs are removed."""
    base.mkdir(parents=True, exist_ok=True)
    for old in base.glob("run-*"):
        shutil.rmtree(old, ignore_errors=True)
    return base.absolute() / f"run-{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}"


async def play(playground: Playground, script: str) -> None:
    """Run a script on a started cluster. Raises PlaygroundError."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            async with inspection.connected(playground.connect, 10_000) as session:
                await SCRIPTS[script](playground, session)
                return
        except EnvironmentFault:
            if time.monotonic() > deadline:
                raise


def report(playground: Playground) -> str:
    """Run the Spark job on the logs just written; the page's path."""
    from controller.analysis.job import run_report

    out = playground.directory / "report"
    playground.say("Spark analyses the state-change logs of all nodes")
    summary = run_report(
        [playground.state_logs], out, progress=lambda text: playground.say(f"  {text}", "dim")
    )
    playground.say(
        f"  {summary.lines:,} lines: {summary.failovers} failovers; {summary.outages} times a partition had no leader, "
        f"the longest {summary.longest_us / 1e3:.1f} ms; {summary.rejects} refused actions; "
        f"two masters: {summary.two_masters or 'never'}"
    )
    return summary.page
