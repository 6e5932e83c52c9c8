"""The schema of the state-change log, shared by its writers and readers (docs/state-change-log.md): fields, kinds of
records, phases of a failover. Imports no Spark."""

from __future__ import annotations

from dataclasses import dataclass

#: The version that writers write and the newest that readers accept.
SCHEMA_VERSION = 1

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
#: More partitions than any cluster has; sums over ten billion lines still fit into 64 bits.
COUNT_MAX = 10**9
#: Three years, microseconds.
DURATION_US_MAX = 10**14
#: Clocks outside these years are wrong; one such line would stretch every time axis over centuries.
TS_MIN, TS_END = "2000-01-01", "2100-01-01"

#: The field of lines that are traced; the report does not read it.
TRACE_ID = "trace_id"

#: Characters kept of a string field; of what our nodes write only the reason of a request may be longer.
TEXT_CHARS_MAX = {
    "role": 16,
    "cause": 100,
    "kind": 40,
    "topic": 260,
    "from": 200,
    "to": 200,
    "reason": 500,
    "error": 100,
    "principal": 300,
    "address": 64,
    "subject": 1000,
}
#: Characters kept of an unreadable line.
SAMPLE_CHARS_MAX = 200


@dataclass(frozen=True)
class IntField:
    """An integer field and its range. ``required``: every record has it."""

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
    IntField("silent_us", 0, DURATION_US_MAX),
)
STRING_FIELDS = ("ts", *TEXT_CHARS_MAX)
#: Fields that are lists of integers.
LIST_FIELDS = ("isr", "replicas")
STRINGS_REQUIRED = ("ts", "role", "cause", "kind")

#: Every kind of record, and the fields that it requires beyond the envelope.
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
    "audit": ("topic", "partition", "to"),
    "reject": ("error",),
    "request": ("to", "principal"),
    "unchanged": (),
    "log": ("to",),
}

#: Kinds of record that tell of notified brokers, not of changes.
QUIET = frozenset({"push", "ack", "unchanged"})

#: Pattern of `from` and `to` in a record of kind `leader`.
BROKER_ID = r"^-?\d{1,9}$"

#: Phases of a failover, in order; the record ``ready`` comes last and has the total duration.
PHASES = (
    "election",
    "feature",
    "notifications",
    "brokers",
    "topics",
    "partitions",
    "deletions",
    "partition_startup",
    "replica_startup",
    "reassignments",
    "deletions_resumed",
    "preferred_election",
)
READY = "ready"

ONLINE, NEW, GONE = "OnlinePartition", "NewPartition", "NonExistentPartition"
