"""CreateTopics and CreatePartitions: validate, place, write, and initialise at once (reference, section 7).

A topic and its configuration are written in one fenced multi: no crash leaves a configuration without a topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from controller.core.commits import ATTEMPTS_MAX
from controller.core.config_keys import TOPIC_KEYS
from controller.core.context import EventContext, Handler, Pause
from controller.core.effects import (
    Committed,
    CreateTopic,
    DeleteNode,
    Problem,
    ReadNodes,
    ReadTopics,
    SetTopic,
    StoredNode,
    TopicInfo,
    Write,
    write_node,
)
from controller.core.model import BROKER_ID_MAX, BrokerIds, Cluster
from controller.core.names import listed, shown, topic_name_problem
from controller.core.partitions import replica_placement
from controller.core.partitions.replica_placement import PlacementError
from controller.core.requests.errors import ErrorCode
from controller.core.requests.topics import (
    CreatePartitions,
    CreatePartitionsReply,
    CreateTopics,
    CreateTopicsReply,
    Expanded,
    Expansion,
    NewTopic,
    TopicCreated,
)
from controller.core.topics import deletion
from controller.core.topics.changes import topics_changed, topics_modified
from controller.core.znode_paths import TOPICS, child_of, topic_config_path
from controller.core.znode_sizes import ZNODE_BYTES_MAX, assignment_bytes, config_bytes, fits, topic_bytes

Assignment = Mapping[int, BrokerIds]
_Found = TopicInfo | Problem | None
#: New partitions in one request: all other events wait until it is answered.
PARTITIONS_MAX = 100_000
#: Topic znodes in one read.
READ_TOPICS = 500


class TopicRefusedError(Exception):
    """A topic is not created or expanded; has the error code and a message."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error, self.message = error, message


@dataclass
class Batch:
    """State shared by the topics of one request: existing and new names, grouped by collision (``.`` equals ``_``); the
    start index of the next placement; partitions so far."""

    taken: dict[str, set[str]] = field(default_factory=dict)
    start: int = 0
    partitions: int = 0

    def like(self, name: str) -> set[str]:
        return self.taken.setdefault(name.replace(".", "_"), set())

    def add(self, name: str, partitions: int) -> None:
        self.like(name).add(name)
        self.start += partitions
        self.partitions += partitions

    def check(self, count: int) -> None:
        """Raises TopicRefusedError when ``count`` more partitions exceed the limit of a request."""
        if self.partitions + count > PARTITIONS_MAX:
            raise TopicRefusedError(
                ErrorCode.POLICY_VIOLATION,
                f"{count} partitions: one request may ask for at most {PARTITIONS_MAX} new ones, and asked for "
                f"{self.partitions} before",
            )


# --- creation ------------------------------------------------------------------------------------------------


def create_topics(context: EventContext, serial: int, request: CreateTopics) -> Handler[None]:
    """Validate each topic separately, write the valid ones, answer when they are durable; then elect leaders."""
    times = Counter(topic.name for topic in request.topics)
    # Topics start at different brokers, so that the first broker does not lead all small ones.
    batch = Batch(start=sum(len(known.partitions) for known in context.cluster.topics.values()))
    for name in context.cluster.topics.keys() | _unreadable(context.cluster):
        batch.like(name).add(name)
    answers: list[TopicCreated] = []
    for topic in request.topics:
        try:
            if times[topic.name] > 1:
                raise TopicRefusedError(ErrorCode.INVALID_REQUEST, "it is named more than once")
            assignment = validate_creation(context.cluster, topic, batch)
            topic_id = ""
            if not request.validate_only:
                topic_id = yield from _create(context, topic, assignment)
            batch.add(topic.name, len(assignment))
            remark = _remark(context.cluster, assignment, topic.configs)
            answers.append(TopicCreated(topic.name, ErrorCode.NONE, remark, topic_id, assignment))
        except TopicRefusedError as refused:
            context.reject(refused.error.name, f"CreateTopics of {shown(topic.name)}: {refused.message}")
            answers.append(TopicCreated(topic.name, refused.error, refused.message))
        yield Pause.YIELD
    context.reply(serial, CreateTopicsReply(ErrorCode.NONE, answers))
    if not request.validate_only and any(answer.error is ErrorCode.NONE for answer in answers):
        # At once, so that the next request finds them; the event of the watch will find no change.
        yield from topics_changed(context)


def _unreadable(cluster: Cluster) -> set[str]:
    """Names of topics whose znode does not decode."""
    return {name for path in cluster.problems if (name := child_of(TOPICS, path)) is not None}


def validate_creation(cluster: Cluster, topic: NewTopic, batch: Batch) -> dict[int, BrokerIds]:
    """The assignment of a new topic. Raises TopicRefusedError: the first error in Kafka's order of checks."""
    if problem := topic_name_problem(topic.name):
        raise TopicRefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    taken = batch.like(topic.name)
    if topic.name in taken and not cluster.deletion_requested(topic.name):
        raise TopicRefusedError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {topic.name!r} exists already")
    if cluster.deletion_requested(topic.name):
        why = f"topic {topic.name!r} is being deleted: try again when that is done"
        raise TopicRefusedError(ErrorCode.TOPIC_ALREADY_EXISTS, why)
    if taken:
        why = f"topic {topic.name!r} collides with {min(taken)!r}: names must differ in more than . and _"
        raise TopicRefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, why)
    assignment = _placed(cluster, topic, batch)
    _check_size(assignment)
    _check_configs(topic.configs)
    # Both are written in one request to ZooKeeper.
    size = config_bytes(topic.configs)
    if (together := size + assignment_bytes(assignment)) > ZNODE_BYTES_MAX:
        why = f"configs: take {size} bytes, and {together} with the assignment: must be at most {ZNODE_BYTES_MAX}"
        raise TopicRefusedError(ErrorCode.INVALID_CONFIG, why)
    return assignment


def _placed(cluster: Cluster, topic: NewTopic, batch: Batch) -> dict[int, BrokerIds]:
    if topic.assignment:
        if (topic.partitions, topic.replication_factor) != (None, None):
            why = "an assignment says how many partitions and replicas there are: leave both numbers out"
            raise TopicRefusedError(ErrorCode.INVALID_REQUEST, why)
        _check_assignment(topic.assignment)
        if named := sorted(cluster.phantoms() & {b for ids in topic.assignment.values() for b in ids}):
            why = f"replica assignment: {named} are ids of controllers, not of brokers"
            raise TopicRefusedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
        _check_kinds(cluster, topic.assignment)
        batch.check(len(topic.assignment))
        return {number: tuple(topic.assignment[number]) for number in sorted(topic.assignment)}
    partitions = 1 if topic.partitions is None else topic.partitions
    factor = 1 if topic.replication_factor is None else topic.replication_factor
    return _assigned(cluster, partitions, factor, batch)


def _assigned(
    cluster: Cluster, partitions: int, factor: int, batch: Batch, present: int = 0, leader: int | None = None
) -> dict[int, BrokerIds]:
    """The assignment of new partitions, numbered from ``present`` on. ``leader``: preferred leader of the topic's first
    partition; None for a new topic."""
    if partitions < 1:
        raise TopicRefusedError(
            ErrorCode.INVALID_PARTITIONS, f"partitions = {partitions}: must be at least 1"
        )
    # A lower bound of the JSON size, checked first because placing very many partitions takes long.
    if partitions * (6 + 2 * max(factor, 1)) > ZNODE_BYTES_MAX:
        raise TopicRefusedError(
            ErrorCode.INVALID_PARTITIONS, _too_large(f"{partitions} partitions need more")
        )
    batch.check(partitions)
    drained = cluster.maintenance.drained
    candidates = list(cluster.brokers.values())
    if leader is not None and (led_by := cluster.brokers.get(leader)) is not None:
        candidates = [b for b in candidates if b.control_protocol is led_by.control_protocol]
    elif factor > 1 and (problem := cluster.strangers(cluster.brokers)):
        why = f"{problem}: name the replicas in an assignment"
        raise TopicRefusedError(ErrorCode.INVALID_REPLICATION_FACTOR, why)
    brokers, taken = replica_placement.avoiding(candidates, drained, factor)
    start = batch.start if leader is None else replica_placement.start_after(brokers, leader)
    try:
        placed = replica_placement.assign_replicas(brokers, partitions, factor, start, present)
    except PlacementError as error:
        raise TopicRefusedError(ErrorCode.INVALID_REPLICATION_FACTOR, str(error)) from None
    if not taken:
        return placed
    # Drained brokers come last, so that another broker is the preferred leader.
    return {n: tuple(sorted(ids, key=drained.__contains__)) for n, ids in placed.items()}


def _remark(cluster: Cluster, assignment: Assignment, configs: Collection[str] = ()) -> str:
    """Warnings: drained brokers that get replicas, keys that are not known; empty without any."""
    used = {b for ids in assignment.values() for b in ids}
    marks = cluster.maintenance.drained
    drained = [f"{b} ({marks[b].author}: {marks[b].reason})" for b in sorted(marks) if b in used]
    unknown = [shown(key) for key in configs if key not in TOPIC_KEYS]
    found = [f"it gets replicas on drained brokers: {', '.join(drained)}"] if drained else []
    if unknown:
        found.append(f"configuration that is not known, and was not checked: {listed(unknown)}")
    return "; ".join(found)


def _check_assignment(assignment: Assignment) -> None:
    """Raises TopicRefusedError for an invalid manual assignment. Brokers that are not registered are allowed."""
    error = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    try:
        replica_placement.check_assignment(assignment)
    except PlacementError as problem:
        raise TopicRefusedError(error, str(problem)) from None
    if sorted(assignment) != list(range(len(assignment))):
        numbers = sorted(assignment)[:5]
        raise TopicRefusedError(
            error, f"replica assignment: partitions {numbers}...: must count up from 0 without gaps"
        )
    for number, replicas in assignment.items():
        if max(replicas) > BROKER_ID_MAX:
            why = f"replica assignment of partition {number}: broker ids must be at most {BROKER_ID_MAX}"
            raise TopicRefusedError(error, why)


def _check_kinds(cluster: Cluster, assignment: Assignment) -> None:
    for number, replicas in assignment.items():
        if problem := cluster.strangers(replicas):
            why = f"replica assignment of partition {number}: {problem}"
            raise TopicRefusedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)


def _check_size(assignment: Assignment) -> None:
    if (size := assignment_bytes(assignment)) > ZNODE_BYTES_MAX:
        raise TopicRefusedError(
            ErrorCode.INVALID_PARTITIONS, _too_large(f"{len(assignment)} partitions need {size}")
        )


def _too_large(what: str) -> str:
    return f"{what} bytes in the topic's znode: must be at most {ZNODE_BYTES_MAX}"


def _check_configs(configs: Mapping[str, str]) -> None:
    """Raises TopicRefusedError for invalid values. Unknown keys are kept: brokers may know them."""
    problems = ["a key is empty"] if any(not key.strip() for key in configs) else []
    for key, value in configs.items():
        check = TOPIC_KEYS.get(key)
        if check is not None and (problem := check(value)):
            problems.append(f"{key} = {shown(value)}: {problem}")
    if problems:
        raise TopicRefusedError(ErrorCode.INVALID_CONFIG, listed(problems))


def _create(context: EventContext, topic: NewTopic, assignment: Assignment) -> Handler[str]:
    """Write configuration and topic together, with retries; returns the topic id. Raises TopicRefusedError.

    A stored configuration of a former topic with that name is replaced, also one that does not decode.
    """
    topic_id = context.new_topic_id() if context.cluster.topic_ids_known else ""
    info = TopicInfo(topic.name, topic_id, dict(assignment), {}, {}, -1, 0)
    path = topic_config_path(topic.name)
    reason = ""
    for _ in range(ATTEMPTS_MAX):
        (found,) = yield from context.read(ReadNodes([path]))
        writes: list[Write] = [DeleteNode(path)] if isinstance(found, Problem) else []
        version = found.version if isinstance(found, StoredNode) else None
        writes += [write_node(path, dict(topic.configs), version), CreateTopic(info)]
        outcome = yield from context.commit(writes)
        if isinstance(outcome, Committed):
            return info.topic_id
        reason = outcome.reason
        (stored,) = yield from context.read(ReadTopics([topic.name]))
        if isinstance(stored, TopicInfo) and (stored.topic_id or stored.partitions) == (
            topic_id or assignment
        ):
            return info.topic_id
        if stored is not None:
            why = f"topic {topic.name!r} exists already: another process created it meanwhile"
            raise TopicRefusedError(ErrorCode.TOPIC_ALREADY_EXISTS, why)
    why = f"not written in {ATTEMPTS_MAX} attempts; the last: {reason}"
    raise TopicRefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, why)


# --- expansion -----------------------------------------------------------------------------------------------


def create_partitions(context: EventContext, serial: int, request: CreatePartitions) -> Handler[None]:
    """Validate each topic separately, add partitions, answer when they are durable; then elect leaders."""
    times = Counter(expansion.name for expansion in request.expansions)
    names = [name for name, number in times.items() if number == 1 and not topic_name_problem(name)]
    known: dict[str, _Found] = {}
    for n in range(0, len(names), READ_TOPICS):
        some = names[n : n + READ_TOPICS]
        known.update(zip(some, (yield from context.read(ReadTopics(some))), strict=True))
    batch = Batch()
    answers: list[Expanded] = []
    for expansion in request.expansions:
        try:
            if times[expansion.name] > 1:
                raise TopicRefusedError(ErrorCode.INVALID_REQUEST, "it is named more than once")
            if problem := topic_name_problem(expansion.name):
                raise TopicRefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
            info = known[expansion.name]
            added = yield from _expand(context, expansion, info, batch, write=not request.validate_only)
            batch.partitions += len(added)
            remark = _remark(context.cluster, added)
            answers.append(Expanded(expansion.name, ErrorCode.NONE, remark, added))
        except TopicRefusedError as refused:
            context.reject(
                refused.error.name, f"CreatePartitions of {shown(expansion.name)}: {refused.message}"
            )
            answers.append(Expanded(expansion.name, refused.error, refused.message))
        yield Pause.YIELD
    context.reply(serial, CreatePartitionsReply(ErrorCode.NONE, answers))
    expanded = [answer.name for answer in answers if answer.error is ErrorCode.NONE]
    if expanded and not request.validate_only:
        yield from topics_modified(context, expanded)
        yield from deletion.admit(context)


def validate_expansion(
    cluster: Cluster, expansion: Expansion, info: TopicInfo | None, batch: Batch
) -> dict[int, BrokerIds]:
    """The assignment of the new partitions. ``info``: the stored topic znode. Raises TopicRefusedError: the first error
    in Kafka's order of checks."""
    name, count = expansion.name, expansion.count
    if cluster.deletion_requested(name):
        raise TopicRefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name!r} is being deleted")
    if info is None or not info.partitions:
        raise TopicRefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {name!r}")
    moving = sorted(info.adding.keys() | info.removing.keys())
    if moving:
        why = f"{name}-{moving[0]} is being reassigned: try again when that is done"
        raise TopicRefusedError(ErrorCode.REASSIGNMENT_IN_PROGRESS, why)
    present = len(info.partitions)
    if count <= present:
        why = f"count = {count}: must be more than the {present} partitions there are"
        raise TopicRefusedError(ErrorCode.INVALID_PARTITIONS, why)
    first = info.partitions[min(info.partitions)]
    if expansion.assignment:
        batch.check(count - present)
        added = _by_hand(cluster, expansion, present, len(first))
    else:
        added = _assigned(cluster, count - present, len(first), batch, present, first[0])
    # A topic that somebody wrote may leave numbers out: those that there are keep their replicas.
    free = (number for number in range(count) if number not in info.partitions)
    return dict(zip(free, added.values(), strict=False))


def _by_hand(cluster: Cluster, expansion: Expansion, present: int, factor: int) -> dict[int, BrokerIds]:
    """Check a manual assignment. Unlike at creation, all brokers must be registered, and the replication factor must
    equal the topic's."""
    error = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    given, wanted = len(expansion.assignment), expansion.count - present
    if given != wanted:
        raise TopicRefusedError(error, f"{given} assignments for {wanted} new partitions: must be as many")
    _check_assignment(dict(enumerate(expansion.assignment)))
    unknown = sorted({b for ids in expansion.assignment for b in ids} - cluster.brokers.keys())
    if unknown:
        raise TopicRefusedError(error, f"replica assignment: brokers {unknown} are not registered")
    if len(expansion.assignment[0]) != factor:
        why = (
            f"replica assignment: {len(expansion.assignment[0])} replicas: must be {factor} as in the others"
        )
        raise TopicRefusedError(error, why)
    added = dict(enumerate(expansion.assignment, present))
    _check_kinds(cluster, added)
    return added


def _expand(
    context: EventContext, expansion: Expansion, info: _Found, batch: Batch, *, write: bool
) -> Handler[dict[int, BrokerIds]]:
    """Validate and write; after a conflict read the topic again and retry. Raises TopicRefusedError."""
    reason = ""
    tried: dict[int, BrokerIds] = {}
    for _ in range(ATTEMPTS_MAX):
        if isinstance(info, Problem):
            context.problem(info)
            raise TopicRefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{info.path}: {info.problem}")
        if info is not None and tried and tried.items() <= info.partitions.items():
            return tried
        added = validate_expansion(context.cluster, expansion, info, batch)
        assert info is not None
        expanded = replace(info, partitions={**info.partitions, **added})
        if not fits(expanded):
            why = _too_large(f"{len(expanded.partitions)} partitions need {topic_bytes(expanded)}")
            raise TopicRefusedError(ErrorCode.INVALID_PARTITIONS, why)
        if not write:
            return added
        tried = added
        outcome = yield from context.commit([SetTopic(expanded)])
        if isinstance(outcome, Committed):
            return added
        reason = outcome.reason
        (info,) = yield from context.read(ReadTopics([expansion.name]))
    why = f"not written in {ATTEMPTS_MAX} attempts; the last: {reason}"
    raise TopicRefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, why)
