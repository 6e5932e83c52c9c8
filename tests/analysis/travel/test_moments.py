"""Moments, and which epoch was the last before them; no Spark."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from controller.analysis.errors import ReportError
from controller.analysis.travel.job import _controller_state, _gaps
from controller.analysis.travel.moments import Corrections, Moment, Term, cut_at, parse_moment

ZERO_US = 1_768_384_800_000_000
ZERO = "2026-01-14T10:00:00Z"
#: Epoch 2 was not ready when epoch 3 began; epoch 4 is of a clock that is an hour behind.
TERMS = [
    Term(1, 1, 1_000, ready_us=2_000, ready_event=1, brokers=3, partitions=5, counted_us=1_500),
    Term(2, 2, 10_000),
    Term(3, 1, 20_000, ready_us=21_000, ready_event=4),
    Term(4, 2, 30_000 - 3_600_000_000, ready_us=31_000 - 3_600_000_000, ready_event=1),
]
BEHIND = {("controller", 2): 3_600_000_000}


@pytest.mark.parametrize(
    ("given", "moment"),
    [
        (7, Moment("7", epoch=7)),
        ("7", Moment("7", epoch=7)),
        ("7:12", Moment("7:12", epoch=7, event=12)),
        (ZERO, Moment(ZERO, at_us=ZERO_US)),
        (datetime(2026, 1, 14, 10, tzinfo=UTC), Moment("2026-01-14T10:00:00+00:00", at_us=ZERO_US)),
        (
            datetime(2026, 1, 14, 12, tzinfo=timezone(timedelta(hours=2))),
            Moment("2026-01-14T10:00:00+00:00", at_us=ZERO_US),
        ),
    ],
)
def test_a_moment_is_a_time_an_epoch_or_an_event(given: str | int | datetime, moment: Moment) -> None:
    assert parse_moment(given) == moment


@pytest.mark.parametrize("given", ["yesterday", "2026-01-14T10:00:00", "7:", "-1", datetime(2026, 1, 14)])  # noqa: DTZ001
def test_anything_else_is_refused_with_what_is_allowed(given: str | datetime) -> None:
    with pytest.raises(ReportError, match=r"must be a time like|needs its offset"):
        parse_moment(given)


@pytest.mark.parametrize(
    ("brokers", "named", "all_of_them"), [(3, 3, True), (3, 4, True), (3, 1, False), (None, 3, False)]
)
def test_all_brokers_are_named_or_not(brokers: int | None, named: int, all_of_them: bool) -> None:
    assert replace(TERMS[0], brokers=brokers, named=named).names_all_brokers is all_of_them


@pytest.mark.parametrize(
    ("at_us", "epoch", "base"),
    [(1_000, 1, None), (2_000, 1, 1), (15_000, 2, 1), (20_500, 3, 1), (21_000, 3, 3)],
)
def test_the_last_epoch_that_had_begun_and_the_last_failover_that_was_over(
    at_us: int, epoch: int, base: int | None
) -> None:
    cut = cut_at(Moment("t", at_us=at_us), TERMS[:3], {})
    assert (cut.term.epoch, cut.base and cut.base.epoch) == (epoch, base)


@pytest.mark.parametrize(("event", "base"), [(None, 3), (3, 1), (4, 3), (5, 3)])
def test_the_event_that_ends_a_failover_is_after_it(event: int | None, base: int) -> None:
    cut = cut_at(Moment("t", epoch=3, event=event), TERMS[:3], {})
    assert (cut.base and cut.base.epoch, cut.event) == (base, 4 if event is None else event)


def test_a_clock_that_is_behind_is_corrected_first() -> None:
    assert cut_at(Moment("t", at_us=25_000), TERMS, {}).term.epoch == 4
    assert cut_at(Moment("t", at_us=25_000), TERMS, BEHIND).term.epoch == 3
    assert cut_at(Moment("t", at_us=30_000), TERMS, BEHIND).term.epoch == 4


@pytest.mark.parametrize(
    ("at_us", "corrections", "state"),
    [
        (1_500, {}, "failing over"),
        (2_000, {}, "active"),
        (8_999, {}, "active"),
        (9_000, {}, "resigned"),
        (9_000, {("controller", 1): 500, ("broker", 1): -9_000}, "active"),
        (9_500, {("controller", 1): 500}, "resigned"),
    ],
)
def test_a_controller_has_resigned_once_its_corrected_clock_says_so(
    at_us: int, corrections: Corrections, state: str
) -> None:
    term = replace(TERMS[0], resigned_us=9_000)
    assert _controller_state(cut_at(Moment("t", at_us=at_us), [term], corrections), corrections) == state


@pytest.mark.parametrize(
    ("expected", "listed", "told"),
    [
        (5, 5, []),
        (5, 4, ["1 more partitions existed, and no record names them"]),
        (5, 7, ["2 partitions were gone by then: their deletion is not in the logs"]),
        (None, 7, ["a topic was removed by hand: how many partitions there were is not known"]),
    ],
)
def test_what_is_missing_of_the_partitions_that_were_counted_is_told(
    expected: int | None, listed: int, told: list[str]
) -> None:
    cut = cut_at(Moment("t", at_us=2_000), [replace(TERMS[0], named=3)], {})
    assert _gaps(cut, {"unknown": 0, "replicas_unknown": 0}, expected, listed) == told


def test_an_epoch_is_its_end_of_failover_and_an_event_what_it_says() -> None:
    assert cut_at(Moment("3", epoch=3), TERMS, {}).event == 4
    assert cut_at(Moment("3:2", epoch=3, event=2), TERMS, {}).base is TERMS[0]
    assert cut_at(Moment("3:4", epoch=3, event=4), TERMS, {}).base is TERMS[2]
    assert cut_at(Moment("3:9", epoch=3, event=9), TERMS, {}).base is TERMS[2]


@pytest.mark.parametrize(
    ("moment", "message"),
    [
        (Moment("9", epoch=9), "controller epoch 9: not in the logs, which have 1 to 4"),
        (Moment("2", epoch=2), "controller epoch 2: .* end of its failover; an event of it is 2:EVENT"),
        (
            Moment("long ago", at_us=999),
            "long ago: before the logs' first record .* 1970-01-01T00:00:00.001000Z",
        ),
    ],
)
def test_what_the_logs_do_not_have_is_an_error_that_says_what_they_have(moment: Moment, message: str) -> None:
    with pytest.raises(ReportError, match=message):
        cut_at(moment, TERMS, BEHIND)


def test_brokers_logs_alone_tell_no_moment() -> None:
    with pytest.raises(ReportError, match="no controller's records"):
        cut_at(Moment("1", epoch=1), [], {})


@pytest.mark.parametrize(
    ("counted", "told"),
    [
        (3, "the controller of epoch 1 counted 3 brokers at its failover, and the logs name 2 of them"),
        (None, "the controller of epoch 1 found brokers, and the logs name 2 of them"),
    ],
)
def test_brokers_that_the_logs_do_not_name_are_a_gap(counted: int | None, told: str) -> None:
    cut = cut_at(Moment("t", at_us=2_000), [replace(TERMS[0], brokers=counted, named=2)], {})
    assert _gaps(cut, {"unknown": 2, "replicas_unknown": 1_000}, None, 0) == [
        told,
        "2 partitions are named only later: their state was not known",
        "of 1,000 partitions the replicas are not in the logs",
        "a topic was removed by hand: how many partitions there were is not known",
    ]
