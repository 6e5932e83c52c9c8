"""The table in docs/planted-bugs.md, between its markers."""

from __future__ import annotations

from collections.abc import Sequence

from tests.provers.sim.planted.search import Found, in_short
from tests.support.paths import DOCS

PAGE = DOCS / "planted-bugs.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
HEAD = (
    "| fault | what is wrong | in | seeds | told of by |",
    "|---|---|---|---|---|",
)


def rows(results: Sequence[Found]) -> list[str]:
    """Markdown, by kind, those found last at the end of each."""
    kinds = ("core", "driver", "broker")
    ordered = sorted(results, key=lambda found: (kinds.index(found.fault.kind), found.seed or 1 << 30))
    return [
        f"| {found.fault.name} | {found.fault.what} | `{found.fault.file}` | {found.seed or 'not found'} "
        f"| {_cell(in_short(found.violation))} |"
        for found in ordered
    ]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def write(results: Sequence[Found]) -> None:
    """Raises ValueError when the page has lost its markers."""
    page = PAGE.read_text(encoding="utf-8")
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} has no lines {BEGIN} and {END}")
    lines = [BEGIN, "", *HEAD, *rows(results), "", END]
    PAGE.write_text(before + "\n".join(lines) + after, encoding="utf-8")
