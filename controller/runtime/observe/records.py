"""Formatting of the core's records as lines of the state-change log (docs/state-change-log.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from controller.core.model import LeaderAndIsr
from controller.core.records import (
    AuditFinding,
    BrokerChange,
    ControllerChange,
    EntityAltered,
    FailoverPhase,
    FeatureChange,
    LeadershipChange,
    LogBatch,
    NamedPartition,
    PartitionTransition,
    PushAcknowledged,
    PushSent,
    R,
    ReassignmentStep,
    Rejection,
    ReplicaTransition,
    RequestRecord,
    StateRecord,
    TopicChange,
    UncleanElectionEnabled,
)

Record = dict[str, Any]


def kinds_of(batch: LogBatch) -> tuple[str, ...]:
    """The kinds of lines that its records become: one record becomes at most one line of each kind."""
    return _LINES[batch.kind].kinds


def count_of(batch: LogBatch) -> int:
    """The largest number of lines that a batch can become."""
    return len(batch.records) * len(kinds_of(batch))


def expand(batch: LogBatch) -> Iterator[Record]:
    """The lines of a batch. They may be made later, because records hold only values that no longer change."""
    return _LINES[batch.kind].of(batch.records, batch.reason)


def _partition(records: Iterable[PartitionTransition], reason: str) -> Iterator[Record]:
    for record in records:
        line = _of(record.partition, "partition", reason)
        line["from"], line["to"] = record.before.value, record.after.value
        if record.silent_us is not None:
            line["silent_us"] = record.silent_us
        if record.replicas is not None:
            line["replicas"] = record.replicas
        yield _with_state(line, record.leadership)


def _replica(records: Iterable[ReplicaTransition], reason: str) -> Iterator[Record]:
    for record in records:
        line = _of(record.partition, "replica", reason)
        line["replica"], line["from"], line["to"] = record.broker_id, record.before.value, record.after.value
        yield line


def _leadership(records: Iterable[LeadershipChange], reason: str) -> Iterator[Record]:
    for record in records:
        old, new = record.old, record.new
        old_leader, old_isr = (old.leader, old.isr) if old else (-1, ())
        led, synced = old_leader != new.leader, old_isr != new.isr
        if old is not None and not led and not synced:
            led = old.leader_epoch != new.leader_epoch
            synced = not led and old.partition_epoch != new.partition_epoch
        if led:
            line = _of(record.partition, "leader", reason)
            line["from"], line["to"] = str(old_leader), str(new.leader)
            yield _with_state(line, new)
        if synced:
            line = _of(record.partition, "isr", reason)
            line["from"], line["to"] = _list(old_isr), _list(new.isr)
            yield _with_state(line, new)


def _reject(records: Iterable[Rejection], _: str) -> Iterator[Record]:
    for record in records:
        if record.partition is not None:
            line = _of(record.partition, "reject", record.reason)
        else:
            line = {"kind": "reject", "reason": record.reason}
        line["error"] = record.error
        if record.after:
            line["from"], line["to"] = record.before, record.after
        yield line


def _reassignment(record: ReassignmentStep) -> Record:
    named = {"topic": record.partition.topic.name, "partition": record.partition.number}
    replicas = {} if record.replicas is None else {"replicas": record.replicas}
    return {**named, "to": record.to, "reason": record.reason, **replicas}


def _audit(record: AuditFinding) -> Record:
    named = {"topic": record.partition.topic.name, "partition": record.partition.number}
    broker = {} if record.broker_id is None else {"replica": record.broker_id}
    return {**named, **broker, "to": record.to, "reason": record.reason}


def _controller(record: ControllerChange) -> Record:
    return {**_unless_empty("from", record.before), "to": record.to, "reason": record.reason}


def _failover(record: FailoverPhase) -> Record:
    return {"to": record.phase, "count": record.count, "duration_us": record.duration_us}


def _broker(record: BrokerChange) -> Record:
    return {
        "replica": record.broker_id,
        **_unless_empty("from", record.before),
        "to": record.to,
        **({} if record.count is None else {"count": record.count}),
        **({} if record.silent_us is None else {"silent_us": record.silent_us}),
        **({} if record.reason is None else {"reason": record.reason}),
    }


def _topic(record: TopicChange) -> Record:
    line = {"topic": record.topic, "from": record.before, "to": record.after}
    return {**line, **_unless_empty("reason", record.reason)}


def _altered(record: EntityAltered) -> Record:
    return {"to": record.entity, "count": record.count}


def _unclean(record: UncleanElectionEnabled) -> Record:
    return {"to": "unclean_election_enabled", "reason": record.reason}


def _feature(record: FeatureChange) -> Record:
    return {"from": str(record.before), "to": str(record.after), "reason": record.name}


def _push(record: PushSent) -> Record:
    return {"replica": record.broker_id, "to": record.message, "count": record.count}


def _ack(record: PushAcknowledged) -> Record:
    line = {"replica": record.broker_id, "to": record.message, "count": record.count}
    return {**line, "duration_us": record.duration_us, **_unless_empty("error", record.error)}


def _request(record: RequestRecord) -> Record:
    return {
        "to": record.method,
        "principal": record.principal,
        **_unless_empty("address", record.address),
        **_unless_empty("subject", record.subject),
        **_unless_empty("error", record.error),
        **({} if record.count is None else {"count": record.count}),
        **_unless_empty("reason", record.reason),
    }


class _Lines(NamedTuple):
    """How records of one class are formatted. ``of`` takes the records and their batch's reason."""

    kinds: tuple[str, ...]
    of: Callable[[Sequence[StateRecord], str], Iterator[Record]]


_Table = dict[type[msgspec.Struct], _Lines]


def _many(
    kind: type[R], kinds: tuple[str, ...], of: Callable[[Iterable[R], str], Iterator[Record]]
) -> _Table:
    return {kind: _Lines(kinds, lambda records, reason: of(cast(Sequence[R], records), reason))}


def _one(kind: type[R], name: str, of: Callable[[R], Record]) -> _Table:
    """One line for each record, which has its own reason."""

    def lines(records: Sequence[StateRecord], _: str) -> Iterator[Record]:
        return ({"kind": name, **of(record)} for record in cast(Sequence[R], records))

    return {kind: _Lines((name,), lines)}


_LINES: _Table = {
    **_many(PartitionTransition, ("partition",), _partition),
    **_many(ReplicaTransition, ("replica",), _replica),
    **_many(LeadershipChange, ("leader", "isr"), _leadership),
    **_many(Rejection, ("reject",), _reject),
    **_one(AuditFinding, "audit", _audit),
    **_one(ReassignmentStep, "reassignment", _reassignment),
    **_one(ControllerChange, "controller", _controller),
    **_one(FailoverPhase, "failover", _failover),
    **_one(BrokerChange, "broker", _broker),
    **_one(TopicChange, "topic", _topic),
    **_one(EntityAltered, "config", _altered),
    **_one(UncleanElectionEnabled, "config", _unclean),
    **_one(FeatureChange, "feature", _feature),
    **_one(PushSent, "push", _push),
    **_one(PushAcknowledged, "ack", _ack),
    **_one(RequestRecord, "request", _request),
}
#: Every kind of line that a controller writes.
WRITTEN_KINDS = frozenset(kind for lines in _LINES.values() for kind in lines.kinds)


def _of(partition: NamedPartition, kind: str, reason: str) -> Record:
    record: Record = {"kind": kind, "topic": partition.topic.name, "partition": partition.number}
    if reason:
        record["reason"] = reason
    return record


def _with_state(record: Record, state: LeaderAndIsr | None) -> Record:
    if state is not None:
        record["leader"] = state.leader
        record["leader_epoch"] = state.leader_epoch
        record["isr"] = state.isr
        record["partition_epoch"] = state.partition_epoch
    return record


def _unless_empty(field: str, text: str) -> dict[str, str]:
    return {field: text} if text else {}


def _list(ids: Iterable[int]) -> str:
    return f"[{','.join(map(str, ids))}]"
