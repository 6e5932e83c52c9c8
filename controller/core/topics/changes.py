"""Reacts to topic znodes that were created, changed or deleted (reference, section 7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from controller.core.commits import ATTEMPTS_MAX
from controller.core.context import SLICE_MAX, EventContext, Handler, Pause
from controller.core.effects import (
    MALFORMED,
    Committed,
    Problem,
    ReadTopicNames,
    ReadTopics,
    SetTopic,
    TopicInfo,
    Unconfirmed,
)
from controller.core.model import Cluster, Partition, Topic
from controller.core.names import ids_shown, shown
from controller.core.partitions import leader_election, partition_state_machine, replica_state_machine
from controller.core.reassignment.topic_znode import restore
from controller.core.records import TopicChange
from controller.core.topics import phantom
from controller.core.topics.deletion_status import Recorded, recorded_as
from controller.core.topics.reasons import CreatedAnew
from controller.core.znode_paths import topic_of, topic_path

#: New topics that are read and initialised together; a write of all of them begins sooner, and others get a turn.
READ_TOPICS = 500
#: ``Topic.czxid`` of a topic whose znode was deleted.
VANISHED = -1


def add_topic(context: EventContext, info: TopicInfo) -> Topic:
    """Add a topic and its assignment to the cluster state; partition states are read later."""
    topic = topic_of_info(info)
    if not is_plain(info):
        restore(context.cluster, topic, info)
        _record_ignored(context, info)
    context.cluster.add_topic(topic)
    context.solved(topic_path(info.name))
    return topic


def topic_of_info(info: TopicInfo) -> Topic:
    topic = Topic(info.name, info.topic_id, info.czxid, info.version)
    add_partitions(topic, info, info.partitions.keys())
    return topic


def is_plain(info: TopicInfo) -> bool:
    """Whether ``add_topic`` does nothing with a topic but add it."""
    return bool(info.topic_id) and not (
        info.adding or info.removing or info.original or info.queued or info.stray
    )


def _record_ignored(context: EventContext, info: TopicInfo) -> None:
    """Record what a topic znode says about partitions that it does not have, or adds and removes without assigning."""
    for field, by_number in (
        ("adding_replicas", info.adding),
        ("removing_replicas", info.removing),
        ("original_replicas", info.original),
        ("queued_replicas", info.queued),
        ("stray_replicas", info.stray),
    ):
        if odd := sorted(by_number.keys() - info.partitions.keys()):
            why = f"{field}: partitions {ids_shown(odd)} are not among its partitions: ignored"
            context.reject("INVALID_REPLICA_ASSIGNMENT", f"{topic_path(info.name)}: {why}")
        if by_number is info.adding or by_number is info.removing:
            for number in by_number.keys() & info.partitions.keys():
                outside = set(by_number[number]).difference(info.partitions[number])
                if outside:
                    why = (
                        f"{field}.{number}: {ids_shown(sorted(outside))} are not among its replicas: ignored"
                    )
                    context.reject("INVALID_REPLICA_ASSIGNMENT", f"{topic_path(info.name)}: {why}")


def add_partitions(topic: Topic, info: TopicInfo, numbers: Iterable[int]) -> list[Partition]:
    """Add new partitions of a topic from its znode, and return them in order of number."""
    added = []
    for number in sorted(numbers):
        partition = Partition(
            topic,
            number,
            info.partitions[number],
            info.adding.get(number, ()),
            info.removing.get(number, ()),
        )
        topic.partitions[number] = partition
        added.append(partition)
    topic.complete = False
    return added


def assign_missing_ids(context: EventContext, infos: Sequence[TopicInfo]) -> Handler[None]:
    """Write the id of each topic whose znode lacks it, if brokers know topic ids."""
    known = context.cluster.topic_ids_known
    lacking = [info for info in infos if _lacks_its_id(context, info)] if known else []
    for start in range(0, len(lacking), 500):
        left, _ = yield from _assign_ids(context, lacking[start : start + 500])
        # One by one: a topic that somebody else writes all the time must not keep the others from theirs.
        for info in left:
            yield from _insist_on_id(context, info)


def _assign_ids(context: EventContext, lacking: Sequence[TopicInfo]) -> Handler[tuple[list[TopicInfo], str]]:
    """Write one batch. After a conflict, its topics that still have no id, read again, and the reason."""
    writes = [
        SetTopic(replace(info, topic_id=_known_id(context, info) or context.new_topic_id()))
        for info in lacking
    ]
    outcome = yield from context.commit(writes)
    if isinstance(outcome, Committed):
        for write in writes:
            _know_id(context, replace(write.info, version=write.info.version + 1))
        return [], ""
    stored = yield from context.read(ReadTopics([info.name for info in lacking]))
    readable = [info for info in stored if isinstance(info, TopicInfo)]
    left = [info for info in readable if _lacks_its_id(context, info)]
    lacking_still = {info.name for info in left}
    for info in readable:
        if info.name not in lacking_still:
            _know_id(context, info)
    return left, outcome.reason


def _known_id(context: EventContext, info: TopicInfo) -> str:
    """The id by which brokers know this incarnation of a topic; empty: none."""
    topic = context.cluster.topics.get(info.name)
    return topic.id if topic is not None and topic.czxid == info.czxid else ""


def _lacks_its_id(context: EventContext, info: TopicInfo) -> bool:
    known = _known_id(context, info)
    return info.topic_id != known if known else not info.topic_id


def _insist_on_id(context: EventContext, info: TopicInfo) -> Handler[None]:
    left, reason = [info], ""
    for _ in range(ATTEMPTS_MAX):
        left, reason = yield from _assign_ids(context, left)
        if not left:
            return
    context.reject("CONFLICT", f"{topic_path(info.name)}: no topic id could be written: {reason}")


def _know_id(context: EventContext, info: TopicInfo) -> None:
    topic = context.cluster.topics.get(info.name)
    if topic is not None:
        context.cluster.know_topic_id(topic, info.topic_id)
        topic.version = info.version


def topics_changed(context: EventContext) -> Handler[None]:
    """TopicChange: initialise new topics, forget vanished ones (brokers are not notified).

    A topic that vanishes during its deletion is kept until its brokers have deleted it.
    """
    names = yield from context.read(ReadTopicNames())
    cluster = context.cluster
    present = frozenset(names)
    for name in [] if present.issuperset(cluster.topics) else sorted(cluster.topics.keys() - present):
        _vanished(context, name)
    for path in [p for p in cluster.problems if (of := topic_of(p)) is not None and of not in present]:
        context.solved(path)
    # A watch reports a change of what could not be read. So each of these is not read again and again.
    unreadable = cluster.unreadable_topics
    for name in [n for n, holder in unreadable.items() if n not in present or _is_gone(cluster, holder)]:
        del unreadable[name]
    # A topic that vanished is known only while it is being deleted.
    known = cluster.topics
    back = [n for n in cluster.topics_to_delete & known.keys() & present if known[n].czxid == VANISHED]
    fresh = sorted(present.difference(known).union(back).difference(unreadable))
    for start in range(0, len(fresh) or 1, READ_TOPICS):
        infos = yield from context.read(ReadTopics(fresh[start : start + READ_TOPICS]))
        for info in infos:
            if info is not None and _name_of(info) in cluster.topics:
                _reborn(context, _name_of(info))
        yield from _create(context, infos)


def _is_gone(cluster: Cluster, holder: str) -> bool:
    return bool(holder) and holder not in cluster.topics


def unreadable(context: EventContext, problem: Problem) -> None:
    """Remember and report a topic whose znode was just read and does not decode."""
    context.problem(problem)
    if problem.error == MALFORMED:
        context.cluster.unreadable_topics[_name_of(problem)] = ""


def with_own_ids(context: EventContext, infos: Iterable[TopicInfo]) -> list[TopicInfo]:
    """The topics without those that have another one's id, which are reported: a topic is known to brokers by its id.

    The id is that of the topic that is known already, else of the one that was created first.
    """
    cluster = context.cluster
    infos = list(infos)
    holders: dict[str, str] = {}
    own: list[TopicInfo] = []
    for info in sorted(infos, key=lambda info: info.czxid):
        known = cluster.topic_by_id(info.topic_id) if info.topic_id else None
        holder = (
            known.name if known is not None else holders.setdefault(info.topic_id or info.name, info.name)
        )
        if not info.topic_id or holder == info.name:
            own.append(info)
        else:
            why = f"topic_id = {info.topic_id}: is the id of topic {holder}, too: must be its own"
            context.problem(Problem(topic_path(info.name), why, info.czxid))
            cluster.unreadable_topics[info.name] = holder
    return own if len(own) < len(infos) else infos


def _name_of(info: TopicInfo | Problem) -> str:
    return info.name if isinstance(info, TopicInfo) else info.path.rsplit("/", 1)[-1]


def _vanished(context: EventContext, name: str) -> None:
    """Handle a topic whose znode was deleted by hand."""
    topic = context.cluster.topics.get(name)
    if topic is not None and name in context.cluster.topics_to_delete:
        topic.czxid = VANISHED
        context.log([TopicChange(name, recorded_as(context.cluster, name), "vanished")])
    else:
        _forgotten(context, name)


def _reborn(context: EventContext, name: str) -> None:
    """Handle a topic whose znode was deleted and created again by hand: it is another topic with the same name. A
    deletion requested by name then applies to the new topic."""
    asked = context.cluster.deletion_requested(name)
    _forgotten(context, name)
    if asked:
        wait_anew(context, name)


def wait_anew(context: EventContext, name: str) -> None:
    """A topic that was to be deleted is gone, and another one of its name has to be read first."""
    before, reason = recorded_as(context.cluster, name), CreatedAnew()
    context.cluster.deletions_waiting[name] = reason
    context.log([TopicChange(name, before, Recorded.WAITING, str(reason))])


def _forgotten(context: EventContext, name: str) -> None:
    if name in context.cluster.topics:
        before = recorded_as(context.cluster, name)
        context.outbox.forget(context.cluster.remove_topic(name))
        context.log([TopicChange(name, before, "vanished")])


def topics_modified(context: EventContext, names: Sequence[str]) -> Handler[None]:
    """PartitionModifications: create partitions that are new in the znode; ignore other edits.

    Only known or unreadable topics are read: TopicChange handles new ones.
    """
    cluster = context.cluster
    names = [n for n in names if n in cluster.topics or topic_path(n) in cluster.problems]
    infos = yield from context.read(ReadTopics(names))
    reborn: list[TopicInfo] = []
    without_id: list[TopicInfo] = []
    unnamed: list[Topic] = []
    for name, info in zip(names, infos, strict=True):
        if isinstance(info, Problem):
            unreadable(context, info)
            continue
        cluster.unreadable_topics.pop(name, None)
        if info is None:
            context.solved(topic_path(name))
            _vanished(context, name)
            continue
        topic = cluster.topics.get(info.name)
        if topic is None or topic.czxid != info.czxid:
            _reborn(context, info.name)
            reborn.append(info)
            continue
        context.solved(topic_path(info.name))
        topic.version = info.version
        if not topic.id and with_own_ids(context, [info]):
            cluster.know_topic_id(topic, info.topic_id)
            if not info.topic_id:
                without_id.append(info)
            unnamed.append(topic)
        elif _is_misnamed(cluster, topic, info):
            # Tools from before 2.8 drop it. With another one, the next controller's LeaderAndIsr would be refused.
            why = f"topic_id = {shown(info.topic_id)}: must be {topic.id}, by which brokers know it; written again"
            context.reject("INCONSISTENT_TOPIC_ID", f"{topic_path(info.name)}: {why}")
            without_id.append(info)
        missing = info.partitions.keys() - topic.partitions.keys()
        if not missing:
            continue
        if cluster.deletion_requested(info.name):
            yield from _roll_back_expansion(context, topic, info)
            continue
        added = add_partitions(topic, info, missing)
        yield from _initialise(context, (yield from phantom.repair(context, added)))
    yield from assign_missing_ids(context, without_id)
    _tell_ids(context, unnamed)
    if reborn:
        yield from _create(context, reborn)


def _is_misnamed(cluster: Cluster, topic: Topic, info: TopicInfo) -> bool:
    """Whether somebody took the id that brokers know out of a znode that stays."""
    known = cluster.topic_ids_known and not cluster.deletion_requested(topic.name)
    return known and topic.id not in ("", info.topic_id)


def _tell_ids(context: EventContext, topics: Sequence[Topic]) -> None:
    """Of these topics brokers were told without an id: tell those that have one by now."""
    told = [
        p
        for topic in topics
        if topic.id
        for p in topic.partitions.values()
        if p.leadership is not None and not context.cluster.is_deleting(p)
    ]
    context.push_leadership([(p.replicas, p) for p in told])
    context.push_metadata(told)


def _roll_back_expansion(context: EventContext, topic: Topic, info: TopicInfo) -> Handler[None]:
    """Remove partitions added to a topic under deletion from its znode (KAFKA-6612)."""
    kept = {n: ids for n, ids in info.partitions.items() if n in topic.partitions}
    outcome = yield from context.commit([SetTopic(replace(info, partitions=kept))])
    reason = outcome.reason if isinstance(outcome, Unconfirmed) else "rolled back: the topic is being deleted"
    context.reject("ILLEGAL_TRANSITION", f"{topic_path(topic.name)}: partitions added: {reason}")


def _create(context: EventContext, infos: Sequence[TopicInfo | Problem | None]) -> Handler[None]:
    created: list[Partition] = []
    readable: list[TopicInfo] = []
    for info in infos:
        if isinstance(info, Problem):
            unreadable(context, info)
        elif info is not None:
            readable.append(info)
    readable = with_own_ids(context, readable)
    for info in readable:
        created.extend(add_topic(context, info).partitions.values())
    yield from assign_missing_ids(context, readable)
    yield from _initialise(context, (yield from phantom.repair(context, created)))


def _initialise(context: EventContext, partitions: Sequence[Partition]) -> Handler[None]:
    """onNewPartitionCreation: partitions New, replicas New, partitions Online, replicas Online; in slices."""
    for some in _slices(partitions):
        replicas = [(p, b) for p in some for b in p.replicas]
        partition_state_machine.to_new(context, some)
        replica_state_machine.to_new(context, replicas)
        yield from partition_state_machine.to_online(context, some, leader_election.OFFLINE)
        replica_state_machine.to_online(context, replicas, "created")
        yield Pause.YIELD


def _slices(partitions: Iterable[Partition]) -> Iterator[list[Partition]]:
    """The partitions in lists of at most ``SLICE_MAX`` replicas, but at least one partition."""
    some: list[Partition] = []
    replicas = 0
    for partition in partitions:
        if some and replicas + len(partition.replicas) > SLICE_MAX:
            yield some
            some, replicas = [], 0
        some.append(partition)
        replicas += len(partition.replicas)
    if some:
        yield some
