"""Assignments without some brokers: properties, and that load is spread."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.model import Broker, Endpoint
from controller.core.partitions.replica_placement import PlacementError
from controller.core.reassignment.generator import generate
from controller.core.reassignment.vacating import Load, swapped, vacated


def brokers(racks: dict[int, str | None]) -> list[Broker]:
    return [Broker(b, 1, (Endpoint("GRPC", "PLAINTEXT", "h", 1),), rack) for b, rack in racks.items()]


@st.composite
def clusters(
    draw: Any,
) -> tuple[dict[int, str | None], dict[tuple[str, int], tuple[int, ...]], dict[Any, int], int]:
    count = draw(st.integers(3, 8))
    racks = {b: draw(st.sampled_from(["a", "b", "c", None])) for b in range(count)}
    replicas = st.lists(st.sampled_from(range(count)), min_size=1, max_size=count - 1, unique=True).map(tuple)
    current = {("t", n): ids for n, ids in enumerate(draw(st.lists(replicas, max_size=20)))}
    sizes = {key: draw(st.integers(0, 100)) for key in current}
    return racks, current, sizes, draw(st.integers(0, count - 1))


@given(clusters())
def test_only_what_must_move_moves_and_no_rack_is_lost(given_: Any) -> None:
    racks, current, sizes, leaving = given_
    after = vacated(current, [leaving], brokers(racks), sizes=sizes)
    assert after.keys() == {key for key, ids in current.items() if leaving in ids}
    for key, ids in after.items():
        before = current[key]
        assert len(set(ids)) == len(before)
        assert leaving not in ids
        assert [b for b, was in zip(ids, before, strict=True) if was != leaving] == [
            b for b in before if b != leaving
        ]
        free = {racks[b] for b in racks if b not in before} - {racks[b] for b in before if b != leaving}
        (new,) = set(ids) - set(before)
        if free - {None}:
            assert racks[new] is None or racks[new] in free
    assert vacated({**current, **after}, [leaving], brokers(racks)) == {}, (
        "whoever runs it again moves nothing"
    )


@given(clusters())
def test_swapped_twice_is_as_before(given_: Any) -> None:
    _, current, _, one = given_
    other = (one + 1) % 3
    once = {**current, **swapped(current, one, other)}
    assert {**once, **swapped(once, one, other)} == current


def test_bytes_are_spread_and_drained_brokers_avoided() -> None:
    current = {("t", n): (0,) for n in range(6)}
    sizes = {("t", n): size for n, size in enumerate((60, 10, 10, 10, 10, 20))}
    racks: dict[int, str | None] = dict.fromkeys(range(4))
    after = vacated(current, [0], brokers(racks), sizes=sizes, avoided=[3])
    load = Load(after, sizes)
    assert dict(load.bytes) == {1: 60, 2: 60, 0: 0, 3: 0} or {b: n for b, n in load.bytes.items() if n} == {
        1: 60,
        2: 60,
    }


@pytest.mark.parametrize(("replicas", "goes_to"), [((0, 3), 2), ((3, 0), 1)])
def test_a_preferred_leader_is_replaced_by_who_leads_less(replicas: tuple[int, ...], goes_to: int) -> None:
    """Any other replica by who has less, and then by the lowest id."""
    current = {("t", 0): (1, 3), ("t", 1): (3, 2), ("t", 2): replicas}
    after = vacated(current, [0], brokers(dict.fromkeys(range(4))))
    assert after == {("t", 2): tuple(goes_to if b == 0 else b for b in replicas)}


def test_the_new_broker_takes_all_it_does_not_hold_yet() -> None:
    current = {("t", 0): (0, 1), ("t", 1): (2, 0), ("t", 2): (0, 3)}
    racks: dict[int, str | None] = dict.fromkeys(range(4))
    assert vacated(current, [0], brokers(racks), preferred=[3]) == {
        ("t", 0): (3, 1), ("t", 1): (2, 3), ("t", 2): (1, 3),
    }  # fmt: skip


def test_replicas_of_several_leaving_brokers_go_to_different_racks() -> None:
    racks: dict[int, str | None] = {0: "a", 1: "b", 2: "c", 3: "c", 4: "d"}
    current = {("t", 0): (0, 1), ("t", 1): (4,)}
    assert vacated(current, [0, 1], brokers(racks)) == {("t", 0): (2, 4)}


def test_a_swap_of_two_that_are_both_replicas_exchanges_their_places() -> None:
    current = {("t", 0): (1, 2, 3), ("t", 1): (3, 1), ("t", 2): (3,)}
    assert swapped(current, 1, 2) == {("t", 0): (2, 1, 3), ("t", 1): (3, 2)}


def test_too_few_brokers() -> None:
    with pytest.raises(
        PlacementError, match="t-0: no broker is left for one of its 2 replicas: 1 brokers stay"
    ):
        vacated({("t", 0): (0, 1)}, [0], brokers({0: None, 1: None}))


def test_generated_by_bytes() -> None:
    current = {("t", n): (n % 2,) for n in range(8)}
    sizes = {("t", n): 100 if n % 2 else 10 for n in range(8)}
    by_bytes = generate(current, brokers({0: None, 1: None}), sizes=sizes)
    spread = Load(by_bytes, sizes).bytes
    assert abs(spread[0] - spread[1]) <= 20
    assert generate(current, brokers({0: None, 1: None})) == current, "by replicas it is even"
    assert generate(by_bytes, brokers({0: None, 1: None}), sizes=sizes) == by_bytes
