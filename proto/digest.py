"""Digests of what a broker was told: one number for each topic and one for all, kept up to date change by change.

An item is the 64-bit hash of what one LeaderAndIsr or UpdateMetadata says about one partition. A digest is the sum of
its items modulo 2^64: adding and removing an item needs neither the others nor an order. Controller and brokers compute
items with these functions only, so equal digests mean equal contents (by chance once in 2^64).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from hashlib import blake2b

_MODULUS = 2**64


def hosted_item(
    topic: str,
    partition: int,
    topic_id: str,
    leader: int,
    leader_epoch: int,
    led_as: tuple[int, Collection[int]] | None,
) -> int:
    """What LeaderAndIsr told a broker about its replica. ``led_as``: partition epoch and ISR, which only the leader is
    told of every change of; None on a follower. ``topic_id``: empty where the replica has none."""
    state = "" if led_as is None else f"{led_as[0]}:{_set(tuple(led_as[1]))}"
    return _hash(f"hosted|{partition}|{leader}|{leader_epoch}|{state}|{topic_id}|{topic}")


def metadata_item(
    topic: str,
    partition: int,
    leader: int,
    leader_epoch: int,
    partition_epoch: int,
    isr: Collection[int],
    replicas: Collection[int],
) -> int:
    """What UpdateMetadata told a broker about a partition. The ISR is a set; the order of replicas counts."""
    return _hash(
        f"metadata|{partition}|{leader}|{leader_epoch}|{partition_epoch}|{_set(tuple(isr))}|{_row(tuple(replicas))}|{topic}"
    )


def topic_id_item(topic: str, topic_id: str) -> int:
    """The id that UpdateMetadata gave to a topic: one item beside those of its partitions. 0 for no id."""
    return _hash(f"id|{topic_id}|{topic}") if topic_id else 0


def offline_item(topic: str, partition: int, offline: Collection[int]) -> int:
    """The offline replicas that UpdateMetadata named; 0 for none. Apart from ``metadata_item``: they change with the
    brokers that are registered, and mostly there are none."""
    return _hash(f"offline|{partition}|{_set(tuple(offline))}|{topic}") if offline else 0


@lru_cache(maxsize=65_536)
def _row(ids: tuple[int, ...]) -> str:
    # The same few rows of ids are those of many partitions.
    return ",".join(map(str, ids))


@lru_cache(maxsize=65_536)
def _set(ids: tuple[int, ...]) -> str:
    return _row(tuple(sorted(ids)))


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def total_of(digests: Iterable[int]) -> int:
    """The digest of several digests, or of items."""
    return sum(digests) % _MODULUS


class Digest:
    """The digest of everything, and that of each topic that is not 0."""

    def __init__(self) -> None:
        self.total = 0
        self.by_topic: dict[str, int] = {}

    def replace(self, topic: str, before: int, after: int) -> None:
        """An item of a topic is now ``after``; 0 stands for no item."""
        change = after - before
        if not change:
            return
        self.total = (self.total + change) % _MODULUS
        if of_topic := (self.by_topic.get(topic, 0) + change) % _MODULUS:
            self.by_topic[topic] = of_topic
        else:
            self.by_topic.pop(topic, None)
