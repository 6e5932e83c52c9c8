"""A plan is a matter of its seed."""

from __future__ import annotations

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from tests.provers.chaos.plan import ACTIVE, CONTROLLERS, EVERYBODY, RECIPES, Kind, Means, draw, only

ALL = frozenset(Means)
seeds = st.integers(0, 2**32)


@given(seeds)
def test_a_seed_gives_its_plan_again(seed: int) -> None:
    assert draw(seed, 30, ALL) == draw(seed, 30, ALL)


@given(seeds, st.integers(1, 20))
def test_a_longer_plan_begins_like_a_shorter_one(seed: int, episodes: int) -> None:
    """So that an episode can be looked at without those after it."""
    assert draw(seed, 25, ALL)[:episodes] == draw(seed, episodes, ALL)


def test_seeds_differ() -> None:
    assert len({str(draw(seed, 3, ALL)) for seed in range(20)}) == 20


@given(seeds)
def test_every_kind_comes_before_any_comes_again(seed: int) -> None:
    kinds = {fault.kind for episode in draw(seed, len(RECIPES), ALL) for fault in episode.faults[:1]}
    assert kinds == set(Kind)


@given(seeds, st.sampled_from(sorted(Means)))
def test_what_is_not_permitted_is_not_planned(seed: int, missing: Means) -> None:
    kinds = {
        Means.LOSS: {Kind.LOSS},
        Means.SLOW: {Kind.SLOW},
        Means.MOUNTS: {Kind.DISK_FULL, Kind.STATE_LOG_FULL},
        Means.WALL_CLOCKS: {Kind.CLOCK, Kind.JUMP},
    }.get(missing, set())
    planned = {fault.kind for episode in draw(seed, 60, ALL - {missing}) for fault in episode.faults}
    assert not planned & kinds
    with_neither = draw(seed, 60, ALL - {Means.PACKETS, Means.ZOOKEEPER_PACKETS})
    assert not {f.kind for episode in with_neither for f in episode.faults} & {Kind.CUT, Kind.DEAF}


@given(seeds, st.sampled_from(sorted(Kind)))
def test_one_kind_alone_is_what_the_plan_has_of_it(seed: int, kind: Kind) -> None:
    episodes = list(islice(only(kind, seed, ALL), 5))
    assert len(episodes) == 5
    assert {fault.kind for episode in episodes for fault in episode.faults} == {kind}
    planned = [e for e in draw(seed, len(RECIPES), ALL) if any(fault.kind is kind for fault in e.faults)]
    kept = [tuple(fault for fault in e.faults if fault.kind is kind) for e in planned][:5]
    assert [episode.faults for episode in episodes][: len(kept)] == kept
    assert list(only(Kind.JUMP, seed, ALL - {Means.WALL_CLOCKS})) == []


@given(seeds)
def test_nobody_is_struck_twice_in_an_episode(seed: int) -> None:
    """What heals one fault would heal the other, too."""
    for episode in draw(seed, 60, ALL):
        struck = [name for fault in episode.faults for name in fault.who]
        assert len(struck) == len(set(struck)), episode
        assert set(struck) <= {ACTIVE, *EVERYBODY}
        assert sum(bool({ACTIVE, *CONTROLLERS} & set(fault.who)) for fault in episode.faults) <= 1, episode
        assert 1 <= len(episode.faults) <= 3
