"""Automatic return of leadership to preferred replicas (reference, section 8.3, auto rebalance).

A timer runs it. A broker that is missing too large a share of its preferred leaderships gets them back in one batch,
or, where a rate is set, in one batch per second: a returning broker then does not get thousands of leaderships at once.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from controller.core.cluster import flapping
from controller.core.cluster.maintenance import keep_drained
from controller.core.commits import refresh
from controller.core.context import SLICE_MAX, EventContext, Handler, Pause
from controller.core.model import Partition
from controller.core.partitions import leader_election, partition_state_machine
from controller.core.partitions.leader_election import Ballot, ElectionKind, Strategy
from controller.core.records import BrokerChange

AUTOMATIC = ElectionKind(Strategy.PREFERRED, trigger="preferred_automatic")


class Imbalance(NamedTuple):
    """Leader imbalance of one broker. ``preferred``: number of partitions with it as preferred replica; ``missing``:
    number of them led by another; ``electable``: missing ones that it could lead now."""

    preferred: int
    missing: int
    electable: list[Partition]

    def exceeds(self, percentage: int) -> bool:
        """Whether the missing share is strictly greater than ``percentage``."""
        return self.missing * 100 > percentage * self.preferred


def imbalances(context: EventContext) -> Handler[dict[int, Imbalance]]:
    """The imbalance by broker id; partitions under deletion do not count."""
    cluster = context.cluster
    live = cluster.live_ids()
    found: dict[int, tuple[int, int, list[Partition]]] = {}
    for count, partition in enumerate(cluster.partitions(), 1):
        if count % SLICE_MAX == 0:
            yield Pause.YIELD
        if cluster.is_deleting(partition):
            continue
        preferred = partition.replicas[0]
        total, missing, electable = found.get(preferred) or (0, 0, [])
        leadership = partition.leadership
        if leadership is not None and leadership.leader != preferred:
            missing += 1
            online = cluster.online_set(partition, live)
            ballot = Ballot(
                partition.replicas,
                leadership,
                online,
                drained=cluster.maintenance.drained,
                without_data=cluster.without_data(leadership),
            )
            if leader_election.elect(Strategy.PREFERRED, ballot) is not None:
                electable.append(partition)
        found[preferred] = (total + 1, missing, electable)
    return {broker_id: Imbalance(*found[broker_id]) for broker_id in sorted(found)}


def rebalance(context: EventContext) -> Handler[None]:
    """Run once. ``cluster.rebalancing`` then has the brokers with leaderships left for the next run."""
    cluster, settings = context.cluster, context.settings
    yield from _retry_unreadable(context)
    if cluster.maintenance.paused is None:
        yield from keep_drained(context)
    flapping.release(context)
    if not settings.auto_leader_rebalance_enable or cluster.maintenance.suspension is not None:
        cluster.rebalancing.clear()
        return
    held_back = cluster.held_back()
    left = settings.leader_rebalance_leaders_per_second or None
    by_broker = yield from imbalances(context)
    for broker_id, found in by_broker.items():
        started = broker_id in cluster.rebalancing
        if broker_id in held_back or not (
            started or found.exceeds(settings.leader_imbalance_per_broker_percentage)
        ):
            cluster.rebalancing.discard(broker_id)
            continue
        batch = list(islice(found.electable, left))
        if len(batch) < len(found.electable):
            cluster.rebalancing.add(broker_id)
        else:
            cluster.rebalancing.discard(broker_id)
        if not batch:
            continue
        _record(context, broker_id, found, len(batch), started)
        failed = yield from partition_state_machine.to_online(context, batch, AUTOMATIC)
        if left is not None:
            left -= len(batch) - len(failed)


def _retry_unreadable(context: EventContext) -> Handler[None]:
    """Read unreadable partition states again: they have no watch, so no event reports a repair."""
    cluster = context.cluster
    unreadable: dict[str, Partition] = {}
    for path in cluster.problems:
        match path.split("/"):
            case ["", "brokers", "topics", topic, "partitions", number, "state"]:
                if (partition := cluster.partition(topic, int(number))) is not None:
                    unreadable[path] = partition
    if unreadable:
        yield from refresh(context, list(unreadable.values()))
        if not unreadable.keys() <= cluster.problems.keys():
            yield from partition_state_machine.bring_online(context)


def _record(context: EventContext, broker_id: int, found: Imbalance, moving: int, started: bool) -> None:
    limit = context.settings.leader_imbalance_per_broker_percentage
    why = "goes on" if started else f"more than {limit} percent"
    reason = f"leads {found.preferred - found.missing} of {found.preferred} partitions that prefer it: {why}"
    context.log([BrokerChange(broker_id, "rebalancing", "imbalanced", moving, reason)])
