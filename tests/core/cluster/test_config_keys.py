"""Which values a setting may have."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from controller.core.config_keys import BROKER_KEYS, CONTROLLER_KEYS, TOPIC_KEYS, Check
from tests.support.paths import DOCS

INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
#: The ranges that Kafka's documentation of topic and broker configurations gives, by lowest and highest value.
OF_TOPICS = {
    (0, INT_MAX): "index.interval.bytes max.message.bytes",
    (1, INT_MAX): "min.insync.replicas",
    (4, INT_MAX): "segment.index.bytes",
    (14, INT_MAX): "segment.bytes",
    (0, LONG_MAX): "delete.retention.ms file.delete.delay.ms flush.ms message.timestamp.after.max.ms"
    " message.timestamp.before.max.ms message.timestamp.difference.max.ms min.compaction.lag.ms segment.jitter.ms",
    (1, LONG_MAX): "flush.messages max.compaction.lag.ms segment.ms",
    (-1, LONG_MAX): "retention.bytes retention.ms",
    (-2, LONG_MAX): "local.retention.bytes local.retention.ms",
}
OF_BROKERS = {
    (0, INT_MAX): "log.cleaner.threads max.connections message.max.bytes",
    (1, INT_MAX): "background.threads min.insync.replicas num.io.threads num.network.threads"
    " num.recovery.threads.per.data.dir num.replica.fetchers",
    (14, INT_MAX): "log.segment.bytes",
    (0, LONG_MAX): "follower.replication.throttled.rate leader.replication.throttled.rate"
    " replica.alter.log.dirs.io.max.bytes.per.second",
    (1, LONG_MAX): "log.flush.interval.messages",
    (-1, LONG_MAX): "log.retention.bytes log.retention.ms",
}
#: Kind, and the keys that have it, of topics and of brokers.
BOOLEANS = "message.downconversion.enable preallocate remote.storage.enable unclean.leader.election.enable"
OTHERS = {
    "topics": f"{BOOLEANS} cleanup.policy compression.type follower.replication.throttled.replicas"
    " leader.replication.throttled.replicas message.format.version message.timestamp.type min.cleanable.dirty.ratio",
    "brokers": "compression.type log.cleanup.policy unclean.leader.election.enable",
}
NUMBERS = [
    (checks, key, *ends)
    for checks, ranges in ((TOPIC_KEYS, OF_TOPICS), (BROKER_KEYS, OF_BROKERS))
    for ends, keys in ranges.items()
    for key in keys.split()
]


@pytest.mark.parametrize(("checks", "key", "low", "high"), NUMBERS)
def test_numbers_are_in_their_range(checks: Mapping[str, Check], key: str, low: int, high: int) -> None:
    check = checks[key]
    for well in (low, high, low + 1, f"+{high}", f" {low} "):
        assert check(str(well)) is None, well
    for wrong in (low - 1, high + 1, "", "1.0", "0x1", "one", "1 2", "9" * 30, "9" * 5000):
        assert check(str(wrong)) == f"must be a whole number from {low} to {high}", wrong


@pytest.mark.parametrize(
    ("known", "ranges", "others"), [(TOPIC_KEYS, OF_TOPICS, "topics"), (BROKER_KEYS, OF_BROKERS, "brokers")]
)
def test_every_key_has_its_check(known: Mapping[str, Check], ranges: dict[object, str], others: str) -> None:
    assert set(known) == {*" ".join(ranges.values()).split(), *OTHERS[others].split()}


def test_what_an_operator_may_change_while_controllers_run_is_documented() -> None:
    """The ranges are compared with those of the settings by tests/core/cluster/test_dynamic_settings.py."""
    section = (DOCS / "operations.md").read_text().split("\n## Dynamic settings\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.+?) \|", section, re.MULTILINE)
    assert sorted(CONTROLLER_KEYS) == sorted(name for row in rows for name in re.findall(r"`(\w+)`", row))


@pytest.mark.parametrize(
    ("checks", "key"),
    [(TOPIC_KEYS, key) for key in BOOLEANS.split()]
    + [
        (BROKER_KEYS, "unclean.leader.election.enable"),
        (CONTROLLER_KEYS, "auto_leader_rebalance_enable"),
        (CONTROLLER_KEYS, "delete_topic_enable"),
    ],
)
def test_some_are_true_or_false(checks: Mapping[str, Check], key: str) -> None:
    assert [checks[key](value) is None for value in ("true", "FALSE", "1", "")] == [True, True, False, False]


@pytest.mark.parametrize(
    ("key", "well", "wrong"),
    [
        ("min.cleanable.dirty.ratio", ["0", "1", "0.5", "0.000"], ["1.1", "-0.1", ".5", "half", ""]),
        ("preallocate", ["true", "False", " TRUE "], ["yes", "1", ""]),
        (
            "compression.type",
            ["uncompressed", "zstd", "lz4", "snappy", "producer", " gzip "],
            ["ZSTD", "zip", "", "none", "zstd,gzip"],
        ),
        ("cleanup.policy", ["delete", "compact", "compact, delete"], ["keep", "delete,keep", ""]),
        (
            "leader.replication.throttled.replicas",
            ["", "*", "0:1", "0:1, 12:3"],
            ["0", "0:", "0:1,", "a:1", "0:1;1:2", "**"],
        ),
        (
            "follower.replication.throttled.replicas",
            ["", "*", "0:1"],
            ["0", "none"],
        ),
        ("message.timestamp.type", ["CreateTime", "LogAppendTime"], ["createtime", "NoTimestampType", ""]),
        ("message.format.version", ["", "3.0-IV1"], []),
    ],
)
def test_other_values_are_of_their_kind(key: str, well: list[str], wrong: list[str]) -> None:
    check = TOPIC_KEYS[key]
    assert [value for value in well if check(value) is not None] == []
    assert [value for value in wrong if check(value) is None] == []


def test_lists_of_brokers_are_those_of_topics() -> None:
    for of_brokers, of_topics in (("compression.type",) * 2, ("log.cleanup.policy", "cleanup.policy")):
        for value in ("lz4", "delete", "compact", "keep", ""):
            assert BROKER_KEYS[of_brokers](value) == TOPIC_KEYS[of_topics](value)
