"""What surrounds the daemon, without one: the service manager, what is advertised, and what SIGHUP reads again."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from controller.errors import ConfigError, EnvironmentFault
from controller.runtime import process
from controller.runtime.config import Settings
from controller.runtime.daemon import Role
from controller.runtime.http import server


@pytest.fixture
def manager() -> Iterator[socket.socket]:
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as made:
        yield made


@pytest.mark.parametrize("abstract", [True, False])
def test_the_service_manager_hears_at_either_kind_of_socket(
    manager: socket.socket, abstract: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "notify")
    manager.bind(f"\0{path}" if abstract else path)
    manager.setblocking(False)
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{path}" if abstract else path)
    process.notify_systemd("READY=1")
    assert manager.recv(100) == b"READY=1"
    monkeypatch.delenv("NOTIFY_SOCKET")
    process.notify_systemd("READY=1")
    with pytest.raises(BlockingIOError):
        manager.recv(100)


@pytest.mark.parametrize(("watchdog_us", "pause_s"), [("1500000", 0.5), ("30000000", 1.0), (None, 1.0)])
async def test_the_watchdog_hears_thrice_in_its_time_unless_the_daemon_is_stuck(
    watchdog_us: str | None, pause_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    slept: list[float] = []
    stuck = [False, True, False]

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        stuck.pop(0)
        if not stuck:
            monkeypatch.delenv("NOTIFY_SOCKET")

    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere")
    if watchdog_us is None:
        monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    else:
        monkeypatch.setenv("WATCHDOG_USEC", watchdog_us)
    monkeypatch.setattr(process, "notify_systemd", told.append)
    monkeypatch.setattr(server, "is_stuck", lambda _: stuck[0])
    monkeypatch.setattr(process, "asyncio", SimpleNamespace(sleep=sleep))
    await process._watchdog(SimpleNamespace(role=Role.ACTIVE))  # type: ignore[arg-type]
    assert (told, slept) == (["WATCHDOG=1\nSTATUS=active"] * 2, [pause_s] * 3)


@pytest.mark.parametrize(
    ("settings", "host"),
    [
        (Settings(kafka_listen="127.0.0.1:0"), "127.0.0.1"),
        (Settings(kafka_listen="127.0.0.1:0", advertised_host="c1"), "c1"),
        (Settings(kafka_listen="127.0.0.1:0", advertised_host="c1", kafka_advertised_host="k1"), "k1"),
        (Settings(kafka_listen="[::]:0"), socket.gethostname()),
    ],
)
async def test_kafka_brokers_are_told_where_this_controller_listens(
    settings: Settings, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[str] = []

    class Server:
        def __init__(self, *_: object) -> None: ...

        async def start(self, _host: str, port: int, _listener: str) -> int:
            assert port == 0
            return 5555

        async def stop(self) -> None:
            stopped.append("stopped")

    monkeypatch.setattr(process, "KafkaServer", Server)
    monkeypatch.setattr(process, "Controller", lambda *_: None)
    monkeypatch.setattr(process, "server_security", lambda *_: None)
    daemon: Any = SimpleNamespace(settings=settings, read_node=None, kafka_addresses={})
    async with AsyncExitStack() as stack:
        await process._serve_kafka(daemon, stack)
    assert (daemon.kafka_addresses, stopped) == ({"": (host, 5555)}, ["stopped"])


def test_of_settings_that_changed_those_that_can_be_are_applied_and_the_others_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "configure_logging", lambda *_: None)
    daemon: Any = SimpleNamespace(settings=Settings())
    with capture_logs() as logs:
        process._settings_again(
            daemon, lambda: replace(Settings(), log_format="console", num_partitions=9, zookeeper="h:1")
        )
    assert daemon.settings == replace(Settings(), log_format="console")
    with capture_logs() as more:
        process._settings_again(daemon, lambda: replace(Settings(), log_format="console", log_level="debug"))
    assert [line.keys() for line in more] == [{"event", "log_level"}], "not what was so before"
    (changed,) = [line for line in logs if line["event"] == "settings_changed"]
    assert changed == {"event": "settings_changed", "log_format": "console", "log_level": "info"}
    assert {line["name"] for line in logs if line["event"] == "setting_needs_restart"} == {
        "num_partitions",
        "zookeeper",
    }


def test_what_could_not_be_read_again_is_named() -> None:
    outcome = [("settings", None), ("certificates", ValueError("no such file"))]
    daemon: Any = SimpleNamespace(reloads=SimpleNamespace(reload=lambda: outcome))
    with capture_logs() as logs:
        process._reload(daemon)
    failed, done = logs
    assert (failed["event"], failed["name"], failed["error"]) == (
        "not_reloaded",
        "certificates",
        "no such file",
    )
    assert (done["event"], done["names"]) == ("reloaded", ["settings"])


async def test_a_directory_is_of_one_process(tmp_path: Path) -> None:
    settings = Settings(state_log_dir=tmp_path)
    async with AsyncExitStack() as stack:
        process._daemon(settings, stack).state_log.close()
        with pytest.raises(ConfigError, match=r"a directory of this process alone \("):
            process._daemon(settings, stack)
    async with AsyncExitStack() as stack:
        process._daemon(settings, stack).state_log.close()
        file = tmp_path / "file"
        file.write_text("")
        with pytest.raises(ConfigError, match=r"a writable directory \("):
            process._daemon(Settings(state_log_dir=file), stack)


async def test_a_full_disk_is_no_wrong_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its unit is not started again after a wrong one."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(process, "Daemon", full)
    async with AsyncExitStack() as stack:
        with pytest.raises(EnvironmentFault, match=r"state_log_dir .* cannot be written: .*No space left"):
            process._daemon(Settings(state_log_dir=tmp_path), stack)
