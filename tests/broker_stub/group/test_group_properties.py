"""Invariants of a group and of its offsets under any behaviour of members, log and clock."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from broker_stub.control.requests import Key
from broker_stub.group.members import JoinRequest, JoinResult
from broker_stub.group.messages import GroupValue, OffsetValue
from broker_stub.group.offsets import GroupOffsets
from broker_stub.group.state import Effects, Group, GroupState
from proto.gen import common_pb2 as codes

SESSION_MS = 10_000
CHOICES = st.integers(0, 9)
ERRORS = st.sampled_from([codes.NONE, codes.NONE, codes.COORDINATOR_NOT_AVAILABLE, codes.NOT_COORDINATOR])
PROTOCOLS = st.sampled_from(
    [
        (("range", b""),),
        (("range", b"x"), ("sticky", b"")),
        (("sticky", b""), ("range", b"")),
        (("odd", b""),),
    ]
)


class GroupMachine(RuleBasedStateMachine):
    """Members join, sync, beat, leave or fall silent; stores end in order, well or not."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.tokens = 0
        self.waiting: set[object] = set()
        self.known: list[str] = []
        #: Metadata on its way to the log, oldest first, and the last that arrived.
        self.storing: list[GroupValue] = []
        self.stored: GroupValue | None = None
        self.generation_id = 0

    @initialize(delay_ms=st.sampled_from([0, 1_000, 3_000]))
    def begin(self, delay_ms: int) -> None:
        self.group = Group("g", delay_ms)

    def token(self) -> int:
        self.tokens += 1
        self.waiting.add(self.tokens)
        return self.tokens

    def take(self, effects: Effects) -> None:
        for token, result in effects.replies:
            assert token in self.waiting, "answered twice, or never asked"
            self.waiting.remove(token)
            if isinstance(result, JoinResult) and result.error == codes.NONE:
                self.joined(result)
        if effects.store is not None:
            self.storing.append(effects.store)

    def joined(self, result: JoinResult) -> None:
        assert result.generation_id == self.group.generation_id
        assert result.leader == self.group.leader
        assert bool(result.members) == (result.member_id == result.leader)
        self.known.append(result.member_id)

    def member(self, choice: int) -> str:
        return ([*self.known, "stranger"])[-1 - choice % (len(self.known) + 1)]

    @rule(protocols=PROTOCOLS, rebalance_ms=st.sampled_from([0, 5_000, 60_000]))
    def join_new(self, protocols: Any, rebalance_ms: int) -> None:
        asked = JoinRequest("", "c", SESSION_MS, rebalance_ms, "consumer", protocols)
        token = self.token()
        self.take(self.group.join(asked, f"c-{token}", token, self.now_ms))

    @rule(choice=CHOICES, protocols=PROTOCOLS)
    def join_again(self, choice: int, protocols: Any) -> None:
        asked = JoinRequest(self.member(choice), "c", SESSION_MS, 30_000, "consumer", protocols)
        self.take(self.group.join(asked, "unused", self.token(), self.now_ms))

    @rule(choice=CHOICES, behind=st.sampled_from([0, 0, 0, 1]))
    def sync(self, choice: int, behind: int) -> None:
        assignments = {each: f"{each}@{self.group.generation_id}".encode() for each in self.group.members}
        generation_id = self.group.generation_id - behind
        token = self.token()
        self.take(self.group.sync(self.member(choice), generation_id, assignments, token, self.now_ms))

    @rule()
    def sync_all(self) -> None:
        for member in list(self.group.members):
            assignments = {each: f"{each}@{self.group.generation_id}".encode() for each in self.group.members}
            self.take(
                self.group.sync(member, self.group.generation_id, assignments, self.token(), self.now_ms)
            )

    @rule(choice=CHOICES, behind=st.sampled_from([0, 0, 1]))
    def heartbeat(self, choice: int, behind: int) -> None:
        error, effects = self.group.heartbeat(
            self.member(choice), self.group.generation_id - behind, self.now_ms
        )
        self.take(effects)
        if self.group.state is GroupState.PREPARING_REBALANCE:
            assert error != codes.NONE

    @rule(choice=CHOICES)
    def leave(self, choice: int) -> None:
        member = self.member(choice)
        _, effects = self.group.leave(member, self.now_ms)
        self.take(effects)
        assert member not in self.group.members

    @rule(choice=CHOICES, generation_id=st.sampled_from([-1, 0, 1, 2]))
    def commit(self, choice: int, generation_id: int) -> None:
        member = self.member(choice)
        error, effects = self.group.check_commit(member, generation_id, self.now_ms)
        self.take(effects)
        if error == codes.NONE and self.group.state is not GroupState.EMPTY:
            assert member in self.group.members
            assert generation_id == self.group.generation_id

    @precondition(lambda self: self.waiting)
    @rule(choice=CHOICES)
    def caller_goes(self, choice: int) -> None:
        token = sorted(self.waiting, key=str)[choice % len(self.waiting)]
        self.take(self.group.abandon(token, self.now_ms))

    @precondition(lambda self: self.storing)
    @rule(error=ERRORS)
    def store_ends(self, error: codes.ErrorCode) -> None:
        value = self.storing.pop(0)
        if not value.members:
            error = codes.NONE
        if error == codes.NONE:
            self.stored = value
        self.take(self.group.stored(value.generation_id, error, self.now_ms))

    @rule(ms=st.sampled_from([1, 500, 3_000, 9_999, 10_000, 70_000]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self.take(self.group.expire(self.now_ms))

    @rule()
    def next_deadline_comes(self) -> None:
        self.now_ms = max(self.now_ms, self.group.next_deadline_ms() or 0)
        self.take(self.group.expire(self.now_ms))

    @invariant()
    def a_leader_while_there_are_members(self) -> None:
        group = self.group
        assert (group.leader in group.members) if group.members else group.leader == ""
        assert (group.state is GroupState.EMPTY) <= (not group.members)
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            assert group.members
            assert all(group.protocol in member.protocols for member in group.members.values())

    @invariant()
    def generations_never_go_back(self) -> None:
        assert self.group.generation_id >= self.generation_id
        self.generation_id = self.group.generation_id

    @invariant()
    def stable_is_what_the_log_says(self) -> None:
        """A coordinator that loads the group now comes to the same, assignments included."""
        group = self.group
        if group.state is not GroupState.STABLE:
            return
        assert self.stored is not None
        assert Group.restore("g", self.stored, 0).describe() == group.describe()
        for name, member in group.members.items():
            assert member.assignment == f"{name}@{group.generation_id}".encode()

    @invariant()
    def whoever_waits_waits_for_something(self) -> None:
        members = self.group.members.values()
        held = [t for m in members for t in (m.join_token, m.sync_token) if t is not None]
        assert len(set(held)) == len(held)
        assert set(held) == self.waiting
        assert all(not (m.join_token and m.sync_token) for m in members)
        deadline_ms = self.group.next_deadline_ms()
        assert deadline_ms is None or deadline_ms > self.now_ms
        assert not self.waiting or deadline_ms is not None or self.storing
        if self.group.state is GroupState.STABLE:
            assert not self.waiting

    def teardown(self) -> None:
        """After all clients fall silent every request is answered and the group is empty, in the log too."""
        if not hasattr(self, "group"):
            return
        for _ in range(1_000):
            if self.storing:
                self.store_ends(codes.NONE)
            elif self.group.next_deadline_ms() is not None:
                self.next_deadline_comes()
            else:
                break
        assert not self.waiting
        assert self.group.state is GroupState.EMPTY
        assert not self.group.members
        if self.group.generation_id:
            assert self.stored == self.group.stored_value({})


class OffsetsMachine(RuleBasedStateMachine):
    """Commits are appended in order and acknowledged in any; what is visible follows the log."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets = GroupOffsets()
        #: Commits in the order of the log; None: a tombstone.
        self.log: list[tuple[int, dict[Key, OffsetValue] | None, set[Key]]] = []
        self.pending: dict[int, dict[Key, OffsetValue]] = {}
        self.acknowledged: set[int] = set()

    @rule(partitions=st.sets(st.integers(0, 2), min_size=1), offset=st.integers(0, 99))
    def append(self, partitions: set[int], offset: int) -> None:
        value = OffsetValue(offset=offset, leader_epoch=-1, metadata="", commit_timestamp_ms=0)
        values = {("t", partition): value for partition in partitions}
        sequence = self.offsets.begin(values)
        self.pending[sequence] = values
        self.log.append((sequence, values, set(values)))

    @precondition(lambda self: self.pending)
    @rule(choice=CHOICES, fails=st.booleans())
    def end(self, choice: int, fails: bool) -> None:
        sequence = list(self.pending)[choice % len(self.pending)]
        values = self.pending.pop(sequence)
        if fails:
            self.offsets.fail(sequence, values)
        else:
            self.offsets.complete(sequence, values)
            self.acknowledged.add(sequence)

    @rule(partitions=st.sets(st.integers(0, 2), min_size=1))
    def forget(self, partitions: set[int]) -> None:
        keys = {("t", partition) for partition in partitions}
        removed = self.offsets.remove(keys)
        assert set(removed) <= keys
        self.log.append((0, None, keys))

    @invariant()
    def visible_is_the_last_acknowledged(self) -> None:
        expected: dict[Key, OffsetValue] = {}
        for sequence, values, keys in self.log:
            if values is None:
                for key in keys:
                    expected.pop(key, None)
            elif sequence in self.acknowledged:
                expected.update(values)
        assert {key: self.offsets.get(key) for key in self.offsets.partitions()} == expected
        assert len(self.offsets) == len(expected)

    @invariant()
    def nothing_pending_is_left_behind(self) -> None:
        if not self.pending:
            assert bool(self.offsets) == bool(len(self.offsets))


TestGroup = GroupMachine.TestCase
TestGroup.settings = settings(max_examples=2 * settings().max_examples, stateful_step_count=40, deadline=None)
TestOffsets = OffsetsMachine.TestCase
TestOffsets.settings = settings(max_examples=settings().max_examples, stateful_step_count=30, deadline=None)
