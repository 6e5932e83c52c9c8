"""The end of a topic's deletion: its znodes go, the marker last (reference, section 7.1, "Complete").

``/brokers/topics/T``, ``/config/topics/T`` and the marker go in one multi, after everything below: whoever takes over
in between finds the marker and goes on, and whoever finds no marker finds nothing else.
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
from controller.core.model import Cluster, ReplicaState
from controller.core.partitions import replica_state_machine
from controller.core.records import TopicChange
from controller.core.topics.reasons import CreatedAnew, ZnodesNotDeleted
from controller.core.znode_paths import deletion_path, is_below, topic_config_path, topic_path


def delete_znodes(context: EventContext, names: Sequence[str]) -> Handler[dict[str, ZnodesNotDeleted]]:
    """Erase topics whose replicas are all deleted, and forget them.

    Returns those whose znodes could not be deleted, with the reason.
    """
    cluster = context.cluster
    replica_state_machine.to_non_existent(
        context,
        [
            (p, b)
            for name in names
            if (topic := cluster.topics.get(name)) is not None
            for p in topic.partitions.values()
            for b in p.replicas
            if p.replica_state(b) is not ReplicaState.NON_EXISTENT
        ],
    )
    left: Sequence[str] = names
    reason = ""
    for attempt in range(ATTEMPTS_MAX):
        left, present = yield from _without_reborn(context, left)
        # What is absent now and there a moment later is another topic: of these only a configuration can be left.
        trees: dict[str, Sequence[str]] = {name: (topic_config_path(name),) for name in left}
        # Mostly there is what we wrote, or somebody deleted something meanwhile: then looking as usual is enough.
        expected = {} if attempt else _expected(cluster, present)
        read = yield from context.read(ReadTopicTrees(present, attempt > 2, expected))
        trees.update(zip(present, read, strict=True))
        reason = yield from _commit(context, _batches(trees))
        gone = left if not reason else (yield from _gone(context, left))
        for name in gone:
            _forget(context, name)
        left = [name for name in left if name not in set(gone)]
        if not left:
            return {}
    return dict.fromkeys(left, ZnodesNotDeleted(reason))


def _expected(cluster: Cluster, names: Sequence[str]) -> dict[str, list[int]]:
    """Partitions of topics all of which have a state."""
    topics = [topic for name in names if (topic := cluster.topics.get(name)) is not None]
    return {
        topic.name: list(topic.partitions)
        for topic in topics
        if topic.partitions and all(p.leadership is not None for p in topic.partitions.values())
    }


def _without_reborn(context: EventContext, names: Sequence[str]) -> Handler[tuple[list[str], list[str]]]:
    """Those whose znode is not another topic's by now, one removed and created anew by hand; and those of them whose
    znode is there.

    The other topic is asked to be deleted, too, for as long as the marker is there; but first it has to be looked at.
    """
    infos = yield from context.read(ReadTopics(names))
    same, present = [], []
    for name, info in zip(names, infos, strict=True):
        topic = context.cluster.topics.get(name)
        if isinstance(info, TopicInfo) and (topic is None or topic.czxid != info.czxid):
            _forget(context, name)
            context.cluster.deletions_waiting[name] = CreatedAnew()
        else:
            same.append(name)
            if info is not None:
                present.append(name)
    return same, present


def _batches(trees: Mapping[str, Sequence[str]]) -> Iterator[list[DeleteNode]]:
    """Children first; what ends each topic stays together."""
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
    """Several in flight; ZooKeeper performs them in order. Returns why one did not land, empty if all did."""
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
    """Read back: topics of which neither this incarnation nor the marker is there."""
    markers = set((yield from context.read(ReadPendingDeletions())))
    infos = yield from context.read(ReadTopics(names))
    gone = []
    for name, info in zip(names, infos, strict=True):
        topic = context.cluster.topics.get(name)
        same = info is not None and not (
            isinstance(info, TopicInfo) and (topic is None or topic.czxid != info.czxid)
        )
        if name not in markers and not same:
            gone.append(name)
    return gone


def _forget(context: EventContext, name: str) -> None:
    """Out of the context. Brokers that were not told yet still are: its metadata stays in their queues."""
    topic = context.cluster.topics.get(name)
    if topic is not None:
        topic.deleted = True
    context.cluster.remove_topic(name)
    for path in [p for p in context.cluster.problems if is_below(topic_path(name), p)]:
        context.solved(path)
    context.log([TopicChange(name, "deleting", "deleted")])
