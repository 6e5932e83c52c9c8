"""Replicas on ourselves. Brokers of Kafka that we lead take us for one of them, and assign replicas of topics that they
create automatically to our id. No replica can ever be there: such assignments are repaired.

A new topic is repaired before its partitions get a state, the others at failover; what had no broker left, once one
registers. A phantom is replaced in its place by a broker that is not in the assignment: one of another rack,
with fewest replicas of the topic. Where there is none, the phantom is left out; but a topic without states is deleted,
as Kafka refuses to create one with more replicas than brokers, and creates it again once a client asks.

States are written before the topic znode: a failover that is interrupted in between finds the phantom again.

Nothing is taken away from a broker. An id is a broker's, whatever we took it for, once one registers with it, or if it
leads a partition or is in an ISR, or if it is assigned when the first controller leads with it; it is forgotten then.
What is left is a broker that took the id of a former controller, was registered only while a broker was controller, and
is down and in no ISR when one of ours leads again: its replicas are moved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from controller.core.commits import StateChange, write_states
from controller.core.context import EventContext, Handler
from controller.core.effects import Committed, CreateNode, DeleteNode, ReadKafkaIds, ReadStates
from controller.core.model import Broker, BrokerIds, Cluster, Partition, ReplicaState, Topic
from controller.core.partitions import replica_state_machine
from controller.core.reasons import Unreadable
from controller.core.reassignment.topic_znode import Entry, entry_of, write_entries
from controller.core.records import LeadershipChange, ReassignmentStep, TopicChange
from controller.core.topics.reasons import TooFewBrokers
from controller.core.znode_paths import KAFKA_IDS, kafka_id_path, topic_config_path, topic_path

#: The reason of records.
REPAIRED = "a controller's id was among the replicas"


class Load(NamedTuple):
    """Replicas and preferred leaderships of one topic, by broker."""

    replicas: Counter[int]
    preferred: Counter[int]

    @classmethod
    def of(cls, assignments: Iterable[BrokerIds]) -> Load:
        load = cls(Counter(), Counter())
        for replicas in assignments:
            load.replicas.update(replicas)
            load.preferred.update(replicas[:1])
        return load


def without_phantoms(
    entry: Entry,
    phantoms: Collection[int],
    brokers: Mapping[int, Broker],
    avoided: Collection[int],
    load: Load,
) -> Entry:
    """The entry of one partition with the phantoms replaced, or left out where no broker is left to replace them; with
    no broker at all, they stay. ``brokers``: those registered; ``avoided``: taken last. Adds to ``load``.
    """
    choice = _Choice(phantoms, brokers, {*avoided, *entry.stray}, load)
    leaving = set(entry.removing)
    replicas = choice.filled(tuple([b for b in entry.replicas if b not in phantoms or b not in leaving]))
    if not replicas:
        return entry
    chosen = choice.chosen
    moving = Entry(
        replicas,
        _mapped(entry.adding, chosen, phantoms),
        tuple([b for b in entry.removing if b not in phantoms]),
    )
    if leaving.issuperset(replicas) and not leaving.issuperset(entry.replicas):
        # It was to move to phantoms alone: there is nowhere to move to.
        moving = Entry(replicas, (), ())
    return moving._replace(
        original=_mapped(entry.original, chosen, phantoms) if moving.adding or moving.removing else (),
        queued=_Choice(phantoms, brokers, avoided, load).filled(entry.queued),
        stray=tuple([b for b in entry.stray if b not in phantoms and b not in replicas]),
    )


def _mapped(ids: BrokerIds, chosen: Mapping[int, int], phantoms: Collection[int]) -> BrokerIds:
    """Phantoms replaced as chosen, the others left out."""
    return tuple(dict.fromkeys([chosen.get(b, b) for b in ids if b not in phantoms or b in chosen]))


class _Choice:
    """Chooses brokers in place of the phantoms of one list. ``chosen``: phantom to broker."""

    def __init__(
        self,
        phantoms: Collection[int],
        brokers: Mapping[int, Broker],
        avoided: Collection[int],
        load: Load,
    ) -> None:
        self._phantoms, self._brokers, self._avoided, self._load = phantoms, brokers, avoided, load
        self.chosen: dict[int, int] = {}

    def filled(self, ids: BrokerIds) -> BrokerIds:
        if not any(b in self._phantoms for b in ids):
            return ids
        filled: list[int] = []
        taken = {b for b in ids if b not in self._phantoms}
        for broker_id in ids:
            if broker_id not in self._phantoms:
                filled.append(broker_id)
                continue
            kinds = {self._brokers[b].control_protocol for b in taken if b in self._brokers}
            candidates = [
                b
                for b in self._brokers.values()
                if b.id not in taken and (not kinds or b.control_protocol in kinds)
            ]
            if candidates:
                best = min(candidates, key=lambda b: self._rank(b, taken, leads=not filled))
                self.chosen[broker_id] = best.id
                taken.add(best.id)
                filled.append(best.id)
                self._load.replicas[best.id] += 1
                self._load.preferred[best.id] += len(filled) == 1
        return tuple(filled)

    def _rank(
        self, broker: Broker, taken: Collection[int], *, leads: bool
    ) -> tuple[bool, bool, int, int, int]:
        same_rack = broker.rack is not None and any(
            other.rack == broker.rack for b in taken if (other := self._brokers.get(b)) is not None
        )
        preferred = self._load.preferred[broker.id] if leads else 0
        return broker.id in self._avoided, same_rack, preferred, self._load.replicas[broker.id], broker.id


def load(context: EventContext) -> Handler[bool]:
    """Failover: learn the ids of ours that brokers may know. Whether this controller's is a new one."""
    if not context.settings.leads_kafka:
        return False
    ids = yield from context.read(ReadKafkaIds())
    context.cluster.kafka_ids = frozenset([context.cluster.controller_id, *ids])
    return context.cluster.controller_id not in ids


def forget(context: EventContext, ids: Collection[int]) -> Handler[None]:
    """These ids are brokers': what is assigned to them is theirs, also once they are down."""
    cluster = context.cluster
    taken = sorted(cluster.kafka_ids.intersection(ids))
    if not taken:
        return
    outcome = yield from context.commit([DeleteNode(kafka_id_path(id_)) for id_ in taken])
    if isinstance(outcome, Committed):
        cluster.kafka_ids -= set(taken)
    else:
        # The next change of brokers tries again.
        context.reject("CONFLICT", f"{KAFKA_IDS} still has ids of brokers, {taken}: {outcome.reason}")


def repair_loaded(
    context: EventContext, partitions: Sequence[Partition], *, new: bool
) -> Handler[list[Partition]]:
    """Failover: repair all partitions, once their states are loaded. Returns those of topics that are left.

    ``new``: no controller has led with this one's id. So if it is assigned, it is a broker's, which is down. Else it is
    remembered, before any broker hears of it.
    """
    cluster = context.cluster
    brokers = _in_sync(partitions, cluster.kafka_ids)
    own = frozenset([cluster.controller_id]) if new else frozenset[int]()
    if own and any(_named(cluster, p, own) for p in partitions):
        brokers |= own
    if brokers:
        context.reject("CONFLICT", f"controllers have led with ids of brokers: {sorted(brokers)}; use others")
        yield from forget(context, brokers)
        cluster.kafka_ids -= brokers
    if own - brokers:
        outcome = yield from context.commit([CreateNode(kafka_id_path(cluster.controller_id))])
        if not isinstance(outcome, Committed):
            context.reject("CONFLICT", f"{KAFKA_IDS} lacks this controller's id: {outcome.reason}")
    return (yield from repair(context, partitions))


def _in_sync(partitions: Iterable[Partition], ids: frozenset[int]) -> set[int]:
    states = [p.leadership for p in partitions if p.leadership is not None] if ids else []
    return {b for state in states for b in (state.leader, *state.isr) if b in ids}


def repair(context: EventContext, partitions: Sequence[Partition]) -> Handler[list[Partition]]:
    """Repair the assignments of those partitions that name a phantom, in ZooKeeper and in memory, before replicas and
    partitions get their states there. Returns the partitions without those of topics that were deleted."""
    cluster = context.cluster
    phantoms = cluster.phantoms()
    affected = [p for p in partitions if _named(cluster, p, phantoms)] if phantoms else []
    if not affected:
        return list(partitions)
    entries = dict(_entries(cluster, affected, phantoms))
    gone = yield from _delete_impossible(context, entries)
    if gone:
        entries = {p: entry for p, entry in entries.items() if p.topic not in gone}
        partitions = [p for p in partitions if p.topic not in gone]
    yield from _write_states(context, entries)
    failed = yield from write_entries(context, entries)
    for partition, why in failed.items():
        context.reject("CONFLICT", f"{REPAIRED}, and stays there: {why}", partition)
    repaired = [(p, entry) for p, entry in entries.items() if p not in failed]
    for partition, entry in repaired:
        _remember(cluster, partition, entry)
    context.log(
        [ReassignmentStep(p, str(list(entry.replicas)), REPAIRED, entry.replicas) for p, entry in repaired]
    )
    unreadable = {p.topic for p, why in failed.items() if isinstance(why, Unreadable)}
    for topic in unreadable:
        _set_aside(context, topic, [p for p in partitions if p.topic is topic])
    return [p for p in partitions if p.topic not in unreadable]


def repair_left(context: EventContext) -> Handler[None]:
    """The first broker is registered: repair what was left because there was none to replace a phantom."""
    cluster = context.cluster
    phantoms = cluster.phantoms()
    if not phantoms:
        return
    every = (p for topic in cluster.topics.values() for p in topic.partitions.values())
    left = [p for p in every if _named(cluster, p, phantoms)]
    repaired = yield from repair(context, left)
    added = [(p, b) for p in repaired for b in p.replicas]
    replica_state_machine.to_new(
        context, replica_state_machine.in_states(added, (ReplicaState.NON_EXISTENT,))
    )


def _set_aside(context: EventContext, topic: Topic, partitions: Sequence[Partition]) -> None:
    """A topic znode does not decode any more: once it does, it is read, and these are repaired, as if it had never been
    read, or as if they were added then."""
    if len(partitions) < len(topic.partitions):
        for partition in partitions:
            del topic.partitions[partition.number]
    else:
        context.outbox.forget(context.cluster.remove_topic(topic.name))
        context.cluster.unreadable_topics[topic.name] = ""


def _named(cluster: Cluster, partition: Partition, phantoms: frozenset[int]) -> bool:
    known = cluster.reassignments
    return not (
        phantoms.isdisjoint(partition.replicas)
        and phantoms.isdisjoint(known.ongoing.get(partition, ()))
        and phantoms.isdisjoint(known.queued.get(partition, ()))
        and phantoms.isdisjoint(known.strays.get(partition, ()))
    )


def _entries(
    cluster: Cluster, affected: Iterable[Partition], phantoms: frozenset[int]
) -> Iterator[tuple[Partition, Entry]]:
    avoided = cluster.maintenance.drained.keys() | cluster.shutting_down
    loads: dict[Topic, Load] = {}
    for partition in affected:
        topic = partition.topic
        if topic not in loads:
            loads[topic] = Load.of(p.replicas for p in topic.partitions.values())
        entry = entry_of(cluster, partition)
        yield partition, without_phantoms(entry, phantoms, cluster.brokers, avoided, loads[topic])


def _delete_impossible(context: EventContext, entries: Mapping[Partition, Entry]) -> Handler[set[Topic]]:
    """Delete topics that lack brokers for their replicas, and have no state yet; return them."""
    lacking: dict[Topic, int] = {}
    for partition, entry in entries.items():
        wanted = len(partition.replicas) - len(partition.removing)
        if len(entry.replicas) - len(entry.removing) < wanted or entry == entry_of(
            context.cluster, partition
        ):
            lacking[partition.topic] = wanted
    gone: set[Topic] = set()
    for topic, wanted in lacking.items():
        stored = yield from context.read(ReadStates(list(topic.partitions.values())))
        if any(found is not None for found in stored):
            continue
        writes = [DeleteNode(topic_path(topic.name)), DeleteNode(topic_config_path(topic.name))]
        outcome = yield from context.commit(writes)
        if not isinstance(outcome, Committed):
            context.reject("CONFLICT", f"{topic_path(topic.name)} could not be deleted: {outcome.reason}")
            continue
        context.outbox.forget(context.cluster.remove_topic(topic.name))
        why = TooFewBrokers(wanted, len(context.cluster.brokers))
        context.log([TopicChange(topic.name, "created", "deleted", str(why))])
        gone.add(topic)
    return gone


def _write_states(context: EventContext, entries: Mapping[Partition, Entry]) -> Handler[None]:
    """Raise the leader epochs: brokers take a new assignment from nothing else."""
    cluster = context.cluster

    def decide(partition: Partition) -> StateChange | None:
        old = partition.leadership
        if old is None or old.controller_epoch > cluster.controller_epoch:
            return None
        new = old.successor(old.leader, old.isr, cluster.controller_epoch, old.recovery)
        return StateChange(partition, old, new)

    def applied(batch: list[StateChange]) -> None:
        for change in batch:
            change.partition.leadership = change.new
        context.log([LeadershipChange(c.partition, c.old, c.new) for c in batch], REPAIRED)

    moved = [p for p, entry in entries.items() if entry.replicas != p.replicas]
    failed = yield from write_states(context, map(decide, moved), applied, decide)
    for partition, why in failed.items():
        context.reject("CONFLICT", f"{REPAIRED}, and brokers do not hear of another: {why}", partition)


def _remember(cluster: Cluster, partition: Partition, entry: Entry) -> None:
    known = cluster.reassignments
    for broker_id in known.strays_of(partition):
        if broker_id not in entry.stray:
            known.drop_stray(partition, broker_id)
    partition.departing = {b: s for b, s in partition.departing.items() if b in entry.stray}
    partition.assign(entry.replicas, entry.adding, entry.removing)
    for recorded, ids, holds in (
        (known.ongoing, entry.original, bool(entry.adding or entry.removing)),
        (known.queued, entry.queued, bool(entry.queued)),
    ):
        if holds:
            recorded[partition] = ids
        else:
            recorded.pop(partition, None)
