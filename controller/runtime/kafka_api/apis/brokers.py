"""AlterPartition, ControlledShutdown and AllocateProducerIds: requests of brokers (reference, sections 6, 8.4, 8.6)."""

from __future__ import annotations

from collections import Counter

from controller.core.requests.brokers import (
    AllocateProducerIds,
    Altered,
    AlterPartition,
    ControlledShutdown,
    Proposal,
)
from controller.core.requests.errors import ErrorCode
from controller.runtime.kafka.topic_ids import uuid_text
from controller.runtime.kafka_api.call import Call
from proto.gen.kafka.allocate_producer_ids_request import AllocateProducerIdsRequest
from proto.gen.kafka.allocate_producer_ids_response import AllocateProducerIdsResponse
from proto.gen.kafka.alter_partition_request import AlterPartitionRequest
from proto.gen.kafka.alter_partition_request import PartitionData as ProposedPartition
from proto.gen.kafka.alter_partition_response import AlterPartitionResponse, PartitionData, TopicData
from proto.gen.kafka.controlled_shutdown_request import ControlledShutdownRequest
from proto.gen.kafka.controlled_shutdown_response import ControlledShutdownResponse, RemainingPartition

#: From this version on, topics are named by their ids.
_TOPIC_IDS = 2
#: From this version on, members of a new ISR come with their broker epochs (KIP-903). Kafka's brokers send -1 to a
#: controller in ZooKeeper mode.
_ISR_WITH_EPOCHS = 3


async def alter_partition(call: Call[AlterPartitionRequest]) -> AlterPartitionResponse:
    request = call.request
    if not call.may_act_as(request.broker_id):
        return AlterPartitionResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    # As in Kafka, a topic is answered once, and of a partition that is named twice the last proposal counts.
    asked: dict[tuple[str, bytes], dict[int, ProposedPartition]] = {}
    for topic in request.topics:
        asked.setdefault((topic.topic_name, topic.topic_id), {}).update(
            (p.partition_index, p) for p in topic.partitions
        )
    proposals = [
        _proposal(call, partition, *_named(call, *key))
        for key, partitions in asked.items()
        for partition in partitions.values()
    ]
    reply = await call.ask(AlterPartition(request.broker_id, request.broker_epoch, proposals))
    for error, count in Counter(each.error for each in reply.partitions).items():
        call.controller.daemon.metrics.altered_partitions.labels(error.name).inc(count)
    answers = iter(reply.partitions)
    topics = [
        TopicData(topic_name=name, topic_id=id_, partitions=[_shown(next(answers)) for _ in partitions])
        for (name, id_), partitions in (asked if reply.partitions else {}).items()
    ]
    return AlterPartitionResponse(error_code=reply.error, topics=topics)


def _named(call: Call[AlterPartitionRequest], name: str, topic_id: bytes) -> tuple[str, str]:
    """Name and id of a topic, as the core expects them; an unknown id has no name."""
    if call.version < _TOPIC_IDS:
        return name, ""
    text = uuid_text(topic_id)
    return call.controller.topic_name(text), text


def _proposal(
    call: Call[AlterPartitionRequest], asked: ProposedPartition, name: str, topic_id: str
) -> Proposal:
    with_epochs = call.version >= _ISR_WITH_EPOCHS
    members = asked.new_isr_with_epochs
    isr = [member.broker_id for member in members] if with_epochs else asked.new_isr
    return Proposal(
        name,
        topic_id,
        asked.partition_index,
        asked.leader_epoch,
        tuple(isr),
        asked.leader_recovery_state,
        asked.partition_epoch,
        tuple([member.broker_epoch for member in members]) if with_epochs else (),
    )


def _shown(altered: Altered) -> PartitionData:
    """The result for one partition; a refused one has Kafka's defaults in the place of a state."""
    state = altered.state
    if state is None:
        return PartitionData(partition_index=altered.partition, error_code=altered.error)
    return PartitionData(
        partition_index=altered.partition,
        error_code=altered.error,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        leader_recovery_state=state.recovery,
        partition_epoch=state.partition_epoch,
    )


async def controlled_shutdown(call: Call[ControlledShutdownRequest]) -> ControlledShutdownResponse:
    request = call.request
    if not call.may_act_as(request.broker_id):
        return ControlledShutdownResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    epoch = request.broker_epoch if call.version >= 2 else None
    reply = await call.ask(ControlledShutdown(request.broker_id, epoch))
    return ControlledShutdownResponse(
        error_code=reply.error,
        remaining_partitions=[
            RemainingPartition(topic_name=name, partition_index=number) for name, number in reply.remaining
        ],
    )


async def allocate_producer_ids(call: Call[AllocateProducerIdsRequest]) -> AllocateProducerIdsResponse:
    request = call.request
    if not call.may_act_as(request.broker_id):
        return AllocateProducerIdsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    reply = await call.ask(AllocateProducerIds(request.broker_id, request.broker_epoch))
    return AllocateProducerIdsResponse(
        error_code=reply.error, producer_id_start=reply.start, producer_id_len=reply.length
    )
