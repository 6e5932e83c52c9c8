"""The core's log batches as state-change records (docs/state-change-log.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from controller.core.effects import LogBatch
from controller.core.model import LeaderAndIsr, Partition

Record = dict[str, Any]


def count_of(batch: LogBatch) -> int:
    """How many records a batch becomes at most."""
    return len(batch.rows) * (2 if batch.kind == "leadership" else 1)


def expand(batch: LogBatch) -> Iterator[Record]:
    """Records of a batch, made when they are written: rows hold only values that no longer change."""
    rows: Iterable[Any] = batch.rows
    match batch.kind:
        case "record":
            yield from rows
        case "partition":
            for partition, before, after, leadership in rows:
                record = _of(partition, "partition", batch.reason)
                record["from"], record["to"] = before.value, after.value
                yield _with_state(record, leadership)
        case "replica":
            for partition, broker_id, before, after in rows:
                record = _of(partition, "replica", batch.reason)
                record["replica"], record["from"], record["to"] = broker_id, before.value, after.value
                yield record
        case "leadership":
            for partition, old, new in rows:
                yield from _leadership(partition, old, new, batch.reason)
        case "reject":
            for partition, error, before, after, reason in rows:
                record = (
                    _of(partition, "reject", reason) if partition else {"kind": "reject", "reason": reason}
                )
                record["error"] = error
                if after:
                    record["from"], record["to"] = before, after
                yield record
        case unknown:
            raise AssertionError(f"log batch of unknown kind {unknown!r}")


def _leadership(
    partition: Partition, old: LeaderAndIsr | None, new: LeaderAndIsr, reason: str
) -> Iterator[Record]:
    old_leader = old.leader if old else -1
    if old_leader != new.leader:
        record = _of(partition, "leader", reason)
        record["from"], record["to"] = str(old_leader), str(new.leader)
        yield _with_state(record, new)
    old_isr = old.isr if old else ()
    if old_isr != new.isr:
        record = _of(partition, "isr", reason)
        record["from"], record["to"] = _list(old_isr), _list(new.isr)
        yield _with_state(record, new)


def _of(partition: Partition, kind: str, reason: str) -> Record:
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


def _list(ids: Iterable[int]) -> str:
    return f"[{','.join(map(str, ids))}]"
