"""Failed log directories (reference, section 8.5): a broker stays online, some of its replicas are lost.

A broker that loses a disk writes a notification. The controller sends it LeaderAndIsr for all its replicas; the
response tells for each partition whether its replica is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from controller.core.brokers.changes import leaders_failed, replicas_failed
from controller.core.commits import delete_notifications
from controller.core.context import EventContext, Handler, replicas_on
from controller.core.effects import Problem, ReadLogDirEvents
from controller.core.events import DiskReport
from controller.core.model import Partition
from controller.core.partitions import partition_state_machine, replica_state_machine
from controller.core.partitions.replica_state_machine import Replica
from controller.core.reassignment import phases
from controller.core.topics import deletion
from controller.core.topics.reasons import Unreachable


def log_dirs_failed(context: EventContext) -> Handler[None]:
    """LogDirEventNotification: send LeaderAndIsr to the named brokers, to learn which replicas they still have.

    Replicas known to be lost are included, but stay OfflineReplica.
    """
    events = yield from context.read(ReadLogDirEvents())
    cluster = context.cluster
    named: dict[int, None] = {}
    for path, broker_id in events:
        if isinstance(broker_id, Problem):
            context.problem(broker_id)
        elif broker_id not in cluster.brokers:
            context.reject("BROKER_NOT_AVAILABLE", f"{path}: broker {broker_id} is not registered")
        else:
            named[broker_id] = None
    for broker_id in named:
        lost = cluster.offline_dirs.get(broker_id, set())
        replicas = yield from replicas_on(context, [broker_id])
        context.push_leadership_all(broker_id, [p for p, _ in replicas if p.leadership])
        replica_state_machine.to_online(
            context, [r for r in replicas if r[0] not in lost], "asked after a log-dir event"
        )
    yield from delete_notifications(context, [path for path, _ in events])


def disks_reported(context: EventContext, reports: Sequence[DiskReport]) -> Handler[None]:
    """LeaderAndIsrResponseReceived: offline' = (offline - healthy) + failed, report by report (section 8.5).

    Newly lost replicas are handled like those of a dead broker, recovered ones like those of a new broker.
    """
    before: dict[int, set[Partition]] = {}
    dirs = context.cluster.offline_dirs
    for report in reports:
        broker = context.cluster.brokers.get(report.broker_id)
        if broker is not None and broker.epoch == report.broker_epoch:
            before.setdefault(broker.id, dirs.get(broker.id, set()))
            # Ignore partitions of former topics: a new topic with the name has other Partition objects.
            failed = {p for p in report.failed if context.cluster.partition(p.topic.name, p.number) is p}
            dirs[broker.id] = dirs.get(broker.id, set()).difference(report.healthy) | failed
    lost = [(p, id_) for id_, known in before.items() for p in _in_order(dirs[id_] - known)]
    back = [(p, id_) for id_, known in before.items() for p in _in_order(known - dirs[id_])]
    for id_ in before:
        if not dirs[id_]:
            del dirs[id_]
    if lost:
        yield from leaders_failed(context, "disk failed")
        yield from replicas_failed(context, _present(context, lost), "disk failed")
        yield from deletion.replicas_failed(context, _deleting(context, lost), Unreachable.DISK_FAILED)
    if back:
        replica_state_machine.to_online(context, _present(context, back), "its disk is back")
        yield from partition_state_machine.bring_online(context)
        yield from phases.brokers_started(context, {id_ for _, id_ in back})
        yield from deletion.replicas_back(context, _deleting(context, back))


def _in_order(partitions: Iterable[Partition]) -> list[Partition]:
    """Sort by name, so that pushes and records have the same order in each process; that of a set differs."""
    return sorted(partitions, key=lambda p: (p.topic.name, p.number))


def _present(context: EventContext, replicas: Iterable[Replica]) -> list[Replica]:
    """The replicas still assigned, of topics not under deletion."""
    return [(p, id_) for p, id_ in replicas if id_ in p.replicas and not context.cluster.is_deleting(p)]


def _deleting(context: EventContext, replicas: Iterable[Replica]) -> list[Replica]:
    """The replicas still assigned, of topics under deletion."""
    return [(p, id_) for p, id_ in replicas if id_ in p.replicas and context.cluster.is_deleting(p)]
