"""A mutant outside of functions: its module, and all that was made of it, is imported anew in a fork."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

import pytest

from tests.provers.mutation.mutants import Mutant
from tests.provers.mutation.runner import Runner
from tests.support.paths import ROOT

#: What is imported anew: the product and all that uses it.
ANEW = ("controller", "broker_stub", "proto", "tests")
#: Of tests: importing them costs more than running them.
FILES_MAX = 8
#: Some fail beside much other work without the mutant, too.
_FAILURES_MAX = 3
#: Of pytest in this process, once more in its forks.
QUIET = (
    "-q",
    "-q",
    "-s",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
)
Line = tuple[str, int]


class ImportingRunner(Runner):
    """``trees``: of the whole product, as declarations are used elsewhere."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._uses = uses_in(self.trees)
        self._is_seen_by_users = True
        self._named: dict[Path, frozenset[str]] = {}

    def _lines(self, mutant: Mutant) -> list[Line]:
        """Where the declared name is used, a private one in its own module; if no test runs that, each line there."""
        name = mutant.function.rpartition(".")[2]
        uses = [use for use in self._uses.get(name, ()) if use[0] == mutant.file or not name.startswith("_")]
        if self._is_seen_by_users:
            return uses
        files = {mutant.file, *(file for file, _ in uses)}
        return [(file, line) for file, line in self._by_line if file in files]

    def tests_of(self, mutant: Mutant) -> list[pytest.Item]:
        self._is_seen_by_users = True
        found = super().tests_of(mutant)
        if not found:
            self._is_seen_by_users = False
            found = super().tests_of(mutant)
        found = list({item.nodeid: item for item in [*self._naming(mutant), *found]}.values())
        files = list(dict.fromkeys(item.path for item in found))[:FILES_MAX]
        return [item for item in found if item.path in files]

    def _naming(self, mutant: Mutant) -> list[pytest.Item]:
        """The quickest tests of files that name what is declared: of a table, they may run nothing of the product."""
        name = mutant.function.rpartition(".")[2]
        naming = {path for path in {item.path for item in self.items} if name in self._words(path)}
        chosen, left_s = [], self.limits.tests_s / 2
        for item in sorted((item for item in self.items if item.path in naming), key=self._took_s):
            left_s -= self._took_s(item)
            test = self.known.get(item.nodeid)
            if left_s > 0 and test is not None and test["took_s"] is not None:
                chosen.append(item)
        return chosen

    def _words(self, path: Path) -> frozenset[str]:
        if path not in self._named:
            self._named[path] = frozenset(re.findall(r"\w+", path.read_text(encoding="utf-8")))
        return self._named[path]

    def _plant(self, mutant: Mutant) -> None:
        mutant.apply()
        path = ROOT / mutant.file
        code = compile(self.trees[mutant.file], str(path), "exec", dont_inherit=True)
        for name in [name for name in sys.modules if name.partition(".")[0] in ANEW]:
            del sys.modules[name]
        sys.meta_path.insert(0, _Finder(path, code))

    def _failing(self, tests: Sequence[pytest.Item]) -> Iterator[int]:
        told = _Told([item.nodeid for item in tests])
        names = dict.fromkeys(str(ROOT / name.partition("[")[0]) for name in told.names)
        code = pytest.main([*QUIET, f"--maxfail={_FAILURES_MAX}", *names], plugins=[told])
        yield from told.failed
        if not told.failed and code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            # It cannot be imported: whichever passes without it says so.
            yield from range(len(tests))


class _Told:
    """The numbers of the tests that fail. One whose parameters are no more is not missed."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.failed: list[int] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        number = {name: n for n, name in enumerate(self.names)}
        items[:] = sorted((one for one in items if one.nodeid in number), key=lambda one: number[one.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(self.names.index(report.nodeid))


class _Finder(MetaPathFinder):
    def __init__(self, path: Path, code: CodeType) -> None:
        self._path, self._code = path, code

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if (
            not str(self._path).endswith(f"{fullname.replace('.', '/')}.py")
            and self._path.name != "__init__.py"
        ):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin == str(self._path):
            spec.loader = _Loader(fullname, spec.origin, self._code)
            return spec
        return None


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        return self._code


def uses_in(trees: dict[str, ast.Module]) -> dict[str, list[Line]]:
    """The lines in functions that use each name; of a function, also its own, and of a class, those of its methods."""
    found: defaultdict[str, dict[Line, None]] = defaultdict(dict)
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                found[node.id][file, node.lineno] = None
            elif isinstance(node, ast.Attribute):
                found[node.attr][file, node.end_lineno or node.lineno] = None
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found[node.name][file, node.body[0].lineno] = None
                found[node.name][file, node.body[-1].lineno] = None
            elif isinstance(node, ast.ClassDef):
                methods = [
                    one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
                ]
                found[node.name].update(((file, one.body[-1].lineno), None) for one in methods)
    return {name: list(lines) for name, lines in found.items()}
