"""What was there before is put back, from an export or by a tool that knows no better: a partition's former state, a
topic without its id or with another one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from broker_stub.control.replicas import Role
from tests.provers.sim.checks.ledger import SCRIBBLE, STATE_PATH, Ledger
from tests.provers.sim.checks.stored import Partition
from tests.provers.sim.zookeeper.messages import Data, Delete, Get, Multi, Operation, Set, Value
from tests.provers.sim.zookeeper.tree import Node

CONTROLLER = "/controller"
#: An id that no topic has.
_OF_NOBODY = "bm9ib2R5cy10b3BpYy1pZA"


class RestoredCluster(Protocol):
    ledger: Ledger
    tampered: bool

    @property
    def brokers(self) -> Any: ...

    def active(self) -> Any: ...

    def data_lost(self, broker_id: int, partitions: Iterable[Partition]) -> None: ...

    def ask_zookeeper(self, op: Operation) -> Value: ...

    def node(self, path: str) -> Node | None: ...


class Restores:
    """``between``: /controller is deleted in the same transaction, so that nobody leads who knows what was there."""

    def __init__(self, cluster: RestoredCluster) -> None:
        self._cluster = cluster
        #: Topics that were written with another id while nobody lived who knew theirs.
        self._renamed: set[str] = set()
        #: Partitions whose followers have begun anew.
        self._renewed: set[Partition] = set()

    def state(self, key: Partition, ago: int, *, between: bool = False) -> bool:
        """As it was so many versions ago. Whether it was done."""
        ledger, path = self._cluster.ledger, f"/brokers/topics/{key[0]}/partitions/{key[1]}/state"
        present, written = ledger.states.get(key), ledger.written.get(key, [])
        topic = ledger.topics.get(key[0])
        if present is None or topic is None or key in ledger.scribbled or len(written) <= ago:
            return False
        data = written[-1 - ago]
        # What names others makes no sense by now.
        if not set(json.loads(data)["isr"]) <= set(topic.partitions.get(key[1], ())):
            return False
        self._cluster.tampered = True
        ledger.restoring = key, not between and self._knows(key, present.version)
        done = self._set(path, lambda _: data, between=between)
        ledger.restoring = None
        return done

    def topic_id(self, name: str, *, another: bool, between: bool = False) -> bool:
        """The topic is written without its id, or with another one: one that no topic has, or the first topic's."""
        ledger = self._cluster.ledger
        topic = ledger.topics.get(name)
        if topic is None or topic.id is None or name.startswith("__"):
            return False
        others = [other.id for _, other in sorted(ledger.topics.items()) if other.id not in (None, topic.id)]

        def changed(data: bytes) -> bytes:
            value = json.loads(data)
            value.pop("topic_id", None)
            if another:
                value["topic_id"] = others[0] if others and len(data) % 2 else _OF_NOBODY
            return json.dumps(value).encode()

        self._cluster.tampered = True
        ledger.misnaming = not between and self._knows_id(name, topic.id)
        done = self._set(f"/brokers/topics/{name}", changed, between=between)
        ledger.misnaming = None
        return done

    def put_back(self) -> None:
        """What nobody alive can know: the ids by which brokers know topics. Whoever leads must read them anew, and what
        brokers began meanwhile by another id is moved away. Leaders whose proposals were refused for it make no others
        until they are elected again (KIP-497): they are restarted."""
        ledger = self._cluster.ledger
        for name in sorted(name for name, known in ledger.misnamed.items() if not known):
            self._renamed.add(name)

            def named(data: bytes, id_: str | None = ledger.topics[name].id) -> bytes:
                return json.dumps({**json.loads(data), "topic_id": id_}).encode()

            if self._set(f"/brokers/topics/{name}", named, between=True):
                leaders = {state.leader for key, state in ledger.states.items() if key[0] == name}
                for leader in sorted(leaders & self._cluster.brokers.keys()):
                    self._cluster.brokers[leader].kill()
        for name in sorted(self._renamed & ledger.topics.keys() - ledger.misnamed.keys()):
            for broker in self._cluster.brokers.values():
                others = [
                    (disk, key)
                    for disk in broker.disks
                    for key, folder in disk.folders.items()
                    if key[0] == name and folder.topic_id not in (None, ledger.topics[name].id)
                ]
                self._move_away(broker, others)
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Where a leader epoch may have had two leaders, nothing tells their records apart: whoever leads keeps what it
        has, and the others copy all of it. Who has records of a later leader epoch refuses to lead, as for a failed
        disk, and is restarted."""
        ledger = self._cluster.ledger
        for key in sorted(key for key in ledger.believed if key in ledger.states):
            leader, brokers = ledger.states[key].leader, self._cluster.brokers
            refusing = [id_ for id_, broker in brokers.items() if _is_offline(broker, key)]
            for id_ in refusing:
                brokers[id_].kill()
            if leader in brokers and leader not in refusing and key not in self._renewed:
                self._renewed.add(key)
                for broker in brokers.values():
                    if broker.id != leader:
                        self._move_away(broker, [(disk, key) for disk in broker.disks if key in disk.folders])

    def _move_away(self, broker: Any, folders: Sequence[tuple[Any, Partition]]) -> None:
        if folders:
            broker.kill()
        for disk, key in folders:
            del disk.folders[key]
            disk.states.pop(key, None)
            self._cluster.data_lost(broker.id, [key])
            self._cluster.ledger.excuse(key)

    # just before somebody writes

    def put_back_state(self, path: str, _: Operation) -> bool:
        match = STATE_PATH.match(path)
        return match is not None and self.state((match[1], int(match[2])), 1 + len(path) % 2)

    def unnamed(self, path: str, _: Operation) -> bool:
        return self.topic_id(path.rpartition("/")[2], another=False)

    def misnamed(self, path: str, _: Operation) -> bool:
        return self.topic_id(path.rpartition("/")[2], another=True)

    # how

    def _term(self) -> Any:
        """Of who was elected last, if it leads."""
        controller, ledger = self._cluster.active(), self._cluster.ledger
        elected = ledger.elected.get(ledger.controller_epoch) == controller.name
        daemon = controller.daemon if controller.alive and elected else None
        return daemon.term if daemon is not None and self._cluster.node(CONTROLLER) is not None else None

    def _knows(self, key: Partition, version: int) -> bool:
        """Whether a controller lives that has read the state of this version, or written it."""
        term = self._term()
        partition = term.machine.cluster.partition(*key) if term is not None else None
        known = partition.leadership if partition is not None else None
        return known is not None and known.partition_epoch >= version

    def _knows_id(self, name: str, id_: str) -> bool:
        term = self._term()
        topic = term.machine.cluster.topics.get(name) if term is not None else None
        return topic is not None and topic.id == id_

    def _set(self, path: str, change: Callable[[bytes], bytes], *, between: bool) -> bool:
        found = self._cluster.ask_zookeeper(Get(path))
        if not isinstance(found, Data) or not found.data or found.data == SCRIBBLE:
            return False
        try:
            data = change(found.data)
        except ValueError:  # nonsense of somebody else's
            return False
        if json.loads(data) == json.loads(found.data):
            return False
        write = Set(path, data, found.stat.version)
        leads = between and self._cluster.node(CONTROLLER) is not None
        before = self._cluster.ledger.transactions
        self._cluster.ask_zookeeper(Multi((Delete(CONTROLLER), write)) if leads else write)
        # Beside the beginning and the end of a session.
        return self._cluster.ledger.transactions - before > 2


def _is_offline(broker: Any, key: Partition) -> bool:
    running = broker.broker
    replica = running._handlers.replicas.get(*key) if running is not None else None
    return replica is not None and replica.role is Role.OFFLINE
