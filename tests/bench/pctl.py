"""What a command of pctl costs: its CPU time against that of a Python that does nothing, in the same run."""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from controller.playground.cluster import Playground
from controller.runtime.zookeeper import cluster_reader

RUNS = 7
#: Asks the last controller; reads ZooKeeper; does both.
COMMANDS = ("explain controller", "topics list", "brokers")
console = Console(soft_wrap=True)


def _cpu_s(command: list[str], environment: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(connect: str, directory: Path, rows: Table) -> None:
    playground = Playground(directory / "pctl", controllers=1, brokers=3, zookeeper=connect)
    playground.start()
    try:
        asyncio.run(_ready(playground))
        environment = {**os.environ, "XDG_CACHE_HOME": str(directory / "cache")}
        pctl = [str(Path(sys.executable).parent / "pctl"), f"--zookeeper={playground.connect}"]
        commands = {name: [*pctl, *name.split()] for name in COMMANDS}
        commands["python -c pass"] = [sys.executable, "-c", "pass"]
        times: dict[str, list[float]] = {name: [] for name in commands}
        # In turn, so that whatever else runs slows all alike; the first round fills caches.
        for run in range(RUNS + 1):
            for name, command in commands.items():
                took = _cpu_s(command, environment)
                if run:
                    times[name].append(took)
    finally:
        playground.stop()
    base = statistics.median(times.pop("python -c pass"))
    for name, found in times.items():
        took = statistics.median(found)
        console.print(f"  pctl {name}: {took:.3f} s of CPU")
        rows.add_row(
            f"pctl {name}",
            f"{took:.3f} s CPU",
            f"{base:.3f} s python -c pass",
            f"{took / base:.1f}",
            "0.25 s",
        )


async def _ready(playground: Playground) -> None:
    async with cluster_reader.connected(playground.connect, 10_000) as session:
        await playground.active(session)
        await playground.until(
            session, "all brokers registered", lambda s: len(s.brokers) == playground.brokers
        )
