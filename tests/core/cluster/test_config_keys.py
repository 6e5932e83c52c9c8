"""Which values a setting may have."""

from __future__ import annotations

import pytest

from controller.core.config_keys import BROKER_KEYS, CONTROLLER_KEYS, TOPIC_KEYS

INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
NUMBERS = [
    ("min.insync.replicas", 1, INT_MAX),
    ("segment.bytes", 14, INT_MAX),
    ("index.interval.bytes", 0, INT_MAX),
    ("retention.ms", -1, LONG_MAX),
    ("local.retention.ms", -2, LONG_MAX),
    ("flush.messages", 1, LONG_MAX),
]


@pytest.mark.parametrize(("key", "low", "high"), NUMBERS)
def test_numbers_are_in_their_range(key: str, low: int, high: int) -> None:
    check = TOPIC_KEYS[key]
    for well in (low, high, low + 1, f"+{high}", f" {low} "):
        assert check(str(well)) is None, well
    for wrong in (low - 1, high + 1, "", "1.0", "0x1", "one", "1 2", "9" * 30, "9" * 5000):
        assert check(str(wrong)) == f"must be a whole number from {low} to {high}", wrong


@pytest.mark.parametrize(
    ("key", "well", "wrong"),
    [
        ("min.cleanable.dirty.ratio", ["0", "1", "0.5", "0.000"], ["1.1", "-0.1", ".5", "half", ""]),
        ("preallocate", ["true", "False", " TRUE "], ["yes", "1", ""]),
        ("compression.type", ["zstd", " gzip "], ["ZSTD", "zip", "", "zstd,gzip"]),
        ("cleanup.policy", ["delete", "compact", "compact, delete"], ["keep", "delete,keep", ""]),
        (
            "leader.replication.throttled.replicas",
            ["", "*", "0:1", "0:1, 12:3"],
            ["0", "0:", "0:1,", "a:1", "0:1;1:2", "**"],
        ),
        ("message.format.version", ["", "3.0-IV1"], []),
    ],
)
def test_other_values_are_of_their_kind(key: str, well: list[str], wrong: list[str]) -> None:
    check = TOPIC_KEYS[key]
    assert [value for value in well if check(value) is not None] == []
    assert [value for value in wrong if check(value) is None] == []


def test_settings_of_brokers_and_controllers_have_their_own_ranges() -> None:
    assert CONTROLLER_KEYS["leader_imbalance_per_broker_percentage"]("100") is None
    assert CONTROLLER_KEYS["leader_imbalance_per_broker_percentage"]("101") is not None
    assert BROKER_KEYS["num.io.threads"]("1") is None
    assert BROKER_KEYS["num.io.threads"]("0") is not None
