"""ElectLeaders, reassignments and UpdateFeatures (reference, sections 8.2, 8.3; KIP-455, KIP-460, KIP-584)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from controller.core.requests.elections import ElectionType, ElectLeaders, PartitionElected
from controller.core.requests.errors import ErrorCode
from controller.core.requests.features import FeatureUpdate, UpdateFeatures, UpgradeType
from controller.core.requests.reassignment import (
    AlterPartitionReassignments,
    ListPartitionReassignments,
    PartitionReassignment,
)
from controller.runtime.kafka_api.call import Call, message_of
from controller.runtime.observe.loop_lag import in_turns
from proto.gen.kafka.alter_partition_reassignments_request import AlterPartitionReassignmentsRequest
from proto.gen.kafka.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from proto.gen.kafka.elect_leaders_request import ElectLeadersRequest
from proto.gen.kafka.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from proto.gen.kafka.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from proto.gen.kafka.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from proto.gen.kafka.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from proto.gen.kafka.update_features_response import UpdatableFeatureResult, UpdateFeaturesResponse
from proto.security.authorization import Operation

_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
#: From this version on, ElectLeaders has an error for the whole request.
_ERROR_OF_THE_WHOLE = 1
#: Kafka's numbers of election types; version 0 knows the first only.
_ELECTIONS = {0: ElectionType.PREFERRED, 1: ElectionType.UNCLEAN}


async def elect_leaders(call: Call[ElectLeadersRequest]) -> ElectLeadersResponse:
    """Results by topic, each partition once. Without named partitions: those that had to be elected."""
    request = call.request
    if not call.may(Operation.ALTER):
        return no_elections(call, _DENIED)
    election = _ELECTIONS.get(request.election_type)
    if election is None:
        return no_elections(call, ErrorCode.INVALID_REQUEST)
    if election is ElectionType.UNCLEAN and not call.may(Operation.LOSE_DATA):
        return no_elections(call, _DENIED)
    named = None
    if request.topic_partitions is not None:
        named = [(t.topic, number) for t in request.topic_partitions for number in t.partitions]
    reply = await call.ask(ElectLeaders(election, named))
    if reply.error is not ErrorCode.NONE:
        return no_elections(call, reply.error)
    await call.brokers_hear(request.timeout_ms)
    by_topic: dict[str, list[PartitionResult]] = defaultdict(list)
    for elected in reply.partitions:
        by_topic[elected.topic].append(_elected(elected))
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=topic, partition_result=results)
            for topic, results in by_topic.items()
        ],
    )


def no_elections(call: Call[ElectLeadersRequest], error: ErrorCode) -> ElectLeadersResponse:
    """The response to a request that fails as a whole: the error is also each named partition's, as version 0 has no
    other place for it (``ElectLeadersRequest.getErrorResponse``)."""
    named: dict[str, dict[int, None]] = defaultdict(dict)
    for asked in call.request.topic_partitions or ():
        named[asked.topic].update(dict.fromkeys(asked.partitions))
    return ElectLeadersResponse(
        error_code=error if call.version >= _ERROR_OF_THE_WHOLE else ErrorCode.NONE,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic, partition_result=[PartitionResult(number, error, None) for number in numbers]
            )
            for topic, numbers in named.items()
        ],
    )


def _elected(elected: PartitionElected) -> PartitionResult:
    return PartitionResult(
        partition_id=elected.partition,
        error_code=elected.error,
        error_message=message_of(elected.error, elected.message),
    )


async def alter_reassignments(
    call: Call[AlterPartitionReassignmentsRequest],
) -> AlterPartitionReassignmentsResponse:
    request = call.request
    if not call.may(Operation.ALTER):
        return AlterPartitionReassignmentsResponse(error_code=_DENIED, error_message="not authorized")
    wanted = [
        PartitionReassignment(t.name, p.partition_index, None if p.replicas is None else tuple(p.replicas))
        for t in request.topics
        for p in t.partitions
    ]
    reply = await call.ask(AlterPartitionReassignments(wanted))
    answers: Sequence[ReassignablePartitionResponse] = [
        ReassignablePartitionResponse(
            partition_index=each.partition,
            error_code=each.error,
            error_message=message_of(each.error, each.message),
        )
        for each in reply.partitions
    ]
    responses, start = [], 0
    for asked in request.topics if answers else ():
        stop = start + len(asked.partitions)
        responses.append(ReassignableTopicResponse(name=asked.name, partitions=list(answers[start:stop])))
        start = stop
    return AlterPartitionReassignmentsResponse(
        error_code=reply.error, error_message=None, responses=responses
    )


async def list_reassignments(
    call: Call[ListPartitionReassignmentsRequest],
) -> ListPartitionReassignmentsResponse:
    request = call.request
    if not call.may(Operation.DESCRIBE):
        return ListPartitionReassignmentsResponse(error_code=_DENIED, error_message="not authorized")
    named = None
    if request.topics is not None:
        named = [(t.name, number) for t in request.topics for number in t.partition_indexes]
    reply = await call.ask(ListPartitionReassignments(named))
    by_topic: dict[str, list[OngoingPartitionReassignment]] = defaultdict(list)
    async for some in in_turns(reply.partitions):
        for ongoing in some:
            by_topic[ongoing.topic].append(
                OngoingPartitionReassignment(
                    partition_index=ongoing.partition,
                    replicas=list(ongoing.replicas),
                    adding_replicas=list(ongoing.adding),
                    removing_replicas=list(ongoing.removing),
                )
            )
    return ListPartitionReassignmentsResponse(
        error_code=reply.error,
        error_message=None,
        topics=[OngoingTopicReassignment(name=name, partitions=found) for name, found in by_topic.items()],
    )


async def update_features(call: Call[UpdateFeaturesRequest]) -> UpdateFeaturesResponse:
    request = call.request
    if not call.may(Operation.ALTER):
        return UpdateFeaturesResponse(error_code=_DENIED, error_message="not authorized")
    updates = [
        FeatureUpdate(each.feature, each.max_version_level, _upgrade_type(call.version, each))
        for each in request.feature_updates
    ]
    reply = await call.ask(UpdateFeatures(updates, request.validate_only))
    return UpdateFeaturesResponse(
        error_code=reply.error,
        error_message=None,
        results=[
            UpdatableFeatureResult(
                feature=each.name, error_code=each.error, error_message=message_of(each.error, each.message)
            )
            for each in reply.results
        ],
    )


def _upgrade_type(version: int, update: FeatureUpdateKey) -> UpgradeType | None:
    if version == 0:
        return UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
    known = {kind.value: kind for kind in UpgradeType}
    return known.get(update.upgrade_type)
