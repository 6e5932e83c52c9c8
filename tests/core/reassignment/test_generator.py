"""Generated assignments: racks, balance, little movement, even leaderships; checked against brute force."""

from __future__ import annotations

from collections import Counter
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.model import Broker, BrokerIds
from controller.core.partitions.replica_placement import PlacementError
from controller.core.reassignment.generator import generate
from tests.support.core.world import a_broker

Assignments = dict[tuple[str, int], BrokerIds]


def brokers(*ids: int, racks: dict[int, str] | None = None) -> list[Broker]:
    return [a_broker(b, b, rack=(racks or {}).get(b)) for b in ids]


def topic(*lists: list[int]) -> Assignments:
    return {("t", n): tuple(ids) for n, ids in enumerate(lists)}


def load(plan: Assignments) -> Counter[int]:
    return Counter(b for ids in plan.values() for b in ids)


def moved(before: Assignments, after: Assignments) -> int:
    return sum(len(set(after[key]) - set(ids)) for key, ids in before.items())


def test_a_balanced_cluster_is_left_alone() -> None:
    before = topic([1, 2], [2, 3], [3, 1])
    assert generate(before, brokers(1, 2, 3)) == before


def test_a_new_broker_gets_its_share_and_no_more() -> None:
    before = topic([1, 2], [2, 1], [1, 2])
    after = generate(before, brokers(1, 2, 3))
    assert sorted(load(after).values()) == [2, 2, 2]
    assert moved(before, after) == 2


def test_a_broker_that_is_left_out_is_vacated() -> None:
    before = topic([1, 2], [2, 3], [3, 1])
    after = generate(before, brokers(1, 2))
    assert {b for ids in after.values() for b in ids} == {1, 2}
    assert moved(before, after) == 2


def test_racks_come_before_staying() -> None:
    racks = {1: "a", 2: "a", 3: "b"}
    after = generate(topic([1, 2]), brokers(1, 2, 3, racks=racks))
    assert after == topic([1, 3])
    assert generate(topic([1, 2]), brokers(1, 2, 3, racks=racks), rack_aware=False) == topic([1, 2])


@pytest.mark.parametrize(("factor", "count"), [(None, 3), (3, 1), (0, 1)])
def test_too_few_brokers(factor: int | None, count: int) -> None:
    with pytest.raises(PlacementError, match=r"t-0: \d replicas: must be from 1 to the number of brokers, 2"):
        generate(topic(list(range(1, count + 1))), brokers(1, 2), replication_factor=factor)


def test_another_replication_factor() -> None:
    after = generate(topic([1], [2]), brokers(1, 2, 3), replication_factor=2)
    assert [len(ids) for ids in after.values()] == [2, 2]
    assert all(set(before) <= set(after[key]) for key, before in topic([1], [2]).items())
    assert {len(ids) for ids in generate(after, brokers(1, 2, 3), replication_factor=1).values()} == {1}


IDS = st.integers(1, 6)
CURRENT = st.lists(st.lists(IDS, min_size=1, max_size=3, unique=True), min_size=1, max_size=7)
ALLOWED = st.lists(IDS, min_size=3, max_size=6, unique=True)
RACKS = st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=6, max_size=6)


@given(CURRENT, ALLOWED, RACKS)
def test_what_every_plan_keeps_to(
    current: list[list[int]], allowed: list[int], racks: list[str | None]
) -> None:
    before = topic(*current)
    usable = [a_broker(b, b, rack=racks[b - 1]) for b in allowed]
    rack_of = {b.id: b.rack or f"broker {b.id}" for b in usable}
    after = generate(before, usable)
    assert after.keys() == before.keys()
    for key, ids in after.items():
        assert len(ids) == len(set(ids)) == len(before[key])
        assert set(ids) <= set(allowed)
        assert len({rack_of[b] for b in ids}) == min(len(ids), len(set(rack_of.values())))
    assert generate(after, usable) == after, "a plan carried out needs no other one"
    assert _leader_spread([ids[0] for ids in after.values()], allowed) == _best_spread(after, allowed)


@given(CURRENT, ALLOWED)
def test_without_racks_load_is_level_and_nothing_moves_in_vain(
    current: list[list[int]], allowed: list[int]
) -> None:
    before = topic(*current)
    after = generate(before, brokers(*allowed))
    counts = [load(after)[b] for b in allowed]
    assert max(counts) - min(counts) <= 1 or _stuck(after, allowed)
    vacated = sum(b not in allowed for ids in before.values() for b in ids)
    staying = Counter(b for ids in before.values() for b in ids if b in allowed)
    share = sum(len(ids) for ids in before.values()) // len(allowed)
    excess = sum(max(0, staying[b] - share) for b in allowed)
    # A vacated replica may have only one place to go, and push another one on.
    assert vacated <= moved(before, after) <= 2 * vacated + excess


def _stuck(plan: Assignments, allowed: list[int]) -> bool:
    """Whether no single replica could go from a fuller to an emptier broker."""
    counts = load(plan)
    return not any(
        counts[source] - counts[target] >= 2 and target not in ids
        for ids in plan.values()
        for source in ids
        for target in allowed
    )


def _leader_spread(leaders: list[int], allowed: list[int]) -> list[int]:
    counts = Counter(leaders)
    return sorted(counts[b] for b in allowed)


def _best_spread(plan: Assignments, allowed: list[int]) -> list[int]:
    """Of all choices of leaders the most even one."""
    return min(
        (_leader_spread(list(choice), allowed) for choice in product(*plan.values())),
        key=lambda counts: sum(c * c for c in counts),
    )


def test_avoided_brokers_keep_what_they_have_and_get_nothing_that_others_can_take() -> None:
    before = topic([1, 2], [2, 3], [3, 1])
    assert generate(before, brokers(1, 2, 3, 4), avoided=[4]) == before
    # The one that is vacated hands all to the others, though the avoided one holds least.
    after = generate(before, brokers(1, 2, 4), avoided=[4])
    assert after[("t", 0)] == before[("t", 0)]
    assert [4 in after[("t", n)] for n in range(3)] == [False, False, False]
    assert 3 not in {b for ids in after.values() for b in ids}
    # Too few others: it takes the last place, not the first.
    assert generate(topic([1], [2]), brokers(1, 2, 4), replication_factor=3, avoided=[4]) == {
        ("t", 0): (1, 2, 4),
        ("t", 1): (2, 1, 4),
    }


def test_leaderships_are_not_levelled_towards_avoided_brokers() -> None:
    before = topic([1, 2], [1, 2], [1, 2], [1, 2])
    assert {ids[0] for ids in generate(before, brokers(1, 2), avoided=[2]).values()} == {1}
    assert {ids[0] for ids in generate(before, brokers(1, 2)).values()} == {1, 2}


def test_no_load_is_levelled_at_the_price_of_a_rack() -> None:
    racks = {1: "a", 2: "b", 3: "b", 4: "b"}
    after = generate(topic([1, 3], [1, 4], [1, 3], [1, 4]), brokers(1, 2, 3, 4, racks=racks))
    assert all(1 in ids for ids in after.values())


def test_what_is_as_large_as_the_difference_stays() -> None:
    before = topic([1])
    assert generate(before, brokers(1, 2), sizes={("t", 0): 10}) == before


def test_replicas_that_join_come_in_the_order_of_their_ids() -> None:
    assert generate(topic([1]), brokers(1, 8, 3), replication_factor=3) == topic([1, 3, 8])


def test_where_racks_are_fewer_than_replicas_what_is_there_stays() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "a"}
    before = topic([1, 4, 3])
    assert generate(before, brokers(1, 2, 3, 4, racks=racks)) == before


def test_counts_of_replicas_are_levelled_exactly_also_where_there_are_many() -> None:
    before = topic(*[[1]] * 61, *[[2]] * 59)
    assert set(load(generate(before, brokers(1, 2))).values()) == {60}


def test_one_broker_may_give_to_several() -> None:
    assert load(generate(topic(*[[1]] * 6), brokers(1, 2, 3))) == {1: 2, 2: 2, 3: 2}


def test_the_largest_moves_first_and_one_of_unknown_size_counts_too() -> None:
    before = topic([1], [1], [1], [1])
    after = generate(before, brokers(1, 2), sizes={("t", 0): 55, ("t", 1): 40, ("t", 2): 5})
    assert {key for key, ids in after.items() if ids == (2,)} == {("t", 0)}
    assert moved(before, after) == 1
    again = generate(before, brokers(1, 2), sizes={("t", 1): 5, ("t", 2): 40, ("t", 3): 55})
    assert {key for key, ids in again.items() if ids == (2,)} == {("t", 3)}


def test_behind_an_avoided_broker_others_get_their_share() -> None:
    after = generate(topic(*[[1]] * 4), brokers(1, 2, 3), avoided=[2])
    assert load(after) == {1: 2, 3: 2}


def test_a_rack_of_its_own_is_no_reason_to_use_an_avoided_broker() -> None:
    racks = {1: "a", 2: "b", 3: "a"}
    given_ = brokers(1, 2, 3, racks=racks)
    assert generate(topic([1]), given_, replication_factor=2, avoided=[2]) == topic([1, 3])
    assert generate(topic([1]), given_, replication_factor=2) == topic([1, 2])


def test_nothing_moves_for_less_than_a_twentieth_of_what_a_broker_holds() -> None:
    before, sizes = topic([1], [2], [1]), {("t", 0): 100, ("t", 1): 98, ("t", 2): 1}
    assert generate(before, brokers(1, 2), sizes=sizes) == before
    after = generate(before, brokers(1, 2), sizes={("t", 0): 100, ("t", 1): 97, ("t", 2): 5})
    assert after == topic([1], [2], [2]), "8 bytes are more than a twentieth of 101"


def test_of_two_in_one_rack_one_may_go_where_another_is() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    after = generate(topic(*[[1, 2, 3]] * 4), brokers(1, 2, 3, 4, racks=racks))
    assert set(load(after).values()) == {3}


def test_leaderships_are_handed_on_by_who_shares_nothing_with_the_first() -> None:
    racks = {1: "a", 2: "b", 3: "a"}
    after = generate(topic([1, 2], [1, 2], [2, 3]), brokers(1, 2, 3, racks=racks))
    assert {frozenset(ids) for ids in after.values()} == {frozenset({1, 2}), frozenset({2, 3})}
    assert sorted(ids[0] for ids in after.values()) == [1, 2, 3]


def test_whose_leader_goes_is_led_by_one_that_is_not_avoided() -> None:
    after = generate(topic([3, 1]), brokers(1, 2), avoided=[1])
    assert after == topic([2, 1])


@given(CURRENT, ALLOWED, st.randoms(use_true_random=False))
def test_a_plan_does_not_depend_on_the_order_of_the_brokers(
    current: list[list[int]], allowed: list[int], rng: Random
) -> None:
    ordered = brokers(*sorted(allowed))
    shuffled = rng.sample(ordered, len(ordered))
    try:
        plan = generate(topic(*current), ordered)
    except PlacementError:
        return
    assert generate(topic(*current), shuffled) == plan
