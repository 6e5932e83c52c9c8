"""Control requests as plain values: decoded and validated once. Pure.

A malformed partition state becomes a `Malformed` in its place: its answer is INVALID_REQUEST, and the other partitions
are handled normally. This module checks only the form. Whether a request is current is checked in
`broker_stub.control.gates` and `broker_stub.control.replicas`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from proto.gen import broker_control_pb2 as wire
from proto.gen import common_pb2 as codes

#: A partition: topic name and partition number.
Key = tuple[str, int]

NO_LEADER = -1
#: Leader of a partition whose topic is being deleted, in UpdateMetadata (reference, section 9.1).
LEADER_DURING_DELETE = -2
#: Special leader epochs in StopReplica (reference, section 10.2).
NO_EPOCH = -1
EPOCH_DURING_DELETE = -2

#: As Kafka's: letters, digits, ``.``, ``_``, ``-``, at most 249, and not ``.`` or ``..``.
TOPIC_NAME = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}\Z")
TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}\Z")
#: 16 zero bytes: the topic has no id.
NIL_TOPIC_ID = "A" * 22

_RECOVERY_STATES = frozenset(codes.LeaderRecoveryState.values())
_QUOTE_CHARACTERS_MAX = 80


class Header(NamedTuple):
    """The header of every control request."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    event_id: int


class Malformed(NamedTuple):
    """An invalid part of a request. ``key`` is as sent; None for the header."""

    key: Key | None
    field: str
    problem: str

    @property
    def reason(self) -> str:
        return f"{self.field} {self.problem}"


class LeaderAndIsr(NamedTuple):
    """One partition of a LeaderAndIsr request. ``topic_id`` None: not in the request.

    ``is_new``: this broker has had no replica of it before.
    """

    key: Key
    topic_id: str | None
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    is_new: bool = False


class StopReplica(NamedTuple):
    """One partition of a StopReplica request."""

    key: Key
    leader_epoch: int
    delete: bool


class PartitionMetadata(NamedTuple):
    """One partition of an UpdateMetadata request, and of the metadata cache."""

    key: Key
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]


class Endpoint(NamedTuple):
    listener: str
    security_protocol: str
    host: str
    port: int


class LiveBroker(NamedTuple):
    """A broker that the controller counts as live or shutting down. ``rack`` None: none."""

    broker_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None


class MetadataUpdate(NamedTuple):
    """An UpdateMetadata request. ``topic_ids``: topic to id; None: the topic has no known id. ``ends_snapshot``: it is
    the last request of a full metadata snapshot, ``snapshot_of`` these topics; None: of all."""

    partitions: list[PartitionMetadata | Malformed]
    topic_ids: dict[str, str | None]
    live_brokers: tuple[LiveBroker, ...]
    ends_snapshot: bool = False
    snapshot_of: frozenset[str] | None = None


ControlRequest = wire.LeaderAndIsrRequest | wire.StopReplicaRequest | wire.UpdateMetadataRequest
_Item = TypeVar("_Item", LeaderAndIsr, StopReplica, PartitionMetadata)


class _Reader:
    """Checks values that repeat within one request (topic names, replica lists) once, and shares them."""

    def __init__(self, topic_ids: Mapping[str, str]) -> None:
        self._topic_ids = topic_ids
        self._topics: dict[str, tuple[str, str | None, tuple[str, str] | None]] = {}
        self._lists: dict[tuple[int, ...], tuple[int, ...]] = {}

    def topic(self, name: str) -> tuple[str, str | None, tuple[str, str] | None]:
        """The name, its topic id, and the problem of either as (field, problem)."""
        found = self._topics.get(name)
        if found is None:
            found = self._topics[name] = self._read_topic(name)
        return found

    def _read_topic(self, name: str) -> tuple[str, str | None, tuple[str, str] | None]:
        if problem := topic_name_problem(name):
            return name, None, ("topic", problem)
        topic_id = self._topic_ids.get(name, "")
        if topic_id in ("", NIL_TOPIC_ID):
            return name, None, None
        if not TOPIC_ID.match(topic_id):
            return name, None, ("topic_ids", f"{_quote(topic_id)}: must be 22 characters of URL-safe base64")
        return name, topic_id, None

    def broker_ids(self, ids: Iterable[int]) -> tuple[int, ...]:
        value = tuple(ids)
        return self._lists.setdefault(value, value)


def _quote(text: str) -> str:
    short = text if len(text) <= _QUOTE_CHARACTERS_MAX else text[:_QUOTE_CHARACTERS_MAX] + "…"
    return repr(short)


def topic_name_problem(name: str) -> str | None:
    """Why this is not a valid topic name; None: it is valid."""
    if TOPIC_NAME.match(name):
        return None
    return f"{_quote(name)}: must be 1 to 249 of letters, digits, '.', '_' and '-', and not '.' or '..'"


def partition_name(topic: str, number: int) -> str:
    """A partition's name for messages. An invalid topic name is quoted and shortened."""
    return f"{topic if TOPIC_NAME.match(topic) else _quote(topic)}-{number}"


def _at_least(field: str, value: int, lowest: int) -> tuple[str, str] | None:
    return None if value >= lowest else (field, f"{value}: must be {lowest} or more")


def _broker_ids_problem(field: str, ids: tuple[int, ...], needed: bool = False) -> tuple[str, str] | None:
    if not ids:
        return (field, "is empty: must name at least one broker") if needed else None
    if min(ids) < 0:
        return field, f"{list(ids)}: broker ids must be 0 or more"
    if len(set(ids)) != len(ids):
        return field, f"{list(ids)}: names a broker twice"
    return None


def read_header(request: ControlRequest | wire.ControllerHeader) -> Header | Malformed:
    """The header of a control request, or its problem."""
    header = Header(request.controller_id, request.controller_epoch, request.broker_epoch, request.event_id)
    wrong = (
        _at_least("controller_id", header.controller_id, 0)
        or _at_least("controller_epoch", header.controller_epoch, 0)
        or _at_least("broker_epoch", header.broker_epoch, 0)
        or _at_least("event_id", header.event_id, 0)
    )
    return Malformed(None, *wrong) if wrong else header


def read_leader_and_isr(request: wire.LeaderAndIsrRequest) -> list[LeaderAndIsr | Malformed]:
    """The partitions of a LeaderAndIsr request, in its order."""
    reader = _Reader(request.topic_ids)
    items = [_read_leader_and_isr(state, reader) for state in request.partition_states]
    return _refuse_repeated(items)


def _read_leader_and_isr(state: wire.LeaderAndIsrPartitionState, reader: _Reader) -> LeaderAndIsr | Malformed:
    topic, topic_id, wrong = reader.topic(state.topic)
    item = LeaderAndIsr(
        (topic, state.partition),
        topic_id,
        state.controller_epoch,
        state.leader,
        state.leader_epoch,
        reader.broker_ids(state.isr),
        state.partition_epoch,
        reader.broker_ids(state.replicas),
        reader.broker_ids(state.adding_replicas),
        reader.broker_ids(state.removing_replicas),
        state.is_new,
    )
    recovery = state.leader_recovery_state
    wrong = (
        wrong
        or _at_least("partition", item.key[1], 0)
        or _at_least("controller_epoch", item.controller_epoch, 0)
        or _at_least("leader", item.leader, NO_LEADER)
        or _at_least("leader_epoch", item.leader_epoch, 0)
        or _at_least("partition_epoch", item.partition_epoch, 0)
        or _broker_ids_problem("replicas", item.replicas, needed=True)
        or _broker_ids_problem("isr", item.isr)
        or _broker_ids_problem("adding_replicas", item.adding)
        or _broker_ids_problem("removing_replicas", item.removing)
        or (
            None if recovery in _RECOVERY_STATES else ("leader_recovery_state", f"{recovery}: must be 0 or 1")
        )
    )
    return Malformed(item.key, *wrong) if wrong else item


def read_stop_replica(request: wire.StopReplicaRequest) -> list[StopReplica | Malformed]:
    """The partitions of a StopReplica request, in its order."""
    reader = _Reader({})
    items: list[StopReplica | Malformed] = []
    for state in request.partition_states:
        topic, _, wrong = reader.topic(state.topic)
        item = StopReplica((topic, state.partition), state.leader_epoch, state.delete_partition)
        wrong = (
            wrong
            or _at_least("partition", state.partition, 0)
            or _at_least("leader_epoch", item.leader_epoch, EPOCH_DURING_DELETE)
        )
        items.append(Malformed(item.key, *wrong) if wrong else item)
    return _refuse_repeated(items)


def read_update_metadata(request: wire.UpdateMetadataRequest) -> MetadataUpdate | Malformed:
    """An UpdateMetadata request. Malformed when its list of live brokers is: part of that list cannot be used."""
    brokers = _read_live_brokers(request.live_brokers)
    if isinstance(brokers, Malformed):
        return brokers
    reader = _Reader(request.topic_ids)
    items = _refuse_repeated([_read_metadata(s, reader) for s in request.partition_states])
    topic_ids: dict[str, str | None] = {}
    for topic in {item.key[0] for item in items if item.key is not None} | set(request.topic_ids):
        _, topic_id, wrong = reader.topic(topic)
        if not wrong:
            topic_ids[topic] = topic_id
        elif topic in request.topic_ids and all(item.key is None or item.key[0] != topic for item in items):
            items.append(Malformed((topic, -1), *wrong))
    of = frozenset(request.snapshot_of.topics) if request.HasField("snapshot_of") else None
    return MetadataUpdate(items, topic_ids, brokers, request.ends_snapshot, of)


def _read_metadata(
    state: wire.UpdateMetadataPartitionState, reader: _Reader
) -> PartitionMetadata | Malformed:
    topic, _, wrong = reader.topic(state.topic)
    item = PartitionMetadata(
        (topic, state.partition),
        state.controller_epoch,
        state.leader,
        state.leader_epoch,
        reader.broker_ids(state.isr),
        state.partition_epoch,
        reader.broker_ids(state.replicas),
        reader.broker_ids(state.offline_replicas),
    )
    wrong = (
        wrong
        or _at_least("partition", state.partition, 0)
        or _at_least("leader", item.leader, LEADER_DURING_DELETE)
    )
    if wrong is None and item.leader != LEADER_DURING_DELETE:
        wrong = (
            _at_least("controller_epoch", item.controller_epoch, 0)
            or _at_least("leader_epoch", item.leader_epoch, NO_EPOCH)
            or _at_least("partition_epoch", item.partition_epoch, NO_EPOCH)
            or _broker_ids_problem("replicas", item.replicas, needed=True)
            or _broker_ids_problem("isr", item.isr)
            or _broker_ids_problem("offline_replicas", item.offline_replicas)
        )
    return Malformed(item.key, *wrong) if wrong else item


def _read_live_brokers(brokers: Iterable[wire.LiveBroker]) -> tuple[LiveBroker, ...] | Malformed:
    read: dict[int, LiveBroker] = {}
    for broker in brokers:
        if broker.broker_id < 0:
            return Malformed(None, "live_brokers", f"{broker.broker_id}: broker ids must be 0 or more")
        if broker.broker_id in read:
            return Malformed(None, "live_brokers", f"names broker {broker.broker_id} twice")
        endpoints = tuple(Endpoint(e.listener, e.security_protocol, e.host, e.port) for e in broker.endpoints)
        for endpoint in endpoints:
            if not 0 <= endpoint.port <= 65535:
                where = f"of broker {broker.broker_id}: port {endpoint.port}"
                return Malformed(None, "live_brokers", f"{where}: must be 0 to 65535")
        read[broker.broker_id] = LiveBroker(broker.broker_id, endpoints, broker.rack or None)
    return tuple(read.values())


def _refuse_repeated(items: list[_Item | Malformed]) -> list[_Item | Malformed]:
    """Replace all entries of a partition that is named twice by Malformed: either could be the intended one."""
    times = Counter(item.key for item in items)
    if len(times) == len(items):
        return items
    problem = "is named twice in one request"
    return [Malformed(item.key, "partition", problem) if times[item.key] > 1 else item for item in items]
