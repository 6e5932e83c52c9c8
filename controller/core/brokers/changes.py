"""Brokers: new, dead, bounced, modified (reference, section 6). Identity is (id, epoch)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from controller.core.cluster import automatic_maintenance
from controller.core.cluster.features import without_incompatible
from controller.core.context import Procedure, Turn
from controller.core.effects import BrokersAnswer, ReadBrokers
from controller.core.model import Broker, Partition
from controller.core.partitions import partition_state_machine, replica_state_machine
from controller.core.reassignment import phases
from controller.core.topics import deletion


def brokers_changed(turn: Turn) -> Procedure[None]:
    """BrokerChange: compare the registrations with the context and handle new, bounced, dead, in that order.

    A registration that does not decode hides nobody else: if its broker is known and still the same
    incarnation it is kept, else it is treated as absent and shown as a problem.
    """
    answer: BrokersAnswer = without_incompatible(turn, (yield from turn.read(ReadBrokers())))
    cluster = turn.cluster
    found = answer.brokers
    unreadable = {problem.path: problem for problem in answer.problems}
    for problem in answer.problems:
        turn.problem(problem)
    for path in [p for p in cluster.problems if p.startswith("/brokers/ids/") and p not in unreadable]:
        turn.solved(path)
    kept = {
        b.id: b
        for b in cluster.brokers.values()
        if (bad := unreadable.get(f"/brokers/ids/{b.id}")) is not None and bad.czxid == b.epoch
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
    _channels(turn, new, bounced, dead)
    _record(turn, new, bounced, dead, modified)
    yield from automatic_maintenance.reconsider(turn, current.keys())
    if modified:
        _modified(turn, modified)
    if new:
        cluster.brokers.update(new)
        yield from _startup(turn, new)
    if bounced:
        for id_ in bounced:
            del cluster.brokers[id_]
        yield from _failure(turn, bounced.keys())
        cluster.brokers.update(bounced)
        for broker in bounced.values():
            turn.add_broker(broker)
        yield from _startup(turn, bounced)
    if dead:
        for id_ in dead:
            del cluster.brokers[id_]
        yield from _failure(turn, dead.keys())


def _channels(
    turn: Turn, new: Mapping[int, Broker], bounced: Mapping[int, Broker], dead: Mapping[int, Broker]
) -> None:
    """Queues first: what was meant for an old incarnation goes with it, and a bounced broker hears nothing
    until its failure is dealt with."""
    for broker in new.values():
        turn.add_broker(broker)
    for id_ in (*bounced, *dead):
        turn.outbox.remove_broker(id_)


def _record(
    turn: Turn,
    new: Mapping[int, Broker],
    bounced: Mapping[int, Broker],
    dead: Mapping[int, Broker],
    modified: Mapping[int, Broker],
) -> None:
    rows = [
        {"kind": "broker", "replica": id_, "from": before, "to": after, "reason": f"broker epoch {b.epoch}"}
        for changes, before, after in (
            (new, "offline", "online"),
            (bounced, "online", "bounced"),
            (dead, "online", "offline"),
            (modified, "online", "modified"),
        )
        for id_, b in changes.items()
    ]
    turn.log("record", rows)


def _modified(turn: Turn, modified: Mapping[int, Broker]) -> None:
    """BrokerModifications: endpoints or rack differ in place: everyone is told, the epoch stays."""
    turn.cluster.brokers.update(modified)
    for id_, broker in modified.items():
        queue = turn.outbox.queues.get(id_)
        if queue is not None:
            queue.broker = broker
    turn.push_brokers()


def _startup(turn: Turn, brokers: Mapping[int, Broker]) -> Procedure[None]:
    """onBrokerStartup: live list to all, the full picture and its replicas to the new ones, then elections."""
    cluster = turn.cluster
    for id_ in brokers:
        cluster.offline_dirs.pop(id_, None)
        cluster.shutting_down.discard(id_)
    turn.push_brokers()
    led = [p for p in cluster.partitions() if p.leadership is not None and not cluster.is_deleting(p)]
    turn.push_snapshot(brokers.keys(), led)
    replicas = replicas_on(turn, brokers.keys())
    replica_state_machine.to_online(turn, replicas, "broker is online")
    yield from partition_state_machine.bring_online(turn)
    yield from phases.brokers_started(turn, brokers.keys())
    yield from deletion.brokers_started(turn, brokers.keys())


def _failure(turn: Turn, ids: Collection[int]) -> Procedure[None]:
    """onBrokerFailure: leaderless partitions Offline, elections, then the dead replicas Offline."""
    cluster = turn.cluster
    for id_ in ids:
        cluster.offline_dirs.pop(id_, None)
        cluster.shutting_down.discard(id_)
    # Told before the elections, so that no LeaderAndIsr names a leader its receiver believes dead or alive
    # wrongly; this is also the empty UpdateMetadata that announces a death nobody notices (KAFKA-13225).
    turn.push_brokers()
    yield from replicas_failed(turn, replicas_on(turn, ids), "broker is gone")
    yield from deletion.brokers_failed(turn, ids)


def replicas_failed(turn: Turn, replicas: Sequence[tuple[Partition, int]], what: str) -> Procedure[None]:
    """Replicas are lost, with their broker or with their disk (reference, section 6, Failure steps 2-5).

    Given as (partition, broker id); the context must say already that they are not online. ``what`` became of
    the broker or disk, for the records.
    """
    # What was told earlier in this event, of a broker that bounced, named these replicas as online.
    turn.told.clear()
    leaderless = _partitions_with_offline_leader(turn)
    partition_state_machine.to_offline(turn, leaderless, f"its leader's {what}")
    yield from partition_state_machine.bring_online(turn)
    yield from replica_state_machine.to_offline(turn, replicas, f"its {what}")
    # A removal may have found a live ISR member that nobody knew of when the election gave up.
    yield from partition_state_machine.bring_online(turn, only_with_live_isr=True)


def _partitions_with_offline_leader(turn: Turn) -> list[Partition]:
    """In the whole cluster; a broker that is shutting down still leads what nobody took over."""
    cluster = turn.cluster
    registered = cluster.brokers.keys()
    disks = cluster.offline_dirs
    return [
        p
        for p in cluster.partitions()
        if (leadership := p.leadership) is not None
        and (leader := leadership.leader) >= 0
        and (leader not in registered or (disks and p in disks.get(leader, ())))
        and p.topic.name not in cluster.topics_to_delete
    ]


def replicas_on(turn: Turn, ids: Collection[int]) -> list[tuple[Partition, int]]:
    """Replicas on brokers, of topics that are not queued for deletion."""
    wanted = frozenset(ids)
    to_delete = turn.cluster.topics_to_delete
    return [
        (partition, broker_id)
        for partition in turn.cluster.partitions()
        if partition.topic.name not in to_delete
        for broker_id in partition.replicas
        if broker_id in wanted
    ]
