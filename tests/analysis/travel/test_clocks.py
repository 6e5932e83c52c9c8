"""Corrections of clocks, from what requests and epochs prove."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from controller.analysis.travel.clocks import (
    EPOCHS,
    PUSHES,
    Bound,
    _by_epochs,
    bounds_of,
    corrections_of,
    skew_table,
)
from controller.analysis.travel.moments import Term
from controller.analysis.travel.terms import terms_of
from tests.analysis.conftest import Records, rows
from tests.support.analysis.records import record

C1, C2 = ("controller", 1), ("controller", 2)
B1, B2, B3 = ("broker", 1), ("broker", 2), ("broker", 3)


@pytest.mark.parametrize(
    ("least", "most", "correction", "consistent"),
    [
        (-5, 7, 0, True),
        (3, 7, 3, True),
        (-9, -4, -4, True),
        (3, None, 3, True),
        (-3, None, 0, True),
        (8, 2, 0, False),
    ],
)
def test_the_smallest_correction_that_puts_the_records_in_order(
    least: int, most: int | None, correction: int, consistent: bool
) -> None:
    bound = Bound(B1, C1, PUSHES, 1, least, most)
    assert (bound.correction_us, bound.consistent) == (correction, consistent)


def test_one_clock_among_many_is_corrected_and_not_the_others() -> None:
    good = [Bound(broker, C1, PUSHES, 9, -10, 20) for broker in (B1, B2, B3)]
    ahead = [Bound(broker, C2, PUSHES, 9, 5_000 - 10, 5_000 + 20) for broker in (B1, B2, B3)]
    back = corrections_of([*good, *ahead])
    assert {node: us for node, us in back.items() if us} == {C2: -4_990}
    behind = [Bound(broker, C2, PUSHES, 9, -5_000 - 10, -5_000 + 20) for broker in (B1, B2, B3)]
    assert {node: us for node, us in corrections_of([*good, *behind]).items() if us} == {C2: 4_980}


def test_clocks_that_agree_are_left_alone() -> None:
    assert set(
        corrections_of([Bound(B1, C1, PUSHES, 9, -10, 20), Bound(C2, C1, EPOCHS, 1, -7)]).values()
    ) == {0}


def test_epochs_count_where_requests_do_not_contradict_them() -> None:
    later = Bound(C2, C1, EPOCHS, 1, 60_000)
    assert corrections_of([later]) in ({C1: 0, C2: 60_000}, {C1: -60_000, C2: 0})
    tight = [Bound(B1, C1, PUSHES, 9, -10, 20), Bound(B1, C2, PUSHES, 9, -10, 20)]
    assert set(corrections_of([*tight, later]).values()) == {0}


def test_only_another_controller_s_term_tells_of_its_clock() -> None:
    terms = [
        Term(epoch, node, began_us, last_us)
        for epoch, node, began_us, last_us in (
            (1, 1, 0, 50),
            (2, 1, 40, None),
            (3, 2, 30, 90),
            (4, 1, 85, 99),
        )
    ]
    assert _by_epochs(terms) == [Bound(C1, C2, EPOCHS, 1, 5)]


def test_a_pair_that_contradicts_itself_corrects_nothing() -> None:
    assert corrections_of([Bound(B1, C1, PUSHES, 9, 100, -100)]) == {}


def test_a_pair_that_contradicts_itself_hides_no_other() -> None:
    corrections = corrections_of([Bound(B1, C1, PUSHES, 9, 8, 2), Bound(B2, C1, PUSHES, 9, 50, 60)])
    assert {node: us for node, us in corrections.items() if us} in ({B2: 50}, {C1: -50})


@pytest.mark.slow
def test_bounds_come_from_requests_and_from_the_order_of_epochs(
    records: Records, spark: SparkSession
) -> None:
    """Broker 2's clock is 3 s ahead; a late copy of a request that it refused counts nothing."""
    push: dict[str, Any] = {"replica": 2, "to": "LeaderAndIsr"}
    of_broker: dict[str, Any] = {"role": "broker", "node": 2, "topic": "t", "partition": 0}
    given = records(
        [
            record("push", 1, event_id=5, **push),
            record("replica", 4.1, event_id=5, to="leader", replica=2, **of_broker),
            record("ack", 1.5, event_id=5, duration_us=1, **push),
            record("push", 2, event_id=6, **push),
            record("unchanged", 5.2, event_id=6, **{**of_broker, "count": 1}),
            record("ack", 2.3, event_id=6, duration_us=1, **push),
            record("reject", 50, event_id=6, error="STALE_CONTROLLER_EPOCH", **of_broker),
            record("leader", 3, event_id=7, old="1", to="2", topic="t", partition=0),
            record("controller", 2.9, event_id=1, node=2, controller_epoch=2, to="active"),
        ]
    )
    bounds = bounds_of(given, terms_of(given))
    assert bounds == [
        Bound(B2, C1, PUSHES, 2, -3_100_000, -2_900_000),
        Bound(C2, C1, EPOCHS, 1, 100_000),
    ]
    table = skew_table(spark, bounds, corrections_of(bounds))
    columns = ("role", "node", "against_node", "evidence", "correction_us", "consistent", "applied_us")
    assert rows(table, *columns) == [
        ("broker", 2, 1, PUSHES, -2_900_000, True, -3_000_000),
        ("controller", 2, 1, EPOCHS, 100_000, True, 0),
    ]
