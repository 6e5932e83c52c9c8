"""Elections, claims and successions at moments that a real server does not offer: in memory, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from controller.core import znode_paths
from controller.core.cluster import term_history as history
from controller.core.cluster.quarantine import Quarantine, SubjectKind, Suspect
from controller.core.cluster.term_history import TermRecord
from controller.errors import DuplicateIdError
from controller.runtime import lease, quarantine
from controller.runtime.config import Settings
from controller.runtime.election import claimant as claimant_module
from controller.runtime.election import controller_election, registration, succession, term_history
from controller.runtime.election.claimant import Claimant, OnChange
from controller.runtime.election.controller_election import Lost, Won
from controller.runtime.election.succession import Succession
from controller.runtime.election.takeover import Held
from controller.runtime.election.term_history import Patience
from controller.runtime.observe.metrics import ZooKeeperMetrics
from controller.runtime.zookeeper import codecs, jute, single_codecs
from controller.runtime.zookeeper.session import ConnectionLossError, Session, Stat
from proto.zookeeper_access import OPEN_ACCESS, ZooKeeperAccess
from tests.provers.sim.environment import loop
from tests.provers.sim.zookeeper.contract.in_memory import CONNECT, a_session, told_in
from tests.provers.sim.zookeeper.hands import Hands
from tests.provers.sim.zookeeper.messages import Get, Operation, Sync
from tests.provers.sim.zookeeper.network import Channel, Network
from tests.runtime.election.test_claimant import ID, ME, attempt, claimant
from tests.runtime.election.test_controller_election import Watch, elect


@asynccontextmanager
async def place() -> AsyncIterator[tuple[Network, Session, Hands]]:
    with pytest.MonkeyPatch.context() as patch:
        async with a_session() as (network, session, zk):
            for module in (succession, term_history):
                patch.setattr(module, "time", network.clock)
            for path in znode_paths.PERSISTENT:
                zk.ensure_path(path)
            yield network, session, zk


told = told_in(place, "network", "session", "zk")


def heard(_kind: str, _path: str) -> None: ...


# --- elections -----------------------------------------------------------------------------------------------


@told
async def test_another_s_election_of_the_same_epoch_is_not_ours(
    session: Session, zk: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def overtaken(*_args: object) -> int:
        zk.create(znode_paths.CONTROLLER, codecs.encode_controller(7, "h:7"), ephemeral=True)
        zk.set(znode_paths.CONTROLLER_EPOCH, b"1")
        raise ConnectionLossError

    monkeypatch.setattr(session, "register_controller", overtaken)
    assert await elect(session) == Lost(7, "h:7")


@told
async def test_an_epoch_that_another_has_raised_is_left_alone(session: Session, zk: Hands) -> None:
    won = await elect(session)
    assert isinstance(won, Won)
    zk.set(znode_paths.CONTROLLER_EPOCH, b"2")
    await controller_election.raise_epoch(session, won, 50)
    assert zk.get(znode_paths.CONTROLLER_EPOCH)[0] == b"2"


@told
async def test_a_later_epoch_is_not_this_term_s(session: Session, zk: Hands) -> None:
    won = await elect(session)
    assert isinstance(won, Won)
    assert await controller_election.still_ours(session, won, Watch())
    zk.set(znode_paths.CONTROLLER_EPOCH, b"2")
    assert not await controller_election.still_ours(session, won, Watch())


@told
async def test_the_same_unreadable_controller_is_logged_once_in_a_while(
    session: Session, zk: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_election, "_reported", (None, 0.0))
    zk.create(znode_paths.CONTROLLER, b"junk")
    with capture_logs() as logs:
        for _n in range(3):
            await asyncio.sleep(1)
            await controller_election.look(session, heard)
    assert [line["event"] for line in logs] == ["malformed_znode"]


@told
async def test_an_unreadable_controller_is_logged_again_after_a_while(
    network: Network, session: Session, zk: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_election, "_reported", (None, 0.0))
    monkeypatch.setattr(controller_election, "time", network.clock)
    zk.create(znode_paths.CONTROLLER, b"junk")
    with capture_logs() as logs:
        for pause_s in (1, controller_election.REPORT_EVERY_S - 10, 20):
            assert (await controller_election.find_holder(session, heard)).held is Held.UNREADABLE
            await asyncio.sleep(pause_s)
    assert [line["path"] for line in logs] == [znode_paths.CONTROLLER]
    with capture_logs() as logs:
        await controller_election.find_holder(session, heard)
    assert [line["path"] for line in logs] == [znode_paths.CONTROLLER]


@pytest.mark.parametrize("owned", [True, False])
@told
async def test_a_registration_that_goes_is_put_back_unless_another_has_it(
    session: Session, zk: Hands, owned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = znode_paths.candidate_path(ID)
    kept = registration.Registration(session, ME, "h:2")
    await kept.create()
    keeping = asyncio.create_task(kept.keep())
    await asyncio.sleep(1)
    zk.delete(path)
    if not owned:
        stranger = codecs.encode_standby(ID, "h:3", "h:4", "elsewhere", "another")
        zk.create(path, stranger, ephemeral=True)
        with pytest.raises(DuplicateIdError, match="elsewhere"):
            await keeping
        return
    await asyncio.sleep(1)
    assert await registration.is_registered(session, ID, heard)
    kept.withdrawn = True
    zk.delete(path)
    await asyncio.sleep(1)
    assert zk.exists(path) is None, "it was withdrawn"
    keeping.cancel()


# --- claims --------------------------------------------------------------------------------------------------


@told
async def test_a_claim_in_between_is_noticed_by_its_epoch(
    network: Network, session: Session, zk: Hands
) -> None:
    deliver = network.deliver

    def changing(channel: Channel, op: Operation) -> None:
        deliver(channel, op)
        if isinstance(op, Get) and op.path.endswith(znode_paths.CONTROLLER):
            zk.set(znode_paths.CONTROLLER_EPOCH, b"2")

    await registration.register(session, ME, "h:2")
    zk.create(znode_paths.CONTROLLER_EPOCH, b"1")
    zk.create(znode_paths.CONTROLLER, codecs.encode_controller(1, ""))
    network.deliver = changing  # type: ignore[method-assign]
    found = await controller_election.find_holder(session, heard)
    assert await controller_election.claim(session, None, ME, found) is None


@told
async def test_nobody_claims_whose_registration_has_gone(
    session: Session, zk: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure = session.ensure

    async def gone(path: str) -> None:
        await ensure(path)
        if zk.exists(znode_paths.candidate_path(ID)):
            zk.delete(znode_paths.candidate_path(ID))

    await registration.register(session, ME, "h:2")
    found = await controller_election.find_holder(session, heard)
    monkeypatch.setattr(session, "ensure", gone)
    assert await controller_election.claim(session, None, ME, found) is None
    assert zk.exists(znode_paths.CONTROLLER) is None


@told
async def test_only_claims_over_brokers_count_also_such_of_unknown_outcome(
    session: Session, zk: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with claimant(CONNECT, "exclusive") as claims:
        zk.create(znode_paths.CONTROLLER, codecs.encode_controller(77, "gone:1"))
        assert isinstance(await attempt(claims, session), Won)
        assert not claims.claims
        zk.delete(znode_paths.CONTROLLER)
        zk.create(znode_paths.CONTROLLER, codecs.encode_controller(1, ""))

        async def lost(*_args: object) -> None:
            raise ConnectionLossError

        monkeypatch.setattr(controller_election, "claim", lost)
        with pytest.raises(ConnectionLossError):
            await attempt(claims, session)
        assert len(claims.claims) == 1


@told
async def test_nobody_claims_over_a_resignation(session: Session, zk: Hands) -> None:
    await registration.register(session, ME, "h:2")
    zk.create(znode_paths.CONTROLLER, codecs.encode_controller(1, ""))
    found = await controller_election.find_holder(session, heard)
    zk.create(znode_paths.RESIGNED, b"{}")
    assert await controller_election.claim(session, None, ME, found) is None


@pytest.mark.parametrize("overtaken", [False, True])
@told
async def test_a_claim_whose_answer_was_lost_is_looked_for(
    network: Network, session: Session, zk: Hands, overtaken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await registration.register(session, ME, "h:2")
    found = await controller_election.find_holder(session, heard)
    multi, deliver, synced = session.multi, network.deliver, list[bool]()

    async def losing(ops: Sequence[bytes]) -> None:
        await multi(ops)
        if overtaken:
            zk.delete(znode_paths.CONTROLLER)
            zk.create(znode_paths.CONTROLLER, codecs.encode_controller(7, "h:7"))
        raise ConnectionLossError

    def noting(channel: Channel, op: Operation) -> None:
        synced.append(isinstance(op, Sync))
        deliver(channel, op)

    monkeypatch.setattr(session, "multi", losing)
    network.deliver = noting  # type: ignore[method-assign]
    claimed = await controller_election.claim(session, None, ME, found)
    assert claimed == (None if overtaken else Won(1, 1, 0))
    assert overtaken or synced[-1], "what is read next is not older than the claim"


@told
async def test_what_an_earlier_term_of_this_session_left_is_no_claim_that_landed(
    session: Session, zk: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same millisecond it says the same; only the epoch tells them apart."""
    data = codecs.encode_controller(ID, "h:1", 7, "me")
    monkeypatch.setattr(codecs, "encode_controller", lambda *_: data)
    monkeypatch.setattr(controller_election, "held_by", lambda *_: Held.THIS_SESSION)
    await registration.register(session, ME, "h:2")
    found = await controller_election.find_holder(session, heard)
    assert await controller_election.claim(session, None, ME, found) == Won(1, 1, 0)
    found = await controller_election.find_holder(session, heard)
    assert found.held is Held.THIS_SESSION

    async def lost(_: object) -> None:
        raise ConnectionLossError

    monkeypatch.setattr(session, "multi", lost)
    assert await controller_election.claim(session, None, ME, found) is None


@told
async def test_what_was_claimed_since_is_not_given_up(session: Session, zk: Hands) -> None:
    zk.create(znode_paths.CONTROLLER_EPOCH, b"1")
    zk.create(znode_paths.CONTROLLER, codecs.encode_controller(ID, "h:1"))
    found = await controller_election.find_holder(session, heard)
    zk.set(znode_paths.CONTROLLER_EPOCH, b"2")
    await controller_election.release(session, found)
    assert zk.exists(znode_paths.CONTROLLER)


@told
async def test_what_another_session_owns_is_not_this_one_s(session: Session, zk: Hands) -> None:
    won = await elect(session)
    assert isinstance(won, Won)
    zk.delete(znode_paths.CONTROLLER)
    zk.create(znode_paths.CONTROLLER, codecs.encode_controller(1, "h:1"), ephemeral=True)
    assert not await controller_election.still_ours(session, won, Watch())
    zk.create(znode_paths.candidate_path(ID), b"{}", ephemeral=True)
    assert not await registration.is_registered(session, ID, heard)


@told
async def test_a_broker_that_takes_its_id_is_heard_of(session: Session, zk: Hands) -> None:
    told_of: list[str] = []
    async with claimant(CONNECT, "exclusive") as claims:
        zk.create(znode_paths.RESIGNED, b"{}")
        await claims.attempt(session, ME, lambda _, path: told_of.append(path), {})
        zk.create(znode_paths.broker_path(ID), b"{}")
        await session.ping()
        assert znode_paths.broker_path(ID) in told_of


@told
async def test_a_broker_with_its_id_keeps_the_controller_znode(session: Session, zk: Hands) -> None:
    """It cannot be claimed by this process; it is another's all the same."""
    zk.create(znode_paths.broker_path(ID), b"{}")
    zk.create(znode_paths.CONTROLLER, codecs.encode_controller(ID, ""))
    async with claimant(CONNECT) as claims:
        assert await attempt(claims, session) == Lost(ID)
        assert claims.held is Held.NAMESAKE
    assert zk.exists(znode_paths.CONTROLLER)


@told
async def test_each_reason_not_to_claim_is_logged_once(
    network: Network, session: Session, zk: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = (
        b'{"version":5,"host":"far","port":9,"endpoints":["PLAINTEXT://far:9"],'
        b'"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"}}'
    )
    kraft = b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":7}'

    async def said(claims: Claimant) -> list[tuple[str, ...]]:
        with capture_logs() as logs:
            for _n in range(2):
                assert isinstance(await attempt(claims, session, {"": ("127.0.0.1", 1)}), Lost)
        named = ("why", "by", "broker", "next_claim_in_s", "brokers")
        return [
            (line["event"], *(str(line[name]) for name in named if name in line))
            for line in logs
            if line["event"] not in ("zookeeper", "gave_up")
        ]

    monkeypatch.setattr(claimant_module, "time", network.clock)
    async with claimant(CONNECT, "exclusive") as claims:
        zk.create(znode_paths.candidate_path(5), b"{}", ephemeral=True)
        zk.create(znode_paths.CONTROLLER, codecs.encode_controller(5, "h:5"))
        assert await said(claims) == [], "another of ours leads: there is nothing to complain of"
        zk.set(znode_paths.CONTROLLER, kraft)
        assert await said(claims) == [("cannot_claim", "a migration to KRaft is under way")]
        zk.delete(znode_paths.CONTROLLER)
        zk.create(f"{znode_paths.BROKER_IDS}/1", far)
        assert await said(claims) == [
            (
                "cannot_claim",
                "brokers on other machines cannot reach a loopback address: set kafka_advertised_host",
                "[1]",
            )
        ]
        zk.create(znode_paths.CONTROLLER, codecs.encode_controller(1, ""))
        claims.claims.append(network.clock.monotonic())
        assert await said(claims) == [("broker_is_controller", "1", "5.0")]
        claims.claims.clear()
        zk.create(
            znode_paths.RESIGNED,
            single_codecs.encode(single_codecs.RESIGNATION, single_codecs.Resignation("r", "ann", 1)),
        )
        assert await said(claims) == [("handed_back", "ann")]
        zk.create(znode_paths.broker_path(ID), b"{}")
        (found,) = await said(claims)
        assert found[1].startswith("a broker is registered with this controller's id")


@pytest.mark.parametrize(("in_s", "wait_s"), [(None, None), (-1.0, 0.0), (0.25, 0.25)])
def test_how_long_the_next_claim_is_waited_for(
    in_s: float | None, wait_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimant_module, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    claims = Claimant(Settings(), ZooKeeperMetrics(CollectorRegistry()), OPEN_ACCESS)
    claims.next_claim_at_s = None if in_s is None else 1000.0 + in_s
    assert claims.wait_s() == wait_s


@told
async def test_who_ends_takes_its_holder_session_along_and_who_hands_over_waits_for_a_claim(
    session: Session, zk: Hands
) -> None:
    async with claimant(CONNECT) as claims:
        won = await attempt(claims, session)
        assert isinstance(won, Won)
        zk.create(znode_paths.candidate_path(5), b"{}")
        loop_ = asyncio.get_running_loop()
        began_s = loop_.time()
        loop_.call_later(1, zk.delete, znode_paths.CONTROLLER)
        await claims.hand_over(session, won)
        assert loop_.time() - began_s == pytest.approx(1, abs=0.1)
        assert zk.exists(znode_paths.candidate_path(ID)) is None
        zk.delete(znode_paths.candidate_path(5))
        assert isinstance(await attempt(claims, session), Won)
        await claims.close()
        assert zk.exists(znode_paths.CONTROLLER) is None, "brokers elect at once"
        assert claims.holder is None


@told
async def test_the_holder_session_is_opened_as_the_settings_say(session: Session, zk: Hands) -> None:
    access = ZooKeeperAccess(mechanism="one of its own")
    settings = Settings(
        controller_id=ID, zookeeper=CONNECT, kafka_takeover="fallback", session_timeout_ms=22_000
    )
    claims = Claimant(settings, ZooKeeperMetrics(CollectorRegistry()), access)
    assert isinstance(await attempt(claims, session), Won)
    assert claims.holder is not None
    assert (claims.holder.negotiated_ms, claims.main_timeout_ms) == (22_000, 11_000)
    assert claims.holder._access is access
    await claims.holder.close()


@pytest.mark.parametrize("data", [b"junk", b"{}"])
@told
async def test_a_resignation_that_cannot_be_read_is_one_all_the_same(
    session: Session, zk: Hands, data: bytes
) -> None:
    async with claimant(CONNECT, "exclusive") as claims:
        zk.create(znode_paths.RESIGNED, data)
        assert await attempt(claims, session) == Lost(-1)
        assert claims.resignation is not None


@told
async def test_it_is_no_standby_of_its_own(session: Session, zk: Hands) -> None:
    async with claimant(CONNECT) as claims:
        await registration.register(session, ME, "h:2")
        assert await claims.standbys(session) == []
        zk.create(znode_paths.candidate_path(5))
        assert await claims.standbys(session) == ["5"]


class Looks:
    """A session on which ``/controller`` belongs to 5 for two looks; each look and list may be followed by a change."""

    negotiated_ms = 4000

    def __init__(
        self, czxids: Sequence[int | None], changes: Sequence[bool], standbys: Sequence[str]
    ) -> None:
        self.czxids, self.changes, self.standbys = list(czxids), list(changes), list(standbys)
        self.count = 0

    async def exists(self, _path: str, on_change: OnChange) -> Stat | None:
        self.count += 1
        if self.changes.pop(0):
            on_change("CHANGED", "")
        czxid = self.czxids.pop(0)
        return None if czxid is None else Stat(0, czxid, 5)

    async def children(self, _path: str, on_change: OnChange | None) -> list[str]:
        if on_change is not None and self.standbys:
            asyncio.get_running_loop().call_later(0.5, on_change, "CHILD", "")
            return [self.standbys.pop()]
        return []


@pytest.mark.parametrize(
    ("czxids", "changes", "looks", "until_s"),
    [
        # The change comes with the answer of the second look.
        ([7, 7, None], [True, True, False], 3, 0.0),
        # Another has claimed: the owner of a persistent one is the same.
        ([7, 8], [True, False], 2, 0.0),
        # The last standby goes.
        ([7, 7], [False, False], 2, 0.5),
    ],
)
def test_how_long_a_claim_is_waited_for(
    czxids: list[int | None], changes: list[bool], looks: int, until_s: float
) -> None:
    async def run() -> tuple[int, float]:
        looked = Looks(czxids, changes, ["5"] if until_s else ["5"] * 9)
        session: Any = looked
        async with claimant(CONNECT, "exclusive") as claims:
            began_s = asyncio.get_running_loop().time()
            await claims._wait_for_claim(session, 5)
        return looked.count, asyncio.get_running_loop().time() - began_s

    assert loop.run(run()) == (looks, until_s)


# --- successions ---------------------------------------------------------------------------------------------


@told
async def test_each_resignation_gives_its_successor_the_whole_time(session: Session, zk: Hands) -> None:
    me = Succession(1)
    zk.create(znode_paths.candidate_path(2))
    for _n in range(2):
        zk.create(znode_paths.SUCCESSOR, b"2")
        assert await me.leaves_to_another(session)
        await asyncio.sleep(lease.SUCCESSOR_WAIT_S + 1)
        assert not await me.leaves_to_another(session)
        zk.delete(znode_paths.SUCCESSOR)


@told
async def test_nobody_waits_for_a_successor_that_is_not_there(session: Session, zk: Hands) -> None:
    zk.create(znode_paths.SUCCESSOR, b"2")
    assert not await Succession(1).leaves_to_another(session)
    zk.create(znode_paths.candidate_path(2))
    assert await Succession(1).leaves_to_another(session)
    assert not await Succession(2).leaves_to_another(session)


@pytest.mark.parametrize("name", [b"", b"junk", "٣".encode(), b"\xff", b"-2", b"9" * 5000])
@told
async def test_a_name_that_is_no_id_is_nobody_s(session: Session, zk: Hands, name: bytes) -> None:
    zk.create(znode_paths.SUCCESSOR, name)
    zk.create(f"{znode_paths.CONTROLLER_IDS}/3")
    assert not await Succession(1).leaves_to_another(session)


@told
async def test_a_former_successor_s_name_is_replaced_and_a_deposed_one_names_nobody(
    session: Session, zk: Hands
) -> None:
    zk.create(znode_paths.CONTROLLER_EPOCH, b"1")
    zk.create(znode_paths.SUCCESSOR, b"9")
    await succession.appoint(session, 0, 2)
    assert zk.get(znode_paths.SUCCESSOR)[0] == b"2"
    with pytest.raises(jute.MultiError):
        await succession.appoint(session, 7, 3)


# --- flapping ------------------------------------------------------------------------------------------------


@told
async def test_a_flapping_candidate_waits_each_time_while_there_are_others(
    session: Session, zk: Hands
) -> None:
    me = Patience(1)
    assert not await me.leaves_to_another(session)
    for _n in range(2):
        me.failed()
    zk.create(znode_paths.candidate_path(1))
    assert not await me.leaves_to_another(session), "it is alone"
    zk.create(znode_paths.candidate_path(2))
    wait_s = history.yields_us(2) / 1e6
    for _n in range(2):
        zk.create(znode_paths.CONTROLLER)
        assert not await me.leaves_to_another(session)
        zk.delete(znode_paths.CONTROLLER)
        assert await me.leaves_to_another(session)
        await asyncio.sleep(wait_s * 0.9)
        assert await me.leaves_to_another(session)
        await asyncio.sleep(wait_s * 0.2)
        assert not await me.leaves_to_another(session)


@told
async def test_who_failed_before_it_was_restarted_waits_too(
    network: Network, session: Session, zk: Hands
) -> None:
    now_ms = network.clock.time_ns() // 1_000_000
    terms = tuple(TermRecord(1, epoch, now_ms - 1000, now_ms) for epoch in (1, 2))
    zk.create(history.PATH, single_codecs.encode(history.PATH, terms), makepath=True)
    zk.create(znode_paths.candidate_path(2))
    me = Patience(1)
    await me.learn(session)
    assert await me.leaves_to_another(session)


@told
async def test_a_term_ends_in_the_history_as_itself(session: Session, zk: Hands) -> None:
    for epoch in (1, 2):
        won = await elect(session)
        assert isinstance(won, Won)
        await term_history.begin(session, won, 1)
        if epoch == 2:
            await term_history.end(session, won, "enough", requested=True)
    kept, _version = await term_history._NODE.read(session)
    assert [(t.controller_epoch, t.requested, t.end_unknown) for t in kept] == [
        (1, False, True),
        (2, True, False),
    ]


@told
async def test_who_is_released_from_quarantine_takes_nobody_along(session: Session) -> None:
    won = await elect(session)
    assert isinstance(won, Won)
    kept = Quarantine()
    for name in ("t", "u"):
        raised = Suspect(SubjectKind.TOPIC, name, "TopicChange", "KeyError: 1", "d", 1, 1, 0)
        kept = kept.remember(raised)
    await quarantine._NODE.write(session, won.epoch_version, kept, None)
    assert await quarantine.release(session, won, "topic/x") is None
    released = await quarantine.release(session, won, "topic/t")
    assert released is not None
    assert released.name == "t"
    assert list((await quarantine.read(session)).suspects) == ["topic/u"]
