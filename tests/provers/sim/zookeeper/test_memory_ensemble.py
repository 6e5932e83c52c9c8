"""What several servers in memory add to one: lag, a lost leader, sessions on the move; and time, as it is given."""

from __future__ import annotations

import pytest

from tests.provers.sim.zookeeper.contract.drivers import MemoryLink, MemoryZooKeeper
from tests.provers.sim.zookeeper.ensemble import EPOCH_SHIFT, Ensemble, Options, password_of
from tests.provers.sim.zookeeper.messages import (
    Children,
    Closed,
    Code,
    Create,
    Data,
    Event,
    EventKind,
    Exists,
    Get,
    Message,
    Multi,
    MultiRead,
    Ping,
    Reply,
    Set,
    Sync,
)
from tests.provers.sim.zookeeper.tree import SPECIAL

TIMEOUT_MS = 6000


def at(ensemble: Ensemble, server: int) -> MemoryLink:
    """A client's session on a server."""
    link = MemoryZooKeeper(ensemble, server).connect(TIMEOUT_MS)
    assert link is not None
    return link


def last(messages: list[Message]) -> Reply:
    reply = messages[-1]
    assert isinstance(reply, Reply)
    return reply


def data(messages: list[Message]) -> bytes | None:
    value = last(messages).value
    assert isinstance(value, Data)
    return value.data


@pytest.fixture
def three() -> Ensemble:
    return Ensemble(3)


# --- servers -------------------------------------------------------------------------------------------------


def test_every_server_shows_what_any_of_them_was_told(three: Ensemble) -> None:
    clients = [at(three, server) for server in range(3)]
    clients[1].ask(Create("/a", b"1"))
    assert [data(client.ask(Get("/a"))) for client in clients] == [b"1"] * 3
    assert {server.tree.zxid for server in three.servers} == {(1 << EPOCH_SHIFT) + 4}


def test_a_held_server_answers_with_what_was_until_a_sync_or_a_write_of_its_own(three: Ensemble) -> None:
    leader, lagging = at(three, 0), at(three, 1)
    leader.ask(Create("/a", b"1"))
    lagging.ask(Get("/a", watch=True))
    three.hold(1)
    leader.ask(Set("/a", b"2"), Set("/a", b"3"))
    assert data(lagging.ask(Get("/a"))) == b"1"
    event, synced, read = lagging.ask(Sync(), Get("/a"))
    assert isinstance(event, Event)
    assert (event.kind, last([synced]).code, data([read])) == (EventKind.CHANGED, Code.OK, b"3")
    leader.ask(Set("/a", b"4"))
    assert last(lagging.ask(Set("/a", b"late", 2))).code is Code.BAD_VERSION
    assert data(lagging.ask(Get("/a"))) == b"4"


def test_a_client_that_has_seen_more_is_refused_by_a_server_that_lags(three: Ensemble) -> None:
    leader = at(three, 0)
    three.hold(1)
    seen = last(leader.ask(Create("/a"))).zxid
    client = MemoryZooKeeper(three, 1)
    assert client.connect(TIMEOUT_MS, leader.credentials, seen) is None
    three.release(1)
    moved = client.connect(TIMEOUT_MS, leader.credentials, seen)
    assert moved is not None
    assert leader.ask(Ping()) == [Closed()]


def test_a_server_cut_off_answers_reads_but_keeps_no_session_alive(three: Ensemble) -> None:
    """The trap of a plain read: it says nothing about the session (docs/adr/0005)."""
    leader, cut = at(three, 0), at(three, 1)
    cut.ask(Create("/mine", ephemeral=True))
    three.cut_off(1)
    for now_ms in range(1000, 13_000, 1000):
        three.request(leader._connection, Ping(), now_ms)
        three.request(cut._connection, Exists("/mine"), now_ms)
    leader.ask()
    assert cut.credentials.session_id not in three.sessions
    answers = cut.ask()
    assert [last([answer]).code for answer in answers[:2]] == [Code.OK] * 2
    leader._zookeeper.now_ms = 13_000
    assert last(leader.ask(Exists("/mine"))).code is Code.NO_NODE


def test_writes_through_a_server_cut_off_wait_and_what_follows_waits_behind_them(three: Ensemble) -> None:
    leader, cut = at(three, 0), at(three, 1)
    three.cut_off(1)
    for op in (Exists("/"), Create("/a", b"1"), Get("/a")):
        three.request(cut._connection, op, 10)
    assert len(cut._connection.outbox) == 1
    leader._zookeeper.now_ms = 10
    assert last(leader.ask(Exists("/a"))).code is Code.NO_NODE
    three.heal(1)
    assert data(list(cut._connection.outbox)) == b"1"
    assert last(leader.ask(Exists("/a"))).code is Code.OK


def test_a_request_that_waited_is_lost_with_the_connection(three: Ensemble) -> None:
    leader, cut = at(three, 0), at(three, 1)
    three.cut_off(1)
    three.request(cut._connection, Create("/a"), 0)
    cut.drop()
    three.heal(1)
    assert last(leader.ask(Exists("/a"))).code is Code.NO_NODE


def test_a_new_leader_begins_an_epoch_and_gives_every_session_its_time_again(three: Ensemble) -> None:
    first, second = at(three, 0), at(three, 1)
    first.ask(Create("/mine", ephemeral=True))
    three.stop(0, 5000)
    assert three.leader == 2
    assert first.ask(Ping()) == second.ask(Ping()) == [Closed()]
    moved = MemoryZooKeeper(three, 1)
    moved.now_ms = 10_000
    back = moved.connect(TIMEOUT_MS, first.credentials)
    assert back is not None
    assert back.credentials == first.credentials
    assert last(back.ask(Set("/mine", b""))).zxid == (2 << EPOCH_SHIFT) + 1
    three.start(0, 10_000)
    assert three.servers[0].tree.zxid == (2 << EPOCH_SHIFT) + 1


def test_what_was_agreed_on_survives_the_leader_that_alone_could_answer(three: Ensemble) -> None:
    leader = at(three, 0)
    three.hold(1)
    three.hold(2)
    leader.ask(Create("/a", b"1"))
    three.stop(0, 0)
    assert three.leader is not None
    assert data(at(three, three.leader).ask(Get("/a"))) == b"1"


def test_without_a_majority_nobody_is_served_and_no_session_ends(three: Ensemble) -> None:
    client = at(three, 1)
    client.ask(Create("/mine", ephemeral=True))
    three.stop(0, 0)
    three.stop(2, 0)
    assert three.leader is None
    assert three.next_expiry_ms() is None
    three.advance(1_000_000)
    assert three.connect(1, TIMEOUT_MS, 1_000_000) is None
    three.start(0, 1_000_000)
    back = three.connect(1, TIMEOUT_MS, 1_000_001, *client.credentials)
    assert back is not None
    three.request(back, Exists("/mine"), 1_000_001)
    assert last(list(back.outbox)).code is Code.OK


def test_only_a_follower_can_be_cut_off(three: Ensemble) -> None:
    with pytest.raises(ValueError, match="server 0 leads"):
        three.cut_off(0)


def test_what_all_have_applied_is_forgotten(three: Ensemble) -> None:
    client = at(three, 0)
    three.hold(1)
    client.ask(*(Create(f"/{n}") for n in range(10)))
    assert len(three._agreed) == 10
    three.release(1)
    client.ask(Create("/last"))
    assert three._agreed == []


def test_nothing_is_kept_of_a_connection_that_is_gone(three: Ensemble) -> None:
    client = at(three, 0)
    client.ask(Create("/a"), Get("/a", watch=True), Children("/", watch=True), Exists("/b", watch=True))
    client.drop()
    tree = three.servers[0].tree
    at(three, 0).ask(Set("/a", b"1"), Create("/b"))
    assert not client._connection.outbox
    assert not any(
        vars(watches)[part] for watches in (tree.data_watches, tree.child_watches) for part in vars(watches)
    )


# --- a backup ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("servers", [1, 3])
def test_an_export_has_what_was_there_but_the_ephemeral_znodes(servers: int) -> None:
    ensemble = Ensemble(servers)
    client = at(ensemble, servers - 1)
    client.ask(Create("/a", b"1"), Create("/a/b"), Create("/a/mine", ephemeral=True))
    backup = ensemble.backup(sessions=False)
    client.ask(Set("/a", b"2"), Create("/c"))
    for server in range(servers):
        ensemble.stop(server, 0)
    ensemble.restore(backup)
    for server in range(servers):
        ensemble.start(server, 0)
    assert not ensemble.sessions
    tree = ensemble.servers[servers - 1].tree
    assert sorted(tree.nodes()) == ["/", "/a", "/a/b", *sorted(SPECIAL[1:])]
    assert list(backup.tree.nodes()["/a"].children) == ["b"]
    # Who has seen more is refused; what others write from now on is not in the backup.
    assert ensemble.connect(servers - 1, TIMEOUT_MS, 0, 0, b"", backup.tree.zxid + 1) is None
    other = at(ensemble, 0)
    assert data(other.ask(Get("/a"))) == b"1"
    other.ask(Set("/a", b"3"))
    assert backup.tree.nodes()["/a"].data == b"1"


def test_a_snapshot_s_sessions_end_as_others_do() -> None:
    ensemble = Ensemble(1)
    client = at(ensemble, 0)
    client.ask(Create("/a", b"1"), Create("/a/mine", ephemeral=True))
    session_id = next(iter(ensemble.sessions))
    backup = ensemble.backup(sessions=True)
    client.ask(Create("/a/later", ephemeral=True))
    ensemble.stop(0, 0)
    ensemble.restore(backup)
    ensemble.start(0, 100)
    tree = ensemble.servers[0].tree
    assert list(tree.nodes()["/a"].children) == ["mine"]
    # Who has seen no more goes on with the session.
    password = password_of(session_id)
    assert ensemble.connect(0, TIMEOUT_MS, 200, session_id, password, backup.tree.zxid + 1) is None
    assert ensemble.connect(0, TIMEOUT_MS, 200, session_id, password, backup.tree.zxid) is not None
    ends_ms = ensemble.next_expiry_ms()
    assert ends_ms is not None
    ensemble.advance(ends_ms)
    assert list(tree.nodes()["/a"].children) == []
    assert list(backup.tree.nodes()["/a"].children) == ["mine"]


# --- time ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tick_ms", "ends_ms"), [(500, 6500), (1, 6001), (4000, 8000)])
def test_a_session_ends_at_the_first_tick_after_its_timeout(tick_ms: int, ends_ms: int) -> None:
    ensemble = Ensemble(options=Options(tick_ms=tick_ms))
    client = at(ensemble, 0)
    client.ask(Create("/mine", ephemeral=True))
    assert ensemble.next_expiry_ms() == ends_ms
    ensemble.advance(ends_ms - 1)
    assert ensemble.sessions
    ensemble.advance(ends_ms)
    assert not ensemble.sessions
    assert ensemble.servers[0].tree.node("/mine") is None
    assert client.ask(Ping()) == [Closed()]


def test_whatever_is_asked_keeps_the_session_alive() -> None:
    ensemble = Ensemble(options=Options(tick_ms=1))
    client = at(ensemble, 0)
    for now_ms in range(0, 100_000, TIMEOUT_MS):
        ensemble.request(client._connection, Ping(), now_ms)
    assert ensemble.sessions


def test_time_does_not_go_back() -> None:
    ensemble = Ensemble()
    ensemble.advance(5)
    with pytest.raises(AssertionError, match="time went back from 5 to 4"):
        ensemble.advance(4)


def test_sessions_due_together_end_in_the_order_of_their_time() -> None:
    ensemble = Ensemble(options=Options(tick_ms=1))
    watcher = at(ensemble, 0)
    first = ensemble.connect(0, 2000, 10)
    second = ensemble.connect(0, 1500, 10)
    assert first is not None
    assert second is not None
    for connection, path in ((first, "/first"), (second, "/second")):
        ensemble.request(connection, Create(path, ephemeral=True), 10)
    watcher._zookeeper.now_ms = 10
    watcher.ask(Exists("/first", watch=True), Exists("/second", watch=True))
    watcher._zookeeper.now_ms = 3000
    notified = [message.path for message in watcher.ask(Ping()) if isinstance(message, Event)]
    assert notified == ["/second", "/first"]


# --- old servers ---------------------------------------------------------------------------------------------


def test_a_server_before_3_6_knows_no_multi_read() -> None:
    client = at(Ensemble(options=Options(multi_read=False)), 0)
    assert last(client.ask(Multi(()))).code is Code.OK
    assert last(client.ask(MultiRead((Get("/"),)))).code is Code.UNIMPLEMENTED
    assert client.ask(Ping()) == [Closed()]
