"""Codecs chosen by path, for znodes that effects read and write as generic nodes: configuration, producer ids,
cluster id, maintenance, approvals, notifications (reference, section 1.1). Only this module maps paths to codecs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, TypeVar, cast

import msgspec
from msgspec import Meta

from controller.core.cluster.configs import entity_problem
from controller.core.cluster.dynamic_settings import DEFAULT
from controller.core.cluster.producer_ids import ProducerIdBlock
from controller.core.cluster.quarantine import SUSPECTS_MAX, Quarantine, Suspect
from controller.core.cluster.term_history import KEPT_MAX, TermRecord
from controller.core.config_keys import LONG_MAX
from controller.core.effects import NotifyConfig, Problem, StoredNode, WriteNode
from controller.core.model import Forgotten, Maintenance, StopApproval
from controller.core.znode_paths import (
    APPROVALS,
    CLUSTER_ID,
    CONFIG,
    CONFIG_CHANGE,
    CONFIG_CHANGES,
    FORGOTTEN,
    ISR_NOTIFICATIONS,
    LOG_DIR_NOTIFICATIONS,
    MAINTENANCE,
    PREFERRED_ELECTION,
    PRODUCER_IDS,
    QUARANTINE,
    REASSIGN_PARTITIONS,
    RESIGNED,
    SETTINGS,
    TERM_HISTORY,
    NodePath,
    is_below,
)
from controller.errors import MalformedError
from controller.runtime.zookeeper import codecs, jute
from controller.runtime.zookeeper.session import Session

T = TypeVar("T")
#: Digits of the largest id.
_ID_DIGITS = 10

#: The category of znodes that may become readable without a change that a watch reports.
NOT_READ = "NOT_READ"
NOT_PERMITTED = "may not be read: ZooKeeper's access rules forbid it"


class _ClusterId(msgspec.Struct):
    id: Annotated[str, Meta(min_length=1)]


class _ProducerIds(msgspec.Struct):
    broker: Annotated[int, Meta(ge=-1, le=codecs.INT_MAX)]
    # Strings, because they are 64-bit numbers.
    block_start: Annotated[str, Meta(pattern=r"^[+-]?\d{1,19}\Z")]
    block_end: Annotated[str, Meta(pattern=r"^[+-]?\d{1,19}\Z")]


class _Approvals(msgspec.Struct):
    version: Annotated[int, Meta(ge=1, le=1)]
    approvals: dict[Annotated[int, Meta(ge=0, le=codecs.INT_MAX)], StopApproval]


class _Forgotten(msgspec.Struct):
    version: Annotated[int, Meta(ge=1, le=1)]
    brokers: dict[Annotated[int, Meta(ge=0, le=codecs.INT_MAX)], Forgotten]


class _Settings(msgspec.Struct):
    version: Annotated[int, Meta(ge=1, le=1)]
    settings: dict[str, dict[str, str]]


class _TermHistory(msgspec.Struct):
    version: Annotated[int, Meta(ge=1, le=1)]
    terms: Annotated[tuple[TermRecord, ...], Meta(max_length=KEPT_MAX)]


class Resignation(msgspec.Struct, frozen=True):
    """Control is handed back to Kafka's brokers: why, by whom, and when (ms since 1970)."""

    reason: str
    author: str
    at_ms: int


#: Where it is stored.
RESIGNATION: NodePath[Resignation] = NodePath(RESIGNED)


class _Suspects(msgspec.Struct):
    version: Annotated[int, Meta(ge=1, le=1)]
    suspects: Annotated[dict[str, Suspect], Meta(max_length=SUSPECTS_MAX)]


class _ConfigChange(msgspec.Struct):
    version: Annotated[int, Meta(ge=1, le=2)]
    entity_path: str = ""
    entity_type: str = ""
    entity_name: str = ""


def _decode(path: str, data: bytes | None, kind: type[T]) -> T:
    return codecs.decode_with(msgspec.json.Decoder(kind), path, data)


def _producer_ids(path: str, data: bytes | None) -> ProducerIdBlock | None:
    """None while the znode is empty, as brokers create it."""
    if not data:
        return None
    found = _decode(path, data, _ProducerIds)
    start, end = int(found.block_start), int(found.block_end)
    if start < 0:
        raise MalformedError(path, f"block_start = {start}: must be from 0 to {LONG_MAX}")
    if not start <= end <= LONG_MAX:
        raise MalformedError(path, f"block_end = {end}: must be from block_start {start} to {LONG_MAX}")
    return ProducerIdBlock(found.broker, start, end)


def _cluster_id(path: str, data: bytes | None) -> str:
    return _decode(path, data, _ClusterId).id


def _maintenance(path: str, data: bytes | None) -> Maintenance:
    found = _decode(path, data, Maintenance)
    for field, ids in (("drained", found.drained), ("accepted", found.accepted)):
        for broker_id in ids:
            _require(path, f"{field}: broker id {broker_id}", broker_id, codecs.INT_MAX)
    if found.freeze is not None:
        _require(path, f"freeze.until_ms = {found.freeze.until_ms}", found.freeze.until_ms, LONG_MAX)
    return found


def _forgotten(path: str, data: bytes | None) -> dict[int, Forgotten]:
    found = _decode(path, data, _Forgotten).brokers
    for broker_id, mark in found.items():
        _require(path, f"brokers.{broker_id}.at_ms = {mark.at_ms}", mark.at_ms, LONG_MAX)
        for topic, numbers in mark.replicas.items():
            for number in numbers:
                what = f"brokers.{broker_id}.replicas.{topic[:100]}: partition {number}"
                _require(path, what, number, codecs.INT_MAX)
    return found


def _approvals(path: str, data: bytes | None) -> dict[int, StopApproval]:
    found = _decode(path, data, _Approvals)
    for broker_id, approval in found.approvals.items():
        for field in ("broker_epoch", "at_ms"):
            number = getattr(approval, field)
            _require(path, f"approvals.{broker_id}.{field} = {number}", number, LONG_MAX)
    return found.approvals


def _settings(path: str, data: bytes | None) -> dict[str, dict[str, str]]:
    found = _decode(path, data, _Settings).settings
    for name in found:
        if name != DEFAULT and not (name.isascii() and name.isdigit() and len(name) <= _ID_DIGITS):
            raise MalformedError(path, f"settings.{name[:100]}: must be a controller id or {DEFAULT}")
    return found


def _term_history(path: str, data: bytes | None) -> tuple[TermRecord, ...]:
    found = _decode(path, data, _TermHistory).terms
    for number, term in enumerate(found):
        for field in ("controller_id", "controller_epoch", "from_ms", "until_ms"):
            value = getattr(term, field)
            _require(path, f"terms.{number}.{field} = {value}", value, LONG_MAX)
    return found


def _resignation(path: str, data: bytes | None) -> Resignation:
    found = _decode(path, data, Resignation)
    _require(path, f"at_ms = {found.at_ms}", found.at_ms, LONG_MAX)
    return found


def _require(path: str, what: str, number: int, highest: int) -> None:
    """Raise MalformedError if a number does not fit its field in responses."""
    if not 0 <= number <= highest:
        raise MalformedError(path, f"{what[:200]}: must be from 0 to {highest}")


def _decoder(path: str) -> Callable[[str, bytes | None], object]:
    if path == PRODUCER_IDS:
        return _producer_ids
    if path == CLUSTER_ID:
        return _cluster_id
    if path == MAINTENANCE:
        return _maintenance
    if path == APPROVALS:
        return _approvals
    if path == FORGOTTEN:
        return _forgotten
    if path == TERM_HISTORY:
        return _term_history
    if path == SETTINGS:
        return _settings
    if path == RESIGNED:
        return _resignation
    if path == QUARANTINE:
        return lambda path, data: Quarantine(_decode(path, data, _Suspects).suspects)
    assert is_below(CONFIG, path), f"{path} has no codec"
    return codecs.decode_config


def decode(path: NodePath[T], data: bytes | None) -> T:
    """The value of a node. Raises MalformedError."""
    return cast(T, _decoder(path)(path, data))


#: Decoders of watched znodes, by path or parent path. Arguments: path, data, zkVersion.
_WATCHED: dict[str, Callable[[str, bytes | None, int], object]] = {
    PREFERRED_ELECTION: lambda path, data, _: codecs.decode_partition_list(path, data),
    REASSIGN_PARTITIONS: codecs.decode_reassignments,
    ISR_NOTIFICATIONS: lambda path, data, _: codecs.decode_partition_list(path, data),
    LOG_DIR_NOTIFICATIONS: lambda path, data, _: codecs.decode_log_dir_event(path, data),
    CONFIG_CHANGES: lambda path, data, _: decode_config_change(path, data),
    SETTINGS: lambda path, data, _: _settings(path, data),
}


def decode_watched(path: str, data: bytes | None, version: int) -> object:
    """The value of a watched node, of the type its query documents. Raises MalformedError."""
    return (_WATCHED.get(path) or _WATCHED[path.rpartition("/")[0]])(path, data, version)


def encode(path: str, value: object) -> bytes:
    """The data of a node."""
    if path == PRODUCER_IDS:
        assert isinstance(value, ProducerIdBlock)
        return msgspec.json.encode(
            {
                "version": 1,
                "broker": value.broker,
                "block_start": str(value.start),
                "block_end": str(value.end),
            }
        )
    if path == MAINTENANCE:
        return msgspec.json.encode({"version": 1, **msgspec.to_builtins(value, str_keys=True)})
    if path == APPROVALS:
        return msgspec.json.encode(_Approvals(1, cast(dict[int, StopApproval], value)))
    if path == SETTINGS:
        return msgspec.json.encode(_Settings(1, cast(dict[str, dict[str, str]], value)))
    if path == TERM_HISTORY:
        return msgspec.json.encode(_TermHistory(1, cast(tuple[TermRecord, ...], value)))
    if path == FORGOTTEN:
        return msgspec.json.encode(_Forgotten(1, cast(dict[int, Forgotten], value)))
    if path == RESIGNED:
        return msgspec.json.encode({"version": 1, **msgspec.to_builtins(value)})
    if path == QUARANTINE:
        assert isinstance(value, Quarantine)
        return msgspec.json.encode(_Suspects(1, dict(value.suspects)))
    if path == CLUSTER_ID:
        return msgspec.json.encode({"version": "1", "id": value})
    assert is_below(CONFIG, path), f"{path} has no codec"
    return codecs.encode_config(cast(Mapping[str, str], value))


def decode_config_change(path: str, data: bytes | None) -> str:
    """The entity of a notification, as a path below ``/config``: ``topics/T``, ``brokers/1``, ``brokers/<default>``.

    Version 2 has the path, version 1 type and name. Raises MalformedError.
    """
    found = _decode(path, data, _ConfigChange)
    entity = found.entity_path if found.version == 2 else f"{found.entity_type}/{found.entity_name}"
    if problem := entity_problem(entity):
        raise MalformedError(path, problem)
    return entity


def encode_config_change(entity: str) -> bytes:
    return msgspec.json.encode({"version": 2, "entity_path": entity})


# --- on a session ----------------------------------------------------------------------------------------------


def unread(path: str, code: int) -> Problem | None:
    """For a bulk read's error code: None if the znode is absent, else the Problem, which is not absence."""
    if code == jute.NO_NODE:
        return None
    why = NOT_PERMITTED if code == jute.NO_AUTH else f"cannot be read: ZooKeeper error {code}"
    return Problem(path, why, error=NOT_READ)


def value_or_problem(
    path: str, node: jute.Node | int, decode: Callable[[str, jute.Node], T]
) -> T | Problem | None:
    """What a bulk read found, or what is wrong with it; None: absent."""
    if isinstance(node, int):
        return unread(path, node)
    try:
        return decode(path, node)
    except MalformedError as error:
        return Problem(error.path, error.problem)


async def read_nodes(session: Session, paths: Sequence[NodePath[T]]) -> list[StoredNode[T] | Problem | None]:
    """Values or problems, parallel to ``paths``; None: absent."""

    def stored(path: str, node: jute.Node) -> StoredNode[T]:
        return StoredNode(decode(cast(NodePath[T], path), node.data), node.version)

    nodes = await session.bulk_get(list(paths))
    return [value_or_problem(path, node, stored) for path, node in zip(paths, nodes, strict=True)]


def pack(session: Session, write: WriteNode | NotifyConfig) -> bytes:
    """The packed operation of a write, for a multi."""
    if isinstance(write, NotifyConfig):
        return session.op_create_sequential(CONFIG_CHANGE, encode_config_change(write.entity))
    data = encode(write.path, write.value)
    if write.version is None:
        return session.op_create(write.path, data)
    return jute.op_set(session.packed_path(write.path), data, write.version)
