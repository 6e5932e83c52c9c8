"""Forgotten brokers: an operator declared that they will not return, so that deletions do not wait for them.

Durable in ``/controllers/forgotten`` (ours), with the replicas of deleted topics that such a broker may still hold. If
it registers after all, these are deleted first; then it is a broker like others. Stray replicas of topics that exist
are remembered in their topic's znode, as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from controller.core.backoff import RETRY_FIRST_US
from controller.core.commits import change_node, load_node
from controller.core.context import EventContext, FollowUp, Handler
from controller.core.events import StopReport
from controller.core.model import Cluster, Forgotten, Partition, Topic
from controller.core.records import BrokerChange
from controller.core.requests.operator import ForgetBroker
from controller.core.znode_paths import FORGOTTEN, NodePath

PATH: NodePath[dict[int, Forgotten]] = NodePath(FORGOTTEN)
_Change = Callable[[dict[int, Forgotten]], dict[int, Forgotten]]
#: The reasons in records.
NOT_AWAITED = "its broker is forgotten: should it return, it is told to delete it"
BACK = "its broker was forgotten, and is back before its topic is deleted"


def load(context: EventContext) -> Handler[None]:
    """Read them at failover."""
    context.cluster.forgotten = yield from load_node(context, PATH, {})


def is_written_off(cluster: Cluster, broker_id: int) -> bool:
    """Whether nothing waits for this broker: it is forgotten, and not registered."""
    return broker_id in cluster.forgotten and broker_id not in cluster.brokers


def store(context: EventContext, request: ForgetBroker) -> Handler[str]:
    """Make it durable that a broker is forgotten. Returns why that failed, as text; empty: it is."""

    def changed(before: dict[int, Forgotten]) -> dict[int, Forgotten]:
        held = before[request.broker_id].replicas if request.broker_id in before else {}
        mark = Forgotten(request.reason, request.author, request.at_ms, held)
        return {**before, request.broker_id: mark}

    return (yield from _change(context, changed))


def remember(context: EventContext, topics: Sequence[str]) -> Handler[str]:
    """Before the znodes of topics are deleted: remember their replicas on brokers that are written off. Returns why
    that failed, as text; empty: they are remembered."""
    cluster = context.cluster
    left: dict[int, dict[str, list[int]]] = {}
    for name in topics if cluster.forgotten else ():
        for number, partition in cluster.topics[name].partitions.items() if name in cluster.topics else ():
            for broker_id in partition.replicas:
                if is_written_off(cluster, broker_id):
                    left.setdefault(broker_id, {}).setdefault(name, []).append(number)
    if not left:
        return ""

    def changed(before: dict[int, Forgotten]) -> dict[int, Forgotten]:
        return {b: _with(mark, left.get(b, {})) for b, mark in before.items()}

    return (yield from _change(context, changed))


def _with(mark: Forgotten, left: Mapping[str, Collection[int]]) -> Forgotten:
    both = dict(mark.replicas)
    for name, numbers in left.items():
        both[name] = tuple(sorted({*both.get(name, ()), *numbers}))
    return msgspec.structs.replace(mark, replicas=both)


def _change(context: EventContext, changed: _Change) -> Handler[str]:
    absent: dict[int, Forgotten] = {}
    known = context.cluster.forgotten
    # A mark that somebody has removed meanwhile is written again: else nobody would know of the replicas.
    after, failure = yield from change_node(context, PATH, absent, lambda before: changed(known | before))
    if after is None:
        return failure
    context.cluster.forgotten = after
    return ""


def returned(context: EventContext, broker_ids: Collection[int]) -> None:
    """Have forgotten brokers that are registered delete what they may still hold. Replicas that are assigned to them
    again stay."""
    cluster = context.cluster
    for broker_id in sorted(cluster.forgotten.keys() & set(broker_ids)):
        waiting = cluster.leftovers[broker_id] = {}
        for name, numbers in cluster.forgotten[broker_id].replicas.items():
            topic = Topic(name)
            topic.deleted = True
            for number in numbers:
                if not _is_of_use(cluster, name, number, broker_id):
                    partition = Partition(topic, number, (broker_id,))
                    waiting[partition] = None
        context.push_stop([(p, broker_id) for p in waiting], delete=True)
        if not waiting:
            context.later(FollowUp.DELETIONS)


def _is_of_use(cluster: Cluster, topic: str, number: int, broker_id: int) -> bool:
    known = cluster.partition(topic, number)
    return known is not None and (
        broker_id in known.replicas or broker_id in cluster.reassignments.strays_of(known)
    )


def answered(context: EventContext, reports: Sequence[StopReport]) -> None:
    """Handle StopReplica responses. A refused deletion is tried again when the broker registers again, or by the next
    controller."""
    cluster = context.cluster
    for report in reports if cluster.leftovers else ():
        broker, waiting = cluster.brokers.get(report.broker_id), cluster.leftovers.get(report.broker_id)
        if broker is None or broker.epoch != report.broker_epoch or not waiting:
            continue
        for partition in report.deleted:
            waiting.pop(partition, None)
        for partition, error in report.failed:
            if partition in waiting:
                context.reject(
                    error, f"forgotten broker {broker.id} is back and does not delete it", partition
                )
        if not waiting:
            context.later(FollowUp.DELETIONS)


def record_due(cluster: Cluster, now_us: int) -> bool:
    """Whether ``record`` failed, and is to be tried again."""
    return cluster.record_forgotten_us is not None and cluster.record_forgotten_us <= now_us


def record(context: EventContext) -> Handler[None]:
    """Remove the mark of brokers that are back and have deleted everything."""
    cluster = context.cluster
    cluster.record_forgotten_us = None
    done = {b for b, waiting in cluster.leftovers.items() if not waiting and b in cluster.brokers}
    if not done:
        return
    failure = yield from _change(context, lambda before: {b: m for b, m in before.items() if b not in done})
    if failure:
        context.reject("CONFLICT", failure)
        cluster.record_forgotten_us = context.now_us + RETRY_FIRST_US
        return
    for broker_id in done:
        del cluster.leftovers[broker_id]
    context.log(
        [
            BrokerChange(b, "remembered", reason="it is back, and holds nothing of deleted topics")
            for b in done
        ]
    )
