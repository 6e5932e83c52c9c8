"""CreateTopics, CreatePartitions and DeleteTopics (reference, section 7; KIP-4, KIP-195, KIP-516)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from controller.core.config_keys import is_sensitive
from controller.core.requests.errors import ErrorCode
from controller.core.requests.topics import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    Expansion,
    NewTopic,
    TopicAnswer,
    TopicCreated,
    TopicRef,
)
from controller.runtime.kafka.topic_ids import uuid_bytes, uuid_text
from controller.runtime.kafka_api.call import Call, message_of
from controller.runtime.term import Term
from proto.gen.kafka.create_partitions_request import CreatePartitionsRequest
from proto.gen.kafka.create_partitions_response import CreatePartitionsResponse, CreatePartitionsTopicResult
from proto.gen.kafka.create_topics_request import CreatableTopic, CreateTopicsRequest
from proto.gen.kafka.create_topics_response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from proto.gen.kafka.delete_topics_request import DeleteTopicsRequest
from proto.gen.kafka.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from proto.security.authorization import CLUSTER, Operation, topic

#: The number that a caller leaves to the controller.
_NOT_GIVEN = -1
#: Kafka's number for "set for this topic".
_DYNAMIC_TOPIC_CONFIG = 1
_NO_ANSWER_IN_TIME = "the request timed out: it goes on"


class _RefusedError(Exception):
    """A topic that the core is not asked about."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error, self.message = error, message


async def create_topics(call: Call[CreateTopicsRequest]) -> CreateTopicsResponse:
    """Topics in the request's order, each once. The answer waits until each created partition has a leader."""
    request = call.request
    times = Counter(asked.name for asked in request.topics)
    anywhere = call.controller.allows(call.principal, Operation.CREATE, CLUSTER, quiet=True)
    results: dict[str, TopicCreated] = {}
    wanted: list[NewTopic] = []
    for asked in request.topics:
        if asked.name in results:
            continue
        try:
            if times[asked.name] > 1:
                raise _RefusedError(ErrorCode.INVALID_REQUEST, "it is named more than once")
            if not (anywhere or call.may_topic(Operation.CREATE, asked.name)):
                raise _RefusedError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not authorized to create it")
            wanted.append(_new_topic(call, asked))
        except _RefusedError as refused:
            results[asked.name] = TopicCreated(asked.name, refused.error, refused.message)
    reply = await call.ask(CreateTopics(wanted, request.validate_only))
    if reply.error is not ErrorCode.NONE:
        results = {name: TopicCreated(name, reply.error) for name in times}
    results.update((created.name, created) for created in reply.topics)
    if not request.validate_only:
        await _until_led(call, results, request.timeout_ms)
    configs = {new.name: new.configs for new in wanted}
    return CreateTopicsResponse(topics=[_created(results[name], configs.get(name, {})) for name in times])


def _new_topic(call: Call[CreateTopicsRequest], asked: CreatableTopic) -> NewTopic:
    """Raises _RefusedError for what the core's request cannot hold."""
    settings = call.controller.daemon.settings
    assignment = {each.partition_index: tuple(each.broker_ids) for each in asked.assignments}
    if len(assignment) < len(asked.assignments):
        raise _RefusedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned more than once")
    configs: dict[str, str] = {}
    for config in asked.configs:
        if config.value is None:
            raise _RefusedError(
                ErrorCode.INVALID_CONFIG, f"{config.name}: a new topic's value must not be null"
            )
        configs[config.name] = config.value
    partitions: int | None = asked.num_partitions
    factor: int | None = asked.replication_factor
    if partitions == _NOT_GIVEN:
        partitions = None if assignment else settings.num_partitions
    if factor == _NOT_GIVEN:
        factor = None if assignment else settings.default_replication_factor
    return NewTopic(asked.name, partitions, factor, assignment, configs)


async def _until_led(
    call: Call[CreateTopicsRequest], results: dict[str, TopicCreated], timeout_ms: int
) -> None:
    created = {name for name, each in results.items() if each.error is ErrorCode.NONE}

    def unled(term: Term) -> set[str]:
        known = term.machine.cluster.topics
        return {
            name
            for name in created
            if name not in known or any(p.leadership is None for p in known[name].partitions.values())
        }

    if not created or await call.wait_for(lambda term: not unled(term), timeout_ms):
        return
    term = call.controller.term
    for name in created if term is None else unled(term):
        results[name] = TopicCreated(name, ErrorCode.REQUEST_TIMED_OUT, _NO_ANSWER_IN_TIME)


def _created(created: TopicCreated, configs: Mapping[str, str]) -> CreatableTopicResult:
    result = CreatableTopicResult(
        name=created.name,
        error_code=created.error,
        error_message=message_of(created.error, created.message),
    )
    if created.error is ErrorCode.NONE:
        result.topic_id = uuid_bytes(created.topic_id)
        result.num_partitions = len(created.assignment)
        result.replication_factor = max((len(ids) for ids in created.assignment.values()), default=_NOT_GIVEN)
        result.configs = [
            CreatableTopicConfigs(
                name=name,
                value=None if is_sensitive(name) else value,
                config_source=_DYNAMIC_TOPIC_CONFIG,
                is_sensitive=is_sensitive(name),
            )
            for name, value in configs.items()
        ]
    return result


async def create_partitions(call: Call[CreatePartitionsRequest]) -> CreatePartitionsResponse:
    request = call.request
    times = Counter(asked.name for asked in request.topics)
    results: dict[str, CreatePartitionsTopicResult] = {}
    wanted: list[Expansion] = []
    for asked in request.topics:
        if times[asked.name] > 1:
            results[asked.name] = _expanded(
                asked.name, ErrorCode.INVALID_REQUEST, "it is named more than once"
            )
        elif not call.may_topic(Operation.ALTER, asked.name):
            why = "not authorized to alter it"
            results[asked.name] = _expanded(asked.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, why)
        else:
            placed = tuple(tuple(each.broker_ids) for each in asked.assignments or ())
            wanted.append(Expansion(asked.name, asked.count, placed))
    reply = await call.ask(CreatePartitions(wanted, request.validate_only))
    if reply.error is not ErrorCode.NONE:
        results = {name: _expanded(name, reply.error, "") for name in times}
    results.update((each.name, _expanded(each.name, each.error, each.message)) for each in reply.topics)
    grown = {each.name: each.count for each in wanted if results[each.name].error_code == ErrorCode.NONE}
    if grown and not request.validate_only:
        await call.wait_for(lambda term: _have(term, grown), request.timeout_ms)
    return CreatePartitionsResponse(results=[results[name] for name in times])


def _have(term: Term, counts: dict[str, int]) -> bool:
    topics = term.machine.cluster.topics
    return all(
        name not in topics or sum(p.leadership is not None for p in topics[name].partitions.values()) >= count
        for name, count in counts.items()
    )


def _expanded(name: str, error: ErrorCode, message: str) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=error, error_message=message_of(error, message))


async def delete_topics(call: Call[DeleteTopicsRequest]) -> DeleteTopicsResponse:
    """Topics by name or, from version 6 on, by id. A topic that the caller may not describe is unknown to it."""
    request = call.request
    if call.version >= 6:
        refs = [TopicRef(asked.name or "", uuid_text(asked.topic_id)) for asked in request.topics]
    else:
        refs = [TopicRef(name) for name in request.topic_names]
    refused = {n: refusal for n, ref in enumerate(refs) if (refusal := _not_allowed(call, ref)) is not None}
    reply = await call.ask(DeleteTopics([ref for n, ref in enumerate(refs) if n not in refused]))
    carried_out = iter(reply.topics)
    answers: list[TopicAnswer] = []
    for n, ref in enumerate(refs):
        if reply.error is not ErrorCode.NONE:
            answers.append(TopicAnswer(ref.name, ref.topic_id, reply.error))
        else:
            answers.append(refused[n] if n in refused else _unnamed(ref, next(carried_out)))
    await _until_gone(call, answers)
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=answer.name if answer.name or call.version < 6 else None,
                topic_id=uuid_bytes(answer.topic_id),
                error_code=answer.error,
                error_message=message_of(answer.error, answer.message),
            )
            for answer in answers
        ]
    )


def _unnamed(ref: TopicRef, answer: TopicAnswer) -> TopicAnswer:
    """In this protocol an empty name is a name, which no topic has."""
    if ref == TopicRef() and answer.error is ErrorCode.INVALID_REQUEST:
        return TopicAnswer("", "", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such topic")
    return answer


def _not_allowed(call: Call[DeleteTopicsRequest], ref: TopicRef) -> TopicAnswer | None:
    name = ref.name or call.controller.topic_name(ref.topic_id)
    if not name or (ref.name and ref.topic_id):
        return None
    if not ref.name and not call.controller.allows(
        call.principal, Operation.DESCRIBE, topic(name), quiet=True
    ):
        # For Kafka the name is secret, but not the id.
        return TopicAnswer("", ref.topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not authorized")
    if not call.may_topic(Operation.DELETE, name):
        return TopicAnswer(
            name, ref.topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not authorized to delete it"
        )
    return None


async def _until_gone(call: Call[DeleteTopicsRequest], answers: list[TopicAnswer]) -> None:
    """Wait until brokers heard that the topics are being deleted; then their metadata does not show them."""
    deleted = {answer.name: answer.topic_id for answer in answers if answer.error is ErrorCode.NONE}

    def begun(term: Term) -> bool:
        return all(_begun(term, name, topic_id) for name, topic_id in deleted.items())

    if deleted and not await call.wait_for(begun, call.request.timeout_ms):
        term = call.controller.term
        for n, answer in enumerate(answers):
            if answer.name in deleted and (term is None or not _begun(term, answer.name, answer.topic_id)):
                error = ErrorCode.REQUEST_TIMED_OUT
                answers[n] = TopicAnswer(answer.name, answer.topic_id, error, _NO_ANSWER_IN_TIME)


def _begun(term: Term, name: str, topic_id: str) -> bool:
    """Whether the deletion of a topic has begun. Who waited for it may have created the next one by now."""
    cluster = term.machine.cluster
    known = cluster.topics.get(name)
    return known is None or known.id != topic_id or name in cluster.topics_deletion_started
