"""Whoever has a certificate, but not the right to what he asks for; and input that is far too large."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from grpc import StatusCode

from proto.gen import broker_control_pb2 as control
from proto.gen import common_pb2 as codes
from proto.gen import controller_service_pb2 as service
from tests.provers.sim.actors import controllers
from tests.provers.sim.actors.brokers import SimBroker
from tests.provers.sim.actors.controllers import SimController
from tests.provers.sim.checks.ledger import Ledger
from tests.provers.sim.environment.rpc import Answer, Server, ServicerContext, Wires, credentials_of
from tests.provers.sim.plans.plan import Plan
from tests.provers.sim.zookeeper.messages import Create, Data, Delete, Get, Operation, Value

CONTROL_SERVICE = "/partition_controller.v1.BrokerControl/"
CONTROLLER_SERVICE = "/partition_controller.v1.ControllerService/"
RESPONSES: dict[str, Any] = {
    "LeaderAndIsr": control.LeaderAndIsrResponse,
    "UpdateMetadata": control.UpdateMetadataResponse,
    "StopReplica": control.StopReplicaResponse,
    "AlterPartition": service.AlterPartitionResponse,
    "ControlledShutdown": service.ControlledShutdownResponse,
}
#: A topic with more replicas than a partition may have; no controller may touch it.
WIDE, WIDE_REPLICAS = "wide", 1500


def made_up(
    method: str, topics: Sequence[str], controller_epoch: int, controller_id: int, broker_epoch: int
) -> bytes:
    """A control request that would do harm."""
    header: dict[str, Any] = {
        "controller_id": controller_id,
        "controller_epoch": controller_epoch,
        "broker_epoch": broker_epoch,
        "event_id": 1,
    }
    if method == "UpdateMetadata":
        return control.UpdateMetadataRequest(**header, ends_snapshot=True).SerializeToString()
    if method == "StopReplica":
        stops = [
            control.StopReplicaPartitionState(topic=topic, leader_epoch=-2, delete_partition=True)
            for topic in topics
        ]
        return control.StopReplicaRequest(**header, partition_states=stops).SerializeToString()
    leads = [
        control.LeaderAndIsrPartitionState(
            topic=topic, leader=1, leader_epoch=2**31 - 2, isr=[1], replicas=[1]
        )
        for topic in topics
    ]
    return control.LeaderAndIsrRequest(**header, partition_states=leads).SerializeToString()


class AbusedCluster(Protocol):
    brokers: dict[int, SimBroker]
    plan: Plan
    ledger: Ledger

    @property
    def rpc(self) -> Wires: ...

    def active(self) -> SimController: ...

    def ask_zookeeper(self, op: Operation) -> Value: ...

    def topics(self) -> Sequence[str]: ...

    def violated(self, what: str) -> None: ...


class Abuse:
    """Each by its method. Nothing of it may have an effect."""

    def __init__(self, cluster: AbusedCluster) -> None:
        self._abused = cluster

    def stranger(self, id_: int, method: str, controller_epoch: int, controller_id: int) -> None:
        """Somebody sends a control request with a made-up controller epoch; all else in it is as it should be."""
        who = f"a stranger's {method} of epoch {controller_epoch}"
        self._control(id_, method, (controller_epoch, controller_id), None, who)

    def impostor(self, certificate: str, id_: int, method: str) -> None:
        """Somebody with a certificate speaks for another: for the active controller to a broker, with its true epoch,
        or for a broker to the controller."""
        cluster = self._abused
        who = f"{method} of {certificate} for another"
        if method in ("AlterPartition", "ControlledShutdown"):
            self._for_broker(id_, method, certificate, who)
            return
        controller = cluster.active()
        if controller.daemon is not None and controller.daemon.active and certificate != controller.name:
            self._control(id_, method, (cluster.ledger.controller_epoch, controller.id), certificate, who)

    def flood(self, id_: int, count: int) -> None:
        """A leader proposes the ISR that it has, over and over in one request: it is taken once."""
        proposals, epoch = self._led_by(id_)[:1], self._broker_epoch(id_)
        server = self._server(f"{self._abused.active().name}:{controllers.PORT}")
        if not proposals or epoch is None or server is None:
            return
        request = service.AlterPartitionRequest(
            broker_id=id_, broker_epoch=epoch, partitions=proposals * count
        ).SerializeToString()

        def answered(answer: Answer) -> None:
            if answer.code is not StatusCode.OK:
                return
            found = service.AlterPartitionResponse.FromString(answer.body)
            decided = [one for one in found.partitions if one.error_code != codes.INVALID_REQUEST]
            if not found.error_code and (len(decided) > 1 or len(found.partitions) != count):
                self._abused.violated(
                    f"of one partition named {count} times in one AlterPartition, {len(decided)} were decided"
                )

        server.begin(CONTROLLER_SERVICE + "AlterPartition", request, self._context(f"broker-{id_}"), answered)

    def oversized(self) -> None:
        """Somebody's tool writes a topic with far too many replicas."""
        value = {"version": 2, "partitions": {"0": list(range(1, WIDE_REPLICAS + 1))}}
        self._abused.ask_zookeeper(Create(f"/brokers/topics/{WIDE}", json.dumps(value).encode()))

    def end_abuse(self) -> None:
        """Asked again until ZooKeeper has a leader."""
        if isinstance(self._abused.ask_zookeeper(Get(f"/brokers/topics/{WIDE}")), Data):
            self._abused.ask_zookeeper(Delete(f"/brokers/topics/{WIDE}"))

    def _control(
        self, id_: int, method: str, term: tuple[int, int], certificate: str | None, who: str
    ) -> None:
        server, epoch = self._server(self._abused.brokers[id_].address), self._broker_epoch(id_)
        if server is None or epoch is None:
            return
        request = made_up(method, self._abused.topics(), *term, epoch)
        context = self._context(certificate)
        server.begin(CONTROL_SERVICE + method, request, context, self._refused(method, f"broker-{id_}", who))

    def _for_broker(self, id_: int, method: str, certificate: str, who: str) -> None:
        epoch, name = self._broker_epoch(id_), self._abused.active().name
        server = self._server(f"{name}:{controllers.PORT}")
        if server is None or epoch is None or certificate == f"broker-{id_}":
            return
        request: Any
        if method == "ControlledShutdown":
            request = service.ControlledShutdownRequest(broker_id=id_, broker_epoch=epoch)
        else:
            proposals = self._led_by(id_)
            for proposal in proposals:
                del proposal.new_isr[:]
                proposal.new_isr.append(id_)
            request = service.AlterPartitionRequest(broker_id=id_, broker_epoch=epoch, partitions=proposals)
        body = request.SerializeToString()
        context = self._context(certificate)
        server.begin(CONTROLLER_SERVICE + method, body, context, self._refused(method, name, who))

    def _refused(self, method: str, server: str, who: str) -> Callable[[Answer], None]:
        def answered(answer: Answer) -> None:
            if answer.code is StatusCode.OK and not RESPONSES[method].FromString(answer.body).error_code:
                self._abused.violated(f"{server} obeyed {who}")

        return answered

    def _context(self, certificate: str | None) -> ServicerContext:
        secured = self._abused.plan.options.secured
        shown = credentials_of(certificate).certificate if secured and certificate else None
        return ServicerContext(f"sim:{certificate or 'stranger'}", shown)

    def _server(self, address: str) -> Server | None:
        server = self._abused.rpc.servers.get(address)
        return server if server is not None and server.process.alive else None

    def _broker_epoch(self, id_: int) -> int | None:
        registration = self._abused.ask_zookeeper(Get(f"/brokers/ids/{id_}"))
        return registration.stat.czxid if isinstance(registration, Data) else None

    def _led_by(self, id_: int) -> list[service.AlterPartitionState]:
        """What a broker would propose of the partitions that it leads: the ISRs as they are."""
        return [
            service.AlterPartitionState(
                topic=topic,
                partition=number,
                leader_epoch=state.leader_epoch,
                new_isr=state.isr,
                partition_epoch=state.version,
            )
            for (topic, number), state in sorted(self._abused.ledger.states.items())
            if state.leader == id_
        ]
