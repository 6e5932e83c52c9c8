"""``python -m tests.provers.mutation``: plant small mistakes in the product, and see which tests find them.

python -m tests.provers.mutation controller/core/isr      a folder, or files
python -m tests.provers.mutation --diff                   the lines that the last commit changed
python -m tests.provers.mutation --diff main              the lines that differ from main
python -m tests.provers.mutation --write controller/core  and the tables in docs/mutation.md anew
python -m tests.provers.mutation --by-hand                the mistakes that are listed; of these files, if named
python -m tests.provers.mutation --declarations proto     what stands outside of functions

What was killed is not tried again as long as its function stays as it is (build/mutation).
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, Phase, settings

from controller.embedded_zookeeper.ensemble import EmbeddedZooKeeper
from tests.provers.mutation import by_hand, results, seen
from tests.provers.mutation.declarations import declarations_of
from tests.provers.mutation.importing import QUIET, ImportingRunner
from tests.provers.mutation.mutants import Mutant, mutants_of
from tests.provers.mutation.runner import FAILED, KILLED, SURVIVED, UNSEEN, Limits, Result, Runner, in_child
from tests.support.paths import ROOT

#: What mutants are made of.
PRODUCT = ("controller", "broker_stub", "proto")
#: The tests of each part of the product; the longest that fits counts. Others are asked by the simulator.
TESTS = {
    "controller/core": ("tests/core", "tests/linear", "tests/planning", "tests/provers/model"),
    "controller/core/config_keys.py": ("tests/core/cluster", "tests/runtime/test_masking.py"),
    "controller/core/names.py": ("tests/core/topics", "tests/cli/test_lists.py"),
    "controller/planning": ("tests/planning", "tests/cli"),
    #: The world of the core's tests.
    "controller/planning/store.py": ("tests/planning", "tests/core"),
    "controller/runtime": ("tests/runtime", "tests/provers/sim", "tests/linear"),
    "controller/runtime/config.py": ("tests/runtime/test_config.py",),
    "controller/runtime/state.py": (
        "tests/runtime/test_state.py",
        "tests/runtime/test_daemon_requests.py",
        "tests/runtime/http",
    ),
    "controller/runtime/zookeeper": (
        "tests/runtime/zookeeper",
        "tests/provers/sim/zookeeper",
        "tests/kafka_decoders",
    ),
    "controller/runtime/kafka": (
        "tests/runtime/kafka",
        "tests/runtime/kafka_api",
        "tests/provers/sim/zookeeper/contract",
    ),
    "controller/runtime/lease.py": ("tests/runtime/test_lease.py", "tests/provers/sim/zookeeper/contract"),
    "controller/runtime/audit": ("tests/runtime/audit", "tests/runtime/test_daemon_requests.py"),
    "controller/runtime/election": (
        "tests/runtime/election",
        "tests/runtime/test_active.py",
        "tests/provers/sim/zookeeper/contract/test_leading_in_memory.py",
        "tests/provers/sim/zookeeper/contract/test_runtime_in_memory.py",
    ),
    "controller/runtime/http": (
        "tests/runtime/http",
        "tests/runtime/observe/test_observing.py",
        "tests/runtime/observe/test_counting.py",
    ),
    "controller/runtime/kafka_api": ("tests/runtime/kafka_api", "tests/runtime/kafka"),
    "controller/runtime/observe": ("tests/runtime/observe", "tests/runtime/rpc/test_history_service.py"),
    "controller/runtime/rpc": (
        "tests/runtime/rpc",
        "tests/runtime/test_daemon_requests.py",
        "tests/runtime/test_blame.py",
    ),
    "controller/analysis": ("tests/analysis",),
    "controller/workload": ("tests/workload",),
    #: The others need a cluster for each file of them.
    "controller/certificates.py": ("tests/cli/test_certificates.py",),
    "controller/cli": (
        "tests/cli/verbs",
        "tests/cli/test_certificates.py",
        "tests/cli/test_check_cluster.py",
        "tests/cli/test_check_config.py",
        "tests/cli/test_cluster_health.py",
        "tests/cli/test_common.py",
        "tests/cli/test_common_options.py",
        "tests/cli/test_examples.py",
        "tests/cli/test_group_reading.py",
        "tests/cli/test_lists.py",
        "tests/cli/test_man.py",
        "tests/cli/test_offline_brokers.py",
        "tests/cli/test_plan_output.py",
        "tests/cli/test_record_format.py",
        "tests/cli/test_report_output.py",
        "tests/cli/test_standard_input.py",
        "tests/cli/test_start.py",
        "tests/cli/test_tables.py",
        "tests/cli/test_throttle.py",
        "tests/cli/test_tokens.py",
        "tests/cli/test_what_is_shown.py",
        "tests/docs/test_commands_page.py",
    ),
    "controller/client": ("tests/cli/running_cluster/test_bootstrap.py", "tests/cli/test_what_is_shown.py"),
    "controller/embedded_kafka": ("tests/embedded_kafka",),
    "controller/embedded_zookeeper": ("tests/embedded_zookeeper", "tests/deploy/test_compose.py"),
    "controller/playground": ("tests/playground",),
    "broker_stub": ("tests/broker_stub", "tests/provers/sim/environment"),
    "proto/addresses.py": ("tests/runtime/test_config.py",),
    "proto/digest.py": ("tests/runtime/audit", "tests/broker_stub/control"),
    "proto/incarnations.py": ("tests/proto",),
    "proto/kafka": ("tests/proto/kafka",),
    "proto/kafka/znode_json.py": ("tests/runtime/zookeeper", "tests/broker_stub/zookeeper"),
    "proto/logs.py": ("tests/proto",),
    "proto/reload.py": ("tests/proto",),
    "proto/settings.py": ("tests/runtime/test_config.py", "tests/broker_stub/test_settings.py"),
    "proto/tasks.py": ("tests/proto",),
    "proto/texts.py": (
        "tests/runtime/test_config.py",
        "tests/broker_stub/test_settings.py",
        "tests/cli/test_tables.py",
    ),
    "proto/zookeeper_access.py": ("tests/proto", "tests/runtime/zookeeper"),
    "proto/security": (
        "tests/proto/security",
        "tests/runtime/rpc",
        "tests/runtime/http/test_access.py",
        "tests/broker_stub/rpc",
    ),
    "proto/statelog": ("tests/proto/statelog", "tests/runtime/observe"),
    "": ("tests",),
}
#: Here the slow tests of the room are asked, too: one ZooKeeper serves all of them, and most take less than a second.
SERVED = tuple(
    f"controller/runtime/{room}/"
    for room in ("audit", "election", "http", "kafka", "kafka_api", "observe", "rpc")
)
#: And here for mistakes by hand, when nothing else is tried: each mutant has a Spark of its own.
SPARK = "controller/analysis"
#: tests/conftest.py: the server to use.
ZOOKEEPER = "PARTITION_CONTROLLER_TEST_ZOOKEEPER"
EQUIVALENT = "equivalent"
PROGRESS_S = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    """1 when a mutant survived that is not said to be equivalent."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.provers.mutation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("places", nargs="*", metavar="FILE|FOLDER")
    parser.add_argument("--diff", nargs="?", const="HEAD~1", metavar="REVISION")
    parser.add_argument(
        "--by-hand", action="store_true", help="not all small changes: mistakes that are listed"
    )
    parser.add_argument("--declarations", action="store_true", help="what stands outside of functions")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--tests-s", type=float, default=5.0, help="CPU time of the tests of one mutant")
    parser.add_argument(
        "--seeds", type=int, default=0, help="of the simulator, for what the tests do not find"
    )
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each N-th mutant: a sample")
    parser.add_argument("--first", type=int, default=0, metavar="K", help="where the sample begins, from 0")
    parser.add_argument("--survivors", action="store_true", help="only those that survived before")
    parser.add_argument("--again", action="store_true", help="also what was killed before")
    parser.add_argument("--write", action="store_true", help="the table of all that has been tried")
    chosen = parser.parse_args(arguments)
    lines = _changed(chosen.diff) if chosen.diff else None
    files = sorted(_files(chosen.places) if lines is None else lines.keys())
    if chosen.by_hand:
        files = [file for file in by_hand.files() if file in files or not chosen.places]
    if not files:
        if chosen.diff:
            print("no line of the product differs")
            return 0
        if not chosen.write:
            parser.error("name files or folders, or --diff")
    trees = _trees(files)
    equal = results.Equivalents("") if chosen.by_hand else results.equivalents()
    if chosen.by_hand:
        listed = by_hand.mistakes(trees)
        mutants = [mutant for mutant in listed.planted if mutant.key not in listed.harmless]
        for stale in listed.stale:
            print(f"the source has moved on: {stale}")
    else:
        made = declarations_of if chosen.declarations else _in_functions
        every = [mutant for file in files for mutant in made(file, trees[file])]
        for stale in equal.stale(_all_of(trees)):
            print(f"said to be equivalent, but there is no such mutant: {stale}")
        mutants = [mutant for mutant in every if lines is None or mutant.line in lines[mutant.file]]
    limits = Limits(chosen.jobs, chosen.tests_s, chosen.seeds)
    mutants = mutants[chosen.first :: max(chosen.every, 1)]
    if chosen.survivors:
        known = results.load()
        mutants = [m for m in mutants if m.key in known and known[m.key].status in (SURVIVED, UNSEEN)]
    survived = _try(mutants, trees, limits, equal, chosen) if mutants else 0
    if chosen.write:
        _write()
    return int(bool(survived))


def _all_of(trees: dict[str, ast.Module]) -> Iterator[Mutant]:
    for file, tree in trees.items():
        yield from _in_functions(file, tree)
        yield from declarations_of(file, tree)


def _in_functions(file: str, tree: ast.Module) -> Iterator[Mutant]:
    return (mutant for mutant in mutants_of(file, tree) if mutant.function)


def _files(places: Iterable[str]) -> set[str]:
    found: set[Path] = set()
    for place in places:
        path = (ROOT / place).resolve()
        found |= set(path.rglob("*.py")) if path.is_dir() else {path}
    return {str(path.relative_to(ROOT)) for path in found if _is_product(path.relative_to(ROOT))}


def _trees(files: Iterable[str]) -> dict[str, ast.Module]:
    return {file: ast.parse((ROOT / file).read_text(encoding="utf-8")) for file in files}


def _tests_of(file: str) -> tuple[str, ...]:
    return TESTS[max((place for place in TESTS if file.startswith(place)), key=len)]


def _is_product(file: Path) -> bool:
    return file.parts[0] in PRODUCT and "gen" not in file.parts


def _changed(revision: str) -> dict[str, set[int]]:
    """The lines of each file of the product that are new since then."""
    command = ["git", "diff", "--unified=0", "--no-color", revision, "--", *(f"{p}/**.py" for p in PRODUCT)]
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found: dict[str, set[int]] = {}
    for line in text.splitlines():
        if line.startswith("+++ b/"):
            file = line[6:]
        elif match := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(match[1]), int(match[2] or "1")
            if _is_product(Path(file)):
                found.setdefault(file, set()).update(range(first, first + count))
    return found


class _Collected:
    """Keeps what pytest has collected, and runs nothing of it."""

    def __init__(self) -> None:
        self.session: pytest.Session | None = None
        self.work: list[int] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.session = session
        self.work.append(self.tried(session.items))
        return True

    def tried(self, items: Sequence[pytest.Item]) -> int:
        raise NotImplementedError


def _try(
    mutants: list[Mutant],
    trees: dict[str, ast.Module],
    limits: Limits,
    equal: results.Equivalents,
    chosen: argparse.Namespace,
) -> int:
    """How many survived."""
    known = results.load()
    left = [
        m
        for m in mutants
        if chosen.again or (found := known.get(m.key)) is None or found.status not in (KILLED, FAILED)
    ]
    print(f"{len(mutants)} mutants, {len(mutants) - len(left)} of them killed before", flush=True)

    class Trying(_Collected):
        def tried(self, items: Sequence[pytest.Item]) -> int:
            asked = _asked(items, trees, spark=chosen.by_hand)
            with _zookeeper(asked):
                known = _seen(asked, limits.jobs)
                if chosen.declarations:
                    whole = {**_trees(_files(PRODUCT)), **trees}
                    return _tell(ImportingRunner(asked, known, whole, limits), left, equal)
                runner = Runner(asked, known, trees, limits)
                return _tell(runner, left, equal)

    settings.register_profile(
        "mutation",
        derandomize=True,
        deadline=None,
        max_examples=25,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    os.environ["HYPOTHESIS_PROFILE"] = "mutation"
    plugin = Trying()
    folders = sorted({str(ROOT / folder) for file in trees for folder in _tests_of(file)})
    code = pytest.main([*QUIET, *folders], plugins=[plugin])
    if not plugin.work:
        raise SystemExit(f"the tests could not be collected (pytest's exit code {code})")
    return plugin.work[0]


def _asked(items: Iterable[pytest.Item], files: Iterable[str], *, spark: bool) -> list[pytest.Item]:
    """All but the slow tests of rooms that have enough quick ones."""
    alone = spark and all(file.startswith(SPARK) for file in files)
    served = {ROOT / place for file in files if alone or file.startswith(SERVED) for place in _tests_of(file)}
    return [
        item
        for item in items
        if item.get_closest_marker("slow") is None or not served.isdisjoint((item.path, *item.path.parents))
    ]


@contextmanager
def _zookeeper(items: Iterable[pytest.Item]) -> Iterator[None]:
    """One server for the tests in all forks, if any of them wants one: each fork would else start its own."""
    if ZOOKEEPER in os.environ or not any(
        "zookeeper_server" in getattr(item, "fixturenames", ()) for item in items
    ):
        yield
        return
    with (
        TemporaryDirectory() as directory,
        EmbeddedZooKeeper(Path(directory), force_sync=False) as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv(ZOOKEEPER, server.connect_string)
        yield


def _seen(items: Sequence[pytest.Item], jobs: int) -> seen.Seen:
    """What each test runs; measured for those whose file is new since the last time."""
    known = seen.load()
    new = [
        item
        for item in items
        if item.nodeid not in known or known[item.nodeid]["digest"] != seen.digest_of(item.path)
    ]
    if not new:
        return known
    began = time.monotonic()
    print(f"measuring what {len(new)} of {len(items)} tests run", flush=True)
    jobs = min(jobs, len(new))
    parts = [new[n * len(new) // jobs : (n + 1) * len(new) // jobs] for n in range(jobs)]
    files = [f"{package}/*" for package in PRODUCT]
    pipes = []
    for part in parts:
        read, write = os.pipe()
        if os.fork() == 0:
            os.close(read)
            in_child(lambda part=part: seen.measure(part, files), write)  # type: ignore[misc]
        os.close(write)
        pipes.append(os.fdopen(read))
    for pipe in pipes:
        with pipe:
            known.update(json.load(pipe))
    for _ in parts:
        os.wait()
    seen.save(known)
    failed = [name for name, test in known.items() if test["took_s"] is None]
    print(f"measured in {time.monotonic() - began:.0f} s; {len(failed)} left out, as they fail: {failed[:5]}")
    return known


def _tell(runner: Runner, mutants: list[Mutant], equal: results.Equivalents) -> int:
    """Run them with progress; how many survived."""
    began = told = time.monotonic()
    counts = Counter[str]()

    def line() -> str:
        parts = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
        return f"{sum(counts.values())} of {len(mutants)} in {time.monotonic() - began:.0f} s: {parts}"

    try:
        for result in runner.run(mutants):
            if result is not None:
                results.keep(result)
                status = _status(result, equal)
                counts[status] += 1
                if status not in (KILLED, FAILED, EQUIVALENT):
                    one = result.mutant
                    print(f"{one.file}:{one.line} {one.function}: {one.what}  [{result.by}]", flush=True)
            if time.monotonic() - told > PROGRESS_S:
                told = time.monotonic()
                print(line(), flush=True)
    except KeyboardInterrupt:
        print("interrupted")
    print(line())
    return sum(counts.values()) - counts[KILLED] - counts[FAILED] - counts[EQUIVALENT]


def _status(result: Result, equal: results.Equivalents) -> str:
    if result.status in (KILLED, FAILED):
        return result.status
    return result.status if equal.why(result.mutant) is None else EQUIVALENT


def _write() -> None:
    files = [file for file in results.files() if (ROOT / file).exists()]
    mutants = [mutant for file, tree in _trees(files).items() for mutant in _in_functions(file, tree)]
    known = results.load()
    tried = {mutant.file for mutant in mutants if mutant.key in known}
    results.write(results.table(mutants, known, results.equivalents()), tried)


if __name__ == "__main__":
    sys.exit(main())
