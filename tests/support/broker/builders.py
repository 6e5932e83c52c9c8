"""Short ways to write control requests, and a broker without disk or network to send them to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from broker_stub.control.gates import ControllerTerm, UnknownTerm
from broker_stub.control.handlers import ControlHandlers
from broker_stub.control.replicas import Applied, Replica, Step
from proto.gen import broker_control_pb2 as wire
from proto.gen import common_pb2 as codes

ID_X = "x" * 22
ID_Y = "y" * 22


def leader_state(topic: str = "foo", partition: int = 0, **fields: Any) -> wire.LeaderAndIsrPartitionState:
    """A partition of a LeaderAndIsr request: broker 0 leads 0, 1 at epoch 0 unless said otherwise."""
    defaults: dict[str, Any] = {"leader": 0, "leader_epoch": 0, "isr": [0, 1], "replicas": [0, 1]}
    return wire.LeaderAndIsrPartitionState(topic=topic, partition=partition, **{**defaults, **fields})


def stop_state(
    topic: str = "foo", partition: int = 0, leader_epoch: int = -1, delete: bool = False
) -> wire.StopReplicaPartitionState:
    return wire.StopReplicaPartitionState(
        topic=topic, partition=partition, leader_epoch=leader_epoch, delete_partition=delete
    )


def metadata_state(
    topic: str = "foo", partition: int = 0, **fields: Any
) -> wire.UpdateMetadataPartitionState:
    defaults: dict[str, Any] = {"leader": 0, "leader_epoch": 0, "isr": [0, 1], "replicas": [0, 1]}
    return wire.UpdateMetadataPartitionState(topic=topic, partition=partition, **{**defaults, **fields})


def live(*broker_ids: int) -> list[wire.LiveBroker]:
    return [
        wire.LiveBroker(
            broker_id=n,
            endpoints=[
                wire.Endpoint(listener="GRPC", security_protocol="PLAINTEXT", host="h", port=9000 + n)
            ],
        )
        for n in broker_ids
    ]


class MemoryStorage:
    """A disk that holds nothing and fails on demand: ``failing`` partitions, or all when ``lost`` says why."""

    def __init__(self) -> None:
        self.failing: dict[tuple[str, int], str] = {}
        self.lost = ""
        self.steps: list[Step] = []
        self._hosted: dict[tuple[str, int], None] = {}

    def apply(self, steps: Sequence[Step]) -> Applied:
        if self.lost and steps:
            return Applied({step.key: self.lost for step in steps}, self.lost, tuple(self._hosted))
        self.steps.extend(steps)
        self._hosted |= dict.fromkeys(step.key for step in steps)
        return Applied({s.key: self.failing[s.key] for s in steps if s.key in self.failing})

    def fail(self, path: Path, why: str) -> list[tuple[str, int]]:
        return list(self._hosted)


class RecordedLog:
    """A state-change log that keeps its records, each with its envelope, in a list."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def append(
        self,
        records: Iterable[dict[str, Any]],
        *,
        cause: str,
        controller_epoch: int = -1,
        event_id: int = 0,
        count: int = 1,
    ) -> None:
        found = list(records)
        assert len(found) == count
        envelope = {"cause": cause, "controller_epoch": controller_epoch, "event_id": event_id}
        self.records.extend({**envelope, **record} for record in found)

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [record for record in self.records if record["kind"] == kind]


class BrokerHarness:
    """Broker 0 in memory, knowing brokers 0, 1 and 2 as live unless ``live_brokers`` says otherwise.

    In its ZooKeeper everybody who names a controller epoch was elected in it.
    """

    def __init__(
        self,
        broker_id: int = 0,
        found: Iterable[Replica] = (),
        live_brokers: Sequence[int] = (0, 1, 2),
        controller_epoch: int = 0,
    ) -> None:
        self.disk, self.log = MemoryStorage(), RecordedLog()
        self.losses: list[str] = []
        self.looks = 0
        self.handlers = ControlHandlers(broker_id, self.disk, self.log, found, self.losses.append)
        self.controller_epoch = controller_epoch
        assert self.update(brokers=live_brokers) == "NONE"

    def header(self, fields: dict[str, Any]) -> dict[str, Any]:
        broker_epoch = max(self.handlers.gate.broker_epoch, 0)
        defaults = {"controller_epoch": self.controller_epoch, "broker_epoch": broker_epoch, "event_id": 1}
        return {**defaults, **fields}

    def deliver(self, method: str, message: bytes) -> Any:
        """Have a request handled, after a look at ZooKeeper if the broker wants one."""
        handler = getattr(self.handlers, method)
        try:
            return handler(message)
        except UnknownTerm:
            kinds: dict[str, Any] = {
                "leader_and_isr": wire.LeaderAndIsrRequest,
                "stop_replica": wire.StopReplicaRequest,
            }
            header: Any = kinds.get(method, wire.UpdateMetadataRequest).FromString(message)
            if method == "describe_state":
                header = wire.DescribeStateRequest.FromString(message).fence
            gate = self.handlers.gate
            self.looks += 1
            if (epoch := header.controller_epoch) > gate.controller_epoch:
                return handler(message, "", ControllerTerm(self.looks, epoch, epoch, header.controller_id))
            known = gate.controller_epoch, gate.controller_epoch, gate.controller_id
            return handler(message, "", ControllerTerm(self.looks, *known))

    def lead(
        self,
        *states: wire.LeaderAndIsrPartitionState,
        topic_ids: dict[str, str] | None = None,
        **header: Any,
    ) -> list[str]:
        """Send LeaderAndIsr; the names of the partitions' errors, or of the one at the top."""
        response = self.deliver(
            "leader_and_isr",
            wire.LeaderAndIsrRequest(
                partition_states=states, topic_ids=topic_ids or {}, **self.header(header)
            ).SerializeToString(),
        )
        return _errors(response, [(s.topic, s.partition) for s in states])

    def stop(self, *states: wire.StopReplicaPartitionState, **header: Any) -> list[str]:
        """Send StopReplica; as `lead`."""
        response = self.deliver(
            "stop_replica",
            wire.StopReplicaRequest(partition_states=states, **self.header(header)).SerializeToString(),
        )
        return _errors(response, [(s.topic, s.partition) for s in states])

    def update(
        self,
        *states: wire.UpdateMetadataPartitionState,
        brokers: Sequence[int] = (0, 1, 2),
        topic_ids: dict[str, str] | None = None,
        live_brokers: Sequence[wire.LiveBroker] | None = None,
        ends_snapshot: bool = False,
        **header: Any,
    ) -> str:
        """Send UpdateMetadata; the name of the error."""
        response = self.deliver(
            "update_metadata",
            wire.UpdateMetadataRequest(
                partition_states=states,
                topic_ids=topic_ids or {},
                live_brokers=live(*brokers) if live_brokers is None else live_brokers,
                ends_snapshot=ends_snapshot,
                **self.header(header),
            ).SerializeToString(),
        )
        return codes.ErrorCode.Name(response.error_code)

    def replica(self, topic: str = "foo", partition: int = 0) -> Replica:
        found = self.handlers.replicas.get(topic, partition)
        assert found is not None, f"{topic}-{partition} is not hosted"
        return found

    def hosts(self, topic: str = "foo", partition: int = 0) -> bool:
        return self.handlers.replicas.get(topic, partition) is not None


def _errors(
    response: wire.LeaderAndIsrResponse | wire.StopReplicaResponse, sent: list[tuple[str, int]]
) -> list[str]:
    if response.error_code != codes.NONE:
        assert not response.partition_errors, "a top-level error has no list of partitions"
        return [codes.ErrorCode.Name(response.error_code)]
    answered = [(error.topic, error.partition) for error in response.partition_errors]
    assert answered == sent, "every partition is answered, in the order of the request"
    return [codes.ErrorCode.Name(error.error_code) for error in response.partition_errors]
