"""New, dead, bounced and modified brokers (reference, section 6). A broker's identity is (id, epoch)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from controller.core.audit.stored_states import check_kept
from controller.core.brokers import last_signs
from controller.core.cluster import automatic_maintenance, flapping
from controller.core.cluster.features import without_incompatible
from controller.core.context import SLICE_MAX, EventContext, Handler, Pause, replicas_on, slices
from controller.core.effects import ReadBrokers
from controller.core.model import Broker, Partition
from controller.core.partitions import lost_data, partition_state_machine, replica_state_machine
from controller.core.reassignment import phases
from controller.core.records import BrokerChange
from controller.core.topics import deletion, phantom
from controller.core.znode_paths import BROKER_IDS, broker_path, is_below


def brokers_changed(context: EventContext) -> Handler[None]:
    """BrokerChange: compare the registrations with the cluster state; handle modified, new, bounced and dead brokers,
    in that order.

    A registration that does not decode is reported as a problem. Its broker is kept if it is known and of the same
    incarnation, else treated as absent.
    """
    answer = without_incompatible(context, (yield from context.read(ReadBrokers())))
    cluster = context.cluster
    found = answer.brokers
    unreadable = {problem.path: problem for problem in answer.problems}
    for problem in answer.problems:
        context.problem(problem)
    for path in [p for p in cluster.problems if is_below(BROKER_IDS, p) and p not in unreadable]:
        context.solved(path)
    kept = {
        b.id: b
        for b in cluster.brokers.values()
        if (bad := unreadable.get(broker_path(b.id))) is not None and bad.czxid == b.epoch
    }
    current = {**kept, **found}

    new = {id_: b for id_, b in current.items() if id_ not in cluster.brokers}
    dead = {id_: b for id_, b in cluster.brokers.items() if id_ not in current}
    bounced = {
        id_: b
        for id_, b in current.items()
        if id_ in cluster.brokers and b.epoch > cluster.brokers[id_].epoch
    }
    modified = {
        id_: b
        for id_, b in current.items()
        if id_ in cluster.brokers and id_ not in bounced and b != cluster.brokers[id_]
    }
    # Those that are gone, too: an attempt at it may have failed.
    yield from phantom.forget(context, {*cluster.brokers, *current})
    silent = last_signs.silent({**bounced, **dead}, cluster, context.now_us)
    last_signs.registered(cluster, current, {*new, *bounced}, context.now_us)
    _channels(context, new, bounced, dead)
    _record(context, new, bounced, dead, modified, silent)
    flapping.lost(context, {*bounced, *dead})
    flapping.returned(context, {*new, *bounced})
    cluster.registered_before.update(cluster.brokers)
    yield from automatic_maintenance.reconsider(context, current.keys())
    if modified:
        _modified(context, modified)
    if new:
        first = not cluster.brokers
        cluster.brokers.update(new)
        if first:
            yield from phantom.repair_left(context)
        yield from _startup(context, new)
    if bounced:
        for id_ in bounced:
            del cluster.brokers[id_]
        # They are registered: nobody else may decide by their absence.
        with context.in_one_piece():
            yield from _failure(context, bounced.keys(), silent)
        cluster.brokers.update(bounced)
        for broker in bounced.values():
            context.add_broker(broker)
        yield from _startup(context, bounced)
    if dead:
        for id_ in dead:
            del cluster.brokers[id_]
        yield from _failure(context, dead.keys(), silent)


def _channels(
    context: EventContext,
    new: Mapping[int, Broker],
    bounced: Mapping[int, Broker],
    dead: Mapping[int, Broker],
) -> None:
    """Open and close push queues. The queue of an old incarnation is dropped; a bounced broker gets a new one only
    after its failure is handled."""
    for broker in new.values():
        context.add_broker(broker)
    for id_ in (*bounced, *dead):
        context.outbox.remove_broker(id_)


def _record(
    context: EventContext,
    new: Mapping[int, Broker],
    bounced: Mapping[int, Broker],
    dead: Mapping[int, Broker],
    modified: Mapping[int, Broker],
    silent: Mapping[int, int],
) -> None:
    records = [
        BrokerChange(id_, after, before, reason=f"broker epoch {b.epoch}", silent_us=silent.get(id_))
        for changes, before, after in (
            (new, "offline", "online"),
            (bounced, "online", "bounced"),
            (dead, "online", "offline"),
            (modified, "online", "modified"),
        )
        for id_, b in changes.items()
    ]
    context.log(records)


def _modified(context: EventContext, modified: Mapping[int, Broker]) -> None:
    """BrokerModifications: endpoints or rack changed at the same epoch; all brokers are notified."""
    context.cluster.brokers.update(modified)
    for id_, broker in modified.items():
        queue = context.outbox.queues.get(id_)
        if queue is not None:
            queue.broker = broker
    context.push_brokers()


def _startup(context: EventContext, brokers: Mapping[int, Broker]) -> Handler[None]:
    """onBrokerStartup: the broker list to all, a full metadata snapshot and LeaderAndIsr to the new ones, then
    elections."""
    cluster = context.cluster
    for id_ in brokers:
        cluster.shutting_down.discard(id_)
    context.push_brokers()
    context.push_snapshot(brokers.keys())
    # No replica of theirs may be missed, and nobody may count on a member that came back without its data.
    with context.in_one_piece():
        replicas = yield from replicas_on(context, brokers.keys())
        kept = yield from lost_data.take_out(context, (p for p, _ in replicas))
        yield from check_kept(context, kept)
    for part in slices(replicas, SLICE_MAX):
        still = _still(context, part)
        replica_state_machine.to_online(context, still, "broker is online", registered=True)
        yield from context.give_way()
    yield from partition_state_machine.bring_online(context)
    yield from phases.brokers_started(context, brokers.keys())
    yield from deletion.brokers_started(context, brokers.keys())


def _failure(context: EventContext, ids: Collection[int], silent: Mapping[int, int]) -> Handler[None]:
    """onBrokerFailure: leaderless partitions Offline, elections, then the dead replicas Offline."""
    cluster = context.cluster
    for id_ in ids:
        cluster.offline_dirs.pop(id_, None)
        cluster.shutting_down.discard(id_)
    # Before the elections, so that no LeaderAndIsr names a leader that its receiver wrongly believes dead or alive.
    # It also announces the failure of a broker that leads and follows nothing (KAFKA-13225).
    context.push_brokers()
    yield from leaders_failed(context, "broker is gone", silent)
    replicas = yield from replicas_on(context, ids)
    yield from replicas_failed(context, replicas, "broker is gone")
    yield from deletion.brokers_failed(context, ids)


def leaders_failed(
    context: EventContext, what: str, silent: Mapping[int, int] | None = None
) -> Handler[None]:
    """Elect others for leaders lost with their broker or disk (reference, section 6, Failure steps 2 and 3).

    The cluster state must already show them as not online. ``what``: what happened to the broker or disk; ``silent``:
    by broker, how long ago its last sign was; both for the records.
    """
    # Metadata queued earlier in this event named these replicas as online.
    context.forget_notified()
    leaderless = yield from _partitions_with_offline_leader(context)
    partition_state_machine.to_offline(context, leaderless, f"its leader's {what}", silent)
    yield from partition_state_machine.bring_online(context)


def replicas_failed(
    context: EventContext, replicas: Sequence[tuple[Partition, int]], what: str
) -> Handler[None]:
    """Handle the replicas, as (partition, broker id), of such a broker or disk, once leaders are elected (steps 4 and
    5)."""
    for part in context.parts(replicas):
        yield from replica_state_machine.to_offline(context, _still(context, part), f"its {what}")
        yield from context.give_way()
    # The removal may have read a live ISR member, or a leader, that the election did not know.
    yield from partition_state_machine.elect_from_live_isr(context)


def _still(
    context: EventContext, replicas: Sequence[tuple[Partition, int]]
) -> Sequence[tuple[Partition, int]]:
    """Those of the replicas that were there when the event began and still are."""
    cluster = context.cluster
    return [
        (partition, broker_id)
        for partition, broker_id in replicas
        if broker_id in partition.replicas
        and (name := partition.topic.name) not in cluster.topics_to_delete
        and cluster.partition(name, partition.number) is partition
    ]


def _partitions_with_offline_leader(context: EventContext) -> Handler[list[Partition]]:
    """All partitions whose leader is offline. A broker that is shutting down still leads its remaining partitions."""
    cluster = context.cluster
    registered = cluster.brokers.keys()
    disks = cluster.offline_dirs
    found: list[Partition] = []
    for some in slices(cluster.partitions()):
        found += [
            p
            for p in some
            if (leadership := p.leadership) is not None
            and (leader := leadership.leader) >= 0
            and (leader not in registered or (disks and p in disks.get(leader, ())))
            and p.topic.name not in cluster.topics_to_delete
        ]
        yield Pause.YIELD
    return found
