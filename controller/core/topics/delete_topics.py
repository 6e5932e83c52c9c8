"""DeleteTopics: writes deletion markers, which are then processed like those of other tools (reference, section
7.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from controller.core.commits import ATTEMPTS_MAX, BATCH_WRITES
from controller.core.context import CoreSettings, EventContext, Handler
from controller.core.effects import Committed, CreateNode
from controller.core.model import Cluster
from controller.core.names import shown, topic_name_problem
from controller.core.records import Rejection
from controller.core.requests.errors import ErrorCode
from controller.core.requests.topics import DeleteTopics, DeleteTopicsReply, TopicAnswer, TopicRef
from controller.core.znode_paths import deletion_path, topic_path


def delete_topics(context: EventContext, serial: int, request: DeleteTopics) -> Handler[None]:
    """Write markers for valid topics, and answer when they are durable.

    A topic that is being deleted already is a success, as in the original.
    """
    named = [TopicRef(_name(context.cluster, ref), ref.topic_id) for ref in request.topics]
    times = Counter(ref.name for ref in named)
    answers = [
        validate(context.cluster, context.settings, asked, found.name, times[found.name])
        for asked, found in zip(request.topics, named, strict=True)
    ]
    failed = yield from _mark(context, [a.name for a in answers if a.error is ErrorCode.NONE])
    answers = [
        TopicAnswer(a.name, a.topic_id, ErrorCode.UNKNOWN_SERVER_ERROR, failed[a.name])
        if a.name in failed
        else a
        for a in answers
    ]
    context.log(
        [
            Rejection(a.error.name, f"DeleteTopics of {a.name or a.topic_id!r}: {a.message}")
            for a in answers
            if a.error is not ErrorCode.NONE
        ],
    )
    context.reply(serial, DeleteTopicsReply(ErrorCode.NONE, answers))


def _name(cluster: Cluster, ref: TopicRef) -> str:
    """The name of a topic that is given by name or by id; empty if there is none with the id."""
    found = None if ref.name else cluster.topic_by_id(ref.topic_id)
    return ref.name if found is None else found.name


def validate(cluster: Cluster, settings: CoreSettings, asked: TopicRef, name: str, times: int) -> TopicAnswer:
    """The result for one topic, errors in Kafka's order. ``name``: as requested, or found by the id; ``times``: how
    often the request names it."""
    topic = cluster.topics.get(name)
    topic_id = topic.id if topic is not None else asked.topic_id

    def refused(error: ErrorCode, message: str) -> TopicAnswer:
        return TopicAnswer(name, topic_id, error, message)

    if not settings.delete_topic_enable:
        return refused(ErrorCode.TOPIC_DELETION_DISABLED, "delete_topic_enable is false")
    if bool(asked.name) == bool(asked.topic_id):
        return refused(ErrorCode.INVALID_REQUEST, "either a name or an id must be given, and not both")
    if not name:
        return refused(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {shown(asked.topic_id)}")
    if times > 1:
        return refused(ErrorCode.INVALID_REQUEST, "it is named more than once")
    if topic is None and topic_path(name) not in cluster.problems:
        return refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such topic")
    if problem := topic_name_problem(name):
        return refused(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    return TopicAnswer(name, topic_id, ErrorCode.NONE)


def _mark(context: EventContext, names: Sequence[str]) -> Handler[dict[str, str]]:
    """Write markers, with retries; existing ones are no conflict. Returns the failed names, with the reason as text."""
    failed: dict[str, str] = {}
    for start in range(0, len(names), BATCH_WRITES):
        batch = names[start : start + BATCH_WRITES]
        reason = ""
        for _ in range(ATTEMPTS_MAX):
            outcome = yield from context.commit([CreateNode(deletion_path(name)) for name in batch])
            if isinstance(outcome, Committed):
                break
            reason = outcome.reason
        else:
            failed.update(dict.fromkeys(batch, f"its marker could not be written: {reason}"))
    return failed
