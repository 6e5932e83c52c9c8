"""``make chaos-kafka``: faults on real Kafka brokers, our controllers and ZooKeeper, drawn from a seed, under load.

Good: nothing acknowledged is lost, duplicated or reordered; every controller epoch had one controller; the cluster is
whole in the end.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from kazoo.exceptions import KazooException
from rich.console import Console

from controller.embedded_zookeeper.ensemble import EmbeddedZooKeeper
from tests.kafka.cluster import KafkaCluster
from tests.kafka.load import Load, Outcome

KILL_ZOOKEEPER = "kill ZooKeeper"
TOPIC, TRANSACTIONS = "chaos", "chaos-transactions"
#: How long a fault lasts, and how long the cluster may take to be whole again.
LASTS_S, RECOVERY_S = (1.0, 14.0), 120.0
_ELECTED = re.compile(r"(\d+) successfully elected as the controller\. Epoch incremented to (\d+)")
#: Kinds of records that only an active controller writes.
_ACTING = {"failover", "leadership", "push"}
console = Console(soft_wrap=True)


class Fault(NamedTuple):
    """``begin`` makes it, ``end`` undoes it."""

    name: str
    begin: Callable[[], object]
    end: Callable[[], object]


class Chaos:
    """One run on one cluster."""

    def __init__(self, cluster: KafkaCluster, zookeeper: EmbeddedZooKeeper, seed: int) -> None:
        self.cluster, self.zookeeper = cluster, zookeeper
        self.random = random.Random(seed)
        self.counts: dict[str, int] = defaultdict(int)

    def _broker(self) -> Fault:
        broker = self.cluster.brokers[self.random.choice(sorted(self.cluster.brokers))]
        kind = self.random.choice(["kill", "freeze", "stop"])
        begins: dict[str, Callable[[], object]] = {
            "kill": broker.kill, "freeze": broker.freeze, "stop": broker.stop
        }  # fmt: skip
        restart = partial(self.cluster.restart, broker.broker_id)
        return Fault(f"{kind} broker", begins[kind], broker.thaw if kind == "freeze" else restart)

    def _controller(self) -> Fault:
        """Mostly the active one."""
        ids = sorted(self.cluster.controllers)
        active = self.cluster.controller_id()
        id_ = active if active in ids and self.random.random() < 0.7 else self.random.choice(ids)
        controller = self.cluster.controllers[id_]
        kind = self.random.choice(["kill", "freeze", "stop"])
        begins: dict[str, Callable[[], object]] = {
            "kill": controller.kill, "freeze": controller.freeze, "stop": controller.stop
        }  # fmt: skip
        return Fault(
            f"{kind} controller", begins[kind], controller.thaw if kind == "freeze" else controller.start
        )

    def _both_controllers(self) -> Fault:
        """Kafka's own controller goes on, until ours claim again."""
        ours = self.cluster.controllers.values()

        def kill() -> None:
            for controller in ours:
                controller.kill()

        def start() -> None:
            for controller in ours:
                controller.start()

        return Fault("kill all controllers of ours", kill, start)

    def _zookeeper(self) -> Fault:
        (server,) = self.zookeeper.servers

        def start() -> None:
            server.start()
            self.cluster.until("ZooKeeper", server.serving)

        return Fault(KILL_ZOOKEEPER, server.kill, start)

    def draw(self) -> list[Fault]:
        """One fault, or two of different processes at once."""
        makers = [self._broker, self._controller, self._both_controllers, self._zookeeper]
        count = 2 if self.random.random() < 0.35 else 1
        chosen: list[Callable[[], Fault]] = []
        while len(chosen) < count:
            (maker,) = self.random.choices(makers, [5, 4, 1, 1])
            if maker not in chosen and not {self._controller, self._both_controllers} <= {maker, *chosen}:
                chosen.append(maker)
        return [maker() for maker in chosen]

    def round(self) -> None:
        """Faults begin a moment apart, last a while, end, and the cluster becomes whole."""
        faults = self.draw()
        began = time.monotonic()
        for fault in faults:
            self.counts[fault.name] += 1
            fault.begin()
            time.sleep(self.random.uniform(0, 1))
        lasts = self.random.uniform(*LASTS_S)
        time.sleep(lasts)
        # A broker is started once its old registration is gone, which takes ZooKeeper.
        for fault in sorted(faults, key=lambda f: f.name != KILL_ZOOKEEPER):
            fault.end()
        whole = self.cluster.until("a whole cluster", self.whole, RECOVERY_S)
        names = ", ".join(fault.name for fault in faults)
        console.print(
            f"  {names}: for {lasts:.0f} s, whole {whole:.1f} s later ({time.monotonic() - began:.0f} s)"
        )

    def whole(self) -> bool:
        """One of ours leads, and every replica is in sync."""
        try:
            return self.cluster.controller_id() in self.cluster.controllers and self.cluster.in_sync(
                TOPIC, TRANSACTIONS
            )
        except KazooException:
            return False

    def controllers_of_epochs(self) -> dict[int, set[int]]:
        """Who said that it was controller in each epoch: from brokers' logs, and from our state-change logs."""
        found: dict[int, set[int]] = defaultdict(set)
        for line in self.cluster.elections_by_brokers():
            if match := _ELECTED.search(line):
                found[int(match[2])].add(int(match[1]))
        for id_, controller in self.cluster.controllers.items():
            for path in controller.state_log.glob("state-change*.jsonl"):
                for line in path.read_text().splitlines():
                    record = json.loads(line)
                    if record["kind"] in _ACTING:
                        found[record["controller_epoch"]].add(id_)
        return found


def run(cluster: KafkaCluster, zookeeper: EmbeddedZooKeeper, seconds: float, seed: int) -> bool:
    """Whether all was good."""
    cluster.until("our controller", lambda: cluster.controller_id() in cluster.controllers)
    for topic in (TOPIC, TRANSACTIONS):
        cluster.create_topic(topic, 6, 3, config={"min.insync.replicas": "2"})
    chaos = Chaos(cluster, zookeeper, seed)
    outcomes: list[Outcome] = []
    with (
        Load(cluster, TOPIC, writers=2, readers=2) as load,
        Load(cluster, TRANSACTIONS, transactional=True, rate=20) as transactions,
    ):
        load.run_for(2)
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            chaos.round()
        load.run_for(2)
        outcomes = [load.finish(), transactions.finish()]
    for outcome in outcomes:
        console.print(f"  {outcome}")
    owners = chaos.controllers_of_epochs()
    shared = {epoch: ids for epoch, ids in owners.items() if len(ids) > 1}
    console.print(
        f"  faults: {dict(sorted(chaos.counts.items()))}; {len(owners)} controller epochs"
        + (f"; SHARED: {shared}" if shared else ", each of one controller")
    )
    return not shared and all(outcome.ok for outcome in outcomes)


def run_in(directory: Path, seconds: float, seed: int) -> bool:
    """A run on a cluster and a ZooKeeper of its own."""
    with EmbeddedZooKeeper(directory / "zookeeper", force_sync=False) as zookeeper:
        cluster = KafkaCluster(directory, f"{zookeeper.connect_string}/chaos", controllers_wanted=2)
        try:
            cluster.start()
            return run(cluster, zookeeper, seconds, seed)
        finally:
            cluster.stop()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kafka.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="chaos-kafka-"))
    good = run_in(directory, options.minutes * 60, options.seed)
    console.print(f"{'GOOD' if good else 'BAD'}; logs are in {directory}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
