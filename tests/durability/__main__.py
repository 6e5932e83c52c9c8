"""``make kills ROUNDS=50 SEED=1``: kill -9 of each broker in turn under load, and the verdict."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from controller.cli.cluster import Playground
from controller.cli.judgement import BadVerdictError
from tests.durability.kills import BROKERS, kill_brokers


def main(rounds: int, seed: int) -> int:
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


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
