"""Explicit cases of what the ZooKeeper in memory has in common with the real one (see test_zookeeper_contract)."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.provers.sim.zookeeper import wire
from tests.provers.sim.zookeeper.contract.pair import BASE, Client, Pair, events, paired
from tests.provers.sim.zookeeper.ensemble import Options
from tests.provers.sim.zookeeper.messages import (
    Check,
    Children,
    Closed,
    CloseSession,
    Code,
    Create,
    Created,
    Data,
    Delete,
    Event,
    EventKind,
    Exists,
    Get,
    GetPerms,
    Multi,
    MultiOp,
    MultiRead,
    Names,
    Operation,
    Perms,
    Ping,
    RemoveWatches,
    Reply,
    Set,
    SetPerms,
    SetWatches,
    Stat,
    Sync,
    Unknown,
    WatchTree,
)

pytestmark = pytest.mark.slow

A, B = f"{BASE}/a", f"{BASE}/b"
SHORT_MS = 1000
#: A real session that should end has not by then.
EXPIRY_MAX_S = 20.0


@pytest.fixture
def pair(real_port: int, real_options: Options) -> Iterator[Pair]:
    with paired(real_port, real_options) as both:
        yield both


@pytest.fixture
def one(pair: Pair) -> Client:
    return pair.clients[0]


@pytest.fixture
def other(pair: Pair) -> Client:
    return pair.open()


def reply(pair: Pair, client: Client, op: Operation) -> Reply:
    """The reply, when no event comes with it."""
    (message,) = pair.ask(client, op)
    assert isinstance(message, Reply)
    return message


def code(pair: Pair, client: Client, op: Operation) -> Code:
    return reply(pair, client, op).code


def heard(pair: Pair, client: Client) -> list[tuple[EventKind, str]]:
    """Events since it last asked: kinds and paths from the comparison's directory on."""
    return [
        (event.kind, BASE + event.path[event.path.index("/", 1) :] if event.path.count("/") > 1 else BASE)
        for event in events(pair.ask(client, Ping()))
    ]


# --- watches -------------------------------------------------------------------------------------------------


def test_a_deletion_is_told_once_to_who_watches_data_and_children_then_to_the_parent_s(
    pair: Pair, one: Client, other: Client
) -> None:
    pair.ask(one, Create(A), Create(B))
    pair.ask(
        other, Children(BASE, watch=True), Children(A, watch=True), Get(A, watch=True), Exists(A, watch=True)
    )
    pair.ask(other, Children(B, watch=True))
    pair.ask(one, Delete(A), Delete(B))
    assert heard(pair, other) == [
        (EventKind.DELETED, A),
        (EventKind.CHILD, BASE),
        (EventKind.DELETED, B),
    ]
    pair.ask(one, Create(A), Delete(A))
    assert heard(pair, other) == []


def test_a_creation_is_told_before_the_parent_s_children(pair: Pair, one: Client, other: Client) -> None:
    assert [
        m.code for m in pair.ask(other, Exists(A, watch=True), Get(B, watch=True)) if isinstance(m, Reply)
    ] == [
        Code.NO_NODE,
        Code.NO_NODE,
    ]
    pair.ask(other, Children(BASE, watch=True))
    pair.ask(one, Create(A), Create(B), Set(A, b"1"))
    assert heard(pair, other) == [(EventKind.CREATED, A), (EventKind.CHILD, BASE)]


def test_one_s_own_event_comes_before_the_reply(pair: Pair, one: Client) -> None:
    pair.ask(one, Create(A), Get(A, watch=True))
    event, answer = pair.ask(one, Set(A, b"1"))
    assert isinstance(event, Event)
    assert isinstance(answer, Reply)
    assert (event.kind, event.zxid) == (EventKind.CHANGED, answer.zxid)


def test_a_multi_tells_in_the_order_of_its_operations_and_one_that_fails_tells_nothing(
    pair: Pair, one: Client, other: Client
) -> None:
    pair.ask(one, Create(A), Create(B))
    pair.ask(other, Get(A, watch=True), Get(B, watch=True), Children(BASE, watch=True))
    pair.ask(one, Multi((Set(B, b"1"), Set(A, b"1"), Check(A, 7))))
    assert heard(pair, other) == []
    pair.ask(one, Multi((Set(B, b"1"), Delete(B), Set(A, b"1"), Set(A, b"2"))))
    assert heard(pair, other) == [(EventKind.CHANGED, B), (EventKind.CHILD, BASE), (EventKind.CHANGED, A)]


def test_who_may_not_read_a_node_is_not_told(pair: Pair, one: Client, other: Client) -> None:
    pair.ask(one, Create(A), Create(B))
    pair.ask(other, Get(A, watch=True), Exists(B, watch=True), Children(BASE, watch=True))
    pair.ask(one, SetPerms(A, Perms.ALL & ~Perms.READ))
    assert code(pair, other, Exists(A, watch=True)) is Code.NO_AUTH
    pair.ask(one, Set(A, b"1"), SetPerms(A, Perms.ALL), Set(A, b"2"), Delete(B))
    assert heard(pair, other) == [(EventKind.DELETED, B), (EventKind.CHILD, BASE)]


def test_watches_go_with_the_connection(pair: Pair, one: Client, other: Client) -> None:
    pair.ask(one, Create(A))
    pair.ask(other, Get(A, watch=True))
    pair.drop(other)
    assert pair.attach(other) == "attached"
    pair.ask(one, Set(A, b"1"))
    assert heard(pair, other) == []


def test_rearmed_watches_fire_at_once_for_what_changed_since(pair: Pair, one: Client, other: Client) -> None:
    nodes = [f"{BASE}/{n}" for n in range(6)]
    pair.ask(one, *(Create(node) for node in nodes[:4]), Create(f"{nodes[3]}/x"))
    since = pair.zxid
    pair.ask(one, Set(nodes[1], b"1"), Delete(nodes[2]), Delete(f"{nodes[3]}/x"), Create(nodes[4]))
    # All three ways to watch, for nodes kept, changed, deleted, with other children, created and never there.
    (*notified, answer) = pair.ask(other, SetWatches(since, tuple(nodes), tuple(nodes), tuple(nodes)))
    assert isinstance(answer, Reply)
    assert [(event.kind, event.path[-1]) for event in notified if isinstance(event, Event)] == [
        *(
            (EventKind.CHANGED, "1"),
            (EventKind.DELETED, "2"),
            (EventKind.CHANGED, "4"),
            (EventKind.DELETED, "5"),
        ),
        *((EventKind.CREATED, n) for n in "0134"),
        *((EventKind.DELETED, "2"), (EventKind.CHILD, "3"), (EventKind.CHILD, "4"), (EventKind.DELETED, "5")),
    ]
    pair.ask(
        one,
        *(Set(node, b"9") for node in (*nodes[:2], *nodes[3:5])),
        Create(nodes[5]),
        Create(f"{nodes[0]}/x"),
    )
    assert len(heard(pair, other)) == 4


@pytest.mark.parametrize("way", ["data", "exists", "children"])
def test_rearming_on_what_may_not_be_read(pair: Pair, one: Client, other: Client, way: str) -> None:
    pair.ask(one, Create(A, perms=Perms.ALL & ~Perms.READ))
    pair.ask(other, SetWatches(0, **{way: (A,)}))
    pair.ask(other, SetWatches(pair.zxid, **{way: (A,)}))
    pair.ask(one, Set(A, b"1"), Create(f"{A}/x"), SetPerms(A, Perms.ALL), Set(A, b"2"), Delete(f"{A}/x"))
    heard(pair, other)


# --- names and errors ----------------------------------------------------------------------------------------


def test_sequential_names_count_all_that_were_ever_created(pair: Pair, one: Client) -> None:
    def made(op: Create) -> str:
        value = reply(pair, one, op).value
        assert isinstance(value, Created)
        return value.path.rpartition("/")[2]

    pair.ask(one, Create(A))
    assert made(Create(f"{A}/n-", sequential=True)) == "n-0000000000"
    pair.ask(one, Delete(f"{A}/n-0000000000"), Create(f"{A}/plain"))
    assert made(Create(f"{A}/n-", sequential=True, ephemeral=True, with_stat=True)) == "n-0000000002"
    numbered = Create(f"{A}/", sequential=True)
    pair.ask(
        one, Multi((numbered, numbered, Delete(B))), Multi((numbered, Delete(f"{A}/0000000003"), numbered))
    )
    assert reply(pair, one, Children(A)).value == Names(("0000000004", "n-0000000002", "plain"))
    assert made(numbered) == "0000000005"


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (Create(A), Code.NODE_EXISTS),
        (Create(f"{A}/c", perms=None), Code.INVALID_ACL),
        (Create(f"{B}/c", perms=None), Code.INVALID_ACL),
        (Create(f"{A}/e/c"), Code.NO_CHILDREN_FOR_EPHEMERALS),
        (Create(f"{B}/c"), Code.NO_NODE),
        (Create("relative"), Code.BAD_ARGUMENTS),
        (Create("relative/x"), Code.NO_NODE),
        (Create(f"{A}/"), Code.BAD_ARGUMENTS),
        (Create(f"{B}/"), Code.NO_NODE),
        (Create(f"{A}/."), Code.BAD_ARGUMENTS),
        (Create(f"{A}//x"), Code.NO_NODE),
        (Create("/"), Code.NODE_EXISTS),
        (Create("//x"), Code.BAD_ARGUMENTS),
        (Delete(A), Code.NOT_EMPTY),
        (Delete(A, 5), Code.BAD_VERSION),
        (Delete(B), Code.NO_NODE),
        (Delete(f"{A}/"), Code.NO_NODE),
        (Delete("/"), Code.BAD_ARGUMENTS),
        (Delete("/zookeeper"), Code.BAD_ARGUMENTS),
        (Delete("/zookeeper/quota"), Code.BAD_ARGUMENTS),
        (Set(A, b"", 3), Code.BAD_VERSION),
        (Set(B, b""), Code.NO_NODE),
        (Set(f"{A}/", b""), Code.BAD_ARGUMENTS),
        (Set(f"{A}/hidden", b""), Code.NO_AUTH),
        (SetPerms(A, 1, 1), Code.BAD_VERSION),
        (SetPerms(A, None, 1), Code.INVALID_ACL),
        (SetPerms(f"{A}/hidden", 31), Code.NO_AUTH),
        (Get(f"{A}/hidden"), Code.NO_AUTH),
        (Exists(f"{A}/hidden"), Code.NO_AUTH),
        (Children(f"{A}/hidden"), Code.NO_AUTH),
        (GetPerms(f"{A}/hidden"), Code.NO_AUTH),
        (Delete(f"{A}/hidden", 0), Code.OK),
        (Get("relative"), Code.NO_NODE),
        (Get(f"{A}/"), Code.NO_NODE),
        (Exists(B), Code.NO_NODE),
        (Exists(f"{A}\0"), Code.BAD_ARGUMENTS),
        (Children(B), Code.NO_NODE),
        (GetPerms(B), Code.NO_NODE),
        (GetPerms("/zookeeper/config"), Code.OK),
        (Get("/zookeeper/config"), Code.OK),
        (Children("/zookeeper", with_stat=True), Code.OK),
        (Get("/"), Code.OK),
        (Exists(""), Code.OK),
        (Sync("anything"), Code.OK),
    ],
    ids=str,
)
def test_errors(pair: Pair, one: Client, op: Operation, expected: Code) -> None:
    pair.ask(one, Create(A), Create(f"{A}/e", ephemeral=True), Create(f"{A}/hidden", perms=0))
    assert code(pair, one, op) is expected


@pytest.mark.parametrize("place", [0, 1, 3])
@pytest.mark.parametrize(
    ("failing", "expected"),
    [
        (Check(A, 9), Code.BAD_VERSION),
        (Check(B, -1), Code.NO_NODE),
        (Create(A), Code.NODE_EXISTS),
        (Create("odd"), Code.BAD_ARGUMENTS),
        (Delete(B), Code.NO_NODE),
        (Set(A, b"", 9), Code.BAD_VERSION),
    ],
    ids=str,
)
def test_a_multi_that_fails_names_the_operation_and_counts_one_zxid(
    pair: Pair, one: Client, failing: MultiOp, expected: Code, place: int
) -> None:
    pair.ask(one, Create(A))
    before = reply(pair, one, Exists(A))
    ops: list[MultiOp] = [Set(A, b"1", n) for n in range(3)]
    ops.insert(place, failing)
    answer = reply(pair, one, Multi(tuple(ops)))
    assert answer.code is Code.OK
    assert answer.value == (Code.OK,) * place + (expected,) + (Code.RUNTIME_INCONSISTENCY,) * (3 - place)
    after = reply(pair, one, Exists(A))
    assert after.value == before.value
    assert after.zxid == before.zxid + 1


def test_operations_of_a_multi_see_those_before_them(pair: Pair, one: Client) -> None:
    answer = reply(
        pair,
        one,
        Multi(
            (
                Create(A, b"0", with_stat=True),
                Create(f"{A}/c"),
                Set(A, b"1", 0),
                Check(A, 1),
                Delete(f"{A}/c", 0),
                Delete(A, 1),
                Create(A, b"new", ephemeral=True),
            )
        ),
    )
    assert isinstance(answer.value, tuple)
    assert not [result for result in answer.value if isinstance(result, Code)]
    found = reply(pair, one, Get(A)).value
    assert isinstance(found, Data)
    assert (found.data, found.stat.version, found.stat.czxid) == (b"new", 0, answer.zxid)


def test_null_and_empty_data_differ(pair: Pair, one: Client) -> None:
    pair.ask(one, Create(A, None), Create(B, b""))
    for path, data in ((A, None), (B, b"")):
        found = reply(pair, one, Get(path)).value
        assert isinstance(found, Data)
        assert found.data == data
        assert found.stat.data_length == 0
    pair.ask(one, MultiRead((Get(A), Get(B), Children(A), Get(f"{A}/x"), Children(BASE))))


def test_a_request_over_the_limit_ends_the_connection_but_not_the_session(
    pair: Pair, one: Client, real_options: Options
) -> None:
    limit = real_options.request_bytes_max
    # The directory's real name is part of the size.
    base = reply(pair, one, Sync(BASE)).value
    assert isinstance(base, str)
    room = limit - wire.packet_size(Create(f"{base}/a"))
    assert code(pair, one, Create(A, b"x" * room)) is Code.OK
    assert pair.ask(one, Create(B, b"x" * (room + 1))) == [Closed()]
    assert pair.attach(one) == "attached"
    assert code(pair, one, Exists(B)) is Code.NO_NODE


def test_an_unknown_request_ends_the_connection(pair: Pair, one: Client) -> None:
    assert code(pair, one, Unknown()) is Code.UNIMPLEMENTED
    assert pair.ask(one, Ping()) == [Closed()]
    assert pair.attach(one) == "attached"


def test_times(pair: Pair, one: Client) -> None:
    """Their values are each side's own, but what sets them is the same."""
    links = one.links
    base = reply(pair, one, Sync(BASE)).value
    pair.ask(one, Create(A), Create(B))

    def times() -> list[list[bool]]:
        found = []
        for link in links:
            stats = [
                m.value for m in link.ask(*(Exists(f"{base}/{n}") for n in "ab")) if isinstance(m, Reply)
            ]
            found.append([stat.mtime_ms > stat.ctime_ms for stat in stats if isinstance(stat, Stat)])
        return found

    assert times() == [[False, False], [False, False]]
    time.sleep(0.005)
    pair.memory.now_ms += 5
    pair.ask(one, Set(A, b"1"), SetPerms(B, Perms.ALL), Create(f"{B}/c"))
    assert times() == [[True, False], [True, False]]


# --- sessions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "negotiated"), [(1, 200), (7000, 7000), (10**6, 120_000)])
def test_the_timeout_is_negotiated(pair: Pair, asked: int, negotiated: int) -> None:
    assert pair.open(asked).links[0].timeout_ms == negotiated


@pytest.mark.parametrize("count", [1, 5, 12, 13, 40])
def test_a_session_s_ephemerals_go_in_one_transaction_and_in_the_server_s_order(
    pair: Pair, one: Client, other: Client, count: int
) -> None:
    paths = [f"{BASE}/{n * n}" for n in range(count)]
    gone = paths[::3] if count > 12 else []
    for path in paths:
        pair.ask(one, Create(path, ephemeral=True))
    pair.ask(one, *(Delete(path) for path in gone))
    kept = [path for path in paths if path not in gone]
    pair.ask(other, *(Get(path, watch=True) for path in kept), Children(BASE, watch=True))
    closed = pair.ask(one, CloseSession())[-1]
    notified = events(pair.ask(other, Ping()))
    assert isinstance(closed, Reply)
    assert {event.zxid for event in notified} == {closed.zxid}
    assert sorted(
        event.path.rpartition("/")[2] for event in notified if event.kind is EventKind.DELETED
    ) == sorted(path.rpartition("/")[2] for path in kept)
    assert [event.kind for event in notified[:2]] == [EventKind.DELETED, EventKind.CHILD]
    assert pair.attach(one) == "refused"


def test_who_ends_the_session_hears_of_its_own_ephemerals(pair: Pair, one: Client) -> None:
    pair.ask(one, Create(A, ephemeral=True), Get(A, watch=True))
    event, answer = pair.ask(one, CloseSession())
    assert isinstance(event, Event)
    assert isinstance(answer, Reply)


def test_another_connection_of_the_session_ends_the_first(pair: Pair, one: Client, other: Client) -> None:
    pair.ask(one, Create(A, ephemeral=True))
    first = one.links
    assert pair.attach(one, forget_password=True) == "refused"
    for link in first:
        assert link.ask(Ping()) == [Closed()]
    assert code(pair, other, Exists(A)) is Code.OK
    assert pair.attach(one) == "attached"
    assert code(pair, one, Delete(A)) is Code.OK


def test_a_client_that_has_seen_more_than_the_server_gets_no_answer(pair: Pair, one: Client) -> None:
    assert pair.attach(one, last_zxid=pair.zxid + 1) == "no answer"
    assert pair.attach(one, last_zxid=pair.zxid) == "attached"


@pytest.mark.parametrize("silent", [False, True], ids=["connection gone", "connected but silent"])
def test_a_session_that_nobody_hears_of_ends(pair: Pair, one: Client, silent: bool) -> None:
    """Forced by waiting on the real one, by the given time on the one in memory."""
    lapsing = pair.open(SHORT_MS)
    kept = [f"{BASE}/{n}" for n in range(3)]
    began = time.monotonic()
    pair.ask(lapsing, *(Create(path, ephemeral=True) for path in kept))
    pair.ask(one, *(Exists(path, watch=True) for path in kept), Children(BASE, watch=True))
    if not silent:
        pair.drop(lapsing)
    real, memory = one.links
    notified = events(real.ask(Ping()))
    while not notified:
        assert time.monotonic() < began + EXPIRY_MAX_S, "the session did not end"
        time.sleep(0.02)
        notified = events(real.ask(Ping()))
    assert time.monotonic() - began >= SHORT_MS / 1000, "the session ended too early"
    assert not events(memory.ask(Ping()))
    next_expiry_ms = pair.memory.ensemble.next_expiry_ms()
    assert next_expiry_ms is not None
    pair.memory.now_ms = next_expiry_ms
    assert events(memory.ask(Ping())) == notified
    pair.ask(one, *(Exists(path) for path in kept), Children(BASE, with_stat=True))
    if silent:
        assert pair.ask(lapsing, Ping()) == [Closed()]
    assert pair.attach(lapsing) == "refused"
    lapsing.over = True


# --- watched trees ---------------------------------------------------------------------------------------------


def told(pair: Pair, client: Client) -> list[tuple[EventKind, str]]:
    """By a request of the client itself: events come before its reply."""
    return [(event.kind, event.path) for event in events(pair.ask(client, Sync("/")))]


def test_a_watched_tree_tells_of_everything_in_it_again_and_again(pair: Pair, one: Client) -> None:
    other = pair.open()
    pair.ask(one, Create(A), WatchTree(A))
    pair.ask(other, Create(f"{A}/x"), Create(f"{A}/x/y"), Create(B), Set(f"{A}/x", b"1"), Set(f"{A}/x", b"2"))
    pair.ask(other, Multi((Set(A, b"3"), Create(f"{A}/z"), Delete(f"{A}/x/y"))), Delete(f"{A}/x"))
    seen = told(pair, one)
    assert [kind for kind, _ in seen] == [
        EventKind.CREATED,
        EventKind.CREATED,
        EventKind.CHANGED,
        EventKind.CHANGED,
        EventKind.CHANGED,
        EventKind.CREATED,
        EventKind.DELETED,
        EventKind.DELETED,
    ]
    assert told(pair, one) == []


def test_what_is_watched_twice_is_told_once(pair: Pair, one: Client) -> None:
    """The one-shot watch goes off with it; one of the children is another event."""
    other = pair.open()
    pair.ask(one, Create(A), Create(f"{A}/x"), WatchTree(A), Get(f"{A}/x", watch=True))
    pair.ask(one, Children(f"{A}/x", watch=True))
    pair.ask(other, Set(f"{A}/x", b"1"), Set(f"{A}/x", b"2"), Create(f"{A}/x/y"), Delete(f"{A}/x/y"))
    kinds = [kind for kind, _ in told(pair, one)]
    assert kinds == [
        EventKind.CHANGED,
        EventKind.CHANGED,
        EventKind.CREATED,
        EventKind.CHILD,
        EventKind.DELETED,
    ]
    pair.ask(other, Delete(f"{A}/x"))
    assert [kind for kind, _ in told(pair, one)] == [EventKind.DELETED]


def test_a_tree_that_is_not_there_yet_can_be_watched(pair: Pair, one: Client) -> None:
    pair.ask(one, WatchTree(A), Create(A), Create(f"{A}/x"), Delete(f"{A}/x"), Delete(A), Create(A))
    assert told(pair, one) == []  # each came with the reply to what caused it


def test_a_watch_that_is_removed_is_gone(pair: Pair, one: Client) -> None:
    pair.ask(one, Create(A), WatchTree(A), Create(f"{A}/x"), RemoveWatches(A), Set(f"{A}/x", b"1"))
    pair.ask(one, RemoveWatches(A), RemoveWatches(B), Get(f"{A}/x", watch=True), WatchTree(A))
    pair.ask(one, RemoveWatches(A), Set(f"{A}/x", b"2"), Set(f"{A}/x", b"3"))


def test_a_tree_is_watched_as_long_as_the_connection_lasts(pair: Pair, one: Client) -> None:
    other = pair.open()
    pair.ask(one, Create(A), WatchTree(A))
    pair.drop(one)
    pair.attach(one)
    pair.ask(other, Set(A, b"1"))
    assert told(pair, one) == []
    pair.ask(one, RemoveWatches(A))


def test_a_watched_tree_keeps_silent_about_what_may_not_be_read(pair: Pair, one: Client) -> None:
    other = pair.open()
    pair.ask(one, Create(A), Create(f"{A}/x", perms=Perms.ALL & ~Perms.READ), WatchTree(A))
    pair.ask(other, Set(f"{A}/x", b"1"), Delete(f"{A}/x"))
    told(pair, one)
