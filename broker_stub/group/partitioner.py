"""The partition of ``__consumer_offsets`` that stores a group (reference, section 10.3). Pure."""

from __future__ import annotations

OFFSETS_TOPIC = "__consumer_offsets"


def java_hash(text: str) -> int:
    """Java's ``String.hashCode``, over UTF-16 code units: -2**31 to 2**31 - 1."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(encoded), 2):
        value = (31 * value + (encoded[position] << 8 | encoded[position + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(group_id: str, partition_count: int) -> int:
    """The group's partition, 0 to ``partition_count`` - 1. The sign bit is masked, as in Kafka's ``Utils.abs``."""
    return (java_hash(group_id) & 0x7FFFFFFF) % partition_count
