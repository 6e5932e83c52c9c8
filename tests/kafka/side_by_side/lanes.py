"""Two clusters side by side, of which Kafka's own controller leads one and ours the other: what happens to them, and in
what they differ.

The brokers are those of ``tests.kafka.side_by_side.acceptors``.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError

from controller.core import znode_paths
from controller.embedded_zookeeper.ensemble import EmbeddedZooKeeper
from proto.kafka.apis import Message
from tests.kafka.requests import ask
from tests.kafka.side_by_side import znodes
from tests.kafka.side_by_side.peers import Contestant, KafkaAcceptors, zxid
from tests.kafka.side_by_side.run_deviations import unexplained

BROKERS = (0, 1, 2, 3)
#: So long without a write and without a request to a broker, a step is over.
QUIET_S = 1.0
TIMEOUT_S = 60.0
#: Texts that Kafka words otherwise; what a clock gives; ids that are drawn; and epochs: Kafka writes states in which
#: nothing changes, for each replica that a new controller does not find, and ours writes none (docs/performance.md,
#: leaders first).
_NOT_COMPARED = frozenset(
    {"error_message", "throttle_time_ms", "leader_epoch", "partition_epoch", "topic_id"}
)
_EPOCHS = re.compile(r'"(?:controller|leader)_epoch":[E\d]+,?')
_OF_A_PARTITION = re.compile(rf"{znode_paths.TOPICS}/([^/]+)/partitions/")


class Lane:
    """One cluster."""

    def __init__(
        self,
        name: str,
        stack: ExitStack,
        directory: Path,
        make: Callable[..., Contestant],
        settings: Mapping[str, int],
    ) -> None:
        self.name = name
        ensemble = stack.enter_context(EmbeddedZooKeeper(directory / "zookeeper", force_sync=False))
        self._port = ensemble.servers[0].client_port
        self.zk = KazooClient(ensemble.connect_string, timeout=60)
        self.zk.start(30)
        stack.callback(self.zk.close)
        stack.callback(self.zk.stop)
        for path in (znode_paths.TOPICS, znode_paths.DELETE_TOPICS, "/config/changes", "/config/topics"):
            self.zk.ensure_path(path)
        self.acceptors = KafkaAcceptors(ensemble.connect_string, count=len(BROKERS), hold=True)
        stack.callback(self.acceptors.stop)
        self.contestant = make(ensemble.connect_string, directory, **settings)
        stack.callback(self.contestant.stop)
        self.contestant.start()

    def marks(self) -> tuple[Any, ...]:
        """They stay the same while nothing is written, and no broker is sent anything."""
        return zxid(self._port), self.acceptors.command("")

    def fail_over(self) -> None:
        """The controller is elected anew. Raises TimeoutError."""
        before, deadline = self.zk.get(znode_paths.CONTROLLER_EPOCH)[0], time.monotonic() + TIMEOUT_S
        self.zk.delete(znode_paths.CONTROLLER)
        while self.zk.get(znode_paths.CONTROLLER_EPOCH)[0] == before:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name}: nobody was elected")
            time.sleep(0.02)

    def state(self, topic: str, number: int) -> tuple[dict[str, Any], int] | None:
        """The content of a state znode, and its version."""
        try:
            data, stat = self.zk.get(znode_paths.state_path(topic, number))
        except NoNodeError:
            return None
        return json.loads(data), stat.version

    def registered(self) -> list[str]:
        return self.zk.get_children(znode_paths.BROKER_IDS)  # type: ignore[no-any-return]

    def deleted(self) -> list[str]:
        """Topics that wait for their deletion."""
        return self.zk.get_children(znode_paths.DELETE_TOPICS)  # type: ignore[no-any-return]

    def topic_id(self, topic: str) -> bytes:
        return base64.urlsafe_b64decode(
            json.loads(self.zk.get(znode_paths.topic_path(topic))[0])["topic_id"] + "=="
        )

    def epoch(self, broker: int) -> int:
        stat = self.zk.exists(znode_paths.broker_path(broker))
        return -1 if stat is None else stat.czxid

    def ask(self, request: Message, version: int) -> Any:
        return comparable(msgspec.to_builtins(ask(self.contestant.address, request, version, TIMEOUT_S)))

    def put(self, path: str, data: bytes) -> str:
        """Create a znode, or write it."""
        try:
            self.zk.create(path, data, makepath=True)
            return "created"
        except NodeExistsError:
            self.zk.set(path, data)
            return "written"


def settle(lanes: Sequence[Lane], quiet_s: float = QUIET_S) -> None:
    """Until the step is over in all. Raises TimeoutError."""
    last, since, deadline = None, time.monotonic(), time.monotonic() + TIMEOUT_S
    while time.monotonic() - since < quiet_s:
        if (now := [lane.marks() for lane in lanes]) != last:
            last, since = now, time.monotonic()
        if since > deadline:
            raise TimeoutError("a step does not end")
        time.sleep(0.05)


def comparable(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: comparable(v) for k, v in sorted(value.items()) if k not in _NOT_COMPARED}
    if isinstance(value, list):
        return sorted((comparable(each) for each in value), key=repr)
    return value


def compared(found: Mapping[str, str]) -> dict[str, str]:
    """What is the same under both. Of topics that wait for their deletion, Kafka takes replicas out of the ISR one by
    one, and ours all at once."""
    return {
        path: _EPOCHS.sub("", data)
        for path, data in found.items()
        if path != znode_paths.CONTROLLER_EPOCH
        and (
            (part := _OF_A_PARTITION.match(path)) is None
            or f"{znode_paths.DELETE_TOPICS}/{part[1]}" not in found
        )
    }


def told(
    found: Mapping[str, Mapping[str, Any]], registered: Collection[str], deleted: Collection[str]
) -> dict[str, Any]:
    """What registered brokers were told of each other and of topics that do not wait for their deletion."""
    shown: dict[str, Any] = {}
    for broker, entries in found.items():
        if broker not in registered:
            continue
        for what, value in entries.items():
            if what == "brokers":
                shown[f"broker {broker} was told of brokers"] = [id_ for id_ in value if id_ in BROKERS]
            elif what.rpartition(" ")[2].rpartition("-")[0] not in deleted:
                shown[f"broker {broker} was told, {what}"] = value
    return shown


def differences(lanes: Sequence[Lane]) -> list[str]:
    kafka, ours = (compared(znodes.snapshot(lane.zk)) for lane in lanes)
    theirs, own = (told(lane.acceptors.told(), lane.registered(), lane.deleted()) for lane in lanes)
    return [
        *unexplained(kafka, ours, set()),
        *(
            f"{what}: {theirs.get(what)} by Kafka's controller, {own.get(what)} by ours"
            for what in sorted(theirs.keys() | own.keys())
            if theirs.get(what) != own.get(what)
        ),
    ]


@contextmanager
def stand_still(lanes: Sequence[Lane]) -> Iterator[None]:
    """No controller looks at what happens meanwhile before it is over."""
    pids = [lane.contestant.pid() for lane in lanes]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
