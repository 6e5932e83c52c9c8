"""Where replicas go: spread evenly over brokers and racks, whatever the cluster looks like."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.model import REPLICAS_MAX, Broker, Endpoint
from controller.core.partitions.replica_placement import (
    PlacementError,
    assign_replicas,
    avoiding,
    check_assignment,
    parse_assignment,
    start_after,
)

ENDPOINT = (Endpoint("GRPC", "PLAINTEXT", "h", 1),)


def broker(id_: int, rack: str | None = None) -> Broker:
    return Broker(id_, 1, ENDPOINT, rack)


ids = st.lists(st.integers(0, 10_000), min_size=1, max_size=12, unique=True)


@st.composite
def clusters(draw: st.DrawFn) -> list[Broker]:
    racks = st.sampled_from([None, "a", "b", "c"])
    return [broker(id_, draw(racks)) for id_ in draw(ids)]


@given(clusters(), st.integers(1, 60), st.integers(0, 200), st.data())
def test_every_partition_gets_distinct_live_brokers_and_leaders_go_round(
    brokers: list[Broker], count: int, start: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    assignment = assign_replicas(brokers, count, factor, start)
    assert list(assignment) == list(range(count))
    known = {b.id for b in brokers}
    for replicas in assignment.values():
        assert len(replicas) == len(set(replicas)) == factor
        assert set(replicas) <= known
    check_assignment(assignment)
    led = Counter(dict.fromkeys(known, 0))
    led.update(replicas[0] for replicas in assignment.values())
    assert max(led.values()) - min(led.values()) <= 1


@given(ids, st.integers(0, 50), st.data())
def test_without_racks_replicas_are_even_after_whole_rounds(
    brokers: list[int], start: int, data: st.DataObject
) -> None:
    size = len(brokers)
    factor = data.draw(st.integers(1, size))
    # Followers shift once a round: after size - 1 rounds each has followed each as often.
    count = size * max(size - 1, 1)
    assignment = assign_replicas([broker(b) for b in brokers], count, factor, start)
    held = Counter(b for replicas in assignment.values() for b in replicas)
    assert set(held.values()) == {count * factor // size}


@given(clusters(), st.integers(1, 40), st.data())
def test_racks_differ_as_far_as_there_are_racks(
    brokers: list[Broker], count: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    # A broker without a rack stands alone, like a rack of its own.
    places = {b.id: b.rack or f"alone-{b.id}" for b in brokers}
    for replicas in assign_replicas(brokers, count, factor).values():
        used = {places[b] for b in replicas}
        assert len(used) == min(factor, len(set(places.values())))


@given(st.integers(2, 4), st.integers(1, 4), st.integers(1, 3))
def test_equal_racks_hold_equally_much(racks: int, each: int, rounds: int) -> None:
    brokers = [broker(r * 100 + n, f"rack-{r}") for r in range(racks) for n in range(each)]
    assignment = assign_replicas(brokers, rounds * len(brokers), racks)
    per_rack = Counter(b // 100 for replicas in assignment.values() for b in replicas)
    assert set(per_rack.values()) == {rounds * len(brokers)}


@given(clusters(), st.integers(1, 20), st.data())
def test_the_order_in_which_brokers_are_listed_does_not_matter(
    brokers: list[Broker], count: int, data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(brokers))
    assert assign_replicas(brokers, count, 1) == assign_replicas(shuffled, count, 1)


UNRACKED = [broker(n) for n in range(5)]
RACKED = [broker(n, rack) for n, rack in enumerate(["a", "b", "b", "c", "c", "a"])]


@pytest.mark.parametrize(
    ("brokers", "leader", "first", "placed"),
    [
        # From the first broker on, as at creation: followers are neighbours, a round later they are one further.
        (UNRACKED, 0, 0, {4: (4, 0, 1), 5: (0, 2, 3), 6: (1, 3, 4)}),
        # The shift goes on from the leader of partition 0, as the leaders do, and grows with each round of numbers.
        (UNRACKED, 3, 4, {4: (2, 1, 3), 5: (3, 4, 0), 6: (4, 0, 1), 7: (0, 1, 2)}),
        # Also when the first number added begins a round.
        (UNRACKED, 0, 5, {5: (0, 2, 3), 6: (1, 3, 4)}),
        # That leader is gone: the next higher id, else the first.
        (UNRACKED[:3] + UNRACKED[4:], 3, 1, {1: (0, 1, 2), 2: (1, 2, 4)}),
        (UNRACKED, 9, 1, {1: (1, 2, 3)}),
        # Ids in numerical order.
        ([broker(n) for n in (2, 10, 1)], 1, 1, {1: (2, 10), 2: (10, 1)}),
        # Counted in the order of ids, though leaders go round the ring 0, 1, 3, 5, 2, 4.
        (RACKED, 2, 1, {1: (5, 4, 1), 2: (2, 0, 3)}),
        # More replicas than racks: each has one, then whoever is next.
        (RACKED, 0, 1, {1: (1, 3, 5, 2), 2: (3, 5, 2, 4)}),
    ],
)
def test_added_partitions_go_on_as_kafka_places_them(
    brokers: list[Broker], leader: int, first: int, placed: dict[int, tuple[int, ...]]
) -> None:
    """By hand from AdminUtils.assignReplicasToBrokers, whose start index comes from createPartitions."""
    start, factor = start_after(brokers, leader), len(next(iter(placed.values())))
    count = max(placed) + 1 - first
    assigned = assign_replicas(brokers, count, factor, start, first)
    assert {n: ids for n, ids in assigned.items() if n in placed} == placed


def test_racks_take_turns_in_the_order_of_their_names() -> None:
    brokers = [broker(0, "c"), broker(1, "a"), broker(2, "b"), broker(3, "a")]
    assert assign_replicas(brokers, 4, 1) == {0: (1,), 1: (2,), 2: (0,), 3: (3,)}


@pytest.mark.parametrize(
    ("factor", "avoided", "taken", "of_them"),
    [
        (2, (), [1, 3, 5], []),
        (2, (3,), [1, 5], []),
        (2, (3, 5), [1, 3], [3]),
        (2, (5, 3, 1), [1, 3], [1, 3]),
        (3, (3, 5), [1, 3, 5], [3, 5]),
        (-1, (3,), [1, 5, 3], [3]),
    ],
)
def test_brokers_to_avoid_are_taken_last_and_the_lowest_ids_first(
    factor: int, avoided: tuple[int, ...], taken: list[int], of_them: list[int]
) -> None:
    found, used = avoiding([broker(n) for n in (5, 3, 1)], avoided, factor)
    assert (sorted(b.id for b in found), used) == (sorted(taken), of_them)


@pytest.mark.parametrize(("partitions", "factor"), [(0, 1), (-1, 1), (1, 0), (1, 4), (1, -1)])
def test_what_cannot_be_is_refused(partitions: int, factor: int) -> None:
    with pytest.raises(PlacementError, match=r"partitions = |replication factor = "):
        assign_replicas([broker(n) for n in range(3)], partitions, factor)


def test_no_brokers_at_all() -> None:
    with pytest.raises(PlacementError, match="there is no broker to place replicas on"):
        assign_replicas([], 1, 1)


assignments = st.integers(1, 4).flatmap(
    lambda factor: st.lists(
        st.lists(st.integers(0, 99), min_size=factor, max_size=factor, unique=True), min_size=1, max_size=5
    )
)


@given(assignments)
def test_assignments_are_read_as_kafka_topics_writes_them(rows: list[list[int]]) -> None:
    text = ",".join(":".join(map(str, row)) for row in rows)
    assert parse_assignment(text) == {n: tuple(row) for n, row in enumerate(rows)}


@given(st.text("0123456789:,- ax", max_size=12))
def test_any_text_is_an_assignment_or_refused(text: str) -> None:
    try:
        parsed = parse_assignment(text)
    except PlacementError:
        return
    check_assignment(parsed)


@pytest.mark.parametrize("text", ["1:1", "1:-2", "-1:2", "1,2:3"])
def test_an_assignment_that_no_topic_may_have_is_refused_as_it_is_read(text: str) -> None:
    with pytest.raises(PlacementError):
        parse_assignment(text)


def test_as_many_replicas_as_are_allowed_are_allowed() -> None:
    check_assignment({0: tuple(range(REPLICAS_MAX))})
    with pytest.raises(PlacementError, match=f"must be at most {REPLICAS_MAX}"):
        check_assignment({0: tuple(range(REPLICAS_MAX + 1))})
