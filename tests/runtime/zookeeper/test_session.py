"""What we rely on of kazoo and ZooKeeper beyond their promises (docs/adr/0002), against a real server."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections import Counter

import pytest
import structlog
from kazoo.client import KazooClient
from kazoo.security import make_acl

from controller.errors import EnvironmentFault, SessionLostError
from controller.runtime.zookeeper import cluster_reader, jute
from controller.runtime.zookeeper.jute import Node
from controller.runtime.zookeeper.session import (
    ConnectionState,
    Session,
)
from tests.support.ports import free_port
from tests.support.runtime.proxy import opcode_replaced, proxied
from tests.support.runtime.sessions import client_id, expire, opened, until

pytestmark = pytest.mark.slow

#: An operation that no server knows. What 3.5 does with multiRead, 3.9 does with this: answer
#: "unimplemented" and drop the connection (UnimplementedRequestProcessor is the same in both).
UNKNOWN_OPCODE = 77


def datum(n: int) -> bytes:
    """Every seventh is empty."""
    return b"" if n % 7 == 0 else b"x" * (n % 50) + str(n).encode()


async def fill(session: Session, count: int, parent: str = "/bulk") -> list[str]:
    await session.ensure(parent)
    paths = [f"{parent}/{n}" for n in range(count)]
    pack = session.packed_path
    for start in range(0, count, 1000):
        await session.multi(
            [jute.op_create(pack(paths[n]), datum(n)) for n in range(start, min(start + 1000, count))]
        )
    return paths


# --- bulk reads --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("multi_read", [True, False], ids=["multiRead", "single reads"])
async def test_bulk_get_keeps_order_and_says_what_is_missing(zookeeper: str, multi_read: bool) -> None:
    async with opened(zookeeper, use_multi_read=multi_read) as (session, _):
        stored = await fill(session, 5000)
        for count in (0, 1, 999, 1000, 1001, 5000):
            paths = [path if n % 10 else f"/missing/{n}" for n, path in enumerate(stored[:count])]
            nodes = await session.bulk_get(paths)
            assert [n.data if isinstance(n, Node) else n for n in nodes] == [
                datum(n) if n % 10 else jute.NO_NODE for n in range(count)
            ]
        assert session.multi_read is multi_read


async def test_bulk_get_tells_versions_and_czxids_like_single_reads(session: Session) -> None:
    paths = await fill(session, 5)
    await session.multi([jute.op_set(session.packed_path(paths[2]), b"new", 0)])
    for path, node in zip(paths, await session.bulk_get(paths), strict=True):
        data, stat = await session.get(path)
        assert node == Node(data, stat.version, stat.czxid)


async def test_bulk_get_of_large_data_and_of_null(session: Session, zk: KazooClient) -> None:
    zk.create("/large", b"y" * 500_000)
    zk.create("/null")
    found = await session.bulk_get(["/large", "/null", "/large"])
    assert [n.data for n in found if isinstance(n, Node)] == [b"y" * 500_000, b"", b"y" * 500_000]


@pytest.mark.parametrize("multi_read", [True, False], ids=["multiRead", "single reads"])
async def test_a_znode_that_may_not_be_read_hides_no_other(
    zookeeper: str, zk: KazooClient, multi_read: bool
) -> None:
    zk.create("/hidden", b"a", acl=[make_acl("world", "anyone", admin=True)])
    zk.create("/seen", b"b")
    async with opened(zookeeper, use_multi_read=multi_read) as (session, _):
        hidden, seen = await session.bulk_get(["/hidden", "/seen"])
        assert hidden == jute.NO_AUTH
        assert isinstance(seen, Node)
        assert seen.data == b"b"


async def test_server_without_multi_read_is_asked_one_by_one(zookeeper: str) -> None:
    old_server = proxied(zookeeper, opcode_replaced(jute.OP_MULTI_READ, UNKNOWN_OPCODE))
    async with old_server as proxy, opened(proxy.connect) as (session, changes):
        paths = await fill(session, 2500)
        nodes = await session.bulk_get([*paths, "/missing"])
        assert [n.data if isinstance(n, Node) else n for n in nodes] == [
            *(datum(n) for n in range(2500)),
            jute.NO_NODE,
        ]
        assert session.multi_read is False
        assert not session.over
        await session.bulk_get(paths[:10])
        # Once, never again, and with nothing behind it: its answer would be lost to the reset now and then.
        assert proxy.requests[jute.OP_MULTI_READ] == 1
        assert proxy.bytes_max[jute.OP_MULTI_READ] < 100
        assert ConnectionState.EXPIRED not in changes


async def test_a_session_that_moves_to_a_server_without_multi_read_goes_on(zookeeper: str) -> None:
    async with proxied(zookeeper) as proxy, opened(proxy.connect) as (session, changes):
        await session.bulk_get(["/"])
        proxy.rewrite = opcode_replaced(jute.OP_MULTI_READ, UNKNOWN_OPCODE)
        # Nobody says so on a connection that stays.
        assert [type(n) for n in await session.bulk_get(["/"])] == [Node]
        assert session.multi_read is False
    async with proxied(zookeeper) as proxy, opened(proxy.connect) as (session, changes):
        await session.bulk_get(["/"])
        proxy.rewrite = opcode_replaced(jute.OP_MULTI_READ, UNKNOWN_OPCODE)
        proxy.drop()
        await until(lambda: changes.count(ConnectionState.CONNECTED) == 2, "the other server")
        assert len(await session.bulk_get(["/"] * 5000)) == 5000
        assert session.multi_read is False
        assert proxy.requests[jute.OP_MULTI_READ] == 3


async def test_a_chroot_that_may_not_be_made_is_named_and_one_below_what_is_there_is_made(
    zookeeper: str, zk: KazooClient
) -> None:
    zk.create("/closed/open", makepath=True)
    zk.set_acls("/closed", [make_acl("world", "anyone", read=True, admin=True)])
    async with opened(f"{zookeeper}/closed/open/one"):
        assert zk.exists("/closed/open/one")
    session = Session(f"{zookeeper}/closed/one", 20_000, lambda _: None, None)
    try:
        with pytest.raises(EnvironmentFault, match=r"chroot .*/closed/one could not .*: an ACL forbids it"):
            await session.start(20)
    finally:
        await session.close()


# --- multi -------------------------------------------------------------------------------------------------


async def test_multi_lands_as_a_whole(session: Session, zk: KazooClient) -> None:
    zk.create("/set", b"old")
    zk.create("/gone", b"")
    pack = session.packed_path
    await session.multi(
        [
            jute.op_check(pack("/set"), 0),
            jute.op_set(pack("/set"), b"new", 0),
            jute.op_create(pack("/made"), b"m"),
            jute.op_create(pack("/made/child"), b""),
            jute.op_delete(pack("/gone"), 0),
        ]
    )
    assert zk.get("/set")[0] == b"new"
    assert zk.get("/made")[0] == b"m"
    assert zk.exists("/made/child")
    assert not zk.exists("/gone")
    acl = zk.get_acls("/made")[0]
    assert [(a.id.scheme, a.id.id, a.perms) for a in acl] == [("world", "anyone", 31)]


@pytest.mark.parametrize(
    ("failing", "code"),
    [
        ("check", jute.BAD_VERSION),
        ("set", jute.BAD_VERSION),
        ("create", jute.NODE_EXISTS),
        ("delete", jute.NO_NODE),
        ("orphan", jute.NO_NODE),
    ],
)
@pytest.mark.parametrize("index", [0, 1, 3])
async def test_multi_lands_not_at_all_and_names_the_operation(
    session: Session, zk: KazooClient, failing: str, code: int, index: int
) -> None:
    zk.create("/a", b"old")
    zk.create("/b", b"old")
    pack = session.packed_path
    bad = {
        "check": jute.op_check(pack("/a"), 9),
        "set": jute.op_set(pack("/a"), b"new", 9),
        "create": jute.op_create(pack("/a"), b""),
        "delete": jute.op_delete(pack("/nowhere"), -1),
        "orphan": jute.op_create(pack("/no/parent"), b""),
    }[failing]
    ops = [jute.op_set(pack("/b"), b"new", n) for n in range(3)]
    ops.insert(index, bad)
    with pytest.raises(jute.MultiError) as raised:
        await session.multi(ops)
    assert (raised.value.index, raised.value.code) == (index, code)
    assert raised.value.codes[:index] == (jute.OK,) * index
    assert raised.value.codes[index + 1 :] == (jute.RUNTIME_INCONSISTENCY,) * (3 - index)
    assert zk.get("/b")[1].version == 0


async def test_failed_check_is_told_before_any_other_failure(session: Session, zk: KazooClient) -> None:
    zk.create("/epoch", b"1")
    pack = session.packed_path
    with pytest.raises(jute.MultiError) as raised:
        await session.multi([jute.op_check(pack("/epoch"), 5), jute.op_set(pack("/nowhere"), b"", 1)])
    assert (raised.value.index, raised.value.code) == (0, jute.BAD_VERSION)


async def test_chroot_is_made_where_missing(zookeeper: str, zk: KazooClient) -> None:
    async with opened(f"{zookeeper}/a/b") as (session, _):
        await session.create("/x", b"1")
    assert zk.get("/a/b/x")[0] == b"1"


# --- watches -----------------------------------------------------------------------------------------------


class Fired:
    """Watch events, in the order they came."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def __call__(self, kind: str, path: str) -> None:
        self.events.append((kind, path))

    def counted(self) -> Counter[tuple[str, str]]:
        return Counter(self.events)


async def until_delivered(session: Session) -> None:
    """Everything the server sent before this answer has been delivered: events travel in order, but on
    kazoo's own thread, so a callback through the same thread and the loop is awaited."""
    await session.ping()
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    session._client.handler.callback_queue.put(lambda: loop.call_soon_threadsafe(done.set))
    await done.wait()


async def test_armed_watches_fire_once_for_each_change_of_many(session: Session, zk: KazooClient) -> None:
    fired = Fired()
    paths = await fill(session, 12_000)
    await session.arm_data_watches(paths, fired)
    changed = [*paths[:3], *paths[9_998:10_003], paths[-1]]
    for path in changed:
        zk.set(path, b"1")
        zk.set(path, b"2")
    zk.delete(paths[50])
    await until(lambda: len(fired.events) >= len(changed) + 1, "events")
    await until_delivered(session)
    expected = Counter({("CHANGED", path): 1 for path in changed})
    expected["DELETED", paths[50]] = 1
    assert fired.counted() == expected


async def test_rearming_after_an_event_works_and_does_not_double(session: Session, zk: KazooClient) -> None:
    fired = Fired()
    zk.create("/w", b"0")
    await session.get("/w")
    for n in range(1, 4):
        await session.arm_data_watches(["/w"], fired)
        await session.arm_data_watches(["/w"], fired)
        await session.get("/w")
        zk.set("/w", b"x")
        await until(lambda n=n: len(fired.events) >= n, "the event")  # type: ignore[misc]
        await until_delivered(session)
        assert fired.events == [("CHANGED", "/w")] * n


async def test_what_changed_since_the_last_answer_fires_at_once(zookeeper: str, zk: KazooClient) -> None:
    async with opened(zookeeper) as (session, _):
        fired = Fired()
        for path in ("/kept", "/changed", "/deleted"):
            zk.create(path, b"0")
        await session.ping()  # the last answer this session has seen
        zk.set("/changed", b"1")
        zk.delete("/deleted")
        await session.arm_data_watches(["/kept", "/changed", "/deleted"], fired)
        await until(lambda: len(fired.events) >= 2, "events at once")
        await until_delivered(session)
        assert fired.counted() == Counter({("CHANGED", "/changed"): 1, ("DELETED", "/deleted"): 1})
        zk.set("/kept", b"1")
        await until(lambda: ("CHANGED", "/kept") in fired.events, "the watch on the third")


@pytest.mark.parametrize("tree", [False, True], ids=["alone", "beside one on the whole tree"])
async def test_data_child_and_exists_watches(session: Session, zk: KazooClient, tree: bool) -> None:
    fired = Fired()
    zk.create("/p")
    if tree:
        assert await session.watch_tree("/p")
    await session.children("/p", fired)
    await session.exists("/p/c", fired)
    zk.create("/p/c", b"0")
    await until(lambda: len(fired.events) >= 2, "creation")
    assert fired.counted() == Counter({("CHILD", "/p"): 1, ("CREATED", "/p/c"): 1})
    await session.get("/p/c", fired)
    zk.delete("/p/c")
    await until(lambda: len(fired.events) >= 3, "deletion")
    assert fired.events[2] == ("DELETED", "/p/c")


async def test_a_forgotten_callback_is_neither_called_nor_kept(session: Session, zk: KazooClient) -> None:
    class Owner:
        def __init__(self) -> None:
            self.heard: list[str] = []

        def changed(self, _kind: str, path: str) -> None:
            self.heard.append(path)

    forgotten, kept = Owner(), Owner()
    for owner in (forgotten, kept):
        await session.exists("/a", owner.changed)
    session.forget(forgotten.changed)
    zk.create("/a")
    await until(lambda: kept.heard == ["/a"], "the watch")
    assert forgotten.heard == []
    await session.exists("/a", forgotten.changed)
    session.forget(forgotten.changed)
    known = weakref.ref(forgotten)
    del owner, forgotten
    gc.collect()
    assert known() is None


async def test_a_closed_session_delivers_nothing(zookeeper: str, zk: KazooClient) -> None:
    fired = Fired()
    zk.create("/w", b"0")
    async with opened(zookeeper) as (session, _):
        await session.get("/w", fired)
    zk.set("/w", b"1")
    await asyncio.sleep(0)
    session._deliver(session._watchers[fired], "CHANGED", "/w")  # one that was on its way
    assert fired.events == []


# --- sessions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "negotiated"), [(200, 1000), (7000, 7000), (10**6, 120_000)])
async def test_the_servers_timeout_counts_not_ours(zookeeper: str, asked: int, negotiated: int) -> None:
    async with opened(zookeeper, asked) as (session, _):
        # kazoo's own rounding to whole milliseconds and back.
        assert session.negotiated_ms == pytest.approx(negotiated, abs=2)
        assert session.lease_remaining_s() <= negotiated / 1000 * 2 / 3
        with structlog.testing.capture_logs() as logged:
            session.report_timeout()
        assert [(row["requested_ms"], row["event"]) for row in logged] == (
            [] if asked == negotiated else [(asked, "session_timeout_clamped")]
        )

        async def renewed() -> bool:
            await session.ping()
            return session.lease_remaining_s() > 0

        await until(renewed, "an answer within the lease")


async def test_expired_session_is_over_for_good(zookeeper: str, zk: KazooClient) -> None:
    async with opened(zookeeper) as (session, changes):
        await session.create("/mine", b"", ephemeral=True)
        expire(zookeeper, client_id(session))
        await until(lambda: ConnectionState.EXPIRED in changes, "expiry")
        assert session.over
        assert not session.connected
        assert session.lease_remaining_s() < 0
        calls = (
            session.create("/zombie", b""),
            session.multi([jute.op_create(session.packed_path("/zombie"), b"")]),
            session.bulk_get(["/mine"]),
            session.arm_data_watches(["/mine"], Fired()),
            session.register_controller("/zombie", b"", "/mine", 1, 0),
            session.ping(),
        )
        for call in calls:
            with pytest.raises(SessionLostError):
                await call
        with pytest.raises(SessionLostError):
            session.require_lease()
        # kazoo itself goes on with a session of its own: nothing of ours may travel on it.
        await until(lambda: bool(session._client.connected), "kazoo's next session")
        assert zk.get_children("/") == []


async def test_calls_under_way_when_the_session_expires_fail(zookeeper: str) -> None:
    async with proxied(zookeeper) as proxy, opened(proxy.connect) as (session, changes):
        known = client_id(session)
        proxy.refusing = True
        proxy.drop()
        await until(lambda: ConnectionState.SUSPENDED in changes, "the drop")
        waiting = [asyncio.create_task(session.ping()) for _ in range(3)]
        await asyncio.sleep(0)
        expire(zookeeper, known)
        proxy.refusing = False
        for call in waiting:
            with pytest.raises(SessionLostError):
                await call
        assert session.over


async def test_no_server_is_said_with_its_address() -> None:
    port = free_port()
    with pytest.raises(EnvironmentFault, match=f"no ZooKeeper at 127.0.0.1:{port}"):
        async with cluster_reader.connected(f"127.0.0.1:{port}/x", 300):
            pass
