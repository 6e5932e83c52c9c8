"""Every election there is with three brokers, against an oracle written from the reference's table (section 5.3).

Exhaustive: each assignment order, each ISR (every subset, every order), each online subset, each shutting-down
subset. The oracle is written as the table reads (first candidate of a list that satisfies all conditions), on
purpose unlike the code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, combinations, permutations, product

import msgspec
import pytest

from controller.core.model import (
    NO_LEADER,
    RECOVERED,
    RECOVERING,
    Attribution,
    LeaderAndIsr,
    Suspension,
    SuspensionKind,
)
from controller.core.partitions.leader_election import (
    CANDIDATES_SHOWN_MAX,
    STRATEGIES,
    Ballot,
    Elected,
    Strategy,
    elect,
    first_choice,
    remove_from_isr,
    trace,
    why_nobody,
)
from tests.support.core.world import state

Ids = tuple[int, ...]
BROKERS = (1, 2, 3)
ASSIGNMENTS: list[Ids] = [order for size in (1, 2, 3) for order in permutations(BROKERS, size)]
ISRS: list[Ids] = [order for size in (0, 1, 2, 3) for order in permutations(BROKERS, size)]
SUBSETS: list[frozenset[int]] = [
    frozenset(some) for some in chain.from_iterable(combinations(BROKERS, size) for size in range(4))
]


def _first(candidates: Iterable[int], *conditions: Callable[[int], bool]) -> int | None:
    return next((b for b in candidates if all(condition(b) for condition in conditions)), None)


def _keep(ids: Ids, condition: Callable[[int], bool]) -> Ids:
    return tuple(filter(condition, ids))


def _found(
    leader: int | None, isr: Ids, recovery: int, notified: Ids, unclean: bool = False
) -> Elected | None:
    return None if leader is None else Elected(leader, isr, recovery, notified, unclean)


def _currents() -> Iterator[LeaderAndIsr]:
    """Every ISR; the leader before it and both recovery states must make no difference to who is chosen."""
    for isr in ISRS:
        for recovery in (RECOVERED, RECOVERING):
            yield state(isr[0] if isr else -1, isr, 5, 7, recovery=recovery)


@pytest.mark.parametrize("unclean_allowed", [False, True])
def test_offline_elects_the_first_online_member_of_the_isr(unclean_allowed: bool) -> None:
    for replicas, current, online in product(ASSIGNMENTS, _currents(), SUBSETS):
        notified = _keep(replicas, online.__contains__)
        leader = _first(replicas, online.__contains__, current.isr.__contains__)
        if leader is not None:
            survivors = _keep(current.isr, online.intersection(replicas).__contains__)
            expected = _found(leader, survivors, current.recovery, notified)
        else:
            leader = _first(replicas, online.__contains__) if unclean_allowed else None
            expected = _found(leader, (leader or 0,), RECOVERING, notified, unclean=True)
        got = elect(Strategy.OFFLINE, Ballot(replicas, current, online, unclean_allowed=unclean_allowed))
        assert got == expected, (replicas, current, online)


def test_unclean_without_recovery_state_counts_as_recovered() -> None:
    got = elect(
        Strategy.OFFLINE,
        Ballot((2, 1), state(1, [1]), {2}, unclean_allowed=True, supports_recovery=False),
    )
    assert got == Elected(2, (2,), RECOVERED, (2,), unclean=True)


def test_who_came_back_without_its_data_leads_only_uncleanly() -> None:
    """What it lacks is lost then, as with any unclean leader; it does not count as in sync."""
    ballot = Ballot((1, 2), state(-1, [1]), {1, 2}, without_data={1})
    assert elect(Strategy.OFFLINE, ballot) is None
    unclean = msgspec.structs.replace(ballot, unclean_allowed=True)
    assert elect(Strategy.OFFLINE, unclean) == Elected(1, (1,), RECOVERING, (1, 2), unclean=True)


def test_reassign_elects_the_first_target_in_sync() -> None:
    for targets, current, online in product(ASSIGNMENTS, _currents(), SUBSETS):
        leader = _first(targets, online.__contains__, current.isr.__contains__)
        expected = _found(leader, current.isr, current.recovery, targets)
        got = elect(Strategy.REASSIGN, Ballot(targets, current, online))
        assert got == expected, (targets, current, online)


def test_preferred_elects_the_first_replica_or_nobody() -> None:
    for replicas, current, online in product(ASSIGNMENTS, _currents(), SUBSETS):
        leader = _first(replicas[:1], online.__contains__, current.isr.__contains__)
        expected = _found(leader, current.isr, current.recovery, replicas)
        got = elect(Strategy.PREFERRED, Ballot(replicas, current, online))
        assert got == expected, (replicas, current, online)


def test_controlled_shutdown() -> None:
    for replicas, current, reachable, leaving in product(ASSIGNMENTS, _currents(), SUBSETS, SUBSETS):
        stays = [b for b in BROKERS if b not in leaving]
        leader = _first(replicas, reachable.__contains__, current.isr.__contains__, stays.__contains__)
        survivors = _keep(current.isr, stays.__contains__)
        expected = _found(leader, survivors, current.recovery, _keep(replicas, reachable.__contains__))
        got = elect(Strategy.CONTROLLED_SHUTDOWN, Ballot(replicas, current, reachable, leaving))
        assert got == expected, (replicas, current, reachable, leaving)


@pytest.mark.parametrize(
    ("isr", "online", "unclean", "leader", "new_isr"),
    [
        ((2, 3), {1, 3}, False, 3, (3,)),
        ((2, 3), {1, 3}, True, 3, (3,)),
        ((1, 2, 3), {2, 3}, False, 2, (2, 3)),
        ((1,), {2, 3}, False, None, None),
        ((1,), {2, 3}, True, 2, (2,)),
        ((1,), set(), True, None, None),
        ((3, 1), {1, 3}, False, 1, (3, 1)),
    ],
)
def test_the_examples_of_the_reference(
    isr: Ids, online: set[int], unclean: bool, leader: int | None, new_isr: Ids | None
) -> None:
    got = elect(Strategy.OFFLINE, Ballot((1, 2, 3), state(isr[0], isr), online, unclean_allowed=unclean))
    assert (got and (got.leader, got.isr)) == (leader and (leader, new_isr))


def test_the_other_examples_of_the_reference() -> None:
    assert elect(Strategy.PREFERRED, Ballot((1, 2), state(2, [2]), {1, 2})) is None
    shutdown = elect(Strategy.CONTROLLED_SHUTDOWN, Ballot((1, 2, 3), state(1, [1, 3]), {1, 2, 3}, {1}))
    assert shutdown == Elected(3, (3,), RECOVERED, (1, 2, 3))
    assert elect(Strategy.CONTROLLED_SHUTDOWN, Ballot((1, 2, 3), state(1, [1]), {1, 2, 3}, {1})) is None
    reassigned = elect(Strategy.REASSIGN, Ballot((1, 3, 2), state(1, [1, 2]), {1, 2, 3}, removing=(1,)))
    assert reassigned == Elected(2, (1, 2), RECOVERED, (3, 2))


def test_who_is_not_assigned_any_more_does_not_stay_in_sync() -> None:
    """A move took 2 away; it has deleted what it had, or is about to."""
    elected = elect(Strategy.OFFLINE, Ballot((3, 1), state(-1, [2, 3]), {1, 2, 3}))
    assert elected == Elected(3, (3,), RECOVERED, (3, 1))


def test_removal_from_the_isr() -> None:
    """Section 14, point 4: those that leave, leave together, and the ISR only shrinks while a live member remains."""
    for isr, leaving, live, assigned in product(ISRS, SUBSETS, SUBSETS, SUBSETS):
        for leader in (*isr, -1):
            staying = [b for b in isr if b not in leaving]
            expected_isr = tuple(staying) if set(staying) & live & assigned else isr
            expected_leader = -1 if leader in leaving else leader
            got = remove_from_isr(state(leader, isr), leaving, tuple(assigned), live)
            assert got == (expected_leader, expected_isr), (isr, leaving, live, assigned)


def test_removal_never_empties_an_isr() -> None:
    for isr, leaving, live in product(ISRS[1:], SUBSETS, SUBSETS):
        assert remove_from_isr(state(isr[0], isr), leaving, (1, 2, 3), live - leaving)[1]


def test_a_successor_counts_up() -> None:
    before = state(1, [1, 2], 5, 7, controller_epoch=3)
    after = before.successor(2, (2,), 4, RECOVERING)
    assert after == LeaderAndIsr(2, 6, (2,), 8, 4, RECOVERING)


@pytest.mark.parametrize(
    ("strategy", "replicas", "online", "shutting_down", "words"),
    [
        (Strategy.OFFLINE, (1, 2), {2}, set(), ["1 is not online", "2 is not in the ISR [1]", "unclean"]),
        (Strategy.PREFERRED, (2, 1), {1, 2}, set(), ["2 is not in the ISR [1]"]),
        (Strategy.REASSIGN, (1, 2), {2}, set(), ["1 is not online", "2 is not in the ISR [1]"]),
        (
            Strategy.CONTROLLED_SHUTDOWN,
            (1, 2),
            {1, 2},
            {1},
            ["1 is shutting down", "2 is not in the ISR [1]"],
        ),
        (Strategy.OFFLINE, (), set(), set(), ["no replica is assigned"]),
    ],
)
def test_the_reason_names_each_candidate_and_its_rule(
    strategy: Strategy, replicas: Ids, online: set[int], shutting_down: set[int], words: list[str]
) -> None:
    reason = str(why_nobody(strategy, Ballot(replicas, state(1, [1]), online, shutting_down)))
    for word in words:
        assert word in reason


def test_every_strategy_is_in_the_table() -> None:
    assert STRATEGIES.keys() == set(Strategy)
    assert all(method.ways for method in STRATEGIES.values())


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("unclean_allowed", [False, True])
def test_the_trace_decides_as_the_election_does(strategy: Strategy, unclean_allowed: bool) -> None:
    """The first permitted way that finds somebody; who finds nobody says why of each candidate."""
    by = Attribution("new disks", "ann")
    for replicas, isr, online, drained in product(ASSIGNMENTS, ISRS, SUBSETS, SUBSETS):
        ballot = Ballot(
            replicas,
            state(isr[0] if isr else -1, isr),
            online,
            frozenset({3}),
            dict.fromkeys(drained, by),
            removing=replicas[2:],
            leader=2,
            unclean_allowed=unclean_allowed,
        )
        elected, tried = elect(strategy, ballot), list(trace(strategy, ballot))
        decided = next((t.leader for t in tried if t.permitted and t.leader != NO_LEADER), None)
        assert decided == (elected.leader if elected else None), ballot
        if elected is None:
            reason = why_nobody(strategy, ballot)
            assert all(str(c.broker) in str(reason) for c in tried[0].candidates)


def test_what_is_permitted_is_not_said_to_be_forbidden() -> None:
    nobody = Ballot((1, 2), state(1, [1]), set(), unclean_allowed=True)
    assert str(why_nobody(Strategy.OFFLINE, nobody)) == "no eligible leader: 1 is not online, 2 is not online"


def test_drained_brokers_lead_last_but_rather_than_nobody() -> None:
    by = Attribution("new disks", "ann")
    for strategy in (Strategy.OFFLINE, Strategy.CONTROLLED_SHUTDOWN, Strategy.REASSIGN):
        for drained, order in (({1}, (2, 3, 1)), ({1, 2}, (3, 1, 2)), ({1, 2, 3}, (1, 2, 3))):
            ballot = Ballot(BROKERS, state(-1, BROKERS), set(BROKERS), drained=dict.fromkeys(drained, by))
            elected = elect(strategy, ballot)
            assert elected is not None
            assert (elected.leader, elected.recipients) == (order[0], order)
    for strategy in (Strategy.PREFERRED, Strategy.CHOSEN, Strategy.DRAIN):
        everyone = dict.fromkeys(BROKERS, by)
        assert (
            elect(strategy, Ballot(BROKERS, state(-1, BROKERS), set(BROKERS), drained=everyone, leader=1))
            is None
        )


def test_who_is_in_sync_and_holds_no_replica_any_more_cannot_be_chosen() -> None:
    """While a reassignment completes."""
    ballot = Ballot((1, 2), state(1, (1, 2, 9)), {1, 2, 9}, leader=9)
    assert elect(Strategy.CHOSEN, ballot) is None


def test_a_reason_names_only_the_first_of_many_candidates() -> None:
    many = tuple(range(CANDIDATES_SHOWN_MAX + 3))
    text = str(why_nobody(Strategy.OFFLINE, Ballot(many, state(1, [1]), {many[-1]})))
    assert f"{CANDIDATES_SHOWN_MAX - 1} is not online, and 3 more; unclean" in text
    assert f"{CANDIDATES_SHOWN_MAX} is" not in text


def test_exactly_as_many_candidates_as_are_named_are_not_said_to_be_more() -> None:
    many = tuple(range(CANDIDATES_SHOWN_MAX))
    assert " more" not in str(why_nobody(Strategy.OFFLINE, Ballot(many, state(1, [1]), set())))


def test_a_drained_candidate_that_is_not_online_is_refused_for_that() -> None:
    by = Attribution("new disks", "ann")
    gone = Ballot((1,), state(-1, [1]), set(), drained={1: by})
    assert "1 is not online" in str(why_nobody(Strategy.REASSIGN, gone))
    assert "1 is drained (ann: new disks)" in str(why_nobody(Strategy.PREFERRED, gone))


def test_who_is_not_online_could_not_lead_uncleanly_either() -> None:
    """Whether it is permitted was not even looked up, and an operator who asks for it has permitted it."""
    reason = str(why_nobody(Strategy.OFFLINE, Ballot((1, 2), state(1, [1]), set())))
    assert reason == "no eligible leader: 1 is not online, 2 is not online"


def test_without_candidates_nothing_is_said_of_unclean_elections() -> None:
    reason = str(why_nobody(Strategy.OFFLINE, Ballot((), state(1, [1]), set())))
    assert reason == "no eligible leader: no replica is assigned"


def test_what_holds_unclean_elections_back_is_named_only_where_there_could_be_one() -> None:
    held = Suspension(SuspensionKind.MAINTENANCE, Attribution("outage", "ann"))
    nobody = Ballot((1, 2), state(1, [1]), {2})
    assert str(held) in str(why_nobody(Strategy.OFFLINE, nobody, held))
    assert str(held) not in str(why_nobody(Strategy.REASSIGN, nobody, held))


def test_the_first_choice_of_nobody_is_nobody() -> None:
    nobody = Ballot((), state(1, [1]), set())
    assert {first_choice(strategy, nobody) for strategy in (Strategy.PREFERRED, Strategy.OFFLINE)} == {
        NO_LEADER
    }
