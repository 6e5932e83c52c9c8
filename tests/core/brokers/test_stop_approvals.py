"""Approvals to stop: recorded for one incarnation, only on the grounds they were given on, and until withdrawn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core.brokers.stop_approvals import standing
from controller.core.events import Event, EventKind
from controller.core.handlers import not_controller
from controller.core.model import StopApproval
from controller.core.records import BrokerChange
from controller.core.requests.errors import ErrorCode
from controller.core.requests.operator import ApproveStop, WithdrawStopApproval
from controller.core.znode_paths import APPROVALS
from tests.support.core.harness import Fate, MachineHarness
from tests.support.core.world import World

NOBODY: frozenset[tuple[int, int]] = frozenset()


def rig_of(*broker_ids: int) -> MachineHarness:
    rig = MachineHarness.active(World(*broker_ids))
    rig.forget()
    return rig


def epoch(rig: MachineHarness, broker_id: int) -> int:
    return rig.world.brokers[broker_id].epoch


def approve(rig: MachineHarness, *broker_ids: int, **changes: Any) -> Any:
    """As somebody does who judged with what stands now."""
    now = standing(rig.cluster.brokers, rig.cluster.approvals)
    request = ApproveStop(
        {b: epoch(rig, b) for b in broker_ids},
        frozenset((b, a.broker_epoch) for b, a in now.items()),
        "new kernel",
        "ann",
        1_700,
    )
    (reply,) = rig.ask(replace(request, **changes))
    return reply


def withdraw(rig: MachineHarness, *broker_ids: int, author: str = "bob") -> Any:
    (reply,) = rig.ask(WithdrawStopApproval(broker_ids, "not today", author))
    return reply


def standing_ids(rig: MachineHarness) -> list[int]:
    return list(standing(rig.cluster.brokers, rig.cluster.approvals))


def test_it_is_recorded_with_author_reason_and_the_incarnation() -> None:
    rig = rig_of(1, 2)
    reply = approve(rig, 1)
    approved = StopApproval(epoch(rig, 1), "new kernel", "ann", 1_700)
    assert reply.error is ErrorCode.NONE
    assert reply.approvals == {1: approved}
    assert rig.world.nodes[APPROVALS].value == {1: approved}
    assert rig.recorded(BrokerChange) == [BrokerChange(1, "stop_approved", reason="ann: new kernel")]


def test_the_next_controller_knows_it() -> None:
    rig = rig_of(1, 2)
    approve(rig, 1)
    assert standing_ids(MachineHarness(rig.world, epoch=2).failover()) == [1]


def test_an_unreadable_record_is_shown_and_never_overwritten() -> None:
    rig = rig_of(1)
    approve(rig, 1)
    rig.world.damage(APPROVALS, "field approvals: expected object")
    successor = MachineHarness(rig.world, epoch=2).failover()
    assert standing_ids(successor) == []
    assert successor.cluster.problems == {APPROVALS: "field approvals: expected object"}
    reply = approve(successor, 1)
    assert (reply.error, reply.message) == (
        ErrorCode.UNKNOWN_SERVER_ERROR,
        f"{APPROVALS}: field approvals: expected object",
    )
    assert successor.commits() == []
    assert standing_ids(successor) == []


def test_it_is_void_once_the_broker_is_gone_or_back() -> None:
    rig = rig_of(1, 2, 3)
    approve(rig, 1)
    approve(rig, 2)
    rig.world.bounce(1)
    rig.world.broker_down(2)
    rig.run()
    assert standing_ids(rig) == []
    rig.world.broker_up(2)
    rig.run()
    assert standing_ids(rig) == []
    # What is void goes with the next write.
    assert list(approve(rig, 3).approvals) == [3]
    assert list(rig.world.nodes[APPROVALS].value) == [3]


def test_a_withdrawal_leaves_what_is_stored_and_was_not_known() -> None:
    rig = rig_of(1, 2)
    approve(rig, 1)
    theirs = StopApproval(epoch(rig, 2), "by hand", "cleo", 1)
    stored = rig.world.nodes[APPROVALS]
    rig.world.nodes[APPROVALS] = replace(stored, value={**stored.value, 2: theirs})
    assert withdraw(rig, 1).approvals == {2: theirs}


def test_what_does_not_stand_any_more_is_not_recorded_as_withdrawn() -> None:
    rig = rig_of(1, 2)
    approve(rig, 1)
    approve(rig, 2)
    rig.world.bounce(1)
    rig.run()
    rig.forget()
    assert list(withdraw(rig, 1, 2).approvals) == []
    assert [(c.broker_id, c.to) for c in rig.recorded(BrokerChange)] == [(2, "stop_approval_withdrawn")]


def test_one_that_stands_stays_as_it_is() -> None:
    rig = rig_of(1, 2)
    approve(rig, 1)
    rig.forget()
    reply = approve(rig, 1, author="bob", at_ms=2_000)
    assert reply.approvals[1].author == "ann"
    assert rig.commits() == []


def test_two_who_judged_alike_do_not_both_get_a_yes() -> None:
    """The second one counted on a broker that is approved to stop meanwhile."""
    rig = rig_of(1, 2)
    first = ApproveStop({1: epoch(rig, 1)}, NOBODY, "r", "ann", 1)
    second = ApproveStop({2: epoch(rig, 2)}, NOBODY, "r", "bob", 1)
    yes, no = rig.ask(first, second)
    assert yes.error is ErrorCode.NONE
    assert no.error is ErrorCode.OPERATION_NOT_ATTEMPTED
    assert no.message == "the approvals have changed since the check, now those of brokers 1: check again"
    assert standing_ids(rig) == [1]
    assert rig.rejects() == ["OPERATION_NOT_ATTEMPTED"]
    approve(rig, 2)
    assert "of brokers 1, 2: check again" in rig.ask(second)[0].message
    withdraw(rig, 1, 2)
    (gone,) = rig.ask(ApproveStop({2: epoch(rig, 2)}, frozenset({(1, epoch(rig, 1))}), "r", "bob", 1))
    assert "now those of brokers none" in gone.message


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"brokers": {9: 1}}, ErrorCode.BROKER_NOT_AVAILABLE, "broker 9 is not registered any more"),
        ({"brokers": {1: 3}}, ErrorCode.STALE_BROKER_EPOCH, "broker 1 was checked with epoch 3, and is back"),
        ({"author": " "}, ErrorCode.INVALID_REQUEST, "reason and author: must both be given"),
        ({"reason": ""}, ErrorCode.INVALID_REQUEST, "reason and author: must both be given"),
    ],
)
def test_an_approval_that_would_not_hold_is_refused(
    changes: dict[str, Any], error: ErrorCode, said: str
) -> None:
    rig = rig_of(1)
    reply = approve(rig, 1, **changes)
    assert reply.error is error
    assert said in reply.message
    assert rig.commits() == []
    assert withdraw(rig, 1, author="").error is ErrorCode.INVALID_REQUEST


def test_what_was_overridden_is_kept_but_not_without_end() -> None:
    rig = rig_of(1)
    reply = approve(rig, 1, overridden=tuple(f"reason {n}" for n in range(8)))
    assert reply.approvals[1].overridden == (*(f"reason {n}" for n in range(5)), "and 3 more")


def test_it_is_withdrawn() -> None:
    rig = rig_of(1, 2)
    approve(rig, 1, 2)
    rig.forget()
    reply = withdraw(rig, 1, 7)
    assert (reply.error, list(reply.approvals)) == (ErrorCode.NONE, [2])
    assert list(rig.world.nodes[APPROVALS].value) == [2]
    assert rig.recorded(BrokerChange) == [BrokerChange(1, "stop_approval_withdrawn", reason="bob: not today")]
    rig.forget()
    assert withdraw(rig, 1).error is ErrorCode.NONE
    assert rig.commits() == []


@pytest.mark.parametrize("fate", [Fate.LANDED, Fate.LOST])
def test_a_lost_answer_is_resolved_by_reading_back(fate: Fate) -> None:
    rig = rig_of(1)
    fates = iter([fate])
    rig.fate = lambda _: next(fates, Fate.ANSWERED)
    assert approve(rig, 1).error is ErrorCode.NONE
    assert list(rig.world.nodes[APPROVALS].value) == [1]


def test_every_caller_is_answered() -> None:
    for request in (ApproveStop({}, NOBODY, "r", "a", 1), WithdrawStopApproval((1,), "r", "a")):
        assert not_controller(request).error is ErrorCode.NOT_CONTROLLER
    for kind in (EventKind.APPROVE_STOP, EventKind.WITHDRAW_STOP_APPROVAL):
        with pytest.raises(KeyError):
            MachineHarness.active(World(1)).machine.step(Event(kind), 0)


def test_an_approval_of_another_process_of_a_broker_is_another_one() -> None:
    rig = rig_of(1, 2)
    former = epoch(rig, 1)
    rig.world.bounce(1)
    rig.run()
    assert approve(rig, 1).error is ErrorCode.NONE
    refused = approve(rig, 2, counted=frozenset({(1, former)}))
    assert refused.error is ErrorCode.OPERATION_NOT_ATTEMPTED
    assert approve(rig, 2).error is ErrorCode.NONE


def test_approvals_are_told_and_recorded_by_broker_id() -> None:
    # 8 comes before 1 in a small set.
    rig = rig_of(1, 8)
    approve(rig, 1)
    reply = approve(rig, 8)
    assert list(reply.approvals) == standing_ids(rig) == [1, 8]
    stale = approve(rig, 1, counted=NOBODY)
    assert "now those of brokers 1, 8: check again" in stale.message
    rig.forget()
    withdraw(rig, 8, 1)
    assert [change.broker_id for change in rig.recorded(BrokerChange)] == [1, 8]


def test_withdrawing_takes_an_author_but_no_reason() -> None:
    rig = rig_of(1)
    approve(rig, 1)
    (reply,) = rig.ask(WithdrawStopApproval((1,), "", "bob"))
    assert (reply.error, standing_ids(rig)) == (ErrorCode.NONE, [])
    assert withdraw(rig, 1, author=" ").error is ErrorCode.INVALID_REQUEST
