"""What coordinators of groups are asked for and cannot grant, and a group of one member that does not behave."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from broker_stub.group.partitioner import OFFSETS_TOPIC, partition_for
from proto.gen import broker_data_pb2 as wire
from proto.gen import common_pb2 as codes
from tests.provers.sim.checks.refusals import NOBODY, REFUSED
from tests.provers.sim.checks.stored import State
from tests.provers.sim.odd.asking import Asker, Codes, OverError
from tests.provers.sim.odd.calls import sent

#: Who does not coordinate the group now, or cannot write, says so: this is asked of whoever leads its partition.
_ELSEWHERE: Codes = (
    codes.NOT_COORDINATOR,
    codes.COORDINATOR_NOT_AVAILABLE,
    codes.COORDINATOR_LOAD_IN_PROGRESS,
    codes.NOT_CONTROLLER,
)
_NO_GROUP: Codes = (codes.INVALID_GROUP_ID,)
_NO_MEMBER: Codes = (codes.UNKNOWN_MEMBER_ID,)
_GENERATION: Codes = (codes.ILLEGAL_GENERATION,)
_DONE: Codes = (codes.NONE,)
_BALANCING: Codes = (codes.REBALANCE_IN_PROGRESS,)
#: What a coordinator says that has read the group from its log: it knows no member that was not in it, and may have let
#: in one of another kind since.
_MOVED: Codes = (*_NO_MEMBER, *_GENERATION, codes.INCONSISTENT_GROUP_PROTOCOL)
_FAR = 1000
#: How long to wait for a coordinator before another look, seconds.
_LOOK_S = 0.2
#: A member that does not sync is left out after the one, one that is silent after the other.
REBALANCE_S, SESSION_S = 1.0, 2.0
SESSION_MS = int(SESSION_S * 1000)


class Group:
    """One group, asked of its coordinator."""

    def __init__(self, asker: Asker, name: str) -> None:
        self._asker, self.name = asker, name

    async def ask(self, method: str, request: Any, allowed: Codes, *, tidying: bool = False) -> Any:
        """The answer; None: there is none, or the group is elsewhere. Raises OverError."""
        cluster = self._asker.cluster
        if self._asker.too_late(tidying=tidying):
            raise OverError
        address = self._address()
        if address is None:
            return None
        self._asker.operator.asked += 1
        answer = await sent(address, method, request)
        if answer is None or answer.error_code in _ELSEWHERE:
            return None
        if answer.error_code not in allowed:
            names = " or ".join(codes.ErrorCode.Name(code) for code in sorted(set(allowed)))
            found = codes.ErrorCode.Name(answer.error_code)
            cluster.violated(f"{method} got {found}, not {names}: {request}")
        return answer

    async def served(self) -> None:
        """Until somebody coordinates the group: while nobody does, whatever is asked is answered alike. Raises
        OverError."""
        probe = wire.HeartbeatRequest(group_id=self.name, member_id=REFUSED)
        while await self.ask("Heartbeat", probe, (*_NO_MEMBER, *_GENERATION, *_DONE)) is None:
            await self._asker.pass_s(_LOOK_S)

    def coordinator(self) -> tuple[int, int, int] | None:
        """Broker, its process and leader epoch of whoever leads the partition that keeps the group: each gives the
        members that it reads from the log their whole session timeout."""
        state = self._state()
        if state is None:
            return None
        broker = self._asker.cluster.brokers.get(state.leader)
        return state.leader, broker.incarnations if broker is not None else 0, state.leader_epoch

    def _state(self) -> State | None:
        ledger = self._asker.cluster.ledger
        topic = ledger.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return None
        return ledger.states.get((OFFSETS_TOPIC, partition_for(self.name, len(topic.partitions))))

    def _address(self) -> str | None:
        cluster, state = self._asker.cluster, self._state()
        broker = cluster.brokers.get(state.leader) if state is not None else None
        return broker.address if broker is not None else None


def join(group: str, member: str = "", timeout_ms: int = SESSION_MS, kind: str = "odd", *names: str) -> Any:
    return wire.JoinGroupRequest(
        group_id=group,
        member_id=member,
        session_timeout_ms=timeout_ms,
        rebalance_timeout_ms=int(REBALANCE_S * 1000),
        protocol_type=kind,
        protocols=[wire.GroupProtocol(name=name) for name in names],
        client_id="odd",
    )


def commit(group: str, generation: int, member: str, *offsets: wire.CommittedOffset) -> Any:
    return wire.OffsetCommitRequest(
        group_id=group, generation_id=generation, member_id=member, offsets=offsets
    )


def committed(topic: str, offset: int, leader_epoch: int = -1, metadata: str = "") -> wire.CommittedOffset:
    return wire.CommittedOffset(topic=topic, offset=offset, leader_epoch=leader_epoch, metadata=metadata)


async def refused_members(asker: Asker) -> None:
    """Of a group that nobody is in, and of none."""
    group = Group(asker, f"odd-{asker.serial}-none")
    name = group.name
    await group.served()
    await _refused_offsets(asker, group)
    for method, request, allowed in (
        ("JoinGroup", join("", "", SESSION_MS, "odd", "range"), _NO_GROUP),
        ("SyncGroup", wire.SyncGroupRequest(), _NO_GROUP),
        ("Heartbeat", wire.HeartbeatRequest(), _NO_GROUP),
        ("LeaveGroup", wire.LeaveGroupRequest(), _NO_GROUP),
        ("OffsetCommit", commit("", -1, ""), _NO_GROUP),
        ("OffsetFetch", wire.OffsetFetchRequest(), _NO_GROUP),
        ("FindCoordinator", wire.FindCoordinatorRequest(), _NO_GROUP),
        ("JoinGroup", join(name, "", 1, "odd", "range"), (codes.INVALID_SESSION_TIMEOUT,)),
        ("JoinGroup", join(name, "", 10**9, "odd", "range"), (codes.INVALID_SESSION_TIMEOUT,)),
        ("JoinGroup", join(name, REFUSED, SESSION_MS, "odd", "range"), _NO_MEMBER),
        ("JoinGroup", join(name, "", SESSION_MS, "", "range"), (codes.INCONSISTENT_GROUP_PROTOCOL,)),
        ("JoinGroup", join(name, "", SESSION_MS, "odd"), (codes.INCONSISTENT_GROUP_PROTOCOL,)),
        ("SyncGroup", wire.SyncGroupRequest(group_id=name, member_id=REFUSED), (*_NO_MEMBER, *_BALANCING)),
        ("Heartbeat", wire.HeartbeatRequest(group_id=name, member_id=REFUSED), (*_NO_MEMBER, *_DONE)),
        ("LeaveGroup", wire.LeaveGroupRequest(group_id=name, member_id=REFUSED), _NO_MEMBER),
        ("OffsetCommit", commit(name, 5, REFUSED, committed("t0", 1)), _GENERATION),
    ):
        await group.ask(method, request, allowed)


async def _refused_offsets(asker: Asker, group: Group) -> None:
    """Each offset is judged by itself, and none of them is kept."""
    there = "t0" in asker.cluster.ledger.topics
    wrong: Sequence[tuple[wire.CommittedOffset, Codes]] = (
        (committed(f"{REFUSED}-{NOBODY}", 1), (codes.UNKNOWN_TOPIC_OR_PARTITION,)),
        (committed("t0", -5), (codes.INVALID_REQUEST, codes.UNKNOWN_TOPIC_OR_PARTITION)),
        (committed("t0", 5, -7), (codes.INVALID_REQUEST, codes.UNKNOWN_TOPIC_OR_PARTITION)),
        (
            committed("t0", 5, 0, "m" * 5000),
            (codes.OFFSET_METADATA_TOO_LARGE, codes.UNKNOWN_TOPIC_OR_PARTITION),
        ),
    )
    for offset, allowed in wrong:
        answer = await group.ask("OffsetCommit", commit(group.name, -1, "", offset), (*_DONE, *allowed))
        found = [p.error_code for p in answer.partition_errors] if answer is not None else []
        if any(code not in (*allowed, *_ELSEWHERE) for code in found):
            asker.cluster.violated(f"an offset that cannot be was taken: {offset}: {found}")
    fetched = await group.ask("OffsetFetch", wire.OffsetFetchRequest(group_id=group.name), _DONE)
    if there and fetched is not None and fetched.offsets:
        asker.cluster.violated(f"{group.name} has offsets that were refused: {fetched}")


async def life_of_a_group(asker: Asker) -> None:
    """One member, and what is said to others and to what it says at the wrong time."""
    group = Group(asker, f"odd-{asker.serial}")
    name = group.name
    await group.served()
    joined_at = _Since(group)
    joined = await group.ask(
        "JoinGroup", join(name, "", SESSION_MS, "odd", "range", "sticky"), (*_DONE, *_BALANCING)
    )
    if joined is None or joined.error_code:
        return
    member, generation = joined.member_id, joined.generation_id
    late = (*_NO_MEMBER, *_BALANCING)
    try:
        for method, request, allowed in (
            (
                "JoinGroup",
                join(name, "", SESSION_MS, "other", "range"),
                (codes.INCONSISTENT_GROUP_PROTOCOL,),
            ),
            ("JoinGroup", join(name, "", SESSION_MS, "odd", "none"), (codes.INCONSISTENT_GROUP_PROTOCOL,)),
            ("JoinGroup", join(name, REFUSED, SESSION_MS, "odd", "range"), _NO_MEMBER),
            ("Heartbeat", heartbeat(name, generation + _FAR, member), (*_GENERATION, *late)),
            ("Heartbeat", heartbeat(name, generation, REFUSED), _NO_MEMBER),
            ("SyncGroup", sync(name, generation + _FAR, member), (*_GENERATION, *late)),
            ("SyncGroup", sync(name, generation, REFUSED), _NO_MEMBER),
            (
                "OffsetCommit",
                commit(name, generation, member, committed("t0", 1)),
                (*_BALANCING, *_NO_MEMBER),
            ),
            ("LeaveGroup", wire.LeaveGroupRequest(group_id=name, member_id=REFUSED), _NO_MEMBER),
        ):
            answer = await group.ask(method, request, (*allowed, *_MOVED, *_DONE))
            if answer is None:
                return
            if not answer.error_code and joined_at.has_its_member:
                asker.cluster.violated(f"{method} is granted, to {name}: {request}")
        await _while_it_lives(asker, group, joined_at)
        await _stable(asker, group, member, generation)
    finally:
        leave = wire.LeaveGroupRequest(group_id=name, member_id=member)
        await group.ask("LeaveGroup", leave, (*_DONE, *_NO_MEMBER), tidying=True)


class _Since:
    """A moment, and who coordinated the group then."""

    def __init__(self, group: Group) -> None:
        self._group, self._coordinator = group, group.coordinator()
        self._loop = asyncio.get_running_loop()
        self._at_s = self._loop.time()

    @property
    def undisturbed_s(self) -> float | None:
        """How long ago; None: another has coordinated it since, or the same one anew."""
        return self._loop.time() - self._at_s if self._group.coordinator() == self._coordinator else None

    @property
    def has_its_member(self) -> bool:
        """Whether one that joined then and has not synced is in the group for certain."""
        passed_s = self.undisturbed_s
        return passed_s is not None and passed_s < REBALANCE_S


async def _while_it_lives(asker: Asker, group: Group, joined: _Since) -> None:
    """Nobody else commits while it is a member."""
    request = commit(group.name, -1, "", committed("t0", 1))
    answer = await group.ask("OffsetCommit", request, (*_DONE, *_NO_MEMBER, *_GENERATION))
    if answer is not None and not answer.error_code and joined.has_its_member:
        asker.cluster.violated(f"{group.name}: offsets of nobody are committed while it has a member")


async def _stable(asker: Asker, group: Group, member: str, generation: int) -> None:
    """It gets its assignment, joins again with the same, and then says nothing until it is left out."""
    anything = (*_DONE, *_MOVED, *_BALANCING)
    assignments = [wire.GroupAssignment(member_id=member, assignment=b"all")]
    request = sync(group.name, generation, member)
    request.assignments.extend(assignments)
    synced = await group.ask("SyncGroup", request, anything)
    if synced is not None and not synced.error_code and synced.assignment != b"all":
        asker.cluster.violated(f"{member} was assigned {synced.assignment!r}")
    await group.ask("Heartbeat", heartbeat(group.name, generation, member), anything)
    again = join(group.name, member, SESSION_MS, "odd", "range", "sticky")
    await group.ask("JoinGroup", again, anything)
    if asker.rng.random() < 0.5:
        # Neither the sync that the coordinator waits for, nor any sign of life.
        silent = _Since(group)
        await asker.pass_s(2 * SESSION_S)
        answer = await group.ask("Heartbeat", heartbeat(group.name, generation, member), anything)
        if answer is not None and not answer.error_code and silent.undisturbed_s is not None:
            asker.cluster.violated(f"{member} is in its group after twice its session timeout")


def heartbeat(group: str, generation: int, member: str) -> Any:
    return wire.HeartbeatRequest(group_id=group, generation_id=generation, member_id=member)


def sync(group: str, generation: int, member: str) -> Any:
    return wire.SyncGroupRequest(group_id=group, generation_id=generation, member_id=member)
