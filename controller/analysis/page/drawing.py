"""Drawings for the page: SVG without scripts, in the page's own colours. A shape's title is its tooltip.

All text is escaped here. Not here: what is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from markupsafe import Markup

WIDTH = 1160
_TOP, _RIGHT, _BOTTOM, _CHAR = 34, 24, 46, 6.7
_LABEL_MAX = 64
_TICKS_MAX = 9
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)

_FRAME = Markup('<svg class="chart" viewBox="0 0 {} {:.0f}" role="img">{}</svg>')
_RECTANGLE = Markup(
    '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}"><title>{}</title></rect>'
)
_LINE = Markup('<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" class="{}"><title>{}</title></line>')
_PATH = Markup('<path d="{}" fill="{}" fill-opacity=".3" stroke="{}"><title>{}</title></path>')
_WORDS = Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>')


@dataclass(frozen=True)
class Scale:
    """An axis: ``place`` gives the coordinate of a value; ``ticks``: values and their labels."""

    place: Callable[[float], float]
    ticks: Sequence[tuple[float, str]]


@dataclass(frozen=True)
class Part:
    """A part of a bar; a negative ``size`` goes to the left."""

    size: float
    color: str
    tip: str


@dataclass(frozen=True)
class Bar:
    """A row of a bar chart: its parts lie end to end or, in a grouped chart, one below the other."""

    label: str
    parts: Sequence[Part]


@dataclass
class Drawing:
    """Collects shapes in a rectangle of WIDTH and ``height``, and the names and colours of its legend."""

    height: float
    legend: dict[str, str] = field(default_factory=dict)
    _shapes: list[Markup] = field(default_factory=list)

    def rectangle(self, x: float, y: float, width: float, height: float, color: str, tip: str) -> None:
        self._add(_RECTANGLE, x, y, max(width, 0.5), max(height, 0.5), color, tip)

    def line(self, ends: tuple[float, float, float, float], style: str, tip: str = "") -> None:
        self._add(_LINE, *ends, style, tip)

    def path(self, points: str, color: str, tip: str) -> None:
        self._add(_PATH, points, color, color, tip)

    def text(self, x: float, y: float, anchor: str, content: str) -> None:
        self._add(_WORDS, x, y, anchor, shortened(content))

    def across(self, scale: Scale, top: float, bottom: float, title: str) -> None:
        """A horizontal axis with its grid."""
        for value, label in scale.ticks:
            x = scale.place(value)
            self.line((x, top, x, bottom), "grid")
            self.text(x, bottom + 17, "middle", label)
        self.text(WIDTH / 2, bottom + 38, "middle", title)

    def up(self, scale: Scale, left: float, right: float, title: str) -> None:
        """A vertical axis with its grid."""
        for value, label in scale.ticks:
            y = scale.place(value)
            self.line((left, y, right, y), "grid")
            self.text(left - 8, y + 4, "end", label)
        self.text(0, 12, "start", title)

    def done(self) -> Markup:
        x = 150.0
        for name, color in self.legend.items():
            shown = shortened(name)
            if x + 30 + _CHAR * len(shown) > WIDTH:
                break
            self.rectangle(x, 3, 11, 11, color, name)
            self.text(x + 16, 13, "start", shown)
            x += 36 + _CHAR * len(shown)
        return _FRAME.format(WIDTH, self.height, Markup("").join(self._shapes))

    def _add(self, shape: Markup, *values: object) -> None:
        self._shapes.append(shape.format(*values))


def shortened(text: str) -> str:
    return text if len(text) <= _LABEL_MAX else text[: _LABEL_MAX - 1] + "…"


def bars(
    rows: Sequence[Bar], title: str, legend: dict[str, str], *, log: bool = False, grouped: bool = False
) -> Markup:
    """Horizontal bars, the first row on top. ``log``: a logarithmic axis from 1."""
    row_height = 30 if grouped else 26
    left = min(460.0, 20 + _CHAR * max((len(shortened(row.label)) for row in rows), default=0))
    bottom = _TOP + row_height * len(rows)
    drawing = Drawing(bottom + _BOTTOM, legend)
    reach = [
        sum(part.size for part in row.parts if (part.size > 0) is right)
        for row in rows
        for right in (True, False)
    ]
    if grouped:
        reach = [part.size for row in rows for part in row.parts]
    low, high = min([0.0, *reach]), max([0.0, *reach])
    scale = _logarithmic(high, left, WIDTH - _RIGHT) if log else linear(low, high, left, WIDTH - _RIGHT)
    drawing.across(scale, _TOP, bottom, title)
    for number, row in enumerate(rows):
        y, ends, thick = _TOP + row_height * number + 4, {True: 0.0, False: 0.0}, row_height - 8
        drawing.text(left - 8, y + thick / 2 + 4, "end", row.label)
        for place, part in enumerate(row.parts):
            begin = 0.0 if grouped else ends[part.size > 0]
            ends[part.size > 0] = end = begin + part.size
            first, last = sorted((scale.place(begin), scale.place(end)))
            each = thick / len(row.parts) if grouped else thick
            drawing.rectangle(
                first, y + (place * each if grouped else 0), last - first, each, part.color, part.tip
            )
    return drawing.done()


def linear(low: float, high: float, start: float, end: float) -> Scale:
    """From ``low`` to ``high``, at ``start`` and ``end`` of the drawing."""
    span = (high - low) or 1.0
    step = 10.0 ** math.floor(math.log10(span / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= _TICKS_MAX)
    first, last = math.ceil(low / step), math.floor(high / step)
    ticks = [(number * step, f"{number * step:,.10g}") for number in range(first, last + 1)]
    return Scale(lambda value: start + (value - low) / span * (end - start), ticks)


def _logarithmic(high: float, start: float, end: float) -> Scale:
    """From a half, so that a bar of 1 is seen."""
    decades = max(1, math.ceil(math.log10(max(high, 1))))
    per_decade = (end - start) / (decades + math.log10(2))

    def place(value: float) -> float:
        return start + math.log10(max(value, 0.5) / 0.5) * per_decade

    return Scale(place, [(10.0**power, f"{10**power:,}") for power in range(decades + 1)])


def times(first: datetime, last: datetime, start: float, end: float) -> Scale:
    """A time axis in seconds since 1970, with round times as ticks."""
    low, high = first.timestamp(), last.timestamp()
    span = (high - low) or 1.0
    step = next((step for step in _STEPS_S if span / step <= _TICKS_MAX), 86400 * math.ceil(span / 86400 / 8))
    form = "%H:%M:%S" if step < 60 else "%H:%M" if step < 86400 else "%Y-%m-%d"
    marks: Iterable[int] = range(math.ceil(low / step) * step, math.floor(high) + 1, step)
    ticks = [(float(mark), datetime.fromtimestamp(mark, UTC).strftime(form)) for mark in marks]
    return Scale(lambda value: start + (value - low) / span * (end - start), ticks)
