"""Paths and JSON of the znodes that the broker reads and writes (reference, sections 1.1 and 15.2). Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Annotated, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from broker_stub import data_identity
from broker_stub.control.requests import Key, topic_name_problem
from broker_stub.data_identity import short_id
from broker_stub.errors import BrokerError
from broker_stub.settings import parse_host_port
from proto.kafka.znode_json import standard_json
from proto.texts import in_words

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
BROKER_IDS = "/brokers/ids"
#: Its version counts the ids that were given to brokers without one.
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
CONFIG_CHANGES = "/config/changes"
ISR_NOTIFICATIONS = "/isr_change_notification"
LOG_DIR_NOTIFICATIONS = "/log_dir_event_notification"
#: Sequential nodes: their numbers are given when they are made.
ISR_CHANGE = f"{ISR_NOTIFICATIONS}/isr_change_"
LOG_DIR_EVENT = f"{LOG_DIR_NOTIFICATIONS}/log_dir_event_"
#: What a broker makes before it registers (reference, section 1.1, notes).
PERSISTENT_PATHS = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    BROKER_SEQUENCE,
    CONFIG_CHANGES,
    TOPIC_CONFIGS,
    "/config/clients",
    "/config/users",
    BROKER_CONFIGS,
    "/config/ips",
    "/admin/delete_topics",
    ISR_NOTIFICATIONS,
    "/latest_producer_id_block",
    LOG_DIR_NOTIFICATIONS,
)
_INT_MAX = 2**31 - 1
_QUOTED_BYTES_MAX = 80
_HOST_CHARACTERS_MAX = 255
_Id = Annotated[int, Meta(ge=0, le=_INT_MAX)]
_Epoch = Annotated[int, Meta(ge=0, le=_INT_MAX)]


class MalformedZnode(BrokerError):  # noqa: N818  (the writer's fault)
    """A znode has invalid content; the message names its path, the field and what is allowed."""

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"{path}: {problem}")


class _Controller(msgspec.Struct):
    brokerid: _Id
    endpoint: str = ""


class _ClusterId(msgspec.Struct):
    id: str


class _Registrant(msgspec.Struct):
    host: str = ""
    incarnation: str = ""
    directories: list[str] = []


class _Config(msgspec.Struct):
    config: dict[str, str]


class _Topic(msgspec.Struct):
    partitions: dict[str, list[int]]


class _Change(msgspec.Struct):
    version: Annotated[int, Meta(ge=1, le=2)]
    entity_path: str = ""
    entity_type: str = ""
    entity_name: str = ""


class _State(msgspec.Struct):
    leader: Annotated[int, Meta(ge=-1, le=_INT_MAX)]
    leader_epoch: _Epoch
    controller_epoch: _Epoch
    isr: tuple[_Id, ...]
    leader_recovery_state: Annotated[int, Meta(ge=0, le=1)] = 0
    isr_directories: dict[int, int] = {}


class ConfigKind(Enum):
    """Whose configuration changed; other kinds do not concern a broker."""

    TOPIC = "topics"
    BROKER = "brokers"


class ConfigChange(NamedTuple):
    """``name``: of a topic, or a broker's id or ``<default>``."""

    kind: ConfigKind
    name: str


class PartitionState(NamedTuple):
    """A partition's state. ``leader`` -1: none; ``controller_epoch``: of the controller that elected it.
    ``directories``: of members of the ISR, by broker id (docs/adr/0017)."""

    leader: int
    leader_epoch: int
    controller_epoch: int
    isr: tuple[int, ...]
    directories: Mapping[int, int] = MappingProxyType({})


_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def _decode(path: str, data: bytes, kind: type[_Struct]) -> _Struct:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = f"{in_words(error)} (data begins {data[:_QUOTED_BYTES_MAX]!r})"
    try:
        return msgspec.json.decode(standard_json(data), type=kind)
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise MalformedZnode(path, problem) from None


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def config_path(topic: str) -> str:
    return f"{TOPIC_CONFIGS}/{topic}"


def broker_config_path(broker: str) -> str:
    return f"{BROKER_CONFIGS}/{broker}"


def state_path(topic: str, partition: int) -> str:
    return f"{topic_path(topic)}/partitions/{partition}/state"


def decode_endpoint(data: bytes) -> tuple[str, int]:
    """Host and port of the active controller. Raises MalformedZnode."""
    endpoint = _decode(CONTROLLER, data, _Controller).endpoint
    try:
        return parse_host_port(endpoint, port_min=1)
    except ValueError:
        raise MalformedZnode(CONTROLLER, f"endpoint = {endpoint[:80]!r}: must be HOST:PORT") from None


def decode_controller_id(data: bytes) -> int:
    """Id of the active controller; -1: unreadable."""
    try:
        return _decode(CONTROLLER, data, _Controller).brokerid
    except MalformedZnode:
        return -1


def decode_epoch(data: bytes) -> int:
    """The controller epoch, a bare decimal. Raises MalformedZnode."""
    text = data.decode(errors="replace").strip()
    if not re.fullmatch("[0-9]{1,10}", text) or int(text) > _INT_MAX:
        problem = f"{text[:_QUOTED_BYTES_MAX]!r}: must be a decimal number from 0 to {_INT_MAX}"
        raise MalformedZnode(CONTROLLER_EPOCH, problem)
    return int(text)


def decode_cluster_id(data: bytes) -> str:
    """Raises MalformedZnode."""
    found = _decode(CLUSTER_ID, data, _ClusterId).id
    if not data_identity.CLUSTER_ID.fullmatch(found):
        problem = f"id = {found[:_QUOTED_BYTES_MAX]!r}: must be {data_identity.CLUSTER_ID_ALLOWED}"
        raise MalformedZnode(CLUSTER_ID, problem)
    return found


def encode_cluster_id(cluster_id: str) -> bytes:
    return msgspec.json.encode({"version": "1", "id": cluster_id})


def decode_registrant(data: bytes) -> tuple[str, str]:
    """Host and incarnation in a broker's registration; unreadable ones are empty."""
    try:
        found = _decode(BROKER_IDS, data, _Registrant)
    except MalformedZnode:
        return "an unknown host", ""
    return repr(found.host[:_HOST_CHARACTERS_MAX]), found.incarnation


def decode_directories(data: bytes) -> tuple[int, ...] | None:
    """The short ids of the data directories in a broker's registration; empty: it does not tell. None: it is
    malformed."""
    try:
        return tuple(map(short_id, _decode(BROKER_IDS, data, _Registrant).directories))
    except (MalformedZnode, ValueError):
        return None


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """Settings by Kafka's names; an empty znode holds none. Raises MalformedZnode."""
    return _decode(path, data, _Config).config if data else {}


def encode_config(config: Mapping[str, str]) -> bytes:
    return msgspec.json.encode({"version": 1, "config": dict(config)})


def decode_partition_count(path: str, data: bytes) -> int:
    """Number of partitions of a topic. Raises MalformedZnode."""
    return len(_decode(path, data, _Topic).partitions)


def decode_change(path: str, data: bytes) -> ConfigChange | None:
    """What a notification of version 1 or 2 is about; None: neither a topic nor a broker.

    Raises MalformedZnode.
    """
    change = _decode(path, data, _Change)
    if change.version == 1:
        fields, kind, name = "entity_type and entity_name", change.entity_type, change.entity_name
    else:
        fields = "entity_path"
        kind, _, name = change.entity_path.partition("/")
    if not kind or not name:
        raise MalformedZnode(path, f"{fields}: must name what changed, such as topics/NAME")
    if kind == ConfigKind.BROKER.value:
        return ConfigChange(ConfigKind.BROKER, name)
    if kind != ConfigKind.TOPIC.value:
        return None
    if problem := topic_name_problem(name):
        raise MalformedZnode(path, f"{fields}: {problem}")
    return ConfigChange(ConfigKind.TOPIC, name)


def encode_partitions(partitions: Sequence[Key]) -> bytes:
    """The content of an ISR change notification."""
    named = [{"topic": topic, "partition": partition} for topic, partition in partitions]
    return msgspec.json.encode({"version": 1, "partitions": named})


def encode_topic(topic_id: str, assignment: Mapping[int, Sequence[int]]) -> bytes:
    """A topic znode of version 3 without reassignments, fields in Kafka's order. ``assignment``: partition to replicas
    in preferred order."""
    partitions = {str(partition): list(assignment[partition]) for partition in sorted(assignment)}
    return msgspec.json.encode(
        {
            "partitions": partitions,
            "topic_id": topic_id,
            "adding_replicas": {},
            "removing_replicas": {},
            "version": 3,
        }
    )


def decode_state(path: str, data: bytes) -> PartitionState:
    """Raises MalformedZnode."""
    state = _decode(path, data, _State)
    return PartitionState(
        state.leader, state.leader_epoch, state.controller_epoch, state.isr, state.isr_directories
    )


def encode_state(state: PartitionState) -> bytes:
    """State of version 1, fields in Kafka's order, then our own; without ``leader_recovery_state``, which means
    RECOVERED (reference, section 1.1)."""
    value: dict[str, object] = {
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "version": 1,
        "leader_epoch": state.leader_epoch,
        "isr": state.isr,
    }
    if state.directories:
        value["isr_directories"] = dict(state.directories)
    return msgspec.json.encode(value)
