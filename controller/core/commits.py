"""Writes many partition states: bounded batches, several in flight; conflicts are redecided per partition.

Decisions are computed lazily: the next batch is decided while ZooKeeper writes the last, and the pushes of a durable
batch start while later writes continue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TypeVar

import msgspec

from controller.core.context import EventContext, Handler, Pause
from controller.core.effects import (
    Committed,
    DeleteNode,
    Problem,
    ReadNodes,
    ReadStates,
    SetState,
    StoredNode,
    Unconfirmed,
    write_node,
)
from controller.core.model import EPOCH_MAX, NO_EPOCH, BrokerIds, LeaderAndIsr, Partition
from controller.core.names import listed
from controller.core.reasons import NewerController, NoEpochLeft, NotWritten, Reason, StateGone, Unreadable
from controller.core.records import LeadershipChange
from controller.core.znode_paths import NodePath
from controller.core.znode_sizes import ZNODE_BYTES_MAX

T = TypeVar("T")

#: Writes in one multi: large enough to amortise the round trip, far below jute.maxbuffer.
BATCH_WRITES = 1000
#: Partitions examined before a yield: many that need no write must not block the event loop.
EXAMINED_MAX = 10_000
#: Partition states in one repeated read.
REFRESH_CHUNK = 10_000
#: Batches in flight.
WINDOW_BATCHES = 6
#: Why a state that another process wrote is recorded.
FOUND = "found_in_zookeeper"
#: Write attempts per partition in one event; then the failure is reported.
ATTEMPTS_MAX = 10


class StateChange(msgspec.Struct, gc=False):
    """A decision about one partition that is not durable yet. ``recipients`` are notified once it is. ``floor``: the
    highest leader epoch that we may have written before somebody else wrote the state."""

    partition: Partition
    old: LeaderAndIsr
    new: LeaderAndIsr
    recipients: tuple[int, ...] = ()
    attempts: int = 1
    floor: int = NO_EPOCH


Applied = Callable[[list[StateChange]], None]
#: Decide again from ``partition.leadership``, just re-read; None: no write is needed any more.
Redecide = Callable[[Partition], StateChange | None]


def take_effect(context: EventContext, batch: list[StateChange], reason: str) -> None:
    """A batch that elects nobody is durable: update memory, then queue pushes. Partitions that are deleted have no
    metadata to be told."""
    for change in batch:
        change.partition.leadership = change.new
    context.push_leadership([(c.recipients, c.partition) for c in batch])
    context.push_metadata([c.partition for c in batch if not context.cluster.is_deleting(c.partition)])
    context.log([LeadershipChange(c.partition, c.old, c.new) for c in batch], reason)


def write_states(
    context: EventContext, changes: Iterable[StateChange | None], applied: Applied, redecide: Redecide
) -> Handler[dict[Partition, Reason]]:
    """Make decisions durable.

    ``changes`` yields None for a partition that needs no write. ``applied`` is called with each durable batch, to
    update memory and queue pushes. Returns the partitions that could not be written, with the reason.

    Of who leads or stays in sync, and whose directory is not known, the registration tells it (docs/adr/0017).
    """
    source: Iterator[StateChange | None] = iter(changes)
    refused: list[list[StateChange]] = []
    directories_told = any(b.directories for b in context.cluster.brokers.values())
    in_flight: dict[int, list[StateChange]] = {}
    failed: dict[Partition, Reason] = {}
    exhausted = False
    while True:
        while (refused or not exhausted) and len(in_flight) < WINDOW_BATCHES:
            if refused:
                batch = refused.pop()
            else:
                batch, exhausted = _next_batch(source, failed)
            if batch:
                for change in batch if directories_told else ():
                    change.new = context.cluster.with_directories(change.new, change.old.isr)
                in_flight[context.submit_commit([SetState(c.partition, c.new) for c in batch])] = batch
            yield Pause.YIELD
        if not in_flight:
            return failed
        outcome = yield from context.wait_any(in_flight)
        batch = in_flight.pop(outcome.id)
        if isinstance(outcome, Committed):
            for change in batch if context.cluster.problems else ():
                context.solved_state(change.partition)
            applied(batch)
            continue
        assert isinstance(outcome, Unconfirmed)
        again = yield from _read_back(context, batch, outcome, applied, redecide, failed)
        if again is batch:
            half = len(batch) // 2
            refused += [batch[:half], batch[half:]]
        elif again:
            source = chain(again, source)
            exhausted = False


def _next_batch(
    source: Iterator[StateChange | None], failed: dict[Partition, Reason]
) -> tuple[list[StateChange], bool]:
    """Take decisions until a batch is full or ``EXAMINED_MAX`` is reached; True if the source is exhausted."""
    batch: list[StateChange] = []
    examined = 0
    for change in islice(source, EXAMINED_MAX):
        examined += 1
        if change is not None and change.new.leader_epoch > EPOCH_MAX:
            failed[change.partition] = NoEpochLeft(change.old.leader_epoch)
        elif change is not None:
            batch.append(change)
            if len(batch) == BATCH_WRITES:
                return batch, False
    return batch, examined < EXAMINED_MAX


def _read_back(
    context: EventContext,
    batch: list[StateChange],
    outcome: Unconfirmed,
    applied: Applied,
    redecide: Redecide,
    failed: dict[Partition, Reason],
) -> Handler[list[StateChange]]:
    """Classify the changes of an unconfirmed batch by reading back: durable, not written, or overtaken.

    Returns the changes to write again; ``batch`` itself if all of it was refused and nobody else wrote first: one of
    several may not be written, by its ACL, and the others need not wait for it.
    """
    stored = yield from context.read(ReadStates([c.partition for c in batch]))
    landed: list[StateChange] = []
    again: list[StateChange] = []
    unhurt: list[StateChange] = []
    for change, found in zip(batch, stored, strict=True):
        partition = change.partition
        if found == change.new:
            landed.append(change)
        elif isinstance(found, LeaderAndIsr) and found.partition_epoch == change.old.partition_epoch:
            again.append(change)
            unhurt.append(change)
        elif (unreadable := _overtaken(context, partition, found)) is not None:
            failed[partition] = unreadable
        elif (decided := redecide(partition)) is not None:
            assert isinstance(found, LeaderAndIsr)
            again.append(_follow(decided, change, found, written=not outcome.refused))
    if landed:
        applied(landed)
    if outcome.refused and len(unhurt) == len(batch) > 1:
        return batch
    # One that somebody else writes all the time must not keep the others from being written.
    for change in unhurt if not outcome.refused or len(batch) == 1 else ():
        change.attempts += 1
    for change in again:
        if change.attempts > ATTEMPTS_MAX:
            failed[change.partition] = NotWritten(ATTEMPTS_MAX, outcome.reason)
    return [change for change in again if change.attempts <= ATTEMPTS_MAX]


def _follow(decided: StateChange, former: StateChange, found: LeaderAndIsr, *, written: bool) -> StateChange:
    """To be written over what was found. Where the former decision may have been written, and written over, another
    leader needs another leader epoch."""
    decided.attempts = former.attempts + 1
    decided.floor = max(former.floor, former.new.leader_epoch) if written else former.floor
    epoch = max(decided.new.leader_epoch, decided.floor + 1)
    decided.new = msgspec.structs.replace(
        decided.new, leader_epoch=epoch, partition_epoch=found.partition_epoch + 1
    )
    return decided


def _went_back(found: LeaderAndIsr, known: LeaderAndIsr | None) -> bool:
    """Whether somebody wrote an older state: its ISR may lack what was acknowledged since."""
    return known is not None and found.leader_epoch < known.leader_epoch


def _overtaken(
    context: EventContext, partition: Partition, found: LeaderAndIsr | Problem | None
) -> StateGone | Unreadable | NewerController | None:
    """Put a state written by another into the cache; returns the reason where the partition must not be written."""
    if found is None:
        return StateGone()
    if isinstance(found, Problem):
        context.problem(found)
        return Unreadable(found.path, found.problem)
    epoch = context.cluster.controller_epoch
    if found.controller_epoch > epoch:
        context.log([LeadershipChange(partition, partition.leadership, found)], FOUND)
        partition.leadership = found
        return NewerController(found.controller_epoch, epoch)
    context.reject(
        "CONFLICT",
        f"partition epoch is {found.partition_epoch}, another process wrote the state: decided again",
        partition,
    )
    if _went_back(found, partition.leadership):
        # It is written over, by what is decided now or by the check of stored states.
        return None
    context.log([LeadershipChange(partition, partition.leadership, found)], FOUND)
    context.solved_state(partition)
    partition.leadership = found
    # Whatever is decided now, brokers were not notified of the other state.
    if _is_told(context, found):
        context.push_leadership([(partition.replicas, partition)])
    context.push_metadata([partition])
    return None


def refresh(
    context: EventContext, partitions: Sequence[Partition], reason: str = ""
) -> Handler[list[Partition]]:
    """Read states again, cache and push those that changed, and return their partitions.

    They are logged, as nobody else says so. With a ``reason`` they are expected ones by leaders, and LeaderAndIsr is
    queued only for a changed leader epoch. One whose leader epoch went back is left to the check of stored states.
    """
    changed: list[Partition] = []
    for start in range(0, len(partitions), REFRESH_CHUNK):
        chunk = partitions[start : start + REFRESH_CHUNK]
        stored = yield from context.read(ReadStates(chunk))
        _take_over(context, chunk, stored, changed, reason)
    context.push_metadata(changed)
    return changed


def _take_over(
    context: EventContext,
    partitions: Sequence[Partition],
    stored: Sequence[LeaderAndIsr | Problem | None],
    changed: list[Partition],
    reason: str,
) -> None:
    records: list[LeadershipChange] = []
    told: list[tuple[BrokerIds, Partition]] = []
    for partition, found in zip(partitions, stored, strict=True):
        if isinstance(found, Problem):
            context.problem(found)
        elif found is not None:
            context.solved_state(partition)
            known = partition.leadership
            if found == known or _went_back(found, known):
                continue
            partition.leadership = found
            expected = reason and known is not None and found.leader_epoch == known.leader_epoch
            if not expected and _is_told(context, found):
                told.append((partition.replicas, partition))
            changed.append(partition)
            records.append(LeadershipChange(partition, known, found))
    context.push_leadership(told)
    context.log(records, reason or FOUND)


def _is_told(context: EventContext, found: LeaderAndIsr) -> bool:
    """Not of a leader that has lost its data: the others would forget what they acknowledged. It is replaced."""
    return found.leader not in context.cluster.without_data(found)


def delete_notifications(context: EventContext, paths: Sequence[str]) -> Handler[None]:
    """Delete processed notification znodes; those that cannot be deleted are read again with the next one."""
    for start in range(0, len(paths), BATCH_WRITES):
        batch = paths[start : start + BATCH_WRITES]
        outcome = yield from context.commit([DeleteNode(path) for path in batch])
        if isinstance(outcome, Unconfirmed):
            context.reject("CONFLICT", f"{listed(batch)}: not deleted: {outcome.reason}")
        else:
            for path in batch:
                context.solved(path)


# --- znodes of ours that hold one value each ---------------------------------------------------------------


def load_node(context: EventContext, path: NodePath[T], absent: T) -> Handler[T]:
    """The stored value, at failover. A znode that does not decode is reported, and counts as absent."""
    (found,) = yield from context.read(ReadNodes([path]))
    if isinstance(found, Problem):
        context.problem(found)
    return found.value if isinstance(found, StoredNode) else absent


def change_node(
    context: EventContext, path: NodePath[T], absent: T, change: Callable[[T], T]
) -> Handler[tuple[T | None, str]]:
    """Apply ``change`` to the stored value (``absent`` where there is none); retried on conflicts.

    Returns the stored value and an empty string; or None and the reason as text: the znode is unreadable, the value
    would be too large, or all attempts failed. An unchanged value is not written.
    """
    reason = ""
    for _ in range(ATTEMPTS_MAX):
        (found,) = yield from context.read(ReadNodes([path]))
        if isinstance(found, Problem):
            context.problem(found)
            return None, f"{found.path}: {found.problem}"
        before = found.value if isinstance(found, StoredNode) else absent
        after = change(before)
        if after != before:
            if (size := len(msgspec.json.encode(after))) > ZNODE_BYTES_MAX:
                return None, f"{path}: would take {size} bytes, must take at most {ZNODE_BYTES_MAX}"
            version = found.version if isinstance(found, StoredNode) else None
            outcome = yield from context.commit([write_node(path, after, version)])
            if not isinstance(outcome, Committed):
                reason = outcome.reason
                continue
        context.solved(path)
        return after, ""
    return None, f"{path}: not written in {ATTEMPTS_MAX} attempts; the last: {reason}"
