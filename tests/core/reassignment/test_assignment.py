"""Assignments during a reassignment, and which targets there may be."""

from __future__ import annotations

import pytest

from controller.core.model import BROKER_ID_MAX, REPLICAS_MAX
from controller.core.reassignment.assignment import Assignment, target_problem


def test_cancelling_restores_the_order_that_there_was() -> None:
    running = Assignment((1, 2, 3)).reassign_to((3, 4))
    assert running == Assignment((3, 4, 1, 2), (4,), (1, 2))
    assert running.cancelled((2, 1, 3)).replicas[:3] == (2, 1, 3)
    assert running.cancelled((2, 1)).replicas[:3] == (3, 1, 2), "it names others: the order of now"


@pytest.mark.parametrize("target", [(0,), (BROKER_ID_MAX, 0), tuple(range(REPLICAS_MAX))])
def test_targets_up_to_the_limits_are_allowed(target: tuple[int, ...]) -> None:
    assert target_problem(target) == ""


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ((), "must name at least one"),
        (tuple(range(REPLICAS_MAX + 1)), f"{REPLICAS_MAX + 1} replicas: must be at most {REPLICAS_MAX}"),
        ((3, 1, 3, 2, 1), "must be distinct, [1, 3] are not"),
        ((BROKER_ID_MAX + 1, 0, -1), f"must be from 0 to {BROKER_ID_MAX}, [{BROKER_ID_MAX + 1}, -1] are not"),
    ],
)
def test_others_are_refused_by_name(target: tuple[int, ...], words: str) -> None:
    assert words in target_problem(target)
