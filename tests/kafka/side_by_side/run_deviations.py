"""In what znodes of a cluster that we lead differ from those of one that Kafka's own controller leads, and why.

Each row of znodes must hold somewhere in the scenario, unless it is not certain; nothing may differ that no row names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

#: The topic whose replicas the controllers place themselves.
PLACED = "placed"
_OURS = ("original_replicas", "queued_replicas", "stray_replicas")


@dataclass(frozen=True)
class Deviation:
    """``applies``: to a znode's path and its content under Kafka's controller and under ours, None: absent.
    ``certain``: it is seen in every run."""

    name: str
    reason: str
    applies: Callable[[str, str | None, str | None], bool]
    certain: bool = True


def _parsed(data: str | None) -> Any:
    """The content; names that ``znodes.snapshot`` put in place of numbers are no JSON."""
    return json.loads(re.sub(r":(ID|TIME|E\d+)\b", r':"\1"', data)) if data else None


def _without_ours(data: str) -> str:
    for name in _OURS:
        data = re.sub(rf',"{name}":{{[^}}]*}}', "", data)
    return data


ZNODES = (
    Deviation(
        "placement",
        "Where replicas of a topic without an assignment go begins at random, with Kafka's controller too.",
        lambda path, kafka, ours: path.startswith(f"/brokers/topics/{PLACED}") and None not in (kafka, ours),
    ),
    Deviation(
        "configuration's order",
        "Kafka writes a configuration in the order of a hash table, we in the order of the request.",
        lambda path, kafka, ours: path.startswith("/config/topics/") and _parsed(kafka) == _parsed(ours),
        # librdkafka's order is not always the same.
        certain=False,
    ),
    Deviation(
        "what a reassignment leaves to do",
        "We keep what a cancelled reassignment returns to, and replicas that brokers may still hold; Kafka's "
        "controller forgets both when it fails over (docs/adr/0008). It ignores these fields, and drops them.",
        lambda path, kafka, ours: (
            path.startswith("/brokers/topics/") and None not in (kafka, ours) and _without_ours(ours or "") == kafka
        ),
    ),
)  # fmt: skip


#: Warnings of brokers that a run has by chance, under either controller, and why; no others may be new under ours.
CHANCE: Mapping[str, str] = {
    "Received UNKNOWN_TOPIC_(OR_PARTITION|ID) from the leader": (
        "A follower heard of a new or deleted partition before its leader, or after it."
    ),
    "(marked as failed|Error in response for fetch request)": "A follower fetches from a broker that has just ended.",
}


def unexplained(kafka: Mapping[str, str], ours: Mapping[str, str], used: set[str]) -> list[str]:
    """A line for each difference that no row explains. ``used``: gets the names of rows that explain one."""
    found = []
    for path in sorted(kafka.keys() | ours.keys()):
        theirs, own = kafka.get(path), ours.get(path)
        if theirs == own:
            continue
        row = next((row for row in ZNODES if row.applies(path, theirs, own)), None)
        if row is None:
            found.append(f"{path}: {theirs} under Kafka's controller, {own} under ours")
        else:
            used.add(row.name)
    return found
