"""Branches that no seed can reach, or none needs to, and why: ``unreached.toml``.

A branch is known by its file, its function and the text of its line, so that an entry outlives other changes. ``*``
stands for all lines of a function, or all functions of a file.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.support.paths import ROOT

EXPLAINED = Path(__file__).parent / "unreached.toml"


ALL = "*"


class Place(NamedTuple):
    """``function``: with its class, empty outside of any; ``text``: of the line, without its indentation."""

    file: str
    function: str
    text: str

    def within(self) -> tuple[Place, Place, Place]:
        """Itself, its function, its file: what an entry may be about."""
        return self, self._replace(text=ALL), self._replace(function=ALL, text=ALL)


def explained() -> dict[Place, str]:
    """The reason of each."""
    files = tomllib.loads(EXPLAINED.read_text(encoding="utf-8"))
    return {
        Place(file, function, text): reason
        for file, functions in files.items()
        for function, lines in functions.items()
        for text, reason in lines.items()
    }


def place_of(file: str, line: int) -> Place:
    """``line`` counts from 1."""
    text = _text(file)[line - 1].strip()
    inside = [(first, name) for first, last, name in _functions(file) if first <= line <= last]
    return Place(file, max(inside, default=(0, ""))[1], text)


def places(file: str) -> set[Place]:
    """What an entry of a file may be about."""
    lines = (place_of(file, number) for number in range(1, len(_text(file)) + 1))
    return {place for line in lines for place in line.within()}


@cache
def _text(file: str) -> list[str]:
    return (ROOT / file).read_text(encoding="utf-8").splitlines()


@cache
def _functions(file: str) -> list[tuple[int, int, str]]:
    return list(_defined(ast.parse("\n".join(_text(file))), ""))


def _defined(node: ast.AST, within: str) -> Iterator[tuple[int, int, str]]:
    """First line, last line and name of each function, those inside of others after them."""
    for child in ast.iter_child_nodes(node):
        name = within
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{within}.{child.name}" if within else child.name
            if not isinstance(child, ast.ClassDef):
                yield child.lineno, child.end_lineno or child.lineno, name
        yield from _defined(child, name)
