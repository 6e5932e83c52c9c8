"""Calls that kazoo's threads leave to the event loop."""

from __future__ import annotations

import asyncio
import itertools
import socket
import ssl
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from kazoo.exceptions import EXCEPTIONS, ConnectionClosedError

from controller.core import znode_paths
from controller.errors import EnvironmentFault, SessionLostError
from controller.runtime.zookeeper import access, jute
from controller.runtime.zookeeper import session as session_module
from controller.runtime.zookeeper.session import Session
from proto.zookeeper_access import CONSUMERS, Login, ZooKeeperAccess


async def test_calls_of_several_threads_are_all_made_each_threads_in_order() -> None:
    session = Session("127.0.0.1:1", 1000, lambda _: None, None)
    made: list[tuple[int, int]] = []
    everything = asyncio.Event()

    def make(thread: int, number: int) -> None:
        made.append((thread, number))
        if len(made) == 3000:
            everything.set()

    def leave(thread: int) -> None:
        for number in range(1000):
            session._post(make, thread, number)

    threads = [threading.Thread(target=leave, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    await asyncio.wait_for(everything.wait(), 60)
    for thread in threads:
        thread.join()
    assert all([n for of, n in made if of == thread] == list(range(1000)) for thread in range(3))


async def test_a_call_that_fails_keeps_none_from_being_made() -> None:
    session = Session("127.0.0.1:1", 1000, lambda _: None, None)
    failures: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: failures.append(str(what["exception"])))
    made = asyncio.Event()

    def fail() -> None:
        raise ValueError("a bug")

    session._post(fail)
    session._post(made.set)
    await asyncio.wait_for(made.wait(), 60)
    assert failures == ["a bug"]


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        # By ZooKeeper's numbers.
        (EXCEPTIONS[-101](), session_module.NoNodeError),
        (EXCEPTIONS[-110](), session_module.NodeExistsError),
        (EXCEPTIONS[-103](), session_module.BadVersionError),
        (EXCEPTIONS[-102](), session_module.AccessError),
        (EXCEPTIONS[-112](), SessionLostError),
        (EXCEPTIONS[-4](), session_module.ConnectionLossError),
        (ConnectionClosedError(), SessionLostError),
    ],
)
def test_each_error_of_kazoo_is_one_of_ours(error: Exception, ours: type[Exception]) -> None:
    found = (translated for theirs, translated in session_module._TRANSLATED if isinstance(error, theirs))
    assert next(found, None) is ours


def test_changes_of_the_connection_are_named_as_the_metric_s_help_has_them() -> None:
    assert [change.value for change in session_module.ConnectionState] == [
        "connected",
        "suspended",
        "expired",
    ]


@pytest.mark.parametrize(
    "path", [znode_paths.CONTROLLER, znode_paths.CONFIG_CHANGE, "/config/users/u", CONSUMERS]
)
async def test_whatever_is_created_in_a_transaction_has_the_acl_of_its_path(path: str) -> None:
    for given in (ZooKeeperAccess(), ZooKeeperAccess(set_acl=True)):
        session = Session("127.0.0.1:1/test", 1000, lambda _: None, None, access=given)
        acl, packed = access.packed_acl(given, path), f"/test{path}".encode()
        assert session.op_create(path, b"x") == jute.op_create(packed, b"x", acl)
        assert session.op_create_ephemeral(path, b"x") == jute.op_create_ephemeral(packed, b"x", acl)
        assert session.op_create_sequential(path, b"x") == jute.op_create_sequential(packed, b"x", acl)
    open_to_all = jute.op_create(b"/a", b"", jute.OPEN_ACL)
    assert (
        len({open_to_all, *(jute.op_create(b"/a", b"", a) for a in (jute.PRIVATE_ACL, jute.READABLE_ACL))})
        == 3
    )


async def test_a_request_whose_caller_gave_up_is_in_flight_until_it_is_answered() -> None:
    """Else kazoo is given more than its queue for waking it holds."""
    session = Session("127.0.0.1:1", 1000, lambda _: None, None)
    answer = SimpleNamespace(exception=None, value=7)
    answered: list[Callable[[object], None]] = []
    answer.rawlink = answered.append
    asked = asyncio.Event()

    def submit() -> SimpleNamespace:
        asked.set()
        return answer

    caller = asyncio.create_task(session._call(submit))
    await asked.wait()
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    assert len(session._outstanding) == 1
    answered[0](answer)
    await asyncio.gather(*session._outstanding)
    assert not session._outstanding


async def test_what_nobody_waits_for_any_more_of_a_bulk_read_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = Session("127.0.0.1:1", 1000, lambda _: None, None)
    reads: list[asyncio.Task[object] | None] = []
    first = asyncio.Event()

    async def chunk(packed: list[bytes]) -> list[jute.Node | int]:
        reads.append(asyncio.current_task())
        if len(reads) > 1:
            first.set()
            await asyncio.Event().wait()
        return [jute.NO_NODE] * len(packed)

    monkeypatch.setattr(session, "_get_chunk", chunk)
    chunks = session.bulk_get_chunks([b"/a"] * 2 * session_module.BULK_PATHS)
    assert isinstance(chunks, AsyncGenerator)
    assert len(await anext(chunks)) == session_module.BULK_PATHS
    await first.wait()
    await chunks.aclose()
    _, second = reads
    assert second is not None
    await asyncio.wait([second])
    assert second.cancelled()


async def test_a_session_that_ends_at_its_start_by_itself_was_refused_its_login() -> None:
    """Not one that was closed, nor one without a login."""
    for login, ends in ((Login("kafka", lambda: "secret"), True), (None, False)):
        session = Session("127.0.0.1:1", 1000, lambda _: None, None, access=ZooKeeperAccess(login))
        session._require_login()
        session.over = True
        with pytest.raises(EnvironmentFault, match="'kafka'") if ends else nullcontext():
            session._require_login()
        session._closed = True
        session._require_login()


async def test_single_reads_tell_each_by_itself_what_may_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session("127.0.0.1:1/test", 1000, lambda _: None, None, use_multi_read=False)

    async def get(path: str) -> tuple[bytes, session_module.Stat]:
        match path:
            case "/hidden":
                raise session_module.AccessError
            case "/absent":
                raise session_module.NoNodeError
        return b"x", session_module.Stat(1, 2, 0)

    monkeypatch.setattr(session, "get", get)
    found = await session.bulk_get(["/hidden", "/seen", "/absent"])
    assert found == [jute.NO_AUTH, jute.Node(b"x", 1, 2), jute.NO_NODE]


@pytest.mark.parametrize("made", [True, False])
async def test_of_a_chroot_is_made_what_may_be_made(monkeypatch: pytest.MonkeyPatch, made: bool) -> None:
    """ZooKeeper refuses to make what is there, where nothing may be made."""
    session = Session("127.0.0.1:1/a/b", 1000, lambda _: None, None)
    tried: list[bytes] = []

    async def exists(path: str) -> session_module.Stat | None:
        assert path == "/"
        return session_module.Stat(0, 1, 0) if made and len(tried) == 2 else None

    async def multi(ops: list[bytes]) -> None:
        tried.extend(ops)
        if len(tried) == 1 or not made:
            raise jute.MultiError([jute.NO_AUTH])

    monkeypatch.setattr(session, "exists", exists)
    monkeypatch.setattr(session, "multi", multi)
    if made:
        await session._make_chroot(True)
    else:
        with pytest.raises(EnvironmentFault, match="chroot /a/b could not be created: an ACL forbids it"):
            await session._make_chroot(True)
    assert tried == [jute.op_create(path, b"", jute.OPEN_ACL) for path in (b"/a", b"/a/b")]


async def test_one_server_that_listens_is_enough() -> None:
    """And none is not."""

    async def hang_up(_: object, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        one = Session(f"127.0.0.1:1,127.0.0.1:{port}", 1000, lambda _: None, None)
        assert await one._unreachable() == ""
    none = Session("127.0.0.1:1,127.0.0.1:2", 1000, lambda _: None, None)
    assert await none._unreachable() == "the connection is refused"


async def test_an_unknown_host_is_named_unless_names_cannot_be_looked_up_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errno = socket.EAI_NONAME

    async def unknown(*_: object) -> None:
        raise socket.gaierror(errno, "Name or service not known")

    monkeypatch.setattr(asyncio, "open_connection", unknown)
    session = Session("zk.local:2181", 1000, lambda _: None, None)
    assert await session._unreachable() == "zk.local: Name or service not known"
    errno = socket.EAI_AGAIN
    assert await session._unreachable() == ""


async def test_a_daemon_waits_and_then_says_why_no_server_answers() -> None:
    session = Session("127.0.0.1:1", 1000, lambda _: None, None)
    try:
        with pytest.raises(EnvironmentFault, match="the connection is refused"):
            await session.start(0.1)
    finally:
        await session.close()


async def test_a_server_without_a_majority_is_named() -> None:
    """As a server of 3.9.5 answers while the others are stopped."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.read(4) == b"srvr":
            writer.write(b"This ZooKeeper instance is not currently serving requests\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        session = Session(f"127.0.0.1:1,{address}", 1000, lambda _: None, None)
        try:
            with pytest.raises(EnvironmentFault, match=f"not serving requests, .* majority: {address}"):
                await session.start(0.1)
        finally:
            await session.close()
        encrypted = ZooKeeperAccess(contexts=ssl.create_default_context)
        session = Session(address, 1000, lambda _: None, None, access=encrypted)
        assert await session._without_majority() == "", "it was asked in clear"


async def test_a_tool_calls_servers_that_may_listen_only_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each look at the clock takes 0.4 s."""
    now_s, called = itertools.count(0, 0.4), list[None]()
    session = Session("127.0.0.1:1", 1000, lambda _: None, None)

    async def unreachable() -> str:
        called.append(None)
        return ""

    monkeypatch.setattr(session_module, "REFUSED_AFTER_S", 4)
    monkeypatch.setattr(session_module, "time", SimpleNamespace(monotonic=lambda: next(now_s)))
    monkeypatch.setattr(session, "_unreachable", unreachable)
    try:
        with pytest.raises(EnvironmentFault, match="answered within 10 s"):
            await session.start(10, create_chroot=False)
    finally:
        await session.close()
    assert len(called) == 3, "the last one says why"


async def test_a_tool_does_not_wait_for_servers_that_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "REFUSED_AFTER_S", 0.01)
    session = Session("127.0.0.1:1", 1000, lambda _: None, None)
    try:
        with pytest.raises(EnvironmentFault, match=r"127\.0\.0\.1:1"):
            await asyncio.wait_for(session.start(600, create_chroot=False), 60)
    finally:
        await session.close()
