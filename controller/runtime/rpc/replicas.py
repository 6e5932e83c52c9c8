"""What replicas are on their brokers' disks: sizes, lag, failed disks (Kafka's DescribeLogDirs, KIP-113)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from controller.core.model import Broker, Cluster
from controller.errors import ControllerError
from controller.runtime.kafka.asking import BrokerQuestions
from controller.runtime.kafka.endpoints import kafka_brokers
from proto.gen import inspection_pb2 as pb
from proto.gen.kafka.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest
from proto.gen.kafka.describe_log_dirs_response import DescribeLogDirsResponse

_UNKNOWN = -1


class _OnDisk(NamedTuple):
    size_bytes: int
    offset_lag: int


#: By topic and partition.
_Replicas = Mapping[tuple[str, int], _OnDisk]


async def describe(
    cluster: Cluster, questions: BrokerQuestions, names: Iterable[str]
) -> pb.DescribeReplicasResponse:
    """All partitions of these topics that exist, or of all; each live Kafka broker is asked once. Brokers led by gRPC
    are not asked."""
    wanted = set(names)
    chosen = [
        (topic.name, sorted(topic.partitions))
        for topic in cluster.topics.values()
        if not wanted or topic.name in wanted
    ]
    asked = DescribeLogDirsRequest(
        [DescribableLogDirTopic(name, numbers) for name, numbers in chosen] if wanted else None
    )
    brokers = kafka_brokers(cluster)
    answers = await asyncio.gather(*(_asked(questions, broker, asked) for broker in brokers))
    said: dict[int, _Replicas] = {}
    response = pb.DescribeReplicasResponse()
    for broker, answer in zip(brokers, answers, strict=True):
        if isinstance(answer, str):
            response.silent.add(broker=broker.id, why=answer)
        else:
            said[broker.id] = answer
    for name, numbers in chosen:
        for number in numbers:
            # The cluster may have changed while brokers were asked.
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
                    and not cluster.is_online(partition, broker_id),
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
    return {
        (topic.name, partition.partition_index): _OnDisk(partition.partition_size, partition.offset_lag)
        for directory in answer.results
        if not directory.error_code
        for topic in directory.topics
        for partition in topic.partitions
        if not partition.is_future_key
    }
