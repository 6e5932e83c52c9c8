"""The work of each core event grows at most as n log n with its input."""

from __future__ import annotations

import pytest

from controller.core.events import EventKind
from tests.linear.events import ROWS, every
from tests.linear.steps import Make, check


def test_every_event_has_a_row() -> None:
    assert set(ROWS) == set(EventKind)
    assert all(ROWS.values())


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in every()])
def test_the_work_of_an_event(make: Make) -> None:
    check(make, 24)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in every()])
def test_the_work_of_a_large_event(make: Make) -> None:
    check(make, 200)
