"""Code found by its syntax: patterns are Python with wildcards, so names of variables and layout do not matter.

``_`` and one letter (``_p``) stands for any expression or name, the same one wherever it occurs in the pattern;
``...`` for any row of arguments or of statements. A pattern of one expression is found wherever that expression is;
one of statements where they follow each other. In the replacement, wildcards stand for what they were found as.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import Any

_WILDCARD = re.compile(r"_[a-z]")
#: What wildcards stand for; ``...`` by their place among the ``...`` of the pattern.
Found = dict[str | int, Any]


class PatternError(Exception):
    """A pattern is not there exactly once, or what it is looked for in is not there."""


def replace(module: ast.Module, function: str, pattern: str, replacement: str) -> None:
    """``function``: its qualified name, or "" for the whole module. Raises PatternError."""
    scope = scope_of(module, function)
    wanted, new = ast.parse(pattern).body, ast.parse(replacement).body
    if unknown := _wildcards(new) - _wildcards(wanted):
        raise PatternError(
            f"{', '.join(sorted(unknown))}: in the replacement, but not in the pattern:\n{pattern}"
        )
    look = _expressions if _is_expression(wanted) and _is_expression(new) else _rows
    places = list(look(scope, wanted))
    if len(places) != 1:
        raise PatternError(f"found {len(places)} times in {function or 'the module'}:\n{pattern}")
    places[0](new)


def _wildcards(body: Sequence[ast.stmt]) -> set[str]:
    nodes = [node for statement in body for node in ast.walk(statement)]
    return {node.id for node in nodes if isinstance(node, ast.Name) and _WILDCARD.fullmatch(node.id)}


def _is_expression(body: Sequence[ast.stmt]) -> bool:
    return len(body) == 1 and isinstance(body[0], ast.Expr)


def scope_of(module: ast.Module, function: str) -> ast.AST:
    """The definition of that qualified name. Raises PatternError."""
    scope: ast.AST = module
    for name in function.split(".") if function else ():
        named = [
            node
            for node in ast.walk(scope)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == name
        ]
        if len(named) != 1 and scope is module:
            named = [node for node in named if node in module.body]
        if len(named) != 1:
            raise PatternError(f"{function}: {name} is defined {len(named)} times")
        scope = named[0]
    return scope


#: Puts a replacement where a pattern was found.
Put = Callable[[list[ast.stmt]], None]


def _expressions(scope: ast.AST, wanted: Sequence[ast.stmt]) -> Iterator[Put]:
    assert isinstance(wanted[0], ast.Expr)
    for parent, field, place, node in _children(scope):
        found: Found = {}
        if isinstance(node, ast.expr) and _matches(wanted[0].value, node, found):
            yield partial(_put_expression, found, parent, field, place, node)


def _put_expression(
    found: Found, parent: ast.AST, field: str, place: int | None, old: ast.expr, new: list[ast.stmt]
) -> None:
    assert isinstance(new[0], ast.Expr)
    made = _Filled(found, old).visit(new[0].value)
    if place is None:
        setattr(parent, field, made)
    else:
        getattr(parent, field)[place] = made


def _rows(scope: ast.AST, wanted: Sequence[ast.stmt]) -> Iterator[Put]:
    for node in ast.walk(scope):
        for field in ("body", "orelse", "finalbody"):
            body = getattr(node, field, None)
            row: list[ast.stmt] = body if isinstance(body, list) else []  # a lambda has an expression there
            for first, end in combinations(range(len(row) + 1), 2):
                found: Found = {}
                if _row_matches(wanted, row[first:end], found):
                    yield partial(_put_row, found, row, first, end)


def _put_row(found: Found, row: list[ast.stmt], first: int, end: int, new: list[ast.stmt]) -> None:
    row[first:end] = _Filled(found, row[first]).row(new)


def _children(scope: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    for parent in ast.walk(scope):
        for field, value in ast.iter_fields(parent):
            if isinstance(value, ast.AST):
                yield parent, field, None, value
            elif isinstance(value, list):
                yield from (
                    (parent, field, n, one) for n, one in enumerate(value) if isinstance(one, ast.AST)
                )


def _is_any(node: object) -> bool:
    """Whether it is ``...``, as an argument or as a statement."""
    node = node.value if isinstance(node, ast.Expr) else node
    return isinstance(node, ast.Constant) and node.value is ...


def _matches(wanted: Any, node: Any, found: Found) -> bool:
    """Fills ``found``."""
    if isinstance(wanted, ast.Name) and _WILDCARD.fullmatch(wanted.id) and isinstance(node, ast.expr):
        return _is_same(found.setdefault(wanted.id, node), node)
    if isinstance(wanted, str) and _WILDCARD.fullmatch(wanted):
        return bool(found.setdefault(wanted, node) == node)
    if isinstance(wanted, list):
        return isinstance(node, list) and _row_matches(wanted, node, found)
    if not isinstance(wanted, ast.AST):
        return type(wanted) is type(node) and bool(wanted == node)
    if type(wanted) is not type(node):
        return False
    some = isinstance(wanted, ast.Call) and any(map(_is_any, wanted.args))
    return all(
        (some and field == "keywords" and not value) or _matches(value, getattr(node, field), found)
        for field, value in ast.iter_fields(wanted)
        if field not in ("ctx", "type_comment", "kind")
    )


def _row_matches(wanted: Sequence[Any], row: Sequence[Any], found: Found) -> bool:
    if not wanted:
        return not row
    if _is_any(wanted[0]):
        for taken in range(len(row) + 1):
            trial = {**found, sum(isinstance(key, int) for key in found): list(row[:taken])}
            if _row_matches(wanted[1:], row[taken:], trial):
                found.update(trial)
                return True
        return False
    return bool(row) and _matches(wanted[0], row[0], found) and _row_matches(wanted[1:], row[1:], found)


def _is_same(one: object, other: object) -> bool:
    def shown(node: object) -> str:
        text = ast.dump(node) if isinstance(node, ast.AST) else repr(node)
        return re.sub(r"ctx=\w+\(\)", "", text)

    return one is other or shown(one) == shown(other)


class _Filled(ast.NodeTransformer):
    """A replacement with what was found in the place of its wildcards, at the lines of what it replaces."""

    def __init__(self, found: Found, at: ast.AST) -> None:
        self._found, self._at, self._rows = found, at, 0

    def row(self, nodes: list[Any]) -> list[Any]:
        made: list[Any] = []
        for node in nodes:
            if _is_any(node) and self._rows in self._found:
                made += copy.deepcopy(self._found[self._rows])
                self._rows += 1
            else:
                made.append(self.visit(node))
        return made

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.Name) and node.id in self._found:
            made: ast.AST = copy.deepcopy(self._found[node.id])
            if hasattr(made, "ctx"):
                made.ctx = node.ctx
            return made
        if hasattr(node, "lineno"):
            ast.copy_location(node, self._at)
        for field, value in ast.iter_fields(node):
            if isinstance(value, list):
                setattr(node, field, self.row(value))
            elif isinstance(value, ast.AST):
                setattr(node, field, self.visit(value))
            elif isinstance(value, str) and _WILDCARD.fullmatch(value) and value in self._found:
                setattr(node, field, self._found[value])
        return node
