"""A believable log of a whole cluster for tests: controllers that fail over, brokers that die and return.

The story is the same for the same seed. Run as a program it writes a large one, to measure the job with:
``python tests/support/analysis/make_log.py DIR --partitions 20000 --rounds 10``.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proto.statelog.writer import Rotation, StateLogWriter

#: 2026-01-14T10:00:00Z
START_US = 1_768_384_800_000_000
SECOND_US = 1_000_000
PHASE_US = {
    "election": 21_000,
    "notifications": 4_000,
    "brokers": 9_000,
    "topics": 60_000,
    "partitions": 410_000,
    "deletions": 2_000,
    "replica_startup": 35_000,
    "partition_startup": 120_000,
    "preferred_election": 11_000,
}

Fields = dict[str, Any]


@dataclass
class Cluster:
    """Plays a cluster's life into one state-change log a node, below ``root``."""

    root: Path
    seed: int = 1
    brokers: int = 4
    controllers: int = 2
    partitions: int = 40
    rotation: Rotation = field(default_factory=Rotation)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.now_us = START_US
        self.epoch, self.event, self.active = 0, 0, 0
        self.leader: dict[tuple[str, int], int] = {}
        self.leader_epoch: dict[tuple[str, int], int] = {}
        self.writers: dict[tuple[str, int], StateLogWriter] = {}
        for role, nodes in (("controller", self.controllers), ("broker", self.brokers)):
            for node in range(1, nodes + 1):
                directory = self.root / f"{role}-{node}"
                self.writers[role, node] = StateLogWriter(directory, role, node, self.rotation)

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()

    def write(self, cause: str, *records: Fields, broker: int = 0) -> None:
        """Records of the active controller, or of a broker, at the present time."""
        writer = self.writers[("broker", broker) if broker else ("controller", self.active)]
        writer.append(
            records,
            cause=cause,
            controller_epoch=self.epoch,
            event_id=self.event,
            count=len(records),
            ts_us=self.now_us,
        )
        while writer.queued > 500_000:
            writer.flush()

    def pass_time(self, microseconds: int) -> None:
        self.now_us += microseconds + self.random.randrange(200)

    def fail_over(self) -> None:
        """The next controller in turn takes over."""
        self.active = self.active % self.controllers + 1
        self.epoch, self.event = self.epoch + 1, 1
        cause = "ControllerFailover"
        self.write(cause, {"kind": "controller", "from": "standby", "to": "active", "reason": "elected"})
        begun_us = self.now_us
        for phase, usual_us in PHASE_US.items():
            spent_us = int(usual_us * self.random.uniform(0.5, 1.5))
            self.now_us += spent_us
            self.write(cause, {"kind": "failover", "to": phase, "count": 10, "duration_us": spent_us})
        total_us = self.now_us - begun_us
        self.write(cause, {"kind": "failover", "to": "ready", "count": 0, "duration_us": total_us})

    def create_topics(self, topics: int) -> None:
        """Spread the partitions over the topics, each with a leader."""
        self.event += 1
        for number in range(self.partitions):
            topic, partition = f"orders-{number % topics}", number // topics
            leader = number % self.brokers + 1
            self.leader[topic, partition], self.leader_epoch[topic, partition] = leader, 0
            where = {"topic": topic, "partition": partition}
            state = {"leader": leader, "leader_epoch": 0, "isr": [leader], "partition_epoch": 0}
            self.write("TopicChange", _moved("partition", where, "NonExistentPartition", "NewPartition"))
            self.now_us += 150
            self.write(
                "TopicChange",
                _moved("leader", where, "-1", str(leader), **state, reason="initial"),
                _moved("partition", where, "NewPartition", "OnlinePartition", **state),
            )

    def kill_broker(self, broker: int, *, survivors: bool = True) -> None:
        """Its partitions go offline and, where someone survives, online again on another broker."""
        self.event += 1
        cause = "BrokerChange"
        self.write(cause, {"kind": "broker", "replica": broker, "from": "online", "to": "offline"})
        led = [where for where, leader in self.leader.items() if leader == broker]
        for topic, partition in led:
            where = {"topic": topic, "partition": partition}
            lost = {"leader": broker, "reason": "leader's broker is gone"}
            self.write(cause, _moved("partition", where, "OnlinePartition", "OfflinePartition", **lost))
        self.pass_time(40_000)
        others = [other for other in range(1, self.brokers + 1) if other != broker]
        for topic, partition in led if survivors else []:
            self._elect(cause, topic, partition, self.random.choice(others), "offline")
        for other in others:
            self._push(cause, other, len(led))

    def return_broker(self, broker: int) -> None:
        """It comes back and leads again what nobody leads or what it should lead."""
        self.event += 1
        cause = "BrokerChange"
        self.write(cause, {"kind": "broker", "replica": broker, "from": "offline", "to": "online"})
        self.pass_time(300_000)
        for number, (topic, partition) in enumerate(list(self.leader)):
            if number % self.brokers + 1 == broker:
                reason = "offline" if self.leader[topic, partition] == broker else "preferred"
                self._elect(cause, topic, partition, broker, reason)
        self._push(cause, broker, self.partitions)

    def reject_stale(self, broker: int) -> None:
        """A broker turns a request of the previous controller away."""
        reason = f"request of controller epoch {self.epoch - 1}, last seen {self.epoch}"
        self.write(
            "LeaderAndIsr",
            {"kind": "reject", "error": "STALE_CONTROLLER_EPOCH", "reason": reason},
            broker=broker,
        )

    def _elect(self, cause: str, topic: str, partition: int, leader: int, reason: str) -> None:
        before, where = self.leader[topic, partition], {"topic": topic, "partition": partition}
        self.leader[topic, partition] = leader
        self.leader_epoch[topic, partition] += 1
        epoch = self.leader_epoch[topic, partition]
        state = {"leader": leader, "leader_epoch": epoch, "isr": [leader], "partition_epoch": epoch}
        self.now_us += 90
        self.write(
            cause,
            _moved("leader", where, str(before), str(leader), **state, reason=reason),
            _moved("partition", where, "OfflinePartition", "OnlinePartition", **state),
        )
        replica = {**where, "replica": leader}
        self.write("LeaderAndIsr", _moved("replica", replica, "follower", "leader", **state), broker=leader)

    def _push(self, cause: str, broker: int, count: int) -> None:
        request = {"replica": broker, "to": "LeaderAndIsr", "count": count}
        self.write(cause, {"kind": "push", **request})
        took_us = int(self.random.lognormvariate(8.5, 0.6))
        self.now_us += took_us
        self.write(cause, {"kind": "ack", **request, "duration_us": took_us})


def _moved(kind: str, where: Fields, old: str, new: str, **more: object) -> Fields:
    return {"kind": kind, **where, "from": old, "to": new, **more}


def write_cluster(root: Path, *, partitions: int = 40, rounds: int = 3, seed: int = 1) -> Cluster:
    """A few rounds of broker failures with a controller failover between them; broker 2 stays dead."""
    cluster = Cluster(root, seed=seed, partitions=partitions)
    for _ in story(cluster, rounds):
        cluster.pass_time(5 * SECOND_US)
    cluster.close()
    return cluster


def story(cluster: Cluster, rounds: int) -> Iterator[None]:
    """What happens, one event a step."""
    cluster.fail_over()
    yield
    cluster.create_topics(topics=max(2, cluster.partitions // 50))
    yield
    for number in range(rounds):
        yield from failure(cluster, number % cluster.brokers + 1)
    cluster.kill_broker(2, survivors=False)
    yield


def failure(cluster: Cluster, victim: int) -> Iterator[None]:
    """A broker dies, the controller fails over, the broker returns: as before, but for epochs."""
    cluster.kill_broker(victim)
    yield
    cluster.fail_over()
    cluster.reject_stale(victim % cluster.brokers + 1)
    yield
    cluster.return_broker(victim)
    yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--partitions", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    cluster = write_cluster(options.directory, partitions=options.partitions, rounds=options.rounds)
    print(sum(writer.written for writer in cluster.writers.values()), "lines")


if __name__ == "__main__":
    main()
