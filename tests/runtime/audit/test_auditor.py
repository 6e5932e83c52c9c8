"""The audit against real brokers' handlers, which get the very messages that controllers send."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from broker_stub.control.handlers import ControlHandlers
from broker_stub.control.replicas import Role
from controller.core.events import TellAgain
from controller.core.handlers import event_of
from controller.core.model import Broker, LeaderAndIsr, Partition, Topic
from controller.core.records import AuditFinding
from controller.core.topics.reasons import BeingReassigned
from controller.errors import LeadershipError
from controller.runtime.audit import auditor as module
from controller.runtime.audit import expected as expected_module
from controller.runtime.audit.asking import LeasedAsking
from controller.runtime.audit.auditor import Auditor, BrokerAudit, Known, Verdict
from controller.runtime.audit.differences import Difference, Remedy, Side
from controller.runtime.audit.expected import Expected, Totals, Turn
from controller.runtime.audit.problems import ReplicaProblem, all_problems, mend_of, problems_of
from controller.runtime.observe.metrics import ControllerMetrics
from controller.runtime.push.transport import UnreachableError
from proto.digest import Digest, topic_id_item
from proto.gen import broker_control_pb2 as pb
from proto.kafka.apis import Message
from tests.provers.sim.environment import loop
from tests.support.broker.builders import ID_X, BrokerHarness
from tests.support.core.harness import MachineHarness
from tests.support.core.world import World, state


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONFIRM_S", 0.0)
    monkeypatch.setattr(module, "PENDING_S", 0.0)


async def no_kafka(_broker: Broker, _request: Message) -> Message:
    raise AssertionError("there are no Kafka brokers")


class Rig:
    """A controller's core, three brokers, and an auditor between them."""

    def __init__(self, partitions: int = 4) -> None:
        self.world = World(1, 2, 3)
        self.world.create_topic("t", {n: [1 + n % 3, 1 + (n + 1) % 3] for n in range(partitions)})
        self.world.create_topic("u", {0: [3, 1, 2]})
        for name, info in list(self.world.topics.items()):
            self.world.topics[name] = dataclasses.replace(info, topic_id=name * 22)
        self.core = MachineHarness(self.world)
        self.brokers = {id_: BrokerHarness(id_) for id_ in (1, 2, 3)}
        for id_, broker in self.brokers.items():
            broker.handlers.registered(self.world.brokers[id_].epoch)
        self.unreachable: set[int] = set()
        self.settled = True
        self.told: list[TellAgain] = []
        self.read: list[str] = []
        self.findings: list[AuditFinding] = []
        self.heard: list[int] = []
        self.auditor = Auditor(
            self.core.cluster,
            Expected(self.core.cluster),
            lambda _: self.settled,
            lambda: self,
            no_kafka,
            self.tell,
            self.findings.extend,
            self.heard.append,
            ControllerMetrics(CollectorRegistry()),
            1.0,
        )
        self.core.failover()
        self.deliver()

    def handlers(self, id_: int) -> ControlHandlers:
        return self.brokers[id_].handlers

    def deliver(self) -> None:
        """What the core has sent reaches the brokers."""
        methods = {
            pb.LeaderAndIsrRequest: "leader_and_isr",
            pb.UpdateMetadataRequest: "update_metadata",
            pb.StopReplicaRequest: "stop_replica",
        }
        for sent in self.core.sent:
            self.brokers[sent.broker].deliver(methods[type(sent.message)], sent.message.SerializeToString())
        self.core.sent.clear()

    async def describe_state(
        self, broker: Broker, request: pb.DescribeStateRequest
    ) -> pb.DescribeStateResponse:
        if broker.id in self.unreachable:
            raise UnreachableError("no answer")
        return self.handlers(broker.id).describe_state(request.SerializeToString())

    async def close(self) -> None:
        pass

    def tell(self, report: TellAgain) -> None:
        self.told.append(report)
        if report.read:
            # A question waits until nothing is being decided.
            self.read.extend(partition.name for partition in report.read)
            self.mend()

    def look(self, id_: int, *topics: str) -> BrokerAudit:
        found = asyncio.run(self.auditor.look(id_, topics))
        assert found is not None
        return found

    def verdicts(self) -> list[Verdict]:
        return [self.look(id_).verdict for id_ in self.brokers]

    def mend(self) -> None:
        """The core handles what the auditor had told again."""
        for number, report in enumerate(self.told):
            self.core.world.events.append(event_of(report, 10**7 + number))
        self.told.clear()
        self.core.run()
        self.deliver()

    def known(self, id_: int) -> list[str]:
        return [f"{topic}-{number} {side.name}" for topic, number, side in self.auditor.brokers[id_].known]


def test_what_was_told_is_what_is_expected() -> None:
    rig = Rig()
    # The word of /state and of the console.
    assert [verdict.value for verdict in rig.verdicts()] == ["equal"] * 3
    assert (rig.told, rig.findings) == ([], [])


def test_forgotten_metadata_is_found_recorded_and_mended() -> None:
    rig = Rig()
    rig.handlers(2).metadata._remove(("t", 1))
    assert [verdict.value for verdict in rig.verdicts()] == ["equal", "different", "equal"]
    assert rig.known(2) == ["t-1 METADATA"]
    rig.mend()
    assert rig.verdicts() == [Verdict.EQUAL] * 3
    assert [(f.broker_id, f.to) for f in rig.findings] == [(2, "differs"), (2, "told_again"), (2, "agrees")]


@pytest.mark.parametrize(("begun", "verdict"), [(False, Verdict.DIFFERENT), (True, Verdict.EQUAL)])
def test_a_topic_whose_deletion_waits_is_looked_at(begun: bool, verdict: Verdict) -> None:
    rig = Rig()
    cluster = rig.core.cluster
    cluster.deletions_waiting["t"] = BeingReassigned("t-0", 1)
    if begun:
        cluster.topics_to_delete.add("t")
    rig.handlers(2).metadata._remove(("t", 1))
    assert rig.verdicts() == [Verdict.EQUAL, verdict, Verdict.EQUAL]


@pytest.mark.parametrize(("unread", "verdict"), [(False, Verdict.DIFFERENT), (True, Verdict.EQUAL)])
def test_brokers_keep_a_topic_that_the_controller_cannot_read(unread: bool, verdict: Verdict) -> None:
    """Otherwise nobody would find its leaders any more, who go on leading."""
    rig = Rig()
    cluster = rig.core.cluster
    rig.core.failover()
    cluster.remove_topic("t")
    if unread:
        cluster.problems["/brokers/topics/t"] = "it does not decode"
    assert rig.verdicts() == [verdict] * 3


def replace_replica(rig: Rig, id_: int, number: int, **changes: Any) -> None:
    replicas = rig.handlers(id_).replicas
    known = replicas.get("t", number)
    assert known is not None
    replicas._put(("t", number), msgspec.structs.replace(known, **changes))


def leader_of(rig: Rig, number: int) -> LeaderAndIsr:
    found = rig.core.partition("t", number).leadership
    assert found is not None
    return found


def test_a_replica_that_forgot_its_epoch_is_told_again() -> None:
    rig = Rig()
    replace_replica(rig, 2, 0, leader_epoch=-1, leader=-1)
    assert rig.look(2).verdict is Verdict.DIFFERENT
    rig.mend()
    assert rig.look(2).verdict is Verdict.EQUAL
    assert leader_of(rig, 0).leader_epoch == 0


@pytest.mark.parametrize("garbled", [{"leader": 3}, {"leader_epoch": 7}], ids=["same epoch", "newer epoch"])
def test_what_would_be_refused_gets_a_new_leader_epoch(garbled: dict[str, int]) -> None:
    rig = Rig()
    rig.world.edited.add(("t", 0))
    replace_replica(rig, 2, 0, **garbled)
    assert rig.look(2).verdict is Verdict.DIFFERENT
    rig.mend()
    assert rig.verdicts() == [Verdict.EQUAL] * 3
    assert leader_of(rig, 0).leader_epoch == garbled.get("leader_epoch", 0) + 1


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


def test_metadata_that_should_not_be_is_taken_away() -> None:
    rig = Rig()
    for topic, number in (("gone", 0), ("t", 9)):
        stray = pb.UpdateMetadataPartitionState(topic=topic, partition=number, leader=1, replicas=[1])
        ids = {topic: topic * 22} if topic == "t" else {}
        rig.brokers[1].update(
            stray, brokers=[1, 2, 3], controller_epoch=1, controller_id=100, event_id=10**6, topic_ids=ids
        )
    rig.handlers(1).gate.event_id = 0
    assert rig.look(1).verdict is Verdict.DIFFERENT
    assert rig.known(1) == ["gone-0 METADATA", "t-9 METADATA"]
    rig.mend()
    assert rig.look(1).verdict is Verdict.EQUAL


def test_a_replica_that_should_not_be_is_named_and_left_alone() -> None:
    rig = Rig()
    known = rig.handlers(1).replicas.get("t", 0)
    assert known is not None
    rig.handlers(1).replicas._put(("t", 9), msgspec.structs.replace(known, partition=9))
    assert rig.look(1).verdict is Verdict.DIFFERENT
    assert (rig.known(1), rig.told) == (["t-9 HOSTED"], [])


def test_another_topic_id_is_a_difference() -> None:
    rig = Rig()
    replace_replica(rig, 2, 0, topic_id=ID_X)
    rig.handlers(2).metadata._identify("u", ID_X)
    rig.look(2)
    assert rig.known(2) == ["t-0 HOSTED", "u-0 METADATA"]


def test_nothing_is_said_while_pushes_are_pending_or_the_broker_does_not_answer() -> None:
    rig = Rig()
    rig.handlers(2).metadata._remove(("t", 1))
    rig.settled = False
    assert rig.look(2).verdict.value == "pending"
    rig.settled = True
    rig.unreachable.add(2)
    assert rig.look(2).verdict.value == "not reached"
    assert rig.findings == []


def test_nothing_is_said_of_a_broker_whose_registration_ends_meanwhile() -> None:
    """Nothing is pending for it, because nobody tells it any more."""
    rig = Rig()
    rig.handlers(2).metadata._remove(("t", 1))
    ask = rig.describe_state

    async def leaves(broker: Broker, request: pb.DescribeStateRequest) -> pb.DescribeStateResponse:
        rig.core.cluster.brokers.pop(2, None)
        return await ask(broker, request)

    rig.describe_state = leaves  # type: ignore[method-assign]
    assert (rig.look(2).verdict, rig.findings) == (Verdict.UNREACHABLE, [])


def test_a_difference_seen_once_does_not_count() -> None:
    rig = Rig()
    rig.handlers(2).metadata._remove(("t", 1))
    ask, seen = rig.describe_state, 0

    async def heals(broker: Broker, request: pb.DescribeStateRequest) -> pb.DescribeStateResponse:
        nonlocal seen
        answer = await ask(broker, request)
        if request.WhichOneof("page") == "partitions":
            seen += 1
            answer.known.extend([] if seen == 1 else (await ask_sound(request)).known)
        return answer

    sound = Rig()

    async def ask_sound(request: pb.DescribeStateRequest) -> pb.DescribeStateResponse:
        return sound.handlers(2).describe_state(request.SerializeToString())

    rig.describe_state = heals  # type: ignore[method-assign]
    assert rig.look(2).verdict is Verdict.EQUAL
    assert rig.findings == []


Answer = pb.DescribeStateResponse


def at_page(
    rig: Rig,
    number: int,
    before: Callable[[], object] = lambda: None,
    after: Callable[[Answer], object] = lambda _: None,
) -> None:
    """What happens as the broker is asked for its ``number``-th page of partitions, and to the answer."""
    ask, pages = rig.describe_state, itertools.count(1)

    async def describe_state(broker: Broker, request: pb.DescribeStateRequest) -> Answer:
        if request.WhichOneof("page") != "partitions" or next(pages) != number:
            return await ask(broker, request)
        before()
        answer = await ask(broker, request)
        after(answer)
        return answer

    rig.describe_state = describe_state  # type: ignore[method-assign]


def test_what_only_the_second_look_finds_does_not_count() -> None:
    rig = Rig()
    rig.handlers(2).metadata._remove(("t", 1))
    at_page(rig, 2, before=lambda: rig.handlers(2).metadata._remove(("t", 0)))
    rig.look(2)
    assert rig.known(2) == ["t-1 METADATA"]


def test_an_answer_that_a_push_has_crossed_is_not_believed() -> None:
    rig = Rig()
    rig.handlers(2).metadata._remove(("t", 1))
    at_page(rig, 2, after=lambda _: setattr(rig, "settled", False))
    assert (rig.look(2).verdict, rig.findings) == (Verdict.PENDING, [])


@pytest.mark.parametrize("epoch", [0, 2], ids=["former", "newer"])
def test_an_answer_under_another_controller_epoch_is_not_believed(epoch: int) -> None:
    rig = Rig()
    rig.handlers(2).metadata._remove(("t", 1))
    at_page(rig, 2, after=lambda answer: setattr(answer, "controller_epoch", epoch))
    assert (rig.look(2).verdict, rig.findings) == (Verdict.PENDING, [])


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


def test_what_is_known_of_a_broker_s_former_process_is_forgotten() -> None:
    rig = Rig()
    rig.handlers(2).metadata._remove(("t", 1))
    rig.look(2)
    broker = rig.core.cluster.brokers[2]
    anew = msgspec.structs.replace(broker, epoch=broker.epoch + 1)
    rig.core.cluster.brokers[2] = anew
    rig.handlers(2).registered(anew.epoch)
    rig.look(2)
    assert [report.broker_epoch for report in rig.told] == [broker.epoch, anew.epoch]
    assert [f.to for f in rig.findings] == ["differs", "told_again"] * 2


def test_telling_again_takes_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    now = 1000.0
    monkeypatch.setattr("controller.runtime.audit.auditor.time.monotonic", lambda: now)
    rig.handlers(2).metadata._remove(("t", 1))
    told = []
    for _ in range(145):
        rig.look(2)
        if rig.told:
            told.append(now)
            rig.told.clear()
        # The longest pause is waited for in longer steps.
        now += 5 if now < 1635 else 100
    assert [int(b - a) for a, b in itertools.pairwise(told)] == [5, 10, 20, 40, 80, 160, 320, 600, 600]


def test_a_named_topic_alone_is_looked_at_and_others_stay_known() -> None:
    rig = Rig()
    rig.handlers(2).metadata._remove(("t", 1))
    rig.look(2)
    rig.look(2, "u")
    assert rig.known(2) == ["t-1 METADATA"]


def test_too_many_topics_are_left_for_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOPICS_MAX", 1)
    rig = Rig()
    rig.handlers(2).metadata._remove(("t", 1))
    rig.handlers(2).metadata._remove(("u", 0))
    assert (rig.look(2).left, rig.known(2)) == (1, ["t-1 METADATA"])
    assert rig.look(2, "t").left == 1
    assert rig.core.cluster.brokers[2].epoch in rig.auditor.uncompared
    rig.mend()
    rig.look(2)
    assert rig.known(2) == ["u-0 METADATA"]


def test_of_too_many_topics_those_come_first_that_were_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOPICS_MAX", 1)
    rig = Rig()
    rig.handlers(2).metadata._remove(("t", 1))
    rig.handlers(2).metadata._remove(("u", 0))
    for known in (["t-1 METADATA"], ["t-1 METADATA", "u-0 METADATA"]):
        assert rig.look(2).left == 1
        assert rig.known(2) == known
    anew = Rig()
    anew.handlers(2).metadata._remove(("t", 1))
    anew.handlers(2).metadata._remove(("u", 0))

    async def one_round() -> None:
        running = asyncio.create_task(anew.auditor.run())
        await asyncio.sleep(anew.auditor._interval_s * 0.9)
        running.cancel()

    loop.run(one_round())
    assert anew.known(2) == ["t-1 METADATA", "u-0 METADATA"]


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


def test_an_unregistered_broker_is_forgotten() -> None:
    rig = Rig()
    rig.look(2)
    rig.auditor._forget([1, 3])
    assert 2 not in rig.auditor.brokers
    assert asyncio.run(rig.auditor.look(9)) is None


# --- expected digests ------------------------------------------------------------------------------------

changes = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.integers(1, 3),
        st.integers(0, 3),
        st.sampled_from(["lead", "assign", "id", "disk"]),
    ),
    max_size=20,
)


@settings(max_examples=3 * settings().max_examples)
@given(changes)
def test_kept_digests_are_those_of_a_fresh_look(story: list[tuple[int, int, int, str]]) -> None:
    expected_module_block = expected_module.BLOCK
    expected_module.BLOCK = 2
    try:
        rig = Rig(7)
        kept = Expected(rig.core.cluster)
        asyncio.run(kept.refresh())
        for number, broker_id, epoch, what in story:
            partition = rig.core.partition("t", number)
            if what == "lead":
                partition.leadership = state(broker_id, [broker_id], epoch, epoch)
            elif what == "assign":
                partition.assign((broker_id, 1 + broker_id % 3))
            elif what == "id":
                partition.topic.id = ID_X
            else:
                rig.core.cluster.offline_dirs.setdefault(broker_id, set()).symmetric_difference_update(
                    {partition}
                )
            fresh = Expected(rig.core.cluster)
            assert asyncio.run(kept.refresh()) == asyncio.run(fresh.refresh())
    finally:
        expected_module.BLOCK = expected_module_block


def test_both_sides_begin_with_nothing() -> None:
    digest = Digest()
    digest.replace("t", 0, topic_id_item("t", ""))
    assert (digest.total, digest.by_topic) == (0, {})


def test_nothing_is_asked_once_the_lease_is_over() -> None:
    rig = Rig()
    ended = LeadershipError("the lease is over")

    def require_lease() -> None:
        raise ended

    asked = LeasedAsking(rig, require_lease).describe_state(
        rig.core.cluster.brokers[1], pb.DescribeStateRequest()
    )
    with pytest.raises(LeadershipError) as raised:
        asyncio.run(asked)
    assert raised.value is ended


def test_digests_wait_while_decisions_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    waited: list[float] = []
    refresh, sleep = Expected.refresh, asyncio.sleep

    async def noted(seconds: float) -> None:
        waited.append(seconds)
        await sleep(0)

    async def watched(expected: Expected, turn: Turn) -> Totals:
        rig.settled = False
        try:
            return await refresh(expected, turn)
        finally:
            rig.settled = True

    monkeypatch.setattr(Expected, "refresh", watched)
    monkeypatch.setattr(asyncio, "sleep", noted)
    assert rig.look(1).verdict is Verdict.EQUAL
    # First for those who ask at the same moment.
    assert (waited[0], set(waited[1:])) == (0, {module.BUSY_S})


def test_a_broker_that_registers_anew_while_it_is_asked_is_not_compared() -> None:
    rig = Rig()
    describe = rig.describe_state
    rig.handlers(2).metadata._remove(("t", 1))

    async def bounced(broker: Broker, request: pb.DescribeStateRequest) -> pb.DescribeStateResponse:
        answer = await describe(broker, request)
        rig.core.cluster.brokers[2] = msgspec.structs.replace(broker, epoch=broker.epoch + 1)
        return answer

    rig.describe_state = bounced  # type: ignore[method-assign]
    audit = rig.look(2)
    assert (audit.verdict, audit.why, audit.known) == (
        Verdict.UNREACHABLE,
        "its registration has ended",
        {},
    )


def test_rounds_are_an_interval_apart_and_later_ones_are_spread_over_half_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig, looked = Rig(), list[tuple[int, float]]()
    rig.auditor.brokers[99] = BrokerAudit(1)
    interval_s = rig.auditor._interval_s

    async def look(broker_id: int, topics: Collection[str] = ()) -> None:
        del topics
        looked.append((broker_id, asyncio.get_running_loop().time()))

    async def run() -> float:
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=asyncio.get_running_loop().time))
        monkeypatch.setattr(rig.auditor, "look", look)
        began_s = asyncio.get_running_loop().time()
        running = asyncio.create_task(rig.auditor.run())
        await asyncio.sleep(interval_s * 1.9)
        running.cancel()
        return began_s

    began_s = loop.run(run())
    apart_s = interval_s / 2 / 3
    expected = [0.0] * 3 + [interval_s + n * apart_s for n in range(3)]
    assert [broker_id for broker_id, _ in looked] == [1, 2, 3] * 2
    assert [at_s - began_s for _, at_s in looked] == pytest.approx(expected)
    assert 99 not in rig.auditor.brokers, "it is gone"


@pytest.mark.parametrize(("parts", "looks"), [(1, 1), (2, 2), (10, 3)])
def test_brokers_of_one_part_share_one_look_at_all_topics(
    monkeypatch: pytest.MonkeyPatch, parts: int, looks: int
) -> None:
    rig, refreshed = Rig(), 0
    refresh = Expected.refresh

    async def counted(expected: Expected, turn: Turn) -> Totals:
        nonlocal refreshed
        refreshed += 1
        return await refresh(expected, turn)

    async def two_rounds() -> None:
        running = asyncio.create_task(rig.auditor.run())
        await asyncio.sleep(rig.auditor._interval_s * 0.9)
        assert refreshed == 1
        await asyncio.sleep(rig.auditor._interval_s)
        running.cancel()

    monkeypatch.setattr(module, "PARTS", parts)
    monkeypatch.setattr(Expected, "refresh", counted)
    loop.run(two_rounds())
    assert refreshed == 1 + looks
    assert [rig.auditor.brokers[id_].verdict for id_ in (1, 2, 3)] == [Verdict.EQUAL] * 3
    assert rig.auditor._waiting == set()


def test_brokers_that_differ_list_their_topics_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, listed = Rig(), list[tuple[int, bool]]()
    describe = rig.describe_state

    async def noted(broker: Broker, request: pb.DescribeStateRequest) -> pb.DescribeStateResponse:
        if request.HasField("topics"):
            listed.append((broker.id, True))
            await asyncio.sleep(0.01)
            listed.append((broker.id, False))
        return await describe(broker, request)

    for id_ in rig.brokers:
        rig.handlers(id_).metadata._remove(("t", 1))
    monkeypatch.setattr(rig, "describe_state", noted)
    asyncio.run(rig.auditor._look_at_all([1, 2, 3]))
    assert listed == [(id_, begins) for id_ in (1, 2, 3) for begins in (True, False)]
    assert all(rig.known(id_) == ["t-1 METADATA"] for id_ in (1, 2, 3))


def test_a_cluster_without_brokers_is_audited_once_it_has_some(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    brokers, rig.core.cluster.brokers = rig.core.cluster.brokers, {}

    async def rounds() -> None:
        running = asyncio.create_task(rig.auditor.run())
        await asyncio.sleep(rig.auditor._interval_s)
        assert not running.done()
        rig.core.cluster.brokers = brokers
        await asyncio.sleep(2 * rig.auditor._interval_s)
        running.cancel()

    loop.run(rounds())
    assert sorted(rig.auditor.brokers) == [1, 2, 3]


def test_a_look_that_raises_ends_those_beside_it_and_the_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, ended = Rig(), list[int]()

    async def look(broker_id: int, topics: Collection[str] = ()) -> None:
        del topics
        if broker_id == 2:
            raise LeadershipError("over")
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(broker_id)

    async def audit() -> None:
        with pytest.raises(LeadershipError):
            await rig.auditor.run()
        assert ended == [1, 3]

    monkeypatch.setattr(module, "PARTS", 1)
    monkeypatch.setattr(rig.auditor, "look", look)
    loop.run(audit())


# --- problems ------------------------------------------------------------------------------------------------


class Refusing:
    """What senders know of refusals: broker, partition, error."""

    def __init__(self, *refused: tuple[int, Partition, str]) -> None:
        self.refused = refused

    def refusals(self) -> Iterator[tuple[int, Partition, str]]:
        yield from self.refused

    def refusal(self, broker_id: int, partition: Partition) -> str:
        return next((e for b, p, e in self.refused if b == broker_id and p is partition), "")


def test_problems_are_refusals_and_what_the_audit_found() -> None:
    rig = Rig()
    cluster = rig.core.cluster
    rig.handlers(2).metadata._remove(("t", 1))
    rig.look(2)
    t1, u0 = cluster.topics["t"].partitions[1], cluster.topics["u"].partitions[0]
    former = Partition(Topic("t"), 1, t1.replicas)
    senders: Any = Refusing(
        (1, u0, "KAFKA_STORAGE_ERROR"), (3, t1, "ODD_ERROR"), (3, former, "INCONSISTENT_TOPIC_ID")
    )

    def shown(found: Iterable[ReplicaProblem]) -> list[tuple[str, int, int, str, str]]:
        return [(p.topic, p.partition, p.broker_id, p.kind.value, p.mend) for p in found]

    disk = "the disk of broker 1 is repaired or replaced, and the broker restarted"
    odd = "the log of broker 3 says why it refused (ODD_ERROR)"
    of_u = ("u", 0, 1, "refused", disk)
    of_t = ("t", 1, 3, "refused", odd)
    differs = ("t", 1, 2, "metadata differs", "the controller: it is told again")
    assert shown(all_problems(cluster, senders, rig.auditor)) == [of_u, of_t, differs]
    assert shown(all_problems(cluster, senders, rig.auditor, {"u"})) == [of_u]
    assert shown(all_problems(cluster, senders, rig.auditor, {"t"})) == [of_t, differs]
    assert shown(problems_of(cluster, senders, rig.auditor, u0)) == [of_u]
    assert shown(problems_of(cluster, senders, rig.auditor, t1)) == [of_t, differs]
    broker = cluster.brokers.pop(3)
    assert shown(problems_of(cluster, senders, rig.auditor, t1)) == [differs], "nobody refuses who is gone"
    cluster.brokers[3] = broker
    (problem,) = all_problems(cluster, senders, rig.auditor, {"u"})
    assert str(problem) == "broker 1 refuses LeaderAndIsr: KAFKA_STORAGE_ERROR"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            "INCONSISTENT_TOPIC_ID",
            ("former topic of this name", "stop it", "folder away", "start it", "all", "changed its id"),
        ),
        ("KAFKA_STORAGE_ERROR", ("disk of broker 3", "repaired or replaced", "restarted")),
        ("UNKNOWN_TOPIC_OR_PARTITION", ("not count itself among the replicas", "restart it")),
        ("INVALID_REQUEST", ("not understand", "controller's version")),
        ("CLUSTER_AUTHORIZATION_FAILED", ("lets this controller do nothing", "authorizer")),
    ],
)
def test_each_refusal_says_what_would_mend_it(error: str, said: tuple[str, ...]) -> None:
    mend = mend_of(error, 3)
    assert [words for words in ("broker 3", *said) if words not in mend] == []


@pytest.mark.parametrize("side", Side)
def test_what_nothing_mends_is_moved_away_by_hand(side: Side) -> None:
    found = Difference("x", 3, side, "nothing", "a replica", Remedy.NONE)
    audit = BrokerAudit(7, known={found.key: Known(found)})
    auditor: Any = SimpleNamespace(brokers={2: audit})
    senders: Any = Refusing()
    (problem,) = all_problems(Rig().core.cluster, senders, auditor)
    hosted = side is Side.HOSTED
    assert problem.kind.value == ("replica differs" if hosted else "metadata differs")
    assert problem.what == f"holds something else: {found}"
    assert problem.mend == (
        "once its records are not needed, stop broker 2, move the folder away, and start it"
    )
