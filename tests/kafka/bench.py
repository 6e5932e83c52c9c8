"""``make bench-kafka``: our controller and Kafka's own on the same real brokers, in one run.

Each controller in turn, RUNS times: a takeover (from its election to all partitions loaded, by its own log), and the
loss of a broker (from the end of its registration to the last new leader, by the times that ZooKeeper put on the state
znodes; and the longest gap between two acknowledgements to an idempotent producer).
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.table import Table

from controller.embedded_zookeeper.ensemble import EmbeddedZooKeeper
from tests.kafka.cluster import FIRST_CONTROLLER_ID, KafkaCluster
from tests.kafka.load import Load
from tests.support.kafka.tools import Tool

OURS = FIRST_CONTROLLER_ID
LOAD_TOPIC, LOAD_PARTITIONS = "load", 12
TOPIC_PARTITIONS = 50
#: A broker makes some tens of logs a second on a busy machine.
CREATION_S = 3600.0
RESTART_S = 1800.0
console = Console(soft_wrap=True)


class Loss(NamedTuple):
    """``leaders_s``: until the last partition had a leader again; ``gap_s``: without acknowledgements."""

    moved: int
    leaders_s: float
    gap_s: float


class Bench:
    """One cluster, and who leads it now."""

    def __init__(self, cluster: KafkaCluster, topics: int) -> None:
        self.cluster = cluster
        self.names = [f"t{number:04}" for number in range(topics)]
        ours = cluster.make_controller(OURS)
        self.ours = cluster.controllers[OURS] = ours

    def create_topics(self) -> None:
        began = time.monotonic()
        admin = self.cluster.admin()
        self.cluster.create_topic(LOAD_TOPIC, LOAD_PARTITIONS, 3)
        for name in self.names:
            new = NewTopic(name, TOPIC_PARTITIONS, 3)
            admin.create_topics([new], operation_timeout=60, request_timeout=90)[name].result(120)
        self.until_in_sync(CREATION_S)
        console.print(f"  {self.partitions:,} partitions are in sync after {time.monotonic() - began:.0f} s")

    @property
    def partitions(self) -> int:
        return len(self.names) * TOPIC_PARTITIONS + LOAD_PARTITIONS

    def states(self) -> dict[tuple[str, int], tuple[int, list[int], int]]:
        """Leader, ISR and time of the last write (ms) of each partition, read in bulk."""
        zk = self.cluster.zk
        keys = [(LOAD_TOPIC, n) for n in range(LOAD_PARTITIONS)]
        keys += [(name, n) for name in self.names for n in range(TOPIC_PARTITIONS)]
        found = {}
        for start in range(0, len(keys), 1000):
            chunk = keys[start : start + 1000]
            answers = [
                (key, zk.get_async(f"/brokers/topics/{key[0]}/partitions/{key[1]}/state")) for key in chunk
            ]
            for key, answer in answers:
                data, stat = answer.get(60)
                state = json.loads(data)
                found[key] = (state["leader"], state["isr"], stat.mtime)
        return found

    def until_in_sync(self, timeout_s: float) -> None:
        def whole() -> bool:
            time.sleep(0.5)
            return all(len(isr) == 3 and leader >= 0 for leader, isr, _ in self.states().values())

        self.cluster.until("full ISRs", whole, timeout_s)

    # takeovers

    def take_over(self) -> float:
        """Ours claims over a broker; seconds from the election to the end of the failover."""
        self.ours.start()
        self.cluster.until("our controller", lambda: self.cluster.controller_id() == OURS)
        log = self.ours.state_log / "state-change.jsonl"

        def ready() -> list[float]:
            lines = log.read_text().splitlines() if log.exists() else []
            records = [json.loads(line) for line in lines]
            return [
                r["duration_us"] / 1e6 for r in records if (r["kind"], r.get("to")) == ("failover", "ready")
            ]

        self.cluster.until("the failover", ready, 600)
        return ready()[-1]

    def hand_back(self) -> float:
        """Ours ends, a broker takes over; seconds from its election to the end of its failover."""
        self.ours.stop()
        cluster = self.cluster
        cluster.until("a broker", lambda: cluster.controller_id() in cluster.brokers)
        log = cluster.brokers[cluster.controller_id()].controller_log
        elected = re.compile(r"^\[(.{23})\].*successfully elected as the controller", re.MULTILINE)
        ready = re.compile(r"^\[(.{23})\].*Ready to serve as the new controller", re.MULTILINE)
        cluster.until(
            "the failover",
            lambda: len(ready.findall(log.read_text())) == len(elected.findall(log.read_text())),
            600,
        )
        text = log.read_text()
        return _seconds(ready.findall(text)[-1]) - _seconds(elected.findall(text)[-1])

    # losses

    def lose_a_broker(self) -> Loss:
        """kill -9 a broker that is not controller, and wait until all others lead; then restart it."""
        cluster = self.cluster
        victim = max(id_ for id_ in cluster.brokers if id_ != cluster.controller_id())
        with Load(cluster, LOAD_TOPIC, readers=0, rate=100) as load:
            load.run_for(3)
            before = self.states()
            gone = _Gone(cluster, victim)
            cluster.brokers[victim].kill()
            cluster.await_gone(victim)
            after = before

            def led() -> bool:
                nonlocal after
                time.sleep(0.2)
                after = self.states()
                return all(leader not in (victim, -1) for leader, _, _ in after.values())

            cluster.until("new leaders", led, 600)
            load.run_for(3)
            moved = [key for key, (leader, _, _) in before.items() if leader == victim]
            last_ms = max(after[key][2] for key in moved)
            for thread in load.writers:
                thread.finish()
        gap = max(_longest_gap(writer.acknowledged) for writer in load.writers)
        cluster.restart(victim)
        self.until_in_sync(RESTART_S)
        # A rebalance comes after minutes only: the leaders go back at once, so that each loss is alike.
        self._elect_preferred()
        return Loss(len(moved), last_ms / 1000 - gone.at_s, gap)

    def _elect_preferred(self) -> None:
        result = self.cluster.tools.run(
            Tool.LEADER_ELECTION, "--election-type", "preferred", "--all-topic-partitions", timeout_s=600
        )
        if result.returncode:
            console.print(result.stdout[-500:], result.stderr[-500:])


class _Gone:
    """When ZooKeeper dropped a broker's registration, by this machine's clock, which is ZooKeeper's, too."""

    def __init__(self, cluster: KafkaCluster, broker_id: int) -> None:
        self.at_s = 0.0
        cluster.zk.exists(f"/brokers/ids/{broker_id}", watch=self._fired)

    def _fired(self, _event: object) -> None:
        self.at_s = time.time()


def _longest_gap(times: list[float]) -> float:
    return max((later - earlier for earlier, later in pairwise(times)), default=0.0)


def _seconds(stamp: str) -> float:
    return datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S,%f").timestamp()  # noqa: DTZ007  (only differences count)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kafka.bench", description=__doc__)
    parser.add_argument("--topics", type=int, default=200, help=f"each with {TOPIC_PARTITIONS} partitions")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--heap-mb", type=int, default=1024, help="of each broker")
    options = parser.parse_args(arguments)
    takeovers: dict[str, list[float]] = {"ours": [], "Kafka's": []}
    losses: dict[str, list[Loss]] = {"ours": [], "Kafka's": []}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with EmbeddedZooKeeper(directory / "zookeeper", force_sync=False) as zookeeper:
            cluster = KafkaCluster(directory, f"{zookeeper.connect_string}/bench", heap_mb=options.heap_mb)
            bench = Bench(cluster, options.topics)
            try:
                cluster.start()
                bench.create_topics()
                for run in range(options.runs):
                    for who, take in (("ours", bench.take_over), ("Kafka's", bench.hand_back)):
                        takeovers[who].append(take())
                        losses[who].append(bench.lose_a_broker())
                        loss = losses[who][-1]
                        console.print(
                            f"  run {run + 1}, {who}: takeover {takeovers[who][-1]:.2f} s; {loss.moved:,} leaders "
                            f"lost, all led after {loss.leaders_s:.2f} s, longest gap {loss.gap_s:.2f} s"
                        )
            finally:
                cluster.stop()
    table = Table("figure", "ours", "Kafka's", "ratio")
    figures = {
        "takeover, s": takeovers,
        "broker lost: until the last leader, s": {
            w: [x.leaders_s for x in found] for w, found in losses.items()
        },
        "broker lost: longest gap of a producer, s": {
            w: [x.gap_s for x in found] for w, found in losses.items()
        },
    }
    for figure, found in figures.items():
        ours, kafkas = statistics.median(found["ours"]), statistics.median(found["Kafka's"])
        table.add_row(figure, f"{ours:.2f}", f"{kafkas:.2f}", f"{kafkas / ours:.1f}")
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
