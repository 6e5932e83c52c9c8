"""The state-change log's format, once for its writers and all its readers (docs/state-change-log.md): fields, kinds of
records, phases of a failover. Imports no Spark."""

from __future__ import annotations

from dataclasses import dataclass

#: The version that is written, and the newest that readers understand.
SCHEMA_VERSION = 1

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
#: A billion partitions in one request is more than any cluster has: sums of ten billion lines still fit.
COUNT_MAX = 10**9
#: Three years, microseconds.
DURATION_US_MAX = 10**14
#: Clocks outside these years are broken; one such line would stretch every time axis over centuries.
TS_MIN, TS_END = "2000-01-01", "2100-01-01"

#: Characters kept of a string field; what is longer was never written by a node of ours.
TEXT_CHARS_MAX = {
    "role": 16,
    "cause": 100,
    "kind": 40,
    "topic": 260,
    "from": 200,
    "to": 200,
    "reason": 500,
    "error": 100,
}
#: Characters kept of an unreadable line.
SAMPLE_CHARS_MAX = 200


@dataclass(frozen=True)
class IntField:
    """An integer of the log and its range; ``required`` in every record."""

    name: str
    low: int
    high: int
    required: bool = False


INT_FIELDS = (
    IntField("schema", 1, INT32_MAX, required=True),
    IntField("node", 0, INT32_MAX, required=True),
    IntField("controller_epoch", -1, INT32_MAX, required=True),
    IntField("event_id", 0, INT64_MAX, required=True),
    IntField("partition", 0, INT32_MAX),
    IntField("replica", -1, INT32_MAX),
    IntField("leader", -1, INT32_MAX),
    IntField("leader_epoch", -1, INT32_MAX),
    IntField("partition_epoch", -1, INT32_MAX),
    IntField("count", 0, COUNT_MAX),
    IntField("duration_us", 0, DURATION_US_MAX),
)
STRING_FIELDS = ("ts", *TEXT_CHARS_MAX)
#: The one field that is a list of integers.
LIST_FIELD = "isr"
STRINGS_REQUIRED = ("ts", "role", "cause", "kind")

#: Every kind of record, and what it needs beyond the envelope to mean anything.
KINDS: dict[str, tuple[str, ...]] = {
    "controller": ("to",),
    "failover": ("to",),
    "partition": ("topic", "partition", "to"),
    "replica": ("topic", "partition", "to"),
    "leader": ("topic", "partition", "from", "to"),
    "isr": ("topic", "partition"),
    "push": ("replica", "to"),
    "ack": ("replica", "to"),
    "broker": ("to",),
    "topic": (),
    "reassignment": (),
    "config": (),
    "feature": (),
    "reject": ("error",),
    "unchanged": (),
    "log": ("to",),
}

#: What `from` and `to` of a change of leader look like.
BROKER_ID = r"^-?\d{1,9}$"

#: Phases of a failover, in order; ``ready`` comes last and carries the whole duration.
PHASES = (
    "election",
    "feature",
    "notifications",
    "brokers",
    "topics",
    "partitions",
    "deletions",
    "replica_startup",
    "partition_startup",
    "reassignments",
    "deletions_resumed",
    "preferred_election",
)
READY = "ready"

ONLINE, NEW, GONE = "OnlinePartition", "NewPartition", "NonExistentPartition"
