"""ApiVersions, Metadata and DescribeCluster: what this node serves, and what the cluster is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from controller.core.cluster.features import supported_by_all
from controller.core.model import NO_LEADER, Cluster, Partition, Topic
from controller.core.names import INTERNAL_TOPICS
from controller.core.requests.errors import ErrorCode
from controller.runtime.kafka.endpoints import Node, clients_endpoint, kafka_brokers
from controller.runtime.kafka.topic_ids import uuid_bytes, uuid_text
from controller.runtime.kafka_api.call import Call
from controller.runtime.observe.loop_lag import in_turns
from controller.runtime.term import Term
from proto.gen.kafka.api_versions_request import ApiVersionsRequest
from proto.gen.kafka.api_versions_response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from proto.gen.kafka.describe_cluster_request import DescribeClusterRequest
from proto.gen.kafka.describe_cluster_response import DescribeClusterBroker, DescribeClusterResponse
from proto.gen.kafka.metadata_request import MetadataRequest
from proto.gen.kafka.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from proto.kafka.primitives import ZERO_UUID
from proto.security.authorization import Operation, topic

#: Then others have their turn.
TOPICS_AT_ONCE = 20
#: From this version on, a topic in an answer may have no name; requests name topics by id from version 10 on.
_NULL_NAMES = 12


def api_versions(ranges: Mapping[int, range], error: ErrorCode = ErrorCode.NONE) -> ApiVersionsResponse:
    """The response that lists these APIs, by number."""
    keys = [ApiVersion(api_key=key, min_version=r[0], max_version=r[-1]) for key, r in sorted(ranges.items())]
    return ApiVersionsResponse(error_code=error, api_keys=keys)


async def describe_versions(call: Call[ApiVersionsRequest]) -> ApiVersionsResponse:
    """All APIs that brokers serve: a caller of one that is not served here is hung up on, and asks a broker. If it were
    not listed, Kafka's clients would fail instead.

    Features are those that all Kafka brokers support, and the finalized levels, without an epoch: ``/feature`` may have
    been written since.
    """
    response = api_versions(call.controller.advertised())
    term = call.controller.term
    if term is not None:
        cluster = term.machine.cluster
        response.supported_features = [
            SupportedFeatureKey(f.name, f.min, f.max)
            for f in supported_by_all(kafka_brokers(cluster)).values()
        ]
        response.finalized_features = [
            FinalizedFeatureKey(name, max_version_level=level, min_version_level=level)
            for name, level in cluster.features.items()
        ]
    return response


def _nodes(call: Call[MetadataRequest] | Call[DescribeClusterRequest], term: Term) -> Iterator[Node]:
    """The brokers that speak Kafka's protocol and this controller, at their addresses on the client's listener."""
    brokers = kafka_brokers(term.machine.cluster)
    for broker in sorted(brokers, key=lambda b: b.id):
        endpoint = clients_endpoint(broker, call.controller.listeners, call.listener)
        if endpoint is not None:
            yield Node(broker.id, endpoint.host, endpoint.port, broker.rack)
    yield call.controller.own_node(brokers, call.listener)


async def metadata(call: Call[MetadataRequest]) -> MetadataResponse | None:
    """None while this controller is not active: it has no cluster state."""
    term = call.controller.term
    if term is None:
        return None
    cluster = term.machine.cluster
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=n.id, host=n.host, port=n.port, rack=n.rack)
            for n in _nodes(call, term)
        ],
        cluster_id=cluster.cluster_id or None,
        controller_id=cluster.controller_id,
    )
    asked = call.request.topics
    if asked is None or (call.version == 0 and not asked):
        async for some in in_turns(list(cluster.topics.values()), TOPICS_AT_ONCE):
            response.topics += [
                _topic(term, known)
                for known in some
                if not _goes(cluster, known)
                and call.controller.allows(call.principal, Operation.DESCRIBE, topic(known.name), quiet=True)
            ]
    else:
        once = {(each.name, each.topic_id if each.name is None else ZERO_UUID): None for each in asked}
        async for pairs in in_turns(once, TOPICS_AT_ONCE):
            response.topics += [_named(call, term, name, topic_id) for name, topic_id in pairs]
    # What was told may be a former leader's view by now.
    return response if call.controller.term is term else None


def _named(
    call: Call[MetadataRequest], term: Term, name: str | None, topic_id: bytes
) -> MetadataResponseTopic:
    found_by_id = name is None
    name = call.controller.topic_name(uuid_text(topic_id)) if name is None else name
    known = term.machine.cluster.topics.get(name)
    if name and not call.may_topic(Operation.DESCRIBE, name):
        error = ErrorCode.UNKNOWN_TOPIC_ID if found_by_id else ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif known is None or _goes(term.machine.cluster, known):
        error = ErrorCode.UNKNOWN_TOPIC_ID if found_by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        return _topic(term, known)
    nameless = None if call.version >= _NULL_NAMES else ""
    return MetadataResponseTopic(error_code=error, name=nameless if found_by_id else name, topic_id=topic_id)


def _goes(cluster: Cluster, known: Topic) -> bool:
    """Whether a topic's deletion has begun: nobody is told of it any more."""
    return known.deleted or known.name in cluster.topics_deletion_started


def _topic(term: Term, known: Topic) -> MetadataResponseTopic:
    partitions = [known.partitions[n] for n in sorted(known.partitions)]
    return MetadataResponseTopic(
        name=known.name,
        topic_id=uuid_bytes(known.id),
        is_internal=known.name in INTERNAL_TOPICS,
        partitions=[_partition(term, p) for p in partitions if p.leadership is not None],
    )


def _partition(term: Term, partition: Partition) -> MetadataResponsePartition:
    state, cluster = partition.leadership, term.machine.cluster
    assert state is not None
    led = state.leader != NO_LEADER and state.leader in cluster.brokers
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition.number,
        leader_id=state.leader if led else NO_LEADER,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=[b for b in partition.replicas if not cluster.is_online(partition, b)],
    )


async def describe_cluster(call: Call[DescribeClusterRequest]) -> DescribeClusterResponse | None:
    """None while this controller is not active."""
    term = call.controller.term
    if term is None:
        return None
    cluster = term.machine.cluster
    return DescribeClusterResponse(
        endpoint_type=call.request.endpoint_type,
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=n.id, host=n.host, port=n.port, rack=n.rack)
            for n in _nodes(call, term)
        ],
    )
