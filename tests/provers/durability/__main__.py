"""``make kills ROUNDS=50 SEED=1``: kill -9 of each broker in turn under load, and the verdict.
``make crashes``: kill -9 of the active controller at every commit of deletions and moves, and the end compared.
``make upgrade REVISION=...``: from an earlier version to this one and back, process by process, under load."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from rich.table import Table

from controller.embedded_zookeeper.ensemble import EmbeddedZooKeeper
from controller.playground.cluster import Playground, PlaygroundError, console
from controller.playground.verdict import BadVerdictError
from tests.provers.durability.crashes import Outcome, run
from tests.provers.durability.kills import BROKERS, kill_brokers
from tests.provers.durability.upgrade import (
    CONTROLLERS,
    FORMER,
    NoHistoryError,
    former_version,
    upgrade,
)

USAGE = "usage: python -m tests.provers.durability kills ROUNDS SEED | crashes LANES | upgrade [REVISION]"


def kills(rounds: int, seed: int) -> int:
    with tempfile.TemporaryDirectory(prefix="pc-kills-") as name:
        cluster = Playground(Path(name), controllers=2, brokers=BROKERS)
        try:
            cluster.start()
            asyncio.run(kill_brokers(cluster, rounds, seed))
        except BadVerdictError as error:
            cluster.say(f"seed {seed}: {error}", "bold red")
            return 1
        finally:
            cluster.stop()
    return 0


def crashes(lanes: int) -> int:
    """All commits of all stories, in some clusters at once."""
    with (
        tempfile.TemporaryDirectory(prefix="pc-crashes-") as name,
        EmbeddedZooKeeper(Path(name) / "zookeeper", heap_mb=512) as zookeeper,
    ):
        outcomes = asyncio.run(run(zookeeper.connect_string, Path(name), console.print, lanes=lanes))
    console.print(_table(outcomes))
    return 0


def roll(revision: str) -> int:
    with tempfile.TemporaryDirectory(prefix="pc-upgrade-") as name:
        cluster = Playground(Path(name) / "cluster", CONTROLLERS, BROKERS)
        try:
            former = former_version(revision, Path(name) / "former")
            cluster.prepare()
            asyncio.run(upgrade(cluster, former))
        except (NoHistoryError, PlaygroundError) as error:
            cluster.say(f"{revision}: {error}", "bold red")
            return 1
        finally:
            cluster.stop()
    return 0


def _table(outcomes: list[Outcome]) -> Table:
    rows = Table("story", "commits", "kills", "longest, kill to end", title="every end the undisturbed one")
    for outcome in outcomes:
        longest = max(played.took_s for played in outcome.killed)
        kills_ = len(outcome.killed)
        rows.add_row(outcome.story.name, str(outcome.commits), str(kills_), f"{longest:.1f} s")
    return rows


def main(argv: list[str]) -> int:
    match argv:
        case ["kills", rounds, seed]:
            return kills(int(rounds), int(seed))
        case ["crashes", lanes]:
            return crashes(int(lanes))
        case ["upgrade"]:
            return roll(FORMER)
        case ["upgrade", revision]:
            return roll(revision)
        case _:
            console.print(USAGE)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
