"""Approvals to stop, and plans one at a time, over real gRPC."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from controller.client import admin
from controller.planning import scenarios
from controller.planning.scenarios import Terms
from controller.runtime.rpc import inspection_service, plan_queue
from controller.runtime.state import state
from proto.gen import inspection_pb2 as pb
from tests.support.runtime.admins import ask, error_name
from tests.support.runtime.inspections import SIGNED, check, explained, plan_of, three
from tests.support.runtime.sessions import until

pytestmark = pytest.mark.slow

# --- approvals ---------------------------------------------------------------------------------------------------


def approval(*ids: int, override: bool = False, **fields: Any) -> pb.ApproveStopRequest:
    return pb.ApproveStopRequest(check=check(*ids, **fields), override=override, **SIGNED)


async def test_two_who_ask_at_once_get_one_yes(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    """Of two brokers of which one may stop, to ten operators."""
    async with three(zookeeper, zk, tmp_path) as (active, endpoint):
        zk.create("/config/topics/t", b'{"version":1,"config":{"min.insync.replicas":"2"}}')
        began_ms = time.time_ns() // 1_000_000
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask(endpoint, "ApproveStop", approval(1 + n % 2))) for n in range(4)]
        answers = [json.loads(task.result().answer) for task in tasks]
        notified = {(a["brokers"][0], a["stoppable"]) for a in answers}
        approved = [b for b, yes in notified if yes]
        assert len(approved) == 1
        assert notified == {(approved[0], True), (3 - approved[0], False)}
        stored = json.loads(zk.get("/controllers/approvals")[0])
        assert list(stored["approvals"]) == [str(approved[0])]
        assert began_ms <= stored["approvals"][str(approved[0])]["at_ms"] <= time.time_ns() // 1_000_000
        shown = (await state(active.daemon))["term"]["stop_approvals"]
        assert shown[str(approved[0])]["author"] == "ann"
        found = await explained(endpoint, broker=approved[0])
        assert found["notes"][0].startswith("approved to stop for ann: kernel")


async def test_an_override_is_recorded_with_what_spoke_against_it(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    async with three(zookeeper, zk, tmp_path) as (_, endpoint):
        answer = await ask(endpoint, "ApproveStop", approval(3))
        data = json.loads(answer.answer)
        assert [r["reason"] for r in data["reasons"]] == ["offline", "under_min_isr"]
        assert all(r["change"] for r in data["reasons"])
        assert not data["approvals"]
        assert not zk.exists("/controllers/approvals")
        answer = await ask(endpoint, "ApproveStop", approval(3, override=True))
        data = json.loads(answer.answer)
        assert (data["stoppable"], data["overridden"]) == (True, True)
        (recorded,) = data["approvals"]
        assert (recorded["broker"], recorded["author"]) == (3, "ann")
        assert recorded["overridden"][0] == "u-0 would have no leader: its ISR [3] stops as a whole"
        # An unknown one cannot be approved whoever insists.
        answer = await ask(endpoint, "ApproveStop", approval(9, override=True))
        assert not answer.stoppable
        assert [a["broker"] for a in json.loads(answer.answer)["approvals"]] == [3]
        await ask(
            endpoint,
            "WithdrawStopApproval",
            pb.WithdrawStopApprovalRequest(broker_ids=[3], **SIGNED),
        )
        assert json.loads(zk.get("/controllers/approvals")[0]) == {"version": 1, "approvals": {}}


async def test_approvals_that_change_meanwhile_make_it_judge_again(
    zookeeper: str, zk: KazooClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody withdraws between the judgement and its record."""
    async with three(zookeeper, zk, tmp_path) as (active, endpoint):
        await ask(endpoint, "ApproveStop", approval(1))
        cluster = active.term.machine.cluster
        before = dict(cluster.approvals)
        run = plan_queue.PlanQueue.run
        judged = 0

        async def withdrawn_after(self: Any, work: Any, over: Callable[[], bool]) -> Any:
            nonlocal judged
            found = await run(self, work, over)
            judged += 1
            if judged == 1:
                cluster.approvals = {}
            return found

        monkeypatch.setattr(plan_queue.PlanQueue, "run", withdrawn_after)
        answer = await ask(endpoint, "ApproveStop", approval(2))
        assert judged == 2
        assert answer.stoppable
        assert set(before) == {1}


# --- one plan at a time ------------------------------------------------------------------------------------------


async def test_others_are_served_while_a_plan_is_made(
    zookeeper: str, zk: KazooClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()
    lose = scenarios.broker_loss

    def slow(snapshot: Any, ids: Any, terms: Terms) -> Any:
        begun.set()
        while not may_end.is_set():
            terms.give_way()
        return lose(snapshot, ids, terms)

    monkeypatch.setattr(scenarios, "broker_loss", slow)
    queues: list[plan_queue.PlanQueue] = []

    def noted() -> plan_queue.PlanQueue:
        queues.append(plan_queue.PlanQueue())
        return queues[-1]

    monkeypatch.setattr(inspection_service, "PlanQueue", noted)
    loss = plan_of(broker_loss=pb.BrokerSet(broker_ids=[1]))
    async with three(zookeeper, zk, tmp_path) as (_, endpoint):
        plans = [asyncio.create_task(ask(endpoint, "Plan", loss)) for _ in range(1 + plan_queue.WAITING_MAX)]
        await until(begun.is_set, "the plan")
        await until(lambda: queues[-1].waiting == plan_queue.WAITING_MAX, "the others")

        async def refused() -> bool:
            """With a patience that a check which has to wait for the plan does not have."""
            try:
                answer = await admin.ask(endpoint, "CheckStoppable", check(1), 0.5)
            except admin.RefusedError as error:
                return error.error == "OPERATION_NOT_ATTEMPTED" and "ask again later" in error.message
            except admin.NoAnswerError:
                return False
            raise AssertionError(f"answered while a plan is being made: {answer}")

        await until(refused, "a refusal, since enough wait")
        # Explanations and changes are answered meanwhile.
        assert await explained(endpoint, broker=1)
        assert (await ask(endpoint, "DescribeTopics", pb.DescribeTopicsRequest())).topics
        may_end.set()
        answers = await asyncio.gather(*plans)
        assert [error_name(a.error_code) for a in answers] == ["NONE"] * len(plans)


async def test_a_plan_ends_with_the_term(
    zookeeper: str, zk: KazooClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()

    def endless(snapshot: Any, terms: Terms) -> Any:
        begun.set()
        while True:
            terms.give_way()

    monkeypatch.setattr(scenarios, "preferred_election", endless)
    async with three(zookeeper, zk, tmp_path) as (_, endpoint):
        asked = asyncio.create_task(ask(endpoint, "Plan", plan_of(preferred_election=True)))
        await until(begun.is_set, "the plan")
        zk.delete("/controller")
        answer = await asked
        assert error_name(answer.error_code) == "NOT_CONTROLLER"
