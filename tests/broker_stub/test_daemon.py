"""How a broker's process begins and ends, with stand-ins for its parts; test_process.py starts real ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker_stub import daemon, settings
from broker_stub.daemon import Broker
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
