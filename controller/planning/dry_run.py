"""The dry run of a request, from its first write to its last, including the work that follows automatically.

Brokers are simulated: new replicas come into sync, and replicas to be deleted are deleted. Notes say what would not
complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from controller.core.model import RECOVERED, Partition
from controller.core.names import counted, first_few
from controller.core.reassignment.assignment import assignment_of
from controller.core.reassignment.concurrency import pending_reasons
from controller.core.requests.api import ControllerRequest, ControllerResponse
from controller.core.requests.brokers import AlterPartition, AlterPartitionReply, Proposal
from controller.core.requests.errors import ErrorCode
from controller.core.requests.reassignment import AlterPartitionReassignments
from controller.core.requests.topics import DeleteTopics
from controller.core.topics.deletion_status import deletions
from controller.planning.executor import Executor, Pushes
from controller.planning.scenarios import elected_uncleanly
from controller.planning.snapshot import Key, Snapshot
from controller.planning.store import Change

AT_ONCE = "at once"
IN_SYNC = "once the new replicas are in sync"
DELETED = "once brokers have deleted their replicas"
UNCLEAN = "a replica that was not in sync is elected, and records may be lost, of "
NAMES_SHOWN = 5


@dataclass(frozen=True)
class Phase:
    """Writes and pushes with one trigger. ``when``: that trigger, as text."""

    when: str
    writes: tuple[Change, ...]
    pushes: Pushes


@dataclass(frozen=True)
class DryRunTrace:
    """``replies`` are parallel to the requests. ``notes``: what does not complete, and why; which elections may lose
    records; and how many writes the controller would do without any request."""

    replies: tuple[ControllerResponse, ...]
    phases: tuple[Phase, ...]
    notes: tuple[str, ...]


def trace(
    snapshot: Snapshot, requests: Sequence[ControllerRequest], give_way: Callable[[], None] = lambda: None
) -> DryRunTrace:
    """Carry out requests one after the other on a copy of the cluster. ``give_way`` as for Executor."""
    executor = Executor(snapshot, give_way)
    replies = tuple(executor.ask(request) for request in requests)
    phases = [_phase(executor, AT_ONCE)]
    reassigned = [
        (asked.topic, asked.partition)
        for request in requests
        if isinstance(request, AlterPartitionReassignments)
        for asked in request.reassignments
    ]
    while True:
        if executor.delete_replicas():
            phases.append(_phase(executor, DELETED))
        elif _come_into_sync(executor, reassigned):
            phases.append(_phase(executor, IN_SYNC))
        else:
            break
    happened = tuple(phase for phase in phases if phase.writes or phase.pushes)
    unclean = elected_uncleanly(write for phase in happened for write in phase.writes)
    notes = [UNCLEAN + _shown(unclean)] if unclean else []
    return DryRunTrace(replies, happened, (*notes, *_notes(executor, requests, reassigned)))


def _shown(keys: Sequence[Key]) -> str:
    names = [f"{topic}-{number}" for topic, number in keys]
    return f"{counted(len(names), 'partition')}: {first_few(names, NAMES_SHOWN)}"


def _phase(executor: Executor, when: str) -> Phase:
    return Phase(when, tuple(executor.store.take_changes()), executor.take_pushes())


def _come_into_sync(executor: Executor, reassigned: Sequence[Key]) -> bool:
    """Bring the replicas that reassignments wait for into the ISR; False if none could be brought."""
    store, by_leader = executor.store, dict[int, list[Proposal]]()
    for key in reassigned:
        partition = executor.machine.cluster.partition(*key)
        state = store.states.get(key)
        if partition is None or state is None or state.leader not in store.brokers:
            continue
        fresh = [b for b in _awaited(partition) if b not in state.isr and store.is_online(key, b)]
        if fresh:
            proposal = Proposal(
                *(key[0], partition.topic.id, key[1], state.leader_epoch, (*state.isr, *fresh)),
                RECOVERED,
                state.partition_epoch,
            )
            by_leader.setdefault(state.leader, []).append(proposal)
    accepted = False
    for leader, proposals in sorted(by_leader.items()):
        reply = executor.ask(AlterPartition(leader, store.brokers[leader].epoch, proposals))
        assert isinstance(reply, AlterPartitionReply)
        accepted = accepted or any(answer.error is ErrorCode.NONE for answer in reply.partitions)
    return accepted


def _awaited(partition: Partition) -> Sequence[int]:
    now = assignment_of(partition)
    return now.target if now.being_reassigned else ()


def _notes(
    executor: Executor, requests: Sequence[ControllerRequest], reassigned: Sequence[Key]
) -> Iterator[str]:
    cluster = executor.machine.cluster
    if executor.settling:
        yield f"{counted(len(executor.settling), 'write')} due before that: the cluster is not settled"
    named = {ref.name for r in requests if isinstance(r, DeleteTopics) for ref in r.topics}
    for status in deletions(cluster):
        if status.topic in named and status.reason:
            yield f"the deletion of {status.topic} waits: {status.reason}"
    for key in reassigned:
        partition = cluster.partition(*key)
        if partition is not None:
            yield from (
                f"{partition.name}: {why}"
                for why in pending_reasons(cluster, executor.machine.settings, partition)
            )
