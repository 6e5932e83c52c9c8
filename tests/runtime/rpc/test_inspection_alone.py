"""Looks and approvals on the core's own state, without a server: what changes while they wait, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from controller.core.requests.errors import ErrorCode
from controller.core.requests.operator import StopApprovalsReply
from controller.errors import FencedError
from controller.planning.stoppable import Reason, Stoppable, Why
from controller.runtime.rpc import inspection_service, replicas
from controller.runtime.rpc.inspection_service import InspectionRefusedError, InspectionService
from controller.runtime.rpc.plan_queue import AbandonedError
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.session import ConnectionLossError
from proto.gen import inspection_pb2 as pb
from tests.support.core.harness import MachineHarness
from tests.support.core.world import World, state


@pytest.fixture
def rig() -> MachineHarness:
    world = World(1, 2, 3)
    for name in ("a", "b", "c"):
        world.create_topic(name, {0: [1, 2], 1: [2, 3]})
        world.put_state(name, 0, state(1, [1, 2]))
        world.put_state(name, 1, state(2, [2, 3]))
    return MachineHarness.active(world)


def term_of(rig: MachineHarness, **more: Any) -> Any:
    senders = SimpleNamespace(
        unacknowledged=lambda _: "", refusal=lambda *_: None, not_told=lambda *_: "it is asleep"
    )
    machine = SimpleNamespace(cluster=rig.cluster, settings=rig.machine.settings)
    return SimpleNamespace(machine=machine, senders=senders, session=None, **more)


def service(**daemon: Any) -> Any:
    made: Any = SimpleNamespace(**daemon)
    return InspectionService(made)


# --- topics ----------------------------------------------------------------------------------------------------


async def test_a_topic_that_goes_during_a_list_of_all_is_left_out(
    rig: MachineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection_service, "DESCRIBED_AT_ONCE", 2)

    async def deleting() -> None:
        rig.cluster.remove_topic("b")

    gone = asyncio.create_task(deleting())
    answer = await service()._describe_topics(term_of(rig), pb.DescribeTopicsRequest())
    await gone
    assert [topic.name for topic in answer.topics] == ["a", "c"]


async def test_a_topic_that_is_asked_for_by_name_is_answered(rig: MachineHarness) -> None:
    answer = await service()._describe_topics(term_of(rig), pb.DescribeTopicsRequest(topics=["c", "x", "a"]))
    assert [(topic.name, bool(topic.error_code)) for topic in answer.topics] == [
        ("c", False),
        ("x", True),
        ("a", False),
    ]


async def test_what_does_not_fit_into_a_message_is_refused(
    rig: MachineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection_service, "_BYTES_MAX", 20)
    with pytest.raises(InspectionRefusedError, match="name fewer"):
        await service()._describe_topics(term_of(rig), pb.DescribeTopicsRequest())


async def test_brokers_are_asked_for_a_few_callers_at_once(
    rig: MachineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "CALLERS_MAX", 2)
    asked, answer = asyncio.Semaphore(0), asyncio.Event()

    async def describe(*_: Any) -> pb.DescribeReplicasResponse:
        asked.release()
        await answer.wait()
        return pb.DescribeReplicasResponse()

    monkeypatch.setattr(replicas, "describe", describe)
    term = term_of(rig, open_transport=None)
    asking = service(questions=None, leading=term)
    async with asyncio.TaskGroup() as callers:
        for _ in range(3):
            callers.create_task(asking._describe_replicas(term, pb.DescribeReplicasRequest()))
        await asked.acquire()
        await asked.acquire()
        await asyncio.sleep(0)
        assert asked.locked()
        answer.set()
        await asked.acquire()


async def test_after_a_term_nobody_is_told_of_its_replicas_and_no_broker_is_asked(
    rig: MachineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "CALLERS_MAX", 1)
    asked, answer = asyncio.Semaphore(0), asyncio.Event()

    async def describe(*_: Any) -> pb.DescribeReplicasResponse:
        asked.release()
        await answer.wait()
        return pb.DescribeReplicasResponse()

    monkeypatch.setattr(replicas, "describe", describe)
    term = term_of(rig, open_transport=None)
    asking = service(questions=None, leading=term)
    callers = [
        asyncio.create_task(asking._describe_replicas(term, pb.DescribeReplicasRequest())) for _ in range(2)
    ]
    await asked.acquire()
    asking._daemon.leading = term_of(rig)
    answer.set()
    for caller in callers:
        with pytest.raises(AbandonedError):
            await caller
    assert asked.locked()


# --- explanations ----------------------------------------------------------------------------------------------


async def test_a_broker_is_explained_by_all_of_its_replicas(
    rig: MachineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection_service, "explain_broker", lambda *args: args)
    explained = await service()._explained(term_of(rig), pb.ExplainRequest(broker=3))
    _, broker_id, mine = explained
    assert (broker_id, [p.name for p in mine]) == (3, ["a-1", "b-1", "c-1"])


def test_followers_that_were_not_told_are_named_unless_they_refused(rig: MachineHarness) -> None:
    term = term_of(rig)
    assert list(inspection_service._not_told(term, rig.partition("a", 0))) == [
        "its replica does not follow the present leader: it is asleep"
    ]
    term.senders.refusal = lambda broker_id, _: "no" if broker_id == 2 else None
    assert list(inspection_service._not_told(term, rig.partition("a", 0))) == []
    term.senders.refusal = lambda *_: None
    rig.cluster.brokers.pop(2)
    assert list(inspection_service._not_told(term, rig.partition("a", 0))) == []


def test_a_topic_whose_znode_does_not_decode_is_not_said_to_be_unknown(rig: MachineHarness) -> None:
    rig.cluster.problems["/brokers/topics/odd"] = "partitions: expected object"
    for topic, said in (
        ("odd", "/brokers/topics/odd: partitions: expected object"),
        ("x", "no partition x-0"),
    ):
        with pytest.raises(InspectionRefusedError) as caught:
            inspection_service._known(term_of(rig), topic, 0)
        assert (str(caught.value), caught.value.error) == (said, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.mark.parametrize(
    ("error", "raised"),
    [(FencedError("over"), AbandonedError), (ConnectionLossError(), InspectionRefusedError)],
    ids=["the term ended", "ZooKeeper is away"],
)
async def test_who_waits_for_zookeeper_hears_why_it_was_in_vain(
    error: Exception, raised: type[Exception]
) -> None:
    async def reading() -> None:
        raise error

    with pytest.raises(raised):
        await inspection_service._or_refused(reading())


# --- plans and approvals ---------------------------------------------------------------------------------------


async def test_a_plan_is_abandoned_with_its_term(
    rig: MachineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def configs(*_: Any) -> tuple[Mapping[str, Any], Mapping[str, str], Mapping[str, str]]:
        return {}, {}, {}

    monkeypatch.setattr(cluster_reader, "read_configs", configs)
    term, over = term_of(rig), []
    planning = service(term=term)

    async def run(_: Any, is_over: Any) -> None:
        over.append(is_over())
        planning._daemon.term = None
        over.append(is_over())

    planning.plans = SimpleNamespace(run=run)
    await planning._on_snapshot(term, lambda *_: None)
    assert over == [False, True]


REFUSAL = Reason(Why.OFFLINE, "t-0 would be offline")
CHECK = pb.CheckStoppableRequest(broker_ids=[1])


async def approved(
    rig: MachineHarness, verdict: Stoppable, *replies: ErrorCode, override: bool = False
) -> tuple[Any, int]:
    """The answer, and how many verdicts it took."""
    left, judged = list(replies), []
    approving = service(term=None)

    async def on_snapshot(*_: Any) -> Any:
        judged.append(1)
        return SimpleNamespace(brokers=rig.cluster.brokers, approvals={}), verdict

    async def ask(_: Any) -> StopApprovalsReply:
        return StopApprovalsReply(left.pop(0), "why")

    approving._on_snapshot = on_snapshot
    request = pb.ApproveStopRequest(check=CHECK, override=override, reason="why", author="who")
    answer = await approving._approve(term_of(rig, ask=ask), request)
    return answer, len(judged)


SAFE, UNSAFE = Stoppable((1,), (), 0, (1,), True), Stoppable((1,), (REFUSAL,), None, (), True)
OVERTAKEN = ErrorCode.OPERATION_NOT_ATTEMPTED


async def test_an_approval_that_others_overtook_is_judged_anew(rig: MachineHarness) -> None:
    assert (await approved(rig, SAFE, ErrorCode.NONE))[1] == 1
    assert (await approved(rig, SAFE, OVERTAKEN, ErrorCode.NONE))[1] == 2
    for replies in ([OVERTAKEN] * inspection_service.JUDGED_MAX, [ErrorCode.UNKNOWN_SERVER_ERROR]):
        with pytest.raises(InspectionRefusedError) as caught:
            await approved(rig, SAFE, *replies)
        assert caught.value.error is replies[-1]


async def test_an_approval_in_spite_of_objections_says_so(rig: MachineHarness) -> None:
    answer, _ = await approved(rig, UNSAFE)
    assert '"overridden":false' in answer.answer.replace(" ", "")
    answer, _ = await approved(rig, UNSAFE, ErrorCode.NONE, override=True)
    assert '"overridden":true' in answer.answer.replace(" ", "")
    answer, _ = await approved(rig, SAFE, ErrorCode.NONE, override=True)
    assert '"overridden":false' in answer.answer.replace(" ", "")
