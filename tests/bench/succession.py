"""One controller after another: with states in memory and without, to brokers that hold everything and to others."""

from __future__ import annotations

import statistics
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from tests.bench.cluster import Acceptors, ControllerProcess

RUNS = 3
#: Brokers that hold what they are told are slow: they are one process.
HOLDERS_MAX_S = 600.0
console = Console(soft_wrap=True)


class _Taken(NamedTuple):
    """Seconds from the election."""

    ready: float
    confirmed: float


def measure(connect: str, directory: Path, partitions: int, rows: Table) -> None:
    found: dict[str, list[_Taken]] = {"warm": [], "cold": [], "kept": [], "dropped": []}
    for run in range(RUNS):
        with_digests = Acceptors(connect, hold=True)
        try:
            first = ControllerProcess(connect, directory / f"first-{run}")
            first.wait_for("ControllerFailover")
            first.wait_quiet(HOLDERS_MAX_S)
            found["kept"].append(_taken(first))
            warm = ControllerProcess(connect, directory / f"warm-{run}", controller_id=2)
            warm.wait_warm(partitions)
            found["warm"].append(_succeed(first, warm))
            cold = ControllerProcess(
                connect, directory / f"cold-{run}", controller_id=3, warm_standby="false"
            )
            found["cold"].append(_succeed(warm, cold))
            cold.stop()
        finally:
            with_digests.stop()
        without = Acceptors(connect)
        try:
            last = ControllerProcess(connect, directory / f"dropped-{run}", controller_id=4)
            last.wait_for("ControllerFailover")
            found["dropped"].append(_taken(last))
            last.stop()
        finally:
            without.stop()
        taken = ", ".join(
            f"{how} ready {times[-1].ready:.2f} s, confirmed {times[-1].confirmed:.2f} s"
            for how, times in found.items()
        )
        console.print(f"  run {run + 1}: {taken}")
    ready = {how: statistics.median(t.ready for t in times) for how, times in found.items()}
    confirmed = {how: statistics.median(t.confirmed for t in times) for how, times in found.items()}
    for what, measured, against, against_what in (
        ("elected to ready, states in memory", ready["warm"], ready["cold"], "states read"),
        ("elected to all confirmed", confirmed["warm"], confirmed["kept"], "all told, and kept"),
        ("the same, states read", confirmed["cold"], confirmed["kept"], "all told, and kept"),
        ("the same", confirmed["warm"], confirmed["dropped"], "all told, and dropped"),
    ):
        rows.add_row(
            f"{what}, {partitions:,} partitions",
            f"{measured:.2f} s",
            f"{against:.2f} s {against_what}",
            f"{measured / against:.2f}",
            "1",
        )


def _succeed(before: ControllerProcess, after: ControllerProcess) -> _Taken:
    before.stop()
    after.wait_for("ControllerFailover")
    return _taken(after)


def _taken(controller: ControllerProcess) -> _Taken:
    controller.wait_quiet()
    elected = next(at_s(r) for r in controller.records("controller") if r["to"] == "active")
    ready = next(at_s(r) for r in controller.records("failover") if r["to"] == "ready")
    confirmed = max([ready, *map(at_s, controller.records("ack"))])
    console.print(f"    phases, ms: {controller.phases_ms()}", style="dim")
    return _Taken(ready - elected, confirmed - elected)


def at_s(record: dict[str, Any]) -> float:
    return datetime.fromisoformat(record["ts"]).timestamp()
