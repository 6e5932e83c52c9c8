"""The settings of the group coordinator, with Kafka's names. `broker_stub.settings` validates them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GroupSettings:
    """Names ending in ``_ms`` are milliseconds, in ``_bytes`` bytes. Defaults are Kafka's (3.9)."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    #: How long a group's first rebalance waits for more members.
    group_initial_rebalance_delay_ms: int = 3_000
    #: Longest metadata of a committed offset, in UTF-8.
    offset_metadata_max_bytes: int = 4_096
    #: How long a write to ``__consumer_offsets`` may take.
    offsets_commit_timeout_ms: int = 5_000
    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 3
