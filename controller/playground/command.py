"""``partition-controller playground``: a whole cluster of real processes on this machine, a script and the report."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

from controller.child_processes import is_running
from controller.errors import EnvironmentFault
from controller.playground import scripts
from controller.playground.cluster import WAIT_S, Playground
from controller.playground.gameday import gameday, short_gameday
from controller.playground.operations import operations
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.session import Session

SCRIPTS: dict[str, Callable[[Playground, Session], Awaitable[None]]] = {
    "demo": scripts.demo,
    "failover": scripts.failover,
    "rolling": scripts.rolling,
    "operations": operations,
    "gameday": gameday,
    "gameday-short": short_gameday,
    "idle": scripts.idle,
}


#: What `fresh_directory` calls a directory, and the process that it is for.
_RUN = re.compile(r"run-\d{8}T\d{6}-(\d{1,9})")


def fresh_directory(base: Path) -> Path:
    """A new directory for this run below ``base``; those of runs that have ended are removed. Raises OSError."""
    base.mkdir(parents=True, exist_ok=True)
    for old in base.glob("run-*"):
        run = _RUN.fullmatch(old.name)
        # In a container each run may be the same process, which has none yet.
        if run is not None and ((process := int(run[1])) == os.getpid() or not is_running(process)):
            shutil.rmtree(old, ignore_errors=True)
    directory = base.absolute() / f"run-{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}"
    directory.mkdir()
    return directory


async def play(playground: Playground, script: str) -> None:
    """Run a script on a started cluster. Raises PlaygroundError."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            async with cluster_reader.connected(playground.connect, 10_000) as session:
                await SCRIPTS[script](playground, session)
                return
        except EnvironmentFault:
            if time.monotonic() > deadline:
                raise


def report(playground: Playground) -> str:
    """Run the Spark job on the logs of this run. Returns the path of the page."""
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
