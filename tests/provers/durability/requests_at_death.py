"""One request of each kind that changes something, what it finds, and what its caller must find when asking again after
the controller that it asked died."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2, features_pb2, inspection_pb2, maintenance_pb2
from proto.gen import controller_service_pb2 as control
from tests.provers.durability.pairs import Pair
from tests.support.runtime.sessions import until

SIGNED: Mapping[str, Any] = {"reason": "kernel", "author": "ann"}
#: Given the answer of the successor; ``landed``: what was asked for was durable when the controller died.
Check = Callable[[Any, bool], Awaitable[None]]


class ControllerRequest(NamedTuple):
    """A request, and what its second answer must be."""

    request: Any
    check: Check


Case = Callable[[Pair, str], Awaitable[ControllerRequest]]


def named(entries: Any) -> list[str]:
    return [common_pb2.ErrorCode.Name(entry.error_code) for entry in entries]


def error(answer: Any) -> str:
    return str(common_pb2.ErrorCode.Name(answer.error_code))


def replicas(*ids: int) -> pb.ReplicaList:
    return pb.ReplicaList(broker_ids=ids)


# --- topics ----------------------------------------------------------------------------------------------------


async def create_topics(pair: Pair, name: str) -> ControllerRequest:
    """Two of them: the first may be there, the second is not."""
    wanted = [f"{name}-a", f"{name}-b"]
    request = pb.CreateTopicsRequest(
        topics=[
            pb.CreatableTopic(name=w, num_partitions=2, replication_factor=2, configs={"retention.ms": "7"})
            for w in wanted
        ]
    )

    async def check(answer: Any, landed: bool) -> None:
        first = "TOPIC_ALREADY_EXISTS" if landed else "NONE"
        assert named(answer.topics) == [first, "NONE"]
        await pair.idle()
        for topic in wanted:
            assert pair.stored(f"/config/topics/{topic}")["config"] == {"retention.ms": "7"}
            assert {pair.state(topic, number)["leader"] for number in (0, 1)} <= {1, 2, 3}

    return ControllerRequest(request, check)


async def create_partitions(pair: Pair, name: str) -> ControllerRequest:
    await pair.topic(name, [1, 2])

    async def check(answer: Any, landed: bool) -> None:
        (result,) = answer.results
        assert named([result]) == (["INVALID_PARTITIONS"] if landed else ["NONE"])
        assert not landed or "more than the 3 partitions there are" in result.error_message
        await pair.idle()
        assert set(pair.stored(f"/brokers/topics/{name}")["partitions"]) == {"0", "1", "2"}
        assert pair.state(name, 2)["leader"] in (1, 2, 3)

    return ControllerRequest(pb.CreatePartitionsRequest(topics=[pb.NewPartitions(name=name, count=3)]), check)


async def delete_topics(pair: Pair, name: str) -> ControllerRequest:
    await pair.topic(name, [1, 2])

    async def check(answer: Any, landed: bool) -> None:
        allowed = ("NONE", "UNKNOWN_TOPIC_OR_PARTITION") if landed else ("NONE",)
        assert named(answer.responses)[0] in allowed
        await until(lambda: pair.hands.exists(f"/brokers/topics/{name}") is None, "the end of the topic")
        await until(
            lambda: pair.hands.exists(f"/admin/delete_topics/{name}") is None, "the end of its marker"
        )
        assert pair.hands.exists(f"/config/topics/{name}") is None

    return ControllerRequest(pb.DeleteTopicsRequest(topics=[pb.DeletableTopic(name=name)]), check)


async def reassign(pair: Pair, name: str) -> ControllerRequest:
    """Its new replica never comes into sync: the move stays under way."""
    await pair.topic(name, [1, 2])
    request = pb.AlterPartitionReassignmentsRequest(
        partitions=[pb.ReassignablePartition(topic=name, partition=0, replicas=replicas(2, 3))]
    )

    async def check(answer: Any, landed: bool) -> None:
        assert named(answer.responses) == ["NONE"]
        topic = pair.stored(f"/brokers/topics/{name}")
        assert topic["partitions"]["0"] == [2, 3, 1]
        assert (topic["adding_replicas"], topic["removing_replicas"]) == ({"0": [3]}, {"0": [1]})
        cancelled = pb.AlterPartitionReassignmentsRequest(
            partitions=[pb.ReassignablePartition(topic=name, partition=0)]
        )
        assert named((await pair.ask("AlterPartitionReassignments", cancelled)).responses) == ["NONE"]
        assert pair.stored(f"/brokers/topics/{name}")["partitions"]["0"] == [1, 2]

    return ControllerRequest(request, check)


async def elect(pair: Pair, name: str) -> ControllerRequest:
    await pair.topic(name, [1, 2])
    request = pb.ElectLeadersRequest(
        election_type=pb.CHOSEN,
        topic_partitions=[common_pb2.PartitionName(topic=name, partition=0)],
        leader=2,
    )

    async def check(answer: Any, landed: bool) -> None:
        assert named(answer.results) == (["ELECTION_NOT_NEEDED"] if landed else ["NONE"])
        state = pair.state(name)
        assert (state["leader"], state["leader_epoch"], state["isr"]) == (2, 1, [1, 2])

    return ControllerRequest(request, check)


async def alter_configs(pair: Pair, name: str) -> ControllerRequest:
    await pair.topic(name, [1, 2])
    resource = pb.ConfigResource(resource_type=pb.TOPIC, resource_name=name)
    request = pb.AlterConfigsRequest(
        resources=[
            pb.AlterConfigsResource(
                resource=resource, configs=[pb.AlterableConfig(name="retention.ms", value="5")]
            )
        ]
    )

    async def check(answer: Any, landed: bool) -> None:
        assert named(answer.responses) == ["NONE"]
        assert pair.stored(f"/config/topics/{name}")["config"] == {"retention.ms": "5"}
        notes = [pair.stored(f"/config/changes/{n}") for n in pair.hands.get_children("/config/changes")]
        assert [n["entity_path"] for n in notes].count(f"topics/{name}") == 1

    return ControllerRequest(request, check)


# --- the cluster -----------------------------------------------------------------------------------------------


async def update_features(pair: Pair, name: str) -> ControllerRequest:
    del name
    before = json.loads(pair.hands.get("/feature")[0])["features"].get("f", {"max_version_level": 0})
    level = before["max_version_level"] - 1 if before["max_version_level"] > 1 else 9
    kind = features_pb2.SAFE_DOWNGRADE if level < before["max_version_level"] else features_pb2.UPGRADE
    request = features_pb2.UpdateFeaturesRequest(
        updates=[features_pb2.FeatureUpdate(name="f", max_version_level=level, upgrade_type=kind)]
    )

    async def check(answer: Any, landed: bool) -> None:
        (result,) = answer.results
        assert named([result]) == (["INVALID_REQUEST"] if landed else ["NONE"])
        assert not landed or result.error_message == f"it is at level {level} already"
        assert pair.stored("/feature")["features"] == {"f": {"max_version_level": level}}

    return ControllerRequest(request, check)


async def set_pause(pair: Pair, name: str) -> ControllerRequest:
    del name

    async def check(answer: Any, landed: bool) -> None:
        assert error(answer) == "NONE"
        assert pair.stored("/controllers/maintenance")["paused"] == dict(SIGNED)
        assert (await described(pair)).paused.author == "ann"
        assert error(await pair.ask("SetPause", maintenance_pb2.SetPauseRequest(**SIGNED))) == "NONE"

    return ControllerRequest(maintenance_pb2.SetPauseRequest(paused=True, **SIGNED), check)


async def set_freeze(pair: Pair, name: str) -> ControllerRequest:
    del name

    async def check(answer: Any, landed: bool) -> None:
        assert error(answer) == "NONE"
        assert (await described(pair)).frozen.author == "ann"
        assert error(await pair.ask("SetFreeze", maintenance_pb2.SetFreezeRequest(**SIGNED))) == "NONE"
        assert not (await described(pair)).HasField("frozen")

    return ControllerRequest(
        maintenance_pb2.SetFreezeRequest(frozen=True, until_ms=4_102_444_800_000, **SIGNED), check
    )


async def forget_broker(pair: Pair, name: str) -> ControllerRequest:
    """One that was never registered, but has a replica."""
    await pair.topic(name, [1, 99], led=False)

    async def check(answer: Any, landed: bool) -> None:
        assert error(answer) == "NONE"
        (mark,) = pair.stored("/controllers/forgotten")["brokers"].values()
        assert mark["author"] == "ann"

    return ControllerRequest(maintenance_pb2.ForgetBrokerRequest(broker_id=99, **SIGNED), check)


async def set_maintenance(pair: Pair, name: str) -> ControllerRequest:
    del name

    async def check(answer: Any, landed: bool) -> None:
        assert error(answer) == "NONE"
        state = await described(pair)
        assert (state.maintenance.author, state.entered_automatically) == ("ann", False)
        assert (
            error(await pair.ask("SetMaintenance", maintenance_pb2.SetMaintenanceRequest(**SIGNED))) == "NONE"
        )

    return ControllerRequest(maintenance_pb2.SetMaintenanceRequest(entered=True, **SIGNED), check)


async def set_drain(pair: Pair, name: str) -> ControllerRequest:
    """With a partition that another broker can lead: also when only the drain itself landed."""
    await pair.topic(name, [3, 2])

    async def check(answer: Any, landed: bool) -> None:
        assert (error(answer), list(answer.remaining)) == ("NONE", [])
        assert dict((await described(pair)).drained).keys() == {3}
        assert (pair.state(name)["leader"], pair.state(name)["isr"]) == (2, [3, 2])
        undrained = maintenance_pb2.SetDrainRequest(broker_id=3, **SIGNED)
        assert error(await pair.ask("SetDrain", undrained)) == "NONE"

    return ControllerRequest(maintenance_pb2.SetDrainRequest(broker_id=3, drained=True, **SIGNED), check)


async def described(pair: Pair) -> Any:
    return await pair.ask("DescribeMaintenance", maintenance_pb2.DescribeMaintenanceRequest())


async def approve_stop(pair: Pair, name: str) -> ControllerRequest:
    del name
    request = inspection_pb2.ApproveStopRequest(
        check=inspection_pb2.CheckStoppableRequest(broker_ids=[1]), override=True, **SIGNED
    )

    async def check(answer: Any, landed: bool) -> None:
        assert error(answer) == "NONE"
        approvals = pair.stored("/controllers/approvals")["approvals"]
        assert {id_: a["broker_epoch"] for id_, a in approvals.items()} == {"1": pair.brokers[1].epoch}
        withdrawn = inspection_pb2.WithdrawStopApprovalRequest(broker_ids=[1], **SIGNED)
        assert error(await pair.ask("WithdrawStopApproval", withdrawn)) == "NONE"

    return ControllerRequest(request, check)


async def withdraw(pair: Pair, name: str) -> ControllerRequest:
    given = await approve_stop(pair, name)
    assert error(await pair.ask("ApproveStop", given.request)) == "NONE"

    async def check(answer: Any, landed: bool) -> None:
        assert error(answer) == "NONE"
        assert pair.stored("/controllers/approvals")["approvals"] == {}

    return ControllerRequest(inspection_pb2.WithdrawStopApprovalRequest(broker_ids=[1], **SIGNED), check)


# --- brokers ---------------------------------------------------------------------------------------------------


async def cancel_shutdown(pair: Pair, name: str) -> ControllerRequest:
    """Of a broker without which a topic has no leader yet."""
    leaving = control.ControlledShutdownRequest(broker_id=3, broker_epoch=pair.brokers[3].epoch)
    await pair.ask("ControlledShutdown", leaving)
    await pair.topic(name, [3], led=False)
    assert pair.hands.exists(f"/brokers/topics/{name}/partitions/0/state") is None

    async def check(answer: Any, landed: bool) -> None:
        assert error(answer) == "NONE"
        await until(lambda: pair.hands.exists(f"/brokers/topics/{name}/partitions/0/state"), "its leader")
        assert (pair.state(name)["leader"], pair.state(name)["isr"]) == (3, [3])

    return ControllerRequest(maintenance_pb2.CancelShutdownRequest(broker_id=3, broker_epoch=-1), check)


async def controlled_shutdown(pair: Pair, name: str) -> ControllerRequest:
    await pair.topic(name, [3, 1], [1, 3])
    request = control.ControlledShutdownRequest(broker_id=3, broker_epoch=pair.brokers[3].epoch)

    async def check(answer: Any, landed: bool) -> None:
        assert (error(answer), list(answer.remaining_partitions)) == ("NONE", [])
        assert [(pair.state(name, n)["leader"], pair.state(name, n)["isr"]) for n in (0, 1)] == [(1, [1])] * 2
        stays = maintenance_pb2.CancelShutdownRequest(broker_id=3, broker_epoch=-1)
        assert error(await pair.ask("CancelShutdown", stays)) == "NONE"

    return ControllerRequest(request, check)


async def allocate_producer_ids(pair: Pair, name: str) -> ControllerRequest:
    """No block twice: one that was reserved without an answer is lost."""
    del name
    stored = pair.hands.get("/latest_producer_id_block")[0]
    begin = int(json.loads(stored)["block_end"]) + 1 if stored else 0
    request = control.AllocateProducerIdsRequest(broker_id=2, broker_epoch=pair.brokers[2].epoch)

    async def check(answer: Any, landed: bool) -> None:
        start = begin + 1000 if landed else begin
        assert (error(answer), answer.producer_id_start, answer.producer_id_len) == ("NONE", start, 1000)
        assert pair.stored("/latest_producer_id_block")["block_end"] == str(start + 999)

    return ControllerRequest(request, check)


async def alter_partition(pair: Pair, name: str) -> ControllerRequest:
    """The ISR that was asked for is there already: no conflict, as leaders ask until they are answered."""
    await pair.topic(name, [1, 2, 3])
    topic_id = pair.stored(f"/brokers/topics/{name}")["topic_id"]
    proposal = control.AlterPartitionState(
        topic=name, topic_id=topic_id, partition=0, leader_epoch=0, new_isr=[1, 2], partition_epoch=0
    )
    request = control.AlterPartitionRequest(
        broker_id=1, broker_epoch=pair.brokers[1].epoch, partitions=[proposal]
    )

    async def check(answer: Any, landed: bool) -> None:
        (altered,) = answer.partitions
        assert named([altered]) == ["NONE"]
        assert (list(altered.isr), altered.partition_epoch, altered.leader_epoch) == ([1, 2], 1, 0)
        assert pair.state(name)["isr"] == [1, 2]

    return ControllerRequest(request, check)


#: By the RPC.
CASES: Mapping[str, Case] = {
    "CreateTopics": create_topics,
    "CreatePartitions": create_partitions,
    "DeleteTopics": delete_topics,
    "AlterPartitionReassignments": reassign,
    "ElectLeaders": elect,
    "AlterConfigs": alter_configs,
    "UpdateFeatures": update_features,
    "SetPause": set_pause,
    "SetFreeze": set_freeze,
    "ForgetBroker": forget_broker,
    "SetMaintenance": set_maintenance,
    "SetDrain": set_drain,
    "ApproveStop": approve_stop,
    "WithdrawStopApproval": withdraw,
    "CancelShutdown": cancel_shutdown,
    "ControlledShutdown": controlled_shutdown,
    "AllocateProducerIds": allocate_producer_ids,
    "AlterPartition": alter_partition,
}
