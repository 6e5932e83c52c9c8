"""A new controller tells real brokers' handlers what they do not hold, and nothing else."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from controller.core.model import Broker
from controller.core.outbox import Push, PushKind
from controller.runtime.audit import whole_state as module
from controller.runtime.audit.expected import Expected
from controller.runtime.audit.whole_state import Comparisons
from controller.runtime.observe.metrics import ControllerMetrics
from controller.runtime.push.transport import CannotAnswerError, UnreachableError
from proto.gen import broker_control_pb2 as pb
from proto.gen import common_pb2 as codes
from tests.support.broker.builders import BrokerHarness
from tests.support.core.harness import MachineHarness
from tests.support.core.world import World

METHODS = {
    PushKind.LEADER_AND_ISR: "leader_and_isr",
    PushKind.UPDATE_METADATA: "update_metadata",
    PushKind.STOP_REPLICA: "stop_replica",
}
IDS = (1, 2, 3)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_FIRST_S", 0.0)


class Rig:
    """One controller after the other, and three brokers that outlive them."""

    def __init__(self) -> None:
        self.world = World(*IDS)
        self.create("t", {n: [1 + n % 3, 1 + (n + 1) % 3] for n in range(4)})
        self.create("u", {0: [3, 1, 2]})
        self.create("v", {0: [1, 2]})
        self.brokers = {id_: BrokerHarness(id_) for id_ in IDS}
        for id_, broker in self.brokers.items():
            broker.handlers.registered(self.world.brokers[id_].epoch)
        self.epoch = 0
        #: In the place of a broker's answer.
        self.answer: Callable[[Broker, pb.DescribeStateRequest], Awaitable[Any]] = self._answered
        self.asked: list[tuple[int, pb.DescribeStateRequest]] = []
        self.succeed()
        self.push()

    def create(self, name: str, assignment: dict[int, list[int]]) -> None:
        self.world.create_topic(name, assignment)
        self.world.topics[name] = dataclasses.replace(self.world.topics[name], topic_id=(name * 22)[:22])

    def succeed(self) -> None:
        """The next controller takes over, and has not pushed anything yet."""
        self.epoch += 1
        self.core = MachineHarness(self.world, self.epoch)
        self.core.slow = set(IDS)
        self.core.failover()
        self.outbox = self.core.machine.outbox
        self.comparisons: Comparisons | None = None
        self.woken: list[int] = []
        self.registry = CollectorRegistry()
        self.metrics = ControllerMetrics(self.registry)

    async def describe_state(self, broker: Broker, request: pb.DescribeStateRequest) -> Any:
        self.asked.append((broker.id, pb.DescribeStateRequest.FromString(request.SerializeToString())))
        return await self.answer(broker, request)

    async def _answered(self, broker: Broker, request: pb.DescribeStateRequest) -> Any:
        answer = self.brokers[broker.id].deliver("describe_state", request.SerializeToString())
        if answer.error_code:
            raise CannotAnswerError(codes.ErrorCode.Name(answer.error_code))
        return answer

    async def close(self) -> None:
        pass

    def compare(self, while_asking: Callable[[], None] = lambda: None, *, deciding: bool = False) -> None:
        """To the end; ``while_asking`` happens once the first broker is asked."""

        async def run() -> None:
            cluster, bugs = self.core.cluster, list[BaseException]()
            if (comparisons := self.comparisons) is None:
                self.loaded = asyncio.Event()
                expected, woken = Expected(cluster), self.woken.append
                comparisons = self.comparisons = Comparisons(
                    cluster,
                    self.outbox,
                    expected,
                    self.metrics,
                    open_transport=lambda: self,
                    loaded=self.loaded,
                    wake=woken,
                    on_bug=bugs.append,
                )
            comparisons.sync(deciding)
            for _ in range(5):
                await asyncio.sleep(0)
            while_asking()
            self.loaded.set()
            await asyncio.gather(*(task for _, task in comparisons._tasks.values()), return_exceptions=True)
            await comparisons.stop()
            assert bugs == []

        asyncio.run(run())

    def send(self, id_: int) -> list[Push]:
        sent = []
        while (push := self.outbox.take(id_, 2)) is not None:
            sent.append(push)
            for message, _ in self.core.builder.build(push):
                answer = self.brokers[id_].deliver(METHODS[push.kind], message)
                assert answer.error_code == codes.NONE
        return sent

    def push(self) -> list[tuple[int, str, str]]:
        """Compare, send all, and say of which partitions who was told."""
        self.compare()
        told = [
            (id_, push.kind.value, partition.name)
            for id_ in IDS
            for push in self.send(id_)
            for partition in push.partitions
        ]
        self.check()
        return sorted(told)

    def check(self) -> None:
        """Every broker holds exactly what the controller believes."""
        cluster = self.core.cluster
        for id_, broker in self.brokers.items():
            metadata, replicas = broker.handlers.metadata, broker.handlers.replicas
            known = {
                (name, item.key[1]): (item.leader, item.leader_epoch, item.isr, set(item.offline_replicas))
                for name in metadata.topics()
                for item in metadata.partitions(name)
            }
            expected = {}
            for partition in cluster.partitions():
                state = partition.leadership
                assert state is not None
                key = partition.topic.name, partition.number
                away = {b for b in partition.replicas if not cluster.is_online(partition, b)}
                expected[key] = state.leader, state.leader_epoch, state.isr, away
                if id_ in partition.replicas and id_ in cluster.brokers and state.leader in cluster.brokers:
                    replica = replicas.get(*key)
                    assert replica is not None
                    assert (replica.leader, replica.leader_epoch) == (state.leader, state.leader_epoch)
            if id_ in cluster.brokers:
                assert known == expected
                assert metadata._in_snapshot is None
                assert metadata.controller_id == cluster.controller_id
            assert self.outbox.pending(id_) == 0

    def outcomes(self) -> dict[str, float]:
        name = "partition_controller_whole_states_compared_total"
        found = {
            o: self.registry.get_sample_value(name, {"outcome": o})
            for o in ("equal", "differing", "everything")
        }
        return {outcome: count for outcome, count in found.items() if count}


def test_nothing_is_told_to_brokers_that_hold_it() -> None:
    rig = Rig()
    assert rig.outcomes() == {"everything": 3}
    rig.succeed()
    assert rig.push() == []
    assert rig.outcomes() == {"equal": 3}
    assert sorted(rig.woken) == [1, 2, 3]
    # Two small requests each, and each hands over the controller epoch.
    assert sorted(id_ for id_, _ in rig.asked[-6:]) == [1, 1, 2, 2, 3, 3]
    assert {request.fence.controller_epoch for _, request in rig.asked[-6:]} == {2}


def test_nobody_is_asked_while_an_event_is_being_handled() -> None:
    """What it queues of a whole state after the comparison would wait for ever."""
    rig = Rig()
    rig.succeed()
    rig.asked.clear()
    rig.compare(deciding=True)
    assert not rig.asked
    assert rig.push() == []
    assert {id_ for id_, _ in rig.asked} == set(IDS)


def test_a_topic_that_differs_is_told_whole_and_to_nobody_else() -> None:
    rig = Rig()
    rig.succeed()
    rig.brokers[2].handlers.metadata._remove(("t", 1))
    assert rig.push() == [(2, "UpdateMetadata", f"t-{n}") for n in range(4)]
    rig.brokers[3].handlers.replicas._put(("u", 0), None)
    rig.succeed()
    assert rig.push() == [(3, "LeaderAndIsr", "u-0")]
    assert rig.outcomes() == {"equal": 2, "differing": 1}


def test_what_changed_while_nobody_led_is_told() -> None:
    rig = Rig()
    rig.world.broker_down(1)
    rig.succeed()
    told = rig.push()
    # v-0 lost its leader, t-1 is on others alone.
    assert (2, "LeaderAndIsr", "v-0") in told
    assert (3, "UpdateMetadata", "v-0") in told
    rig.succeed()
    assert rig.push() == []


def test_offline_replicas_count() -> None:
    """A follower is gone and was in no ISR: leader, epochs and ISR are as before."""
    rig = Rig()
    for metadata in (rig.brokers[2].handlers.metadata, rig.brokers[3].handlers.metadata):
        item = metadata.partition("v", 0)
        assert item is not None
        metadata._put(item._replace(offline_replicas=(2,)))
    rig.succeed()
    assert rig.push() == [(2, "UpdateMetadata", "v-0"), (3, "UpdateMetadata", "v-0")]


def test_topics_that_only_the_broker_has_are_removed_and_others_stay() -> None:
    rig = Rig()
    metadata = rig.brokers[2].handlers.metadata
    item = metadata.partition("v", 0)
    assert item is not None
    metadata._put(item._replace(key=("gone", 3)))
    rig.succeed()
    assert rig.push() == []
    assert metadata.topics() == ["t", "u", "v"]


def test_a_topic_that_is_being_deleted_is_told_although_it_is_equal() -> None:
    rig = Rig()
    rig.world.broker_down(2)  # so that the deletion cannot end
    rig.succeed()
    rig.push()
    rig.world.mark_for_deletion("v")
    rig.succeed()
    rig.compare()
    told = {p.name for id_ in (1, 3) for push in rig.send(id_) for p in push.partitions}
    assert "v-0" in told
    assert [rig.brokers[id_].handlers.metadata.topics() for id_ in (1, 3)] == [["t", "u"]] * 2


@pytest.mark.parametrize("why", [CannotAnswerError("UNIMPLEMENTED"), UnreachableError("UNAVAILABLE")])
def test_who_cannot_answer_gets_everything(why: UnreachableError) -> None:
    rig = Rig()
    rig.succeed()

    async def answer(broker: Broker, request: pb.DescribeStateRequest) -> Any:
        if broker.id == 2:
            raise why
        return await rig._answered(broker, request)

    rig.answer = answer
    told = rig.push()
    assert {id_ for id_, _, _ in told} == {2}
    # Each replica, and each partition.
    assert len([t for t in told if t[1] == "LeaderAndIsr"]) == 5
    assert len([t for t in told if t[1] == "UpdateMetadata"]) == 6


def test_an_answer_without_our_fence_counts_for_nothing() -> None:
    """A broker of an earlier version describes its state, and fences nobody."""
    rig = Rig()
    rig.succeed()

    async def answer(broker: Broker, request: pb.DescribeStateRequest) -> Any:
        request.ClearField("fence")
        return await rig._answered(broker, request)

    rig.answer = answer
    assert {id_ for id_, _, _ in rig.push()} == {1, 2, 3}


@pytest.mark.parametrize("later", [-1, 1])
def test_an_answer_of_another_incarnation_counts_for_nothing(later: int) -> None:
    """A former one, or the next, which the controller has not heard of yet."""
    rig = Rig()
    rig.succeed()

    async def answer(broker: Broker, request: pb.DescribeStateRequest) -> Any:
        answer = await rig._answered(broker, request)
        answer.broker_epoch += later
        return answer

    rig.answer = answer
    assert {id_ for id_, _, _ in rig.push()} == {1, 2, 3}


def test_orders_of_the_former_controller_are_refused_once_the_digests_are_read() -> None:
    """A late copy of an older value would be believed, and the comparison has found the newer one."""
    rig = Rig()
    item = rig.brokers[2].handlers.metadata.partition("v", 0)
    assert item is not None
    older = pb.UpdateMetadataPartitionState(
        topic="v", partition=0, leader=2, leader_epoch=0, isr=[2], replicas=[1, 2]
    )
    late = pb.UpdateMetadataRequest(
        controller_id=100,
        controller_epoch=1,
        broker_epoch=rig.world.brokers[2].epoch,
        partition_states=[older],
    ).SerializeToString()
    rig.succeed()

    def arrives() -> None:
        answer = rig.brokers[2].deliver("update_metadata", late)
        assert answer.error_code == codes.STALE_CONTROLLER_EPOCH

    rig.compare(while_asking=arrives)
    for id_ in IDS:
        rig.send(id_)
    rig.check()


def test_a_change_while_the_broker_is_asked_is_told() -> None:
    rig = Rig()
    rig.succeed()

    def moves() -> None:
        rig.world.broker_down(1)
        rig.core.run()

    rig.compare(while_asking=moves)
    assert rig.send(2)
    assert rig.send(3)
    rig.check()


def test_a_broker_that_registers_again_with_all_it_knows_is_told_what_changed() -> None:
    rig = Rig()
    rig.succeed()
    rig.push()
    rig.world.bounce(3)
    rig.brokers[3].handlers.registered(rig.world.brokers[3].epoch)
    rig.core.run()
    rig.push()
    assert rig.outcomes() == {"equal": 3, "differing": 1}


LIES = st.lists(
    st.tuples(
        st.sampled_from(["forget", "remove", "older", "offline", "stranger", "down", "up", "create"]),
        st.sampled_from(IDS),
        st.integers(0, 3),
    ),
    max_size=6,
)


@settings(max_examples=3 * settings().max_examples)
@given(st.lists(LIES, min_size=1, max_size=3), st.booleans())
def test_whatever_brokers_hold_they_end_with_what_the_controller_believes(
    terms: list[list[tuple[str, int, int]]], during: bool
) -> None:
    rig = Rig()
    for story in terms:
        rig.succeed()
        for what, id_, number in story:
            _spoil(rig, what, id_, number)

        def world_moves() -> None:
            rig.core.run()

        if during:
            rig.compare(while_asking=world_moves)
        rig.core.run()
        rig.push()


def _spoil(rig: Rig, what: str, id_: int, number: int) -> None:
    metadata, replicas = rig.brokers[id_].handlers.metadata, rig.brokers[id_].handlers.replicas
    item = metadata.partition("t", number)
    match what:
        case "forget":
            replicas._put(("t", number), None)
        case "remove":
            metadata._remove(("t", number))
        case "older" if item is not None:
            metadata._put(item._replace(partition_epoch=item.partition_epoch - 1))
        case "offline" if item is not None:
            metadata._put(item._replace(offline_replicas=(1,)))
        case "stranger" if item is not None:
            metadata._put(item._replace(key=(f"stranger{number}", number)))
        case "down" if id_ in rig.world.brokers and len(rig.world.brokers) > 2:
            rig.world.broker_down(id_)
        case "up" if id_ not in rig.world.brokers:
            rig.world.broker_up(id_)
            rig.brokers[id_] = BrokerHarness(id_)
            rig.brokers[id_].handlers.registered(rig.world.brokers[id_].epoch)
        case "create" if (name := f"w{len(rig.world.topics)}") not in rig.world.topics:
            rig.create(name, {0: [1, 2, 3]})
