"""The end of a topic's deletion: deletes its znodes, the marker last (reference, section 7.1, "Complete").

One multi deletes ``/brokers/topics/T``, ``/config/topics/T`` and the marker, after all children. So a new controller
either finds the marker and continues, or finds no znode of the topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from controller.core.commits import ATTEMPTS_MAX, BATCH_WRITES, WINDOW_BATCHES
from controller.core.context import EventContext, Handler, Pause
from controller.core.effects import (
    DeleteNode,
    ReadPendingDeletions,
    ReadTopics,
    ReadTopicTrees,
    TopicInfo,
    Unconfirmed,
)
from controller.core.model import Cluster
from controller.core.partitions import replica_state_machine
from controller.core.records import TopicChange
from controller.core.topics.changes import wait_anew
from controller.core.topics.deletion_status import recorded_as
from controller.core.topics.reasons import ZnodesNotDeleted
from controller.core.znode_paths import deletion_path, topic_config_path, topic_path


def delete_znodes(context: EventContext, names: Sequence[str]) -> Handler[dict[str, ZnodesNotDeleted]]:
    """Delete the znodes of topics whose replicas are all deleted, and remove the topics from the cluster state.

    Returns the topics whose znodes could not be deleted, with the reason.
    """
    cluster = context.cluster
    topics = [topic for name in names if (topic := cluster.topics.get(name)) is not None]
    deleted = [(p, b) for topic in topics for p in topic.partitions.values() for b in p.replicas]
    replica_state_machine.to_non_existent(context, deleted)
    left: Sequence[str] = names
    reason = ""
    for attempt in range(ATTEMPTS_MAX):
        left, present = yield from _without_reborn(context, left)
        # Where the topic znode is absent, one that appears later is another topic: delete the configuration only.
        trees: dict[str, Sequence[str]] = {name: (topic_config_path(name),) for name in left}
        # The first attempt assumes exactly the znodes that we wrote; later ones read, and the last ones list all.
        expected = {} if attempt else _expected(cluster, present)
        read = yield from context.read(ReadTopicTrees(present, attempt > 2, expected))
        trees.update(zip(present, read, strict=True))
        reason = yield from _commit(context, _batches(trees))
        gone = frozenset(left if not reason else (yield from _gone(context, left)))
        for name in sorted(gone):
            _forget(context, name)
        left = [name for name in left if name not in gone]
        if not left:
            return {}
    return dict.fromkeys(left, ZnodesNotDeleted(reason))


def _expected(cluster: Cluster, names: Sequence[str]) -> dict[str, list[int]]:
    """Partition numbers of the topics whose partitions all have a state."""
    topics = [topic for name in names if (topic := cluster.topics.get(name)) is not None]
    return {
        topic.name: list(topic.partitions)
        for topic in topics
        if topic.partitions and all(p.leadership is not None for p in topic.partitions.values())
    }


def _without_reborn(context: EventContext, names: Sequence[str]) -> Handler[tuple[list[str], list[str]]]:
    """The topics that were not deleted and created again by hand; and those of them whose znode exists.

    A new topic with the name is to be deleted, too, while the marker exists; but first it must be read.
    """
    infos = yield from context.read(ReadTopics(names))
    same, present = [], []
    for name, info in zip(names, infos, strict=True):
        topic = context.cluster.topics.get(name)
        if isinstance(info, TopicInfo) and (topic is None or topic.czxid != info.czxid):
            _forget(context, name)
            wait_anew(context, name)
        else:
            same.append(name)
            if info is not None:
                present.append(name)
    return same, present


def _batches(trees: Mapping[str, Sequence[str]]) -> Iterator[list[DeleteNode]]:
    """Batches of deletions: children first; the last znodes of each topic are in one batch."""
    batch: list[DeleteNode] = []
    for unit in _units(trees):
        if batch and len(batch) + len(unit) > BATCH_WRITES:
            yield batch
            batch = []
        batch.extend(map(DeleteNode, unit))
    if batch:
        yield batch


def _units(trees: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    for name, paths in trees.items():
        last = (topic_path(name), topic_config_path(name))
        for path in paths:
            if path not in last:
                yield [path]
        yield [*(path for path in paths if path in last), deletion_path(name)]


def _commit(context: EventContext, batches: Iterable[Sequence[DeleteNode]]) -> Handler[str]:
    """Commit batches, several in flight; ZooKeeper performs them in order. Returns the reason of a failure, or an empty
    string."""
    source = iter(batches)
    in_flight: set[int] = set()
    reason = ""
    while True:
        while len(in_flight) < WINDOW_BATCHES and not reason and (batch := next(source, None)) is not None:
            in_flight.add(context.submit_commit(batch))
            yield Pause.YIELD
        if not in_flight:
            return reason
        outcome = yield from context.wait_any(in_flight)
        in_flight.discard(outcome.id)
        if isinstance(outcome, Unconfirmed):
            reason = outcome.reason


def _gone(context: EventContext, names: Sequence[str]) -> Handler[list[str]]:
    """Read back: the topics of which neither the znode nor the marker exists."""
    markers = set((yield from context.read(ReadPendingDeletions())))
    infos = yield from context.read(ReadTopics(names))
    return [name for name, info in zip(names, infos, strict=True) if name not in markers and info is None]


def _forget(context: EventContext, name: str) -> None:
    """Remove a deleted topic. Its metadata stays queued, so that all brokers are notified of the deletion."""
    topic = context.cluster.topics.get(name)
    if topic is not None:
        topic.deleted = True
    before = recorded_as(context.cluster, name)
    context.cluster.remove_topic(name)
    context.solved(topic_path(name))
    context.log([TopicChange(name, before, "deleted")])
