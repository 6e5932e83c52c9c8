"""Which brokers may stop together, against every set there is."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.planning import scenarios
from controller.planning import stoppable as module
from controller.planning.partition_health import Health
from controller.planning.scenarios import Step, Terms, broker_loss, newly_troubled, stopped
from controller.planning.stoppable import Why, stoppable
from tests.planning.test_plans import HEALTHY
from tests.support.planning.clusters import BROKERS, Small, smalls

TERMS = Terms()
TWO = Terms(min_isr_default=2)


def subsets(ids: tuple[int, ...]) -> list[tuple[int, ...]]:
    """All, the largest first, of those of a size the first ones first."""
    return list(chain.from_iterable(combinations(ids, size) for size in range(len(ids), -1, -1)))


def may_stop(small: Small, ids: tuple[int, ...], tolerate: bool, min_isr: int) -> bool:
    """By looking at the partitions: what the machine's decisions must come to, were nothing else in the way."""
    for (topic, _), (replicas, _leader, isr) in small.partitions.items():
        wanted = int(small.configs.get(topic, {}).get("min.insync.replicas", min_isr))
        live = set(isr) & set(small.brokers)
        taken = live & set(ids)
        left = live - taken
        if taken and (not left or len(left) < wanted):
            return False
        if taken and not tolerate and not set(replicas) <= live:
            return False
    return True


@given(smalls(settled=True), st.booleans(), st.integers(1, 2))
def test_the_largest_set_is_what_exhaustive_search_finds(small: Small, tolerate: bool, min_isr: int) -> None:
    terms = Terms(min_isr_default=min_isr)
    found = stoppable(small.snapshot(), BROKERS, terms, tolerate_under_replicated=tolerate)
    best = next(ids for ids in subsets(BROKERS) if may_stop(small, ids, tolerate, min_isr))
    assert found.largest == best
    assert found.exact
    assert found.approved == (best == BROKERS)


@given(smalls(), st.data())
def test_an_answer_is_yes_exactly_if_nothing_gets_worse(small: Small, data: st.DataObject) -> None:
    asked = data.draw(st.lists(st.sampled_from(small.brokers), min_size=1, unique=True))
    answer = stoppable(small.snapshot(), asked, TERMS, tolerate_under_replicated=True)
    step = stopped(small.snapshot(), asked, TERMS)
    assert answer.approved == (not newly_troubled(step))
    # Every troubled partition has its reason.
    assert {(r.topic, r.partition) for r in answer.reasons} == set(newly_troubled(step))


@given(smalls(settled=True), st.data())
def test_the_margin_is_how_many_more_may_fail(small: Small, data: st.DataObject) -> None:
    asked = tuple(data.draw(st.lists(st.sampled_from(BROKERS), max_size=2, unique=True)))
    answer = stoppable(small.snapshot(), asked, TERMS, tolerate_under_replicated=True)
    if not answer.approved:
        assert answer.margin is None
        return
    others = [b for b in BROKERS if b not in asked]
    broken_before = set(stopped(small.snapshot(), asked, TERMS).before.under_min_isr)

    def survives(failing: tuple[int, ...]) -> bool:
        """Losing these too breaks no partition that was well."""
        step = broker_loss(small.snapshot(), [*asked, *failing], TERMS).steps[0] if failing or asked else None
        if step is None:
            return True
        troubled = {*step.after.offline, *step.after.under_min_isr, *step.unclean}
        return troubled <= broken_before

    by_size = [all(survives(ids) for ids in combinations(others, n)) for n in range(len(others) + 1)]
    assert answer.margin == (by_size.index(False) - 1 if False in by_size else len(others))


def test_all_reasons_at_once() -> None:
    small = Small(
        (1, 2, 3),
        {
            ("t", 0): ((1, 2, 3), 1, (1, 2)),
            ("t", 1): ((2,), 2, (2,)),
            ("u", 0): ((2, 3), 2, (2,)),
            ("v", 0): ((3, 1), 3, (3, 1)),
        },
        {"u": {"unclean.leader.election.enable": "true"}},
    )
    answer = stoppable(small.snapshot(), [2, 9, 2], TWO, controller_active=False)
    assert answer.brokers == (2, 9)
    assert not answer.approved
    # The words for programs (docs/operations.md).
    assert [(r.why.value, r.topic, r.partition) for r in answer.reasons] == [
        ("no_controller", "", -1),
        ("unknown_broker", "", -1),
        ("under_min_isr", "t", 0),
        ("already_under_replicated", "t", 0),
        ("offline", "t", 1),
        ("under_min_isr", "t", 1),
        ("unclean_election", "u", 0),
        ("already_under_replicated", "u", 0),
    ]
    texts = [r.text for r in answer.reasons]
    assert "broker 9 is not registered: there are 1, 2, 3" in texts
    assert "t-0 would have 1 of 2 in-sync replicas that min.insync.replicas asks for" in texts
    assert "t-0 is under-replicated already: [3] not in sync" in texts
    assert "t-1 would have no leader: its ISR [2] stops as a whole" in texts
    assert "u-0 would be led by 3, which is not in its ISR: records are lost" in texts


@pytest.mark.parametrize("lacking", ["before", "worst"])
def test_a_topic_that_is_there_only_before_or_only_afterwards_forbids_nothing(
    monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    """A deletion may end while the plan runs, and what is being deleted counts no more."""
    small = Small((1, 2), {("t", 0): ((1,), 1, (1,)), ("u", 0): ((1, 2), 1, (1,))})

    def stopped_after(*given: Any) -> tuple[Health, Step]:
        now, step = scenarios.stopped_after(*given)
        getattr(step, lacking).partitions.pop(("t", 0))
        return now, step

    monkeypatch.setattr(module, "stopped_after", stopped_after)
    answer = stoppable(small.snapshot(), [1], TERMS)
    assert {(reason.topic, reason.partition) for reason in answer.reasons} == {("u", 0)}


@pytest.mark.parametrize("path", ["/brokers/ids/4", "/brokers/topics/x", "/config/topics/t"])
def test_what_is_unreadable_is_a_reason(path: str) -> None:
    snapshot = Small((1, 2), {("t", 0): ((1, 2), 1, (1, 2))}).snapshot()
    assert stoppable(snapshot, [1], TERMS).approved
    damaged = replace(snapshot, problems={path: "expected object"})
    (reason,) = stoppable(damaged, [1], TERMS).reasons
    assert reason.why.value == "unreadable"
    assert reason.text == f"the effect on {path} is unknown: expected object"
    several = replace(snapshot, problems={f"/brokers/ids/{n}": "odd" for n in (7, 5, 6)})
    texts = [reason.text for reason in stoppable(several, [1], TERMS).reasons]
    assert texts == [f"the effect on /brokers/ids/{n} is unknown: odd" for n in (5, 6, 7)]


def test_a_replica_that_is_out_of_sync_may_stop() -> None:
    """It is broken already, and takes nothing with it."""
    small = Small((1, 2, 3), {("t", 0): ((1, 2, 3), 1, (1, 2))})
    assert stoppable(small.snapshot(), [3], TWO).approved
    assert not stoppable(small.snapshot(), [2], TERMS).approved
    assert stoppable(small.snapshot(), [2], TERMS, tolerate_under_replicated=True).approved


def test_the_answer_to_one() -> None:
    healthy = Small((1, 2, 3), {k: p for k, p in HEALTHY.partitions.items() if k[0] == "t"})
    answer = stoppable(healthy.snapshot(), [1], TERMS)
    assert (answer.margin, answer.largest, answer.exact) == (1, (1,), True)


def test_many_are_searched_greedily_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EXACT_MAX", 2)
    # Going by id, 1 keeps 2 and 3 from stopping; without it both could.
    small = Small((1, 2, 3), {("t", 0): ((1, 2), 1, (1, 2)), ("t", 1): ((1, 3), 1, (1, 3))})
    answer = stoppable(small.snapshot(), [1, 2, 3], TERMS)
    assert (answer.largest, answer.exact) == ((1,), False)
    answer = stoppable(small.snapshot(), [2, 3, 1], TERMS)
    assert answer.largest == (2, 3)
    led_alone = Small((1, 2, 3), {("t", 0): ((1,), 1, (1,))})
    assert stoppable(led_alone.snapshot(), [1, 2, 3], TERMS).largest == (2, 3)
    monkeypatch.undo()
    answer = stoppable(small.snapshot(), [1, 2, 3], TERMS)
    assert (answer.largest, answer.exact) == ((2, 3), True)


@pytest.mark.parametrize(("asked", "exact"), [(14, True), (15, False)])
def test_up_to_fourteen_brokers_are_searched_exactly(asked: int, exact: bool) -> None:
    ids = tuple(range(1, asked + 1))
    answer = stoppable(Small(ids, {("t", 0): ((1,), 1, (1,))}).snapshot(), ids, TERMS)
    assert (answer.largest, answer.exact) == (ids[1:], exact)


def test_the_margin_counts_nobody_that_is_stopped() -> None:
    snapshot = replace(Small((1, 2, 3), {}).snapshot(), shutting_down=frozenset({2}))
    assert stoppable(snapshot, [1], Terms()).margin == 1


def test_who_is_not_there_is_named_and_who_is_leaving_is_in_order() -> None:
    snapshot = Small((1, 3, 1025), {("t", 0): ((1, 3), 1, (1, 3))}).snapshot()
    answer = stoppable(replace(snapshot, shutting_down=frozenset({1025, 3})), [9], TERMS)
    assert answer.shutting_down == (3, 1025)
    assert [(r.why, r.brokers) for r in answer.reasons if r.why is Why.UNKNOWN_BROKER] == [
        (Why.UNKNOWN_BROKER, (9,))
    ]


@pytest.mark.parametrize(
    ("why", "word"),
    [
        (Why.OFFLINE, "give the partition a replica elsewhere"),
        (Why.UNDER_MIN_ISR, "lower min.insync.replicas"),
        (Why.UNCLEAN, "unclean.leader.election.enable=false"),
        (Why.UNDER_REPLICATED, "--tolerate-under-replicated"),
        (Why.UNREADABLE, "repair or delete that znode"),
        (Why.NO_CONTROLLER, "pctl controllers"),
        (Why.UNKNOWN_BROKER, "pctl brokers"),
    ],
)
def test_each_reason_has_what_removes_it(why: Why, word: str) -> None:
    assert [other for other, change in module.CHANGES.items() if word in change] == [why]
    assert module.Reason(why, "").change == module.CHANGES[why]
