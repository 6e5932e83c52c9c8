"""The offsets of a group: visible in the order of the log, and removed."""

from __future__ import annotations

from itertools import permutations

import pytest

from broker_stub.group.messages import OffsetValue
from broker_stub.group.offsets import GroupOffsets

KEYS = [(topic, partition) for topic in ("a", "b", "c") for partition in range(5)]


def value(offset: int) -> OffsetValue:
    return OffsetValue(offset=offset, leader_epoch=0, metadata="", commit_timestamp_ms=1)


def test_those_removed_are_told_in_order() -> None:
    offsets = GroupOffsets({key: value(1) for key in KEYS})
    assert offsets.remove(frozenset([*KEYS, ("d", 0)])) == KEYS
    assert not offsets


@pytest.mark.parametrize("ends", list(permutations(range(3))))
def test_the_last_in_the_log_is_visible_in_whatever_order_appends_end(ends: tuple[int, ...]) -> None:
    offsets = GroupOffsets({KEYS[0]: value(100)})
    numbers = [offsets.begin([KEYS[0]]) for _ in range(3)]
    for count, n in enumerate(ends, start=1):
        offsets.complete(numbers[n], {KEYS[0]: value(n)})
        found = offsets.get(KEYS[0])
        assert found is not None
        assert found.offset == max(ends[:count])
    offsets.complete(numbers[0], {KEYS[0]: value(7)})
    assert offsets.get(KEYS[0]) == value(2), "it had ended"


@pytest.mark.parametrize("pending", [False, True])
def test_what_was_removed_comes_again_only_with_a_new_commit(pending: bool) -> None:
    offsets = GroupOffsets()
    first = offsets.begin(KEYS[:2])
    if not pending:
        offsets.complete(first, {key: value(1) for key in KEYS[:2]})
    assert offsets.remove(KEYS[:1]) == KEYS[:1]
    offsets.complete(first, {key: value(1) for key in KEYS[:2]})
    assert offsets.partitions() == KEYS[1:2]
    offsets.complete(offsets.begin(KEYS[:1]), {KEYS[0]: value(2)})
    assert offsets.get(KEYS[0]) == value(2)
    failed = offsets.begin([KEYS[4]])
    offsets.fail(failed, [KEYS[4]])
    assert (len(offsets), offsets.remove([KEYS[4]])) == (2, [])
