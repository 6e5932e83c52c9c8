"""The range assignor, and the messages between members and leader that pass through the coordinator. Pure.

Both messages are JSON: a member's metadata ``{"version":1,"topics":[...]}``, its assignment
``{"version":1,"partitions":{"topic":[0,1]}}``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

PROTOCOL_TYPE = "consumer"
RANGE = "range"

Key = tuple[str, int]


class AssignmentError(ValueError):
    """Bytes from another member that do not decode as a subscription or an assignment."""


class _Subscription(msgspec.Struct):
    topics: list[str]
    version: int = 1


class _Assignment(msgspec.Struct):
    partitions: dict[str, list[Annotated[int, Meta(ge=0)]]]
    version: int = 1


_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def _message(error: Exception) -> str:
    return "is nested too deeply" if isinstance(error, RecursionError) else str(error)


def encode_subscription(topics: Sequence[str]) -> bytes:
    return msgspec.json.encode(_Subscription(sorted(topics)))


def decode_subscription(data: bytes) -> list[str]:
    """Raises AssignmentError."""
    try:
        return msgspec.json.decode(data, type=_Subscription).topics
    except _UNREADABLE as error:
        raise AssignmentError(f"subscription {data[:80]!r}: {_message(error)}") from error


def encode_assignment(partitions: Sequence[Key]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return msgspec.json.encode(_Assignment(by_topic))


def decode_assignment(data: bytes) -> list[Key]:
    """Empty bytes: no partition is assigned. Raises AssignmentError."""
    if not data:
        return []
    try:
        decoded = msgspec.json.decode(data, type=_Assignment)
    except _UNREADABLE as error:
        raise AssignmentError(f"assignment {data[:80]!r}: {_message(error)}") from error
    return sorted((topic, number) for topic, numbers in decoded.partitions.items() for number in numbers)


def assign_ranges(
    subscriptions: Mapping[str, Sequence[str]], partitions: Mapping[str, Sequence[int]]
) -> dict[str, list[Key]]:
    """Assign each topic's partitions in contiguous ranges to its subscribers by member id; the first ones get one more.

    ``subscriptions``: member id to topics. ``partitions``: topic to partition numbers; a topic that is missing there is
    not assigned. The result has an entry for every member.
    """
    assigned: dict[str, list[Key]] = {member: [] for member in subscriptions}
    for topic, numbers in sorted(partitions.items()):
        subscribers = sorted(member for member, topics in subscriptions.items() if topic in topics)
        if not subscribers:
            continue
        ordered = sorted(numbers)
        size, more = divmod(len(ordered), len(subscribers))
        start = 0
        for index, member in enumerate(subscribers):
            end = start + size + (index < more)
            assigned[member] += [(topic, number) for number in ordered[start:end]]
            start = end
    return assigned
