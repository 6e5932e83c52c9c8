"""Explains the state of a broker: what it leads and follows, what it lacks of what it should, and what would change it.

As in ``partitions``: pure functions; the explanation is data with ``words``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from controller.core.brokers.stop_approvals import standing
from controller.core.explain.partitions import ballot_of
from controller.core.model import NO_LEADER, Cluster, Partition
from controller.core.names import counted, ids_shown
from controller.core.partitions.leader_election import Strategy, trace
from controller.core.znode_paths import broker_path


class Deficit(Enum):
    """What a broker lacks; the value is said of several partitions."""

    NEVER_LED = "were never led"
    DISK = "are on a disk that failed"
    OUT_OF_SYNC = "have its replica out of sync"
    NOT_LEADING = "prefer it but are not led by it"


class Lack(NamedTuple):
    """A deficit in one partition, and what is said of it alone."""

    deficit: Deficit
    topic: str
    text: str


def _grouped(lacks: Collection[Lack]) -> Iterator[str]:
    """A line for each deficit and topic; with several partitions, their number."""
    groups: dict[tuple[Deficit, str], list[str]] = {}
    for lack in lacks:
        groups.setdefault((lack.deficit, lack.topic), []).append(lack.text)
    for (deficit, topic), texts in groups.items():
        yield texts[0] if len(texts) == 1 else f"{topic}: {len(texts)} partitions {deficit.value}"


@dataclass(frozen=True)
class BrokerExplanation:
    """``preferred``: number of partitions with it as preferred replica; ``leads_preferred``: those of them it leads.
    ``lacks``: its deficits. ``notes``: drain and stop approval. ``changes``: what would change its state."""

    broker: int
    summary: str
    epoch: int
    leads: int
    preferred: int
    leads_preferred: int
    replicas: int
    in_sync: int
    lacks: tuple[Lack, ...]
    changes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def words(self) -> list[str]:
        lines = [f"broker {self.broker}: {self.summary}"]
        lines.append(
            f"leads {counted(self.leads, 'partition')}, {self.leads_preferred} of the {self.preferred} that prefer it; "
            f"in sync for {self.in_sync} of {counted(self.replicas, 'replica')}"
        )
        lines.extend(self.notes)
        lines.extend(f"lacks: {text}" for text in _grouped(self.lacks))
        lines.extend(f"would change it: {text}" for text in self.changes)
        return lines


def explain_broker(
    cluster: Cluster, broker_id: int, mine: Sequence[Partition] | None = None
) -> BrokerExplanation:
    """Explain a broker, registered or not. ``mine``: the partitions of which it has a replica, if somebody looked."""
    if mine is None:
        mine = [p for p in cluster.partitions() if broker_id in p.replicas]
    led = {p for p in mine if p.leadership is not None and p.leadership.leader == broker_id}
    preferred = [p for p in mine if p.replicas[0] == broker_id]
    in_sync = [p for p in mine if p.leadership is not None and broker_id in p.leadership.isr]
    broker = cluster.brokers.get(broker_id)
    if broker is None:
        problem = cluster.problems.get(broker_path(broker_id))
        summary = f"its registration cannot be used: {problem}" if problem else "it is not registered"
        if not problem and not mine:
            summary += ", and no partition is assigned to it"
    else:
        summary = "it is shutting down" if broker_id in cluster.shutting_down else "it is online"
        summary += f", broker epoch {broker.epoch}" + (f", rack {broker.rack}" if broker.rack else "")
    return BrokerExplanation(
        broker_id,
        summary,
        broker.epoch if broker else -1,
        len(led),
        len(preferred),
        sum(p in led for p in preferred),
        len(mine),
        len(in_sync),
        tuple(_lacks(cluster, broker_id, mine, led)),
        tuple(_broker_changes(cluster, broker_id, mine, led)),
        tuple(_broker_notes(cluster, broker_id)),
    )


def _broker_notes(cluster: Cluster, broker_id: int) -> Iterator[str]:
    if (mark := cluster.maintenance.drained.get(broker_id)) is not None:
        yield f"kept free of leaderships by {mark.author}: {mark.reason}"
    if (flapping := cluster.flapping.get(broker_id)) is not None and flapping.losses > 1:
        yield str(flapping)
    approval = standing(cluster.brokers, cluster.approvals).get(broker_id)
    if approval is not None:
        against = f", though {'; '.join(approval.overridden)}" if approval.overridden else ""
        notified = f"approved to stop for {approval.author}: {approval.reason}{against}"
        yield f"{notified}; later stop checks count it as offline"


def _broker_changes(
    cluster: Cluster, broker_id: int, mine: Collection[Partition], led: Collection[Partition]
) -> Iterator[str]:
    """What would change a broker's state, one line for each kind of deficit."""
    path = broker_path(broker_id)
    if broker_id not in cluster.brokers:
        yield (
            f"{path} is repaired or written again"
            if path in cluster.problems
            else f"it starts and registers in {path}"
        )
        return
    if broker_id in cluster.shutting_down:
        yield f"it leaves or restarts; or its shutdown is taken back (pctl maintenance cancel-shutdown {broker_id})"
    if broker_id in cluster.maintenance.drained:
        yield f"the drain is ended (pctl maintenance undrain {broker_id}): then leadership may return to it"
    if lost := cluster.offline_dirs.get(broker_id):
        yield f"its failed disks, with {counted(len(lost), 'replica')}, are repaired or replaced, and it is restarted"
    states = [p.leadership for p in mine if p.leadership is not None]
    lagging = sum(broker_id not in s.isr for s in states)
    if lagging == 1:
        yield "1 replica catches up with its leader, which then proposes it for the ISR"
    elif lagging:
        yield f"{lagging} replicas catch up with their leaders, which then propose them for the ISR"
    wanted = [p for p in mine if p.replicas[0] == broker_id and p not in led]
    if back := sum(_preferred_leads(cluster, p) for p in wanted):
        more = "1 more leadership" if back == 1 else f"{back} more leaderships"
        yield f"a preferred election gives it {more} (pctl elect --all)"


def _preferred_leads(cluster: Cluster, partition: Partition) -> bool:
    """Whether a preferred election finds a leader."""
    state = partition.leadership
    return state is not None and any(
        tried.leader != NO_LEADER for tried in trace(Strategy.PREFERRED, ballot_of(cluster, partition, state))
    )


def _lacks(
    cluster: Cluster, broker_id: int, mine: Collection[Partition], led: Collection[Partition]
) -> Iterator[Lack]:
    for partition in mine:
        state, topic = partition.leadership, partition.topic.name
        if state is None:
            yield Lack(Deficit.NEVER_LED, topic, f"{partition.name} was never led")
            continue
        if partition in cluster.offline_dirs.get(broker_id, ()):
            yield Lack(Deficit.DISK, topic, f"{partition.name} is on a disk that failed")
        elif broker_id not in state.isr:
            added = " (it is being added)" if broker_id in partition.adding else ""
            text = f"{partition.name}: its replica is not in the ISR {ids_shown(state.isr)}{added}"
            yield Lack(Deficit.OUT_OF_SYNC, topic, text)
        elif partition.replicas[0] == broker_id and partition not in led:
            (preferred,) = trace(Strategy.PREFERRED, ballot_of(cluster, partition, state))
            found = next((c for c in preferred.candidates if c.unmet is not None), None)
            who = f"led by {state.leader}" if state.leader != NO_LEADER else "without a leader"
            why = str(found) if found else "a preferred election would give it back"
            text = f"{partition.name} prefers it but is {who}: {why}"
            yield Lack(Deficit.NOT_LEADING, topic, text)
