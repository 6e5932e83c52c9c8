"""The settings of the group coordinator, by Kafka's names and with its defaults (3.9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from proto.settings import integer

_INT_MAX = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    """The group coordinator and its topic, ``__consumer_offsets``. ``_ms``: milliseconds; ``_bytes`` are of UTF-8."""

    # fmt: off
    offsets_topic_num_partitions: Annotated[int, integer(1, _INT_MAX,
        "Partitions of __consumer_offsets; not to be changed once it exists.")] = 50
    offsets_topic_replication_factor: Annotated[int, integer(1, 2**15 - 1, "Replicas of __consumer_offsets.")] = 3
    offsets_commit_timeout_ms: Annotated[int, integer(1, _INT_MAX,
        "How long a commit waits for the replicas of __consumer_offsets, ms.")] = 5_000
    offset_metadata_max_bytes: Annotated[int, integer(0, _INT_MAX,
        "Largest metadata of a committed offset, bytes.")] = 4_096
    group_min_session_timeout_ms: Annotated[int, integer(1, _INT_MAX,
        "Shortest session timeout of a member, ms; <= group_max_session_timeout_ms.")] = 6_000
    group_max_session_timeout_ms: Annotated[int, integer(1, _INT_MAX,
        "Longest session timeout of a member, ms.")] = 1_800_000
    group_initial_rebalance_delay_ms: Annotated[int, integer(0, _INT_MAX,
        "How long an empty group waits for more members before it is balanced, ms.")] = 3_000
    # fmt: on
