"""The leader-epoch cache: Kafka's answers (KIP-101, KIP-279)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_stub.log.epochs import EpochEntry, LeaderEpochCache

THREE_TERMS = [EpochEntry(2, 10), EpochEntry(4, 25), EpochEntry(7, 40)]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (7, (7, 60)),  # the latest ends where the log ends
        (8, (-1, -1)),  # not known here
        (-1, (-1, -1)),
        (4, (4, 40)),
        (6, (4, 40)),  # nothing was written in 5 and 6
        (5, (4, 40)),
        (2, (2, 25)),
        (3, (2, 25)),
        (1, (1, 10)),  # below the first: its records are gone
        (0, (0, 10)),
    ],
)
def test_an_epoch_ends_where_the_next_one_begins(asked: int, answer: tuple[int, int]) -> None:
    assert LeaderEpochCache(THREE_TERMS).end_offset_for(asked, 60) == answer


@pytest.mark.parametrize("asked", [-1, 0, 3])
def test_an_empty_cache_knows_nothing(asked: int) -> None:
    assert LeaderEpochCache().end_offset_for(asked, 0) == (-1, -1)
    assert LeaderEpochCache().latest_epoch is None


@pytest.mark.parametrize(
    ("offset", "epoch"), [(0, None), (9, None), (10, 2), (24, 2), (25, 4), (40, 7), (1000, 7)]
)
def test_epoch_for_offset(offset: int, epoch: int | None) -> None:
    assert LeaderEpochCache(THREE_TERMS).epoch_for_offset(offset) == epoch


@pytest.mark.parametrize(
    ("epoch", "start", "entries"),
    [
        (7, 50, THREE_TERMS),
        (7, 40, THREE_TERMS),
        (7, 35, [(2, 10), (4, 25), (7, 35)]),
        (9, 60, [*THREE_TERMS, (9, 60)]),
        (9, 40, [(2, 10), (4, 25), (9, 40)]),  # the term of 7 was not written in
        (9, 20, [(2, 10), (9, 20)]),
        (4, 70, [(2, 10), (4, 70)]),
        (1, 5, [(1, 5)]),
    ],
)
def test_an_epoch_is_assigned_and_later_entries_go(
    epoch: int, start: int, entries: list[tuple[int, int]]
) -> None:
    cache = LeaderEpochCache(THREE_TERMS)
    cache.assign(epoch, start)
    assert list(cache.entries) == entries


@pytest.mark.parametrize(("epoch", "start"), [(-1, 0), (0, -1)])
def test_assign_refuses_negative_numbers(epoch: int, start: int) -> None:
    with pytest.raises(ValueError, match="must be 0 or more"):
        LeaderEpochCache().assign(epoch, start)


@pytest.mark.parametrize(
    ("end", "entries"),
    [
        (41, THREE_TERMS),
        (40, THREE_TERMS[:2]),
        (26, THREE_TERMS[:2]),
        (25, THREE_TERMS[:1]),
        (10, []),
        (0, []),
    ],
)
def test_truncate_from_end(end: int, entries: list[EpochEntry]) -> None:
    cache = LeaderEpochCache(THREE_TERMS)
    cache.truncate_from_end(end)
    assert list(cache.entries) == entries


@pytest.mark.parametrize(
    "second", [EpochEntry(2, 20), EpochEntry(1, 20), EpochEntry(3, 10), EpochEntry(3, 9)]
)
def test_entries_rise(second: EpochEntry) -> None:
    with pytest.raises(ValueError, match="must be above"):
        LeaderEpochCache([EpochEntry(2, 10), second])


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30))), st.integers(-1, 31))
def test_whatever_is_assigned_both_columns_rise(assigned: list[tuple[int, int]], asked: int) -> None:
    cache = LeaderEpochCache()
    for epoch, start in assigned:
        cache.assign(epoch, start)
        assert cache.latest_epoch == epoch
    LeaderEpochCache(cache.entries)
    answer = cache.end_offset_for(asked, 100)
    below = [entry for entry in cache.entries if entry.epoch <= asked]
    above = [entry for entry in cache.entries if entry.epoch > asked]
    if asked < 0 or not cache.entries or (not above and asked != cache.latest_epoch):
        assert answer == (-1, -1)
    else:
        assert answer == (below[-1].epoch if below else asked, above[0].start_offset if above else 100)
