"""The table in docs/planted-bugs.md, between its markers."""

from __future__ import annotations

from collections.abc import Sequence

from tests.provers.sim.planted.catalogue import FAULTS
from tests.provers.sim.planted.search import Found, in_short
from tests.support.paths import DOCS

PAGE = DOCS / "planted-bugs.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
HEAD = (
    "| fault | what is wrong | in | seeds | told of by |",
    "|---|---|---|---|---|",
)


_KINDS = ("core", "driver", "broker")


def rows(results: Sequence[Found], known: str = "") -> list[str]:
    """Markdown, by kind, those found last at the end of each. ``known``: the page, with rows of faults that were not
    looked for."""
    found = {
        one.fault.name: f"| {one.fault.name} | {one.fault.what} | `{one.fault.file}` | {one.seed or 'not found'} "
        f"| {_cell(in_short(one.violation))} |"
        for one in results
    }
    before = _rows(known)
    rows = {name: found.get(name) or before.get(name, "") for name in FAULTS}
    return sorted(filter(None, rows.values()), key=_order)


def seeds() -> dict[str, int]:
    """Which seed found which fault, by the page."""
    found = {name: row.split(" | ")[3] for name, row in _rows(PAGE.read_text(encoding="utf-8")).items()}
    return {name: int(seed) for name, seed in found.items() if seed.isdigit()}


def _rows(page: str) -> dict[str, str]:
    return {row.split(" | ")[0].removeprefix("| "): row for row in page.splitlines() if " | `" in row}


def _order(row: str) -> tuple[int, int]:
    cells = row.split(" | ")
    return _KINDS.index(FAULTS[cells[0].removeprefix("| ")].kind), int(cells[3]) if cells[
        3
    ].isdigit() else 1 << 30


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def write(results: Sequence[Found]) -> None:
    """Rows of other faults stay, and come to the table from wherever they are on the page. Raises ValueError when that
    has lost its markers."""
    page = PAGE.read_text(encoding="utf-8")
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} has no lines {BEGIN} and {END}")
    lines = [BEGIN, "", *HEAD, *rows(results, page), "", END]
    PAGE.write_text(before + "\n".join(lines) + after, encoding="utf-8")
