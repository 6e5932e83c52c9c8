"""The group as a state machine: each state's answer to each request, rebalances, time (Kafka's GroupCoordinator)."""

from __future__ import annotations

from typing import Any

import pytest

from broker_stub.group.members import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    JoinRequest,
    JoinResult,
    Member,
    SyncResult,
    choose_protocol,
)
from broker_stub.group.state import PREVIOUS_STATES, Effects, Group, GroupState, Reply
from proto.gen import common_pb2 as codes
from tests.support.broker.group_driver import DELAY_MS, REBALANCE_MS, SESSION_MS, Driver, in_state

E, P, C, S, D = GroupState


def test_transitions_are_kafkas() -> None:
    assert {(before, after) for after, befores in PREVIOUS_STATES.items() for before in befores} == {
        (E, P), (C, P), (S, P), (P, C), (C, S), (P, E), (E, D), (P, D), (C, D), (S, D), (D, D),
    }  # fmt: skip


@pytest.mark.parametrize("before", GroupState)
@pytest.mark.parametrize("after", GroupState)
def test_other_transitions_are_refused(before: GroupState, after: GroupState) -> None:
    group = Group("g", 0)
    group.state = before
    if before in PREVIOUS_STATES[after]:
        group._transition(after)
        assert group.state is after
    else:
        with pytest.raises(AssertionError):
            group._transition(after)
        assert group.state is before


UNKNOWN, ILLEGAL, REBALANCE = codes.UNKNOWN_MEMBER_ID, codes.ILLEGAL_GENERATION, codes.REBALANCE_IN_PROGRESS
UNAVAILABLE, INCONSISTENT = codes.COORDINATOR_NOT_AVAILABLE, codes.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    ("state", "member", "generation", "heartbeat", "sync", "commit", "leave"),
    [
        (E, "a", 0, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
        (E, "", -1, UNKNOWN, UNKNOWN, codes.NONE, UNKNOWN),
        (P, "b", 1, REBALANCE, REBALANCE, codes.NONE, codes.NONE),
        (P, "b", 0, ILLEGAL, ILLEGAL, ILLEGAL, codes.NONE),
        (P, "x", 1, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
        (P, "", -1, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
        (C, "b", 1, codes.NONE, None, REBALANCE, codes.NONE),
        (C, "b", 2, ILLEGAL, ILLEGAL, ILLEGAL, codes.NONE),
        (C, "x", 0, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
        (S, "b", 1, codes.NONE, codes.NONE, codes.NONE, codes.NONE),
        (S, "b", 0, ILLEGAL, ILLEGAL, ILLEGAL, codes.NONE),
        (S, "b", -1, ILLEGAL, ILLEGAL, ILLEGAL, codes.NONE),
        (S, "x", 0, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
        (S, "", -1, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
        (D, "b", 1, UNAVAILABLE, UNAVAILABLE, UNAVAILABLE, UNAVAILABLE),
        (D, "x", 0, UNAVAILABLE, UNAVAILABLE, UNAVAILABLE, UNAVAILABLE),
    ],
)
def test_errors_by_state(
    state: GroupState,
    member: str,
    generation: int,
    heartbeat: codes.ErrorCode,
    sync: codes.ErrorCode | None,
    commit: codes.ErrorCode,
    leave: codes.ErrorCode,
) -> None:
    """UNKNOWN_MEMBER_ID has precedence over ILLEGAL_GENERATION. None: the caller waits."""
    assert in_state(state).heartbeat(member, generation) == heartbeat
    answer = in_state(state).sync(member, "t", generation)
    assert (answer.error if answer is not None else None) == sync
    assert in_state(state).commit(member, generation) == commit
    assert in_state(state).leave(member) == leave


@pytest.mark.parametrize(
    ("state", "name", "new", "kinds", "error"),
    [
        (E, "a", False, {}, UNKNOWN),
        (E, "a", True, {"protocol_type": ""}, INCONSISTENT),
        (E, "a", True, {"protocols": ()}, INCONSISTENT),
        (E, "a", True, {}, None),
        (P, "x", False, {}, UNKNOWN),
        (P, "c", True, {}, None),
        (P, "c", True, {"protocol_type": "connect"}, INCONSISTENT),
        (P, "c", True, {"protocols": (("sticky", b""),)}, INCONSISTENT),
        (P, "b", False, {"protocols": (("sticky", b""),)}, INCONSISTENT),
        (P, "x", False, {"protocol_type": "connect"}, INCONSISTENT),
        (C, "x", False, {}, UNKNOWN),
        (C, "b", False, {}, codes.NONE),
        (C, "b", False, {"protocols": (("range", b"other"),)}, None),
        (C, "c", True, {}, None),
        (S, "x", False, {}, UNKNOWN),
        (S, "b", False, {}, codes.NONE),
        (S, "b", False, {"protocols": (("range", b"other"),)}, None),
        (S, "b", False, {"protocols": (("range", b"m"), ("range", b"ignored"))}, codes.NONE),
        (S, "a", False, {}, None),
        (S, "c", True, {}, None),
        (S, "c", True, {"protocols": (("sticky", b""),)}, INCONSISTENT),
        (D, "a", False, {}, UNAVAILABLE),
        (D, "c", True, {}, UNAVAILABLE),
    ],
)
def test_joins_by_state(
    state: GroupState, name: str, new: bool, kinds: dict[str, Any], error: codes.ErrorCode | None
) -> None:
    """None: the caller waits for a rebalance."""
    driver = in_state(state)
    answer = driver.join(name, new=new, **kinds)
    assert (answer.error if answer is not None else None) == error
    if error is None:
        assert driver.group.state is P
    elif error != codes.NONE:
        assert driver.group.state is state
        assert "c" not in driver.group.members


def test_the_only_member_that_is_left_may_change_its_protocols() -> None:
    driver = in_state(S)
    assert driver.leave("b") == codes.NONE
    answer = driver.join("a", protocols=(("sticky", b""),))
    assert (answer.error if answer is not None else None) == codes.NONE
    assert driver.group.protocol == "sticky"


def test_a_group_forms() -> None:
    """Two join within the initial delay, the leader assigns, what it assigned is stored before anyone hears."""
    driver = Driver()
    protocols = (("range", b"ra"), ("sticky", b"sa"))
    assert driver.join("a", "join a", new=True, protocols=protocols) is None
    driver.pass_ms(1_000)
    assert driver.join("b", "join b", new=True, protocols=(("range", b"rb"),)) is None
    driver.pass_ms(DELAY_MS - 1_000)
    assert driver.answers == {}
    driver.pass_ms(DELAY_MS)
    assert driver.answers == {
        "join a": JoinResult(codes.NONE, "a", 1, "consumer", "range", "a", (("a", b"ra"), ("b", b"rb"))),
        "join b": JoinResult(codes.NONE, "b", 1, "consumer", "range", "a"),
    }
    assert driver.sync("b", "sync b") is None
    assert driver.sync("a", "sync a", a=b"0", stranger=b"9") is None
    [stored] = driver.stores
    assert [(m.member_id, m.assignment) for m in stored.members] == [("a", b"0"), ("b", b"")]
    assert driver.group.state is C
    driver.stored()
    assert driver.answers["sync a"] == SyncResult(codes.NONE, b"0")
    assert driver.answers["sync b"] == SyncResult(codes.NONE, b"")
    assert driver.group.state is S


def test_a_failed_store_resets_the_assignment_and_rebalances() -> None:
    driver = in_state(C)
    driver.sync("a", "sync a", a=b"0", b=b"1")
    driver.stored(codes.COORDINATOR_NOT_AVAILABLE)
    assert driver.answers["sync a"] == SyncResult(codes.COORDINATOR_NOT_AVAILABLE)
    assert driver.group.state is P
    assert all(member.assignment == b"" for member in driver.group.members.values())


def test_a_store_that_ends_late_changes_nothing() -> None:
    """Somebody joined meanwhile: the assignment in the log is of a generation that is over."""
    driver = in_state(C)
    driver.sync("a", "sync a", a=b"0")
    driver.join("c", new=True)
    assert driver.answers["sync a"] == SyncResult(REBALANCE)
    driver.stored(generation=1)
    assert driver.group.state is P
    driver.join("a")
    driver.join("b")
    assert (driver.group.state, driver.group.generation_id) == (C, 2)
    driver.sync("a", "again", a=b"new")
    driver.stored(generation=1)
    assert driver.group.state is C
    driver.stored(generation=2)
    assert driver.answers["again"] == SyncResult(codes.NONE, b"new")


def test_the_leader_stores_one_assignment_a_generation() -> None:
    """A leader that asks again while the first is on its way: a second one would be what the log ends with."""
    driver = in_state(C)
    driver.sync("a", "first", a=b"1")
    driver.sync("a", "second", a=b"2")
    assert len(driver.stores) == 1
    assert driver.answers["first"] == SyncResult(REBALANCE)
    driver.stored()
    assert driver.answers["second"] == SyncResult(codes.NONE, b"1")


def test_members_that_do_not_join_again_are_dropped_at_the_rebalance_timeout() -> None:
    driver = in_state(P)
    for _ in range(REBALANCE_MS // 5_000 - 1):
        driver.pass_ms(5_000)
        assert driver.heartbeat("b") == REBALANCE
    assert driver.group.state is P
    driver.pass_ms(5_000)
    assert driver.group.state is C
    assert list(driver.group.members) == ["a"]
    assert driver.answers["a rejoins"].generation_id == 2


def test_the_longest_rebalance_timeout_counts() -> None:
    driver = in_state(S, size=1)
    driver.join("b", new=True, rebalance_ms=2 * REBALANCE_MS)
    for _ in range(2 * REBALANCE_MS // 5_000 - 1):
        driver.pass_ms(5_000)
        driver.heartbeat("a")
    assert driver.group.state is P
    driver.pass_ms(5_000)
    assert driver.group.leader == "b"


@pytest.mark.parametrize("sent", [0, -1])
def test_without_a_rebalance_timeout_the_session_timeout_is_it(sent: int) -> None:
    driver = Driver()
    driver.join("a", new=True, rebalance_ms=sent)
    assert driver.group.members["a"].rebalance_timeout_ms == SESSION_MS


def test_a_leader_that_leaves_is_replaced() -> None:
    driver = in_state(S)
    driver.leave("a")
    assert driver.group.leader == "b"
    answer = driver.join("b")
    assert answer is not None
    assert answer.leader == "b"
    assert answer.members == (("b", b"m"),)


def test_the_last_to_leave_empties_the_group() -> None:
    driver = in_state(S, size=1)
    driver.stores.clear()
    assert driver.leave("a") == codes.NONE
    assert (driver.group.state, driver.group.generation_id, driver.group.leader) == (E, 2, "")
    assert driver.stores == [driver.group.stored_value({})]
    assert driver.group.next_deadline_ms() is None
    driver.stored()
    assert driver.group.state is E


def test_a_rebalance_lasts_as_long_as_the_member_that_begins_it_wants_now() -> None:
    driver = in_state(S)
    assert driver.join("a", rebalance_ms=2 * REBALANCE_MS) is None
    while driver.now_ms < REBALANCE_MS + 2 * SESSION_MS:
        driver.pass_ms(SESSION_MS // 2)
        assert driver.heartbeat("b") == REBALANCE
    assert driver.group.state is P


def test_whoever_leaves_while_waiting_is_answered() -> None:
    driver = in_state(P)
    driver.leave("a")
    assert driver.answers["a rejoins"].error == UNKNOWN
    driver = in_state(C)
    driver.sync("b", "sync b")
    driver.leave("b")
    assert driver.answers["sync b"] == SyncResult(UNKNOWN)


def test_a_caller_that_asks_again_replaces_the_earlier_one() -> None:
    driver = in_state(P)
    driver.join("a", token="later")
    assert driver.answers["a rejoins"].error == REBALANCE
    driver.join("b")
    assert driver.answers["later"].error == codes.NONE


def test_sessions_end_without_a_sign_of_life() -> None:
    driver = in_state(S)
    driver.pass_ms(SESSION_MS - 1)
    assert driver.heartbeat("a") == codes.NONE
    assert driver.commit("b", 0) == ILLEGAL
    driver.pass_ms(1)
    assert list(driver.group.members) == ["a"]
    assert driver.group.state is P


def test_a_commit_is_a_sign_of_life() -> None:
    driver = in_state(S, size=1)
    driver.pass_ms(SESSION_MS - 1)
    driver.commit("a", 1)
    driver.pass_ms(SESSION_MS - 1)
    assert driver.group.state is S


def test_who_waits_does_not_expire() -> None:
    driver = in_state(P)
    driver.pass_ms(SESSION_MS * 2)
    assert "a" in driver.group.members
    driver = in_state(C)
    driver.sync("b", "sync b")
    driver.pass_ms(SESSION_MS)
    assert list(driver.group.members) == ["b"]
    assert driver.answers["sync b"] == SyncResult(REBALANCE)


def test_a_new_member_waits_five_minutes_at_most() -> None:
    driver = in_state(S, size=1)
    driver.join("b", "join b", new=True, rebalance_ms=NEW_MEMBER_JOIN_TIMEOUT_MS * 2)
    while driver.now_ms < NEW_MEMBER_JOIN_TIMEOUT_MS + 2 * DELAY_MS - 5_000:
        driver.pass_ms(5_000)
        driver.heartbeat("a")
    assert "join b" not in driver.answers
    driver.pass_ms(5_000)
    assert driver.answers["join b"].error == UNKNOWN


def test_members_that_do_not_sync_are_given_up() -> None:
    """A leader that beats but never assigns would hold everyone for ever."""
    driver = in_state(C)
    driver.sync("b", "sync b")
    for _ in range(REBALANCE_MS // 5_000):
        driver.pass_ms(5_000)
        driver.heartbeat("a")
    assert driver.answers["sync b"] == SyncResult(REBALANCE)
    assert list(driver.group.members) == ["b"]
    assert driver.group.state is P


def test_the_initial_delay_grows_while_members_come_but_not_for_ever() -> None:
    """A first generation waits at most the rebalance timeout, in steps of the initial delay."""
    driver = Driver()
    driver.join("a", new=True, rebalance_ms=8_000)
    driver.pass_ms(2_000)
    driver.join("b", new=True, rebalance_ms=8_000)
    driver.pass_ms(1_000)
    assert driver.group.next_deadline_ms() == 6_000
    driver.pass_ms(2_000)
    driver.join("c", new=True, rebalance_ms=8_000)
    driver.pass_ms(1_000)
    assert driver.group.next_deadline_ms() == 8_000
    driver.join("d", new=True, rebalance_ms=8_000)
    driver.pass_ms(2_000)
    assert driver.group.state is C
    assert list(driver.group.members) == ["a", "b", "c", "d"]


def test_a_group_that_all_had_left_waits_once_for_those_who_come_again() -> None:
    """Its members are expected, as Kafka has it: only a first generation waits longer for each."""
    driver = in_state(S, size=1)
    driver.leave("a")
    assert (driver.group.state, driver.group.generation_id) == (E, 2)
    driver.join("b", new=True)
    driver.pass_ms(DELAY_MS - 1)
    driver.join("c", new=True)
    driver.pass_ms(1)
    assert (driver.group.state, list(driver.group.members)) == (C, ["b", "c"])


def test_without_initial_delay_the_first_join_is_a_generation() -> None:
    driver = Driver(delay_ms=0)
    answer = driver.join("a", new=True)
    assert answer is not None
    assert answer.generation_id == 1


def test_all_leaving_during_the_initial_delay_leaves_an_empty_group() -> None:
    driver = Driver()
    driver.join("a", "join a", new=True)
    driver.leave("a")
    assert driver.answers["join a"].error == UNKNOWN
    driver.pass_ms(DELAY_MS)
    assert (driver.group.state, driver.group.generation_id) == (E, 1)


def test_a_new_member_whose_caller_is_gone_leaves() -> None:
    driver = in_state(S, size=1)
    driver.join("b", "join b", new=True)
    driver.take(driver.group.abandon("join b", driver.now_ms))
    assert list(driver.group.members) == ["a"]
    driver.join("a", "join a")
    driver.take(driver.group.abandon("join a", driver.now_ms))
    assert list(driver.group.members) == ["a"]


def test_a_member_whose_call_to_join_again_is_dropped_stays() -> None:
    """It knows its id, and calls again."""
    driver = in_state(P)
    caller = driver.group.members["a"].join_token
    assert caller is not None
    driver.take(driver.group.abandon(caller, driver.now_ms))
    assert list(driver.group.members) == ["a", "b"]
    assert driver.heartbeat("a") == REBALANCE


@pytest.mark.parametrize("state", [P, C])
def test_unloading_answers_all_who_wait(state: GroupState) -> None:
    driver = in_state(state)
    if state is C:
        driver.sync("b", "waiting")
    else:
        driver.join("c", "waiting", new=True)
    effects = driver.group.unload(codes.NOT_COORDINATOR)
    driver.take(effects)
    assert driver.answers["waiting"].error == codes.NOT_COORDINATOR
    assert driver.group.state is D
    assert driver.group.next_deadline_ms() is None
    driver.stored()
    assert driver.group.state is D


def test_a_stored_group_is_restored() -> None:
    driver = in_state(S, size=3)
    [value] = driver.stores
    restored = Group.restore("g", value, DELAY_MS)
    assert restored.describe() == driver.group.describe()
    assert restored.stored_value({n: m.assignment for n, m in restored.members.items()}) == value
    assert restored.next_deadline_ms() is None
    restored.start_sessions(100)
    assert restored.next_deadline_ms() == 100 + SESSION_MS
    assert restored.heartbeat("b", 1, 100) == (codes.NONE, Effects([], None))
    assert restored.sync("b", 1, {}, "t", 100).replies == [Reply("t", SyncResult(codes.NONE, b"b"))]


def test_starting_sessions_leaves_those_that_run() -> None:
    """A member may join between a load and the start of the sessions."""
    driver = in_state(S, size=1)
    driver.join("b", new=True)
    deadline_ms = driver.group.members["b"].session_deadline_ms
    driver.take(driver.group.start_sessions(driver.now_ms))
    assert driver.group.members["b"].session_deadline_ms == deadline_ms


def members(*preferences: str) -> dict[str, Member]:
    """Members m0, m1, ...; each letter is a protocol, most wanted first."""
    return {
        f"m{n}": Member(f"m{n}", JoinRequest("", "", 1, 1, "t", tuple((letter, b"") for letter in letters)))
        for n, letters in enumerate(preferences)
    }


@pytest.mark.parametrize(
    ("preferences", "chosen"),
    [
        (("ab",), "a"),
        (("ab", "ba", "ba"), "b"),
        (("ab", "ba"), "a"),
        (("ba", "ab"), "b"),
        (("abc", "cb", "bc"), "b"),
        (("xa", "ya", "a"), "a"),
        # Two prefer b of what all have; x has no votes.
        (("xba", "xba", "ab"), "b"),
    ],
)
def test_protocols_are_voted_for(preferences: tuple[str, ...], chosen: str) -> None:
    assert choose_protocol(members(*preferences), "m0") == chosen


@pytest.mark.parametrize("request_", ["sync", "heartbeat", "leave", "commit", "join"])
def test_a_session_that_has_run_out_ends_before_the_request_is_heard(request_: str) -> None:
    """The timer may be late: a member must not come back to life by its own late request."""
    driver = in_state(S)
    driver.now_ms += SESSION_MS + 1
    if request_ == "sync":
        assert driver.sync("b", "late").error == UNKNOWN
    elif request_ == "join":
        answer = driver.join("b")
        assert answer is not None
        assert answer.error == UNKNOWN
    elif request_ == "commit":
        assert driver.commit("b", 1) == UNKNOWN
    else:
        assert getattr(driver, request_)("b") == UNKNOWN
    assert driver.group.members.keys().isdisjoint({"a", "b"})


def test_a_sync_of_a_stable_group_is_a_sign_of_life() -> None:
    driver = in_state(S)
    driver.pass_ms(SESSION_MS - 1)
    assert driver.heartbeat("a", 1) == codes.NONE
    driver.sync("b", "again", 1)
    driver.pass_ms(SESSION_MS - 1)
    assert "b" in driver.group.members


def test_the_time_to_sync_ends_with_its_generation() -> None:
    driver = in_state(C)
    assert driver.group._sync_deadline_ms is not None
    driver.join("new", "token", new=True)
    assert driver.group.state is P
    assert driver.group._sync_deadline_ms is None
