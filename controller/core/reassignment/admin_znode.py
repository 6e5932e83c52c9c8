"""``/admin/reassign_partitions``: entries that were dealt with are taken out, the node goes with the last one.

Tools wait for the node to disappear, and a new one can only be created then (reference, section 1.1; KAFKA-6193).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from controller.core.commits import ATTEMPTS_MAX
from controller.core.context import Procedure, Turn
from controller.core.effects import Committed, DeleteNode, Problem, ReadReassignment, SetReassignment
from controller.core.effects import ReassignmentRequest as Listed
from controller.core.model import BrokerIds

REASSIGNMENT_PATH = "/admin/reassign_partitions"

Key = tuple[str, int]


def remove_listed(turn: Turn, done: Mapping[Key, BrokerIds]) -> Procedure[None]:
    """Take out partitions that are listed with exactly these replicas."""
    if done:
        yield from trim(turn, lambda key, replicas: done.get(key) == replicas)


def remove_abandoned(turn: Turn) -> Procedure[None]:
    """Take out moves that ended with their topic: whoever wrote the node waits for them, too."""
    gone, turn.cluster.moves.abandoned = turn.cluster.moves.abandoned, set()
    if gone:
        yield from trim(turn, lambda key, _: key in gone)


def trim(turn: Turn, unwanted: Callable[[Key, BrokerIds], bool]) -> Procedure[None]:
    """Take out entries, conditional on the node's version: what a tool adds meanwhile stays."""
    reason = ""
    for _ in range(ATTEMPTS_MAX):
        found: Listed | Problem | None = yield from turn.read(ReadReassignment())
        if not isinstance(found, Listed):
            # Absent: nothing to do. Malformed: whoever processes it deletes it.
            return
        kept = [entry for entry in found.entries if not unwanted((entry[0], entry[1]), entry[2])]
        if kept and len(kept) == len(found.entries):
            return
        outcome = yield from turn.commit([SetReassignment(kept, found.version)])
        if isinstance(outcome, Committed):
            return
        reason = outcome.reason
    turn.reject("CONFLICT", f"{REASSIGNMENT_PATH} could not be trimmed: {reason}")


def delete_malformed(turn: Turn, problem: Problem) -> Procedure[bool]:
    """Record what does not decode, and delete it: left in place it would block every later one.

    Returns whether it is gone.
    """
    turn.problem(problem)
    outcome = yield from turn.commit([DeleteNode(REASSIGNMENT_PATH)])
    if not isinstance(outcome, Committed):
        turn.reject("CONFLICT", f"{REASSIGNMENT_PATH}: {outcome.reason}")
        return False
    return True
