"""Conflicts: somebody else writes a znode at the moment at which that hurts most.

Just before a write of a controller or a broker arrives, so that what it was decided upon is no more; or just after a
read, so that what follows from it is decided upon what was. The somebody is a tool, an operator's hand, a leader that
writes its own ISR, or a controller of which nobody here knows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from tests.provers.sim.actors.operators import Operator
from tests.provers.sim.checks.ledger import NONSENSE, SCRIBBLE, STATE_PATH, Ledger
from tests.provers.sim.checks.tools import REASSIGNMENT, Tools
from tests.provers.sim.odd.scenarios import Oddities
from tests.provers.sim.plans.faults import Faults
from tests.provers.sim.plans.plan import FAULTS, READ, VICTIM, WRITE
from tests.provers.sim.plans.restores import Restores
from tests.provers.sim.zookeeper.messages import (
    Children,
    Code,
    Create,
    Data,
    Delete,
    Exists,
    Get,
    Multi,
    MultiRead,
    Operation,
    Set,
    Value,
)
from tests.provers.sim.zookeeper.tree import Node

_TOPIC = re.compile(r"/brokers/topics/([^/]+)")
_EPOCH, _CONTROLLER, _PRODUCER_IDS = "/controller_epoch", "/controller", "/latest_producer_id_block"
#: What a conflict can be about: the path of the znode that is written or read.
KINDS = {
    "state": STATE_PATH,
    "topic": re.compile(_TOPIC.pattern + r"\Z"),
    "reassignment": re.compile(REASSIGNMENT + r"\Z"),
    "preferred": re.compile(r"/admin/preferred_replica_election\Z"),
    "deletion": re.compile(r"/admin/delete_topics/[^/]+\Z"),
    "config": re.compile(r"/config/(topics|brokers)/[^/]+\Z"),
    "ours": re.compile(r"/controllers/(maintenance|forgotten|settings|quarantine)\Z"),
    "feature": re.compile(r"/feature\Z"),
    "producer_ids": re.compile(_PRODUCER_IDS + r"\Z"),
    "notification": re.compile(r"/(isr_change_notification|log_dir_event_notification)/[^/]+\Z"),
    "epoch": re.compile(_EPOCH + r"\Z"),
    "isr": STATE_PATH,
    "kafka_id": re.compile(r"/controllers/kafka_ids/\d+\Z"),
    "broker": re.compile(r"/brokers/ids/(\*|\d+)\Z"),
}
#: What says nothing, by the beginning of the path.
_EMPTY = (
    ("/config/", b'{"version":1,"config":{}}'),
    ("/controllers/forgotten", b'{"version":1,"brokers":{}}'),
    ("/controllers/maintenance", b'{"version":1,"drained":{}}'),
)
#: Who writes and reads: nobody else's conflicts are of interest.
_ACTORS = ("controller-", "broker-")
#: Which controller this is, nobody knows.
_UNKNOWN_CONTROLLER = 98
#: How long nonsense stays, and that one leads, seconds.
_NONSENSE_S, _REIGN_S = (0.7, 3.0), 0.3
#: Partitions of a topic, at most.
_PARTITIONS_MAX = 4
#: So many ids one that nobody knows gives to a broker at once.
_BLOCK = 700


class ConflictedCluster(Protocol):
    ledger: Ledger
    tools: Tools
    tampered: bool
    by_hand: bool
    faults: Faults
    operator: Operator
    oddities: Oddities

    @property
    def brokers(self) -> Any: ...

    def active(self) -> Any: ...

    def data_lost(self, broker_id: int, partitions: Iterable[tuple[str, int]]) -> None: ...

    def ask_zookeeper(self, op: Operation) -> Value: ...

    def trace_line(self, what: str) -> None: ...

    def nodes_below(self, path: str) -> list[str]: ...

    def node(self, path: str) -> Node | None: ...


@dataclass
class _Conflict:
    moment: str
    kind: str
    #: Occurrences still to come, this one counted; and how many from then on.
    count: int
    times: int
    rival: str


class Conflicts:
    """``made``: how many writes of others came in between."""

    def __init__(self, cluster: ConflictedCluster) -> None:
        self._cluster = cluster
        self._waiting: list[_Conflict] = []
        self._client = ""
        self._restores = Restores(cluster)
        self.made = 0

    def restore(
        self, when: str, what: str, topic: str, number: int, ago: int, conflict: tuple[Any, ...]
    ) -> None:
        """Put back what was there: now, just before a write, or in the moment in which /controller is deleted."""
        if when == WRITE:
            self.begin(*conflict)
        elif what == "put_back_state":
            self._restores.state((topic, number), ago, between=when == "between")
        else:
            self._restores.topic_id(topic, another=what == "misnamed", between=when == "between")

    def begin(
        self, moment: str, kind: str, count: int, times: int, rival: str, provoked: str, how: tuple[Any, ...]
    ) -> None:
        """Wait for the count-th such moment; ``provoked``, with the arguments ``how``, brings it about."""
        if not self._cluster.node(f"/brokers/topics/{VICTIM}"):
            self._make_victim()
        self.wait_for(moment, kind, count, times, rival)
        if provoked in FAULTS:
            self._cluster.faults.begin(provoked, how)
        else:
            self._cluster.operator.begin(provoked, how)

    def wait_for(self, moment: str, kind: str, count: int, times: int, rival: str) -> None:
        """As above, whatever brings it about."""
        self._waiting.append(_Conflict(moment, kind, count, times, rival))

    def forget(self) -> None:
        """Nobody comes in between any more."""
        self._waiting.clear()
        self._restores.put_back()
        self._end_reign()

    def arrives(self, client: str, op: Operation) -> None:
        self._meet(WRITE, client, op, _written)

    def served(self, client: str, op: Operation) -> None:
        self._meet(READ, client, op, _read)

    def _meet(
        self, moment: str, client: str, op: Operation, paths: Callable[[Operation], Iterable[str]]
    ) -> None:
        if not self._waiting or not client.startswith(_ACTORS):
            return
        for conflict in [one for one in self._waiting if one.moment == moment]:
            if conflict.kind == "isr" and not client.startswith("broker-"):
                continue
            path = next((path for path in paths(op) if KINDS[conflict.kind].match(path)), None)
            if path is None:
                continue
            conflict.count -= 1
            self._client = client
            if conflict.count > 0 or not self._strike(conflict.rival, path, op):
                continue
            conflict.times -= 1
            if not conflict.times:
                self._waiting.remove(conflict)

    def _strike(self, rival: str, path: str, op: Operation) -> bool:
        edits = self._cluster.oddities.edits
        edits.made += 1
        done: bool = getattr(self if hasattr(self, rival) else self._restores, rival)(path, op)
        if done:
            self.made += 1
            self._cluster.trace_line(f"--- in between: {path} is {rival}")
        return done

    # what anybody may do to any znode; each says whether it was done

    def touched(self, path: str, _: Operation) -> bool:
        """As it was, in a new version: of a state it is not its leader's any more, whom nobody tells."""
        if (state := STATE_PATH.match(path)) is not None:
            self._cluster.ledger.touched.add((state[1], int(state[2])))
        return self._edit(path, lambda data: data)

    def busy(self, path: str, op: Operation) -> bool:
        """As it was, or empty, where it was not: in any case there is another version."""
        if self.touched(path, op):
            return True
        empty = next((data for start, data in _EMPTY if path.startswith(start)), b"")
        return bool(empty) and self._cluster.node(path) is None and self._ask(Create(path, empty))

    def unanswered(self, _path: str, op: Operation) -> bool:
        """Whoever writes never hears of it: the connection breaks before the answer."""
        self._cluster.faults.lose_commit(self._client, "reply")
        return isinstance(op, Multi)

    def removed(self, path: str, _: Operation) -> bool:
        """A topic with all that it has, and only the victim."""
        if (topic := _TOPIC.match(path)) is None:
            return self._stored(path, empty=True) is not None and self._ask(Delete(path))
        if not topic[1].startswith(VICTIM):
            return False
        self._cluster.by_hand = True
        return self.remove(topic[0])

    def scribbled(self, path: str, _: Operation) -> bool:
        """Until somebody puts back what was there; requests are tools' own, and nobody does."""
        if path == "/brokers/ids/*":
            path = f"/brokers/ids/{next(iter(self._cluster.nodes_below('/brokers/ids')), 0)}"
        found = self._stored(path)
        if found is None or found[0] == SCRIBBLE:
            return False
        if STATE_PATH.match(path):
            self._cluster.tampered = True
        edits, faults = self._cluster.oddities.edits, self._cluster.faults
        if path in (REASSIGNMENT, "/admin/preferred_replica_election"):
            return self._edit(path, lambda _: SCRIBBLE)

        def put_back() -> None:
            edits.present -= 1
            edits.made += 1
            faults.put_back(path)

        edits.present += 1
        faults.scribble_over(path)
        faults.later(_NONSENSE_S[self.made % 2], put_back)
        return True

    # states

    def shrunk(self, path: str, _: Operation) -> bool:
        """By its leader."""

        def alone(state: dict[str, Any]) -> None:
            if state["leader"] >= 0:
                state["isr"] = [state["leader"]]
                kept = state.get("isr_directories", {})
                if kept:
                    state["isr_directories"] = {b: d for b, d in kept.items() if int(b) in state["isr"]}

        return self._edit_state(path, alone)

    def led_by_another(self, path: str, _: Operation) -> bool:
        def another(state: dict[str, Any]) -> None:
            others = [id_ for id_ in state["isr"] if id_ != state["leader"]]
            state["leader"], state["leader_epoch"] = others[0] if others else -1, state["leader_epoch"] + 1

        return self._edit_state(path, another)

    def newer(self, path: str, _: Operation) -> bool:
        """By a controller that is to come, as far as one can see."""

        def later(state: dict[str, Any]) -> None:
            state["controller_epoch"] = self._cluster.ledger.controller_epoch + 1

        return self._edit_state(path, later)

    def created_first(self, path: str, op: Operation) -> bool:
        """By a controller that decided likewise, or otherwise, a moment before."""
        made = {one.path: one for one in (op.ops if isinstance(op, Multi) else ()) if isinstance(one, Create)}
        mine = made.get(path)
        if mine is None or not mine.data:
            return False
        value = json.loads(mine.data)
        if STATE_PATH.match(path):
            value["leader"] = value["isr"][self.made % len(value["isr"])]
            self._cluster.tampered = True
        else:
            value["partitions"] = {"0": [min(self._cluster.brokers)]}
            for field in ("topic_id", "adding_replicas", "removing_replicas"):
                value.pop(field, None)
        above = [Create(p) for p in _above(path) if p in made and self._cluster.node(p) is None]
        return self._ask(Multi((*above, Create(path, json.dumps(value).encode()))))

    def created_alike(self, path: str, op: Operation) -> bool:
        """By somebody who wants just the same."""
        made = {one.path: one for one in (op.ops if isinstance(op, Multi) else ()) if isinstance(one, Create)}
        return path in made and self._ask(Multi((made[path],)))

    def littered(self, path: str, _: Operation) -> bool:
        """Something is put below what is to be deleted."""
        topic = _TOPIC.match(path)
        if topic is None or not topic[1].startswith(VICTIM):
            return False
        return self._ask(Create(f"{path}/litter{self.made}"))

    def departed(self, path: str, _: Operation) -> bool:
        """A broker's session ends, by whose registration it is known."""
        there = self._cluster.nodes_below("/brokers/ids")
        name = path.rpartition("/")[2]
        gone = name if name in there else next(iter(there), "")
        if gone:
            self._cluster.faults.begin("expire", (f"broker-{gone}",))
        return bool(gone)

    def moved(self, path: str, _: Operation) -> bool:
        """A broker's registration is edited: it is in another rack."""
        there = self._cluster.nodes_below("/brokers/ids")
        if not there:
            return False
        name = path.rpartition("/")[2]
        path = f"/brokers/ids/{name if name in there else there[0]}"

        def changed(data: bytes) -> bytes:
            return json.dumps({**json.loads(data), "rack": f"r{self.made}"}).encode()

        return self._edit(path, changed)

    def begun(self, path: str, _: Operation) -> bool:
        """What is above the state is there, and the state is not."""
        missing = [Create(p) for p in _above(path) if self._cluster.node(p) is None]
        return bool(missing) and self._ask(Multi(tuple(missing)))

    def bereft(self, path: str, _: Operation) -> bool:
        """The state alone is deleted; whoever asks is told to delete the topic."""
        topic = _TOPIC.match(path)
        if topic is None or not topic[1].startswith(VICTIM):
            return False
        self._cluster.by_hand = True
        return self._ask(Delete(path))

    # topics and configurations

    def ill_valued(self, path: str, _: Operation) -> bool:
        def changed(data: bytes) -> bytes:
            value = json.loads(data)
            value["config"]["unclean.leader.election.enable"] = "perhaps"
            return json.dumps(value).encode()

        return self._edit(path, changed)

    def marked(self, path: str, _: Operation) -> bool:
        """A tool adds a field of its own to a topic, or a key to a configuration: everybody else leaves it there."""
        mark = f"sim.tool.{self.made}"

        def added(data: bytes) -> bytes:
            value = json.loads(data)
            (value if _TOPIC.match(path) else value["config"])[mark] = "kept"
            return json.dumps(value).encode()

        if not self._edit(path, added):
            return False
        # Versions begin anew with a topic that was removed and made again: a write to the former one may land on it.
        if not (self._cluster.by_hand and _TOPIC.match(path)):
            self._cluster.tools.kept(path, mark)
        return True

    def expanded(self, path: str, _: Operation) -> bool:
        name = path.rpartition("/")[2]
        known = self._cluster.ledger.topics.get(name)
        if known is None or len(known.partitions) >= _PARTITIONS_MAX or name.startswith(("__", "odd")):
            return False

        def added(data: bytes) -> bytes:
            value = json.loads(data)
            value["partitions"][str(len(value["partitions"]))] = value["partitions"]["0"]
            return json.dumps(value).encode()

        return self._edit(path, added)

    def renewed(self, path: str, _: Operation) -> bool:
        """Another topic of the same name, at once."""
        topic = _TOPIC.match(path)
        if topic is None or not topic[1].startswith(VICTIM):
            return False
        self._cluster.by_hand = True
        return self._ask(Multi((*self._removal(topic[0]), self._victim(topic[1]))))

    # requests of tools

    def another_request(self, path: str, _: Operation) -> bool:
        """A tool asks for another move, beside those that are listed or in their place."""
        target = self._move()
        if target is None:
            return False

        def added(data: bytes) -> bytes:
            try:
                listed = json.loads(data)["partitions"] if self.made % 2 else []
            except ValueError:  # nonsense of somebody's
                listed = []
            entries = [e for e in listed if (e["topic"], e["partition"]) != target[:2]]
            entries.append(dict(zip(("topic", "partition", "replicas"), target, strict=True)))
            return json.dumps({"version": 1, "partitions": entries}).encode()

        if not self._edit(path, added):
            return False
        self._cluster.tools.listed(*target)
        return True

    def _move(self) -> tuple[str, int, list[int]] | None:
        """Of a partition to one broker that is there."""
        topics = [name for name in self._cluster.ledger.topics if name.startswith("t")]
        ids = sorted(map(int, self._cluster.nodes_below("/brokers/ids")))
        if not topics or not ids:
            return None
        return sorted(topics)[self.made % len(topics)], 0, [ids[self.made % len(ids)]]

    def another_election(self, path: str, _: Operation) -> bool:
        topics = [name for name in self._cluster.ledger.topics if name.startswith("t")]
        entries = [{"topic": name, "partition": 0} for name in sorted(topics)]
        return self._edit(path, lambda _: json.dumps({"version": 1, "partitions": entries}).encode())

    # controllers

    def taken_over(self, path: str, _: Operation) -> bool:
        """An operator has made a maintenance his own that a controller entered by itself."""
        if path != "/controllers/maintenance":
            return False
        return self._edit(path, lambda data: json.dumps({**json.loads(data), "automatic": False}).encode())

    def superseded(self, path: str, _: Operation) -> bool:
        """By one that has raised the epoch, and is gone."""
        return self._edit(path, lambda data: str(int(data) + 1).encode())

    def reigned_over(self, path: str, _: Operation) -> bool:
        """One that is none of ours is elected, and leaves after a while."""
        epoch = self._stored(path)
        if epoch is None or self._cluster.node(_CONTROLLER) is not None:
            return False
        value = {
            "version": 2,
            "brokerid": _UNKNOWN_CONTROLLER,
            "timestamp": "1",
            "kraftControllerEpoch": -1,
        }
        claim = Create(_CONTROLLER, json.dumps(value).encode())
        if not self._ask(Multi((claim, Set(path, str(int(epoch[0]) + 1).encode(), epoch[1])))):
            return False
        self._cluster.faults.later(_REIGN_S, self._end_reign)
        return True

    def _end_reign(self) -> None:
        found = self._cluster.node(_CONTROLLER)
        if found is not None and json.loads(found.data or b"{}").get("brokerid") == _UNKNOWN_CONTROLLER:
            self._ask(Delete(_CONTROLLER))

    def taken_first(self, path: str, _: Operation) -> bool:
        """A controller of which nobody knows has given the next block of producer ids to a broker."""
        first = last = -1

        def taken(data: bytes) -> bytes:
            nonlocal first, last
            first = int(json.loads(data)["block_end"]) + 1 if data else 0
            last = first + _BLOCK - 1
            block = {
                "version": 1,
                "broker": _UNKNOWN_CONTROLLER,
                "block_start": str(first),
                "block_end": str(last),
            }
            return json.dumps(block).encode()

        if not self._edit(path, taken):
            return False
        self._cluster.operator.given(first, last)
        return True

    # how

    def _edit_state(self, path: str, change: Callable[[dict[str, Any]], None]) -> bool:
        def changed(data: bytes) -> bytes:
            value = json.loads(data)
            change(value)
            return json.dumps(value).encode()

        if not self._edit(path, changed):
            return False
        self._cluster.tampered = True
        return True

    def _edit(self, path: str, change: Callable[[bytes], bytes]) -> bool:
        found = self._stored(path, empty=path == _PRODUCER_IDS)
        if found is None or (found[0] == SCRIBBLE and path != REASSIGNMENT):
            return False
        try:
            changed = change(found[0])
        except ValueError:
            return False  # nonsense of somebody else's
        return self._ask(Set(path, changed, found[1]))

    def _stored(self, path: str, *, empty: bool = False) -> tuple[bytes, int] | None:
        found = self._cluster.ask_zookeeper(Get(path))
        if not isinstance(found, Data) or not (found.data or empty) or found.data == NONSENSE:
            return None
        return found.data or b"", found.stat.version

    def _ask(self, op: Operation) -> bool:
        """Whether it was done. A deletion answers nothing, done or not."""
        before = self._cluster.ledger.transactions
        value = self._cluster.ask_zookeeper(op)
        if isinstance(op, Multi):
            return isinstance(value, tuple) and not any(isinstance(result, Code) for result in value)
        # A session begins and ends, and the request between them counts when it is agreed on.
        return self._cluster.ledger.transactions - before > 2

    # victims: topics that nobody writes to, and that are removed by hand

    def _victim(self, name: str = VICTIM) -> Create:
        ids = sorted(self._cluster.brokers)
        partitions = {str(n): ids[n : n + 2] or ids[:1] for n in range(2)}
        value = {"version": 2, "partitions": partitions}
        return Create(f"/brokers/topics/{name}", json.dumps(value).encode())

    def _make_victim(self) -> None:
        if self._cluster.node("/brokers/topics") is not None:
            self._ask(Multi((self._victim(),)))

    def remove(self, path: str) -> bool:
        """A topic with all that it has."""
        return self._ask(Multi(tuple(self._removal(path))))

    def _removal(self, path: str) -> Iterator[Delete]:
        node = self._cluster.node(path)
        for name in sorted(node.children) if node is not None else ():
            yield from self._removal(f"{path}/{name}")
        yield Delete(path)


def _above(path: str) -> list[str]:
    """The parents of a state that its topic does not bring along."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(5, len(parts))]


def _written(op: Operation) -> Iterator[str]:
    match op:
        case Multi(ops):
            yield from (one.path for one in ops)
        case Set(path) | Create(path) | Delete(path):
            yield path


def _read(op: Operation) -> Iterator[str]:
    match op:
        case MultiRead(ops):
            yield from (one.path for one in ops)
        case Get(path) | Exists(path):
            yield path
        case Children(path):
            yield f"{path}/*"
