"""Two processes with one id: they do not fight, and the second ends; a restart is no second process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.support.ports import free_port
from tests.support.runtime.programs import BIN, Program, program

pytestmark = pytest.mark.slow

OWN = ("/controller", "/controllers/ids/1")


@contextmanager
def controller(
    connect: str, directory: Path, name: str, listen: str, state_log: str = "", session_timeout_ms: int = 4000
) -> Iterator[Program]:
    """Controller 1 as its defaults have it, but for what is another on a second host."""
    command = [
        str(BIN / "partition-controller"),
        "run",
        f"--zookeeper={connect}",
        f"--grpc-listen={listen}",
        "--http-listen=127.0.0.1:0",
        f"--state-log-dir={directory / (state_log or name)}",
        f"--session-timeout-ms={session_timeout_ms}",
    ]
    with program(command, directory, {"PARTITION_CONTROLLER_ADVERTISED_HOST": "127.0.0.1"}, name) as running:
        yield running


def czxids(zk: KazooClient) -> list[int]:
    found = [zk.exists(path) for path in OWN]
    return [stat.czxid for stat in found if stat is not None]


def epoch(zk: KazooClient) -> int:
    try:
        return int(zk.get("/controller_epoch")[0])
    except NoNodeError:
        return 0


def led(zk: KazooClient, former: Sequence[int] = ()) -> bool:
    now = czxids(zk)
    return len(now) == len(OWN) and not set(now) & set(former)


def said(running: Program, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in running.said().splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("event") == event]


def test_two_hosts_with_the_same_settings_do_not_fight(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    port = free_port()
    with controller(zookeeper, tmp_path, "first", f"127.0.0.1:{port}") as first:
        first.until(lambda: led(zk))
        before, elected = czxids(zk), epoch(zk)
        with controller(zookeeper, tmp_path, "second", f"127.0.0.2:{port}") as second:
            assert second.process.wait(60) == 1
        assert "another controller with id 1 is running on" in second.said()
        assert len(said(second, "id_taken")) == 1
        assert (czxids(zk), epoch(zk)) == (before, elected)
        assert first.process.poll() is None


def test_a_state_log_directory_has_one_process(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    with controller(zookeeper, tmp_path, "first", "127.0.0.1:0", "log") as first:
        first.until(lambda: led(zk))
        with controller(zookeeper, tmp_path, "second", "127.0.0.1:0", "log") as second:
            assert second.process.wait(60) == 2
        assert f"a directory of this process alone (process {first.process.pid} uses it)" in second.said()


def test_a_killed_controller_takes_over_from_itself_at_once(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    """Its former session would live for a minute."""
    former: list[int] = []
    for name in ("first", "second", "third"):
        with controller(zookeeper, tmp_path, name, "127.0.0.1:0", "log", 60_000) as running:
            running.until(lambda former=former: led(zk, former))  # type: ignore[misc]
            assert said(running, "id_taken") == []
            former = czxids(zk)
    assert epoch(zk) == 3


def removed_at_once(zk: KazooClient, path: str) -> bool:
    """Delete a znode and all below it in one transaction: the registration comes back sooner than one znode after the
    other is deleted. False: something came in between."""
    removal, below = zk.transaction(), [path]
    for each in below:
        below += [f"{each}/{child}" for child in zk.get_children(each)]
    for each in reversed(below):
        removal.delete(each)
    return all(result is True for result in removal.commit())


@pytest.mark.parametrize("removed", ["/controllers/ids/1", "/controllers"])
def test_a_registration_that_was_removed_comes_back(
    zookeeper: str, zk: KazooClient, tmp_path: Path, removed: str
) -> None:
    with controller(zookeeper, tmp_path, "first", "127.0.0.1:0") as running:
        running.until(lambda: led(zk))
        elected = epoch(zk)
        running.until(lambda: removed_at_once(zk, removed))
        running.until(lambda: zk.exists("/controllers/ids/1"))
        assert len(said(running, "registration_removed")) == 1
        assert epoch(zk) == elected
