"""A group of two members, one of which stays away when the other joins again; a topic of which it has offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from broker_stub.group.partitioner import OFFSETS_TOPIC, partition_for
from proto.gen import admin_service_pb2 as pb
from proto.gen import broker_data_pb2 as wire
from proto.gen import common_pb2 as codes
from tests.provers.sim.episodes.calm import UNWRITTEN, Calm
from tests.provers.sim.odd.asking import DONE, INVALID
from tests.provers.sim.odd.calls import sent
from tests.provers.sim.odd.members import (
    REBALANCE_S,
    SESSION_MS,
    Group,
    commit,
    committed,
    heartbeat,
    join,
    sync,
)
from tests.provers.sim.odd.placements import NOT_AVAILABLE, NOT_NEEDED, election, move, moves
from tests.provers.sim.odd.topics import LISTS

#: Offsets that are committed at the same time, after another.
_AT_ONCE = (2, 3)
#: So often a coordinator is asked for, until there is one.
_FOUND_AFTER = 50
#: Of the topic that keeps them, if there are as many brokers.
_FACTOR = 3
_BALANCING = (codes.REBALANCE_IN_PROGRESS,)
_NO_MEMBER = (codes.UNKNOWN_MEMBER_ID,)
#: What a member is told that was left out, or of whose group another rebalance has begun.
_LATE = (*_BALANCING, *_NO_MEMBER, codes.ILLEGAL_GENERATION)


async def two_members(asker: Calm) -> None:
    name, topic = f"calm-{asker.serial}", asker.name()
    if not await asker.made(topic, asker.ids[:1]):
        return
    group = Group(asker, name)
    if not await _coordinated(asker, group):
        return
    both = await asyncio.gather(*(_joined(group) for _ in range(2)))
    if any(found is None or found.error_code for found in both):
        return
    first, second = both
    if first.generation_id != second.generation_id or first.leader != second.leader:
        asker.cluster.violated(f"{name} has two generations at once: {first}; {second}")
    leads, follows = (first, second) if first.leader == first.member_id else (second, first)
    await _shared_out(asker, group, leads, follows)
    await _offsets_at_once(asker, group, leads, topic)
    alone = await _left_behind(asker, group, leads, follows)
    await asker.delete(topic)
    await asker.until(f"{topic} is deleted", 20.0, lambda: topic not in asker.cluster.ledger.topics)
    await asker.pass_s(0.5)
    fetched = await group.ask("OffsetFetch", wire.OffsetFetchRequest(group_id=name), DONE)
    if fetched is not None and any(offset.topic == topic for offset in fetched.offsets):
        asker.cluster.violated(f"{name} has offsets of {topic}, which is deleted: {fetched}")
    if alone is not None and (known := group.coordinator()) is not None:
        # Whoever takes over finds the same in the log.
        with asker.gone(known[0]):
            await asker.pass_s(2 * asker.session_s)
        again = await group.ask("OffsetFetch", wire.OffsetFetchRequest(group_id=name), DONE)
        if again is not None and again.offsets:
            asker.cluster.violated(f"{name} has offsets again: {again}")


async def _coordinated(asker: Calm, group: Group) -> bool:
    """Whether there are enough brokers for that. Whoever is asked first creates the topic that keeps groups."""
    found = None
    for _ in range(_FOUND_AFTER):
        found = await sent(
            asker.cluster.bootstrap[0], "FindCoordinator", wire.FindCoordinatorRequest(group_id=group.name)
        )
        if found is not None and not found.error_code:
            await group.served()
            return True
        await asker.pass_s(0.2)
    if len(asker.ids) >= _FACTOR:
        asker.cluster.violated(f"nobody coordinates {group.name}: {found}")
    return False


async def moved_in_the_midst(asker: Calm) -> None:
    """What a group commits and is given is not in sync yet, when its member leaves, the topic is deleted, or another
    broker is to coordinate it. What is granted stays, also when that one has read it from its log."""
    rng, topic = asker.rng, asker.name()
    group = Group(asker, f"calm-{asker.serial}")
    if not await asker.made(topic, asker.ids[:1]) or not await _coordinated(asker, group):
        return
    joined = await _joined(group)
    if joined is None or joined.error_code:
        return
    by_nobody = commit(f"{group.name}-nobody", -1, "", committed(topic, 1))
    lone = Group(asker, f"{group.name}-nobody")
    if await _coordinated(asker, lone):
        await lone.ask("OffsetCommit", by_nobody, DONE)
    known = group.coordinator()
    assert known is not None
    leader = known[0]
    others = [id_ for id_ in asker.ids if id_ != leader]
    given = sync(group.name, joined.generation_id, joined.member_id)
    given.assignments.add(member_id=joined.member_id, assignment=b"all")
    with ExitStack() as held:
        for id_ in others:
            held.enter_context(asker.held_back(id_))
        shared = asyncio.ensure_future(group.ask("SyncGroup", given, (*DONE, *_LATE)))
        await asker.pass_s(0.02)
        what = rng.choice(("leaves", "topic", "elsewhere", "elsewhere", "nothing"))
        offsets = [
            asyncio.ensure_future(
                lone.ask("OffsetCommit", commit(lone.name, -1, "", committed(topic, offset)), DONE)
            )
            for offset in _AT_ONCE
        ]
        await asker.pass_s(0.02)
        if what == "leaves":
            leave = wire.LeaveGroupRequest(group_id=group.name, member_id=joined.member_id)
            await group.ask("LeaveGroup", leave, (*DONE, *_NO_MEMBER))
        elif what == "topic":
            await asker.delete(topic)
            await asker.pass_s(0.5)
        elif what == "elsewhere":
            await _coordinated_by_another(asker, group, others)
    await shared
    granted = {
        number
        for number, task in zip(_AT_ONCE, offsets, strict=True)
        if (found := await task) is not None and not found.partition_errors[0].error_code
    }
    await asker.pass_s(1.0)
    if what != "topic":
        await _check_kept(asker, lone, topic, granted)
    await asker.delete(topic)
    await asker.until(f"{topic} is deleted", 20.0, lambda: topic not in asker.cluster.ledger.topics)


async def _coordinated_by_another(asker: Calm, group: Group, others: Sequence[int]) -> None:
    """Who leads its partition is to be another, or the same anew."""
    number = partition_for(group.name, len(asker.partitions(OFFSETS_TOPIC)))
    anything = (*DONE, *UNWRITTEN, *NOT_NEEDED, *NOT_AVAILABLE, *INVALID)
    if others and asker.rng.random() < 0.7:
        chosen = election(pb.CHOSEN, (OFFSETS_TOPIC, number), leader=others[0], parts=[anything])
        await asker.ask(chosen)
    else:
        replicas = asker.partitions(OFFSETS_TOPIC)[number]
        await asker.ask(moves(move(OFFSETS_TOPIC, number, replicas), parts=[(*DONE, *UNWRITTEN, *LISTS)]))
    await asker.pass_s(0.2)


async def _check_kept(asker: Calm, group: Group, topic: str, granted: set[int]) -> None:
    await group.served()
    fetched = await group.ask("OffsetFetch", wire.OffsetFetchRequest(group_id=group.name), DONE)
    if fetched is None:
        return
    # Of commits at the same time either may be the last, also one of which nobody knows whether it was granted.
    kept = {found.offset for found in fetched.offsets if found.topic == topic}
    if granted and (not kept or min(kept) < min(_AT_ONCE)):
        asker.cluster.violated(f"{group.name} has committed {granted}, and has {fetched}")


async def _joined(group: Group, member: str = "") -> Any:
    request = join(group.name, member, SESSION_MS, "odd", "range")
    return await group.ask("JoinGroup", request, (*DONE, *_LATE))


async def _shared_out(asker: Calm, group: Group, leads: Any, follows: Any) -> None:
    """The leader's share first: the other finds its own there, as often as it asks."""
    request = sync(group.name, leads.generation_id, leads.member_id)
    for number, member in enumerate((leads.member_id, follows.member_id)):
        request.assignments.add(member_id=member, assignment=b"share %d" % number)
    found = await group.ask("SyncGroup", request, (*DONE, *_LATE))
    for _ in range(2):
        asked = await group.ask(
            "SyncGroup", sync(group.name, follows.generation_id, follows.member_id), (*DONE, *_LATE)
        )
        shared = found is not None and not found.error_code and asked is not None and not asked.error_code
        if shared and (found.assignment, asked.assignment) != (b"share 0", b"share 1"):
            asker.cluster.violated(f"{group.name} is shared out otherwise than asked: {found}; {asked}")


async def _offsets_at_once(asker: Calm, group: Group, leads: Any, topic: str) -> None:
    """Of commits at the same time one is the last, and stays."""
    requests = [
        commit(group.name, leads.generation_id, leads.member_id, committed(topic, offset))
        for offset in (3, 4)
    ]
    answers = await asyncio.gather(*(group.ask("OffsetCommit", one, (*DONE, *_LATE)) for one in requests))
    granted = {
        n for n, found in zip((3, 4), answers, strict=True) if found is not None and not found.error_code
    }
    fetched = await group.ask("OffsetFetch", wire.OffsetFetchRequest(group_id=group.name), DONE)
    kept = {found.offset for found in fetched.offsets} if fetched is not None else granted
    if granted and not kept <= {3, 4}:
        asker.cluster.violated(f"{group.name} has committed {granted}, and has {fetched}")


async def _left_behind(asker: Calm, group: Group, leads: Any, follows: Any) -> Any:
    """The leader joins again. The other does not: it is told to, asked for its share, and is left out in the end. What
    the leader joined, which has left again; None: it did not."""
    joining = asyncio.ensure_future(_joined(group, leads.member_id))
    await asker.pass_s(REBALANCE_S / 5)
    late = (*_LATE, *DONE)
    for request, method in (
        (sync(group.name, follows.generation_id, follows.member_id), "SyncGroup"),
        (heartbeat(group.name, follows.generation_id, follows.member_id), "Heartbeat"),
    ):
        told = await group.ask(method, request, late)
        if told is not None and not told.error_code and not joining.done():
            asker.cluster.violated(f"{method} of {group.name} is granted in the midst of a rebalance")
    joined = await joining
    if joined is None or joined.error_code:
        return None
    if joined.generation_id != leads.generation_id + 1:
        asker.cluster.violated(f"{group.name} is at {joined.generation_id} after {leads.generation_id}")
    if any(member.member_id == follows.member_id for member in joined.members):
        asker.cluster.violated(
            f"{follows.member_id} has not joined {group.name} again, and is in it: {joined}"
        )
    leave = wire.LeaveGroupRequest(group_id=group.name, member_id=joined.member_id)
    await group.ask("LeaveGroup", leave, (*DONE, *_NO_MEMBER))
    return joined
