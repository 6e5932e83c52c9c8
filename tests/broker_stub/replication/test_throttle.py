"""The replication throttle: what is counted, who is held back, by what configuration. Times are told."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_stub.replication import throttle
from broker_stub.replication.throttle import (
    ALL_PARTITIONS,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    NO_PARTITIONS,
    ByteRate,
    ConfigError,
    ReplicationQuota,
    throttled,
)

# --- the rate ----------------------------------------------------------------------------------------------


def test_the_rate_is_over_the_time_since_the_oldest_sample_at_least_one_second() -> None:
    rate = ByteRate()
    assert rate.per_second(0) == 0.0
    rate.record(1000, 0)
    assert rate.per_second(0) == 1000.0
    assert rate.per_second(999) == 1000.0
    assert rate.per_second(4000) == 250.0
    rate.record(3000, 4000)
    assert rate.per_second(8000) == 500.0


def test_a_sample_counts_for_eleven_seconds_from_its_start() -> None:
    rate = ByteRate()
    rate.record(500, 0)
    rate.record(500, 999)
    rate.record(300, 1000)
    assert rate.per_second(10_999) == pytest.approx(1300 / 10.999)
    assert rate.per_second(11_000) == pytest.approx(300 / 10)
    assert rate.per_second(12_000) == 0.0


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 10**9)), max_size=80))
def test_it_agrees_with_a_list_of_all_that_was_recorded(steps: list[tuple[int, int]]) -> None:
    rate, now = ByteRate(), 0
    every: list[tuple[int, int]] = []
    for pause, size in steps:
        now += pause
        rate.record(size, now)
        if not every or now - every[-1][0] >= 1000:
            every.append((now, size))
        else:
            every[-1] = (every[-1][0], every[-1][1] + size)
        alive = [one for one in every if now - one[0] < 11_000]
        seconds = max(now - alive[0][0], 1000) / 1000
        assert rate.per_second(now) == pytest.approx(sum(s for _, s in alive) / seconds)


# --- the quota ---------------------------------------------------------------------------------------------


class Copier:
    """Copies a chunk at each tick, unless the quota is exceeded."""

    def __init__(self, limit: int | None, replicas: Container[int] = ALL_PARTITIONS) -> None:
        self.now = self.total = 0
        self.quota = ReplicationQuota(lambda _topic: replicas, lambda: self.now)
        self.quota.rate_max = limit

    def run(self, ms: int, chunk: int, tick_ms: int) -> None:
        for _ in range(ms // tick_ms):
            if not (self.quota.is_exceeded() and self.quota.is_throttled(("foo", 0))):
                self.quota.record(("foo", 0), chunk)
                self.total += chunk
            self.now += tick_ms


@given(limit=st.integers(0, 10**6), chunk=st.integers(1, 3 * 10**6), tick_ms=st.integers(50, 2000))
def test_who_copies_all_he_may_copies_at_the_limit(limit: int, chunk: int, tick_ms: int) -> None:
    """Not above it but for one chunk, and a second's worth, each time the samples have gone by; and not far below."""
    seconds = 120
    copier = Copier(limit, frozenset({0}))
    copier.run(seconds * 1000, chunk, tick_ms)
    windows = 2 * seconds // 11 + 2
    assert copier.total <= limit * seconds + windows * (chunk + limit)
    wanted = min(limit, chunk * 1000 / tick_ms)
    assert copier.total >= wanted * seconds / 2


@pytest.mark.parametrize(("limit", "replicas"), [(None, ALL_PARTITIONS), (10, NO_PARTITIONS), (10, {1})])
def test_without_limit_or_named_replicas_nothing_is_held_back(limit: int | None, replicas: Any) -> None:
    copier = Copier(limit, replicas)
    copier.run(10_000, 1000, 100)
    assert copier.total == 100_000


def test_a_limit_that_is_lifted_counts_no_more_and_one_that_comes_begins_anew() -> None:
    copier = Copier(10)
    copier.run(1000, 1000, 100)
    assert copier.total == 1000
    copier.quota.rate_max = None
    copier.run(1000, 1000, 100)
    assert copier.total == 11_000
    copier.now += 60_000
    copier.quota.rate_max = 10
    copier.run(1000, 1000, 100)
    assert copier.total == 12_000


# --- configuration -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", []),
        (" * ", [0, 1, 2, 7]),
        ("0:1", [0]),
        ("0:1, 7:1,1:2 ,2:11", [0, 7]),
        ("1:2", []),
    ],
)
@pytest.mark.parametrize("key", [LEADER_REPLICAS, FOLLOWER_REPLICAS])
def test_replicas_of_this_broker(key: str, text: str, named: list[int]) -> None:
    found = dict(zip([LEADER_REPLICAS, FOLLOWER_REPLICAS], throttled({key: text}, 1), strict=True))
    own = found.pop(key)
    assert [n for n in (0, 1, 2, 7) if n in own] == named
    assert not any(n in other for other in found.values() for n in (0, 1, 2, 7))


@pytest.mark.parametrize("text", ["0", "a:1", "0:b", "0:1,", "-1:1", "0:1:2", ":", "**", "9" * 11 + ":1"])
def test_replicas_that_cannot_be_read(text: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"^{LEADER_REPLICAS} is .*: must be \* or a list of PARTITION:BROKER$"
    ):
        throttled({LEADER_REPLICAS: text}, 1)


def test_a_rate_is_a_whole_number_of_64_bits() -> None:
    assert throttle.rate({}, LEADER_RATE) is None
    assert throttle.rate({LEADER_RATE: " 0 "}, LEADER_RATE) == 0
    assert throttle.rate({LEADER_RATE: str(2**63 - 1)}, LEADER_RATE) == 2**63 - 1
    for text in ("", "-1", "1.5", "many", str(2**63), "9" * 5000):
        with pytest.raises(ConfigError, match="a whole number from 0 to 9223372036854775807"):
            throttle.rate({LEADER_RATE: text}, LEADER_RATE)
