"""Tell a broker again what it does not hold as it was told."""

from __future__ import annotations

from collections.abc import Sequence

from controller.core.audit.newer_states import newest, take_over
from controller.core.audit.stored_states import check_states
from controller.core.context import EventContext, Handler
from controller.core.events import StatesCheck, TellAgain
from controller.core.model import NO_EPOCH, NO_LEADER, Cluster, LeaderAndIsr, Partition, Topic
from controller.core.partitions.leader_epochs import raise_leader_epochs


def tell_again(context: EventContext, reports: Sequence[TellAgain]) -> Handler[None]:
    """StateDifference: queue what each broker incarnation lacks. Metadata goes to every broker, which costs little.

    A broker that has seen a leader epoch refuses LeaderAndIsr at the same one: then the leader epoch is raised, with
    the same leader and ISR.
    """
    cluster = context.cluster
    floors: dict[Partition, int] = {}
    newer: dict[Partition, LeaderAndIsr] = {}
    metadata: dict[Partition, None] = {}
    for report in reports:
        broker = cluster.brokers.get(report.broker_id)
        if broker is None or broker.epoch != report.broker_epoch:
            continue
        context.push_leadership([([broker.id], p) for p in filter(context.is_present, report.leadership)])
        for partition, floor in report.floors:
            if context.is_present(partition):
                floors[partition] = max(floor, floors.get(partition, NO_EPOCH))
        newer.update((p, newest(told, newer.get(p))) for p, told in report.newer)
        metadata.update(dict.fromkeys(filter(context.is_present, report.metadata)))
        gone = [_gone(cluster, *key) for key in report.unknown if cluster.partition(*key) is None]
        if gone:
            context.outbox.update_metadata(gone, context.event_id, context.cause)
    context.push_metadata(metadata)
    if reads := [StatesCheck(report.read) for report in reports if report.read]:
        yield from check_states(context, reads)
    if newer:
        yield from take_over(context, list(newer.items()))
    if floors:
        failed = yield from raise_leader_epochs(context, floors, "audit")
        for partition, why in failed.items():
            context.reject("NOT_TOLD_AGAIN", str(why), partition)


def _gone(cluster: Cluster, name: str, number: int) -> Partition:
    """A partition that does not exist, to be sent as deleted. With the id of an existing topic of the name: brokers
    forget the id of a topic that a message names without one."""
    known = cluster.topics.get(name)
    topic = Topic(name, known.id if known is not None else "")
    topic.deleted = True
    partition = Partition(topic, number, ())
    partition.leadership = LeaderAndIsr(NO_LEADER, 0, (), 0, 0)
    return partition
