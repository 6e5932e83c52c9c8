"""Operators: what people and their tools ask for, by the admin RPCs and by the legacy znodes.

One attempt each, as long as its patience lasts; what an answer promised is remembered and looked for at the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import grpc
import grpc.aio
from google.protobuf.message import Message

from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2
from proto.gen import controller_service_pb2 as service
from proto.gen import features_pb2 as features
from proto.gen import history_pb2 as history
from proto.gen import inspection_pb2 as inspection
from proto.gen import maintenance_pb2 as maintenance
from proto.security.grpc_channels import open_channel
from tests.provers.sim.checks.ledger import Ledger
from tests.provers.sim.checks.stored import Topic
from tests.provers.sim.environment.loop import Process, VirtualTimeLoop
from tests.provers.sim.environment.rpc import tls_here
from tests.provers.sim.zookeeper.messages import Create, Exists, Get, Operation, Stat, Value

SERVICE = "/partition_controller.v1.AdminService/"
CONTROLLER_SERVICE = "/partition_controller.v1.ControllerService/"
PATIENCE_S = 3.0
REASON = "simulated"
#: Where nonsense is left, and whether each piece gets a number.
LITTER = (
    ("/admin/reassign_partitions", False),
    ("/admin/preferred_replica_election", False),
    ("/isr_change_notification/isr_change_", True),
    ("/log_dir_event_notification/log_dir_event_", True),
    ("/config/changes/config_change_", True),
)


class OperatorEnvironment(Protocol):
    @property
    def loop(self) -> VirtualTimeLoop: ...

    @property
    def ledger(self) -> Ledger: ...

    def ask_zookeeper(self, op: Operation) -> Value:
        """By a session of its own, at the ensemble's leader; None when there is none, or it refuses."""
        ...

    def violated(self, what: str) -> None: ...


class Operator:
    """Carries out the operations of a plan, by their names. ``asked``: how many, ``done``: how many were granted."""

    def __init__(self, environment: OperatorEnvironment) -> None:
        self._environment = environment
        self.process = Process("operator")
        self.asked = self.done = 0
        #: Producer ids that were handed out: first and last of each block.
        self._ids: list[tuple[int, int]] = []

    def begin(self, kind: str, arguments: tuple[Any, ...]) -> None:
        self.asked += 1
        self._environment.loop.spawn(self.process, getattr(self, kind)(*arguments))

    async def call(
        self,
        method: str,
        request: Message,
        response: type[Message],
        prefix: str = SERVICE,
        certificate: str = "",
    ) -> Any:
        """The controller's answer; None when there is none. ``certificate``: another one than the operator's."""
        found = self._environment.ask_zookeeper(Get("/controller"))
        if not isinstance(found, tuple):
            return None
        endpoint = json.loads(found[0]).get("endpoint")
        if endpoint is None:
            return None  # a broker of Kafka's is the controller
        async with open_channel(endpoint, tls_here(certificate)) as channel:
            send: Any = channel.unary_unary(prefix + method)
            try:
                answer: Any = response.FromString(await send(request.SerializeToString(), timeout=PATIENCE_S))
            except grpc.aio.AioRpcError:
                return None
        self.done += not answer.error_code
        return answer

    def write(self, path: str, data: bytes) -> None:
        """As tools do that know nothing of the RPCs."""
        self._environment.ask_zookeeper(Create(path, data))

    # topics

    async def create(self, topic: str, assignment: tuple[tuple[int, ...], ...], by_znode: bool) -> None:
        if by_znode:
            partitions = {str(number): list(ids) for number, ids in enumerate(assignment)}
            self.write(
                f"/brokers/topics/{topic}", json.dumps({"version": 2, "partitions": partitions}).encode()
            )
            return
        lists = {number: pb.ReplicaList(broker_ids=ids) for number, ids in enumerate(assignment)}
        wanted = pb.CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1, assignments=lists)
        await self.call("CreateTopics", pb.CreateTopicsRequest(topics=[wanted]), pb.CreateTopicsResponse)

    async def delete(self, topic: str, by_znode: bool) -> None:
        if by_znode:
            self.write(f"/admin/delete_topics/{topic}", b"")
            return
        request = pb.DeleteTopicsRequest(topics=[pb.DeletableTopic(name=topic)], reason=REASON)
        await self.call("DeleteTopics", request, pb.DeleteTopicsResponse)

    async def expand(self, topic: str, ids: tuple[int, ...]) -> None:
        known = self._environment.ledger.topics.get(topic)
        if known is None or len(known.partitions) >= 4:
            return
        factor = len(next(iter(known.partitions.values())))
        replicas = (*ids, *(b for b in known.partitions[0] if b not in ids))[:factor]
        if len(replicas) < factor:
            return
        wanted = pb.NewPartitions(
            name=topic, count=len(known.partitions) + 1, assignments=[pb.ReplicaList(broker_ids=replicas)]
        )
        request = pb.CreatePartitionsRequest(topics=[wanted])
        await self.call("CreatePartitions", request, pb.CreatePartitionsResponse)

    async def reassign(self, topic: str, number: int, ids: tuple[int, ...], by_znode: bool) -> None:
        if by_znode:
            entry = {"topic": topic, "partition": number, "replicas": list(ids)}
            data = json.dumps({"version": 1, "partitions": [entry]}).encode()
            self.write("/admin/reassign_partitions", data)
            return
        await self._reassign(topic, number, pb.ReplicaList(broker_ids=ids))

    async def cancel_reassignment(self, topic: str, number: int) -> None:
        await self._reassign(topic, number, None)

    async def _reassign(self, topic: str, number: int, replicas: pb.ReplicaList | None) -> None:
        wanted = pb.ReassignablePartition(topic=topic, partition=number, replicas=replicas)
        request = pb.AlterPartitionReassignmentsRequest(partitions=[wanted])
        await self.call("AlterPartitionReassignments", request, pb.AlterPartitionReassignmentsResponse)

    async def move_many(self, ids: tuple[int, ...], by_znode: bool) -> None:
        """All partitions there are, to the same brokers."""
        every = [(name, n) for name, topic in self._topics() for n in topic.partitions]
        if by_znode:
            entries = [{"topic": name, "partition": n, "replicas": list(ids)} for name, n in every]
            data = json.dumps({"version": 1, "partitions": entries}).encode()
            self.write("/admin/reassign_partitions", data)
            return
        replicas = pb.ReplicaList(broker_ids=ids)
        wanted = [pb.ReassignablePartition(topic=name, partition=n, replicas=replicas) for name, n in every]
        request = pb.AlterPartitionReassignmentsRequest(partitions=wanted)
        await self.call("AlterPartitionReassignments", request, pb.AlterPartitionReassignmentsResponse)

    def _topics(self) -> list[tuple[str, Topic]]:
        return sorted(
            (item for item in self._environment.ledger.topics.items() if not item[0].startswith("__")),
            key=lambda item: item[0],
        )

    # elections

    async def elect_many(self, every: bool) -> None:
        """The preferred leaders of all partitions, named or not."""
        names = [
            common_pb2.PartitionName(topic=name, partition=n)
            for name, topic in self._topics()
            for n in topic.partitions
        ]
        request = pb.ElectLeadersRequest(
            election_type=pb.PREFERRED, topic_partitions=[] if every else names, reason=REASON
        )
        await self.call("ElectLeaders", request, pb.ElectLeadersResponse)

    async def elect_preferred(self, topic: str, number: int, by_znode: bool) -> None:
        if by_znode:
            entry = {"topic": topic, "partition": number}
            data = json.dumps({"version": 1, "partitions": [entry]}).encode()
            self.write("/admin/preferred_replica_election", data)
            return
        await self._elect(pb.PREFERRED, topic, number)

    async def elect_unclean(self, topic: str, number: int) -> None:
        await self._elect(pb.UNCLEAN, topic, number)

    async def _elect(self, kind: pb.ElectionType, topic: str, number: int) -> None:
        partition = common_pb2.PartitionName(topic=topic, partition=number)
        request = pb.ElectLeadersRequest(election_type=kind, topic_partitions=[partition], reason=REASON)
        await self.call("ElectLeaders", request, pb.ElectLeadersResponse)

    async def elect_chosen(self, topic: str, number: int, leader: int) -> None:
        partition = common_pb2.PartitionName(topic=topic, partition=number)
        request = pb.ElectLeadersRequest(election_type=pb.CHOSEN, topic_partitions=[partition], leader=leader)
        await self.call("ElectLeaders", request, pb.ElectLeadersResponse)

    # what brokers and lookers-on ask

    async def allocate_ids(self, broker_id: int) -> None:
        """No producer id may be handed out twice."""
        found = self._environment.ask_zookeeper(Exists(f"/brokers/ids/{broker_id}"))
        if not isinstance(found, Stat):
            return
        request = service.AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=found.czxid)
        response = service.AllocateProducerIdsResponse
        certificate = f"broker-{broker_id}"
        answer = await self.call("AllocateProducerIds", request, response, CONTROLLER_SERVICE, certificate)
        if answer is None or answer.error_code:
            return
        first, last = answer.producer_id_start, answer.producer_id_start + answer.producer_id_len - 1
        self.given(first, last)

    def went_back(self) -> None:
        """ZooKeeper was restored from a backup: ids are given out twice."""
        self._ids.clear()

    def given(self, first: int, last: int) -> None:
        """Producer ids, of this answer or by somebody else."""
        if any(first <= end and begin <= last for begin, end in self._ids) or last < first:
            self._environment.violated(f"producer ids {first} to {last} were handed out before: {self._ids}")
        self._ids.append((first, last))

    async def look(self, topic: str, number: int, broker_id: int) -> None:
        """Questions change nothing, and are answered whatever is going on."""
        partition = common_pb2.PartitionName(topic=topic, partition=number)
        for subject in (
            inspection.ExplainRequest(partition=partition),
            inspection.ExplainRequest(broker=broker_id),
            inspection.ExplainRequest(controller=True),
            inspection.ExplainRequest(deletion=topic),
            inspection.ExplainRequest(reassignment=partition),
        ):
            await self.call("Explain", subject, inspection.ExplainResponse)
        stop = inspection.CheckStoppableRequest(broker_ids=[broker_id])
        await self.call("CheckStoppable", stop, inspection.CheckStoppableResponse)
        loss = inspection.PlanRequest(broker_loss=inspection.BrokerSet(broker_ids=[broker_id]))
        await self.call("Plan", loss, inspection.PlanResponse)
        described = inspection.DescribeTopicsRequest()
        await self.call("DescribeTopics", described, inspection.DescribeTopicsResponse)
        await self.call("ListHistory", history.ListHistoryRequest(), history.ListHistoryResponse)

    async def litter(self, where: int) -> None:
        """Somebody's tool writes nonsense."""
        path, numbered = LITTER[where]
        self._environment.ask_zookeeper(Create(path, b'{"version":', sequential=numbered))

    async def announce(self, which: int) -> None:
        """Somebody's tool tells of a changed configuration that there cannot be, or need not."""
        entity = ("topics/..", "brokers/x", "users", "topics/t0")[which]
        data = json.dumps({"version": 2, "entity_path": entity}).encode()
        self._environment.ask_zookeeper(Create("/config/changes/config_change_", data, sequential=True))

    async def update_feature(self, level: int, kind: features.UpgradeType) -> None:
        update = features.FeatureUpdate(name="sim", max_version_level=level, upgrade_type=kind)
        request = features.UpdateFeaturesRequest(updates=[update])
        await self.call("UpdateFeatures", request, features.UpdateFeaturesResponse)

    # configuration and maintenance

    async def set_min_isr(self, topic: str, least: int) -> None:
        await self._configure(topic, "min.insync.replicas", str(least))

    async def set_unclean(self, topic: str, enabled: bool) -> None:
        await self._configure(topic, "unclean.leader.election.enable", str(enabled).lower())

    async def _configure(self, topic: str, key: str, value: str) -> None:
        resource = pb.ConfigResource(resource_type=pb.TOPIC, resource_name=topic)
        configs = [pb.AlterableConfig(name=key, value=value)]
        wanted = pb.AlterConfigsResource(resource=resource, configs=configs)
        await self.call("AlterConfigs", pb.AlterConfigsRequest(resources=[wanted]), pb.AlterConfigsResponse)

    async def drain(self, broker_id: int, seconds: float) -> None:
        await self._drain(broker_id, drained=True)
        self._later(seconds, lambda: self._drain(broker_id, drained=False))

    async def _drain(self, broker_id: int, *, drained: bool) -> bool:
        request = maintenance.SetDrainRequest(
            broker_id=broker_id, drained=drained, reason="simulated", author="operator", force=True
        )
        answer = await self.call("SetDrain", request, maintenance.OperatorResponse)
        return answer is not None and not answer.error_code

    async def pause(self, seconds: float) -> None:
        await self._pause(paused=True)
        self._later(seconds, lambda: self._pause(paused=False))

    async def _pause(self, *, paused: bool) -> bool:
        request = maintenance.SetPauseRequest(paused=paused, reason="simulated", author="operator")
        answer = await self.call("SetPause", request, maintenance.OperatorResponse)
        return answer is not None and not answer.error_code

    def _later(self, seconds: float, work: Callable[[], Coroutine[Any, Any, bool]]) -> None:
        self._environment.loop.call_later(seconds, lambda: self._environment.loop.create_task(work()))

    async def cancel_shutdown(self, broker_id: int) -> None:
        request = maintenance.CancelShutdownRequest(broker_id=broker_id, broker_epoch=-1)
        await self.call("CancelShutdown", request, maintenance.OperatorResponse)

    async def undo(self) -> bool:
        """Take back what was set and holds the controller back; whether there is nothing any more."""
        request = maintenance.DescribeMaintenanceRequest()
        present = await self.call("DescribeMaintenance", request, maintenance.DescribeMaintenanceResponse)
        if present is None or present.error_code:
            return False
        for broker_id in sorted(present.drained):
            await self._drain(broker_id, drained=False)
        if present.HasField("paused"):
            await self._pause(paused=False)
        if present.HasField("maintenance"):
            leave = maintenance.SetMaintenanceRequest(entered=False, author="operator")
            await self.call("SetMaintenance", leave, maintenance.OperatorResponse)
        if present.HasField("frozen"):
            await self.call(
                "SetFreeze", maintenance.SetFreezeRequest(author="operator"), maintenance.OperatorResponse
            )
        held = ("paused", "maintenance", "frozen")
        return not present.drained and not any(present.HasField(name) for name in held)
