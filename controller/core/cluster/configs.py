"""Configuration of topics and brokers: notifications of changes, and requests.

A requested change and its notification are written in one fenced multi: no crash can leave one without the other.
Other tools write them separately, so a failover reads the configuration that decisions depend on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from controller.core.cluster import dynamic_settings
from controller.core.commits import ATTEMPTS_MAX, delete_notifications
from controller.core.config_keys import BROKER_KEYS, CONTROLLER_KEYS, TOPIC_KEYS, UNCLEAN, Check, shown_value
from controller.core.context import EventContext, Handler, Pause
from controller.core.effects import (
    Committed,
    NotifyConfig,
    Problem,
    ReadConfigChanges,
    ReadNodes,
    StoredNode,
    write_node,
)
from controller.core.model import Cluster, PartitionState
from controller.core.names import SHOWN_MAX, listed, shown, topic_name_problem
from controller.core.partitions import leader_election, partition_state_machine
from controller.core.records import EntityAltered, UncleanElectionEnabled
from controller.core.requests.configs import (
    AlterConfigs,
    AlterConfigsReply,
    ConfigAlteration,
    ConfigAltered,
    ConfigChange,
    ConfigDescribed,
    ConfigEntry,
    ConfigResource,
    ConfigScope,
    DescribeConfigs,
    DescribeConfigsReply,
)
from controller.core.requests.errors import ErrorCode
from controller.core.znode_paths import (
    BROKER_DEFAULTS,
    DEFAULT_BROKER,
    config_path,
    topic_config_path,
)
from controller.core.znode_sizes import ZNODE_BYTES_MAX, config_bytes

#: How long a notification is kept, as in Kafka: brokers disconnected for less than this miss none.
KEPT_US = 15 * 60 * 1_000_000
_KEYS: Mapping[ConfigScope, Mapping[str, Check]] = {
    ConfigScope.TOPIC: TOPIC_KEYS,
    ConfigScope.BROKER: BROKER_KEYS,
    ConfigScope.CONTROLLER: CONTROLLER_KEYS,
}
_TYPES = ("topics", "brokers", "clients", "users", "ips")


def entity_problem(entity: str) -> str | None:
    """Why a notification's entity is not valid, as text; None if it is."""
    kind, _, name = entity.partition("/")
    if kind not in _TYPES or not name:
        return f"entity {shown(entity)}: must be TYPE/NAME with a type of {', '.join(_TYPES)}"
    if kind == "topics" and (problem := topic_name_problem(name)):
        return problem
    if kind == "brokers" and not _is_broker_name(name):
        return f"entity {shown(entity)}: must name a broker id or <default>"
    return None


def _is_broker_name(name: str) -> bool:
    return name == "<default>" or (name.isascii() and name.isdigit() and len(name) <= 10)


# --- notifications ---------------------------------------------------------------------------------------------


def load(context: EventContext) -> Handler[None]:
    """At failover: arm the watch, and read the default that decisions depend on. Present notifications count as
    processed."""
    notes = yield from context.read(ReadConfigChanges())
    context.cluster.config_changes_seen = {path: context.now_us for path, _ in notes}
    yield from _read_default(context)


def config_changed(context: EventContext) -> Handler[None]:
    """Process new notifications: they may permit unclean election.

    For one topic (TopicUncleanLeaderElectionEnable) or, by the brokers' default, for all topics without an own
    setting (UncleanLeaderElectionEnable).
    """
    cluster = context.cluster
    notes = yield from context.read(ReadConfigChanges())
    topics: dict[str, None] = {}
    defaults = False
    for path, entity in notes:
        if path in cluster.config_changes_seen:
            continue
        if isinstance(entity, Problem):
            context.problem(entity)
        elif entity == DEFAULT_BROKER:
            defaults = True
        elif entity.startswith("topics/"):
            topics[entity.removeprefix("topics/")] = None
    present = {path: cluster.config_changes_seen.get(path, context.now_us) for path, _ in notes}
    for path in cluster.config_changes_seen.keys() - present.keys():
        context.solved(path)
    cluster.config_changes_seen = present
    if defaults:
        before = context.unclean_default
        yield from _read_default(context)
        if context.unclean_default and not before:
            context.log([UncleanElectionEnabled("for every topic without its own setting")])
            yield from partition_state_machine.bring_online(context)
    if topics:
        yield from _topics(context, [name for name in topics if name in cluster.topics])
    yield from _purge(context)


def purge_due(cluster: Cluster, now_us: int) -> bool:
    """Whether a notification is old enough to be deleted by ``config_changed``."""
    return min(cluster.config_changes_seen.values(), default=now_us) <= now_us - KEPT_US


def _purge(context: EventContext) -> Handler[None]:
    """Delete old notifications, as Kafka's brokers do. Their age counts from this controller's first read, so that only
    one clock matters. A failed deletion is retried after ``KEPT_US``."""
    seen = context.cluster.config_changes_seen
    old = [path for path, since_us in seen.items() if since_us <= context.now_us - KEPT_US]
    seen.update(dict.fromkeys(old, context.now_us))
    yield from delete_notifications(context, old)


def _topics(context: EventContext, names: Sequence[str]) -> Handler[None]:
    """Elect leaders for topics that may elect unclean ones now, also because they forbid it no more and the default
    permits it; none while elections are paused."""
    found = yield from context.read(ReadNodes([topic_config_path(name) for name in names]))
    for name, node in zip(names, found, strict=True):
        if isinstance(node, Problem):
            context.problem(node)
            continue
        config = node.value if node is not None else {}
        permitted = partition_state_machine.permits_unclean(context, name, config)
        if permitted and context.cluster.maintenance.paused is None:
            topic = context.cluster.topics[name]
            waiting = [
                p
                for p in topic.partitions.values()
                if p.state is PartitionState.OFFLINE and not context.cluster.is_deleting(p)
            ]
            if waiting:
                context.log([UncleanElectionEnabled(f"for topic {name}")])
                yield from partition_state_machine.to_online(context, waiting, leader_election.OFFLINE)


def _read_default(context: EventContext) -> Handler[None]:
    """Read the brokers' dynamic default of unclean election, which overrides the controller's setting. An unreadable
    one changes nothing."""
    (node,) = yield from context.read(ReadNodes([BROKER_DEFAULTS]))
    if isinstance(node, Problem):
        context.problem(node)
        return
    value = node.value.get(UNCLEAN) if node is not None else None
    if value is not None and (problem := BROKER_KEYS[UNCLEAN](value)):
        context.problem(Problem(BROKER_DEFAULTS, f"{UNCLEAN} = {value!r}: {problem}"))
        return
    context.solved(BROKER_DEFAULTS)
    context.cluster.unclean_default = None if value is None else value.strip().lower() == "true"


# --- requests to alter -----------------------------------------------------------------------------------------


def alter_configs(context: EventContext, serial: int, request: AlterConfigs) -> Handler[None]:
    """Set and delete keys, each resource separately; with ``validate_only`` nothing is written."""
    answers = []
    times = Counter(alteration.resource for alteration in request.alterations)
    for alteration in request.alterations:
        resource = alteration.resource
        error, message = _refused(context, resource)
        if times[resource] > 1:
            error, message = ErrorCode.INVALID_REQUEST, f"{shown(resource.entity)} is named more than once"
        if error is ErrorCode.NONE:
            error, message = _invalid(alteration, known_only=request.known_only)
        if error is ErrorCode.NONE:
            write, changes = not request.validate_only, alteration.changes
            error, message = yield from (
                dynamic_settings.alter(
                    context, resource.name or dynamic_settings.DEFAULT, changes, write=write
                )
                if resource.scope is ConfigScope.CONTROLLER
                else alter_entity(context, resource.entity, changes, write=write)
            )
        if error is not ErrorCode.NONE:
            context.reject(error.name, f"AlterConfigs of {shown(resource.entity)}: {message}")
        known = _KEYS[resource.scope]
        unknown = tuple(c.key for c in alteration.changes if c.key not in known)
        answers.append(ConfigAltered(resource, error, message, unknown))
        yield Pause.YIELD
    context.reply(serial, AlterConfigsReply(ErrorCode.NONE, answers))


def _refused(context: EventContext, resource: ConfigResource) -> tuple[ErrorCode, str]:
    if resource.scope is not ConfigScope.TOPIC:
        if resource.name and not _is_broker_name(resource.name):
            what = resource.scope.value.removesuffix("s")
            allowed = f"must be a {what} id, or empty for all {what}s"
            return ErrorCode.INVALID_REQUEST, f"{what} {shown(resource.name)}: {allowed}"
        return ErrorCode.NONE, ""
    if problem := topic_name_problem(resource.name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION, problem
    if resource.name not in context.cluster.topics:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {resource.name}"
    return ErrorCode.NONE, ""


def _invalid(alteration: ConfigAlteration, *, known_only: bool) -> tuple[ErrorCode, str]:
    """The error and a message with all problems of the changes; NONE if there is none. Controllers have no keys that
    are not known."""
    scope = alteration.resource.scope
    only = scope is ConfigScope.CONTROLLER or (known_only and scope is ConfigScope.TOPIC)
    known = _KEYS[alteration.resource.scope]
    times = Counter(change.key for change in alteration.changes)
    problems = []
    for change in alteration.changes:
        if not change.key.strip():
            problems.append("a key is empty")
        elif times[change.key] > 1:
            return ErrorCode.INVALID_REQUEST, f"{shown(change.key)} is changed more than once"
        elif only and change.value is not None and change.key not in known:
            near = get_close_matches(change.key[:SHOWN_MAX], known, 3)
            hint = f"; similar: {', '.join(near)}" if near else ""
            problems.append(f"{shown(change.key)} is not known for {scope.value}{hint}")
        elif change.value is not None and (check := known.get(change.key)) is not None:
            problem = check(change.value)
            if problem is not None:
                problems.append(f"{change.key} = {shown(change.value)}: {problem}")
    return (ErrorCode.INVALID_CONFIG, listed(problems)) if problems else (ErrorCode.NONE, "")


def alter_entity(
    context: EventContext, entity: str, changes: Sequence[ConfigChange], *, write: bool = True
) -> Handler[tuple[ErrorCode, str]]:
    """Write the changed configuration and its notification; retried on conflicts. An unchanged one is not written.

    ``entity``: its path below ``/config``. Returns an error, and why.
    """
    path = config_path(entity)
    reason = ""
    for _ in range(ATTEMPTS_MAX):
        (node,) = yield from context.read(ReadNodes([path]))
        if isinstance(node, Problem):
            context.problem(node)
            return ErrorCode.INVALID_CONFIG, f"{node.path}: {node.problem}"
        before = dict(node.value) if node is not None else {}
        after = dict(before)
        for change in changes:
            if change.value is None:
                after.pop(change.key, None)
            else:
                after[change.key] = change.value
        if after == before:
            return ErrorCode.NONE, ""
        if (size := config_bytes(after)) > max(ZNODE_BYTES_MAX, config_bytes(before)):
            why = f"{path}: would take {size} bytes, must take at most {ZNODE_BYTES_MAX}"
            return ErrorCode.INVALID_CONFIG, why
        if not write:
            return ErrorCode.NONE, ""
        version = node.version if node is not None else None
        outcome = yield from context.commit([write_node(path, after, version), NotifyConfig(entity)])
        if isinstance(outcome, Committed):
            context.log([EntityAltered(entity, len(changes))])
            return ErrorCode.NONE, ""
        reason = outcome.reason
    return ErrorCode.UNKNOWN_SERVER_ERROR, f"not written in {ATTEMPTS_MAX} attempts; the last: {reason}"


# --- requests to describe --------------------------------------------------------------------------------------


def describe_configs(context: EventContext, serial: int, request: DescribeConfigs) -> Handler[None]:
    """Describe the configured keys with their sources and problems; a broker's own keys override the brokers'
    default."""
    answers = []
    for resource in request.resources:
        error, message = _refused(context, resource)
        entries: list[ConfigEntry] = []
        if error is ErrorCode.NONE:
            entities = [resource.entity]
            if resource.scope is ConfigScope.BROKER and resource.entity != DEFAULT_BROKER:
                entities.append(DEFAULT_BROKER)
            if resource.scope is ConfigScope.CONTROLLER:
                error, message, entries = yield from _of_controller(context, resource.name)
                entities = []
            nodes = yield from context.read(ReadNodes([config_path(entity) for entity in entities]))
            for entity, node in zip(entities, nodes, strict=True):
                if isinstance(node, Problem):
                    error, message = ErrorCode.INVALID_CONFIG, f"{node.path}: {node.problem}"
                elif node is not None:
                    seen = {entry.key for entry in entries}
                    entries += [e for e in _entries(resource.scope, entity, node) if e.key not in seen]
        answers.append(ConfigDescribed(resource, error, message, tuple(entries)))
        yield Pause.YIELD
    context.reply(serial, DescribeConfigsReply(ErrorCode.NONE, answers))


def _of_controller(context: EventContext, name: str) -> Handler[tuple[ErrorCode, str, list[ConfigEntry]]]:
    (node,) = yield from context.read(ReadNodes([dynamic_settings.PATH]))
    if isinstance(node, Problem):
        return ErrorCode.INVALID_CONFIG, f"{node.path}: {node.problem}", []
    stored = node.value if node is not None else {}
    return ErrorCode.NONE, "", dynamic_settings.describe(context, stored, name or dynamic_settings.DEFAULT)


def _entries(scope: ConfigScope, entity: str, node: StoredNode[Mapping[str, str]]) -> list[ConfigEntry]:
    known = _KEYS[scope]
    return [
        ConfigEntry(
            key,
            shown_value(key, value),
            entity,
            key in known,
            (check(value) or "") if (check := known.get(key)) else "",
        )
        for key, value in sorted(node.value.items())
    ]
