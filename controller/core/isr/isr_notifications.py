"""Sequential notification nodes of brokers (reference, sections 8.4, 8.5): read, acted on, deleted.

A node that does not decode is recorded and deleted like the others: nobody would ever mend it.
"""

from __future__ import annotations

from collections.abc import Sequence

from controller.core.commits import BATCH_WRITES, refresh
from controller.core.context import Procedure, Turn
from controller.core.effects import DeleteNode, Problem, ReadIsrNotifications, Unsettled
from controller.core.model import Partition
from controller.core.names import name_shown
from controller.core.reassignment import phases


def isr_changed(turn: Turn) -> Procedure[None]:
    """IsrChangeNotification: leaders wrote in-sync sets themselves; take them over and tell every broker.

    Completing a reassignment that waited for such a set is an event of its own (reference, section 8.2).
    """
    notes: Sequence[tuple[str, list[tuple[str, int]] | Problem]] = yield from turn.read(
        ReadIsrNotifications()
    )
    named: dict[Partition, None] = {}
    for path, listed in notes:
        if isinstance(listed, Problem):
            turn.problem(listed)
            continue
        for topic, number in listed:
            partition = turn.cluster.partition(topic, number)
            if partition is None:
                turn.reject(
                    "UNKNOWN_TOPIC_OR_PARTITION", f"{path}: {name_shown(topic)}-{number}: no such partition"
                )
            else:
                named[partition] = None
    changed = yield from refresh(turn, list(named), "isr_change_notification")
    told = set(changed)
    turn.push_metadata([p for p in named if p not in told])
    yield from delete_notifications(turn, [path for path, _ in notes])
    phases.isr_changed(turn, named)


def delete_notifications(turn: Turn, paths: Sequence[str]) -> Procedure[None]:
    """Delete nodes that were dealt with; what cannot be deleted is read again with the next one."""
    for start in range(0, len(paths), BATCH_WRITES):
        batch = paths[start : start + BATCH_WRITES]
        outcome = yield from turn.commit([DeleteNode(path) for path in batch])
        if isinstance(outcome, Unsettled):
            turn.reject("CONFLICT", f"notifications could not be deleted: {outcome.reason}")
        else:
            for path in batch:
                turn.solved(path)
