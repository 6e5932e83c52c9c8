"""Fixtures every test may use: a real ZooKeeper, once a session, with a fresh chroot for each test.

And Hypothesis' profiles, by ``HYPOTHESIS_PROFILE``: "gate" takes the same examples every time, "short" (``make test``)
and "quick" (``make check``) fewer of them, "nightly" looks for new ones (``HYPOTHESIS_EXAMPLES`` says how many).
"""

from __future__ import annotations

import gc
import itertools
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from kazoo.client import KazooClient
from xdist.scheduler import LoadFileScheduling

from controller.embedded_zookeeper.ensemble import EmbeddedZooKeeper
from proto.zookeeper_access import Client
from tests.support.paths import ROOT
from tests.support.runtime import forks

for profile, examples in (("gate", 100), ("short", 25), ("quick", 5)):
    settings.register_profile(
        profile,
        derandomize=True,
        deadline=None,
        max_examples=examples,
        suppress_health_check=[HealthCheck.too_slow],
        database=None,
    )
settings.register_profile(
    "nightly",
    deadline=None,
    max_examples=int(os.environ.get("HYPOTHESIS_EXAMPLES", "5000")),
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """pctl remembers where a controller was: not in the home of whoever runs the tests, nor for the next run, whose
    cluster may have the same address.

    No archive of Spark's classes is made in a path with a space: making one takes longer than a report."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("no archives"))


@pytest.fixture(scope="session", autouse=True)
def quick_java() -> Iterator[None]:
    """Every JVM that a test starts, also by way of another process, ends before its better compiler has paid for
    itself: a ZooKeeper server takes half the processor time without it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1", prepend=" ")
        yield


@pytest.fixture(scope="session", autouse=True)
def quick_starts() -> Iterator[None]:
    """Members of clusters are forked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("controller.playground.cluster.launch", forks.launch)
        yield


_chroots = itertools.count()
#: Tests whose work grows with the time that they take: clusters that are written to all along. Side by side they took
#: one and a half to two and a half times the processor time.
LOADED = (
    "tests/docs/test_readme.py",
    "tests/kafka/",
    "tests/provers/chaos/",
    "tests/provers/durability/",
    "tests/playground/",
    "tests/workload/test_verdicts.py",
)
#: Each goes to one worker as a whole: those that share a Spark, and those that must not run side by side.
TOGETHER = {"analysis": ("tests/analysis/",), "loaded": LOADED}
#: Files that take longest, and go first: the last one must not keep one worker busy when the others have nothing left.
#: All of TOGETHER goes with its first file.
LONGEST = (
    "analysis/test_job.py",
    "docs/test_readme.py",
    "kafka/test_leading.py",
    "provers/chaos/test_chaos.py",
    "provers/sim/test_simulator.py",
    "integration/test_leadership.py",
    "integration/test_replication.py",
    "runtime/election/test_takeover.py",
    "attack/test_poison.py",
    "integration/test_watchers.py",
    "tools/test_zk_shell.py",
    "integration/test_history_and_watch.py",
    "attack/test_bounds.py",
    "runtime/rpc/test_rpc_fuzz.py",
    "integration/test_odd_control_znodes.py",
    "workload/test_verdicts.py",
    "integration/test_outages.py",
    "cli/running_cluster/test_bad_input.py",
    "tools/test_kafka_tools.py",
    "playground/test_playground.py",
    "provers/sim/planted/test_sim_planted.py",
    "attack/test_tls.py",
    "integration/test_deletion.py",
    "provers/model/test_reachable_states.py",
    "broker_stub/test_process.py",
    "runtime/zookeeper/test_secured_ensemble.py",
    "provers/durability/test_durability.py",
    # By their names these would be among the last.
    "test_architecture.py",
    "runtime/test_process.py",
    "tools/test_installation.py",
    "workload/test_checker.py",
    # Of make test-long.
    "deploy/test_alerts_fired.py",
    "docs/test_tutorial.py",
    "kafka/test_tools.py",
    "kafka/test_secured.py",
    "provers/durability/test_crashes.py",
    "provers/durability/test_upgrade.py",
    "provers/soak/test_soak.py",
    "tools/test_kafka_utils.py",
)


#: What needs a server is slow, whether it says so or not.
SERVERS = {"zookeeper_server", "spark"}
#: A timeout amid a call to the JVM leaves the Spark that tests share unusable: on a busy machine one made 59 failures.
SPARK_TIMEOUT_S = 1200
#: They need no server, and take long: tests of what tests the product, of the work that grows with the input, of random
#: walks of the broker, of each moment at which a process may die, of logs with any damage, and of each of some hundred
#: generated messages, also by another library's reading.
THOROUGH = (
    "analysis/test_conversion.py",
    "broker_stub/log/test_log_power_cuts.py",
    "broker_stub/log/test_log_recovery.py",
    "broker_stub/replication/test_replication_machine.py",
    "core/reassignment/test_crashes.py",
    "core/test_warm_failovers.py",
    "core/topics/test_deletion_crashes.py",
    "linear/",
    "proto/kafka/test_kio.py",
    "proto/kafka/test_messages.py",
    "provers/",
    "workload/",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Each worker imports some files of its own first: in a fresh clone all workers would else compile all files, in
    the same order and at the same time."""
    given = getattr(session.config, "workerinput", None)
    if given is None:
        return
    named = [Path(name.partition("::")[0]).resolve() for name in session.config.args]
    found = (file for path in named for file in ([path] if path.is_file() else path.rglob("test_*.py")))
    files = sorted(file for file in found if not _is_left_out(file, session.config))
    for file in files[int(given["workerid"].removeprefix("gw")) :: given["workercount"]]:
        # What is wrong with a file is said when its tests are collected.
        with suppress(Exception):
            import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Of which nothing would be run is not imported."""
    return True if _is_left_out(collection_path, config) else None


def _is_left_out(path: Path, config: pytest.Config) -> bool:
    """Whether a file is thorough, in a run without those."""
    tests = ROOT / "tests"
    if "not thorough" not in config.getoption("markexpr") or not path.is_relative_to(tests):
        return False
    return path.is_file() and path.relative_to(tests).as_posix().startswith(THOROUGH)


def pytest_collection_finish() -> None:
    """What was collected stays to the end: no collection of garbage need look at it. Tests leave little, so it comes
    seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--retry-slow", action="store_true", help="try each test marked slow a second time if it fails"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    position = {name: number for number, name in enumerate(LONGEST)}
    for item in items:
        if SERVERS & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
        # Not by --reruns, of all: between workers it counts the tries of each test, which takes 45 ms.
        if config.option.retry_slow and item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.flaky(reruns=1))
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT_S))
        if _file(item).startswith(THOROUGH):
            item.add_marker(pytest.mark.thorough)
    items.sort(key=lambda item: position.get(_file(item), len(LONGEST)))


def _file(item: pytest.Item) -> str:
    """Its path in this folder."""
    return item.nodeid.partition("::")[0].removeprefix("tests/")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Any:
    """By file, but for TOGETHER: else each worker would start a Spark of its own."""
    if config.getvalue("dist") != "loadfile":
        return None
    scheduling = LoadFileScheduling(config, log)
    of_file = scheduling._split_scope
    scheduling._split_scope = lambda test: _together(test) or of_file(test)
    return scheduling


def _together(test: str) -> str | None:
    return next((name for name, prefixes in TOGETHER.items() if test.startswith(prefixes)), None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Why a test was tried a second time (``make test``): a race of a test or of the product, to be looked for."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(
            f"passed only at the second try, or failed twice: {report.nodeid}", yellow=True
        )
        terminalreporter.write_line(report.longreprtext)


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Connect string of a real server; ``PARTITION_CONTROLLER_TEST_ZOOKEEPER`` names another one to use."""
    if given := os.environ.get("PARTITION_CONTROLLER_TEST_ZOOKEEPER"):
        yield given
        return
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper"), force_sync=False) as embedded:
        yield embedded.connect_string


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c_heeded() -> Iterator[None]:
    """What a shell starts in the background has Ctrl-C ignored, and hands that down to all that it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """Verbs that run Spark set them for the rest of their process, which here is that of all tests."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def zookeeper(zookeeper_server: str) -> str:
    """Connect string with a chroot of this test's own, already created."""
    chroot = f"/test-{os.getpid()}-{next(_chroots)}"
    client = KazooClient(zookeeper_server)
    client.start(20)
    client.ensure_path(chroot)
    client.stop()
    client.close()
    return f"{zookeeper_server}{chroot}"


@pytest.fixture
def zk(zookeeper: str) -> Iterator[KazooClient]:
    """An independent client in this test's chroot: the operator's hands."""
    client = Client(hosts=zookeeper)
    client.start(20)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def state_log_dir(tmp_path: Path) -> Path:
    return tmp_path / "state-log"
