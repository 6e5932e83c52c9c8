"""Failed log directories (reference, section 8.5): a broker stays, some of its replicas are gone.

A broker that loses a disk writes a notification. It is answered with LeaderAndIsr for all its replicas; what the
broker answers to that, partition by partition, says which of them it lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controller.core import partition_machine, replica_machine
from controller.core.brokers import replicas_failed, replicas_on
from controller.core.effects import Problem, ReadLogDirEvents
from controller.core.model import Partition
from controller.core.notifications import delete_notifications
from controller.core.turn import Procedure, Turn


@dataclass(frozen=True)
class DiskReport:
    """What one broker incarnation answered to LeaderAndIsr: partitions on a failed disk (KAFKA_STORAGE_ERROR)
    and partitions on a healthy one (NONE). Other answers say nothing about disks."""

    broker_id: int
    broker_epoch: int
    failed: Sequence[Partition]
    healthy: Sequence[Partition] = ()


def log_dirs_failed(turn: Turn) -> Procedure[None]:
    """LogDirEventNotification: ask the brokers named which replicas they still have.

    Replicas known to be lost are asked about again, but stay OfflineReplica; the original takes each for online
    with every further event of its broker, and never for offline again.
    """
    events: Sequence[tuple[str, int | Problem]] = yield from turn.read(ReadLogDirEvents())
    cluster = turn.cluster
    named: dict[int, None] = {}
    for path, broker_id in events:
        if isinstance(broker_id, Problem):
            turn.problem(broker_id)
        elif broker_id not in cluster.brokers:
            turn.reject("BROKER_NOT_AVAILABLE", f"{path}: broker {broker_id} is not registered")
        else:
            named[broker_id] = None
    for broker_id in named:
        lost = cluster.offline_dirs.get(broker_id, set())
        replicas = replicas_on(turn, [broker_id])
        turn.push_leadership_all(broker_id, [p for p, _ in replicas if p in lost and p.leadership])
        replica_machine.to_online(
            turn, [r for r in replicas if r[0] not in lost], "asked after a log-dir event"
        )
    yield from delete_notifications(turn, [path for path, _ in events])


def disks_reported(turn: Turn, report: DiskReport) -> Procedure[None]:
    """LeaderAndIsrResponseReceived: offline' = (offline - healthy) + failed (reference, section 8.5).

    Replicas newly lost are treated like those of a dead broker; replicas that came back like those of a new one.
    """
    cluster = turn.cluster
    broker = cluster.brokers.get(report.broker_id)
    if broker is None or broker.epoch != report.broker_epoch:
        return
    before = cluster.offline_dirs.get(broker.id, set())
    # Partitions that are no more were answered for in vain: a new topic of that name has others.
    failed = {p for p in report.failed if cluster.partition(p.topic.name, p.number) is p}
    back = [p for p in report.healthy if p in before and p not in failed]
    lost = [p for p in failed if p not in before]
    if not lost and not back:
        return
    now = before.difference(back) | failed
    if now:
        cluster.offline_dirs[broker.id] = now
    else:
        del cluster.offline_dirs[broker.id]
    if lost:
        replicas = [(p, broker.id) for p in lost if not cluster.is_deleting(p) and broker.id in p.replicas]
        yield from replicas_failed(turn, replicas, "disk failed")
    if back:
        replicas = [(p, broker.id) for p in back if not cluster.is_deleting(p) and broker.id in p.replicas]
        replica_machine.to_online(turn, replicas, "its disk is back")
        yield from partition_machine.bring_online(turn)
