"""Makes assignments durable: reads, changes and writes topic znodes, many in one round.

The znode is read first, only the given partitions are changed, and a conflict is retried topic by topic: partitions
that another process adds at the same time are not lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from controller.core.commits import ATTEMPTS_MAX
from controller.core.context import EventContext, Handler
from controller.core.effects import Committed, Problem, ReadTopics, SetTopic, TopicInfo
from controller.core.model import BrokerIds, Cluster, Ineligible, Partition, ReplicaState, Topic
from controller.core.reasons import Reason, Unreadable
from controller.core.reassignment.reasons import (
    NotifiedEarlier,
    NotInTopic,
    TooLarge,
    TopicGone,
    TopicNotWritten,
)
from controller.core.znode_sizes import ZNODE_BYTES_MAX, fits, topic_bytes

#: Topic znodes in one batch; the store splits it further by size.
BATCH_TOPICS = 500


class Entry(NamedTuple):
    """The fields of one partition in its topic znode; the last three are ours (docs/adr/0008)."""

    replicas: BrokerIds
    adding: BrokerIds = ()
    removing: BrokerIds = ()
    original: BrokerIds = ()
    queued: BrokerIds = ()
    stray: BrokerIds = ()


def entry_of(
    cluster: Cluster, partition: Partition, ongoing: Mapping[Partition, BrokerIds] | None = None
) -> Entry:
    """The entry as it should be stored, from memory. ``ongoing``: reassignments in place of those that go on."""
    reassignments = cluster.reassignments
    strays = reassignments.strays.get(partition)
    return Entry(
        partition.replicas,
        partition.adding,
        partition.removing,
        (reassignments.ongoing if ongoing is None else ongoing).get(partition, ()),
        reassignments.queued.get(partition, ()),
        tuple(strays) if strays else (),
    )


def write_entries(
    context: EventContext, entries: Mapping[Partition, Entry]
) -> Handler[dict[Partition, Reason]]:
    """Write the entries of these partitions. Returns the partitions that could not be written, with the reason."""
    by_topic: dict[Topic, dict[Partition, Entry]] = {}
    for partition, entry in entries.items():
        by_topic.setdefault(partition.topic, {})[partition] = entry
    topics = list(by_topic)
    failed: dict[Partition, Reason] = {}
    for start in range(0, len(topics), BATCH_TOPICS):
        batch = {topic: by_topic[topic] for topic in topics[start : start + BATCH_TOPICS]}
        left = yield from _write(context, batch, failed)
        # One by one: a topic that somebody else writes all the time must not keep the others from being written.
        for topic in left:
            yield from _insist(context, {topic: by_topic[topic]}, failed)
    return failed


def _insist(
    context: EventContext, wanted: Mapping[Topic, Mapping[Partition, Entry]], failed: dict[Partition, Reason]
) -> Handler[None]:
    left: Mapping[Topic, str] = {}
    for _ in range(ATTEMPTS_MAX):
        left = yield from _write(context, wanted, failed)
        if not left:
            return
    for topic, reason in left.items():
        failed.update(dict.fromkeys(wanted[topic], TopicNotWritten(ATTEMPTS_MAX, reason)))


def _write(
    context: EventContext, wanted: Mapping[Topic, Mapping[Partition, Entry]], failed: dict[Partition, Reason]
) -> Handler[Mapping[Topic, str]]:
    """Read one batch of topics, and write them. Returns those that are not written, with the conflict."""
    found = yield from context.read(ReadTopics([topic.name for topic in wanted]))
    writes: dict[Topic, SetTopic] = {}
    for (topic, entries), info in zip(wanted.items(), found, strict=True):
        known = _writable(context, topic, info)
        if isinstance(known, Reason):
            failed.update(dict.fromkeys(entries, known))
            continue
        changed = _changed(with_known_id(context.cluster, known), entries, failed)
        if not fits(changed) and (size := topic_bytes(changed)) > topic_bytes(known):
            too_large = TooLarge(topic.name, len(topic.partitions), size, ZNODE_BYTES_MAX)
            failed.update(dict.fromkeys(entries, too_large))
        elif changed == known:
            topic.version = known.version
        else:
            writes[topic] = SetTopic(changed)
    if not writes:
        return {}
    outcome = yield from context.commit(list(writes.values()))
    if not isinstance(outcome, Committed):
        return dict.fromkeys(writes, outcome.reason)
    for topic, write in writes.items():
        topic.version = write.info.version + 1
    return {}


def known_id(cluster: Cluster, info: TopicInfo) -> str:
    """The id by which brokers know this incarnation of a topic; empty: none."""
    topic = cluster.topics.get(info.name)
    return topic.id if topic is not None and topic.czxid == info.czxid else ""


def with_known_id(cluster: Cluster, info: TopicInfo) -> TopicInfo:
    """Whatever a tool left in the znode."""
    known = known_id(cluster, info)
    return replace(info, topic_id=known) if known not in ("", info.topic_id) else info


def _writable(
    context: EventContext, topic: Topic, info: TopicInfo | Problem | None
) -> TopicInfo | Unreadable | TopicGone:
    if isinstance(info, Problem):
        context.problem(info)
        return Unreadable(info.path, info.problem)
    if info is None or info.czxid != topic.czxid:
        return TopicGone(another=info is not None)
    return info


def _changed(
    info: TopicInfo, entries: Mapping[Partition, Entry], failed: dict[Partition, Reason]
) -> TopicInfo:
    known = info.partitions
    failed.update((p, NotInTopic()) for p in entries if p.number not in known)
    numbers = [p.number for p in entries if p.number in known]
    columns = zip(*(entry for p, entry in entries.items() if p.number in known), strict=True)
    maps = [dict(m) for m in (known, info.adding, info.removing, info.original, info.queued, info.stray)]
    # Field by field: of most fields, all or none of thousands of partitions have one.
    for field, column in zip(maps, columns, strict=False):
        if field and not all(column):
            for number, ids in zip(numbers, column, strict=True):
                if not ids:
                    field.pop(number, None)
        if any(column):
            field.update((n, ids) for n, ids in zip(numbers, column, strict=True) if ids)
    return replace(
        info,
        partitions=maps[0],
        adding=maps[1],
        removing=maps[2],
        original=maps[3],
        queued=maps[4],
        stray=maps[5],
    )


def restore(cluster: Cluster, topic: Topic, info: TopicInfo) -> None:
    """Restore from a topic znode: ongoing and queued reassignments, and stray replicas."""
    reassignments = cluster.reassignments
    recorded = info.adding.keys() | info.removing.keys() | info.queued.keys() | info.stray.keys()
    reassignments.restored += [p for n in sorted(recorded) if (p := topic.partitions.get(n)) is not None]
    for number in info.adding.keys() | info.removing.keys():
        partition = topic.partitions.get(number)
        if partition is None:
            continue
        # A hand-written znode may name brokers that are not replicas: ignore them.
        assigned = frozenset(partition.replicas)
        partition.adding = tuple(b for b in partition.adding if b in assigned)
        partition.removing = tuple(b for b in partition.removing if b in assigned)
        if partition.adding or partition.removing:
            reassignments.ongoing[partition] = info.original.get(number, ())
    for number, target in info.queued.items():
        if (partition := topic.partitions.get(number)) is not None:
            reassignments.queued[partition] = target
    for number, ids in info.stray.items():
        if (partition := topic.partitions.get(number)) is not None:
            assigned = frozenset(partition.replicas)
            outside = [b for b in ids if b not in assigned]
            partition.set_departing(dict.fromkeys(outside, ReplicaState.OFFLINE))
            for broker_id in outside:
                reassignments.keep_stray(partition, broker_id, Ineligible(NotifiedEarlier()))
