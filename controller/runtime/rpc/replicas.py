"""What replicas are on their brokers' disks: sizes, lag, failed disks (Kafka's DescribeLogDirs, KIP-113)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from controller.core.model import Broker, Cluster, ControlProtocol
from controller.errors import ControllerError
from controller.runtime.audit.transport import StateTransport
from controller.runtime.kafka.asking import BrokerQuestions
from controller.runtime.kafka.endpoints import kafka_brokers
from controller.runtime.push.transport import UnreachableError
from proto.gen import broker_control_pb2 as control
from proto.gen import inspection_pb2 as pb
from proto.gen.kafka.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest
from proto.gen.kafka.describe_log_dirs_response import DescribeLogDirsResponse

#: Partitions that are read or told before others of the event loop have their turn.
AT_ONCE = 1000
#: Callers for whom brokers are asked at once, each by connections of its own; more wait.
CALLERS_MAX = 8
_UNKNOWN = -1


class _OnDisk(NamedTuple):
    size_bytes: int
    offset_lag: int


#: Replicas by topic and partition.
_Replicas = Mapping[tuple[str, int], _OnDisk]


async def describe(
    cluster: Cluster,
    questions: BrokerQuestions,
    open_transport: Callable[[], StateTransport],
    names: Iterable[str],
) -> pb.DescribeReplicasResponse:
    """All partitions of these topics that exist, or of all; each live broker is asked once, by Kafka's protocol or, on
    a transport from ``open_transport``, by gRPC."""
    wanted = set(names)
    chosen = [
        (topic.name, sorted(topic.partitions))
        for topic in cluster.topics.values()
        if not wanted or topic.name in wanted
    ]
    asked = DescribeLogDirsRequest(
        [DescribableLogDirTopic(name, numbers) for name, numbers in chosen] if wanted else None
    )
    kafka = kafka_brokers(cluster)
    by_grpc = [b for b in cluster.brokers.values() if b.control_protocol is ControlProtocol.GRPC]
    brokers = [*kafka, *by_grpc]
    page = control.LogDirsPage(topics=sorted(wanted))
    answers = await asyncio.gather(
        *(_asked(questions, broker, asked) for broker in kafka),
        *(_asked_by_grpc(open_transport(), broker, page) for broker in by_grpc),
    )
    said: dict[int, _Replicas] = {}
    response = pb.DescribeReplicasResponse()
    for broker, answer in zip(brokers, answers, strict=True):
        if isinstance(answer, str):
            response.silent.add(broker=broker.id, why=answer)
        else:
            said[broker.id] = answer
    for name, numbers in chosen:
        for number in numbers:
            if len(response.partitions) % AT_ONCE == 0:
                await asyncio.sleep(0)
            # The cluster may have changed while brokers were asked, or since.
            partition = cluster.partition(name, number)
            if partition is None:
                continue
            row = response.partitions.add(topic=name, partition=number)
            for broker_id in partition.replicas:
                found = said.get(broker_id, {}).get((name, number), _OnDisk(_UNKNOWN, _UNKNOWN))
                row.replicas.add(
                    broker=broker_id,
                    size_bytes=found.size_bytes,
                    offset_lag=found.offset_lag,
                    on_failed_disk=broker_id in cluster.brokers
                    and not cluster.is_reachable(partition, broker_id),
                )
    return response


async def _asked(
    questions: BrokerQuestions, broker: Broker, request: DescribeLogDirsRequest
) -> _Replicas | str:
    """What is on a broker's disks, without replicas that move in from another of its disks; or why it does not say."""
    try:
        answer = await questions.ask(broker, request)
    except ControllerError as error:
        return str(error)
    assert isinstance(answer, DescribeLogDirsResponse)
    # A denial is an empty list up to version 2.
    if answer.error_code or not answer.results:
        return "it does not tell us: our user needs Describe on the cluster there"
    return await _by_partition(
        ((topic.name, partition.partition_index), _OnDisk(partition.partition_size, partition.offset_lag))
        for directory in answer.results
        if not directory.error_code
        for topic in directory.topics
        for partition in topic.partitions
        if not partition.is_future_key
    )


async def _asked_by_grpc(
    transport: StateTransport, broker: Broker, page: control.LogDirsPage
) -> _Replicas | str:
    """What is on the disks of a broker led by gRPC; or why it does not say."""
    try:
        answer = await transport.describe_state(broker, control.DescribeStateRequest(log_dirs=page))
    except (ControllerError, UnreachableError) as error:
        return str(error)
    finally:
        await transport.close()
    return await _by_partition(
        ((r.topic, r.partition), _OnDisk(r.size_bytes, r.offset_lag)) for r in answer.on_disk
    )


async def _by_partition(found: Iterable[tuple[tuple[str, int], _OnDisk]]) -> _Replicas:
    replicas: dict[tuple[str, int], _OnDisk] = {}
    for partition, on_disk in found:
        replicas[partition] = on_disk
        if len(replicas) % AT_ONCE == 0:
            await asyncio.sleep(0)
    return replicas
