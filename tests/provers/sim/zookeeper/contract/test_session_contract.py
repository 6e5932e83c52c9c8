"""Our Session behaves the same on the real server and on the one in memory in virtual time: one story, told of both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count
from typing import Protocol

import pytest

from controller.core import effects, znode_paths
from controller.core.effects import Commit, Committed, CreateState, ReadStates, SetState
from controller.errors import FencedError, SessionLostError
from controller.runtime.election import controller_election
from controller.runtime.election.controller_election import Candidate, Lost, Won
from controller.runtime.zookeeper import jute
from controller.runtime.zookeeper.session import (
    BadVersionError,
    ConnectionLossError,
    ConnectionState,
    NodeExistsError,
    NoNodeError,
    Session,
)
from controller.runtime.zookeeper.store import Store
from proto.incarnations import Incarnation
from tests.provers.sim.environment import loop
from tests.provers.sim.zookeeper import wire
from tests.provers.sim.zookeeper.ensemble import Ensemble, Options
from tests.provers.sim.zookeeper.messages import Create, Multi
from tests.provers.sim.zookeeper.network import Loss, Network
from tests.provers.sim.zookeeper.session import sessions_on
from tests.runtime.zookeeper.test_store import StoreHarness, partitions, state
from tests.support.runtime.proxy import Proxy, opcode_replaced, proxied
from tests.support.runtime.sessions import client_id, expire, opened, until

TIMEOUT_MS = 20_000
UNKNOWN_OPCODE = 77

_chroots = count(1)


class Backend(Protocol):
    """Where a story takes place."""

    async def open(self, name: str) -> tuple[Session, list[ConnectionState]]: ...

    def lose_answer(self, name: str, kind: type) -> None: ...

    def drop(self, name: str) -> None: ...

    def expire(self, session: Session) -> None: ...


Story = Callable[[Backend], Awaitable[None]]


class RealBackend:
    """Each client behind a proxy of its own."""

    def __init__(self, stack: AsyncExitStack, port: int, *, multi_read: bool) -> None:
        self._stack, self._multi_read = stack, multi_read
        self._connect = f"127.0.0.1:{port}/session-{next(_chroots)}"
        self._proxies: dict[str, Proxy] = {}

    async def open(self, name: str) -> tuple[Session, list[ConnectionState]]:
        rewrite = None if self._multi_read else opcode_replaced(jute.OP_MULTI_READ, UNKNOWN_OPCODE)
        proxy = self._proxies[name] = await self._stack.enter_async_context(proxied(self._connect, rewrite))
        return await self._stack.enter_async_context(opened(proxy.connect, TIMEOUT_MS))

    def lose_answer(self, name: str, kind: type) -> None:
        self._proxies[name].lose_answers.append({Create: wire.CREATE, Multi: wire.MULTI}[kind])

    def drop(self, name: str) -> None:
        self._proxies[name].drop()

    def expire(self, session: Session) -> None:
        expire(self._connect, client_id(session))


class MemoryBackend:
    def __init__(self, stack: AsyncExitStack, *, multi_read: bool) -> None:
        self._stack = stack
        self.network = Network(Ensemble(options=Options(multi_read=multi_read)))
        stack.enter_context(sessions_on(self.network))

    async def open(self, name: str) -> tuple[Session, list[ConnectionState]]:
        return await self._stack.enter_async_context(opened(f"{name}:1/session", TIMEOUT_MS))

    def lose_answer(self, name: str, kind: type) -> None:
        self.network.lose(name, Loss.REPLY, kind)

    def drop(self, name: str) -> None:
        self.network.drop(name)

    def expire(self, session: Session) -> None:
        self.network.expire(session.id)


@asynccontextmanager
async def memory_backend(*, multi_read: bool = True) -> AsyncIterator[MemoryBackend]:
    async with AsyncExitStack() as stack:
        yield MemoryBackend(stack, multi_read=multi_read)


StoryRunner = Callable[..., None]


@pytest.fixture(params=[pytest.param("real", marks=pytest.mark.slow), "in memory"])
def run_story(request: pytest.FixtureRequest) -> StoryRunner:
    """Tells a story to its end in one of the worlds."""

    async def on_the_real_one(story: Story, port: int, multi_read: bool) -> None:
        async with AsyncExitStack() as stack:
            await story(RealBackend(stack, port, multi_read=multi_read))

    async def in_memory(story: Story, multi_read: bool) -> None:
        async with memory_backend(multi_read=multi_read) as backend:
            await story(backend)

    def run(story: Story, *, multi_read: bool = True) -> None:
        if request.param == "real":
            asyncio.run(on_the_real_one(story, request.getfixturevalue("real_port"), multi_read))
        else:
            loop.run(in_memory(story, multi_read))

    return run


class Fired:
    """Watch events, in the order they came."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def __call__(self, kind: str, path: str) -> None:
        self.events.append((kind, path))

    async def reach(self, number: int) -> list[tuple[str, str]]:
        await until(lambda: len(self.events) >= number, f"{number} events, not {self.events}")
        return self.events


# --- requests ------------------------------------------------------------------------------------------------


def test_single_requests(run_story: StoryRunner) -> None:
    async def story(backend: Backend) -> None:
        session, changes = await backend.open("one")
        await session.create("/a", b"1")
        await session.create("/mine", b"", ephemeral=True)
        data, stat = await session.get("/a")
        assert (data, stat.version, stat.owner) == (b"1", 0, 0)
        mine = await session.exists("/mine")
        assert mine is not None
        assert mine.owner == session.id != 0
        assert await session.exists("/none") is None
        assert sorted(await session.children("/")) == ["a", "mine"]
        await session.ensure("/deep/down")
        for wrong, error in (
            (session.create("/a", b""), NodeExistsError),
            (session.create("/none/a", b""), NoNodeError),
            (session.delete("/a", 7), BadVersionError),
            (session.delete("/none"), NoNodeError),
            (session.get("/none"), NoNodeError),
            (session.children("/none"), NoNodeError),
        ):
            with pytest.raises(error):
                await wrong
        await session.delete("/a", 0)
        assert sorted(await session.children("/")) == ["deep", "mine"]
        assert session.negotiated_ms == TIMEOUT_MS
        assert changes == [ConnectionState.CONNECTED]
        session.require_lease()

    run_story(story)


@pytest.mark.parametrize("multi_read", [True, False], ids=["multiRead", "before 3.6"])
def test_bulk_requests(run_story: StoryRunner, multi_read: bool) -> None:
    async def story(backend: Backend) -> None:
        session, _ = await backend.open("one")
        pack = session.packed_path
        await session.multi([jute.op_create(pack(f"/{n}"), str(n).encode() * n) for n in range(5)])
        found = await session.bulk_get([f"/{n}" for n in (3, 9, 0, 1)])
        assert [node.data if isinstance(node, jute.Node) else node for node in found] == [
            b"333",
            jute.NO_NODE,
            b"",
            b"1",
        ]
        assert session.multi_read is multi_read
        numbered = jute.op_create_sequential(pack("/n-"), b"")
        await session.multi([numbered, jute.op_delete(pack("/4"), 0), numbered])
        assert sorted(await session.children("/")) == ["0", "1", "2", "3", "n-0000000005", "n-0000000006"]
        with pytest.raises(jute.MultiError) as raised:
            await session.multi(
                [jute.op_set(pack("/1"), b"", 0), jute.op_check(pack("/1"), 5), jute.op_delete(pack("/1"), 1)]
            )
        assert raised.value.codes == (jute.OK, jute.BAD_VERSION, jute.RUNTIME_INCONSISTENCY)

    run_story(story, multi_read=multi_read)


# --- watches -------------------------------------------------------------------------------------------------


def test_watches(run_story: StoryRunner) -> None:
    async def story(backend: Backend) -> None:
        session, _ = await backend.open("watching")
        other, _ = await backend.open("changing")
        fired, armed = Fired(), Fired()
        assert await session.exists("/a", fired) is None
        await session.children("/", fired)
        await other.create("/a", b"1")
        assert await fired.reach(2) == [("CREATED", "/a"), ("CHILD", "/")]
        await other.create("/b", b"1")
        await session.get("/b")  # the last answer that it has seen
        await session.arm_data_watches(["/a", "/b"], armed)
        for path in ("/a", "/a", "/b"):
            await other.multi([jute.op_set(other.packed_path(path), b"2", -1)])
        assert await armed.reach(2) == [("CHANGED", "/a"), ("CHANGED", "/b")]
        await session.ping()  # or "/a" would have changed since the last answer
        await session.arm_data_watches(["/a", "/none"], armed)
        assert await armed.reach(3) == [("CHANGED", "/a"), ("CHANGED", "/b"), ("DELETED", "/none")]
        await other.delete("/a")
        assert (await armed.reach(4))[3:] == [("DELETED", "/a")]

    run_story(story)


def test_watches_are_gone_after_the_connection_was(run_story: StoryRunner) -> None:
    async def story(backend: Backend) -> None:
        session, changes = await backend.open("watching")
        other, _ = await backend.open("changing")
        fired = Fired()
        await session.children("/", fired)
        backend.drop("watching")
        await until(
            lambda: changes[1:] == [ConnectionState.SUSPENDED, ConnectionState.CONNECTED], "connected again"
        )
        await other.create("/a", b"")
        await session.ping()
        assert fired.events == []
        assert await session.children("/", fired) == ["a"]
        await other.create("/b", b"")
        assert await fired.reach(1) == [("CHILD", "/")]

    run_story(story)


# --- losses --------------------------------------------------------------------------------------------------


def test_a_lost_answer_says_nothing_about_the_request(run_story: StoryRunner) -> None:
    async def story(backend: Backend) -> None:
        session, changes = await backend.open("one")
        backend.lose_answer("one", Create)
        with pytest.raises(ConnectionLossError):
            await session.create("/a", b"")
        await until(
            lambda: changes[1:] == [ConnectionState.SUSPENDED, ConnectionState.CONNECTED], "connected again"
        )
        assert await session.exists("/a") is not None
        assert not session.over

    run_story(story)


def test_an_election_whose_answer_was_lost_is_settled(run_story: StoryRunner) -> None:
    async def story(backend: Backend) -> None:
        session, changes = await backend.open("one")
        other, _ = await backend.open("two")
        fired = Fired()
        backend.lose_answer("one", Multi)
        try:
            won = await controller_election.elect(session, Candidate(1, "h:1", Incarnation("me")), fired)
        except ConnectionLossError:
            # It had not been connected again when it wanted to know: the daemon asks again then.
            await until(lambda: changes[-1] is ConnectionState.CONNECTED, "connected again")
            won = await controller_election.elect(session, Candidate(1, "h:1", Incarnation("me")), fired)
            assert won == Won(2, 2)
        else:
            assert won == Won(1, 1)
        assert await controller_election.elect(other, Candidate(2, "h:2", Incarnation("me")), fired) == Lost(
            1, "h:1"
        )

    run_story(story)


def test_an_expired_session_is_over_and_its_ephemerals_are_gone(run_story: StoryRunner) -> None:
    async def story(backend: Backend) -> None:
        session, changes = await backend.open("one")
        other, _ = await backend.open("two")
        await session.create("/mine", b"", ephemeral=True)
        fired = Fired()
        await other.exists("/mine", fired)
        backend.expire(session)
        await until(lambda: ConnectionState.EXPIRED in changes, "expiry")
        assert session.over
        assert await fired.reach(1) == [("DELETED", "/mine")]
        for call in (session.ping(), session.create("/zombie", b""), session.bulk_get(["/"])):
            with pytest.raises(SessionLostError):
                await call
        assert await other.children("/") == []

    run_story(story)


def test_a_closed_session_s_ephemerals_go_at_once(run_story: StoryRunner) -> None:
    async def story(backend: Backend) -> None:
        session, _ = await backend.open("one")
        other, _ = await backend.open("two")
        await session.create("/mine", b"", ephemeral=True)
        await session.close()
        assert await other.exists("/mine") is None
        await session.close()
        with pytest.raises(SessionLostError):
            await session.ping()

    run_story(story)


# --- the store -----------------------------------------------------------------------------------------------


def test_the_store_commits_reads_and_is_fenced(run_story: StoryRunner) -> None:
    async def story(backend: Backend) -> None:
        session, _ = await backend.open("one")
        other, _ = await backend.open("two")
        harness = await StoreHarness(session).prepare()
        await session.create(znode_paths.topic_path("t"), b"{}")
        made = partitions("t", 3)
        assert await harness.commit(*(CreateState(p, state()) for p in made)) == Committed(1)
        backend.lose_answer("one", Multi)
        outcome = await harness.commit(*(SetState(p, state(1, 2)) for p in made))
        assert isinstance(outcome, effects.Unconfirmed)
        assert await harness.read(ReadStates(made)) == [state(1, 2)] * 3
        newer = Store(other, 2, harness.events.append)
        await other.multi([jute.op_set(other.packed_path(znode_paths.CONTROLLER_EPOCH), b"2", 1)])
        with pytest.raises(FencedError):
            await harness.commit(SetState(made[0], state(2)))
        assert await newer.perform(Commit(1, [SetState(made[0], state(2))])) == Committed(1)

    run_story(story)


# --- only in memory: what takes long, or must fall at one moment ---------------------------------------------


def in_memory(story: Callable[[MemoryBackend], Awaitable[None]]) -> None:
    async def run() -> None:
        async with memory_backend() as backend:
            await story(backend)

    loop.run(run())


def test_silence_is_noticed_before_the_session_can_have_ended_and_then_it_has() -> None:
    async def story(backend: MemoryBackend) -> None:
        network = backend.network
        session, changes = await backend.open("one")
        await session.create("/mine", b"", ephemeral=True)
        began_s = network.now_s
        network.block("one", [0])
        await until(lambda: session.lease_remaining_s() < 0, "the lease's end")
        lease_s = network.now_s - began_s
        await until(lambda: ConnectionState.SUSPENDED in changes, "silence noticed")
        assert lease_s == pytest.approx(TIMEOUT_MS / 1000 * 2 / 3, abs=0.02)
        assert network.ensemble.sessions
        await until(lambda: not network.ensemble.sessions, "the session's end")
        assert network.now_s - began_s >= TIMEOUT_MS / 1000
        assert ConnectionState.EXPIRED not in changes
        network.unblock("one")
        await until(lambda: ConnectionState.EXPIRED in changes, "expiry")

    in_memory(story)


def test_an_idle_session_lives_on_pings_and_its_lease_runs_out_all_the_same() -> None:
    """kazoo pings from a thread of its own: that says nothing of our loop (docs/adr/0005)."""

    async def story(backend: MemoryBackend) -> None:
        session, changes = await backend.open("one")
        await asyncio.sleep(1000)
        assert session.id in backend.network.ensemble.sessions
        assert changes == [ConnectionState.CONNECTED]
        assert session.lease_remaining_s() < 0
        await session.ping()
        assert session.lease_remaining_s() > 13

    in_memory(story)


def test_a_request_that_never_arrived() -> None:
    async def story(backend: MemoryBackend) -> None:
        session, _ = await backend.open("one")
        backend.network.lose("one", Loss.REQUEST, Create)
        with pytest.raises(ConnectionLossError):
            await session.create("/a", b"")
        await asyncio.sleep(1)
        assert await session.exists("/a") is None

    in_memory(story)


def test_the_lease_counts_from_when_the_request_was_sent() -> None:
    async def story(backend: MemoryBackend) -> None:
        session, _ = await backend.open("one")
        backend.network.delay_s = lambda client: 2.0
        began_s = backend.network.now_s
        await session.ping()
        assert backend.network.now_s - began_s == pytest.approx(4)
        assert session.lease_remaining_s() == pytest.approx(TIMEOUT_MS / 1000 * 2 / 3 - 4, abs=0.01)

    in_memory(story)


def test_the_lease_counts_from_when_the_connection_was_asked_for() -> None:
    async def run() -> None:
        network = Network(Ensemble(), delay_s=lambda client: 2.0)
        with sessions_on(network):
            async with opened("one:1", TIMEOUT_MS) as (session, _):
                assert session.lease_remaining_s() == pytest.approx(TIMEOUT_MS / 1000 * 2 / 3 - 4, abs=0.05)

    loop.run(run())


#: What a server answers from its own memory, also when it has not heard of its leader for long: name and call.
READS: dict[str, Callable[[Session], Awaitable[object]]] = {
    "get": lambda session: session.get("/a", lambda *_: None),
    "exists": lambda session: session.exists("/a"),
    "exists of nothing": lambda session: session.exists("/none"),
    "children": lambda session: session.children("/"),
    "bulk_get": lambda session: session.bulk_get(["/a", "/none"]),
    "arm_data_watches": lambda session: session.arm_data_watches(["/a"], lambda *_: None),
    "watch_tree": lambda session: session.watch_tree("/"),
}
#: What only the leader can answer.
QUORUM: dict[str, Callable[[Session], Awaitable[object]]] = {
    "create": lambda session: session.create("/new", b""),
    "delete": lambda session: session.delete("/a"),
    "give_acl": lambda session: session.give_acl("/a"),
    "ping": lambda session: session.ping(),
    "multi": lambda session: session.multi([session.op_create("/new", b"")]),
    "register_controller": lambda session: session.register_controller("/new", b"", "/a", 1, -1),
}
#: Those that the leader refuses: it has been asked all the same.
REFUSED: dict[str, Callable[[Session], Awaitable[object]]] = {
    "create": lambda session: session.create("/a", b""),
    "delete": lambda session: session.delete("/none"),
    "delete of another version": lambda session: session.delete("/a", 7),
}


def lease_after(call: Callable[[Session], Awaitable[object]], *, cut_off: bool) -> tuple[float, float]:
    """What is left of the lease before and after a request on a follower, which hears of its leader or does not."""

    async def run() -> tuple[float, float]:
        network = Network(Ensemble(3))
        with sessions_on(network):
            async with opened("one:2", TIMEOUT_MS) as (session, _):
                await session.create("/a", b"")
                await asyncio.sleep(1)
                if cut_off:
                    network.ensemble.cut_off(1)
                before = session.lease_remaining_s()
                with suppress(NoNodeError, NodeExistsError, BadVersionError):
                    await call(session)
                after = session.lease_remaining_s()
                network.heal_server(1)
                return before, after

    return loop.run(run())


@pytest.mark.parametrize("name", READS)
def test_no_follower_renews_the_lease_from_its_own_memory(name: str) -> None:
    before, after = lease_after(READS[name], cut_off=True)
    assert after < before


def test_a_follower_that_knows_of_no_such_znode_renews_no_lease() -> None:
    before, after = lease_after(lambda session: session.get("/none"), cut_off=True)
    assert after < before


@pytest.mark.parametrize("name", QUORUM)
def test_whatever_the_leader_answers_renews_the_lease(name: str) -> None:
    before, after = lease_after(QUORUM[name], cut_off=False)
    assert after > before


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_of_the_leader_renews_the_lease_too(name: str) -> None:
    before, after = lease_after(REFUSED[name], cut_off=False)
    assert after > before


def test_the_client_goes_on_at_another_server() -> None:
    async def run() -> None:
        network = Network(Ensemble(3))
        with sessions_on(network):
            async with opened("one:1,one:2,one:3", TIMEOUT_MS) as (session, changes):
                await session.create("/mine", b"", ephemeral=True)
                used = network.channels[0].connection.server
                network.block("one", [used])
                network.drop("one")
                await until(
                    lambda: changes[-1] is ConnectionState.CONNECTED and len(changes) == 3, "another server"
                )
                assert network.channels[0].connection.server != used
                mine = await session.exists("/mine")
                assert mine is not None
                assert mine.owner == session.id

    loop.run(run())


def test_the_same_story_takes_the_same_time() -> None:
    async def run() -> list[float]:
        moments = []
        async with memory_backend() as backend:
            session, changes = await backend.open("one")
            for n in range(20):
                if n % 5 == 0:
                    backend.drop("one")
                    await until(lambda: len(changes) == 3 + 2 * (n // 5), "connected again")  # noqa: B023
                await session.create(f"/{n}", b"")
                moments.append(backend.network.now_s)
        return moments

    assert loop.run(run()) == loop.run(run())


def test_what_can_never_come_is_said() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    with pytest.raises(loop.StalledError):
        loop.run(wait())
