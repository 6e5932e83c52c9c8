"""What can be wrong outside of functions: constants, tables, fields, enums, defaults of parameters, decorators.

Texts that only people read stay as they are: those with a space, and those after names such as ``description``.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.provers.mutation.mutants import Mutant, is_protocol, shown

_Function = ast.FunctionDef | ast.AsyncFunctionDef
#: A change: what is put in the place of the node, and how.
_Change = tuple[ast.expr, ast.expr, Callable[[ast.expr], None]]
#: Declarations that say nothing about values, and keywords for people and for our own mistakes.
_LEFT_ALONE = ("__all__", "__slots__", "T", "P")
_FOR_PEOPLE = ("description", "title", "help", "doc", "documentation", "epilog", "metavar")
_FOR_OURSELVES = ("strict", "frozen", "slots", "gc", "repr", "kw_only", "bound", "covariant", "name")
_SKIPPED = frozenset((*_FOR_PEOPLE, *_FOR_OURSELVES))
_NO_VALUES = ("TypeVar", "ParamSpec", "structlog.get_logger", "logging.getLogger", "get_logger")
#: A number up to this is one too high, a greater one twice as great.
_COUNTED_MAX = 8
#: Of a regular expression: what is loosened, and to what.
_LOOSER = (("+", "*"), ("\\.", "."), ("[^", "["), ("|", "|x"), ("]{", "]*|{"), ("0-9", "0-8"), ("a-z", "a-y"))


def declarations_of(file: str, module: ast.Module) -> Iterator[Mutant]:
    """All mutants of one module, by line. ``function``: the declared name, qualified."""
    for name, statement, holder in _declared(module.body, ""):
        source = hashlib.sha256(ast.dump(statement).encode()).hexdigest()[:16]
        for number, (old, new, put) in enumerate(_of_statement(statement, holder)):
            what = f"{shown(old)} → {shown(new)}"
            line = getattr(old, "lineno", statement.lineno)
            yield Mutant(file, name, line, line, what, number, source, _putter(put, new, statement))


def _putter(put: Callable[[ast.expr], None], new: ast.expr, statement: ast.stmt) -> Callable[[], None]:
    def apply() -> None:
        put(new)
        ast.copy_location(new, statement)
        ast.fix_missing_locations(statement)

    return apply


def _declared(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.stmt, list[ast.stmt]]]:
    """Each statement with the name that it declares, and what it stands in."""
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            names = [one.id for one in ast.walk(target) if isinstance(one, ast.Name)]
            if names and names[0] not in _LEFT_ALONE:
                yield prefix + names[0], node, body
        elif isinstance(node, _Function):
            yield prefix + node.name, node, body
        elif isinstance(node, ast.ClassDef) and not is_protocol(node):
            yield prefix + node.name, node, body
            yield from _declared(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.If | ast.For | ast.With | ast.Try):
            if not isinstance(node, ast.If) or ast.unparse(node.test) != "TYPE_CHECKING":
                yield from _declared(node.body, prefix)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield prefix + ast.unparse(node.value.func), node, body


def _of_statement(node: ast.stmt, body: list[ast.stmt]) -> Iterator[_Change]:
    if isinstance(node, ast.ClassDef):
        yield from _of_decorators(node)
        for keyword in node.keywords:
            if keyword.arg != "metaclass" and keyword.arg not in _SKIPPED:
                yield from _values(keyword.value, _setter(keyword, "value"))
    elif isinstance(node, _Function):
        yield from _of_decorators(node)
        for defaults in (node.args.defaults, node.args.kw_defaults):
            for n, default in enumerate(defaults):
                if default is not None:
                    yield from _values(default, _setter(defaults, n))
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        if isinstance(node, ast.AnnAssign):
            yield from _of_annotation(node)
        if node.value is not None:
            yield from _of_neighbours(node, body)
            yield from _values(node.value, _setter(node, "value"))
    elif isinstance(node, ast.Expr):
        yield node.value, ast.Constant(None), _setter(node, "value")


def _setter(owner: object, place: str | int) -> Callable[[ast.expr], None]:
    def put(new: ast.expr) -> None:
        if isinstance(place, str):
            setattr(owner, place, new)
        else:
            assert isinstance(owner, list)
            owner[place] = new

    return put


def _of_decorators(node: ast.ClassDef | _Function) -> Iterator[_Change]:
    for n, decorator in enumerate(node.decorator_list):
        if isinstance(decorator, ast.Call):
            yield from _values(decorator, _setter(node.decorator_list, n))


def _of_annotation(node: ast.AnnAssign) -> Iterator[_Change]:
    """The bounds of a setting stand in its type."""
    for one in ast.walk(node.annotation):
        if isinstance(one, ast.Call):
            for n, argument in enumerate(one.args):
                yield from _values(argument, _setter(one.args, n))
            for keyword in one.keywords:
                if keyword.arg not in _SKIPPED:
                    yield from _values(keyword.value, _setter(keyword, "value"))
        elif isinstance(one, ast.Subscript) and ast.unparse(one.value) == "Literal":
            yield from _values(one.slice, _setter(one, "slice"))


def _of_neighbours(node: ast.Assign | ast.AnnAssign, body: list[ast.stmt]) -> Iterator[_Change]:
    """A member of an enum with the value of the next one."""
    after = body[body.index(node) + 1 :]
    if (
        isinstance(node, ast.Assign)
        and node.col_offset
        and after
        and isinstance(after[0], ast.Assign)
        and isinstance(node.value, ast.Constant)
        and isinstance(after[0].value, ast.Constant)
    ):
        yield node.value, after[0].value, _setter(node, "value")


def _values(node: ast.expr, put: Callable[[ast.expr], None]) -> Iterator[_Change]:
    """What may be wrong in a value, from the outside to the inside."""
    yield from ((node, new, put) for new in _instead_of(node))
    if isinstance(node, ast.Call):
        yield from _of_call(node, put)
        return
    for owner, place in _inside(node):
        value = getattr(owner, place) if isinstance(place, str) else owner[place]
        yield from _values(value, _setter(owner, place))


def _inside(node: ast.expr) -> Iterator[tuple[Any, str | int]]:
    """Where a value has values."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        yield from ((node.elts, n) for n in range(len(node.elts)))
    elif isinstance(node, ast.Dict):
        yield from ((node.values, n) for n in range(len(node.values)))
    elif isinstance(node, ast.BinOp):
        yield from ((node, "left"), (node, "right"))
    elif isinstance(node, ast.UnaryOp | ast.Starred):
        yield node, "operand" if isinstance(node, ast.UnaryOp) else "value"


def _of_call(node: ast.Call, put: Callable[[ast.expr], None]) -> Iterator[_Change]:
    if ast.unparse(node.func) in _NO_VALUES:
        return
    for n, keyword in enumerate(node.keywords):
        if keyword.arg not in _SKIPPED:
            if not _is_bool(keyword.value):
                rest = [*node.keywords[:n], *node.keywords[n + 1 :]]
                yield node, ast.Call(node.func, node.args, rest), put
            yield from _values(keyword.value, _setter(keyword, "value"))
    for n, argument in enumerate(node.args):
        yield from _values(argument, _setter(node.args, n))
        if ast.unparse(node.func) == "re.compile":
            yield from _of_pattern(argument, _setter(node.args, n))


def _instead_of(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Constant):
        yield from _other_constants(node.value)
    elif isinstance(node, ast.Tuple | ast.List | ast.Set) and len(node.elts) > 1 and _are_alike(node.elts):
        for n in range(len(node.elts)):
            yield type(node)(**{**dict(ast.iter_fields(node)), "elts": _without(node.elts, n)})
    elif isinstance(node, ast.Dict):
        for n in range(len(node.keys)):
            yield ast.Dict(_without(node.keys, n), _without(node.values, n))
        for n, (one, other) in enumerate(zip(node.values, node.values[1:], strict=False)):
            if node.keys[n] and node.keys[n + 1] and ast.dump(one) != ast.dump(other):
                yield ast.Dict(node.keys, [*node.values[:n], other, one, *node.values[n + 2 :]])


def _are_alike(rows: Sequence[ast.expr]) -> bool:
    """Rows of a table, and not the columns of one row."""
    kinds = {
        type(one.value) if isinstance(one, ast.Constant) else type(one)
        for one in rows
        if not isinstance(one, ast.Starred)
    }
    return len(kinds) == 1


def _is_bool(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, bool)


def _without(rows: Sequence[Any], n: int) -> list[Any]:
    return [*rows[:n], *rows[n + 1 :]]


def _other_constants(value: object) -> Iterator[ast.expr]:
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int | float):
        yield ast.Constant(value + 1 if value <= _COUNTED_MAX else value * 2)
    elif isinstance(value, bytes) and value:
        yield ast.Constant(value[:-1] + bytes([value[-1] ^ 1]))
    elif isinstance(value, str) and value and not any(sign in value for sign in " \n"):
        yield ast.Constant(f"{value}x")


def _of_pattern(node: ast.expr, put: Callable[[ast.expr], None]) -> Iterator[_Change]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        for old, new in _LOOSER:
            if old in node.value:
                yield node, ast.Constant(node.value.replace(old, new, 1)), put
