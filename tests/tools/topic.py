"""A topic with records, and what it looks like from outside while tools of others work on it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from controller.core import znode_paths
from tests.support.cli.operator import Operator

VALUES = tuple(f"record-{n}" for n in range(5))


@dataclass(frozen=True)
class Topic:
    """Its brokers and its znodes; every partition holds the same records."""

    operator: Operator
    name: str

    @property
    def replicas(self) -> dict[int, list[int]]:
        """As the topic's znode has them, in their order, by partition."""
        fields = json.loads(self.operator.zk.get(znode_paths.topic_path(self.name))[0])
        return {int(number): ids for number, ids in sorted(fields["partitions"].items())}

    @property
    def leaders(self) -> dict[int, int]:
        return {number: self.operator.state(self.name, number)["leader"] for number in self.replicas}

    def load(self) -> Counter[int]:
        """How many replicas each broker has."""
        return Counter(broker for ids in self.replicas.values() for broker in ids)

    def moved(self, wanted: Mapping[int, Sequence[int]]) -> None:
        """Wait until the request is gone, then until exactly the wanted replicas are in sync and have its folders."""
        self.operator.wait(lambda: self.operator.zk.exists(znode_paths.REASSIGN_PARTITIONS) is None)
        assert self.replicas == dict(wanted)
        self.operator.wait(lambda: all(self._at_home(number, ids) for number, ids in wanted.items()))
        self.readable()

    def _at_home(self, number: int, wanted: Sequence[int]) -> bool:
        cluster = self.operator.cluster
        state = self.operator.state(self.name, number)
        return (
            set(state["isr"]) == set(wanted)
            and state["leader"] in wanted
            and all(
                (cluster.data_dir(id_) / f"{self.name}-{number}").exists() == (id_ in wanted)
                for id_ in range(1, cluster.brokers + 1)
            )
        )

    def led_by(self, wanted: Mapping[int, int]) -> None:
        """Wait until these brokers lead."""
        self.operator.wait(lambda: self.leaders == dict(wanted))

    def readable(self) -> None:
        """Every record of every partition is read, in order, from whoever leads now."""
        text = self.operator.ok("consume", self.name, "--from-beginning", "-o", "json").stdout
        read: dict[int, list[str]] = {number: [] for number in self.replicas}
        for row in map(json.loads, text.splitlines()):
            read[row["partition"]].append(row["value"])
        assert read == {number: list(VALUES) for number in read}

    def write(self) -> None:
        for number in self.replicas:
            self.operator.ok("produce", self.name, f"--partition={number}", *VALUES)


@contextmanager
def topic(operator: Operator, name: str, placed: Sequence[Sequence[int]], *more: str) -> Iterator[Topic]:
    """A topic with these replicas by partition, with records in each; deleted in the end."""
    assignment = ",".join(":".join(map(str, ids)) for ids in placed)
    operator.ok("topics", "create", name, f"--replica-assignment={assignment}", *more)
    created = Topic(operator, name)
    created.write()
    yield created
    operator.ok("--timeout=20", "topics", "delete", "--yes", name)
