"""One partition as pctl shows it, with the reason in words where it is not well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from controller.runtime.zookeeper.cluster_reader import PartitionInfo

PARTITION_COLUMNS = (
    "topic",
    "partition",
    "leader",
    "leader_epoch",
    "replicas",
    "isr",
    "partition_epoch",
    "controller_epoch",
    "recovery",
    "why",
)


def why(partition: PartitionInfo, alive: Sequence[int]) -> str:
    """Why a partition is unavailable or under-replicated, in words."""
    state = partition.state
    dead = [b for b in partition.replicas if b not in alive]
    if state is None:
        return f"no state yet: replicas {dead} are dead" if dead else "no state yet"
    if state.leader < 0:
        return f"no member of the ISR {list(state.isr)} is alive"
    if state.leader not in alive:
        return f"its leader {state.leader} is gone, a new one is not elected yet"
    lagging = [b for b in partition.replicas if b not in state.isr]
    if lagging:
        return f"out of sync: {', '.join(f'{b} (dead)' if b in dead else str(b) for b in lagging)}"
    return ""


def partition_row(partition: PartitionInfo, alive: Sequence[int]) -> dict[str, Any]:
    state = partition.state
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "leader": state.leader if state else None,
        "leader_epoch": state.leader_epoch if state else None,
        "replicas": list(partition.replicas),
        "isr": list(state.isr) if state else None,
        "partition_epoch": state.partition_epoch if state else None,
        "controller_epoch": state.controller_epoch if state else None,
        "recovery": ("RECOVERING" if state.recovery else "RECOVERED") if state else None,
        "why": why(partition, alive),
    }
