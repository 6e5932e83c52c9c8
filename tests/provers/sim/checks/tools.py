"""What tools write into znodes that controllers write, too: it stays, is followed, or somebody says why not."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Protocol

from tests.provers.sim.actors.controllers import SimController
from tests.provers.sim.checks.ledger import SCRIBBLE, STATE_PATH, Ledger
from tests.provers.sim.zookeeper.tree import DataSet, NodeCreated, NodeDeleted, Transaction

REASSIGNMENT = "/admin/reassign_partitions"
_REQUESTS = (REASSIGNMENT, "/admin/preferred_replica_election")
_CONTROLLERS = ("controller-", "namesake-")
Key = tuple[str, int]


class ToolsCluster(Protocol):
    ledger: Ledger

    @property
    def controllers(self) -> Mapping[int, SimController]: ...

    def nodes_below(self, path: str) -> list[str]: ...

    def stored(self, path: str) -> bytes | None: ...


class Tools:
    """``report`` takes each violation, in words."""

    def __init__(self, cluster: ToolsCluster, report: Callable[[str], None]) -> None:
        self._cluster, self._report = cluster, report
        #: What must be in a znode as long as it is there.
        self._marks: dict[str, set[bytes]] = {}
        #: What does not decode at present.
        self._nonsense: set[str] = set()
        #: Moves that a tool has listed, and those that are listed at present.
        self._asked: set[tuple[str, int, tuple[int, ...]]] = set()
        self._present: dict[Key, tuple[int, ...]] = {}

    def kept(self, path: str, mark: str) -> None:
        """Whoever writes the znode from now on keeps the mark."""
        self._marks.setdefault(path, set()).add(mark.encode())

    def listed(self, topic: str, number: int, replicas: list[int]) -> None:
        """A tool has asked for a move."""
        self._asked.add((topic, number, tuple(replicas)))

    def went_back(self) -> None:
        """ZooKeeper was restored from a backup: who wrote what is forgotten."""
        self._marks.clear()
        self._nonsense.clear()
        self._asked.clear()
        self._present = _moves(self._cluster.stored(REASSIGNMENT) or b"")

    def agreed(self, transaction: Transaction, writer: str) -> None:
        ours = writer.startswith(_CONTROLLERS)
        for change in transaction.changes:
            match change:
                case NodeCreated(path, data) | DataSet(path, data):
                    self._written(path, data or b"", writer, ours=ours)
                case NodeDeleted(path):
                    self._nonsense.discard(path)
                    self._marks.pop(path, None)
                    if path == REASSIGNMENT:
                        self._listing(b"", writer, ours=ours)

    def _written(self, path: str, data: bytes, writer: str, *, ours: bool) -> None:
        if ours and path in self._nonsense and not STATE_PATH.match(path):
            self._report(f"{writer} wrote over {path}, which did not decode")
        (self._nonsense.add if data == SCRIBBLE else self._nonsense.discard)(path)
        if path == REASSIGNMENT:
            self._listing(data, writer, ours=ours)
        if data == SCRIBBLE:
            return
        for mark in [mark for mark in sorted(self._marks.get(path, ())) if mark not in data]:
            # By another hand it may go.
            self._marks[path].discard(mark)
            if ours:
                self._report(f"{writer} wrote {path} without {mark.decode()}, which a tool had written there")

    def _listing(self, data: bytes, writer: str, *, ours: bool) -> None:
        before, self._present = self._present, _moves(data)
        for (topic, number), replicas in before.items():
            if not ours or (topic, number) in self._present or (topic, number, replicas) not in self._asked:
                continue
            if not self._followed(topic, number, replicas) and not self._answered(topic, number):
                self._report(
                    f"{writer} took the move of {topic}-{number} to {list(replicas)} from the list, and"
                    " neither follows it nor says why"
                )

    def _followed(self, topic: str, number: int, replicas: tuple[int, ...]) -> bool:
        stored = self._cluster.stored(f"/brokers/topics/{topic}")
        if stored is None or stored == SCRIBBLE or topic in self._cluster.nodes_below("/admin/delete_topics"):
            return True
        value = json.loads(stored)
        number_text = str(number)
        now = value["partitions"].get(number_text)
        removing = (value.get("removing_replicas") or {}).get(number_text, ())
        target = [b for b in now or () if b not in removing]
        return (
            now is None or set(replicas) == set(target) or number_text in (value.get("queued_replicas") or {})
        )

    def _answered(self, topic: str, number: int) -> bool:
        name = f"{topic}-{number}"
        return any(
            (record.get("topic"), record.get("partition")) == (topic, number)
            or name in str(record.get("reason"))
            for controller in self._cluster.controllers.values()
            for record in controller.rejected
        )


def _moves(data: bytes) -> dict[Key, tuple[int, ...]]:
    try:
        listed = json.loads(data)["partitions"]
        return {(one["topic"], one["partition"]): tuple(one["replicas"]) for one in listed}
    except (ValueError, KeyError, TypeError):
        return {}
