"""How a broker's process begins and ends, with stand-ins for its parts; test_process.py starts real ones."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker_stub import daemon, settings
from broker_stub.daemon import Broker
from broker_stub.data_dirs import DataDirs
from broker_stub.errors import SettingError, StorageFault
from tests.support.runtime.certificates import Authority


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Broker]]:
    """A broker of the directories ``a`` and ``b``; a directory that is named has failed."""
    made: list[Broker] = []

    def begin(failed: str = "", **more: str) -> Broker:
        if failed:
            (tmp_path / failed).write_text("a file")
        dirs = ",".join(str(tmp_path / name) for name in "ab")
        given = {"broker_id": "1", "zookeeper": "zk:2181", "listen": "127.0.0.1:0", "data_dirs": dirs, **more}
        made.append(Broker(settings.load(given, {})))
        return made[-1]

    yield begin
    for broker in made:
        broker._state_log.close(5)
        broker._data_dirs.close()


class Part:
    """Notes what it is asked for; all of it is done at once, or to be awaited."""

    def __init__(self, name: str, asked: list[str], *, at_once: bool = False) -> None:
        self._name, self._asked, self._at_once = name, asked, at_once

    def __getattr__(self, what: str) -> Any:
        def ask(*_: object) -> Any:
            self._asked.append(f"{self._name}.{what}")
            return None if self._at_once else asyncio.sleep(0)

        return ask


async def test_who_stops_leaves_zookeeper_before_it_refuses_clients(
    make: Callable[..., Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    broker = make()
    data = Part("data", asked)
    data.methods = dict  # type: ignore[attr-defined]
    data.start = lambda: None  # type: ignore[attr-defined]
    monkeypatch.setattr(daemon, "DataPlane", lambda *_: data)
    monkeypatch.setattr(daemon, "BrokerServer", lambda *_: Part("server", asked))
    monkeypatch.setattr(daemon, "ClusterStore", lambda *_: Part("store", asked))
    monkeypatch.setattr(broker._bridge, "connect", lambda _: None)
    monkeypatch.setattr(broker, "_close_logs", lambda _: asked.append("logs"))

    async def serve(*_: object) -> None:
        broker._registrar = Part("registrar", asked, at_once=True)  # type: ignore[assignment]
        broker._end(None)

    async def leave(*_: object) -> None:
        asked.append("leaderships")

    monkeypatch.setattr(broker, "_serve", serve)
    monkeypatch.setattr(broker, "_controlled_shutdown", leave)
    await broker.run()
    wanted = ["leaderships", "data.stop_following", "registrar.stop", "data.stop", "server.stop", "logs"]
    assert [what for what in asked if what in wanted] == wanted


async def test_the_second_signal_does_not_wait_for_leaderships(make: Callable[..., Broker]) -> None:
    broker = make()
    broker._ended = asyncio.get_running_loop().create_future()
    broker._on_stop_signal()
    assert (broker._ended.done(), broker._stop_now.is_set()) == (True, False)
    broker._on_stop_signal()
    assert broker._stop_now.is_set()


async def test_who_never_registered_has_no_leaderships_to_hand_over(
    make: Callable[..., Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, asked = make(), list[int]()

    async def shut_down(*_: object, **__: object) -> None:
        asked.append(broker._handlers.gate.broker_epoch)

    monkeypatch.setattr(daemon, "controlled_shutdown", shut_down)
    for epoch in (-1, 7):
        broker._handlers.gate.broker_epoch = epoch
        await broker._controlled_shutdown(SimpleNamespace(peers=None), SimpleNamespace())  # type: ignore[arg-type]
    assert asked == [7]


async def test_who_may_not_hand_over_leaderships_stops_without(
    make: Callable[..., Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make(controlled_shutdown_enable="false")
    broker._handlers.gate.broker_epoch = 7
    monkeypatch.setattr(daemon, "controlled_shutdown", None)
    await broker._controlled_shutdown(SimpleNamespace(peers=None), SimpleNamespace())  # type: ignore[arg-type]


def test_requests_are_let_in_once_the_epoch_is_known(
    make: Callable[..., Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, order = make(), list[str]()
    loop = SimpleNamespace(call_soon_threadsafe=lambda act: act())
    broker._ended = SimpleNamespace(get_loop=lambda: loop)  # type: ignore[assignment]
    broker._registered = SimpleNamespace(set=lambda: order.append("let in"))  # type: ignore[assignment]
    monkeypatch.setattr(broker._handlers, "registered", lambda _: order.append("known"))
    broker._registered_from_thread(7)
    assert order == ["known", "let in"]


def test_only_directories_whose_logs_were_closed_were_left_cleanly(
    make: Callable[..., Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, left = make(), list[Any]()
    broker._handlers.gate.broker_epoch = 7
    monkeypatch.setattr(broker._data_dirs, "stopped_cleanly", lambda *what: left.append(what))
    closed = {Path("/a"): None, Path("/b"): OSError("no space")}
    broker._close_logs(SimpleNamespace(close_logs=lambda: closed))  # type: ignore[arg-type]
    assert left == [([Path("/a")], 7)]


@pytest.mark.parametrize("failed", ["", "a", "b"])
async def test_a_directory_that_failed_is_told_of_and_holds_no_state_log(
    make: Callable[..., Broker], monkeypatch: pytest.MonkeyPatch, failed: str
) -> None:
    broker, asked = make(failed), list[str]()
    assert broker._state_log_dir.parent.name == ("b" if failed == "a" else "a")
    monkeypatch.setattr(daemon, "Registrar", lambda *_: Part("registrar", asked, at_once=True))

    async def start(_host: str, _port: int) -> int:
        return 1

    store: Any = SimpleNamespace(session=None)
    server: Any = SimpleNamespace(start=start)
    await broker._serve(server, store)
    assert ("registrar.storage_lost" in asked) is bool(failed)
    assert broker._handlers.replicas.directory_failed is bool(failed)


def test_it_warns_of_all_certificates_that_it_uses(make: Callable[..., Broker], tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    own, zookeepers = (list(map(str, authority.issue(name))) for name in ("own", "zookeepers"))
    ca = str(authority.cafile)
    broker = make(
        ssl_certificate=own[0], ssl_key=own[1], ssl_ca=ca,
        zookeeper_ssl_client_enable="true",
        zookeeper_ssl_certificate=zookeepers[0], zookeeper_ssl_key=zookeepers[1], zookeeper_ssl_ca=ca,
    )  # fmt: skip
    found = [(expiry.setting, str(expiry.file)) for expiry in broker._certificates.expiries()]
    assert found == [
        ("ssl_certificate", own[0]),
        ("ssl_ca", ca),
        ("zookeeper_ssl_certificate", zookeepers[0]),
        ("zookeeper_ssl_ca", ca),
    ]


async def test_it_registers_where_it_listens_and_tells_of_logs_that_could_not_be_opened(
    make: Callable[..., Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, told, registered = make(), list[Any](), list[Any]()

    def register(identity: Any, *_: object) -> Part:
        registered.append(identity)
        return Part("registrar", told, at_once=True)

    async def start(_host: str, port: int) -> int:
        assert port == 0
        return 5555

    monkeypatch.setattr(daemon, "Registrar", register)
    monkeypatch.setattr(broker._handlers, "replicas_failed", lambda *what: told.append(what))
    broker._unopened = {("t", 0): "odd", ("t", 1): "odder"}
    store: Any = SimpleNamespace(session=None)
    server: Any = SimpleNamespace(start=start)
    await broker._serve(server, store)
    assert told == [([("t", 0), ("t", 1)], "odd"), "registrar.start", "registrar.storage_lost"]
    (identity,) = registered
    assert identity.port == 5555


def test_a_broker_without_any_directory_ends_once_it_has_said_so(
    make: Callable[..., Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, asked, later = make(), list[str](), list[tuple[Any, ...]]()
    broker._storage_lost("before it has a registrar, and one directory is left")
    broker._registrar = Part("registrar", asked, at_once=True)  # type: ignore[assignment]
    broker._storage_lost("one is left")
    assert (asked, later) == (["registrar.storage_lost"], [])
    loop = SimpleNamespace(call_soon_threadsafe=lambda *what: later.append(what), call_later="later")
    broker._ended = SimpleNamespace(get_loop=lambda: loop)  # type: ignore[assignment]
    monkeypatch.setattr(type(broker._data_dirs), "working", [])
    broker._storage_lost("no space")
    ((call, after_s, end, error),) = later
    assert (call, after_s, end) == ("later", daemon._TELLING_S, broker._end)
    assert "no data directory works any more: no space" in str(error)


async def test_the_first_end_counts(make: Callable[..., Broker]) -> None:
    broker = make()
    broker._ended = asyncio.get_running_loop().create_future()
    for error in (StorageFault("first"), StorageFault("second"), None):
        broker._end(error)
    with pytest.raises(StorageFault, match="first"):
        await broker._ended


def test_a_clean_stop_that_cannot_be_noted_is_told(
    make: Callable[..., Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make()

    def full(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(broker._data_dirs, "stopped_cleanly", full)
    with capture_logs() as logs:
        broker._close_logs(SimpleNamespace(close_logs=dict))  # type: ignore[arg-type]
    assert [line["why"] for line in logs] == ["no space"]


def test_directories_are_free_again_where_a_broker_could_not_start(
    make: Callable[..., Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(daemon, "StateLogWriter", broken)
        with pytest.raises(ZeroDivisionError):
            make()
    make()


@pytest.mark.parametrize(("flush", "synced"), [("1", True), ("2", False), ("", False)])
def test_only_who_flushes_each_record_has_it_on_the_disk(
    make: Callable[..., Broker], monkeypatch: pytest.MonkeyPatch, flush: str, synced: bool
) -> None:
    given, known = list[bool](), DataDirs

    def noted(*args: Any, synced: bool) -> Any:
        given.append(synced)
        return known(*args, synced=synced)

    monkeypatch.setattr(daemon, "DataDirs", noted)
    make(**({"log_flush_interval_messages": flush} if flush else {}))
    assert given == [synced]


def test_whether_a_port_is_open_is_judged_with_its_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[Any] = []
    monkeypatch.setattr(daemon, "access_of", lambda _, listeners: judged.extend(listeners))
    for files in (None, object()):
        daemon._access(SimpleNamespace(listen=("h", 1), tls_files=files))  # type: ignore[arg-type]
    assert [(each.host, each.encrypted) for each in judged] == [("h", False), ("h", True)]


def test_a_process_ends_with_the_code_of_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "configure_logging", lambda *_, **__: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    given = {"broker_id": "1", "zookeeper": "zk:2181", "listen": "127.0.0.1:0", "data_dir": "/d"}
    for error, code in ((SettingError("rack", "", "x"), 2), (StorageFault("x"), 1), (KeyError("x"), 1)):

        def fail(_: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(daemon, "Broker", fail)
        assert daemon.run(settings.load(given, {})) == code


def test_a_crash_before_there_is_any_data_is_dumped(make: Callable[..., Broker]) -> None:
    broker = make()
    assert "KeyError" in broker.dump(KeyError("x")).read_text()


def test_only_what_was_read_again_is_said_to_be(make: Callable[..., Broker]) -> None:
    broker = make()
    outcome = [("certificates", ValueError("no such file")), ("acls", None)]
    broker.reloads = SimpleNamespace(reload=lambda: outcome)  # type: ignore[assignment]
    with capture_logs() as logs:
        broker._reload()
    assert [(line["event"], line.get("names")) for line in logs] == [
        ("not reloaded", None),
        ("reloaded", ["acls"]),
    ]
