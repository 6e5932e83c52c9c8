"""What changes between two requests of a read is in its answer, or is told of: whichever two they are.

Each read is done again and again on the ensemble in memory; another client changes what is read right before its first
request arrives at the server, right after, and so on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from prometheus_client import CollectorRegistry

from controller.core import effects, znode_paths
from controller.core.model import LeaderAndIsr, Partition, Topic
from controller.runtime.election import controller_election, registration
from controller.runtime.election.claimant import _resignation
from controller.runtime.election.controller_election import Candidate, Found, Won
from controller.runtime.observe.metrics import StandbyMetrics
from controller.runtime.zookeeper import codecs
from controller.runtime.zookeeper import session as session_module
from controller.runtime.zookeeper.session import Session
from controller.runtime.zookeeper.state_mirror import StateMirror, Warmth
from proto.incarnations import Incarnation
from tests.provers.sim.environment import loop
from tests.provers.sim.zookeeper.ensemble import Ensemble
from tests.provers.sim.zookeeper.hands import Hands
from tests.provers.sim.zookeeper.messages import Operation, Ping
from tests.provers.sim.zookeeper.network import Channel, Network
from tests.provers.sim.zookeeper.session import sessions_on
from tests.runtime.zookeeper.test_store import StoreHarness
from tests.support.runtime.sessions import opened, until

CHROOT = "/test"
#: More than any read takes.
REQUESTS_MAX = 30
#: In which every event that is on its way arrives, virtual seconds.
SETTLED_S = 1.0
ME = Candidate(1, "h:1", Incarnation("me"), "here")
TOPIC = b'{"version":1,"partitions":{"0":[1]}}'
EDITED = b'{"version":1,"partitions":{"0":[2]}}'
BROKER = b'{"version":4,"host":"h","port":9}'
MOVED = b'{"version":4,"host":"elsewhere","port":9}'
NOTE = b'{"version":1,"partitions":[]}'


@dataclass
class Place:
    """A session whose requests are counted. ``told``: paths of which watches told it."""

    network: Network
    session: Session
    zk: Hands
    told: list[str] = field(default_factory=list)
    requests: int = 0

    def heard(self, _kind: str, path: str) -> None:
        self.told.append(path)

    def change_at(self, number: int, change: Callable[[], object], *, after: bool) -> None:
        """Do this right before that request arrives at the server, or right after."""
        deliver = self.network.deliver
        self.requests = 0

        def delivering(channel: Channel, op: Operation) -> None:
            now = self.requests == number and not isinstance(op, Ping)
            self.requests += not isinstance(op, Ping)
            if now and not after:
                change()
            deliver(channel, op)
            if now and after:
                change()

        self.network.deliver = delivering  # type: ignore[method-assign]


@asynccontextmanager
async def place() -> AsyncIterator[Place]:
    network = Network(Ensemble())
    with sessions_on(network):
        async with opened(f"one:1{CHROOT}") as (session, _):
            yield Place(network, session, Hands(network, CHROOT))


Prepare = Callable[[Hands], object]
Look = Callable[[Place], Awaitable[object]]


def in_the_answer_or_told(prepare: Prepare, look: Look, change: Prepare) -> int:
    """How many requests it takes. ``look`` reads and arms; done once more at the end, it says what is so now."""

    async def changed_at(number: int, after: bool) -> bool:
        """Whether it has so many requests."""
        async with place() as here:
            for path in (*znode_paths.PERSISTENT, "/admin", "/config"):
                here.zk.ensure_path(path)
            prepare(here.zk)
            await here.session.ping()
            here.change_at(number, lambda: change(here.zk), after=after)
            found = await look(here)
            if here.requests <= number:
                return False
            await asyncio.sleep(SETTLED_S)
            told = list(here.told)
            assert told or found == await look(here), (
                f"changed {('before', 'after')[after]} request {number}, untold"
            )
            return True

    for number in range(REQUESTS_MAX):
        if not all(loop.run(changed_at(number, after)) for after in (False, True)):
            return number
    raise AssertionError("it has no end")


# --- the store -----------------------------------------------------------------------------------------------


def of_the_store(query: effects.AnyQuery) -> Look:
    async def look(here: Place) -> object:
        harness = StoreHarness(here.session)
        harness.store._enqueue = lambda event: here.told.append(str(event))
        return await harness.read(query)

    return look


def topic(zk: Hands) -> None:
    zk.create("/brokers/topics/t", TOPIC)


def broker(zk: Hands) -> None:
    zk.create("/brokers/ids/1", BROKER)


def nothing(_: Hands) -> None: ...


REASSIGN = znode_paths.REASSIGN_PARTITIONS
READS: dict[str, tuple[effects.AnyQuery, Prepare, Prepare]] = {
    "topic changed": (effects.ReadTopics(["t"]), topic, lambda zk: zk.set("/brokers/topics/t", EDITED)),
    "topic deleted": (effects.ReadTopics(["t"]), topic, lambda zk: zk.delete("/brokers/topics/t")),
    "topic created": (effects.ReadTopicNames(), nothing, topic),
    "broker changed": (effects.ReadBrokers(), broker, lambda zk: zk.set("/brokers/ids/1", MOVED)),
    "broker gone": (effects.ReadBrokers(), broker, lambda zk: zk.delete("/brokers/ids/1")),
    "broker came": (effects.ReadBrokers(), nothing, broker),
    "deletion asked for": (
        effects.ReadPendingDeletions(),
        nothing,
        lambda zk: zk.create("/admin/delete_topics/t"),
    ),
    "moves asked for": (effects.ReadReassignment(), nothing, lambda zk: zk.create(REASSIGN, NOTE)),
    "moves asked for anew": (
        effects.ReadReassignment(),
        lambda zk: zk.create(REASSIGN, b"{}"),
        lambda zk: zk.set(REASSIGN, NOTE),
    ),
    "moves taken back": (
        effects.ReadReassignment(),
        lambda zk: zk.create(REASSIGN, b"{}"),
        lambda zk: zk.delete(REASSIGN),
    ),
    "notification": (
        effects.ReadIsrNotifications(),
        nothing,
        lambda zk: zk.create(f"{znode_paths.ISR_NOTIFICATIONS}/isr_change_1", NOTE),
    ),
    "parent gone": (
        effects.ReadPendingDeletions(),
        lambda zk: zk.delete("/admin/delete_topics"),
        lambda zk: zk.create("/admin/delete_topics/t", makepath=True),
    ),
}


@pytest.mark.parametrize("name", READS)
def test_of_the_store(name: str) -> None:
    query, prepare, change = READS[name]
    assert in_the_answer_or_told(prepare, of_the_store(query), change) > 0


def test_of_many_topics_that_take_several_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of a later read must not hide what changed since an earlier one."""
    monkeypatch.setattr(session_module, "BULK_PATHS", 1)

    def two(zk: Hands) -> None:
        topic(zk)
        zk.create("/brokers/topics/u", TOPIC)

    def change(zk: Hands) -> None:
        zk.set("/brokers/topics/t", EDITED)
        zk.create("/brokers/topics/another", TOPIC)

    assert in_the_answer_or_told(two, of_the_store(effects.ReadTopics(["t", "u"])), change) > 1


# --- who leads -----------------------------------------------------------------------------------------------


def leads(id_: int) -> Prepare:
    def prepare(zk: Hands) -> None:
        zk.create(znode_paths.CONTROLLER_EPOCH, b"1")
        zk.create(znode_paths.CONTROLLER, codecs.encode_controller(id_, f"h:{id_}"))
        zk.create(znode_paths.candidate_path(id_), b"{}", ephemeral=True)

    return prepare


async def _elected(here: Place) -> object:
    found = await controller_election.elect(here.session, ME, here.heard)
    return Won if isinstance(found, Won) else found


async def _ours(here: Place) -> object:
    return await controller_election.still_ours(here.session, Won(1, 0, 0), here.heard)


async def _registered(here: Place) -> object:
    stat = await here.session.exists(znode_paths.candidate_path(2))
    # It counts as this session's own.
    here.session._id = stat.owner if stat is not None else here.session._id
    return await registration.is_registered(here.session, 2, here.heard)


async def _held(here: Place) -> Found:
    return await controller_election.find_holder(here.session, here.heard)


async def _looked(here: Place) -> object:
    return await controller_election.look(here.session, here.heard)


async def _resigned(here: Place) -> object:
    return await _resignation(here.session, here.heard)


LEADERS: dict[str, tuple[Prepare, Look, Prepare]] = {
    "election, the leader goes": (leads(2), _elected, lambda zk: zk.delete(znode_paths.CONTROLLER)),
    "standby, the leader goes": (leads(2), _looked, lambda zk: zk.delete(znode_paths.CONTROLLER)),
    "term, another leads": (leads(1), _ours, lambda zk: zk.delete(znode_paths.CONTROLLER)),
    "holder goes": (leads(2), _held, lambda zk: zk.delete(znode_paths.CONTROLLER)),
    "holder's registration goes": (leads(2), _held, lambda zk: zk.delete(znode_paths.candidate_path(2))),
    "own registration goes": (leads(2), _registered, lambda zk: zk.delete(znode_paths.candidate_path(2))),
    "resigned": (nothing, _resigned, lambda zk: zk.create(znode_paths.RESIGNED, b"{}")),
}


@pytest.mark.parametrize("name", LEADERS)
def test_of_who_leads(name: str) -> None:
    assert in_the_answer_or_told(*LEADERS[name]) > 0


# --- a standby's memory --------------------------------------------------------------------------------------

STATE = znode_paths.state_path("t", 0)


def state(epoch: int) -> bytes:
    return codecs.encode_state(LeaderAndIsr(1, epoch, (1,), epoch, 1))


def topic_with_state(zk: Hands) -> None:
    zk.ensure_path(znode_paths.TOPICS)
    zk.create(
        "/brokers/topics/t",
        b'{"version":3,"topic_id":"%s","partitions":{"0":[1]},'
        b'"adding_replicas":{},"removing_replicas":{}}' % (b"A" * 22),
    )
    zk.create(STATE, state(0), makepath=True)


async def _remembered(here: Place) -> tuple[object, object, int]:
    """Replicas and leader epoch, as the failover gets them from memory; None: it is to read them. And the number of the
    sync: whoever was elected before it writes nothing after it."""
    mirror = StateMirror(here.session, StandbyMetrics(CollectorRegistry()))
    reading = asyncio.create_task(mirror.run())
    await until(lambda: mirror.warmth is Warmth.WARM, "all to be read")
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    sync = here.requests
    assert await mirror.settle()
    prepared = mirror.hand_over(here.heard)
    assert prepared is not None
    held = prepared.partition("t", 0)
    (left,) = mirror.take([Partition(Topic("t"), 0, (1,))])
    known = left if held is None else held.leadership
    await mirror.end()
    return held and held.replicas, known and known.leader_epoch, sync


@pytest.mark.parametrize("what", ["state", "topic"])
def test_of_a_standby_s_memory(what: str) -> None:
    edited = (
        b'{"version":3,"topic_id":"%s","partitions":{"0":[2]},"adding_replicas":{},"removing_replicas":{}}'
    )

    def change(zk: Hands) -> None:
        zk.set(*((STATE, state(7)) if what == "state" else ("/brokers/topics/t", edited % (b"A" * 22))))

    async def changed_at(number: int, after: bool) -> bool:
        async with place() as here:
            topic_with_state(here.zk)
            await here.session.ping()
            here.change_at(number, lambda: change(here.zk), after=after)
            replicas, epoch, sync = await _remembered(here)
            if number > (sync - after if what == "state" else here.requests - 1):
                return False
            await asyncio.sleep(SETTLED_S)
            if what == "state":
                assert epoch in (7, None)
            else:
                assert replicas in ((2,), None) or here.told
            return True

    changed = 0
    while all(loop.run(changed_at(changed, after)) for after in (True, False)):
        changed += 1
    assert changed > 4
