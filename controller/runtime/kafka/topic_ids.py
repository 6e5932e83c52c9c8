"""Topic ids: 16 bytes on the wire; 22 characters, as Kafka prints them, in znodes and in the cluster state."""

from __future__ import annotations

import base64
from functools import lru_cache

from proto.kafka.primitives import ZERO_UUID


@lru_cache(10_000)
def uuid_bytes(topic_id: str) -> bytes:
    """The bytes of a topic id; zeros for an empty or malformed one."""
    try:
        data = base64.urlsafe_b64decode(topic_id + "==")
    except ValueError:
        return ZERO_UUID
    return data if len(data) == len(ZERO_UUID) else ZERO_UUID


def uuid_text(topic_id: bytes) -> str:
    """A topic id as Kafka prints it; empty for zeros."""
    return "" if topic_id == ZERO_UUID else base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
