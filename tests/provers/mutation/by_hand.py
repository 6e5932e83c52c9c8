"""Mistakes that a maintainer of this product could make, thought of by hand: none of the small changes of `mutants` is
like them. ``mistakes/`` lists them, a file for each room: each is one change of text in one function.

A row is under the name of its file: ``what`` is wrong, in which function (``in``), and the text that is ``new`` in the
place of ``old``, which must be there once. ``harmless``: why nobody could see it.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.provers.mutation.mutants import Mutant, functions_of
from tests.support.paths import ROOT

LISTS = Path(__file__).parent / "mistakes"


class StaleMistakeError(Exception):
    """The source has moved on: what a mistake replaces is not there exactly once."""


def files(text: str | None = None) -> list[str]:
    """The files that any of them is in."""
    return list(_listed(text))


@dataclass
class Mistakes:
    """``stale``: what the source has moved on from, as text. ``harmless``: why a mistake changes nothing that anybody
    could see, by the mutant's key."""

    planted: list[Mutant]
    stale: list[str]
    harmless: dict[str, str]


def mistakes(trees: Mapping[str, ast.Module], text: str | None = None, folder: Path = ROOT) -> Mistakes:
    """All of these files, in the order of the list. ``trees``: the syntax of the files, which a planted one changes."""
    found = Mistakes([], [], {})
    for file, rows in _listed(text).items():
        if file in trees:
            source = (folder / file).read_text(encoding="utf-8")
            functions = list(functions_of(trees[file]))
            for row in rows:
                try:
                    mutant = _mutant(file, source, trees[file], functions, row)
                except StaleMistakeError as error:
                    found.stale.append(str(error))
                    continue
                found.planted.append(mutant)
                if "harmless" in row:
                    found.harmless[mutant.key] = row["harmless"]
    return found


def _listed(text: str | None) -> dict[str, list[dict[str, str]]]:
    if text is not None:
        return tomllib.loads(text)
    found: dict[str, list[dict[str, str]]] = {}
    for room in sorted(LISTS.rglob("*.toml")):
        rows = tomllib.loads(room.read_text(encoding="utf-8"))
        if strays := [file for file in rows if room_of(file) != room]:
            raise ValueError(f"{room}: {strays} belong to other rooms")
        found |= rows
    return found


def room_of(file: str) -> Path:
    """Where the mistakes of a file of the product are listed."""
    return LISTS / f"{Path(file).parent}.toml"


def _mutant(
    file: str, source: str, tree: ast.Module, functions: list[tuple[str, int, int]], row: dict[str, str]
) -> Mutant:
    name, old = row["in"], row["old"]
    found = [(first, end) for function, first, end in functions if function == name]
    if len(found) != 1:
        raise StaleMistakeError(f"{file}: {name}: there are {len(found)} such functions")
    first, end = found[0]
    lines = source.splitlines(keepends=True)
    before, within, after = (
        "".join(part) for part in (lines[: first - 1], lines[first - 1 : end], lines[end:])
    )
    if within.count(old) != 1:
        raise StaleMistakeError(f"{file}: {name}: it has {within.count(old)} times {old!r}")
    changed = before + within.replace(old, row["new"]) + after
    start = first + within[: within.index(old)].count("\n")
    line = start + _first_difference(old, row["new"])
    return Mutant(file, name, first, line, row["what"], 0, within + old + row["new"], _putter(tree, changed))


def _first_difference(old: str, new: str) -> int:
    """The line of ``old`` in which they differ first, or the next one that is run."""
    before = old.splitlines()
    found = next((n for n, (a, b) in enumerate(zip(before, new.splitlines(), strict=False)) if a != b), 0)
    run = (n for n in range(found, len(before)) if _is_run(before[n].strip()))
    return next(run, found)


def _is_run(line: str) -> bool:
    return bool(line) and not line.startswith("#") and line not in ("else:", "finally:")


def _putter(tree: ast.Module, source: str) -> Callable[[], None]:
    def put() -> None:
        tree.body = ast.parse(source).body

    return put
