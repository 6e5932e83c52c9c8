"""Codecs of Kafka's znodes and of ``/controllers/ids`` (reference, section 1.1); others are in ``single_codecs``.

Decoding is typed: data that does not fit raises MalformedError naming the path, the field and what is allowed. All
that Kafka's decoders accept is accepted, except for the cases that tests/kafka_decoders lists with reasons.
"""

from __future__ import annotations

import re
import time
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from controller.core.effects import FeatureAnswer, ReassignmentRequest, TopicInfo
from controller.core.model import (
    EPOCH_MAX,
    RECOVERED,
    REPLICAS_MAX,
    SHARED_LENGTH_MAX,
    Broker,
    BrokerIds,
    DirectoryIds,
    Endpoint,
    FeatureRange,
    LeaderAndIsr,
    interned,
    shared_directories,
)
from controller.core.names import ids_shown, name_shown, shown, topic_name_problem
from controller.core.znode_paths import CONTROLLER, CONTROLLER_EPOCH, FEATURE, state_path, topic_path
from controller.errors import MalformedError
from proto.kafka.znode_json import standard_json
from proto.texts import in_words

INT_MAX = 2**31 - 1
Int = Annotated[int, Meta(ge=-(2**31), le=INT_MAX)]
Id = Annotated[int, Meta(ge=0, le=INT_MAX)]
Leader = Annotated[int, Meta(ge=-1, le=INT_MAX)]
Epoch = Annotated[int, Meta(ge=0, le=EPOCH_MAX)]
Port = Annotated[int, Meta(ge=-1, le=65535)]

T = TypeVar("T")


class _Controller(msgspec.Struct):
    brokerid: Id
    endpoint: str = ""
    incarnation: str = ""


class _Claim(_Controller):
    session: Annotated[str, Meta(pattern="^(0x[0-9a-f]{1,16})?$")] = ""
    kraft_controller_epoch: Int = msgspec.field(name="kraftControllerEpoch", default=-1)


class _Standby(msgspec.Struct):
    endpoint: str = ""
    http: str = ""
    host: str = ""
    incarnation: str = ""


FeatureLevel = Annotated[int, Meta(ge=1, le=2**15 - 1)]


SupportedLevel = Annotated[int, Meta(ge=0, le=2**15 - 1)]


class _Supported(msgspec.Struct):
    min_version: SupportedLevel
    max_version: SupportedLevel


class _Registration(msgspec.Struct):
    version: Annotated[int, Meta(ge=1, le=INT_MAX)]
    host: str | None = None
    port: Port = -1
    endpoints: list[str] | None = None
    listener_security_protocol_map: dict[str, str] | None = None
    rack: str | None = None
    features: dict[str, _Supported] | None = None
    # Ours (docs/adr/0017).
    directories: list[str] = []
    # Ours: when a broker without a session gave its last sign.
    session_timeout_ms: Annotated[int, Meta(ge=0, le=INT_MAX)] = 0
    # Ours: of the broker's meta.properties.
    cluster_id: str = ""


class _Topic(msgspec.Struct):
    # The version is ignored: the fields present decide (reference, section 1.1).
    partitions: dict[str, tuple[Id, ...]]
    topic_id: str = ""
    adding_replicas: dict[str, tuple[Id, ...]] = {}
    removing_replicas: dict[str, tuple[Id, ...]] = {}
    # This controller's own fields, read by the next controller (docs/adr/0008).
    original_replicas: dict[str, tuple[Id, ...]] = {}
    queued_replicas: dict[str, tuple[Id, ...]] = {}
    stray_replicas: dict[str, tuple[Id, ...]] = {}


#: The short id of a data directory: the first four bytes of its id.
ShortId = Annotated[int, Meta(ge=1, le=2**32 - 1)]
_NO_DIRECTORIES = msgspec.Raw()
_BY_MEMBER = msgspec.json.Decoder(dict[Id, ShortId])


class _State(msgspec.Struct, gc=False):
    leader: Leader
    leader_epoch: Epoch
    controller_epoch: Epoch
    isr: tuple[Id, ...]
    leader_recovery_state: Annotated[int, Meta(ge=0, le=1)] = RECOVERED
    # Ours (docs/adr/0017). By broker id: whoever edits the ISR by hand need not know of it.
    isr_directories: msgspec.Raw = _NO_DIRECTORIES


class _TopicPartition(msgspec.Struct):
    topic: str
    # Any number: an impossible one must not hide the other entries.
    partition: Int


class _PartitionList(msgspec.Struct):
    partitions: list[_TopicPartition]


class _Reassigned(msgspec.Struct):
    topic: str
    partition: Int
    # Any ids: each entry is validated later, so that an invalid one does not hide the others.
    replicas: tuple[int, ...]


class _Reassignments(msgspec.Struct):
    partitions: list[_Reassigned]


class _LogDirEvent(msgspec.Struct):
    broker: Int


class _Config(msgspec.Struct):
    config: dict[str, str]


class _Finalized(msgspec.Struct):
    max_version_level: FeatureLevel
    #: Only in version 1.
    min_version_level: FeatureLevel | None = None


class _Feature(msgspec.Struct):
    version: Annotated[int, Meta(ge=1, le=2)]
    status: Annotated[int, Meta(ge=0, le=1)]
    features: dict[str, _Finalized]


_DECODERS: dict[type, msgspec.json.Decoder[Any]] = {
    # In reassignments Kafka also accepts numbers written as strings.
    kind: msgspec.json.Decoder(kind, strict=kind is not _Reassignments)
    for kind in (
        _Controller,
        _Claim,
        _Standby,
        _Registration,
        _Topic,
        _State,
        _PartitionList,
        _Reassignments,
        _LogDirEvent,
        _Config,
        _Feature,
    )
}


def decode_with(decoder: msgspec.json.Decoder[T], path: str, data: bytes | None) -> T:
    """Raises MalformedError naming path, field and what is allowed."""
    if not data:
        raise MalformedError(path, "is empty, must be a JSON object")
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = f"{in_words(error)} (data begins {data[:80]!r})"
    try:
        return decoder.decode(standard_json(data))
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise MalformedError(path, problem) from None


def _decode(path: str, data: bytes | None, kind: type[T]) -> T:
    decoder: msgspec.json.Decoder[T] = _DECODERS[kind]
    return decode_with(decoder, path, data)


_DECIMAL = re.compile(r"[+-]?\d{1,20}")
_DECIMAL_LENGTH_MAX = 21


def _number(text: str) -> int | None:
    """A decimal from 0 to INT_MAX, else None. As in Java, it may have a sign and the digits of any script."""
    return _number_of(text) if len(text) <= _DECIMAL_LENGTH_MAX else None


@lru_cache(65_536)
def _number_of(text: str) -> int | None:
    # ``int`` alone would raise on thousands of digits, and accept blanks and underscores.
    if not _DECIMAL.fullmatch(text):
        return None
    number = int(text)
    return number if 0 <= number <= INT_MAX else None


#: Lists of broker ids that were already checked: in a cluster the same few repeat.
_distinct_known: dict[BrokerIds, BrokerIds] = {}
_DISTINCT_MAX = 100_000


def _distinct(path: str, field: str, ids: BrokerIds, key: str = "") -> BrokerIds:
    known = _distinct_known.get(ids)
    if known is not None:
        return known
    name = f"{field}.{key[:80]}" if key else field
    if len(ids) > REPLICAS_MAX:
        raise MalformedError(path, f"{name}: names {len(ids)} brokers, must name at most {REPLICAS_MAX}")
    if len(set(ids)) != len(ids):
        raise MalformedError(path, f"{name} = {ids_shown(ids)}: broker ids must be distinct")
    if len(ids) > SHARED_LENGTH_MAX:
        return ids
    if len(_distinct_known) >= _DISTINCT_MAX:
        _distinct_known.clear()
    shared = _distinct_known[ids] = interned(ids)
    return shared


# --- /controller and its epoch -----------------------------------------------------------------------------


def encode_controller(controller_id: int, endpoint: str, session_id: int = 0, incarnation: str = "") -> bytes:
    """``/controller`` version 2 with the active controller's gRPC address (reference, section 15.2).

    ``session_id``: the session that the controller's lease is counted on; 0: the one that owns the znode.
    ``incarnation``: of its process.
    """
    fields = {
        "version": 2,
        "brokerid": controller_id,
        "timestamp": str(time.time_ns() // 1_000_000),
        "kraftControllerEpoch": -1,
        "endpoint": endpoint,
        "incarnation": incarnation,
    }
    return _dump({**fields, "session": f"0x{session_id:x}"} if session_id else fields)


def decode_controller(data: bytes | None) -> tuple[int, str]:
    """Controller id and endpoint (empty when another implementation wrote it)."""
    decoded = _decode(CONTROLLER, data, _Controller)
    return decoded.brokerid, decoded.endpoint


def decode_incarnation(data: bytes | None) -> str:
    """Incarnation of the process that wrote ``/controller``; empty: none of ours. Raises MalformedError."""
    return _decode(CONTROLLER, data, _Controller).incarnation


class Claim(NamedTuple):
    """``/controller`` as one who may claim over it reads it. ``endpoint``: empty in a broker's; ``session_id``: 0 where
    none is recorded; ``kraft_epoch``: at least 0 in that of a KRaft controller (KIP-866), else -1."""

    controller_id: int
    endpoint: str
    session_id: int
    kraft_epoch: int


def decode_claim(data: bytes | None) -> Claim:
    """Raises MalformedError."""
    found = _decode(CONTROLLER, data, _Claim)
    return Claim(found.brokerid, found.endpoint, int(found.session or "0", 16), found.kraft_controller_epoch)


def decode_epoch(data: bytes | None) -> int:
    """``/controller_epoch``: a bare decimal."""
    text = (data or b"").decode(errors="replace").strip()
    if (number := _number(text)) is None or number > EPOCH_MAX:
        raise MalformedError(
            CONTROLLER_EPOCH, f"{text[:80]!r}: must be a decimal number from 0 to {EPOCH_MAX}"
        )
    return number


def encode_standby(
    controller_id: int, endpoint: str, http_endpoint: str, host: str = "", incarnation: str = ""
) -> bytes:
    """``/controllers/ids/N``, this controller's own: the registration of a running controller, active or not.

    ``host``: its machine's name; ``incarnation``: of its process.
    """
    return _dump(
        {
            "version": 1,
            "controller_id": controller_id,
            "endpoint": endpoint,
            "http": http_endpoint,
            "timestamp": str(time.time_ns() // 1_000_000),
            "host": host,
            "incarnation": incarnation,
        }
    )


def decode_standby(path: str, data: bytes | None) -> tuple[int, str, str]:
    """Controller id, gRPC endpoint and HTTP endpoint of ``/controllers/ids/N``."""
    decoded = _decode(path, data, _Standby)
    return _id_in(path, "controller"), decoded.endpoint, decoded.http


def decode_registrant(path: str, data: bytes | None) -> tuple[str, str]:
    """Host and incarnation of the process that wrote ``/controllers/ids/N``. Raises MalformedError."""
    decoded = _decode(path, data, _Standby)
    return decoded.host, decoded.incarnation


def id_of(name: str) -> int | None:
    """The id that a name is; None: it is none. What is spelled otherwise is not: the id itself may be there, too."""
    id_ = _number(name)
    return id_ if str(id_) == name else None


def ids_of(names: Iterable[str]) -> list[int]:
    """The ids among the names of znodes, sorted; other names are left out."""
    return sorted(id_ for id_ in map(id_of, names) if id_ is not None)


def _id_in(path: str, whose: str) -> int:
    """The id that is a znode's name. Raises MalformedError."""
    name = path.rsplit("/", 1)[-1]
    if (id_ := id_of(name)) is None:
        raise MalformedError(
            path,
            f"{name[:80]!r} is no {whose} id: must be a number from 0 to {INT_MAX}, without sign and zeros before it",
        )
    return id_


# --- brokers -----------------------------------------------------------------------------------------------


_ENDPOINT = re.compile(r"(.+)://\[?([\w.%:-]*)\]?:(\d{1,20})", re.ASCII)


#: Bounds of a registration, which is sent to all brokers and to clients. A DNS name has at most 253 characters.
_TEXT_MAX, _ENDPOINTS_MAX, _FEATURES_MAX, _DIRECTORIES_MAX = 255, 100, 1000, 1000
_HOST = re.compile(r"[\w.%:-]*", re.ASCII)


def _checked(path: str, field: str, text: str) -> str:
    """A text of a registration. Raises MalformedError."""
    if len(text) > _TEXT_MAX or not text.isprintable():
        raise MalformedError(
            path,
            f"{field} = {shown(text)}: must have at most {_TEXT_MAX} characters, none of them for control",
        )
    return text


def _count(path: str, field: str, count: int, allowed: int) -> None:
    if count > allowed:
        raise MalformedError(path, f"{field}: has {count} entries, must have at most {allowed}")


def decode_broker(path: str, data: bytes | None, czxid: int) -> Broker:
    """A registration of any version; version 1 has only host and port. The broker epoch is the znode's czxid."""
    id_ = _id_in(path, "broker")
    decoded = _decode(path, data, _Registration)
    endpoints = _endpoints(path, decoded)
    mapped = decoded.listener_security_protocol_map is not None
    rack = None if decoded.rack is None else _checked(path, "rack", decoded.rack)
    return Broker(
        id_,
        czxid,
        endpoints,
        rack,
        _features(path, decoded),
        decoded.version,
        mapped,
        _directories(path, decoded),
        decoded.session_timeout_ms,
        _checked(path, "cluster_id", decoded.cluster_id),
    )


#: Kafka writes the id of a data directory as a uuid in URL-safe base64.
_DIRECTORY_ID = re.compile(r"[A-Za-z0-9_-]{22}")


def _directories(path: str, decoded: _Registration) -> DirectoryIds:
    """Short ids: a partition state names one for each member of its ISR."""
    _count(path, "directories", len(decoded.directories), _DIRECTORIES_MAX)
    for text in decoded.directories:
        if not _DIRECTORY_ID.fullmatch(text):
            raise MalformedError(
                path, f"directories: {shown(text)} must be 16 bytes in URL-safe base64, 22 characters"
            )
    return tuple([int.from_bytes(urlsafe_b64decode(f"{t}==")[:4]) or 1 for t in decoded.directories])


def _endpoints(path: str, decoded: _Registration) -> tuple[Endpoint, ...]:
    endpoints: list[Endpoint] = []
    protocols = decoded.listener_security_protocol_map or {}
    listed = ",".join(decoded.endpoints or ()) if decoded.version > 1 else ""
    texts = list(filter(None, map(str.strip, listed.split(","))))
    _count(path, "endpoints", len(texts), _ENDPOINTS_MAX)
    for text in texts:
        match = _ENDPOINT.fullmatch(text) if len(text) <= 3 * _TEXT_MAX else None
        if match is None or not 0 < int(match[3]) <= 65535:
            raise MalformedError(
                path, f"endpoints: {shown(text)} must be LISTENER://host:port, port from 1 to 65535"
            )
        listener = _checked(path, "endpoints: listener", match[1].strip().upper())
        protocol = _checked(path, "listener_security_protocol_map", protocols.get(listener, listener).upper())
        host = _checked(path, "endpoints: host", match[2])
        if listener in {e.listener for e in endpoints}:
            raise MalformedError(path, f"endpoints: listener {listener} must be there once")
        endpoints.append(Endpoint(listener, protocol, host, int(match[3])))
    if not endpoints and decoded.host is not None:
        if not 0 < decoded.port <= 65535:
            raise MalformedError(path, f"port = {decoded.port}: must be from 1 to 65535")
        if not _HOST.fullmatch(_checked(path, "host", decoded.host)):
            raise MalformedError(path, f"host = {shown(decoded.host)}: must be a host name or an address")
        endpoints.append(Endpoint("PLAINTEXT", "PLAINTEXT", decoded.host, decoded.port))
    if not endpoints:
        raise MalformedError(path, "endpoints: must name at least one, or host and port must be given")
    return tuple(endpoints)


def _features(path: str, decoded: _Registration) -> tuple[FeatureRange, ...]:
    features: list[FeatureRange] = []
    _count(path, "features", len(decoded.features or ()), _FEATURES_MAX)
    for feature, supported in sorted((decoded.features or {}).items()):
        low, high = supported.min_version, supported.max_version
        _checked(path, "features", feature)
        if low > high:
            name = name_shown(feature)
            raise MalformedError(path, f"features.{name}: min_version {low} must be at most {high}")
        features.append(FeatureRange(feature, low, high))
    return tuple(features)


#: No broker's registration has this.
_OWN = b'"partition_controller":true'


def encode_own_registration(endpoints: Sequence[Endpoint], rack: str | None) -> bytes:
    """A controller's own registration as Kafka's brokers read one, of version 4: without features."""
    plain = next((e for e in endpoints if e.security_protocol == "PLAINTEXT"), None)
    fields: dict[str, object] = {
        "listener_security_protocol_map": {e.listener: e.security_protocol for e in endpoints},
        "endpoints": [f"{e.listener}://{e.host}:{e.port}" for e in endpoints],
        "jmx_port": -1,
        "host": plain.host if plain is not None else None,
        "port": plain.port if plain is not None else -1,
        "version": 4,
        "timestamp": "0",
        "partition_controller": True,
    }
    if rack is not None:
        fields["rack"] = rack
    return _dump(fields)


def is_own_registration(data: bytes | None) -> bool:
    """Whether a controller of ours wrote this znode under ``/brokers/ids``."""
    return _OWN in (data or b"")


# --- topics ------------------------------------------------------------------------------------------------


#: Kafka writes a topic id so: 16 bytes leave four characters for the last.
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{21}[AQgw]")


def decode_topic(topic: str, data: bytes | None, czxid: int, version: int) -> TopicInfo:
    """A topic znode of version 1, 2 or 3; the fields present decide."""
    path = topic_path(topic)
    if problem := topic_name_problem(topic):
        raise MalformedError(path, problem)
    decoded = _decode(path, data, _Topic)
    partitions = _numbered(path, "partitions", decoded.partitions)
    for number, replicas in partitions.items():
        if not replicas:
            raise MalformedError(path, f"partitions.{number}: must name at least one replica")
    if decoded.topic_id and not _TOPIC_ID.fullmatch(decoded.topic_id):
        raise MalformedError(
            path, f"topic_id = {shown(decoded.topic_id)}: must be 16 bytes in URL-safe base64, 22 characters"
        )
    return TopicInfo(
        name=topic,
        topic_id=decoded.topic_id,
        partitions=partitions,
        adding=_numbered(path, "adding_replicas", decoded.adding_replicas),
        removing=_numbered(path, "removing_replicas", decoded.removing_replicas),
        czxid=czxid,
        version=version,
        original=_numbered(path, "original_replicas", decoded.original_replicas),
        queued=_numbered(path, "queued_replicas", decoded.queued_replicas),
        stray=_numbered(path, "stray_replicas", decoded.stray_replicas),
        others=_other_fields(path, data),
    )


_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TOPIC_FIELDS = frozenset({"version", *_Topic.__struct_fields__})


def _other_fields(path: str, data: bytes | None) -> dict[str, bytes]:
    """Unknown fields of a topic znode, with their JSON text; empty if the names do not decode."""
    try:
        fields = decode_with(_FIELDS, path, data)
    except MalformedError:
        return {}
    return {name: bytes(raw) for name, raw in fields.items() if name not in _TOPIC_FIELDS}


def _numbered(path: str, field: str, raw: Mapping[str, BrokerIds]) -> dict[int, BrokerIds]:
    numbered: dict[int, BrokerIds] = {}
    for key, ids in raw.items():
        if (number := _number(key)) is None:
            raise MalformedError(
                path, f"{field}: key {key[:80]!r} must be a partition number from 0 to {INT_MAX}"
            )
        if number in numbered:
            raise MalformedError(
                path, f"{field}: key {key[:80]!r}: another key names partition {number}, too"
            )
        # Looked up here as well, because a call for each of a million partitions is slow.
        numbered[number] = _distinct_known.get(ids) or _distinct(path, field, ids, key)
    return numbered


def encode_topic(info: TopicInfo) -> bytes:
    """A topic znode, always version 3, without ``topic_id`` when unknown, fields in Kafka's order. This controller's
    own fields, only if not empty, and unknown fields come last."""
    fields: dict[str, object] = {"partitions": {str(n): ids for n, ids in info.partitions.items()}}
    if info.topic_id:
        fields["topic_id"] = info.topic_id
    fields["adding_replicas"] = {str(n): ids for n, ids in info.adding.items() if ids}
    fields["removing_replicas"] = {str(n): ids for n, ids in info.removing.items() if ids}
    fields["version"] = 3
    for name, by_number in (
        ("original_replicas", info.original),
        ("queued_replicas", info.queued),
        ("stray_replicas", info.stray),
    ):
        if present := {str(n): ids for n, ids in by_number.items() if ids}:
            fields[name] = present
    fields.update((name, msgspec.Raw(text)) for name, text in info.others.items())
    return _dump(fields)


# --- partition states --------------------------------------------------------------------------------------


def decode_state(topic: str, partition: int, data: bytes | None, version: int) -> LeaderAndIsr:
    """A partition state; its partition epoch is the znode's version."""
    path = state_path(topic, partition)
    decoded = _decode(path, data, _State)
    return LeaderAndIsr(
        decoded.leader,
        decoded.leader_epoch,
        _distinct(path, "isr", decoded.isr),
        version,
        decoded.controller_epoch,
        decoded.leader_recovery_state,
        _in_sync_with(path, decoded) if decoded.isr_directories is not _NO_DIRECTORIES else (),
    )


#: Directories by ISR and the field's text: in a cluster the same few repeat.
_directories_known: dict[tuple[BrokerIds, bytes], DirectoryIds] = {}
_DIRECTORIES_BYTES_MAX = 500


def _in_sync_with(path: str, decoded: _State) -> DirectoryIds:
    """Raises MalformedError."""
    key = decoded.isr, bytes(decoded.isr_directories)
    found = _directories_known.get(key)
    if found is None:
        try:
            known = _BY_MEMBER.decode(key[1])
        except msgspec.DecodeError as error:
            raise MalformedError(path, f"isr_directories: {in_words(error)}") from None
        found = shared_directories([known.get(b, 0) for b in decoded.isr])
        if len(key[1]) <= _DIRECTORIES_BYTES_MAX:
            if len(_directories_known) >= _DISTINCT_MAX:
                _directories_known.clear()
            _directories_known[key] = found
    return found


_isr_text: dict[BrokerIds, str] = {}
_directories_text: dict[tuple[BrokerIds, DirectoryIds], str] = {}


def encode_state(state: LeaderAndIsr) -> bytes:
    """Kafka's JSON, fields in its order; ``leader_recovery_state`` only when not RECOVERED. Our own field, only if
    directories are known, comes last."""
    isr = _isr_text.get(state.isr)
    if isr is None:
        isr = ",".join(map(str, state.isr))
        if len(_isr_text) > 100_000:
            _isr_text.clear()
        if len(state.isr) <= SHARED_LENGTH_MAX:
            _isr_text[state.isr] = isr
    recovery = f',"leader_recovery_state":{state.recovery}' if state.recovery else ""
    return (
        f'{{"controller_epoch":{state.controller_epoch},"leader":{state.leader},"version":1{recovery},'
        f'"leader_epoch":{state.leader_epoch},"isr":[{isr}]{_directories_shown(state)}}}'
    ).encode()


def _directories_shown(state: LeaderAndIsr) -> str:
    if not state.directories:
        return ""
    key = state.isr, state.directories
    text = _directories_text.get(key)
    if text is None:
        named = ",".join(f'"{b}":{d}' for b, d in zip(*key, strict=True) if d)
        text = f',"isr_directories":{{{named}}}'
        if len(_directories_text) > 100_000:
            _directories_text.clear()
        if len(state.isr) <= SHARED_LENGTH_MAX:
            _directories_text[key] = text
    return text


# --- requests and configuration ----------------------------------------------------------------------------


def decode_partition_list(path: str, data: bytes | None) -> list[tuple[str, int]]:
    """(topic, partition) of each entry of ``/admin/preferred_replica_election`` or an ISR notification."""
    decoded = _decode(path, data, _PartitionList)
    return [(item.topic, item.partition) for item in decoded.partitions]


def encode_partition_list(partitions: list[tuple[str, int]]) -> bytes:
    return _dump({"version": 1, "partitions": [{"topic": t, "partition": p} for t, p in partitions]})


def decode_reassignments(path: str, data: bytes | None, version: int) -> ReassignmentRequest:
    """``/admin/reassign_partitions``; if a partition is listed twice, the last entry counts.

    An entry with more replicas than ``REPLICAS_MAX`` is refused by itself, like every entry that is not valid."""
    decoded = _decode(path, data, _Reassignments)
    entries = {(e.topic, e.partition): e.replicas for e in decoded.partitions}
    return ReassignmentRequest(tuple((*key, replicas) for key, replicas in entries.items()), version)


def encode_reassignments(entries: Sequence[tuple[str, int, BrokerIds]]) -> bytes:
    listed = [{"topic": t, "partition": p, "replicas": replicas} for t, p, replicas in entries]
    return _dump({"version": 1, "partitions": listed})


def decode_log_dir_event(path: str, data: bytes | None) -> int:
    """The id of the broker that lost a log directory."""
    return _decode(path, data, _LogDirEvent).broker


def decode_config(path: str, data: bytes | None) -> dict[str, str]:
    """Settings of an entity; an empty znode has none, like Kafka's parent znodes of other entities."""
    return _decode(path, data, _Config).config if data else {}


def encode_config(config: Mapping[str, str]) -> bytes:
    return _dump({"version": 1, "config": dict(config)})


def decode_feature(data: bytes | None, version: int) -> FeatureAnswer:
    """``/feature``, version 1 or 2; ``version``: the zkVersion. In version 2 a level is both minimum and maximum."""
    decoded = _decode(FEATURE, data, _Feature)
    features = []
    for name, level in decoded.features.items():
        high = level.max_version_level
        low = level.min_version_level or high
        if not name or low > high:
            raise MalformedError(
                FEATURE,
                f"features.{name_shown(name)}: must have a name, and min_version_level {low} be at most {high}",
            )
        features.append(FeatureRange(name, low, high))
    return FeatureAnswer(decoded.status == 1, version, tuple(features))


def encode_feature(levels: Mapping[str, int]) -> bytes:
    """``/feature`` in version 2, status enabled."""
    features = {name: {"max_version_level": level} for name, level in levels.items()}
    return _dump({"version": 2, "status": 1, "features": features})


_dump = msgspec.json.encode
