"""When a controller exceeds an epoch that brokers have seen, and when it does not."""

from __future__ import annotations

from controller.core.model import EPOCH_MAX
from controller.runtime.election.higher_epochs import RESERVE, TIMES_MAX, WINDOW_S, Outranked


def test_only_a_higher_epoch_is_exceeded() -> None:
    outranked = Outranked()
    assert not outranked.may_exceed(1, 0.0)
    outranked.seen(5)
    assert not outranked.may_exceed(5, 0.0)
    assert outranked.may_exceed(4, 0.0)


def test_a_broker_that_lies_makes_nobody_elect_for_ever() -> None:
    outranked = Outranked()
    times = 0
    for epoch in range(1, 10):
        outranked.seen(epoch + 1)
        times += outranked.may_exceed(epoch, float(epoch))
    assert times == TIMES_MAX == 3
    assert "a broker may be naming epochs" in outranked.problem(9, 9.0)
    assert outranked.may_exceed(9, WINDOW_S + 10)


def test_no_epoch_is_exceeded_that_leaves_too_few() -> None:
    outranked = Outranked()
    outranked.seen(EPOCH_MAX - RESERVE + 1)
    assert not outranked.may_exceed(1, 0.0)
    assert "restart them" in outranked.problem(1, 0.0)


def test_the_highest_counts_not_the_newest() -> None:
    outranked = Outranked()
    for epoch in (9, 5):
        outranked.seen(epoch)
    assert outranked.may_exceed(7, 0.0)


def test_the_window_begins_with_the_first_of_the_last_times() -> None:
    outranked = Outranked()
    outranked.seen(100)
    for number in range(TIMES_MAX):
        assert outranked.may_exceed(number, number * WINDOW_S / 4)
    assert not outranked.may_exceed(10, WINDOW_S - 1)
    assert outranked.may_exceed(10, WINDOW_S + 1)


def test_who_is_as_high_has_no_problem() -> None:
    outranked = Outranked()
    outranked.seen(EPOCH_MAX)
    assert outranked.problem(EPOCH_MAX - 1, 0.0)
    assert outranked.problem(EPOCH_MAX, 0.0) == ""


def test_the_problem_is_over_with_the_window() -> None:
    outranked = Outranked()
    outranked.seen(100)
    for number in range(TIMES_MAX):
        assert outranked.may_exceed(number, 1000.0)
    assert "exceeded" in outranked.problem(10, 1000.0 + WINDOW_S - 1)
    assert outranked.problem(10, 1000.0 + WINDOW_S) == ""
