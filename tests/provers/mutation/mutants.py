"""What can be wrong in one place of a module: small mistakes of the kind that a maintainer makes.

A mutant changes one node of the syntax tree. Texts, annotations, asserts and lines of logs stay as they are.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

#: Each comparison, and what it is mistaken for: the border, and the opposite.
_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list", "reversed": "list"}
#: Calls that end with a TypeError when an argument is missing: nothing to learn.
_NEEDS_ALL = ("isinstance", "issubclass", "cast", "partial", "setattr")
#: Objects and methods by which modules write logs.
_LOGS = ("log", "_log", "logger")
_DECLARATIONS = ("__all__", "__slots__")
#: Of a mutant's old and new text, each.
SHOWN_CHARS = 90


@dataclass(frozen=True)
class Mutant:
    """``function``: the qualified name of the outermost function, "" for the module and bodies of classes.

    ``line``: its first; ``source``: a digest of the function (or module) that does not change with its place.
    ``apply`` changes the tree that `mutants_of` was given.
    """

    file: str
    function: str
    function_line: int
    line: int
    what: str
    number: int
    source: str
    apply: Callable[[], None]

    @property
    def key(self) -> str:
        """Equal in each run as long as the function is."""
        text = f"{self.file}:{self.function}:{self.source}:{self.number}:{self.what}"
        return hashlib.sha256(text.encode()).hexdigest()[:20]


def mutants_of(file: str, module: ast.Module) -> Iterator[Mutant]:
    """All mutants of one module, by line."""
    for scope, name in _scopes(module):
        source = hashlib.sha256(ast.dump(scope).encode()).hexdigest()[:16]
        first = _first_line(scope)
        # The defaults of a function's own parameters are made where it stands, not where it runs.
        body = scope if isinstance(scope, ast.Module) else ast.Module(scope.body, [])
        places = _places(body, outside=isinstance(scope, ast.Module))
        for number, (line, what, apply) in enumerate(places):
            yield Mutant(file, name, first, line, what, number, source, apply)


def functions_of(module: ast.Module) -> Iterator[tuple[str, int, int]]:
    """Qualified name, first and last line of each outermost function and method."""
    for scope, name in _scopes(module):
        if not isinstance(scope, ast.Module):
            yield name, _first_line(scope), scope.end_lineno or scope.lineno


def _first_line(scope: _Scope) -> int:
    """With decorators, as code objects count."""
    if isinstance(scope, ast.Module):
        return 1
    return scope.decorator_list[0].lineno if scope.decorator_list else scope.lineno


_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Scope = _Function | ast.Module
#: The line, what changes, and how.
_Place = tuple[int, str, Callable[[], None]]
#: Where neither values nor decisions are.
_LEFT_ALONE = (ast.Import, ast.ImportFrom, ast.Assert, ast.JoinedStr, ast.expr_context, ast.keyword)
_FIELDS_LEFT_ALONE = ("annotation", "returns", "type_comment", "decorator_list", "bases")


def _scopes(module: ast.Module) -> Iterator[tuple[_Scope, str]]:
    """The module itself, for all that is outside of functions; then each outermost function and method."""
    yield module, ""

    def below(body: list[ast.stmt], prefix: str) -> Iterator[tuple[_Scope, str]]:
        for node in body:
            if isinstance(node, _Function):
                yield node, prefix + node.name
            elif isinstance(node, ast.ClassDef) and not is_protocol(node):
                yield from below(node.body, f"{prefix}{node.name}.")

    yield from below(module.body, "")


def is_protocol(node: ast.ClassDef) -> bool:
    """Of typing, and never run; asyncio's have methods that are."""
    return any(ast.unparse(base).startswith("Protocol") for base in node.bases)


def _places(parent: ast.AST, outside: bool) -> Iterator[_Place]:
    """``outside``: of functions, and not in them."""
    for field, value in ast.iter_fields(parent):
        if field in _FIELDS_LEFT_ALONE:
            continue
        rows = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        for index, node in rows:
            if not isinstance(node, ast.AST) or _is_left_alone(node):
                continue
            # A ``continue`` is often no line of its own to the interpreter: the jump before it goes there at once.
            at = parent if isinstance(node, ast.Continue) else node
            line = int(getattr(at, "lineno", getattr(parent, "lineno", 1)))
            for new in _mutations(node, parent, field, outside):
                what = f"{shown(node)} → {shown(new)}"
                if isinstance(node, ast.Constant) and isinstance(parent, ast.expr):
                    what += f" in {shown(parent)}"
                yield line, what, _putter(parent, field, index, new)
            if outside and isinstance(node, _Function):
                yield from _places(node.args, outside)
            elif not isinstance(node, ast.Raise):
                yield from _places(node, outside)
        if isinstance(parent, ast.Call) and field == "keywords":
            for keyword in value:
                # Like an assert, it guards against our own mistakes only.
                if keyword.arg != "strict":
                    yield from _places(keyword, outside)


def shown(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + "…"


def _putter(parent: ast.AST, field: str, index: int | None, new: ast.AST) -> Callable[[], None]:
    def put() -> None:
        ast.copy_location(new, parent) if not hasattr(new, "lineno") else None
        if index is None:
            setattr(parent, field, new)
        else:
            getattr(parent, field)[index] = new
        ast.fix_missing_locations(parent)

    return put


def _is_left_alone(node: ast.AST) -> bool:
    if isinstance(node, _LEFT_ALONE):
        return True
    if isinstance(node, ast.ClassDef):
        return is_protocol(node)
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    if isinstance(node, ast.Delete):
        # Of a parameter that is not used: nothing is lost with it.
        return all(isinstance(target, ast.Name) for target in node.targets)
    if isinstance(node, ast.Assign | ast.AnnAssign):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        return isinstance(target, ast.Name) and target.id in _DECLARATIONS
    return isinstance(node, ast.Expr) and (isinstance(node.value, ast.Constant) or _is_log(node.value))


def _is_log(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    owner = node.func.value
    while isinstance(owner, ast.Call | ast.Attribute):
        if isinstance(owner, ast.Attribute) and owner.attr in _LOGS:
            return True
        owner = owner.func if isinstance(owner, ast.Call) else owner.value
    return isinstance(owner, ast.Name) and owner.id in _LOGS


def _mutations(node: ast.AST, parent: ast.AST, field: str, outside: bool) -> Iterator[ast.AST]:
    if isinstance(node, ast.stmt):
        yield from _of_statement(node, outside)
        return
    if field == "test" or (isinstance(parent, ast.comprehension) and field == "ifs"):
        yield from _of_condition(node, parent)
    yield from _of_expression(node, outside)
    if isinstance(node, ast.Tuple | ast.List | ast.Set) and field in ("iter", "comparators"):
        for n in range(len(node.elts) if len(node.elts) > 1 else 0):
            yield type(node)(**{**dict(ast.iter_fields(node)), "elts": node.elts[:n] + node.elts[n + 1 :]})


def _of_expression(node: ast.AST, outside: bool) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare):
        yield from _of_comparison(node)
    elif isinstance(node, ast.BoolOp):
        yield from _of_alternatives(node)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.BinOp):
        yield from _of_arithmetic(node, outside)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield ast.Constant(not node.value)
        elif isinstance(node.value, int | float):
            yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.Call):
        yield from _of_call(node)
    elif isinstance(node, ast.Slice):
        for name in ("lower", "upper"):
            if getattr(node, name) is not None:
                yield ast.Slice(**{**dict(ast.iter_fields(node)), name: None})


def _of_alternatives(node: ast.BoolOp) -> Iterator[ast.expr]:
    yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    for n in range(len(node.values)):
        rest = node.values[:n] + node.values[n + 1 :]
        yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)


def _of_statement(node: ast.stmt, outside: bool) -> Iterator[ast.stmt]:
    if isinstance(node, ast.Continue):
        yield ast.Break()
    elif isinstance(node, ast.Break | ast.Raise | ast.Delete | ast.Expr):
        yield ast.Pass()
    elif isinstance(node, ast.AugAssign):
        yield ast.Pass()
        if type(node.op) in _OPERATORS:
            yield ast.AugAssign(node.target, _OPERATORS[type(node.op)](), node.value)
    elif isinstance(node, ast.Assign | ast.AnnAssign) and not outside and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if all(isinstance(target, ast.Attribute | ast.Subscript) for target in targets):
            yield ast.Pass()


def _of_condition(node: ast.AST, parent: ast.AST) -> Iterator[ast.expr]:
    assert isinstance(node, ast.expr)
    if isinstance(parent, ast.comprehension):
        yield ast.Constant(True)
    elif not isinstance(node, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant):
        yield ast.UnaryOp(ast.Not(), node)


def _of_comparison(node: ast.Compare) -> Iterator[ast.expr]:
    for n, operator in enumerate(node.ops):
        for other in _COMPARISONS[type(operator)]:
            yield ast.Compare(node.left, [*node.ops[:n], other(), *node.ops[n + 1 :]], node.comparators)


def _of_arithmetic(node: ast.BinOp, outside: bool) -> Iterator[ast.expr]:
    is_type = outside and isinstance(node.op, ast.BitOr)
    is_text = any(isinstance(side, ast.JoinedStr) or _is_text(side) for side in (node.left, node.right))
    if type(node.op) in _OPERATORS and not is_type and not is_text:
        yield ast.BinOp(node.left, _OPERATORS[type(node.op)](), node.right)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _of_call(node: ast.Call) -> Iterator[ast.expr]:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name in _FUNCTIONS:
        keywords = [] if _FUNCTIONS[name] == "list" else node.keywords
        yield ast.Call(ast.Name(_FUNCTIONS[name], ast.Load()), node.args, keywords)
    if (
        len(node.args) > 1
        and name not in _NEEDS_ALL
        and not any(isinstance(one, ast.Starred) for one in node.args)
    ):
        yield ast.Call(node.func, node.args[:-1], node.keywords)
    for n, keyword in enumerate(node.keywords):
        is_text = isinstance(keyword.value, ast.JoinedStr) or (
            keyword.arg == "name" and _is_text(keyword.value)
        )
        if keyword.arg not in (None, "strict") and not is_text:
            yield ast.Call(node.func, node.args, node.keywords[:n] + node.keywords[n + 1 :])
