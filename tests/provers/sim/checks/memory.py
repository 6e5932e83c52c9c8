"""What a process holds in memory at the moment at which it acts: no znode and no message tells that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import grpc

from broker_stub.daemon import Broker
from broker_stub.group.partitioner import OFFSETS_TOPIC
from broker_stub.replication.partition import Partition as HostedPartition
from proto.gen import broker_control_pb2 as control
from proto.gen import controller_service_pb2 as service
from tests.provers.sim.actors.brokers import SimBroker
from tests.provers.sim.actors.controllers import SimController
from tests.provers.sim.checks.ledger import STATE_PATH, Ledger
from tests.provers.sim.checks.stored import Partition, State
from tests.provers.sim.environment.loop import Process
from tests.provers.sim.environment.rpc import Answer
from tests.provers.sim.zookeeper.tree import DataSet, NodeCreated, NodeDeleted, Transaction

_RESPONSES: dict[str, Any] = {
    "LeaderAndIsr": control.LeaderAndIsrResponse,
    "UpdateMetadata": control.UpdateMetadataResponse,
    "StopReplica": control.StopReplicaResponse,
    "DescribeState": control.DescribeStateResponse,
}
_NOT_TOLD = -1


class ObservedCluster(Protocol):
    ledger: Ledger

    @property
    def brokers(self) -> Mapping[int, SimBroker]: ...

    @property
    def controllers(self) -> Mapping[int, SimController]: ...


class Memory:
    """``report`` hears of what does not hold."""

    def __init__(self, cluster: ObservedCluster, report: Callable[[str], None]) -> None:
        self._cluster, self._report = cluster, report
        self._registered: set[Process] = set()
        #: By the leader's partition in memory (a topic made again has others), leader epoch and follower: the newest
        #: broker epoch that the leader has known.
        self._fetched_in: dict[tuple[HostedPartition, int, int], int] = {}
        #: By controller, partition and the partition epoch that is to be replaced: what was proposed.
        self._proposed: dict[tuple[str, str, int, int], list[dict[int, int]]] = {}
        self._states: dict[Partition, State] = {}

    # ZooKeeper

    def went_back(self, states: Mapping[Partition, State]) -> None:
        """ZooKeeper was restored from a backup."""
        self._states = dict(states)
        self._proposed.clear()

    def agreed(self, transaction: Transaction, writer: str, states: Mapping[Partition, State]) -> None:
        """``states``: with this transaction's."""
        for change in transaction.changes:
            kind, _, number = writer.rpartition("-")
            match change:
                case NodeCreated(path) if kind == "broker" and path == f"/brokers/ids/{number}":
                    process = self._cluster.brokers[int(number)].process
                    if process is not None:
                        self._registered.add(process)
                case NodeCreated(path) | DataSet(path) if match := STATE_PATH.match(path):
                    self._stored((match[1], int(match[2])), states, writer)
                case NodeDeleted(path) if match := STATE_PATH.match(path):
                    # Another topic of that name begins anew.
                    self._states.pop((match[1], int(match[2])), None)

    def _stored(self, key: Partition, states: Mapping[Partition, State], writer: str) -> None:
        """Nobody joins an ISR of whom the controller knows that he has registered anew since he caught up (KIP-903).
        While a write is on its way, a controller handles nothing else: it knows what it knew when it decided."""
        before, state = self._states.pop(key, None), states.get(key)
        if state is not None:
            self._states[key] = state
        kind, _, number = writer.rpartition("-")
        if before is None or state is None or kind != "controller":
            return
        daemon = self._cluster.controllers[int(number)].daemon
        joined = set(state.isr) - set(before.isr)
        if not joined or daemon is None or daemon.term is None:
            return
        registered = daemon.term.machine.cluster.brokers
        proposals = self._proposed.get((writer, *key, before.version), [])
        caught_up = [
            all(b in registered and epochs[b] in (_NOT_TOLD, registered[b].epoch) for b in joined)
            for epochs in proposals
            if set(epochs) == set(state.isr)
        ]
        if caught_up and not any(caught_up):
            self._report(
                f"{writer} let {sorted(joined)} join the ISR of {key}, of whom it knows that they have registered anew:"
                f" proposed were {proposals}"
            )

    # calls

    def requested(self, caller: str, server: str, method: str, message: bytes) -> None:
        """A request arrives."""
        kind, _, number = server.rpartition("-")
        name = method.rpartition("/")[2]
        if name == "Fetch" and kind == "broker":
            self._fetched(self._cluster.brokers[int(number)])
        if name != "AlterPartition":
            return
        for proposed in service.AlterPartitionRequest.FromString(message).partitions:
            epochs = dict(zip(proposed.new_isr, proposed.isr_epochs, strict=False))
            key = (server, proposed.topic, proposed.partition, proposed.partition_epoch)
            told = {b: epochs.get(b, _NOT_TOLD) for b in proposed.new_isr}
            if told not in (before := self._proposed.setdefault(key, [])):
                before.append(told)

    def answered(self, process: Process, caller: str, method: str, request: bytes, answer: Answer) -> None:
        """A server has answered; nobody has got it yet."""
        kind, _, number = process.name.rpartition("-")
        name = method.rpartition("/")[2]
        if kind != "broker" or answer.code is not grpc.StatusCode.OK:
            return
        node = self._cluster.brokers[int(number)]
        if name in _RESPONSES:
            response = _RESPONSES[name].FromString(answer.body)
            if response.error_code == 0 and process not in self._registered:
                self._report(f"{process.name} obeyed {name} of {caller} before it was registered")
            if name == "LeaderAndIsr":
                self._led_alone(node)
            if name == "DescribeState" and node.broker is not None and response.fenced:
                self._fenced(node.broker, process.name, control.DescribeStateRequest.FromString(request))
        elif name == "Fetch":
            self._fetched(node)

    def _fenced(self, broker: Broker, name: str, request: control.DescribeStateRequest) -> None:
        """Who says that it is fenced believes nobody older any more (ADR 18)."""
        believed, fence = broker._handlers.gate.controller_epoch, request.fence.controller_epoch
        if believed < fence:
            self._report(f"{name} says that it is fenced by epoch {fence}, and believes epoch {believed}")

    def _led_alone(self, node: SimBroker) -> None:
        """Of two brokers that live, not both lead a partition in one leader epoch."""
        led = _led(node)
        for other in self._cluster.brokers.values():
            for key in sorted(led & _led(other)) if other is not node else ():
                if key[:2] not in self._cluster.ledger.believed:
                    self._report(
                        f"{node.name} and {other.name} lead {key[0]}-{key[1]} in leader epoch {key[2]}"
                    )

    def _fetched(self, node: SimBroker) -> None:
        """What a follower's former process has fetched says nothing of what its present one has (KIP-903)."""
        process, broker = node.process, node.broker
        if process is None or broker is None:
            return
        data = broker._bridge._data
        for partition in data.manager.partitions() if data is not None else ():
            for follower, remote in partition.remote.items():
                key = (partition, partition.leader_epoch, follower)
                if remote.broker_epoch < (before := self._fetched_in.get(key, _NOT_TOLD)):
                    self._report(
                        f"{process.name} took a fetch of broker {follower} in {remote.broker_epoch}, after {before}"
                    )
                self._fetched_in[key] = remote.broker_epoch


def _led(node: SimBroker) -> set[tuple[str, int, int, str]]:
    """Topic, partition, leader epoch and topic id."""
    data = node.broker._bridge._data if node.broker is not None else None
    held = data.manager.partitions() if data is not None else ()
    return {(*one.key, one.leader_epoch, one.topic_id or "") for one in held if one.is_leader}


def leader_epoch_at(node: SimBroker, key: Partition, stored: int) -> int:
    """The leader epoch in which a broker has a partition; what is stored, if it does not have it."""
    data = node.broker._bridge._data if node.broker is not None else None
    held = data.manager.get(key) if data is not None else None
    return held.leader_epoch if held is not None else stored


def groups_of_others(broker: Broker, states: Mapping[Partition, State]) -> Iterator[int]:
    """Partitions of the offsets topic whose groups a broker has in memory, and does not lead."""
    data = broker._bridge._data
    if data is not None:
        for number in data.coordinator._migration.owned:
            state = states.get((OFFSETS_TOPIC, number))
            if state is None or state.leader != broker._settings.broker_id:
                yield number
