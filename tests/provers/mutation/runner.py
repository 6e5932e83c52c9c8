"""The tests are collected once; each mutant lives in a fork of that process until the first test fails."""

from __future__ import annotations

import ast
import gc
import json
import os
import resource
import select
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import pytest
from _pytest.runner import runtestprotocol

from tests.provers.mutation import seen
from tests.provers.mutation.mutants import Mutant
from tests.provers.mutation.planting import NotPlantedError, Place, functions_below, plant
from tests.support.paths import ROOT

#: A mutant that does nothing for so long is taken for killed: it hangs. Nothing: less CPU time than this.
HANGS_AFTER_S, IDLE_S = 120.0, 0.5
#: A test that takes longer than this has quicker ones from other rooms before it.
QUICK_S = 0.5
#: So is one that takes more CPU time than all its tests on a slow machine, or so much memory: it has no end.
SLACK_S, SEED_S = 10, 5
DATA_BYTES_MAX = 4 << 30
ANY_LINE = 0
#: What found it, where no test did; with the number.
SIMULATOR = "simulator, seed"
KILLED, SURVIVED, UNSEEN, FAILED = "killed", "survived", "unseen", "not planted"


@dataclass(frozen=True)
class Limits:
    """``tests_s``: CPU time of the tests of one mutant; ``seeds``: of the simulator, for those that survive them."""

    jobs: int = 2
    tests_s: float = 5.0
    seeds: int = 0


@dataclass(frozen=True)
class Result:
    """``status``: one of those above; ``by``: the test that failed, or why there is none."""

    mutant: Mutant
    status: str
    by: str


@dataclass
class _Child:
    mutant: Mutant
    pid: int
    pipe: int
    deadline: float
    heard: bytes = b""
    #: CPU time when the deadline was set.
    worked_s: float = 0.0

    def hangs(self) -> bool:
        """Whether it has done nothing until the deadline; else it gets another one."""
        if time.monotonic() <= self.deadline:
            return False
        worked_s = _cpu_s(self.pid)
        idle = worked_s - self.worked_s < IDLE_S
        self.deadline, self.worked_s = time.monotonic() + HANGS_AFTER_S, worked_s
        return idle


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Runner:
    """``trees``: the syntax of each file that has mutants."""

    items: Sequence[pytest.Item]
    known: seen.Seen
    trees: dict[str, ast.Module]
    limits: Limits
    _functions: dict[Place, list[Any]] = field(default_factory=dict)
    _by_line: dict[tuple[str, int], list[pytest.Item]] = field(default_factory=dict)
    #: Tests that killed the last mutants of a function: they see it best.
    _killers: defaultdict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        sources = {file: seen.digest_of(ROOT / file) for file in self.trees}
        spans = {file: list(_coroutines(tree)) for file, tree in self.trees.items()}
        lines: defaultdict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
        for item in sorted(self.items, key=self._took_s):
            test = self.known.get(item.nodeid)
            if test is None or test["took_s"] is None:
                continue
            for file in self.trees.keys() & test["lines"].keys():
                # Of a file that has changed since, its lines have moved: it may run any of them.
                known = set(test["lines"][file]) if test["sources"][file] == sources[file] else {ANY_LINE}
                known.update(*(span for span in spans[file] if not known.isdisjoint(span)))
                for line in known:
                    lines[file, line].append(item)
        self._by_line = lines
        # A verb imports what it needs when it runs.
        for file in self.trees:
            with suppress(ImportError):
                import_module(file.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
        self._functions = functions_below(ROOT)
        gc.collect()
        gc.freeze()

    def _lines(self, mutant: Mutant) -> list[tuple[str, int]]:
        """What a test must run to see the mutant."""
        return [(mutant.file, mutant.line)]

    def _ran(self, item: pytest.Item, lines: list[tuple[str, int]]) -> bool:
        """Whether it is known to have run one of these very lines, and not only another one of the same coroutine."""
        test = self.known.get(item.nodeid)
        return test is not None and any(line in test["lines"].get(file, ()) for file, line in lines)

    def _took_s(self, item: pytest.Item) -> float:
        test = self.known.get(item.nodeid)
        return (test["took_s"] if test else None) or 0.0

    def run(self, mutants: Iterable[Mutant]) -> Iterator[Result | None]:
        """Results in the order in which they are known; None while there is none."""
        waiting, running = iter(mutants), list[_Child]()
        more = True
        while more or running:
            while more and len(running) < self.limits.jobs:
                mutant = next(waiting, None)
                if mutant is None:
                    more = False
                elif tests := self.tests_of(mutant):
                    running.append(self._fork(mutant, tests))
                else:
                    yield Result(mutant, UNSEEN, "no fast test runs this line")
            for child in self._ended(running):
                running.remove(child)
                yield self._result(child)
            yield None

    def tests_of(self, mutant: Mutant) -> list[pytest.Item]:
        """Those that run its line: first what killed its neighbours, then those of the same room; of each function one
        before a second of any, the quick ones first. A test that takes long comes after quick ones from elsewhere, and
        one that ran another line of its coroutine after those that ran this one.

        As many as the limit of CPU time allows.
        """
        lines = self._lines(mutant)
        places = dict.fromkeys([*lines, *((file, ANY_LINE) for file, _ in lines)])
        found = list(
            {item.nodeid: item for place in places for item in self._by_line.get(place, ())}.values()
        )
        killers = self._killers[mutant.file, mutant.function]
        room = Path("tests") / Path(mutant.file).parent.relative_to(Path(mutant.file).parts[0])
        name = f"test_{Path(mutant.file).stem}"

        earlier = Counter[str]()

        def rank(item: pytest.Item) -> tuple[int, int]:
            if item.nodeid in killers:
                return 0, -killers.index(item.nodeid)
            function = item.nodeid.partition("[")[0]
            earlier[function] += 1
            late = 2 * (self._took_s(item) > QUICK_S) + 4 * (not self._ran(item, lines))
            if name in item.nodeid:
                return 1 + late, earlier[function]
            return (2 if item.nodeid.startswith(str(room)) else 3) + late, earlier[function]

        chosen: list[pytest.Item] = []
        took_s = 0.0
        for item in sorted(found, key=rank):
            # One that takes too long leaves its time to the quicker ones behind it.
            if not chosen or took_s + self._took_s(item) <= self.limits.tests_s:
                took_s += self._took_s(item)
                chosen.append(item)
        return chosen

    def _fork(self, mutant: Mutant, tests: list[pytest.Item]) -> _Child:
        read, write = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            in_child(lambda: self._outcome(mutant, tests), write)
        os.close(write)
        return _Child(mutant, pid, read, time.monotonic() + HANGS_AFTER_S)

    def _outcome(self, mutant: Mutant, tests: list[pytest.Item]) -> list[str]:
        cpu_s = int(4 * self.limits.tests_s) + SLACK_S + SEED_S * self.limits.seeds
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
        resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES_MAX, DATA_BYTES_MAX))
        witness = _Witness(tests)
        try:
            self._plant(mutant)
        except (NotPlantedError, SyntaxError, ValueError) as error:
            return [FAILED, str(error)]
        for number in self._failing(tests):
            # Beside much other work, or by itself, it may fail without the mutant, too.
            if witness.passes(number):
                return [KILLED, tests[number].nodeid]
        for seed in range(1, self.limits.seeds + 1):
            if _violated(seed):
                return [KILLED, f"{SIMULATOR} {seed}"]
        return [SURVIVED, f"{len(tests)} tests"]

    def _plant(self, mutant: Mutant) -> None:
        plant(mutant, self.trees[mutant.file], ROOT / mutant.file, self._functions)

    def _failing(self, tests: Sequence[pytest.Item]) -> Iterator[int]:
        """The numbers of those that fail, as they do."""
        for number, (item, following) in enumerate(zip(tests, [*tests[1:], None], strict=True)):
            if _fails(item, following):
                yield number

    def _ended(self, running: list[_Child]) -> list[_Child]:
        if not running:
            return []
        ready, _, _ = select.select([child.pipe for child in running], [], [], 1.0)
        ended = []
        for child in running:
            if child.pipe in ready:
                part = os.read(child.pipe, 65536)
                child.heard += part
                if not part:
                    ended.append(child)
            elif child.hangs():
                os.killpg(child.pid, signal.SIGKILL)
                ended.append(child)
        return ended

    def _result(self, child: _Child) -> Result:
        os.close(child.pipe)
        _, status = os.waitpid(child.pid, 0)
        if not child.heard:
            return Result(child.mutant, KILLED, f"hangs or ends the process ({status})")
        found, by = json.loads(child.heard)
        if found == KILLED and "::" in by:
            killers = self._killers[child.mutant.file, child.mutant.function]
            if by in killers:
                killers.remove(by)
            killers.append(by)
        return Result(child.mutant, found, by)


class _Witness:
    """A process of before the mutant, which says whether a test passes without it. The mutant's own cannot: what it has
    made stays in caches."""

    def __init__(self, tests: Sequence[pytest.Item]) -> None:
        asked, self._ask = os.pipe()
        self._answer, answer = os.pipe()
        if os.fork() == 0:
            os.close(self._ask)
            os.close(self._answer)
            _testify(tests, asked, answer)
        os.close(asked)
        os.close(answer)

    def passes(self, number: int) -> bool:
        os.write(self._ask, number.to_bytes(_NUMBER_BYTES, "big"))
        return os.read(self._answer, 1) == _PASSED


_NUMBER_BYTES, _PASSED, _NOT_PASSED = 4, b"y", b"n"


def _testify(tests: Sequence[pytest.Item], asked: int, answer: int) -> NoReturn:
    """Until nobody asks any more. Each answer comes from a process of its own."""
    try:
        while number := os.read(asked, _NUMBER_BYTES):
            pid = os.fork()
            if pid == 0:
                os._exit(int(_fails(tests[int.from_bytes(number, "big")], None)))
            os.write(answer, _NOT_PASSED if os.waitpid(pid, 0)[1] else _PASSED)
    finally:
        os._exit(0)


def _coroutines(tree: ast.Module) -> Iterator[range]:
    """The lines of each. Whoever runs some of them may run all: before Python 3.12 coverage.py loses those after an
    exception that is thrown into it, as that of a timeout is."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef):
            yield range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _fails(item: pytest.Item, following: pytest.Item | None) -> bool:
    return any(report.failed for report in runtestprotocol(item, log=False, nextitem=following))


def _violated(seed: int) -> bool:
    from tests.provers.sim.plans.plan import plan
    from tests.provers.sim.simulate import simulate

    try:
        return bool(simulate(plan(seed)).violations)
    except Exception:  # noqa: BLE001  (whatever it is: without the mutant it is not there)
        return True


def in_child(work: Callable[[], Any], pipe: int) -> NoReturn:
    """In a forked process: do it, write its result as JSON, and end."""
    os.setpgid(0, 0)
    gc.enable()
    signal.signal(signal.SIGTERM, _end)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    try:
        with os.fdopen(pipe, "w") as out:
            json.dump(work(), out)
    finally:
        os._exit(0)


def _end(signum: int, frame: FrameType | None) -> NoReturn:
    os._exit(1)
