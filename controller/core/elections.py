"""Elections on request: the legacy znode ``/admin/preferred_replica_election`` (reference, section 8.3)."""

from __future__ import annotations

from collections.abc import Sequence

from controller.core import election, partition_machine
from controller.core.effects import DeleteNode, Problem, ReadPreferredElection, Unsettled
from controller.core.model import Partition
from controller.core.turn import Procedure, Turn

PREFERRED_ELECTION_PATH = "/admin/preferred_replica_election"


def process_preferred_znode(turn: Turn) -> Procedure[int]:
    """Run what the znode asks for, delete it, look again until it is absent and its watch is armed.

    A request that does not decode is recorded and deleted: left in place it would block every later one.
    Returns how many partitions were elected.
    """
    elected = 0
    while True:
        request: list[tuple[str, int]] | Problem | None = yield from turn.read(ReadPreferredElection())
        if request is None:
            turn.solved(PREFERRED_ELECTION_PATH)
            return elected
        if isinstance(request, Problem):
            turn.problem(request)
        else:
            wanted = _electable(turn, request)
            failed = yield from partition_machine.to_online(turn, wanted, election.PREFERRED)
            elected += len(wanted) - len(failed)
        outcome = yield from turn.commit([DeleteNode(PREFERRED_ELECTION_PATH)])
        if isinstance(outcome, Unsettled):
            turn.reject("CONFLICT", f"{PREFERRED_ELECTION_PATH}: {outcome.reason}")
            return elected


def _electable(turn: Turn, request: Sequence[tuple[str, int]]) -> list[Partition]:
    """The partitions that exist, are not being deleted, and are not led by their preferred replica yet."""
    wanted: dict[Partition, None] = {}
    for topic, number in request:
        partition = turn.cluster.partition(topic, number)
        if partition is None:
            turn.reject(
                "UNKNOWN_TOPIC_OR_PARTITION",
                f"preferred election asked for {topic}-{number}: no such partition",
            )
        elif turn.cluster.is_deleting(partition):
            turn.reject(
                "INVALID_TOPIC_EXCEPTION", "preferred election: its topic is being deleted", partition
            )
        elif partition.leadership is None:
            turn.reject(
                "PREFERRED_LEADER_NOT_AVAILABLE", "preferred election: it has no leadership", partition
            )
        elif partition.leadership.leader != partition.replicas[0]:
            wanted[partition] = None
    return list(wanted)
