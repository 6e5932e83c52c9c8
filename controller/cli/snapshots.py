"""A copy of the running cluster, for plans and explanations: read from ZooKeeper, whether a controller lives or not."""

from __future__ import annotations

from controller.cli.output import note
from controller.core.model import Cluster, Partition, Topic
from controller.planning.snapshot import UNCLEAN_CONFIG, Snapshot
from controller.runtime import inspection
from controller.runtime.inspection import Seen
from controller.runtime.zookeeper import Session


async def look(session: Session) -> tuple[Seen, Snapshot]:
    """The cluster in one reading; what is unreadable is said. Topics that change meanwhile may be seen half before and
    half after it."""
    seen = await inspection.look(session, configs=True)
    for path, problem in sorted(seen.problems.items()):
        note(f"pctl: unreadable znode {path}: {problem}")
    return seen, snapshot_of(seen)


def snapshot_of(seen: Seen) -> Snapshot:
    """Decided about by the active controller, or else by the next one."""
    active = seen.controller_id >= 0
    return Snapshot(
        controller_id=max(seen.controller_id, 0),
        controller_epoch=max(seen.controller_epoch, 0) + (not active),
        brokers=seen.brokers,
        topics=seen.topics,
        states={(p.topic, p.partition): p.state for p in seen.partitions if p.state is not None},
        configs=seen.configs,
        broker_defaults=seen.broker_defaults,
        deleting=tuple(seen.deleting),
        problems=seen.problems,
        feature=seen.feature,
        maintenance=seen.maintenance,
    )


def cluster_of(snapshot: Snapshot) -> Cluster:
    """The controller's context as ZooKeeper alone can tell it: nothing is known of disks and of brokers that are
    shutting down."""
    cluster = Cluster(snapshot.controller_id, snapshot.controller_epoch)
    cluster.brokers.update(snapshot.brokers)
    cluster.problems.update(snapshot.problems)
    cluster.maintenance = snapshot.maintenance
    for name, info in snapshot.topics.items():
        topic = Topic(name, info.topic_id, info.czxid, info.version)
        cluster.add_topic(topic)
        for number, replicas in info.partitions.items():
            partition = Partition(
                topic, number, replicas, info.adding.get(number, ()), info.removing.get(number, ())
            )
            partition.leadership = snapshot.states.get((name, number))
            topic.partitions[number] = partition
    return cluster


def unclean_allowed(snapshot: Snapshot, topic: str, default: bool) -> bool:
    """What the topic's own setting says, else that of all brokers, else the controllers'."""
    text = snapshot.configs.get(topic, {}).get(UNCLEAN_CONFIG)
    if text is None:
        text = snapshot.broker_defaults.get(UNCLEAN_CONFIG)
    return default if text is None else text.strip().lower() == "true"
