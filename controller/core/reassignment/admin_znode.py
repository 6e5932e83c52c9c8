"""``/admin/reassign_partitions``: finished entries are removed; the znode is deleted with the last one.

Tools wait until the znode is deleted; only then can a new one be created (reference, section 1.1; KAFKA-6193).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from controller.core.commits import ATTEMPTS_MAX
from controller.core.context import EventContext, Handler
from controller.core.effects import Committed, Problem, ReadReassignment, SetReassignment
from controller.core.effects import ReassignmentRequest as Listed
from controller.core.model import BrokerIds
from controller.core.znode_paths import REASSIGN_PARTITIONS

Key = tuple[str, int]


def remove_listed(context: EventContext, done: Mapping[Key, BrokerIds]) -> Handler[None]:
    """Remove entries with exactly these replicas."""
    if done:
        yield from trim(context, lambda key, replicas: done.get(key) == replicas)


def remove_abandoned(context: EventContext) -> Handler[None]:
    """Remove reassignments that ended because their topic vanished: the tool waits for them, too."""
    gone, context.cluster.reassignments.abandoned = context.cluster.reassignments.abandoned, set()
    if gone:
        yield from trim(context, lambda key, _: key in gone)


def trim(context: EventContext, unwanted: Callable[[Key, BrokerIds], bool]) -> Handler[None]:
    """Remove entries, conditional on the znode's version: entries that a tool adds or changes meanwhile stay, and are
    requests of their own."""
    reason = ""
    seen: frozenset[tuple[str, int, BrokerIds]] | None = None
    for _ in range(ATTEMPTS_MAX):
        found = yield from context.read(ReadReassignment())
        if not isinstance(found, Listed):
            # Absent: nothing to do. Malformed: ``process_znode`` deletes it.
            return
        seen = frozenset(found.entries) if seen is None else seen
        kept = [e for e in found.entries if e not in seen or not unwanted((e[0], e[1]), e[2])]
        if kept and len(kept) == len(found.entries):
            return
        outcome = yield from context.commit([SetReassignment(kept, found.version)])
        if isinstance(outcome, Committed):
            return
        reason = outcome.reason
    context.reject("CONFLICT", f"{REASSIGN_PARTITIONS} could not be trimmed: {reason}")


def delete_malformed(context: EventContext, problem: Problem) -> Handler[bool]:
    """Log and delete a znode that does not decode: it would block every later one. Exactly what was read: a tool may
    have put a request in its place.

    Returns whether it was deleted.
    """
    context.problem(problem)
    outcome = yield from context.commit([SetReassignment((), problem.version)])
    if not isinstance(outcome, Committed):
        context.reject("CONFLICT", f"{REASSIGN_PARTITIONS}: {outcome.reason}")
        return False
    return True
