"""Random lives of a small cluster as a state-change log, with the true state after each event.

Every seed has partitions that the log begins too late to know, controllers that fail over, brokers that die and return,
reassignments, deletions; clocks that are wrong, if wanted.
"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proto.statelog.writer import format_ts
from tests.support.analysis.records import ZERO_US, text

Key = tuple[str, int]
Fields = dict[str, Any]


@dataclass
class State:
    """``partitions``: leader, leader epoch, ISR, partition epoch, replicas."""

    partitions: dict[Key, tuple[int, int, list[int], int, list[int]]] = field(default_factory=dict)
    live: set[int] = field(default_factory=set)
    epoch: int = 0
    controller: int = 0


class Life:
    """``states``: by epoch and event, the state after it, and its true time (microseconds)."""

    def __init__(self, root: Path, seed: int, skew_us: dict[int, int] | None = None) -> None:
        self.chance = random.Random(seed)
        self.skew_us = skew_us or {}
        self.now_us = ZERO_US
        self.event = 0
        self.state = State(live={1, 2, 3})
        self.states: list[tuple[int, int, int, State]] = []
        self.lines: dict[int, list[str]] = {1: [], 2: []}
        # Before the log begins.
        for number in range(3):
            self.state.partitions["old", number] = (1, 5, [1, 2], 9, [1, 2, 3])
        self._live()
        for node, lines in self.lines.items():
            directory = root / f"controller-{node}"
            directory.mkdir(parents=True)
            (directory / "state-change.jsonl").write_text("\n".join(lines) + "\n")

    def _write(self, kind: str, cause: str = "Test", **fields: Any) -> None:
        self.now_us += self.chance.randrange(1, 4_000)
        fields = {name.removesuffix("_"): value for name, value in fields.items()}
        node = self.state.controller
        envelope = {
            "schema": 1,
            "ts": format_ts(self.now_us + self.skew_us.get(node, 0)),
            "role": "controller",
        }
        envelope |= {"node": node, "controller_epoch": self.state.epoch, "event_id": self.event}
        self.lines[node].append(text({**envelope, "cause": cause, "kind": kind, **fields}))

    def _live(self) -> None:
        self._fail_over()
        acts = [self._create, self._break, self._return, self._reassign, self._delete, self._shrink]
        for _ in range(40):
            self.now_us += 1_000_000
            if self.chance.random() < 0.12:
                self._fail_over()
            else:
                self.event += 1
                self.chance.choice(acts)()
            key = (self.state.epoch, self.event, self.now_us)
            self.states.append((*key, copy.deepcopy(self.state)))

    def _fail_over(self) -> None:
        state = self.state
        # What happened to brokers meanwhile is in no record.
        if state.epoch and self.chance.random() < 0.5:
            state.live ^= {3}
            state.live |= {1}
        state.controller, state.epoch, self.event = state.epoch % 2 + 1, state.epoch + 1, 1
        cause = "ControllerFailover"
        self._write("controller", cause, from_="standby", to="active")
        for broker in sorted(state.live):
            self._write("broker", cause, replica=broker, to="found")
        self._write("failover", cause, to="brokers", count=len(state.live))
        self._write("failover", cause, to="partitions", count=len(state.partitions))
        for key in sorted(state.partitions):
            if state.partitions[key][0] not in state.live:
                self._elect(key, cause)
        self._write("failover", cause, to="ready", count=len(state.partitions), duration_us=1)

    def _elect(self, key: Key, cause: str = "BrokerChange") -> None:
        _, epoch, isr, version, replicas = self.state.partitions[key]
        kept = [b for b in isr if b in self.state.live]
        self._set(key, kept[0] if kept else -1, epoch + 1, kept or isr, version + 1, replicas, cause)
        state = "OnlinePartition" if kept else "OfflinePartition"
        self._write(
            "partition", cause, **self._where(key), from_="OfflinePartition", to=state, **self._told(key)
        )

    def _set(
        self, key: Key, leader: int, epoch: int, isr: list[int], version: int, replicas: list[int], cause: str
    ) -> None:
        old = self.state.partitions.get(key)
        self.state.partitions[key] = (leader, epoch, isr, version, replicas)
        was = (-1, []) if old is None else (old[0], old[2])
        if was[0] != leader or (old is not None and old[2] == isr):
            self._write(
                "leader", cause, **self._where(key), from_=str(was[0]), to=str(leader), **self._told(key)
            )
        if was[1] != isr:
            self._write("isr", cause, **self._where(key), from_=str(was[1]), to=str(isr), **self._told(key))

    def _where(self, key: Key) -> Fields:
        return {"topic": key[0], "partition": key[1]}

    def _told(self, key: Key) -> Fields:
        leader, epoch, isr, version, _ = self.state.partitions[key]
        return {"leader": leader, "leader_epoch": epoch, "isr": isr, "partition_epoch": version}

    def _create(self) -> None:
        topic = self.chance.choice("abcde")
        if any(key[0] == topic for key in self.state.partitions):
            return
        for number in range(self.chance.randrange(1, 4)):
            replicas = self.chance.sample([1, 2, 3], self.chance.randrange(1, 4))
            key, live = (topic, number), [b for b in replicas if b in self.state.live]
            gone, new = "NonExistentPartition", "NewPartition"
            self._write("partition", "TopicChange", **self._where(key), from_=gone, to=new, replicas=replicas)
            if live:
                self._set(key, live[0], 0, live, 0, replicas, "TopicChange")
                online = "OnlinePartition"
                self._write("partition", **self._where(key), from_=new, to=online, **self._told(key))
            else:
                # It has no state, and the tests compare states.
                self._write("partition", **self._where(key), from_=new, to="OfflinePartition")
                self._write("partition", **self._where(key), from_="OfflinePartition", to=gone)

    def _break(self) -> None:
        if len(self.state.live) < 2:
            return
        broker = self.chance.choice(sorted(self.state.live))
        self.state.live.discard(broker)
        self._write("broker", "BrokerChange", replica=broker, from_="online", to="offline")
        for key in sorted(self.state.partitions):
            if self.state.partitions[key][0] == broker:
                self._elect(key)

    def _return(self) -> None:
        for broker in sorted({1, 2, 3} - self.state.live)[:1]:
            self.state.live.add(broker)
            self._write("broker", "BrokerChange", replica=broker, from_="offline", to="online")
            for key in sorted(self.state.partitions):
                if self.state.partitions[key][0] == -1 and broker in self.state.partitions[key][2]:
                    self._elect(key)

    def _any(self) -> Key | None:
        keys = [key for key in sorted(self.state.partitions) if key[0] != "old"]
        return self.chance.choice(keys) if keys else None

    def _shrink(self) -> None:
        """The ISR becomes the leader, or only the leader epoch goes up."""
        key = self._any()
        if key is None or self.state.partitions[key][0] == -1:
            return
        leader, epoch, _, version, replicas = self.state.partitions[key]
        self._set(key, leader, epoch + 1, [leader], version + 1, replicas, "AlterPartition")

    def _reassign(self) -> None:
        key = self._any()
        if key is None or self.state.partitions[key][0] == -1:
            return
        leader, epoch, isr, version, _ = self.state.partitions[key]
        replicas = [leader, *(b for b in (1, 2, 3) if b != leader)]
        self.chance.shuffle(replicas)
        self._write("reassignment", **self._where(key), to="moved", reason="x", replicas=replicas)
        self._set(key, leader, epoch + 1, isr, version + 1, replicas, "Reassignment")

    def _delete(self) -> None:
        key = self._any()
        if key is None:
            return
        topic = key[0]
        for gone in [one for one in sorted(self.state.partitions) if one[0] == topic]:
            self._write(
                "partition", **self._where(gone), from_="OfflinePartition", to="NonExistentPartition",
                **self._told(gone),
            )  # fmt: skip
            del self.state.partitions[gone]
        self._write("topic", topic=topic, from_="deleting", to="deleted")
