"""The range assignor, and the encoding of subscriptions and assignments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_stub.client.assignor import (
    AssignmentError,
    assign_ranges,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

TOPICS = st.sampled_from(["a", "b", "c"])
SUBSCRIPTIONS = st.dictionaries(
    st.text("xyz0", min_size=1, max_size=4), st.lists(TOPICS, unique=True), min_size=1
)


@given(SUBSCRIPTIONS, st.dictionaries(TOPICS, st.integers(0, 9)))
def test_every_partition_goes_to_one_subscriber_and_shares_differ_by_one(
    subscriptions: dict[str, list[str]], counts: dict[str, int]
) -> None:
    assigned = assign_ranges(subscriptions, {topic: range(count) for topic, count in counts.items()})
    assert set(assigned) == set(subscriptions)
    for topic, count in counts.items():
        subscribers = sorted(m for m, topics in subscriptions.items() if topic in topics)
        shares = [[n for t, n in assigned[m] if t == topic] for m in subscribers]
        together = [number for share in shares for number in share]
        # Contiguous, in the order of the members, and nothing to the others.
        assert together == (list(range(count)) if subscribers else [])
        assert sum(t == topic for keys in assigned.values() for t, _ in keys) == len(together)
        if shares:
            sizes = [len(share) for share in shares]
            assert max(sizes) - min(sizes) <= 1
            assert sizes == sorted(sizes, reverse=True)


def test_as_in_the_walk_through() -> None:
    subscriptions = {"c1": ["test"], "c2": ["test"], "c3": ["test"]}
    assert assign_ranges(subscriptions, {"test": [2, 0, 1]}) == {
        "c1": [("test", 0)], "c2": [("test", 1)], "c3": [("test", 2)],
    }  # fmt: skip
    assert assign_ranges({"c1": ["test"], "c2": []}, {"test": [0]}) == {"c1": [("test", 0)], "c2": []}


@given(st.lists(st.tuples(TOPICS, st.integers(0, 9)), unique=True), st.lists(TOPICS, unique=True))
def test_both_travel_as_bytes(keys: list[tuple[str, int]], topics: list[str]) -> None:
    assert decode_assignment(encode_assignment(keys)) == sorted(keys)
    assert decode_subscription(encode_subscription(topics)) == sorted(topics)


def test_nothing_assigned() -> None:
    assert decode_assignment(b"") == []


@pytest.mark.parametrize("data", [b"{}", b"\xff", b'{"partitions":{"t":[-1]}}', b'{"partitions":{"t":"x"}}'])
def test_bytes_that_are_no_assignment(data: bytes) -> None:
    with pytest.raises(AssignmentError, match="assignment b"):
        decode_assignment(data)
    with pytest.raises(AssignmentError, match="subscription b"):
        decode_subscription(data)
