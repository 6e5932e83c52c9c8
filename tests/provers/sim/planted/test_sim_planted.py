"""Planted faults still apply, and some that take few seeds are found (all: ``make planted``)."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.provers.sim.batches import Run
from tests.provers.sim.planted import search, table
from tests.provers.sim.planted.catalogue import FAULTS
from tests.provers.sim.planted.fault import Change, Fault, StaleFaultError
from tests.provers.sim.planted.pattern import PatternError, replace, scope_of
from tests.provers.sim.planted.planting import plant
from tests.provers.sim.planted.search import Found, first_violation, in_short

KINDS = ("core", "driver", "broker")
#: One of each kind that few seeds find, and what tells of it: the ledger, the end, a client.
QUICK = (
    ("leader-epoch-not-raised", "has two leaders"),
    pytest.param("broker-watch-not-rearmed", "not settled", marks=pytest.mark.long),
    pytest.param("read-beyond-high-watermark", "read uncommitted", marks=pytest.mark.long),
)
#: Several times as many as they take, whatever plans come to be like.
QUICK_SEEDS = range(1, 31)


class _Renamed(ast.NodeTransformer):
    """All parameters and variables of the functions below get other names."""

    def __init__(self, function: ast.AST) -> None:
        nodes = list(ast.walk(function))
        self._locals = {node.arg for node in nodes if isinstance(node, ast.arg)}
        self._locals |= {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = f"renamed_{node.id}" if node.id in self._locals else node.id
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg = f"renamed_{node.arg}"
        return node


def _rewritten(fault: Fault) -> str:
    """Its source in another layout, without comments, with other names for all variables where it is planted."""
    module = ast.parse(fault.source())
    for function in {change.where.partition(":")[2] for change in fault.changes} - {""}:
        scope = scope_of(module, function)
        _Renamed(scope).visit(scope)
    return ast.unparse(module)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_still_applies(fault: Fault) -> None:
    source = fault.source()
    code = compile(fault.planted_in(source), fault.file, "exec", dont_inherit=True)
    assert code != compile(source, fault.file, "exec", dont_inherit=True)
    assert fault.kind in KINDS


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_applies_whatever_layout_and_variables_are_like(fault: Fault) -> None:
    rewritten = _rewritten(fault)
    assert ast.unparse(fault.planted_in(rewritten)) != ast.unparse(ast.parse(rewritten))


def test_every_fault_has_a_name_of_its_own_and_each_kind_has_some() -> None:
    kinds = [fault.kind for fault in FAULTS.values()]
    assert len(kinds) >= 25
    assert all(kinds.count(kind) >= 5 for kind in KINDS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (Change("controller.core.commits:_overtaken", "never(_a)", "None"), r"found 0 times in _overtaken"),
        (Change("controller.core.commits:_overtaken", "_a", "None"), r"found [0-9]{2,} times in _overtaken"),
        (Change("controller.core.commits:_gone", "_a", "None"), r"_gone: _gone is defined 0 times"),
        (Change("controller.core.gone:_overtaken", "_a", "None"), r"there is no controller/core/gone.py"),
    ],
)
def test_a_fault_whose_source_has_moved_on_is_named(change: Change, message: str) -> None:
    fault = Fault("some-fault", "something is wrong", change)
    with pytest.raises(StaleFaultError, match=f"some-fault: .*{message}"):
        fault.planted_in(fault.source())


BEFORE = """\
def decide(count, rest):
    if count > 1:
        log(count, rest, level=1)
        count = count - 1
        return rest
    return log(rest)
"""


@pytest.mark.parametrize(
    ("pattern", "replacement", "changed", "to"),
    [
        ("_a > 1", "_a > 2", "count > 1", "count > 2"),
        ("log(_a)", "None", "log(rest)", "None"),
        ("log(_a, _b, ...)", "log(_b)", "log(count, rest, level=1)", "log(rest)"),
        ("log(_a, _b, ...)", "pass", "log(count, rest, level=1)", "pass"),
        ("_a = _a - 1", "_a = _a + 1", "count = count - 1", "count = count + 1"),
        ("if _a > 1:\n ...\n return _b", "if _b:\n ...\n return _b", "if count > 1", "if rest"),
    ],
)
def test_a_pattern_is_replaced_by_syntax(pattern: str, replacement: str, changed: str, to: str) -> None:
    module = ast.parse(BEFORE)
    replace(module, "decide", pattern, replacement)
    assert ast.unparse(module) == ast.unparse(ast.parse(BEFORE.replace(changed, to)))
    compile(module, "decide.py", "exec")


@pytest.mark.parametrize("pattern", ["_a = _b - 2", "_a = _b - _b", "log(_a, _a)", "return"])
def test_a_pattern_is_not_found_in_what_is_similar(pattern: str) -> None:
    with pytest.raises(PatternError, match="found 0 times in decide"):
        replace(ast.parse(BEFORE), "decide", pattern, "pass")


def test_a_replacement_has_no_wildcard_that_the_pattern_does_not_have() -> None:
    with pytest.raises(PatternError, match="_b: in the replacement, but not in the pattern"):
        replace(ast.parse(BEFORE), "decide", "_a > 1", "_a > _b")


def test_a_fault_is_not_planted_too_late() -> None:
    """This process has imported the product: nothing would happen, and every seed would pass."""
    with pytest.raises(RuntimeError, match=r"imported already: too late to plant no-epoch-check"):
        plant("no-epoch-check")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "expected"), QUICK)
def test_a_planted_fault_is_found(name: str, expected: str) -> None:
    seed, violation, _ = first_violation(name, QUICK_SEEDS)
    assert seed is not None
    assert expected in violation


def test_a_seed_that_fails_anyway_tells_nothing_of_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = {"no-epoch-check": {3, 5}, None: {3}}

    def pretend(seeds: Sequence[int], _processes: int, name: str | None) -> Iterator[Run]:
        for seed in seeds:
            yield Run(seed, ["0.1 s: broken"] if seed in failing[name] else [], "", 0.0, 0.5, {})

    monkeypatch.setattr(search, "runs", pretend)
    assert first_violation("no-epoch-check", range(1, 10)) == (5, "0.1 s: broken", 2.5)


def test_a_search_for_what_cannot_be_planted_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stale = Fault("stale", "it is gone", Change("controller.core.commits:_overtaken", "never(_a)", "None"))
    monkeypatch.setitem(FAULTS, "stale", stale)
    with pytest.raises(StaleFaultError, match=r"stale: .*found 0 times"):
        list(search.search({"stale": [1]}, 1))


def test_the_table_has_a_row_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = list(FAULTS.values())[:2]
    results = [
        Found(first, 900, "12.345 s: a | b\nand more", 1.0),
        Found(second, 7, f"not settled {'x' * 300}", 1.0),
    ]
    late, early = table.rows(results)[1], table.rows(results)[0]
    assert late == f"| {first.name} | {first.what} | `{first.file}` | 900 | a \\| b |"
    assert early.startswith(f"| {second.name} |")
    assert len(in_short(results[1].violation)) <= 163
    again = Found(first, 3, "1.0 s: sooner", 1.0)
    assert table.rows([again], f"{early}\n\nwords\n{late}") == [
        late.replace("900 | a \\| b", "3 | sooner"),
        early,
    ]


def test_the_table_tells_by_which_seed_each_was_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, second = list(FAULTS.values())[:2]
    page = tmp_path / "page"
    rows = table.rows([Found(first, 900, "told", 1.0), Found(second, None, "", 1.0)])
    page.write_text("\n".join(["| command | does |", *rows]))
    monkeypatch.setattr(table, "PAGE", page)
    assert table.seeds() == {first.name: 900}
