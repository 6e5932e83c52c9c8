"""How long a standby that has everything in memory takes from its election to ready, and where that goes.

Nobody leads before it: a session holds ``/controller`` until the standby is warm. So it costs no pushes to make the
figure at a million partitions.
"""

from __future__ import annotations

import os
import statistics
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from controller.core import znode_paths
from controller.runtime.zookeeper import codecs
from tests.bench import cluster
from tests.bench.cluster import Acceptors, ControllerProcess, loop_session

console = Console(soft_wrap=True)


def measure(connect: str, directory: Path, paths: list[str], runs: int, rows: Table) -> None:
    times, cpus, scans, scan_cpus, memory = [], [], [], [], 0.0
    acceptors = Acceptors(connect)
    for run in range(runs):
        with loop_session(connect) as (loop, session):
            began = time.process_time()
            scans.append(loop.run_until_complete(cluster.raw_scan(session, paths)))
            scan_cpus.append(time.process_time() - began)
            data = codecs.encode_controller(9, "127.0.0.1:1")
            # The session of the controller of the last run has to end first.
            while loop.run_until_complete(session.exists(znode_paths.CONTROLLER)) is not None:
                time.sleep(0.2)
            loop.run_until_complete(session.create(znode_paths.CONTROLLER, data, ephemeral=True))
            controller = ControllerProcess(connect, directory / f"ready-{run}", controller_id=2)
            controller.wait_warm(len(paths))
            memory = max(memory, controller.memory_mb()[0])
            before = controller.cpu_s()
        controller.wait_for("ControllerFailover")
        cpus.append(controller.cpu_s() - before)
        times.append(_ready_s(controller))
        console.print(
            f"  run {run + 1}: ready after {times[-1]:.3f} s with {cpus[-1]:.2f} s of CPU; raw scan {scans[-1]:.2f} s"
            f" with {scan_cpus[-1]:.2f} s; standby {memory:.0f} MB; load {os.getloadavg()[0]:.0f}"
        )
        console.print(f"    phases, ms: {controller.phases_ms()}", style="dim")
        controller.process.kill()
        controller.process.wait(60)
    acceptors.stop()
    for what, measured, against in (("", times, scans), (", CPU", cpus, scan_cpus)):
        took, raw = statistics.median(measured), statistics.median(against)
        name = f"warm failover, elected to ready{what}, {len(paths):,} partitions"
        rows.add_row(name, f"{took:.3f} s", f"{raw:.2f} s raw scan{what}", f"{took / raw:.3f}", "0.5")
    rows.add_row("memory of the standby", f"{memory:.0f} MB", "", "", "")


def _ready_s(controller: ControllerProcess) -> float:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        elected = [_at_s(r) for r in controller.records("controller") if r["to"] == "active"]
        ready = [_at_s(r) for r in controller.records("failover") if r["to"] == "ready"]
        if elected and ready:
            return ready[0] - elected[0]
        time.sleep(0.2)
    raise TimeoutError("the records of the failover are not written")


def _at_s(record: dict[str, Any]) -> float:
    return datetime.fromisoformat(record["ts"]).timestamp()
