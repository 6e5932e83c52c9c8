"""onControllerFailover: from elected to ready, in the order of the reference, section 3.1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from controller.core.audit.stored_states import check_kept
from controller.core.brokers import stop_approvals
from controller.core.cluster import automatic_maintenance, configs, dynamic_settings, features
from controller.core.commits import delete_notifications
from controller.core.context import EventContext, Handler, Pause
from controller.core.effects import (
    CreateNode,
    Problem,
    ReadBrokers,
    ReadNodes,
    ReadNotifications,
    ReadPrepared,
    ReadStates,
    ReadTopicNames,
    ReadTopics,
    TopicInfo,
    Unconfirmed,
    answer_of,
    write_node,
)
from controller.core.elections import elect_leaders
from controller.core.events import EventKind
from controller.core.model import LeaderAndIsr, Partition
from controller.core.partitions import lost_data, partition_state_machine, replica_state_machine
from controller.core.reassignment import phases
from controller.core.reassignment.alter_reassignments import process_znode
from controller.core.records import BrokerChange, FailoverPhase
from controller.core.standby.prepared import Prepared
from controller.core.topics import deletion, forgotten, phantom
from controller.core.topics.changes import add_topic, assign_missing_ids, unreadable, with_own_ids
from controller.core.znode_paths import CLUSTER, CLUSTER_ID

T = TypeVar("T")
#: Partition states in one read; several reads are in flight, so that decoding overlaps with reading.
READ_STATES_CHUNK = 10_000
#: Topics added to the cluster state between yields.
ADDED_MAX = 500


class _Phases:
    """Measures each phase by the driver's clock and logs it."""

    def __init__(self, context: EventContext) -> None:
        self.context = context
        self.started_us = self.phase_us = context.now_us

    def done(self, phase: str, count: int) -> Handler[None]:
        yield Pause.YIELD
        now = self.context.now_us
        self._record(phase, count, now - self.phase_us)
        self.phase_us = now

    def ready(self, count: int) -> Handler[None]:
        yield Pause.YIELD
        self._record("ready", count, self.context.now_us - self.started_us)

    def _record(self, phase: str, count: int, duration_us: int) -> None:
        self.context.log([FailoverPhase(phase, count, duration_us)])


def part_of_failover(context: EventContext, part: EventKind, work: Handler[T], otherwise: T) -> Handler[T]:
    """What a controller can lead without: left out while events of the kind that does the same later are in quarantine.

    ``part`` is what is blamed when it raises and no topic or broker is seen (`controller.runtime.blame`).
    """
    if part in context.skipped:
        context.reject("QUARANTINED", f"failover without {part.value}: it is in quarantine")
        return otherwise
    return (yield from work)


def failover(context: EventContext) -> Handler[None]:
    """Load the cluster, start both state machines, resume ongoing reassignments and deletions."""
    cluster = context.cluster
    timings = _Phases(context)
    yield from features.reconcile(context)
    yield from timings.done("feature", 1)
    yield from configs.load(context)
    yield from dynamic_settings.load(context)
    yield from automatic_maintenance.load(context)
    yield from part_of_failover(context, EventKind.APPROVE_STOP, stop_approvals.load(context), None)
    yield from forgotten.load(context)
    new_id = yield from phantom.load(context)
    notifications = yield from part_of_failover(
        context, EventKind.ISR_CHANGE, _delete_notifications(context), 0
    )
    yield from timings.done("notifications", notifications)
    answer = features.without_incompatible(context, (yield from context.read(ReadBrokers())))
    for problem in answer.problems:
        context.problem(problem)
    yield from phantom.forget(context, answer.brokers)
    cluster.brokers.update(answer.brokers)
    context.log(
        [
            BrokerChange(b, "found", reason=f"broker epoch {found.epoch}")
            for b, found in cluster.brokers.items()
        ]
    )
    yield from _assure_cluster_id(context)
    yield from timings.done("brokers", len(cluster.brokers))
    prepared = yield from _load_topics(context)
    yield from timings.done("topics", len(cluster.topics))
    read, partitions = yield from _load_all_states(context, prepared)
    elsewhere = frozenset(prepared.hosted_elsewhere(cluster.brokers))
    yield from automatic_maintenance.reconsider(
        context, topics=[t for n, t in cluster.topics.items() if n not in prepared or n in elsewhere]
    )
    partitions = yield from phantom.repair_loaded(context, partitions, new=new_id)
    count = sum(len(topic.partitions) for topic in cluster.topics.values())
    yield from timings.done("partitions", count)
    deletions = yield from deletion.load(context)
    yield from timings.done("deletions", deletions)
    # Who is alive comes first in each new queue: before LeaderAndIsr names leaders (KAFKA-4443).
    _add_brokers(context)
    # Before anyone is elected, and before a leader that has lost its data is told to lead.
    kept = yield from lost_data.take_out(context, partitions)
    # Leaders first, as when a broker dies: a partition without one stands still, one with a long ISR does not.
    yield from partition_state_machine.startup(context, partitions)
    # A transition needs the states that were set just now.
    yield from check_kept(context, kept)
    yield from timings.done("partition_startup", count)
    yield from replica_state_machine.startup(context, partitions)
    # What left ISRs may have been read with a live member that the election did not know.
    yield from partition_state_machine.elect_from_live_isr(context, partitions)
    yield from timings.done("replica_startup", prepared.replicas + sum(len(p.replicas) for p in read))
    begun = yield from part_of_failover(context, EventKind.REASSIGNMENT, process_znode(context), ())
    moved = yield from part_of_failover(
        context, EventKind.REASSIGNMENT_IN_SYNC, phases.resume(context, begun), 0
    )
    yield from timings.done("reassignments", moved)
    forgotten.returned(context, cluster.brokers)
    yield from part_of_failover(context, EventKind.DELETION_PROGRESS, deletion.resume(context), None)
    yield from timings.done("deletions_resumed", len(cluster.topics_to_delete))
    elected = yield from part_of_failover(
        context, EventKind.PREFERRED_ELECTION, elect_leaders.process_preferred_znode(context), 0
    )
    yield from timings.done("preferred_election", elected)
    yield from timings.ready(count)


def _add_brokers(context: EventContext) -> None:
    # Not in the failover's own frame: whatever raises later would be blamed on the last broker.
    for broker in context.cluster.brokers.values():
        context.add_broker(broker)


def _assure_cluster_id(context: EventContext) -> Handler[None]:
    """Read ``/cluster/id``. Where there is none, create it: as most registered brokers know it, else a new one."""
    for attempt in range(2):
        (found,) = yield from context.read(ReadNodes([CLUSTER_ID]))
        if isinstance(found, Problem):
            context.problem(found)
            return
        if found is not None:
            context.cluster.cluster_id = found.value
            return
        if attempt == 0:
            known = Counter(b.cluster_id for b in context.cluster.brokers.values() if b.cluster_id)
            cluster_id = known.most_common(1)[0][0] if known else context.new_topic_id()
            yield from context.commit([CreateNode(CLUSTER)])
            outcome = yield from context.commit([write_node(CLUSTER_ID, cluster_id, None)])
            if isinstance(outcome, Unconfirmed):
                context.reject("CONFLICT", f"{CLUSTER_ID}: {outcome.reason}")


def _delete_notifications(context: EventContext) -> Handler[int]:
    """Delete old ISR and log-dir notifications: the failover reads all states anyway."""
    paths = yield from context.read(ReadNotifications())
    yield from delete_notifications(context, paths)
    return len(paths)


def _load_topics(context: EventContext) -> Handler[Prepared]:
    """Topics from memory, where they were kept ready, and the others from their znodes. What is heard of from now on is
    an event; returns what was ready."""
    names = yield from context.read(ReadTopicNames())
    prepared = (yield from context.read(ReadPrepared())) or Prepared()
    for name in prepared.topics.keys() - set(names):
        prepared.withdraw(name)
    context.cluster.adopt(prepared.topics, prepared.by_id)
    infos = yield from context.read(ReadTopics([name for name in names if name not in prepared.topics]))
    for info in infos:
        if isinstance(info, Problem):
            unreadable(context, info)
    readable = with_own_ids(context, [i for i in infos if isinstance(i, TopicInfo)])
    for count, info in enumerate(readable):
        if count % ADDED_MAX == ADDED_MAX - 1:
            yield Pause.YIELD
        add_topic(context, info)
    yield from assign_missing_ids(context, readable)
    return prepared


def _load_all_states(
    context: EventContext, prepared: Prepared
) -> Handler[tuple[list[Partition], list[Partition]]]:
    """Read the states that are not known. Returns the partitions of topics that were not ready, and those to be looked
    at: the others are as they must be."""
    cluster = context.cluster
    read = [p for t in cluster.topics.values() if t.name not in prepared for p in t.partitions.values()]
    yield from load_states(context, [*read, *prepared.unread()])
    unsettled = prepared.unsettled(cluster.brokers, everything=context.settings.leads_kafka)
    return read, [*read, *unsettled]


def load_states(context: EventContext, partitions: Sequence[Partition]) -> Handler[None]:
    """Fill the leadership cache of partitions from their state znodes, in overlapping bulk reads."""
    queries = [
        ReadStates(partitions[start : start + READ_STATES_CHUNK])
        for start in range(0, len(partitions), READ_STATES_CHUNK)
    ]
    pending = {context.submit_read(query): query for query in queries}
    while pending:
        outcome = yield from context.wait_any(pending)
        query = pending.pop(outcome.id)
        for partition, found in zip(query.partitions, answer_of(query, outcome), strict=True):
            if isinstance(found, LeaderAndIsr):
                partition.leadership = found
            elif found is not None:
                context.problem(found)
