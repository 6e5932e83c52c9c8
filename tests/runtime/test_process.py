"""The process around the daemon: service manager, signals, exit codes, and what a bug leaves behind."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from controller.runtime import process
from tests.support.runtime.programs import BIN, Program, program, run_to_end

pytestmark = pytest.mark.slow

#: Starts the real command with the core's handler of brokers replaced by one that raises.
WITH_A_BUG = """
from controller.cli.main import main
from controller.core.brokers import changes
def broken(context):
    raise ZeroDivisionError("injected")
    yield
changes.brokers_changed = broken
main()
"""
#: And with one outside every term.
WITH_A_BUG_OUTSIDE = """
from controller.cli.main import main
from controller.runtime.election.registration import Registration
async def broken(self):
    raise ZeroDivisionError("injected")
Registration.create = broken
main()
"""


def arguments(zookeeper: str, *more: str) -> list[str]:
    return [
        "run",
        f"--zookeeper={zookeeper}",
        "--grpc-listen=127.0.0.1:0",
        "--http-listen=127.0.0.1:0",
        "--state-log-dir=log",
        *more,
    ]


def controller(zookeeper: str, *more: str) -> list[str]:
    return [str(BIN / "partition-controller"), *arguments(zookeeper, *more)]


def http_of(running: Program) -> str:
    running.until(lambda: '"listening"' in running.said())
    found = re.search(r'"http": "([^"]+)"', running.said())
    assert found is not None
    return found[1]


def leads(running: Program) -> bool:
    return '"event": "ready"' in running.said()


class Manager:
    """The service manager's end of the socket: everything it was told."""

    def __init__(self, path: str) -> None:
        self.notified: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(path)
        self._socket.setblocking(False)

    def listen(self) -> list[str]:
        while True:
            try:
                self.notified.append(self._socket.recv(4096).decode())
            except BlockingIOError:
                return self.notified

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Manager, str]]:
    if request.param == "path":
        name = address = str(tmp_path / "notify")
    else:
        name, address = f"@pc-test-{tmp_path.name}", f"\0pc-test-{tmp_path.name}"
    made = Manager(address)
    yield made, name
    made.close()


def test_a_service_manager_that_does_not_read_holds_nothing_up(
    manager: tuple[Manager, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    notified, name = manager
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    for _ in range(5000):
        process.notify_systemd("WATCHDOG=1")
    assert 0 < len(notified.listen()) < 5000


def test_the_service_manager_is_told_and_sigterm_ends_well(
    zookeeper: str, zk: KazooClient, tmp_path: Path, manager: tuple[Manager, str]
) -> None:
    notified, name = manager
    environment = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "300000"}
    with program(controller(zookeeper), tmp_path, environment) as running:
        running.until(lambda: "WATCHDOG=1\nSTATUS=active" in notified.listen())
        assert notified.notified[0] == "READY=1"
        assert all(t == "READY=1" or t.startswith("WATCHDOG=1\n") for t in notified.notified)
        assert zk.exists("/controller")
        assert running.terminate() == 0
        assert notified.listen()[-1] == "STOPPING=1"
        # It resigned: nobody has to wait for its session.
        assert not zk.exists("/controller")
        assert zk.get_children("/controllers/ids") == []
    lives = [json.loads(line) for line in (tmp_path / "log" / "state-change.jsonl").read_text().splitlines()]
    assert [r["to"] for r in lives if r["kind"] == "controller"] == [
        "started",
        "active",
        "resigned",
        "stopped",
    ]


def test_sigint_and_sigterm_before_there_is_a_zookeeper(tmp_path: Path) -> None:
    with program(controller("127.0.0.1:1"), tmp_path) as running:
        http_of(running)
        assert running.terminate() == 0


def test_a_log_that_nobody_takes_ends_no_term(zookeeper: str, tmp_path: Path) -> None:
    """Its disk is full; and there is no environment of ours, by which nothing is buffered."""
    full = ["sh", "-c", 'unset PYTHONUNBUFFERED; exec "$@" 2>/dev/full', "sh"]
    with program([*full, *controller(zookeeper)], tmp_path) as running:
        records = tmp_path / "log" / "state-change.jsonl"
        running.until(lambda: records.exists() and '"to":"active"' in records.read_text())
        assert running.terminate() == 0
    assert [path.name for path in (tmp_path / "log").glob("crash-*")] == []


def test_a_log_that_nobody_reads_holds_up_no_term(zookeeper: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "unread")
    unread = os.open(tmp_path / "unread", os.O_RDWR | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while True:
            os.write(unread, b"x" * 4096)
    unheard = ["sh", "-c", 'exec "$@" 2>unread', "sh"]
    with program([*unheard, *controller(zookeeper)], tmp_path) as running:
        records = tmp_path / "log" / "state-change.jsonl"
        running.until(lambda: records.exists() and '"to":"active"' in records.read_text())
        assert running.terminate() == 0
    os.close(unread)


def test_a_bug_in_a_term_dumps_what_was_known_and_ends_no_process(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", WITH_A_BUG, *arguments(zookeeper, "--controller-id=4")]
    with program(command, tmp_path) as running:
        running.until(lambda: leads(running))
        zk.create("/brokers/ids/1", b'{"version":4,"host":"127.0.0.1","port":1}')
        running.until(lambda: '"event": "bug"' in running.said())
        # It was about the change itself, which the next failover reads without that handler.
        running.until(lambda: running.said().count('"event": "ready"') == 2)
        assert running.terminate() == 0
    (dump,) = (tmp_path / "log").glob("crash-*.json")
    state = json.loads(dump.read_text())
    assert "ZeroDivisionError: injected" in state["error"]
    assert (state["role"], state["settings"]["controller_id"]) == ("active", "4")
    assert state["event"].startswith("Event(kind=<EventKind.BROKER_CHANGE")
    assert f'"dump": "{Path("log") / dump.name}"' in running.said()
    (suspect,) = json.loads(zk.get("/controllers/quarantine")[0])["suspects"].values()
    assert (suspect["name"], suspect["count"], suspect["quarantined"]) == ("BrokerChange", 1, False)


def test_a_bug_outside_a_term_exits_70(zookeeper: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITH_A_BUG_OUTSIDE, *arguments(zookeeper)]
    with program(command, tmp_path) as running:
        assert running.process.wait(30) == 70
    (dump,) = (tmp_path / "log").glob("crash-*.json")
    assert "ZeroDivisionError: injected" in json.loads(dump.read_text())["error"]


def test_a_bug_that_cannot_be_dumped_is_logged_and_exits_70(zookeeper: str, tmp_path: Path) -> None:
    without_directory = WITH_A_BUG_OUTSIDE.replace(
        "    raise", "    __import__('shutil').rmtree('log')\n    raise"
    )
    command = [sys.executable, "-c", without_directory, *arguments(zookeeper)]
    with program(command, tmp_path) as running:
        assert running.process.wait(30) == 70
    logged = {entry["event"]: entry for entry in map(json.loads, running.said().splitlines())}
    assert "No such file" in logged["not_dumped"]["why"]
    assert "ZeroDivisionError: injected" in logged["bug"]["exception"]


@pytest.mark.parametrize("taken", ["grpc_listen", "http_listen"])
def test_an_occupied_port_is_a_bad_setting(tmp_path: Path, taken: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        address = f"127.0.0.1:{occupied.getsockname()[1]}"
        done = run_to_end(controller("127.0.0.1:1", f"--{taken.replace('_', '-')}={address}"), tmp_path)
    assert done.returncode == 2
    assert f"partition-controller: {taken} = '{address}': must be an address to listen on" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_log_directory_that_cannot_be_is_a_bad_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run_to_end(controller("127.0.0.1:1", "--state-log-dir=file/log"), tmp_path)
    assert (done.returncode, "state_log_dir = 'file/log'" in done.stderr) == (2, True)


def test_python_o_is_refused(tmp_path: Path) -> None:
    done = run_to_end(
        [sys.executable, "-O", "-m", "controller.cli.main", *arguments("127.0.0.1:1")], tmp_path
    )
    assert done.returncode == 1
    assert "python -O strips the assertions" in done.stderr


def test_http_answers_while_it_runs(zookeeper: str, tmp_path: Path) -> None:
    with program(controller(zookeeper), tmp_path) as running:
        address = http_of(running)
        running.until(lambda: leads(running))
        with urllib.request.urlopen(f"http://{address}/leader", timeout=10) as answer:
            assert answer.status == 200
        assert running.terminate() == 0


def test_without_a_manager_nothing_is_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    opened: list[socket.socket] = []

    class Watched(socket.socket):
        def __init__(self, *given: int) -> None:
            super().__init__(*given)
            opened.append(self)

    monkeypatch.setattr(socket, "socket", Watched)
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    process.notify_systemd("READY=1")
    assert opened == []
    # One that is gone is tried, without harm.
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    process.notify_systemd("READY=1")
    assert [sender.fileno() for sender in opened] == [-1]
    assert list(tmp_path.iterdir()) == []
