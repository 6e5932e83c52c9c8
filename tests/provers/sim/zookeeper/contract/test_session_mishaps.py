"""Our Session at moments that a real server does not offer: in memory, in virtual time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controller.core import znode_paths
from controller.errors import SessionLostError
from controller.runtime.observe.metrics import StandbyMetrics
from controller.runtime.zookeeper import jute
from controller.runtime.zookeeper import session as session_module
from controller.runtime.zookeeper.session import (
    BadVersionError,
    ConnectionLossError,
    ConnectionState,
    Session,
)
from controller.runtime.zookeeper.state_mirror import StateMirror, Warmth
from proto.zookeeper_access import ZooKeeperAccess
from tests.provers.sim.zookeeper import session as memory
from tests.provers.sim.zookeeper.contract.in_memory import CHROOT, CONNECT, TIMEOUT_MS, a_session, told_in
from tests.provers.sim.zookeeper.ensemble import Options
from tests.provers.sim.zookeeper.hands import Hands
from tests.provers.sim.zookeeper.messages import MultiRead, Operation, SetWatches, Sync, WatchTree
from tests.provers.sim.zookeeper.network import Channel, Loss, Network
from tests.support.runtime.sessions import opened, until

told = told_in(a_session, "network", "session", "zk")


@told
async def test_a_lost_connection_renews_no_lease(network: Network, session: Session) -> None:
    await asyncio.sleep(5)
    before = session.lease_remaining_s()
    network.lose("one", Loss.REQUEST, Sync)
    network.block("one", [0])
    with pytest.raises(ConnectionLossError):
        await session.ping()
    assert session.lease_remaining_s() <= before


def test_the_lease_counts_from_before_a_connect_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = memory._Connection._connect

    def slowly(self: Any, host: str, ip: str, port: int) -> tuple[float, float]:
        self._network.clock._as_of_s += 3.0
        return connect(self, host, ip, port)

    @told
    async def story(session: Session) -> None:
        assert session.lease_remaining_s() < TIMEOUT_MS / 1000 * 2 / 3

    monkeypatch.setattr(memory._Connection, "_connect", slowly)
    story()


@told
async def test_after_a_lost_connection_a_standby_reads_all_again(
    network: Network, session: Session, zk: Hands
) -> None:
    zk.ensure_path(znode_paths.TOPICS)
    mirror = StateMirror(session, StandbyMetrics(CollectorRegistry()))
    reading = asyncio.create_task(mirror.run())
    await until(lambda: mirror.warmth is Warmth.WARM, "all to be read")
    connections = session.connections
    network.drop("one")
    await until(lambda: session.connected and session.connections > connections, "another connection")
    assert mirror.hand_over(lambda *_: None) is None
    await until(lambda: mirror.warmth is Warmth.WARM, "all to be read again")
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


@told
async def test_the_next_server_is_asked_anew_whether_it_has_bulk_reads(
    network: Network, session: Session, zk: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "BULK_PATHS", 2)
    zk.create("/a", b"1")
    assert len(await session.bulk_get(["/a"] * 9)) == 9
    network.ensemble.options = Options(multi_read=False)
    network.drop("one")
    await until(lambda: session.connections > 1 and session.connected, "another connection")
    assert [node.data for node in await session.bulk_get(["/a"] * 9) if not isinstance(node, int)] == [
        b"1"
    ] * 9


@told
async def test_many_parts_of_a_bulk_read_come_in_order(
    session: Session, zk: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "BULK_PATHS", 2)
    paths = [f"/{n}" for n in range(9)]
    for path in paths:
        zk.create(path, path.encode())
    nodes = await session.bulk_get(paths)
    assert [node.data for node in nodes if not isinstance(node, int)] == [p.encode() for p in paths]


@told
async def test_changes_of_a_tree_that_were_too_many_to_keep_count_as_lost(
    session: Session, zk: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "HEARD_MAX", 2)
    zk.create("/w")
    assert await session.watch_tree("/w")
    connections = session.connections
    for name in ("a", "b"):
        zk.create(f"/w/{name}")
    await session.ping()
    assert session.connections == connections
    zk.create("/w/c")
    await session.ping()
    assert session.connections > connections


@told
async def test_a_tree_is_heard_of_from_the_moment_in_which_it_is_watched(
    network: Network, session: Session, zk: Hands
) -> None:
    deliver = network.deliver

    def changing(channel: Channel, op: Operation) -> None:
        deliver(channel, op)
        if isinstance(op, WatchTree):
            zk.create("/w/a")

    network.deliver = changing  # type: ignore[method-assign]
    zk.create("/w")
    assert await session.watch_tree("/w")
    await session.ping()
    assert "/w/a" in session.heard()


@told
async def test_nothing_is_said_of_a_connection_after_the_close() -> None:
    async with opened(CONNECT, TIMEOUT_MS) as (session, changes):
        await session.ping()
        await session.close()
        await asyncio.sleep(30)
        assert changes == [ConnectionState.CONNECTED]


@told
async def test_below_a_chroot_the_access_of_a_znode_goes_by_its_own_path() -> None:
    session = Session(CONNECT, TIMEOUT_MS, lambda _: None, None, access=ZooKeeperAccess(set_acl=True))
    for path, acl in (("/config/users/u", jute.PRIVATE_ACL), ("/config/topics/t", jute.READABLE_ACL)):
        assert acl in session.op_create(path, b"")
        assert f"{CHROOT}{path}".encode() in session.op_create(path, b"")


@told
async def test_a_request_that_cannot_be_sent_is_not_waited_for(session: Session) -> None:
    def refuses() -> None:
        raise ValueError

    for _n in range(session_module.IN_FLIGHT_MAX + 1):
        with pytest.raises(ValueError):
            await session._call(refuses)
        await asyncio.sleep(0)
    await session.ping()
    assert not session._outstanding


@told
async def test_a_session_that_is_over_asks_nothing(network: Network, session: Session) -> None:
    asked: list[Operation] = []
    deliver = network.deliver

    def noting(channel: Channel, op: Operation) -> None:
        asked.append(op)
        deliver(channel, op)

    network.deliver = noting  # type: ignore[method-assign]
    session.over = True
    with pytest.raises(SessionLostError):
        await session.ping()
    assert asked == []
    session.over = False


@told
async def test_a_deletion_goes_by_the_version(session: Session, zk: Hands) -> None:
    zk.create("/a")
    with pytest.raises(BadVersionError):
        await session.delete("/a", 7)
    assert zk.exists("/a")


@pytest.mark.parametrize("end", ["expired", "closed"])
@told
async def test_who_waits_for_an_answer_that_never_comes_is_told_at_the_end(
    session: Session, end: str
) -> None:
    class Never:
        def rawlink(self, _: object) -> None: ...

    waiting = asyncio.create_task(session._call(Never))
    await asyncio.sleep(1)
    assert not waiting.done()
    if end == "expired":
        session._notify(ConnectionState.EXPIRED)
    else:
        await session.close()
    with pytest.raises(SessionLostError):
        await waiting


@told
async def test_who_waits_is_told_of_a_close_before_the_client_has_ended(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Never:
        def rawlink(self, _: object) -> None: ...

    waiting = asyncio.create_task(session._call(Never))
    await asyncio.sleep(1)
    with monkeypatch.context() as patch:
        never = SimpleNamespace(Thread=lambda **_: SimpleNamespace(start=lambda: None))
        patch.setattr(session_module, "threading", never)
        await session.close()
    with pytest.raises(SessionLostError):
        async with asyncio.timeout(1):
            await waiting


@told
async def test_what_changed_since_the_last_answer_fires_as_it_is_watched(session: Session, zk: Hands) -> None:
    heard: list[str] = []
    zk.create("/a")
    await session.ping()
    zk.set("/a", b"1")
    await session.arm_data_watches(["/a"], lambda _kind, path: heard.append(path))
    await session.ping()
    assert heard == ["/a"]


@told
async def test_an_event_of_the_former_watch_ends_no_new_one(
    network: Network, session: Session, zk: Hands
) -> None:
    heard: list[str] = []
    deliver = network.deliver

    def changing(channel: Channel, op: Operation) -> None:
        if isinstance(op, SetWatches) and armed:
            zk.set("/a", b"1")
        deliver(channel, op)

    def watch(_kind: str, path: str) -> None:
        heard.append(path)

    armed = False
    zk.create("/a")
    await session.ping()
    network.deliver = changing  # type: ignore[method-assign]
    await session.arm_data_watches(["/a"], watch)
    armed = True
    await session.arm_data_watches(["/a"], watch)
    await session.ping()
    count = len(heard)
    assert count
    armed = False
    await session.arm_data_watches(["/a"], watch)
    zk.set("/a", b"2")
    await session.ping()
    assert len(heard) > count


@told
async def test_only_some_parts_of_a_bulk_read_are_under_way_at_once(
    session: Session, zk: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "BULK_PATHS", 1)
    monkeypatch.setattr(session_module, "BULK_WINDOW", 2)
    zk.create("/a")
    get, under_way = session._get_chunk, list[int]()
    running = 0

    async def counting(packed: Any) -> list[jute.Node | int]:
        nonlocal running
        running += 1
        under_way.append(running)
        try:
            return await get(packed)
        finally:
            running -= 1

    monkeypatch.setattr(session, "_get_chunk", counting)
    assert len(await session.bulk_get(["/a"] * 9)) == 9
    assert max(under_way) == 2


@told
async def test_a_tree_that_is_forgotten_is_not_heard_of(session: Session, zk: Hands) -> None:
    zk.create("/w")
    assert await session.watch_tree("/w")
    zk.create("/w/a")
    await session.ping()
    await session.forget_tree("/w")
    assert session.heard() == []


@told
async def test_a_session_that_is_over_has_no_lease(session: Session) -> None:
    assert session.lease_remaining_s() > 0
    session.over = True
    assert session.lease_remaining_s() < 0
    session.over = False


@told
async def test_whether_there_are_bulk_reads_is_asked_once(
    network: Network, session: Session, zk: Hands
) -> None:
    asked: list[Operation] = []
    deliver = network.deliver

    def noting(channel: Channel, op: Operation) -> None:
        asked.append(op)
        deliver(channel, op)

    zk.create("/a")
    network.deliver = noting  # type: ignore[method-assign]
    for _ in range(3):
        await session.bulk_get(["/a", "/b"])
    assert len([op for op in asked if isinstance(op, MultiRead)]) == 4


@told
async def test_single_reads_are_tried_again_on_another_connection(
    network: Network, session: Session, zk: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    network.ensemble.options = Options(multi_read=False)
    zk.create("/a", b"1")
    get, losses = session.get, iter(range(2))

    async def losing(path: str, watch: Any = None) -> Any:
        for _ in losses:
            raise ConnectionLossError
        return await get(path, watch)

    monkeypatch.setattr(session, "get", losing)
    (node,) = await session.bulk_get(["/a"])
    assert isinstance(node, jute.Node)


@told
async def test_what_is_read_in_bulk_is_as_asked_for(
    session: Session, zk: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("BULK_PATHS", "BULK_WINDOW"):
        monkeypatch.setattr(session_module, name, 2)
    paths = [f"/{name}" for name in "abcdefgh"]
    for path in paths:
        zk.create(path, path.encode())
    nodes = await session.bulk_get(paths)
    assert [node.data for node in nodes if isinstance(node, jute.Node)] == [p.encode() for p in paths]
    assert await session._get_singly([session.packed_path(path) for path in paths]) == nodes
