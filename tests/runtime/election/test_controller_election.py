"""Winning and giving up /controller on a real server (reference, section 2)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kazoo.client import KazooClient

from controller.core import znode_paths
from controller.errors import DuplicateIdError, MalformedError
from controller.runtime import lease
from controller.runtime.election import controller_election, registration
from controller.runtime.election.controller_election import Candidate, Lost, Won
from controller.runtime.zookeeper import codecs, jute
from controller.runtime.zookeeper.session import BadVersionError, Session
from proto.incarnations import Incarnation
from tests.support.runtime.proxy import proxied
from tests.support.runtime.sessions import opened, until

pytestmark = pytest.mark.slow


class Watch:
    """Counts what the watch on /controller says."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def __call__(self, kind: str, path: str) -> None:
        assert path == znode_paths.CONTROLLER
        self.kinds.append(kind)


def candidate(id_: int, endpoint: str = "", incarnation: Incarnation | None = None) -> Candidate:
    """One of the incarnation "me", unless said otherwise."""
    return Candidate(id_, endpoint or f"h:{id_}", incarnation or Incarnation("me"), "here")


async def elect(session: Session, id_: int = 1, watch: Watch | None = None) -> Won | Lost:
    return await controller_election.elect(session, candidate(id_), watch or Watch())


async def test_the_first_has_epoch_1_version_1_and_its_watch(session: Session, zk: KazooClient) -> None:
    watch = Watch()
    assert await elect(session, 1, watch) == Won(1, 1)
    data, stat = zk.get(znode_paths.CONTROLLER)
    assert codecs.decode_controller(data) == (1, "h:1")
    assert stat.ephemeralOwner == session.id
    assert zk.get(znode_paths.CONTROLLER_EPOCH)[0] == b"1"
    await until(lambda: watch.kinds == ["CREATED"], "the watch armed before the attempt")
    assert await controller_election.still_ours(session, Won(1, 1), watch)
    assert not await controller_election.still_ours(session, Won(1, 0), watch)
    zk.delete(znode_paths.CONTROLLER)
    await until(lambda: watch.kinds == ["CREATED", "DELETED"], "the watch armed again")
    assert not await controller_election.still_ours(session, Won(1, 1), watch)


async def test_a_controller_znode_that_was_written_over_is_not_ours_and_the_next_election_replaces_it(
    session: Session, zk: KazooClient
) -> None:
    watch = Watch()
    won = await elect(session, 1, watch)
    assert isinstance(won, Won)
    assert await controller_election.still_ours(session, won, watch)
    zk.set(znode_paths.CONTROLLER, codecs.encode_controller(99, ""))
    await until(lambda: watch.kinds == ["CREATED", "CHANGED"], "the watch")
    assert not await controller_election.still_ours(session, won, watch)
    again = await elect(session, 1, watch)
    assert again == Won(2, 2)
    assert await controller_election.still_ours(session, again, watch)
    assert codecs.decode_controller(zk.get(znode_paths.CONTROLLER)[0]) == (1, "h:1")


async def test_creation_and_epoch_are_one_transaction(zookeeper: str, zk: KazooClient) -> None:
    async with proxied(zookeeper) as proxy, opened(proxy.connect) as (session, _):
        zk.create(znode_paths.CONTROLLER_EPOCH, b"41")
        before = zk.exists(znode_paths.CONTROLLER_EPOCH).czxid
        assert await elect(session) == Won(42, 1)
        controller, epoch = zk.exists(znode_paths.CONTROLLER), zk.exists(znode_paths.CONTROLLER_EPOCH)
        assert controller.czxid == epoch.mzxid > before
        assert proxy.requests.get(jute.OP_MULTI) == 1
        assert proxy.requests.get(jute.OP_SET_DATA) is None


async def test_the_last_controller_epoch_is_not_taken(session: Session, zk: KazooClient) -> None:
    """Whoever had it could never be followed."""
    zk.create(znode_paths.CONTROLLER_EPOCH, b"2147483646")
    with pytest.raises(MalformedError, match=r"^/controller_epoch: 2147483646: .* set it to the highest one"):
        await elect(session)
    assert zk.exists(znode_paths.CONTROLLER) is None
    zk.set(znode_paths.CONTROLLER_EPOCH, b"2147483645")
    assert await elect(session) == Won(2147483646, 2)


async def test_of_many_candidates_one_wins_and_the_rest_know_whom(zookeeper: str, zk: KazooClient) -> None:
    sessions = [opened(zookeeper) for _ in range(4)]
    opened_sessions = [(await context.__aenter__())[0] for context in sessions]
    try:
        for round_ in range(1, 6):
            results = await asyncio.gather(*(elect(s, n) for n, s in enumerate(opened_sessions)))
            winners = [n for n, r in enumerate(results) if isinstance(r, Won)]
            assert len(winners) == 1
            assert results[winners[0]] == Won(round_, round_)
            assert {r for r in results if isinstance(r, Lost)} == {Lost(winners[0], f"h:{winners[0]}")}
            await controller_election.resign(opened_sessions[winners[0]])
            assert not zk.exists(znode_paths.CONTROLLER)
    finally:
        for context in sessions:
            await context.__aexit__(None, None, None)


async def test_a_lost_reply_of_the_winning_multi_is_settled_by_reading(zookeeper: str) -> None:
    async with proxied(zookeeper) as proxy, opened(proxy.connect) as (session, _):
        proxy.lose_answers.append(jute.OP_MULTI)
        assert await elect(session) == Won(1, 1)
        assert (await session.exists(znode_paths.CONTROLLER)) is not None
        assert proxy.requests[jute.OP_MULTI] == 1
        assert not proxy.lose_answers


async def test_a_lost_reply_of_the_losing_multi_names_the_winner(
    zookeeper: str, zk: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxied(zookeeper) as proxy, opened(proxy.connect) as (session, _):
        register = session.register_controller

        async def overtaken(*args: object) -> int:
            zk.create(znode_paths.CONTROLLER, codecs.encode_controller(7, "h:7"), ephemeral=True)
            zk.set(znode_paths.CONTROLLER_EPOCH, b"1")
            return await register(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(session, "register_controller", overtaken)
        proxy.lose_answers.append(jute.OP_MULTI)
        assert await elect(session) == Lost(7, "h:7")


async def test_an_epoch_edited_in_between_does_not_leave_everybody_waiting(
    session: Session, zk: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody holds /controller and no watch will ever fire: so it has to be tried again."""
    register, edits = session.register_controller, [b"9", b"19"]

    async def edited(*args: object) -> int:
        if edits:
            zk.set(znode_paths.CONTROLLER_EPOCH, edits.pop(0))
        return await register(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(session, "register_controller", edited)
    assert await elect(session) == Won(20, 3)


async def test_our_id_in_controller_is_not_leadership(zookeeper: str, zk: KazooClient) -> None:
    async with opened(zookeeper) as (session, _):
        zk.create(znode_paths.CONTROLLER, codecs.encode_controller(1, "another:9"), ephemeral=True)
        assert await elect(session) == Lost(1, "another:9")


async def test_the_former_session_of_this_process_is_removed(zookeeper: str, zk: KazooClient) -> None:
    async with opened(zookeeper) as (old, _), opened(zookeeper) as (new, _):
        assert await elect(old) == Won(1, 1)
        assert await elect(new) == Won(2, 2)
        assert zk.exists(znode_paths.CONTROLLER).ephemeralOwner == new.id


@pytest.mark.parametrize("where", ["multi", "_delete_former"])
async def test_whoever_is_elected_while_a_former_self_is_removed_stays(
    zookeeper: str, zk: KazooClient, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """After or before the epoch is read. Both znodes are of version 0: only the epoch tells them apart."""
    async with opened(zookeeper) as (old, _), opened(zookeeper) as (new, _), opened(zookeeper) as (rival, _):
        assert await elect(old) == Won(1, 1)
        place = new if where == "multi" else controller_election
        then = getattr(place, where)

        async def overtaken(*given: Any) -> None:
            monkeypatch.undo()
            zk.delete(znode_paths.CONTROLLER)
            assert await elect(rival, 2) == Won(2, 2)
            await then(*given)

        monkeypatch.setattr(place, where, overtaken)
        assert await elect(new) == Lost(2, "h:2")
        assert zk.exists(znode_paths.CONTROLLER).ephemeralOwner == rival.id


async def test_a_term_of_this_session_that_never_completed_is_given_up_first(
    session: Session, zk: KazooClient
) -> None:
    assert await elect(session) == Won(1, 1)
    before = zk.exists(znode_paths.CONTROLLER).czxid
    assert await elect(session) == Won(2, 2)
    assert zk.exists(znode_paths.CONTROLLER).czxid > before


async def test_resigning_takes_only_what_is_ours(zookeeper: str, zk: KazooClient) -> None:
    async with opened(zookeeper) as (ours, _), opened(zookeeper) as (theirs, _):
        await controller_election.resign(ours)
        await elect(theirs, 2)
        await controller_election.resign(ours)
        assert zk.exists(znode_paths.CONTROLLER).ephemeralOwner == theirs.id
        await controller_election.resign(theirs)
        assert not zk.exists(znode_paths.CONTROLLER)


@pytest.mark.parametrize("data", [b"", b"junk", b'{"version":2}'])
async def test_unreadable_controller_is_somebody_unknown(
    session: Session, zk: KazooClient, data: bytes
) -> None:
    zk.create(znode_paths.CONTROLLER, data)
    assert await elect(session) == Lost(-1)


async def test_unreadable_epoch_elects_nobody(session: Session, zk: KazooClient) -> None:
    zk.create(znode_paths.CONTROLLER_EPOCH, b"seven")
    with pytest.raises(MalformedError, match="/controller_epoch"):
        await elect(session)
    assert not zk.exists(znode_paths.CONTROLLER)


async def test_paths_are_made_and_the_registration_of_a_former_session_replaced(
    zookeeper: str, zk: KazooClient
) -> None:
    async with opened(zookeeper) as (old, _), opened(zookeeper) as (new, _):
        await registration.register(old, candidate(3, "h:1"), "h:2")
        await registration.register(old, candidate(3, "h:1"), "h:2")
        for path in znode_paths.PERSISTENT:
            assert zk.exists(path).ephemeralOwner == 0
        assert zk.exists("/controllers/ids/3").ephemeralOwner == old.id
        await registration.register(new, candidate(3, "h:8"), "h:9")
        data, stat = zk.get("/controllers/ids/3")
        assert stat.ephemeralOwner == new.id
        assert b'"endpoint":"h:8"' in data


STRANGER = Incarnation("other")
SUCCESSOR = Incarnation("next", frozenset({"me"}))


async def test_a_stranger_with_our_id_and_address_stays_what_it_is(
    zookeeper: str, zk: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of a living one is deleted; who came second ends, and names the other's host."""
    monkeypatch.setattr(lease, "STRANGER_EXTRA_S", 0.0)
    async with opened(zookeeper) as (theirs, _), opened(zookeeper, 1000) as (ours, _):
        await registration.register(theirs, candidate(1), "h:2")
        assert await elect(theirs) == Won(1, 1)
        assert await controller_election.elect(ours, candidate(1, "", STRANGER), Watch()) == Lost(1, "h:1")
        with pytest.raises(DuplicateIdError, match="another controller with id 1 is running on 'here'"):
            await registration.register(ours, candidate(1, "", STRANGER), "h:2")
        for path in (znode_paths.CONTROLLER, "/controllers/ids/1"):
            assert zk.exists(path).ephemeralOwner == theirs.id


async def test_a_stranger_that_ends_in_time_is_followed(zookeeper: str, zk: KazooClient) -> None:
    async with opened(zookeeper) as (ours, _):
        async with opened(zookeeper) as (theirs, _):
            await registration.register(theirs, candidate(1), "h:2")
            registering = asyncio.create_task(registration.register(ours, candidate(1, "", STRANGER), "h:2"))
            await asyncio.wait([registering], timeout=0.5)
            assert not registering.done()
        await registering
        assert zk.exists("/controllers/ids/1").ephemeralOwner == ours.id


async def test_what_a_former_process_left_is_replaced_at_once(zookeeper: str, zk: KazooClient) -> None:
    async with opened(zookeeper) as (old, _), opened(zookeeper) as (new, _):
        await registration.register(old, candidate(1), "h:2")
        assert await elect(old) == Won(1, 1)
        successor = candidate(1, "another:7", SUCCESSOR)
        await registration.register(new, successor, "h:2")
        assert await controller_election.elect(new, successor, Watch()) == Won(2, 2)
        assert zk.exists("/controllers/ids/1").ephemeralOwner == new.id


async def test_a_registration_that_no_session_owns_is_nobody_s(session: Session, zk: KazooClient) -> None:
    zk.create("/controllers/ids/1", b"junk", makepath=True)
    await registration.register(session, candidate(1), "h:2")
    assert zk.exists("/controllers/ids/1").ephemeralOwner == session.id


async def test_register_controller_tells_which_operation_failed(session: Session, zk: KazooClient) -> None:
    zk.create("/taken", b"")
    zk.create("/epoch", b"1")
    with pytest.raises(jute.MultiError) as raised:
        await session.register_controller("/taken", b"", "/epoch", 2, 0)
    assert (raised.value.index, raised.value.code) == (0, jute.NODE_EXISTS)
    with pytest.raises(jute.MultiError) as raised:
        await session.register_controller("/free", b"", "/epoch", 2, 5)
    assert (raised.value.index, raised.value.code) == (1, jute.BAD_VERSION)
    assert not zk.exists("/free")
    with pytest.raises(BadVersionError):
        await session.delete("/epoch", 5)
