"""What brokers know and ZooKeeper has forgotten, or its leaders have written meanwhile (ADR 23)."""

from __future__ import annotations

import msgspec
import pytest

from broker_stub.control.replicas import Role
from controller.core.model import Broker, LeaderAndIsr
from controller.runtime.audit import auditor as module
from controller.runtime.audit.auditor import Verdict
from proto.gen import broker_control_pb2 as pb
from tests.support.core.world import state
from tests.support.runtime.audits import Rig, leader_of, replace_replica


def test_a_leader_that_is_ahead_has_its_state_read_before_it_is_doubted() -> None:
    """It writes ISRs itself: the controller hears of that later."""
    rig = Rig()
    rig.world.put_state("t", 0, state(1, [1], 0, 1))
    replace_replica(rig, 1, 0, isr=(1,), partition_epoch=1)
    assert rig.verdicts() == [Verdict.EQUAL] * 3
    assert rig.read == ["t-0"]
    assert (rig.findings, leader_of(rig, 0).isr) == ([], (1,))


def test_a_leader_that_is_ahead_of_its_state_znode_is_believed_once_that_was_read_again() -> None:
    rig = Rig()
    rig.world.forgotten.add(("t", 0))
    rig.handlers(1).metadata._remove(("u", 0))
    replace_replica(rig, 1, 0, isr=(1,), partition_epoch=9)
    assert rig.look(1).verdict is Verdict.DIFFERENT
    assert (rig.read, sorted(rig.known(1))) == (["t-0"], ["t-0 HOSTED", "u-0 METADATA"])
    known = [rig.auditor.newer_somewhere]
    rig.mend()
    assert [*known, rig.auditor.newer_somewhere] == [True, False]
    assert leader_of(rig, 0).isr == (1,)
    assert rig.verdicts() == [Verdict.EQUAL] * 3


def test_it_is_told_what_differs_now_not_what_differed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    now = 1000.0
    monkeypatch.setattr("controller.runtime.audit.auditor.time.monotonic", lambda: now)
    replace_replica(rig, 2, 0, leader_epoch=-1, leader=-1)
    rig.look(2)
    assert [(len(report.leadership), report.floors) for report in rig.told] == [(1, [])]
    replace_replica(rig, 2, 0, leader_epoch=7)
    now += 5
    rig.look(2)
    assert [(told.leader, told.leader_epoch) for _, told in rig.told[-1].newer] == [(2, 7)]


def test_of_what_brokers_were_told_before_zookeeper_went_back_the_newest_is_taken_over() -> None:
    """t-0 is on brokers 1 and 2, t-1 on 2 and 3. Broker 1 was away when 2 became the leader."""
    rig = Rig()
    rig.world.forgotten.add(("t", 0))
    replace_replica(rig, 1, 0, leader=1, leader_epoch=4, partition_epoch=9)
    replace_replica(rig, 2, 0, role=Role.LEADER, leader=2, leader_epoch=6, partition_epoch=30, isr=(2,))
    assert rig.look(1).verdict is Verdict.DIFFERENT
    assert [rig.auditor.newer_states(id_) for id_ in (1, 2, 3)] == [(1, ""), (0, ""), (0, "")]
    rig.mend()
    assert rig.auditor.newer_states(1) == (0, ""), "as soon as it is written"
    assert leader_of(rig, 0) == LeaderAndIsr(2, 7, (2,), 31, 1)
    assert rig.verdicts() == [Verdict.EQUAL] * 3
    replica = rig.handlers(1).replicas.get("t", 0)
    assert replica is not None
    assert (replica.role, replica.leader, replica.leader_epoch) == (Role.FOLLOWER, 2, 7)


def test_a_broker_is_uncompared_until_it_was_asked_since_it_registered() -> None:
    rig = Rig()
    rig.look(1)
    rig.look(2)
    told = [bool(rig.auditor.uncompared)]
    rig.settled = False
    assert rig.look(3).verdict is Verdict.PENDING
    # What is on its way to it may be newer.
    told.append(bool(rig.auditor.uncompared))
    rig.unreachable.add(3)
    rig.settled = True
    rig.look(3)
    # Who does not answer is not waited for.
    told.append(bool(rig.auditor.uncompared))
    broker = rig.core.cluster.brokers[2]
    rig.core.cluster.brokers[2] = msgspec.structs.replace(broker, epoch=broker.epoch + 1)
    assert told == [True, True, False]
    assert rig.auditor.uncompared == {broker.epoch + 1}


def test_a_newer_state_is_taken_over_once_every_broker_has_said_what_it_knows() -> None:
    rig = Rig()
    replace_replica(rig, 1, 0, leader_epoch=4)
    rig.unreachable.add(3)
    found = rig.look(1)
    assert (found.verdict, rig.told) == (Verdict.PENDING, [])
    assert "perhaps broker 3, too: no answer" in found.why
    waits = (1, "broker 3 may know newer ones: no answer")
    assert rig.auditor.newer_states(1) == waits
    rig.look(1, "u")
    assert rig.auditor.newer_states(1) == waits, "nobody asked about it"
    replace_replica(rig, 1, 0, leader_epoch=0)
    rig.look(1, "t")
    assert rig.auditor.newer_states(1) == (0, "")
    replace_replica(rig, 1, 0, leader_epoch=4)
    rig.look(1)
    assert rig.auditor.newer_states(1) == waits
    rig.unreachable.clear()
    describe, said = rig.describe_state, set[tuple[int, str]]()

    async def noted(broker: Broker, request: pb.DescribeStateRequest) -> pb.DescribeStateResponse:
        said.add(rig.auditor.newer_states(1))
        return await describe(broker, request)

    rig.describe_state = noted  # type: ignore[method-assign]
    rig.look(1)
    assert said == {waits}, "until every broker has answered"
    assert rig.auditor.newer_states(1) == (1, "")
    rig.world.delete_topic("t")
    rig.core.run()
    rig.core.cluster.topics.pop("t", None)
    assert rig.auditor.newer_states(1) == (0, "")


def test_what_a_broker_knows_better_is_told_beside_too_many_other_differences(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "KNOWN_MAX", 1)
    rig = Rig()
    rig.handlers(1).metadata._remove(("t", 1))
    rig.look(1)
    replace_replica(rig, 1, 0, leader=1, leader_epoch=4)
    rig.handlers(1).metadata._remove(("t", 2))
    rig.look(1)
    assert [(told.leader, told.leader_epoch) for _, told in rig.told[-1].newer] == [(1, 4)]
    assert rig.known(1) == ["t-1 METADATA", "t-0 HOSTED"]
