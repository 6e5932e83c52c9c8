"""One consumer group: membership, generations, rebalances (Kafka's GroupCoordinator, dynamic members). Pure.

A token identifies a waiting caller. Each token gets exactly one `Reply`, in the effects of this or a later call.
Group metadata takes effect only when it is in the log: the effects contain the value to store, and `Group.stored` takes
the outcome.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from broker_stub.group.members import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    NO_MEMBER_ID,
    JoinRequest,
    JoinResult,
    Member,
    SyncResult,
    choose_protocol,
    common_protocols,
)
from broker_stub.group.messages import GroupValue
from proto.gen import common_pb2 as codes


class GroupState(Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


#: For each state, the states from which it may be entered.
PREVIOUS_STATES: Mapping[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}


class Reply(NamedTuple):
    """The response for the caller with this ``token``."""

    token: object
    result: JoinResult | SyncResult


class Effects(NamedTuple):
    """What the caller must do after a call: send replies, and append group metadata to the log unless None."""

    replies: list[Reply]
    store: GroupValue | None


class Group:
    """A group. Times are ms of one monotonic clock; every method with ``now_ms`` first handles expired deadlines."""

    def __init__(self, group_id: str, initial_rebalance_delay_ms: int) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation_id = 0
        self.protocol_type = ""
        #: Empty string in state Empty and before the first rebalance is complete.
        self.protocol = ""
        #: Member id; empty if and only if there are no members.
        self.leader = NO_MEMBER_ID
        self.members: dict[str, Member] = {}
        self._initial_rebalance_delay_ms = initial_rebalance_delay_ms
        #: End of the join phase, in PreparingRebalance.
        self._join_deadline_ms: int | None = None
        #: During the initial rebalance delay: how much longer it may still be extended, ms. Else None.
        self._initial_remaining_ms: int | None = None
        #: Whether a member joined during the initial delay, which extends it.
        self._joined_during_delay = False
        #: Members that have not synced since the last rebalance; removed at ``_sync_deadline_ms``, if that is set.
        self._unsynced: set[str] = set()
        self._sync_deadline_ms: int | None = None
        #: The assignment being appended to the log, for the current generation.
        self._storing: dict[str, bytes] | None = None
        self._replies: list[Reply] = []
        self._store: GroupValue | None = None

    @classmethod
    def restore(cls, group_id: str, value: GroupValue, initial_rebalance_delay_ms: int) -> Group:
        """A group from the log: Stable, or Empty without members. The caller must then call `start_sessions`."""
        group = cls(group_id, initial_rebalance_delay_ms)
        group.state = GroupState.STABLE if value.members else GroupState.EMPTY
        group.generation_id = value.generation_id
        group.protocol_type, group.protocol, group.leader = value.protocol_type, value.protocol, value.leader
        group.members = {member.member_id: Member.restore(member) for member in value.members}
        return group

    # -- requests -------------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, new_member_id: str, token: object, now_ms: int) -> Effects:
        """JoinGroup. ``new_member_id``: the id for a member that has none.

        Errors: COORDINATOR_NOT_AVAILABLE (Dead), INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID.
        """
        self._run_due(now_ms)
        if error := self._join_error(request):
            self._replies.append(Reply(token, JoinResult(error, request.member_id)))
        elif request.member_id == NO_MEMBER_ID:
            self._add(Member(new_member_id, request), request.protocol_type, token, now_ms)
        else:
            self._rejoin(self.members[request.member_id], request, token, now_ms)
        return self._finish(now_ms)

    def sync(
        self,
        member_id: str,
        generation_id: int,
        assignments: Mapping[str, bytes],
        token: object,
        now_ms: int,
    ) -> Effects:
        """SyncGroup. ``assignments`` are used from the leader only; members not in them get an empty one.

        Errors: COORDINATOR_NOT_AVAILABLE (Dead), UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS.
        """
        self._run_due(now_ms)
        error = self._member_error(member_id, generation_id)
        if not error and self.state is GroupState.PREPARING_REBALANCE:
            error = codes.REBALANCE_IN_PROGRESS
        if error:
            self._replies.append(Reply(token, SyncResult(error)))
            return self._finish(now_ms)
        member = self.members[member_id]
        self._synced(member_id)
        if self.state is GroupState.STABLE:
            self._replies.append(Reply(token, SyncResult(codes.NONE, member.assignment)))
            member.restart_session(now_ms)
            return self._finish(now_ms)
        # The member sent SyncGroup again: its earlier request, if anyone still waits for it, must be retried.
        self._answer_sync(member, SyncResult(codes.REBALANCE_IN_PROGRESS))
        member.sync_token = token
        if member_id == self.leader and self._storing is None:
            self._storing = {each: assignments.get(each, b"") for each in self.members}
            self._store = self.stored_value(self._storing)
        return self._finish(now_ms)

    def heartbeat(self, member_id: str, generation_id: int, now_ms: int) -> tuple[codes.ErrorCode, Effects]:
        """Heartbeat. Errors: COORDINATOR_NOT_AVAILABLE (Dead), UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION,
        REBALANCE_IN_PROGRESS (the member must join again)."""
        self._run_due(now_ms)
        error = self._member_error(member_id, generation_id)
        if not error:
            self.members[member_id].restart_session(now_ms)
            if self.state is GroupState.PREPARING_REBALANCE:
                error = codes.REBALANCE_IN_PROGRESS
        return error, self._finish(now_ms)

    def leave(self, member_id: str, now_ms: int) -> tuple[codes.ErrorCode, Effects]:
        """LeaveGroup. Errors: COORDINATOR_NOT_AVAILABLE (Dead), UNKNOWN_MEMBER_ID."""
        self._run_due(now_ms)
        error: codes.ErrorCode = codes.NONE
        if self.state is GroupState.DEAD:
            error = codes.COORDINATOR_NOT_AVAILABLE
        elif member_id not in self.members:
            error = codes.UNKNOWN_MEMBER_ID
        else:
            self._remove_and_rebalance(self.members[member_id], now_ms)
        return error, self._finish(now_ms)

    def check_commit(
        self, member_id: str, generation_id: int, now_ms: int
    ) -> tuple[codes.ErrorCode, Effects]:
        """Whether this caller may commit offsets now; a commit by a member is a sign of life.

        Generation -1 may while the group is Empty. COORDINATOR_NOT_AVAILABLE (Dead), UNKNOWN_MEMBER_ID,
        ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS (the member does not know its partitions yet).
        """
        self._run_due(now_ms)
        if self.state is GroupState.EMPTY and generation_id < 0:
            return codes.NONE, self._finish(now_ms)
        error = self._member_error(member_id, generation_id)
        if not error:
            self.members[member_id].restart_session(now_ms)
            if self.state is GroupState.COMPLETING_REBALANCE:
                error = codes.REBALANCE_IN_PROGRESS
        return error, self._finish(now_ms)

    # -- other events ---------------------------------------------------------------------------------------

    def stored(self, generation_id: int, error: codes.ErrorCode, now_ms: int) -> Effects:
        """What became of the metadata that was to be stored; of an older generation: of no interest."""
        self._run_due(now_ms)
        assignment = self._storing
        if assignment is None or generation_id != self.generation_id:
            return self._finish(now_ms)
        self._storing = None
        if error:
            self._reset_assignment(error, now_ms)
            self._prepare_rebalance(now_ms)
            return self._finish(now_ms)
        self._transition(GroupState.STABLE)
        for member in self.members.values():
            member.assignment = assignment[member.member_id]
            if self._answer_sync(member, SyncResult(codes.NONE, member.assignment)):
                member.restart_session(now_ms)
        return self._finish(now_ms)

    def abandon(self, token: object, now_ms: int) -> Effects:
        """The caller with this token disconnected. If it is a new member, remove it: no client knows its id."""
        for member in self.members.values():
            if member.is_new and member.join_token is token:
                self._remove_and_rebalance(member, now_ms)
                break
        return self._finish(now_ms)

    def start_sessions(self, now_ms: int) -> Effects:
        """The group was loaded: start the session timeouts of its members."""
        for member in self.members.values():
            if member.session_deadline_ms is None:
                member.restart_session(now_ms)
        return self._finish(now_ms)

    def expire(self, now_ms: int) -> Effects:
        """Handle expired deadlines: sessions, join phase, sync phase."""
        return self._finish(now_ms)

    def unload(self, error: codes.ErrorCode) -> Effects:
        """This broker no longer coordinates the group: state Dead; waiting requests get ``error``."""
        self._transition(GroupState.DEAD)
        self._join_deadline_ms = self._sync_deadline_ms = self._storing = self._store = None
        for member in self.members.values():
            self._answer_join(member, JoinResult(error, member.member_id))
            self._answer_sync(member, SyncResult(error))
        return self._drain()

    def next_deadline_ms(self) -> int | None:
        """When `expire` must be called next; None: there is no deadline."""
        if self.state is GroupState.DEAD:
            return None
        deadlines = [member.expires_at_ms() for member in self.members.values()]
        deadlines += [self._join_deadline_ms, self._sync_deadline_ms]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def stored_value(self, assignments: Mapping[str, bytes]) -> GroupValue:
        """The group as stored in the log, with these assignments."""
        return GroupValue(
            protocol_type=self.protocol_type,
            generation_id=self.generation_id,
            protocol=self.protocol,
            leader=self.leader,
            members=tuple(m.stored(assignments.get(m.member_id, b"")) for m in self.members.values()),
        )

    def describe(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "state": self.state.value,
            "generation_id": self.generation_id,
            "protocol_type": self.protocol_type,
            "protocol": self.protocol,
            "leader": self.leader,
            "members": {member_id: member.describe() for member_id, member in self.members.items()},
        }

    # -- checks ---------------------------------------------------------------------------------------------

    def _member_error(self, member_id: str, generation_id: int) -> codes.ErrorCode:
        if self.state is GroupState.DEAD:
            return codes.COORDINATOR_NOT_AVAILABLE
        if member_id not in self.members:
            return codes.UNKNOWN_MEMBER_ID
        return codes.NONE if generation_id == self.generation_id else codes.ILLEGAL_GENERATION

    def _join_error(self, request: JoinRequest) -> codes.ErrorCode:
        if self.state is GroupState.DEAD:
            return codes.COORDINATOR_NOT_AVAILABLE
        if not self._supports(request):
            return codes.INCONSISTENT_GROUP_PROTOCOL
        if request.member_id != NO_MEMBER_ID and request.member_id not in self.members:
            return codes.UNKNOWN_MEMBER_ID
        return codes.NONE

    def _supports(self, request: JoinRequest) -> bool:
        """Whether all members, including this one, have a protocol in common."""
        if not request.protocol_type or not request.protocols:
            return False
        others = [member for each, member in self.members.items() if each != request.member_id]
        if not others:
            return not self.members or request.protocol_type == self.protocol_type
        if request.protocol_type != self.protocol_type:
            return False
        return not common_protocols(others).isdisjoint(name for name, _ in request.protocols)

    # -- joining --------------------------------------------------------------------------------------------

    def _add(self, member: Member, protocol_type: str, token: object, now_ms: int) -> None:
        if self.state is GroupState.PREPARING_REBALANCE and self.generation_id == 0:
            self._joined_during_delay = True
        if not self.members:
            self.protocol_type, self.leader = protocol_type, member.member_id
        self.members[member.member_id] = member
        member.join_token = token
        member.session_deadline_ms = now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS
        self._prepare_rebalance(now_ms)

    def _rejoin(self, member: Member, request: JoinRequest, token: object, now_ms: int) -> None:
        unchanged = member.supports_exactly(request.protocols)
        if unchanged and (
            self.state is GroupState.COMPLETING_REBALANCE
            or (self.state is GroupState.STABLE and member.member_id != self.leader)
        ):
            # The response to its earlier join was lost. The leader's join in Stable, however, requests a rebalance.
            self._replies.append(Reply(token, self._join_result(member)))
            member.restart_session(now_ms)
            return
        self._answer_join(member, JoinResult(codes.REBALANCE_IN_PROGRESS, member.member_id))
        member.update(request)
        member.join_token = token
        self._prepare_rebalance(now_ms)

    def _join_result(self, member: Member) -> JoinResult:
        is_leader = member.member_id == self.leader
        return JoinResult(
            codes.NONE,
            member.member_id,
            self.generation_id,
            self.protocol_type,
            self.protocol,
            self.leader,
            tuple((m.member_id, m.protocols[self.protocol]) for m in self.members.values())
            if is_leader
            else (),
        )

    # -- rebalancing ----------------------------------------------------------------------------------------

    def _rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def _prepare_rebalance(self, now_ms: int) -> None:
        """Start a rebalance, unless one is in the join phase already."""
        if self.state is GroupState.PREPARING_REBALANCE:
            return
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._reset_assignment(codes.REBALANCE_IN_PROGRESS, now_ms)
        if self._storing is not None:
            self._storing = self._store = None
        self._sync_deadline_ms = None
        timeout_ms = self._rebalance_timeout_ms()
        if self.state is GroupState.EMPTY:
            self._joined_during_delay = False
            self._initial_remaining_ms = max(timeout_ms - self._initial_rebalance_delay_ms, 0)
            timeout_ms = self._initial_rebalance_delay_ms
        self._join_deadline_ms = now_ms + timeout_ms
        self._transition(GroupState.PREPARING_REBALANCE)

    def _joins_over(self, now_ms: int) -> bool:
        """Whether the join phase is over. Extends the initial delay while members keep joining."""
        if self._join_deadline_ms is None:
            return False
        if self._initial_remaining_ms is None:
            all_joined = all(member.join_token is not None for member in self.members.values())
            return all_joined or self._join_deadline_ms <= now_ms
        if self._join_deadline_ms > now_ms:
            return False
        if self._joined_during_delay and self._initial_remaining_ms:
            delay_ms = min(self._initial_rebalance_delay_ms, self._initial_remaining_ms)
            self._joined_during_delay = False
            self._initial_remaining_ms -= delay_ms
            self._join_deadline_ms = now_ms + delay_ms
            return delay_ms == 0
        return True

    def _complete_join(self, now_ms: int) -> None:
        self._join_deadline_ms = self._initial_remaining_ms = None
        for member in [m for m in self.members.values() if m.join_token is None]:
            self._remove(member)
        self.generation_id += 1
        if not self.members:
            self.protocol = ""
            self._transition(GroupState.EMPTY)
            self._store = self.stored_value({})
            return
        self.protocol = choose_protocol(self.members, self.leader)
        self._transition(GroupState.COMPLETING_REBALANCE)
        self._unsynced = set(self.members)
        self._sync_deadline_ms = now_ms + self._rebalance_timeout_ms()
        for member in self.members.values():
            self._answer_join(member, self._join_result(member))
            member.is_new = False
            member.restart_session(now_ms)

    def _reset_assignment(self, error: codes.ErrorCode, now_ms: int) -> None:
        for member in self.members.values():
            member.assignment = b""
            if self._answer_sync(member, SyncResult(error)):
                member.restart_session(now_ms)

    def _synced(self, member_id: str) -> None:
        self._unsynced.discard(member_id)
        if not self._unsynced:
            self._sync_deadline_ms = None

    def _remove(self, member: Member) -> None:
        self._answer_join(member, JoinResult(codes.UNKNOWN_MEMBER_ID, NO_MEMBER_ID))
        self._answer_sync(member, SyncResult(codes.UNKNOWN_MEMBER_ID))
        del self.members[member.member_id]
        self._synced(member.member_id)
        if member.member_id == self.leader:
            self.leader = next(iter(self.members), NO_MEMBER_ID)

    def _remove_and_rebalance(self, member: Member, now_ms: int) -> None:
        self._remove(member)
        self._prepare_rebalance(now_ms)

    # -- deadlines, replies, effects --------------------------------------------------------------------------

    def _run_due(self, now_ms: int) -> None:
        """Handle expired deadlines until none is left; handling one may cause the next."""
        while self.state is not GroupState.DEAD:
            for member in list(self.members.values()):
                expires_at_ms = member.expires_at_ms()
                if expires_at_ms is not None and expires_at_ms <= now_ms:
                    self._remove_and_rebalance(member, now_ms)
            if self._joins_over(now_ms):
                self._complete_join(now_ms)
            elif self._sync_deadline_ms is not None and self._sync_deadline_ms <= now_ms:
                for member in [self.members[member_id] for member_id in sorted(self._unsynced)]:
                    self._remove(member)
                self._prepare_rebalance(now_ms)
            else:
                return

    def _finish(self, now_ms: int) -> Effects:
        self._run_due(now_ms)
        return self._drain()

    def _drain(self) -> Effects:
        effects = Effects(self._replies, self._store)
        self._replies, self._store = [], None
        return effects

    def _transition(self, target: GroupState) -> None:
        assert self.state in PREVIOUS_STATES[target], (self.group_id, self.state, target)
        self.state = target

    def _answer_join(self, member: Member, result: JoinResult) -> bool:
        if member.join_token is None:
            return False
        self._replies.append(Reply(member.join_token, result))
        member.join_token = None
        return True

    def _answer_sync(self, member: Member, result: SyncResult) -> bool:
        if member.sync_token is None:
            return False
        self._replies.append(Reply(member.sync_token, result))
        member.sync_token = None
        return True
