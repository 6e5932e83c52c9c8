"""Formatting of values for the page and the terminal, and columns of tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_FLOOR, Decimal
from typing import Any

Show = Callable[[Any], str]


@dataclass(frozen=True)
class ShownColumn:
    """One column of a table on the page."""

    header: str
    key: str
    show: Show
    numeric: bool = False


def human_us(microseconds: float) -> str:
    """A duration as text: three digits and a unit."""
    if microseconds < 0:
        return "−" + human_us(-microseconds)
    for unit, size, limit in (("µs", 1.0, 1e3), ("ms", 1e3, 1e6), ("s", 1e6, 120e6), ("min", 60e6, 7200e6)):
        if microseconds < limit:
            return f"{microseconds / size:.3g} {unit}"
    hours = microseconds / 3600e6
    return f"{hours:.3g} h" if hours < 72 else f"{hours / 24:,.0f} days"


def iso(moment: datetime) -> str:
    """UTC, to the second."""
    return moment.strftime("%Y-%m-%d %H:%M:%SZ")


def text(value: Any) -> str:
    if value is None:
        return "—"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    if isinstance(value, list):
        return "; ".join(map(str, value)) or "—"
    return str(value)


def number(value: Any) -> str:
    return "—" if value is None else f"{value:,}"


def span(value: Any) -> str:
    return "—" if value is None else human_us(value)


def yes(value: Any) -> str:
    return "yes" if value else ""


def size(value: Any) -> str:
    return f"{value / 1e6:,.1f} MB"


def percent(value: Any) -> str:
    """Rounded down to four digits after the point, so that only what is whole is shown as 100 %."""
    if value is None:
        return "—"
    return f"{Decimal(repr(value)).quantize(Decimal('0.0001'), ROUND_FLOOR).normalize():,f} %"


def named(absent: str) -> Show:
    """Shows a value as `text` does, and null by this name."""
    return lambda value: absent if value is None else text(value)


def texts(*names: str) -> list[ShownColumn]:
    return [ShownColumn(name.replace("_", " "), name, text) for name in names]


def numbers(*names: str) -> list[ShownColumn]:
    return [ShownColumn(name.replace("_", " "), name, number, numeric=True) for name in names]


def spans(*names: str) -> list[ShownColumn]:
    return [
        ShownColumn(name.removesuffix("_us").replace("_", " "), name, span, numeric=True) for name in names
    ]


def percents(*names: str) -> list[ShownColumn]:
    return [ShownColumn(name.replace("_", " "), name, percent, numeric=True) for name in names]
