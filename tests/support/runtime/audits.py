"""A controller's core, three brokers, and an auditor between them."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from broker_stub.control.handlers import ControlHandlers
from controller.core.events import TellAgain
from controller.core.handlers import event_of
from controller.core.model import Broker, LeaderAndIsr
from controller.core.records import AuditFinding
from controller.runtime.audit.auditor import Auditor, BrokerAudit, Verdict
from controller.runtime.audit.expected import Expected
from controller.runtime.observe.metrics import ControllerMetrics
from controller.runtime.push.transport import UnreachableError
from proto.gen import broker_control_pb2 as pb
from proto.kafka.apis import Message
from tests.support.broker.builders import BrokerHarness
from tests.support.core.harness import MachineHarness
from tests.support.core.world import World


async def no_kafka(_broker: Broker, _request: Message) -> Message:
    raise AssertionError("there are no Kafka brokers")


class Rig:
    """A controller's core, three brokers, and an auditor between them."""

    def __init__(self, partitions: int = 4) -> None:
        self.world = World(1, 2, 3)
        self.world.create_topic("t", {n: [1 + n % 3, 1 + (n + 1) % 3] for n in range(partitions)})
        self.world.create_topic("u", {0: [3, 1, 2]})
        for name, info in list(self.world.topics.items()):
            self.world.topics[name] = dataclasses.replace(info, topic_id=name * 22)
        self.core = MachineHarness(self.world)
        self.brokers = {id_: BrokerHarness(id_) for id_ in (1, 2, 3)}
        for id_, broker in self.brokers.items():
            broker.handlers.registered(self.world.brokers[id_].epoch)
        self.unreachable: set[int] = set()
        self.settled = True
        self.told: list[TellAgain] = []
        self.read: list[str] = []
        self.findings: list[AuditFinding] = []
        self.heard: list[int] = []
        self.auditor = Auditor(
            self.core.cluster,
            Expected(self.core.cluster),
            ControllerMetrics(CollectorRegistry()),
            1.0,
            settled=lambda _: self.settled,
            open_transport=lambda: self,
            ask_kafka=no_kafka,
            tell=self.tell,
            record=self.findings.extend,
            heard=self.heard.append,
            version=lambda: None,
        )
        self.core.failover()
        self.deliver()

    def handlers(self, id_: int) -> ControlHandlers:
        return self.brokers[id_].handlers

    def deliver(self) -> None:
        """What the core has sent reaches the brokers."""
        methods = {
            pb.LeaderAndIsrRequest: "leader_and_isr",
            pb.UpdateMetadataRequest: "update_metadata",
            pb.StopReplicaRequest: "stop_replica",
        }
        for sent in self.core.sent:
            self.brokers[sent.broker].deliver(methods[type(sent.message)], sent.message.SerializeToString())
        self.core.sent.clear()

    async def describe_state(
        self, broker: Broker, request: pb.DescribeStateRequest
    ) -> pb.DescribeStateResponse:
        if broker.id in self.unreachable:
            raise UnreachableError("no answer")
        return self.handlers(broker.id).describe_state(request.SerializeToString())

    async def close(self) -> None:
        pass

    def tell(self, report: TellAgain) -> None:
        self.told.append(report)
        if report.read:
            # A question waits until nothing is being decided.
            self.read.extend(partition.name for partition in report.read)
            self.mend()

    def look(self, id_: int, *topics: str) -> BrokerAudit:
        found = asyncio.run(self.auditor.look(id_, topics))
        assert found is not None
        return found

    def verdicts(self) -> list[Verdict]:
        return [self.look(id_).verdict for id_ in self.brokers]

    def mend(self) -> None:
        """The core handles what the auditor had told again."""
        for number, report in enumerate(self.told):
            self.core.world.events.append(event_of(report, 10**7 + number))
        self.told.clear()
        self.core.run()
        self.deliver()

    def known(self, id_: int) -> list[str]:
        return [f"{topic}-{number} {side.name}" for topic, number, side in self.auditor.brokers[id_].known]


def replace_replica(rig: Rig, id_: int, number: int, **changes: Any) -> None:
    replicas = rig.handlers(id_).replicas
    known = replicas.get("t", number)
    assert known is not None
    replicas._put(("t", number), msgspec.structs.replace(known, **changes))


def leader_of(rig: Rig, number: int) -> LeaderAndIsr:
    found = rig.core.partition("t", number).leadership
    assert found is not None
    return found
