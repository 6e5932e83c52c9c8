"""Counts the steps of our code: lines that the interpreter runs in it, and comparisons of broker ids in its C code.

Seconds depend on the machine, steps do not. What C code does without comparing ids is not seen: copies of tuples, for
example, which take a thousandth of a step for each element.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from tests.support.paths import ROOT

_OURS = (str(ROOT / "controller"), str(ROOT / "proto"), __file__)
#: The world of the core's tests is made of it.
_NOT_COUNTED = (str(ROOT / "controller" / "planning"),)


class Id(int):
    """A broker id whose comparisons are steps: to search a tuple compares with each of its elements."""

    def __eq__(self, other: object) -> bool:
        return int.__eq__(self, other)

    __hash__ = int.__hash__


def ids(numbers: Sequence[int]) -> tuple[int, ...]:
    """Each number is another object than any equal one: Python compares equal objects, but not the same one."""
    return tuple(Id(number) for number in numbers)


class Steps:
    """Counts while it is entered."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Steps:
        self._before = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _call(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        del event, argument
        file = frame.f_code.co_filename
        if not file.startswith(_OURS) or file.startswith(_NOT_COUNTED):
            return None
        self.count += 1
        return self._line

    def _line(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        del frame, argument
        self.count += event == "line"
        return self._line


def steps(do: Callable[[], object]) -> int:
    with Steps() as counted:
        do()
    return counted.count


#: Prepares the work of a size; what that returns does the work and returns its steps.
Make = Callable[[int], Callable[[], int]]


#: Steps added by the second doubling, over those added by the first: 2 for linear work, 4 for quadratic work. A little
#: more than n log n takes at these sizes.
GROWTH_MAX = 2.6
#: Fewer steps than this are no growth, only the noise of caches.
NOISE = 40


def check(make: Make, size: int) -> None:
    """Work at a size, doubled twice, must not grow faster than n log n."""
    make(size)()  # What is done only once is no growth.
    counts = [make(n)() for n in (size, 2 * size, 4 * size)]
    first, second = counts[1] - counts[0], counts[2] - counts[1]
    grows = second / max(first, NOISE)
    assert grows <= GROWTH_MAX, (
        f"steps at sizes {size}, {2 * size}, {4 * size}: {counts}: grows by {grows:.1f}"
    )
