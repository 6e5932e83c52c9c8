"""The answer to DescribeState: digests of what earlier requests told, and the state behind them in pages. Pure."""

from __future__ import annotations

from itertools import islice

from broker_stub.control.gates import Gate
from broker_stub.control.metadata import MetadataCache
from broker_stub.control.replicas import Replica, Replicas
from broker_stub.control.requests import PartitionMetadata
from proto.gen import broker_control_pb2 as wire

#: Topics, or partitions, in one page.
PAGE_MAX = 5_000


def answer(
    request: wire.DescribeStateRequest,
    gate: Gate,
    controller_epoch: int,
    replicas: Replicas,
    metadata: MetadataCache,
) -> wire.DescribeStateResponse:
    """The whole answer; the caller keeps others from changing what it reads."""
    response = wire.DescribeStateResponse(
        controller_epoch=controller_epoch,
        broker_epoch=gate.broker_epoch,
        digests=wire.StateDigests(
            hosted=replicas.digest.total, metadata=metadata.digest.total, offline=metadata.offline.total
        ),
    )
    match request.WhichOneof("page"):
        case "topics":
            _topics(response, request.topics.after, replicas, metadata)
        case "partitions":
            _partitions(response, request.partitions, replicas, metadata)
    return response


def _topics(
    response: wire.DescribeStateResponse, after: str, replicas: Replicas, metadata: MetadataCache
) -> None:
    hosted, known, offline = (
        replicas.digest.by_topic,
        metadata.digest.by_topic,
        metadata.offline.by_topic,
    )
    names = sorted(name for name in hosted.keys() | known.keys() if name > after)
    response.more = len(names) > PAGE_MAX
    response.topics.extend(
        wire.TopicDigests(
            topic=name,
            digests=wire.StateDigests(
                hosted=hosted.get(name, 0), metadata=known.get(name, 0), offline=offline.get(name, 0)
            ),
        )
        for name in names[:PAGE_MAX]
    )


def _partitions(
    response: wire.DescribeStateResponse,
    page: wire.PartitionPage,
    replicas: Replicas,
    metadata: MetadataCache,
) -> None:
    hosted = {r.partition: r for r in replicas.of_topic(page.topic)}
    known = {item.key[1]: item for item in metadata.partitions(page.topic)}
    numbers = iter(sorted(n for n in hosted.keys() | known.keys() if n >= page.first))
    for number in islice(numbers, PAGE_MAX):
        if (replica := hosted.get(number)) is not None:
            response.hosted.append(_replica(replica))
        if (item := known.get(number)) is not None:
            response.known.append(_known(item))
    response.more = next(numbers, None) is not None
    response.topic_id = metadata.topic_id(page.topic) or ""


def _replica(replica: Replica) -> wire.HostedReplica:
    return wire.HostedReplica(
        partition=replica.partition,
        role=replica.role.value,
        topic_id=replica.topic_id or "",
        leader=replica.leader,
        leader_epoch=replica.leader_epoch,
        partition_epoch=replica.partition_epoch,
        isr=replica.isr,
    )


def _known(item: PartitionMetadata) -> wire.KnownPartition:
    return wire.KnownPartition(
        partition=item.key[1],
        leader=item.leader,
        leader_epoch=item.leader_epoch,
        partition_epoch=item.partition_epoch,
        isr=item.isr,
        replicas=item.replicas,
    )
