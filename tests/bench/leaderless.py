"""How long partitions are without a leader when a broker fails, alone or in the same moment as the active controller.

A partition is *led* once the state with its new leader is written, and its leader is *told* once the broker has the
request. Both count from the end of the session: before it nobody can know.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from kazoo.client import KazooClient
from rich.console import Console
from rich.table import Table

from controller.core import znode_paths
from controller.core.model import PartitionState
from tests.bench import cluster
from tests.bench.cluster import BROKERS, Acceptors, ControllerProcess, loop_session, replicas_of

PREFIX = "a"
VICTIM = 0
#: Of those that are killed: their sessions end by themselves.
SESSION_MS = 6_000
_NEVER_S = 600.0
#: A lost broker is an event of its own by then, for each 100,000 partitions.
_LATEST_S = 5.0
console = Console(soft_wrap=True)

Key = tuple[str, int]


class Times(NamedTuple):
    """Seconds from the end of the session, of each partition that the broker led: led again, and its leader told."""

    led: list[float]
    told: list[float]

    def text(self) -> str:
        return "; ".join(f"{what} {_shown(times)}" for what, times in zip(self._fields, self, strict=True))


def _shown(times: list[float]) -> str:
    cuts = statistics.quantiles(times, n=100)
    return f"p50 {cuts[49]:.2f} s, p99 {cuts[98]:.2f} s, longest {max(times):.2f} s"


class Size(NamedTuple):
    """The cluster, and ``scale``: how many hundred thousand partitions that are, for the limits."""

    topics: int
    partitions: int
    scale: float

    def led_by(self, broker_id: int) -> list[Key]:
        """What a broker leads while all preferred leaders lead."""
        return [
            (f"{PREFIX}-{n // self.partitions:05d}", n % self.partitions)
            for n in range(self.topics * self.partitions)
            if replicas_of(n)[0] == broker_id
        ]

    def raw(self, connect: str, root: str) -> float:
        """The roofline: fenced writes of as many states as have lost their leader. Seconds."""
        with loop_session(connect) as (loop, session):
            return loop.run_until_complete(cluster.raw_sets(session, root, len(self.led_by(VICTIM))))

    def versions(self, connect: str) -> list[int]:
        with loop_session(connect) as (loop, session):
            reading = cluster.state_versions(session, PREFIX, self.topics, self.partitions)
            return loop.run_until_complete(reading)

    def restore(self, connect: str) -> None:
        with loop_session(connect) as (loop, session):
            loop.run_until_complete(cluster.restore(session, PREFIX, self.topics, self.partitions))


def failure(connect: str, directory: Path, size: Size, runs: int, rows: Table) -> None:
    """One of six brokers goes: a sixth of the leaders, half of the partitions."""
    events, raws, elections, times, peak = [], [], [], [], 0.0
    for run in range(runs):
        acceptors = Acceptors(connect)
        controller = ControllerProcess(connect, directory / f"failure-{run}")
        controller.wait_for("ControllerFailover")
        controller.wait_quiet(_NEVER_S)
        before = size.versions(connect)
        acceptors.command("keep")
        with session_ends(connect, [znode_paths.broker_path(VICTIM)]) as ends:
            acceptors.command(f"drop {VICTIM}")
            event = controller.wait_for("BrokerChange", timeout_s=_NEVER_S)
        events.append((event["took_ms"] + event["queued_ms"]) / 1000)
        controller.wait_quiet(_NEVER_S)
        times.append(times_of(controller, [acceptors], directory, size.led_by(VICTIM), max(ends.values())))
        peak = max(peak, controller.memory_mb()[1])
        written = sum(a != b for a, b in zip(before, size.versions(connect), strict=True))
        controller.stop()
        with loop_session(connect) as (loop, session):
            raws.append(loop.run_until_complete(cluster.raw_sets(session, f"/raw-sets-{run}", written)))
        elections.append(size.raw(connect, f"/raw-led-{run}"))
        console.print(
            f"  run {run + 1}: {written:,} states in {events[-1]:.2f} s, raw {raws[-1]:.2f} s;"
            f" load {os.getloadavg()[0]:.0f}"
        )
        console.print(f"    leaderless: {times[-1].text()}", style="dim")
        acceptors.stop()
        size.restore(connect)
    took, raw = statistics.median(events), statistics.median(raws)
    _leaderless_rows("broker failure", times, elections, rows, f"{0.3 * size.scale:g} s", "")
    rows.add_row(
        f"broker failure, {size.topics * size.partitions // 2:,} replicas, last write",
        f"{took:.2f} s",
        f"{raw:.2f} s raw fenced writes",
        f"{took / raw:.2f}",
        "8, 2 s" if size.scale == 1 else "8",
    )
    rows.add_row("controller memory after broker failure, peak", f"{peak:.0f} MB", "", "", "400 MB")


def crash(connect: str, directory: Path, size: Size, runs: int, rows: Table) -> None:
    """The active controller and a broker are killed in the same moment; a standby has everything in memory."""
    times, elections = [], []
    for run in range(runs):
        others = Acceptors(connect, first=1, count=BROKERS - 1)
        victim = Acceptors(connect, first=VICTIM, count=1, timeout_s=SESSION_MS / 1000)
        first = ControllerProcess(connect, directory / f"killed-{run}", session_timeout_ms=SESSION_MS)
        first.wait_for("ControllerFailover")
        first.wait_quiet(_NEVER_S)
        standby = ControllerProcess(connect, directory / f"standby-{run}", controller_id=2)
        standby.wait_warm(size.topics * size.partitions)
        others.command("keep")
        first_node, broker_node = znode_paths.CONTROLLER, znode_paths.broker_path(VICTIM)
        with session_ends(connect, [first_node, broker_node]) as ends:
            first.process.kill()
            victim.kill()
            first.process.wait(60)
            standby.wait_for("ControllerFailover", timeout_s=_NEVER_S)
            _wait_until(lambda: len(ends) == 2)
        apart = ends[broker_node] - ends[first_node]
        if apart > 0:
            # None comes if the failover had not read the brokers yet.
            with suppress(TimeoutError):
                standby.wait_for("BrokerChange", timeout_s=_LATEST_S * max(1, size.scale))
        standby.wait_quiet(_NEVER_S)
        times.append(times_of(standby, [others], directory, size.led_by(VICTIM), max(ends.values())))
        elections.append(size.raw(connect, f"/raw-killed-{run}"))
        console.print(
            f"  run {run + 1}: {times[-1].text()}; raw {elections[-1]:.2f} s; the broker's session ended"
            f" {apart:+.2f} s after the controller's; load {os.getloadavg()[0]:.0f}"
        )
        console.print(f"    phases, ms: {standby.phases_ms()}", style="dim")
        standby.process.kill()
        standby.process.wait(60)
        others.stop()
        size.restore(connect)
    _leaderless_rows(
        "controller and broker killed", times, elections, rows, "", f"{(1 + 4 * (size.scale > 1))} s"
    )


def _leaderless_rows(
    what: str, times: Sequence[Times], raws: Sequence[float], rows: Table, led_limit: str, told_limit: str
) -> None:
    raw = statistics.median(raws)
    for name, found, limit in (
        ("led", [t.led for t in times], led_limit),
        ("its leader told", [t.told for t in times], told_limit),
    ):
        middle = sorted(found, key=max)[len(found) // 2]
        rows.add_row(
            f"{what}, last leaderless partition {name}",
            f"{max(middle):.2f} s ({_shown(middle)})",
            f"{raw:.2f} s raw fenced writes",
            f"{max(middle) / raw:.1f}",
            limit,
        )


def times_of(
    controller: ControllerProcess,
    brokers: Iterable[Acceptors],
    directory: Path,
    keys: Sequence[Key],
    ended: float,
) -> Times:
    led = {
        (r["topic"], r["partition"]): _at_s(r)
        for r in _lines(controller)
        if r["kind"] == "partition" and r["to"] == PartitionState.ONLINE.value and _at_s(r) >= ended
    }
    told: dict[Key, float] = {}
    for acceptors in brokers:
        path = directory / "told"
        acceptors.command(f"told {path}")
        for line in path.read_text().splitlines():
            topic, number, _, at = line.split()
            told[topic, int(number)] = float(at)
    return Times([led[key] - ended for key in keys], [told[key] - ended for key in keys])


def _lines(controller: ControllerProcess) -> Iterator[dict[str, Any]]:
    """Of its state-change log."""
    decode = msgspec.json.Decoder().decode
    with (controller.log_path.parent / "state-log" / "state-change.jsonl").open("rb") as file:
        for line in file:
            yield decode(line)


def _at_s(record: dict[str, Any]) -> float:
    return datetime.fromisoformat(record["ts"]).timestamp()


@contextmanager
def session_ends(connect: str, paths: Sequence[str]) -> Iterator[dict[str, float]]:
    """When znodes went, seconds since 1970, as another session hears it."""
    found: dict[str, float] = {}
    client = KazooClient(connect)
    client.start(30)
    for path in paths:
        assert client.exists(path, watch=lambda event: found.setdefault(event.path, time.time()))
    try:
        yield found
        _wait_until(lambda: len(found) == len(paths))
    finally:
        client.stop()
        client.close()


def _wait_until(done: Any) -> None:
    deadline = time.monotonic() + _NEVER_S
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError("a session did not end in time")
        time.sleep(0.02)
