"""The driver of mutation testing: what it plants, that a test sees it, and what it says of those that none sees."""

from __future__ import annotations

import ast
import gc
import importlib.util
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.provers.mutation import by_hand, importing, results, runner, seen
from tests.provers.mutation.declarations import declarations_of
from tests.provers.mutation.importing import ImportingRunner, uses_in
from tests.provers.mutation.mutants import Mutant, mutants_of
from tests.provers.mutation.planting import NotPlantedError, functions_below, plant
from tests.provers.mutation.runner import KILLED, SURVIVED, UNSEEN, Limits, Result, Runner
from tests.support.paths import ROOT

FILE = "controller/sample.py"
SOURCE = """\
LIMIT = 3

def first_above(values, limit):
    for value in values:
        if value is None:
            continue
        if value > limit and value != 7:
            return value
    return -1

def total(values):
    found = 0
    for value in values:
        found += value
    return found
"""


def mutants() -> list[Mutant]:
    return [mutant for mutant in mutants_of(FILE, ast.parse(SOURCE)) if mutant.function]


def one(what: str) -> tuple[Mutant, ast.Module]:
    tree = ast.parse(SOURCE)
    return next(m for m in mutants_of(FILE, tree) if m.what == what), tree


@pytest.fixture
def sample(tmp_path: Path) -> ModuleType:
    path = tmp_path / FILE
    path.parent.mkdir()
    path.write_text(SOURCE, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("mutation_sample", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_small_mistakes_of_a_maintainer() -> None:
    assert [(m.function, m.line, m.what) for m in mutants()] == [
        ("first_above", 5, "value is None → value is not None"),
        ("first_above", 5, "continue → break"),
        ("first_above", 7, "value > limit and value != 7 → value > limit or value != 7"),
        ("first_above", 7, "value > limit and value != 7 → value != 7"),
        ("first_above", 7, "value > limit and value != 7 → value > limit"),
        ("first_above", 7, "value > limit → value >= limit"),
        ("first_above", 7, "value > limit → value <= limit"),
        ("first_above", 7, "value != 7 → value == 7"),
        ("first_above", 7, "7 → 8 in value != 7"),
        ("first_above", 9, "1 → 2 in -1"),
        ("total", 12, "0 → 1"),
        ("total", 14, "found += value → pass"),
        ("total", 14, "found += value → found -= value"),
    ]
    keys = [m.key for m in mutants()]
    assert len(set(keys)) == len(keys)
    moved = mutants_of(FILE, ast.parse(f"# above\n\n{SOURCE}"))
    assert [m.key for m in moved if m.function] == keys, "a function that only moves keeps its results"


def test_what_guards_against_our_own_mistakes_only_is_left_alone() -> None:
    guarded = ast.parse("def f(a, b):\n    assert a > 1\n    return dict(zip(a, b, strict=True))\n")
    assert [m.what for m in mutants_of(FILE, guarded) if "→ False" in m.what or "a > 1" in m.what] == []


def test_only_entries_are_deleted_not_names() -> None:
    tree = ast.parse("def f(a, b):\n    del a\n    del b[2:]\n")
    assert [m.what for m in mutants_of(FILE, tree) if "del" in m.what] == ["del b[2:] → pass"]


def test_a_mutant_is_planted_in_the_function_that_lives(sample: ModuleType, tmp_path: Path) -> None:
    kept: Callable[..., Any] = sample.first_above
    assert kept([1, None, 5], 3) == 5
    mutant, tree = one("continue → break")
    plant(mutant, tree, tmp_path / FILE, functions_below(tmp_path))
    assert kept([1, None, 5], 3) == -1
    assert sample.total([1, 2]) == 3
    with pytest.raises(NotPlantedError):
        plant(mutant, tree, tmp_path / "other.py", functions_below(tmp_path))


def test_a_mutant_is_planted_in_what_its_function_has_made_already(tmp_path: Path) -> None:
    source = "def above(limit):\n    def check(value):\n        return value > limit\n    return check\n"
    path = tmp_path / "made.py"
    path.write_text(source, encoding="utf-8")
    made: dict[str, Any] = {}
    exec(compile(source, str(path), "exec"), made)
    check = made["above"](3)
    tree = ast.parse(source)
    mutant = next(m for m in mutants_of("made.py", tree) if m.what == "value > limit → value >= limit")
    assert not check(3)
    plant(mutant, tree, path, functions_below(tmp_path))
    assert check(3)


@pytest.fixture
def run(
    sample: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., list[Result]]]:
    """Runs mutants against checks of the sample, in forks as the driver does; each check runs all of its lines."""
    monkeypatch.setattr(runner, "ROOT", tmp_path)

    def protocol(item: Any, **_: object) -> list[Any]:
        return [SimpleNamespace(failed=pytest.CallInfo.from_call(item.check, "call").excinfo is not None)]

    monkeypatch.setattr(runner, "runtestprotocol", protocol)

    def running(
        check: Callable[[Any], None], *whats: str, lines: range = range(3, 15), changed: bool = False
    ) -> list[Result]:
        tree = ast.parse(SOURCE)
        found = [m for m in mutants_of(FILE, tree) if m.what in whats]
        source = "another" if changed else seen.digest_of(tmp_path / FILE)
        item: Any = SimpleNamespace(nodeid="tests/test_sample.py::test", check=lambda: check(sample))
        known: seen.Seen = {
            item.nodeid: {"digest": "", "took_s": 0.0, "lines": {FILE: [*lines]}, "sources": {FILE: source}}
        }
        results = Runner([item], known, {FILE: tree}, Limits(jobs=1)).run(found)
        return [result for result in results if result is not None]

    yield running
    gc.unfreeze()


def _checks(module: Any) -> None:
    assert module.first_above([1, 5], 3) == 5
    assert module.total([2, 2]) == 4


def test_what_a_test_sees_is_killed_and_what_none_sees_survives(
    run: Callable[..., list[Result]], sample: ModuleType
) -> None:
    wrong, close = "value > limit → value <= limit", "value > limit → value >= limit"
    found = {result.mutant.what: result for result in run(_checks, wrong, close)}
    assert (found[wrong].status, found[wrong].by) == (KILLED, "tests/test_sample.py::test")
    assert (found[close].status, found[close].by) == (SURVIVED, "1 tests")
    _checks(sample)


def test_a_line_that_no_test_runs_is_said_so(run: Callable[..., list[Result]]) -> None:
    assert [result.status for result in run(_checks, "0 → 1", lines=range(3, 10))] == [UNSEEN]


def test_of_a_file_that_has_changed_since_it_was_measured_any_line_may_be_seen(
    run: Callable[..., list[Result]],
) -> None:
    (result,) = run(_checks, "0 → 1", lines=range(3, 10), changed=True)
    assert result.status == KILLED


def test_each_test_function_has_its_turn_before_a_second_of_its_cases() -> None:
    (mutant, tree) = one("0 → 1")
    names = ["a::x[1]", "a::x[2]", "a::x[3]", "a::y[1]", "a::y[2]", "b::z"]
    items: list[Any] = [SimpleNamespace(nodeid=name) for name in names]
    known: seen.Seen = {
        name: {"digest": "", "took_s": 1.0, "lines": {FILE: [mutant.line]}, "sources": {FILE: "same"}}
        for name in names
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seen, "digest_of", lambda _: "same")
        chosen = Runner(items, known, {FILE: tree}, Limits(tests_s=4.0)).tests_of(mutant)
    gc.unfreeze()
    assert [item.nodeid for item in chosen] == ["a::x[1]", "a::y[1]", "b::z", "a::x[2]"]


def test_long_ones_of_the_room_come_after_quick_ones_from_elsewhere() -> None:
    (mutant, tree) = one("0 → 1")
    times_s = {"a::x": 0.1, "tests/test_b.py::y": 2.0, "tests/test_b.py::z": 0.1}
    known: seen.Seen = {
        name: {"digest": "", "took_s": took_s, "lines": {FILE: [mutant.line]}, "sources": {FILE: "same"}}
        for name, took_s in times_s.items()
    }
    items: list[Any] = [SimpleNamespace(nodeid=name) for name in times_s]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seen, "digest_of", lambda _: "same")
        chosen = Runner(items, known, {FILE: tree}, Limits()).tests_of(mutant)
    gc.unfreeze()
    assert [item.nodeid for item in chosen] == [
        "tests/test_b.py::z", "a::x", "tests/test_b.py::y",
    ]  # fmt: skip


def test_whoever_ran_the_line_comes_before_those_that_ran_its_coroutine() -> None:
    source = "async def f(a):\n    if a:\n        return 1\n    return 2\n"
    tree = ast.parse(source)
    (mutant,) = (m for m in mutants_of(FILE, tree) if m.what == "2 → 3")
    ran = {"a::x[1]": [1, 2, 3], "a::x[2]": [1, 2, 4], "b::y": [1, 2, 3]}
    known: seen.Seen = {
        name: {"digest": "", "took_s": 0.1, "lines": {FILE: lines}, "sources": {FILE: "same"}}
        for name, lines in ran.items()
    }
    items: list[Any] = [SimpleNamespace(nodeid=name) for name in ran]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seen, "digest_of", lambda _: "same")
        chosen = Runner(items, known, {FILE: tree}, Limits()).tests_of(mutant)
    gc.unfreeze()
    assert [item.nodeid for item in chosen] == ["a::x[2]", "a::x[1]", "b::y"]


def test_one_that_takes_too_long_leaves_its_time_to_quicker_ones() -> None:
    (mutant, tree) = one("0 → 1")
    times_s = {"tests/sample/test_sample.py::x": 3.9, "a::y": 1.0, "b::z": 0.5}
    known: seen.Seen = {
        name: {"digest": "", "took_s": took_s, "lines": {FILE: [mutant.line]}, "sources": {FILE: "same"}}
        for name, took_s in times_s.items()
    }
    items: list[Any] = [SimpleNamespace(nodeid=name) for name in times_s]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seen, "digest_of", lambda _: "same")
        chosen = Runner(items, known, {FILE: tree}, Limits(tests_s=4.0)).tests_of(mutant)
    gc.unfreeze()
    assert [item.nodeid for item in chosen] == ["b::z", "a::y"]


def test_whoever_runs_some_of_a_coroutine_may_run_all_of_it() -> None:
    tree = ast.parse("async def f():\n    a()\n\nasync def g():\n    async def h():\n        b()\n    c()\n")
    assert [(span[0], span[-1]) for span in runner._coroutines(tree)] == [(1, 2), (4, 7), (5, 6)]


def test_a_mutant_that_ends_its_process_is_killed(run: Callable[..., list[Result]]) -> None:
    def ends(module: Any) -> None:
        if module.total([1]) != 1:
            os._exit(3)

    (result,) = run(ends, "found += value → pass")
    assert (result.status, result.by[:5]) == (KILLED, "hangs")


def test_the_table_counts_each_once_and_names_the_survivors() -> None:
    killed, equal, survived = mutants()[:3]
    known = {
        killed.key: results.Known(KILLED, "a test"),
        equal.key: results.Known(SURVIVED, "1 tests"),
        survived.key: results.Known(SURVIVED, "1 tests"),
    }
    said = results.Equivalents(
        f'["{FILE}".first_above]\n"continue → break" = "why"\n"no such → mutant" = "long gone"\n'
    )
    lines = results.table(mutants(), known, said).splitlines()
    assert lines[2] == f"| `{FILE}` | 13 | 3 | 1 | 1 | 1 | 50.0% |"
    assert lines[-1] == f"| `{FILE}:7` | `first_above` | `{survived.what}` |"
    assert said.stale(mutants()) == [f"{FILE} first_above: no such → mutant"]


LISTED = f"""
[["{FILE}"]]
what = "the last one is left out"
in = "total"
old = "    for value in values:\\n        found"
new = "    for value in values[:-1]:\\n        found"

[["{FILE}"]]
what = "the first one counts twice"
in = "total"
old = "found = 0"
new = "found = values[0]"
"""


def test_a_mistake_of_the_list_is_planted_as_text(sample: ModuleType, tmp_path: Path) -> None:
    tree = ast.parse(SOURCE)
    left_out, twice = by_hand.mistakes({FILE: tree}, LISTED, tmp_path).planted
    assert (left_out.function, left_out.function_line, left_out.line) == ("total", 11, 13)
    assert left_out.key != twice.key
    plant(left_out, tree, tmp_path / FILE, functions_below(tmp_path))
    assert sample.total([1, 2, 4]) == 3


def test_a_mistake_is_in_the_first_line_that_differs_and_is_run() -> None:
    old = "a = 1\n# why\n\nelse:\n    b = 2\nc = 3"
    assert by_hand._first_difference(old, "a = 1\nc = 3") == 4
    assert by_hand._first_difference(old, "a = 2") == 0
    assert by_hand._first_difference("# why", "") == 0


@pytest.mark.parametrize(("old", "new"), [("found = 0", "found = 7"), ('in = "total"', 'in = "no_such"')])
def test_a_mistake_of_which_the_source_has_moved_on_is_said_so(
    sample: ModuleType, tmp_path: Path, old: str, new: str
) -> None:
    found = by_hand.mistakes({FILE: ast.parse(SOURCE)}, LISTED.replace(old, new), tmp_path)
    assert len(found.planted) < 2
    assert all(FILE in stale for stale in found.stale)
    assert found.stale


def _dumped_at(tree: ast.Module, line: int) -> str:
    """The statement of the module that has the line: a class or a function; decorators begin before it."""
    return next(ast.dump(found) for found in tree.body if line <= (found.end_lineno or 0))


@pytest.mark.long
@pytest.mark.slow
def test_nearly_each_mistake_of_the_list_is_in_the_source_and_changes_it() -> None:
    planted, stale = 0, list[str]()
    for file in by_hand.files():
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        found = by_hand.mistakes({file: tree})
        stale += found.stale
        before = [_dumped_at(tree, one.function_line) for one in found.planted]
        for one, dumped in zip(found.planted, before, strict=True):
            one.apply()
            assert _dumped_at(tree, one.function_line) != dumped, one.what
            planted += 1
    assert len(stale) * 10 < planted, stale


def test_a_mistake_that_is_harmless_says_why(sample: ModuleType, tmp_path: Path) -> None:
    text = f'{LISTED}harmless = "nobody asks for the first"\n'
    found = by_hand.mistakes({FILE: ast.parse(SOURCE)}, text, tmp_path)
    assert found.harmless == {found.planted[1].key: "nobody asks for the first"}


def test_a_test_that_fails_without_the_mutant_kills_nothing(run: Callable[..., list[Result]]) -> None:
    def fails(_: Any) -> None:
        raise AssertionError("whatever is planted")

    (result,) = run(fails, "0 → 1")
    assert result.status == SURVIVED


def test_what_a_mutant_leaves_in_a_cache_does_not_make_its_test_fail_without_it(
    run: Callable[..., list[Result]],
) -> None:
    cache: dict[str, int] = {}

    def check(module: Any) -> None:
        if "total" not in cache:
            cache["total"] = module.total([2, 2])
        assert cache["total"] == 4

    (result,) = run(check, "0 → 1")
    assert result.status == KILLED


@pytest.mark.parametrize(("works_s", "hangs"), [(0.1, True), (5.0, False)])
def test_only_who_does_nothing_hangs(monkeypatch: pytest.MonkeyPatch, works_s: float, hangs: bool) -> None:
    child = runner._Child(mutants()[0], os.getpid(), -1, deadline=float("inf"))
    assert not child.hangs()
    child.deadline = 0.0
    monkeypatch.setattr(runner, "_cpu_s", lambda _: works_s)
    assert child.hangs() is hangs
    assert not child.hangs(), "it has another deadline"


OLD = """| file | mutants | tried | killed | equivalent | survived | killed of those that differ |
|---|---|---|---|---|---|---|
| `a/x.py` | 10 | 5 | 4 | 0 | 1 | 80.0% |
| `a/y.py` | 10 | 1 | 0 | 1 | 0 | - |
| all | 20 | 6 | 4 | 1 | 1 | 80.0% |

Survivors:

| place | function | mutant |
|---|---|---|
| `a/x.py:3` | `f` | `1 → 2` |"""
NEW = """| file | mutants | tried | killed | equivalent | survived | killed of those that differ |
|---|---|---|---|---|---|---|
| `a/b.py` | 4 | 4 | 3 | 0 | 1 | 75.0% |
| all | 4 | 4 | 3 | 0 | 1 | 75.0% |

Survivors:

| place | function | mutant |
|---|---|---|
| `a/b.py:9` | `g` | `0 → 1` |"""


def test_what_was_not_tried_here_stays_on_the_page() -> None:
    lines = results.merged(OLD, NEW, {"a/b.py"}).splitlines()
    assert [line for line in lines if line.startswith("| `a")] == [
        "| `a/b.py` | 4 | 4 | 3 | 0 | 1 | 75.0% |",
        "| `a/x.py` | 10 | 5 | 4 | 0 | 1 | 80.0% |",
        "| `a/y.py` | 10 | 1 | 0 | 1 | 0 | - |",
        "| `a/b.py:9` | `g` | `0 → 1` |",
        "| `a/x.py:3` | `f` | `1 → 2` |",
    ]
    assert "| all | 24 | 10 | 7 | 1 | 2 | 77.8% |" in lines
    assert results.merged(OLD, NEW, {"a/b.py", "a/x.py", "a/y.py"}) == NEW
    assert results.merged(OLD, NEW, ()) == OLD


def test_a_mistake_stands_in_the_list_of_its_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_hand, "LISTS", tmp_path)
    for file, room in (("a/b/c.py", "a/b"), ("a/d.py", "a")):
        (tmp_path / room).parent.mkdir(exist_ok=True)
        (tmp_path / f"{room}.toml").write_text(LISTED.replace(FILE, file))
    assert by_hand.files() == ["a/b/c.py", "a/d.py"]
    (tmp_path / "a.toml").write_text(LISTED.replace(FILE, "a/b/c.py"))
    with pytest.raises(ValueError, match=r"a.toml: \['a/b/c.py'\] belong to other rooms"):
        by_hand.files()


def test_each_mistake_in_the_list_is_there_once_and_can_still_be_made() -> None:
    trees = {file: ast.parse((ROOT / file).read_text(encoding="utf-8")) for file in by_hand.files()}
    found = by_hand.mistakes(trees)
    assert found.stale == []
    times = Counter((one.file, one.function, one.source) for one in found.planted)
    assert [mistake for mistake, count in times.items() if count > 1] == []


DECLARATIONS = """\
_log = structlog.get_logger(__name__)
LIMIT_S = 60 * 30
NAMES = ("a", "b", "c")
ROW = (1, "a")
PATTERN = re.compile("[0-9]+")

class Kind(Enum):
    ONE = "one"
    TWO = "two"

@dataclass(frozen=True, order=True)
class Limits:
    jobs: Annotated[int, integer(0, 9, "how many at once")] = 2
    text: str = "for people"

def first(values, default=False):
    return TABLE

TABLE = {1: first, 2: LIMIT_S}
"""


def test_what_may_be_wrong_outside_of_functions() -> None:
    tree = ast.parse(DECLARATIONS)
    found = list(declarations_of(FILE, tree))
    assert [(m.function, m.what) for m in found] == [
        ("LIMIT_S", "60 → 120"),
        ("LIMIT_S", "30 → 60"),
        ("NAMES", "('a', 'b', 'c') → ('b', 'c')"),
        ("NAMES", "('a', 'b', 'c') → ('a', 'c')"),
        ("NAMES", "('a', 'b', 'c') → ('a', 'b')"),
        ("NAMES", "'a' → 'ax'"),
        ("NAMES", "'b' → 'bx'"),
        ("NAMES", "'c' → 'cx'"),
        ("ROW", "1 → 2"),
        ("ROW", "'a' → 'ax'"),
        ("PATTERN", "'[0-9]+' → '[0-9]+x'"),
        ("PATTERN", "'[0-9]+' → '[0-9]*'"),
        ("PATTERN", "'[0-9]+' → '[0-8]+'"),
        ("Kind.ONE", "'one' → 'two'"),
        ("Kind.ONE", "'one' → 'onex'"),
        ("Kind.TWO", "'two' → 'twox'"),
        ("Limits", "True → False"),
        ("Limits.jobs", "0 → 1"),
        ("Limits.jobs", "9 → 18"),
        ("Limits.jobs", "2 → 3"),
        ("first", "False → True"),
        ("TABLE", "{1: first, 2: LIMIT_S} → {2: LIMIT_S}"),
        ("TABLE", "{1: first, 2: LIMIT_S} → {1: first}"),
        ("TABLE", "{1: first, 2: LIMIT_S} → {1: LIMIT_S, 2: first}"),
    ]
    assert len({m.key for m in found}) == len(found)
    found[0].apply()
    assert "LIMIT_S = 120 * 30" in ast.unparse(tree)


def test_users_of_a_declaration_are_asked() -> None:
    source = """\
LIMIT = 3
def f():
    return LIMIT
class A:
    at: int = 1
    def g(self):
        return self.at
"""
    uses = uses_in({FILE: ast.parse(source)})
    assert {name: [line for _, line in uses[name]] for name in ("LIMIT", "f", "A", "at")} == {
        "LIMIT": [1, 3],
        "f": [3],
        "A": [7],
        "at": [5, 7],
    }


@pytest.mark.parametrize(
    ("planted", "failing"), [("", []), ("LIMIT = 4", [0, 1]), ("raise ImportError", [0, 1])]
)
def test_a_declaration_is_planted_before_its_module_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str, failing: list[int]
) -> None:
    """And nothing fails but by the mutant: pytest runs in a fork of a process that runs pytest."""
    (tmp_path / "planted_limits.py").write_text("LIMIT = 3\n", encoding="utf-8")
    test = "import planted_limits\ndef test_{}():\n    assert planted_limits.LIMIT == 3\n"
    (tmp_path / "test_planted.py").write_text(test.format("one") + test.format("other"), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for module in (importing, runner):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(importing, "ANEW", ("planted_limits", "test_planted"))
    import_module("planted_limits")
    tree = ast.parse("LIMIT = 3\n")
    (mutant,) = declarations_of("planted_limits.py", tree)
    trying = ImportingRunner([], {}, {"planted_limits.py": tree}, Limits())
    items: Any = [SimpleNamespace(nodeid=f"test_planted.py::test_{name}") for name in ("one", "other")]

    def work() -> list[int]:
        if planted:
            trying._plant(replace(mutant, apply=lambda: setattr(tree, "body", ast.parse(planted).body)))
        return list(trying._failing(items))

    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        os.close(read)
        runner.in_child(work, write)
    os.close(write)
    with os.fdopen(read) as heard:
        assert json.load(heard) == failing
    os.waitpid(pid, 0)


def test_tests_that_run_nothing_of_the_product_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen, "runtestprotocol", lambda *_, **__: [])
    item: Any = SimpleNamespace(nodeid="one", path=Path(__file__))
    assert seen.measure([item], ["controller/*"])["one"]["lines"] == {}
