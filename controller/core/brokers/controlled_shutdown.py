"""Controlled shutdown (reference, section 6): a broker hands over its leaderships before it stops.

It stays excluded from leadership until it disappears or bounces, an operator cancels its shutdown, or the controller
fails over. What it follows in sync, it is told to stop, once an ISR without it is stored under the next leader epoch:
brokers refuse LeaderAndIsr at a leader epoch that they know, and nobody could undo a stop at the stored one (reference,
section 14, point 6). What it follows out of sync goes on: it cannot get in sync, as it is leaving.
"""

from __future__ import annotations

from controller.core.commits import refresh
from controller.core.context import EventContext, Handler, slices
from controller.core.model import Partition
from controller.core.partitions import leader_election, partition_state_machine, replica_state_machine
from controller.core.records import BrokerChange
from controller.core.requests.brokers import ControlledShutdown, ControlledShutdownReply
from controller.core.requests.errors import ErrorCode


def controlled_shutdown(context: EventContext, serial: int, request: ControlledShutdown) -> Handler[None]:
    """Move leaderships away, remove the broker from its ISRs, answer with the partitions it still leads.

    An unknown broker id gets BROKER_NOT_AVAILABLE. A broker epoch newer than the known one is accepted: it is of an
    incarnation whose registration is not read yet.
    """
    cluster, broker_id = context.cluster, request.broker_id
    broker = cluster.brokers.get(broker_id)
    error = ErrorCode.NONE
    if broker is None:
        error, why = ErrorCode.BROKER_NOT_AVAILABLE, "no such broker is registered"
    elif request.broker_epoch is not None and request.broker_epoch < broker.epoch:
        error, why = ErrorCode.STALE_BROKER_EPOCH, f"its present epoch is {broker.epoch}"
    if error is not ErrorCode.NONE:
        epoch = request.broker_epoch
        context.reject(
            error.name, f"ControlledShutdown of broker {broker_id} with broker epoch {epoch}: {why}"
        )
        context.reply(serial, ControlledShutdownReply(error))
        return
    if broker_id not in cluster.shutting_down:
        cluster.shutting_down.add(broker_id)
        context.log([BrokerChange(broker_id, "shutting_down", "online")])
    led, followed = yield from _led_and_followed(context, broker_id)
    for part in context.parts(led):
        still = [p for p in part if context.is_present(p)]
        yield from partition_state_machine.to_online(context, still, leader_election.CONTROLLED_SHUTDOWN)
        yield from context.give_way()
    for part in context.parts(followed):
        still = [p for p in part if context.is_present(p) and broker_id in p.replicas]
        # A leader can have added it without our knowledge.
        yield from refresh(context, [p for p in still if not _is_in_sync(broker_id, p)])
        leaving = [(p, broker_id) for p in still if _is_in_sync(broker_id, p)]
        why_offline = "its broker is shutting down"
        yield from replica_state_machine.to_offline(context, leaving, why_offline, for_good=False)
        yield from context.give_way()
    still_led, _ = yield from _led_and_followed(context, broker_id)
    remaining = [(p.topic.name, p.number) for p in still_led if context.is_present(p)]
    context.reply(serial, ControlledShutdownReply(ErrorCode.NONE, remaining))


def _is_in_sync(broker_id: int, partition: Partition) -> bool:
    return partition.leadership is not None and broker_id in partition.leadership.isr


def _led_and_followed(
    context: EventContext, broker_id: int
) -> Handler[tuple[list[Partition], list[Partition]]]:
    """Partitions with a replica on this broker and on another, with leadership, not under deletion: those that the
    broker leads, and the others."""
    cluster = context.cluster
    led: list[Partition] = []
    followed: list[Partition] = []
    for some in slices(cluster.partitions()):
        for p in some:
            state = p.leadership
            if state is None or broker_id not in p.replicas or len(p.replicas) == 1 or cluster.is_deleting(p):
                continue
            (led if state.leader == broker_id else followed).append(p)
        yield from context.give_way()
    return led, followed
