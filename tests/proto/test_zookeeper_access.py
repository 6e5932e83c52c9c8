"""Who may access the znodes that we make: without a server."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from contextlib import closing
from pathlib import Path

import pytest
import structlog
from kazoo.exceptions import SessionExpiredError
from kazoo.protocol.connection import ConnectionDropped, ConnectionHandler

from proto.security.files import FileSettingError
from proto.zookeeper_access import Client, Handler, ZooKeeperAccess, ZooKeeperSettings

CREATOR, ANYONE = ("auth", 31), ("world", 31)
READER = ("world", 1)


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/brokers/topics/t", [CREATOR, READER]),
        ("/config/topics/t", [CREATOR, READER]),
        ("/config/users", [CREATOR]),
        ("/config/users/alice", [CREATOR]),
        ("/config/brokers/1", [CREATOR]),
        ("/delegation_token/tokens/x", [CREATOR]),
        ("/delegation_token/tokenauth", [CREATOR, READER]),
        # Old consumers write below it.
        ("/consumers", [ANYONE]),
        ("/consumers/group", [CREATOR, READER]),
    ],
)
def test_only_who_made_a_znode_may_change_it_and_nobody_else_reads_what_is_secret(
    path: str, allowed: list[tuple[str, int]]
) -> None:
    def told(access: ZooKeeperAccess) -> list[tuple[str, int]]:
        return [(acl.id.scheme, acl.perms) for acl in access.acl(path)]

    assert told(ZooKeeperAccess(set_acl=True)) == allowed
    assert told(ZooKeeperAccess()) == [ANYONE]


def test_a_client_knows_the_timeout_that_the_server_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    """kazoo tells two thirds of it, and the timeout of an attempt to connect."""
    monkeypatch.setattr(ConnectionHandler, "_connect", lambda *_: (4000.0, 100.0))
    client = Client(hosts="127.0.0.1:1")
    assert client.negotiated_ms == 0
    assert client._connection._connect() == (4000.0, 100.0)
    assert client.negotiated_ms == 6000


def test_a_session_is_given_up_that_is_refused_for_as_long_as_it_lasts_while_others_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server does so whose data are older than what we have seen."""
    now, served = 100.0, True
    asked: list[float] = []
    monkeypatch.setattr("proto.zookeeper_access.time.monotonic", lambda: now)

    def connect(*_address: object) -> tuple[float, float]:
        if refusing:
            raise ConnectionDropped("closed")
        return 4000.0, 100.0

    def begins(*_address: object) -> bool:
        asked.append(now)
        return served

    monkeypatch.setattr(ConnectionHandler, "_connect", connect)
    monkeypatch.setattr(Client, "_begins_sessions", begins)
    client = Client(hosts="127.0.0.1:1")
    address = "localhost", "127.0.0.1", 1
    refusing = False
    client._connection._connect(*address)
    client._session_id, client.last_zxid, refusing = 7, 900, True
    for at, others, error in (
        (200.0, True, ConnectionDropped),
        (205.9, True, ConnectionDropped),
        # No server may be serving at all, and the session goes on once one does.
        (206.0, False, ConnectionDropped),
        (207.0, True, SessionExpiredError),
    ):
        now, served = at, others
        with pytest.raises(error):
            client._connection._connect(*address)
    assert asked == [206.0, 207.0]
    assert client.last_zxid == 0
    # What does not have a session yet loses none.
    client._session_id, asked = None, []
    with pytest.raises(ConnectionDropped):
        client._connection._connect(*address)
    assert asked == []
    # A connection in between, and the time begins anew.
    client._session_id, refusing = 8, False
    client._connection._connect(*address)
    refusing = True
    with pytest.raises(ConnectionDropped):
        client._connection._connect(*address)


def test_a_session_goes_on_with_a_server_that_began_to_serve_after_it_had_refused_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As all servers do after an outage, such as those of an ensemble that had lost its majority: its data are no
    older for it."""
    now, serving = 100.0, True

    def connect(*_address: object) -> tuple[float, float]:
        if not serving:
            raise ConnectionDropped("closed")
        return 4000.0, 100.0

    def begins(*_address: object) -> bool:
        nonlocal serving
        serving = True
        return True

    monkeypatch.setattr("proto.zookeeper_access.time.monotonic", lambda: now)
    monkeypatch.setattr(ConnectionHandler, "_connect", connect)
    monkeypatch.setattr(Client, "_begins_sessions", begins)
    client = Client(hosts="127.0.0.1:1")
    address = "localhost", "127.0.0.1", 1
    client._connection._connect(*address)
    client._session_id, client.last_zxid, serving = 7, 900, False
    with pytest.raises(ConnectionDropped):
        client._connection._connect(*address)
    now += 60
    assert client._connection._connect(*address) == (4000.0, 100.0)
    assert (client.went_back, client.last_zxid, client._refused_at) == (False, 900, None)


def test_a_password_is_read_anew_for_each_session(tmp_path: Path) -> None:
    file = tmp_path / "password"
    settings = ZooKeeperSettings(zookeeper_sasl_username="kafka", zookeeper_sasl_password_file=file)
    file.write_text("first\n")
    access = settings.zookeeper_access()
    told = [access.client_options()["sasl_options"]["password"]]
    file.write_text("the second\n")
    told.append(access.client_options()["sasl_options"]["password"])
    assert told == ["first", "the second"]


def test_znodes_that_nobody_would_own_are_refused(tmp_path: Path) -> None:
    """A certificate owns nothing that is not shown."""
    with pytest.raises(FileSettingError) as refused:
        ZooKeeperSettings(zookeeper_set_acl=True).zookeeper_access()
    assert refused.value.key == "zookeeper_set_acl"
    with pytest.raises(FileSettingError) as refused:
        ZooKeeperSettings(
            zookeeper_ssl_certificate=tmp_path / "c.pem", zookeeper_set_acl=True
        ).zookeeper_access()
    assert refused.value.key == "zookeeper_ssl_certificate"


def test_a_problem_of_tls_is_told_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    handler = Handler()
    for problem in ("expired", "expired", "unknown", "expired"):
        with structlog.testing.capture_logs() as logs:
            handler._failed(OSError(problem))
        told += [line["problem"] for line in logs]
    assert told == [f"TLS to ZooKeeper failed: {problem}" for problem in ("expired", "unknown", "expired")]
    theirs = ssl.SSLCertVerificationError("no")
    theirs.verify_message = "certificate has expired"
    handler._failed(theirs)
    assert handler.problem == "TLS to ZooKeeper failed: ZooKeeper's certificate: certificate has expired"


@pytest.mark.parametrize(("timeout_s", "waits_ms"), [(0.0004, 1), (0.0, 0), (1.5, 1500), (None, None)])
def test_a_wait_is_none_that_keeps_the_processor_busy(
    timeout_s: float | None, waits_ms: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[int | None] = []

    class Poll:
        def poll(self, timeout_ms: int | None) -> list[tuple[int, int]]:
            waited.append(timeout_ms)
            return []

    monkeypatch.setattr(select, "poll", Poll)
    assert Handler().select([], [], [], timeout_s) == ([], [], [])
    assert waited == [waits_ms]


def test_what_was_read_ahead_is_readable_beside_what_else_is() -> None:
    handler = Handler()
    quiet, other = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as server, quiet, other:
        ours = handler.create_connection(server.getsockname())
        theirs, _ = server.accept()
        with theirs, closing(ours):
            theirs.sendall(b"abcdef")
            assert handler.select([ours], [], [], 5) == ([ours], [], [])
            assert [ours.recv(2), ours.pending()] == [b"ab", 4]
            assert handler.select([ours, quiet], [], [], 5) == ([ours], [], [])
            assert [ours.recv(3), ours.recv(3), ours.pending()] == [b"cde", b"f", 0]
            assert handler.select([ours, quiet], [], [], 0) == ([], [], [])
            theirs.sendall(b"gh")
            assert handler.select([ours], [], [], 5) == ([ours], [], [])
            assert ours.recv(1) == b"g"
            assert handler.select([ours], [quiet], [], 5) == ([ours], [quiet], [])
            assert ours.recv(1) == b"h"


def test_a_packet_larger_than_what_is_read_ahead_comes_whole() -> None:
    packet = bytes(range(256)) * 1000
    handler, found = Handler(), b""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = handler.create_connection(server.getsockname())
        theirs, _ = server.accept()
        with theirs, closing(ours):
            sending = threading.Thread(target=theirs.sendall, args=[packet])
            sending.start()
            while len(found) < len(packet):
                assert handler.select([ours], [], [], 5)[0]
                found += ours.recv(len(packet) - len(found))
            sending.join()
            theirs.close()
            assert handler.select([ours], [], [], 5)[0]
            assert ours.recv(1) == b""
    assert found == packet
