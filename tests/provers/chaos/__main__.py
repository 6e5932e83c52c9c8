"""``make chaos MINUTES=5 SEED=1``: faults on real processes, drawn from a seed, and the verdict (docs/chaos.md)."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import NoReturn

from controller.errors import ControllerError
from controller.playground.cluster import console
from tests.provers.chaos import report
from tests.provers.chaos.network import Namespaces, Network, NetworkError, Relays, enter, inside
from tests.provers.chaos.plan import EPISODE_S, SHORT, Episode, Kind, Means, draw, only
from tests.provers.chaos.run import play

EXIT_GOOD, EXIT_BAD, EXIT_USAGE = 0, 1, 2


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.provers.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="about how long it takes")
    parser.add_argument("--episodes", type=int, help="how many episodes, instead")
    parser.add_argument("--short", action="store_true", help="the three episodes of the fast tests, instead")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--only", type=int, action="append", metavar="N", help="of the plan, only episode N; repeatable"
    )
    parser.add_argument(
        "--kind",
        type=lambda name: Kind[name.upper().replace("-", "_")],
        metavar=f"{{{','.join(kind.name.lower() for kind in Kind)}}}",
        help="nothing but faults of one kind",
    )
    parser.add_argument("--plan", action="store_true", help="print what would be done, and end")
    parser.add_argument("--report", type=Path, help="file to write the report to as JSON")
    parser.add_argument(
        "--directory",
        type=Path,
        help="a new directory for data and logs, which stay; default: a temporary one, removed after GOOD",
    )
    parser.add_argument(
        "--loopback", action="store_true", help="no namespaces, even where they are permitted"
    )
    parser.add_argument(
        "--secure",
        action="store_true",
        help="by mutual TLS with rules, ZooKeeper too; certificates change all the time",
    )
    arguments = parser.parse_args(argv)
    if arguments.minutes <= 0 or (arguments.episodes is not None and arguments.episodes < 1):
        parser.error("--minutes and --episodes must be greater than 0")
    if arguments.directory is not None and arguments.directory.exists():
        parser.error(f"--directory {arguments.directory}: exists already")
    return arguments


def _planned(arguments: argparse.Namespace, means: frozenset[Means]) -> list[Episode]:
    episodes = arguments.episodes or max(1, round(arguments.minutes * 60 / EPISODE_S))
    plan: Sequence[Episode] = SHORT if arguments.short else draw(arguments.seed, episodes, means)
    if arguments.kind is not None:
        plan = list(islice(only(arguments.kind, arguments.seed, means), episodes))
    return [one for one in plan if arguments.only is None or one.number in arguments.only]


def _network() -> Network:
    return Namespaces() if inside() else Relays()


def _ended(signum: int, _: object) -> NoReturn:
    raise KeyboardInterrupt(signal.Signals(signum).name)


def main(argv: list[str]) -> int:
    arguments = _arguments(argv)
    if not arguments.loopback:
        enter(argv)
    signal.signal(signal.SIGTERM, _ended)
    try:
        network = _network()
        plan = _planned(arguments, network.means)
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
        )
        console.print(
            f"seed {arguments.seed}, {len(plan)} episodes, commit {commit.stdout.strip() or 'unknown'}"
        )
        console.print(f"here: {'; '.join(network.words)}")
        if arguments.plan:
            for episode in plan:
                console.print(str(episode), markup=False)
            return EXIT_GOOD
        directory = arguments.directory or Path(tempfile.mkdtemp(prefix="pc-chaos-")) / "run"
        console.print(f"data and logs: {directory}")
        outcome = asyncio.run(play(plan, arguments.seed, network, directory, secure=arguments.secure))
    except (ControllerError, NetworkError, OSError) as error:
        console.print(f"chaos: {type(error).__name__}: {error}", style="bold red", markup=False)
        return EXIT_BAD
    removed = outcome.ok and arguments.directory is None
    report.show(outcome, report.output())
    if arguments.report is not None:
        head = {
            "seed": arguments.seed,
            "arguments": argv,
            "commit": commit.stdout.strip(),
            "here": network.words,
        }
        data = {**head, "directory": None if removed else str(directory), **report.as_data(outcome)}
        arguments.report.write_text(json.dumps(data, indent=1))
    if removed:
        shutil.rmtree(directory.parent)
    kept = "" if removed else f"data and logs stay in {directory}; "
    console.print(f"{kept}again: python -m tests.provers.chaos {' '.join(argv)}", markup=False)
    console.print("GOOD" if outcome.ok else f"BAD: {len(outcome.findings)} findings")
    return EXIT_GOOD if outcome.ok else EXIT_BAD


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
