"""``make soak HOURS=2``: a cluster of real processes under faults and churn; at the end, whether anything grew.

Every ten seconds a line tells how it goes. Ctrl-C ends it early, with its summary.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from controller.errors import ControllerError
from controller.playground.cluster import console
from tests.provers.chaos import report as chaos_report
from tests.provers.soak import report
from tests.provers.soak.crowd import Crowd
from tests.provers.soak.run import Soak
from tests.provers.soak.sampling import growing

EXIT_GOOD, EXIT_BAD = 0, 1
SHOWN_MAX = 15


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.provers.soak", description=__doc__)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--hours", type=float)
    length.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=1, help="of the faults and the operations")
    parser.add_argument(
        "--partitions",
        type=int,
        help="controllers only, with so many partitions, and brokers that only acknowledge; default: brokers, records",
    )
    parser.add_argument(
        "--directory",
        type=Path,
        help="a new directory for data and logs, which stay; default: a temporary one, removed after GOOD",
    )
    arguments = parser.parse_args(argv)
    arguments.seconds = 3600 * arguments.hours if arguments.hours else 60 * arguments.minutes
    if arguments.seconds <= 0:
        parser.error("--hours and --minutes must be greater than 0")
    if arguments.directory is not None and arguments.directory.exists():
        parser.error(f"--directory {arguments.directory}: exists already")
    return arguments


class _Time:
    """When a soak is over: after so many seconds, or once somebody asks for its end."""

    def __init__(self, seconds: float) -> None:
        self._until_s = time.monotonic() + seconds
        self.asked = False

    def __call__(self) -> bool:
        return self.asked or time.monotonic() >= self._until_s

    def end(self) -> None:
        console.print(
            "asked to end: what is under way is ended first, then everything is checked", style="yellow"
        )
        self.asked = True


async def _play(arguments: argparse.Namespace, directory: Path) -> bool:
    over = _Time(arguments.seconds)
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, over.end)
    if arguments.partitions:
        crowd = Crowd(arguments.partitions, arguments.seed, directory, over)
        wrong = await crowd.play()
        trends = crowd.sampler.trends()
        for words, count in crowd.refused.items():
            console.print(f"refused {count} times: {words}", markup=False)
        console.print(f"state lost or wrong: {len(wrong)}")
        for words in wrong[:SHOWN_MAX]:
            console.print(f"FOUND {words}", markup=False, style="bold red")
    else:
        soak = Soak(arguments.seed, directory, over)
        outcome = await soak.play()
        wrong = list(map(str, outcome.findings))
        trends = soak.sampler.trends()
        chaos_report.show(outcome, chaos_report.output())
    if (rows := report.table(trends)).row_count:
        chaos_report.output().print(rows)
    console.print(report.verdict(trends), markup=False)
    return not wrong and not growing(trends)


def main(argv: list[str]) -> int:
    arguments = _arguments(argv)
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="pc-soak-")) / "run"
    console.print(f"seed {arguments.seed}, {arguments.seconds / 60:g} minutes; data and logs: {directory}")
    try:
        good = asyncio.run(_play(arguments, directory))
    except (ControllerError, OSError) as error:
        console.print(f"soak: {type(error).__name__}: {error}", style="bold red", markup=False)
        return EXIT_BAD
    if good and arguments.directory is None:
        shutil.rmtree(directory.parent)
    else:
        console.print(f"data and logs stay in {directory}", markup=False)
    console.print("GOOD" if good else "BAD")
    return EXIT_GOOD if good else EXIT_BAD


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
