"""Writing many partition states: bounded batches, several in flight, conflicts decided anew one by one.

Decisions are drawn lazily, so the next batch is decided while ZooKeeper works on the last, and pushes of
what has landed start while later writes go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, islice

import msgspec

from controller.core.effects import Committed, Problem, ReadStates, SetState, Unsettled
from controller.core.model import LeaderAndIsr, Partition
from controller.core.turn import Pause, Procedure, Turn

#: Writes in one multi: large enough to amortise, far below jute.maxbuffer.
BATCH_WRITES = 1000
#: Batches in flight.
WINDOW_BATCHES = 6
#: A partition that loses the race this often in one event is left alone, and that is reported.
ATTEMPTS_MAX = 10


class StateChange(msgspec.Struct, gc=False):
    """A decision about one partition that is not durable yet. ``recipients`` are told once it is."""

    partition: Partition
    old: LeaderAndIsr
    new: LeaderAndIsr
    recipients: tuple[int, ...] = ()
    attempts: int = 1


Applied = Callable[[list[StateChange]], None]
#: Decide anew from ``partition.leadership``, just re-read; None: nothing to do any more.
Redecide = Callable[[Partition], StateChange | None]


def write_states(
    turn: Turn, changes: Iterable[StateChange], applied: Applied, redecide: Redecide
) -> Procedure[dict[Partition, str]]:
    """Make decisions durable.

    ``applied`` is called with each batch that landed, to update memory and queue pushes. Returns what could
    not be written, with the reason in words.
    """
    source = iter(changes)
    in_flight: dict[int, list[StateChange]] = {}
    failed: dict[Partition, str] = {}
    exhausted = False
    while True:
        while not exhausted and len(in_flight) < WINDOW_BATCHES:
            batch = list(islice(source, BATCH_WRITES))
            exhausted = len(batch) < BATCH_WRITES
            if batch:
                in_flight[turn.submit_commit([SetState(c.partition, c.new) for c in batch])] = batch
                yield Pause.BREATHE
        if not in_flight:
            return failed
        outcome = yield from turn.wait_any(in_flight)
        batch = in_flight.pop(outcome.id)
        if isinstance(outcome, Committed):
            applied(batch)
            continue
        assert isinstance(outcome, Unsettled)
        again = yield from _settle(turn, batch, outcome.reason, applied, redecide, failed)
        if again:
            source = chain(again, source)
            exhausted = False


def _settle(
    turn: Turn,
    batch: list[StateChange],
    reason: str,
    applied: Applied,
    redecide: Redecide,
    failed: dict[Partition, str],
) -> Procedure[list[StateChange]]:
    """Sort a batch that did not land as a whole: landed after all, untouched, or overtaken by someone."""
    stored = yield from turn.read(ReadStates([c.partition for c in batch]))
    landed: list[StateChange] = []
    again: list[StateChange] = []
    for change, found in zip(batch, stored, strict=True):
        partition = change.partition
        if found == change.new:
            landed.append(change)
        elif isinstance(found, LeaderAndIsr) and found.partition_epoch == change.old.partition_epoch:
            again.append(change)
            change.attempts += 1
        elif (unreadable := _overtaken(turn, partition, found)) is not None:
            failed[partition] = unreadable
        elif (decided := redecide(partition)) is not None:
            decided.attempts = change.attempts + 1
            again.append(decided)
    if landed:
        applied(landed)
    for change in again:
        if change.attempts > ATTEMPTS_MAX:
            failed[change.partition] = f"not written in {ATTEMPTS_MAX} attempts; the last: {reason}"
    return [change for change in again if change.attempts <= ATTEMPTS_MAX]


def _overtaken(turn: Turn, partition: Partition, found: LeaderAndIsr | Problem | None) -> str | None:
    """Take a newer stored state into the cache; a reason in words where that is not possible."""
    if found is None:
        return "its state znode is gone"
    if isinstance(found, Problem):
        turn.problem(found)
        return f"{found.path}: {found.problem}"
    epoch = turn.cluster.controller_epoch
    if found.controller_epoch > epoch:
        return f"its state was written by controller epoch {found.controller_epoch}, newer than ours, {epoch}"
    turn.reject(
        "CONFLICT",
        f"partition epoch is {found.partition_epoch}, someone else wrote: decided anew",
        partition,
    )
    turn.solved_state(partition)
    partition.leadership = found
    # Whatever is decided now, nobody was told of what the other one wrote.
    turn.push_leadership(partition.replicas, partition)
    turn.push_metadata([partition])
    return None
