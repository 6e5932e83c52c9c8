"""Answers of a Kafka broker against what it was told. tests/kafka/test_audit.py asks real ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from copy import copy
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from controller.core.model import Broker, Endpoint, ReplicaState
from controller.errors import ControllerError
from controller.runtime.audit import kafka_look
from controller.runtime.audit.auditor import Auditor
from controller.runtime.audit.differences import Difference, Remedy
from controller.runtime.audit.expected import Expected
from controller.runtime.audit.kafka_look import KafkaLook
from controller.runtime.observe.metrics import ControllerMetrics
from controller.runtime.push.transport import UnreachableError
from proto.gen import common_pb2 as codes
from proto.gen.kafka.describe_log_dirs_request import DescribeLogDirsRequest
from proto.gen.kafka.describe_log_dirs_response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from proto.gen.kafka.metadata_request import MetadataRequest
from proto.gen.kafka.metadata_response import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from proto.gen.kafka.offset_for_leader_epoch_request import OffsetForLeaderEpochRequest
from proto.gen.kafka.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from proto.kafka.apis import Message
from tests.support.core.harness import MachineHarness
from tests.support.core.world import World, state

ME = 1


class KafkaPeer:
    """Answers as broker 1 of a cluster in which it leads t-0, follows in t-1, and has no replica of t-2."""

    def __init__(self) -> None:
        world = World(1, 2, 3)
        world.create_topic("t", {0: [1, 2], 1: [2, 1], 2: [2, 3]})
        for number, isr in ((0, [1, 2]), (1, [2, 1]), (2, [2, 3])):
            world.put_state("t", number, state(isr[0], isr, 5, 7))
        self.cluster = MachineHarness.active(world).cluster
        self.shown = {
            n: MetadataResponsePartition(0, n, isr[0], 5, isr, isr)
            for n, isr in ((0, [1, 2]), (1, [2, 1]), (2, [2, 3]))
        }
        self.strangers: list[MetadataResponseTopic] = []
        self.epochs = {0: codes.NONE, 1: codes.NOT_LEADER_OR_FOLLOWER}
        self.on_disk = {0, 1}
        self.future: list[int] = []
        self.denied = False
        self.deaf: set[type[Message]] = set()
        self.asked: list[list[str] | None] = []
        self.topic_id, self.topic_error = bytes(16), codes.NONE

    async def ask(self, _broker: Broker, request: Message) -> Message:
        if type(request) in self.deaf:
            raise ControllerError("no answer")
        if isinstance(request, MetadataRequest):
            assert not request.allow_auto_topic_creation
            self.asked.append(None if request.topics is None else [t.name or "" for t in request.topics])
            topic = MetadataResponseTopic(
                self.topic_error, "t", self.topic_id, partitions=list(self.shown.values())
            )
            return MetadataResponse(topics=[topic, *(self.strangers if request.topics is None else ())])
        if isinstance(request, OffsetForLeaderEpochRequest):
            ((topic_asked,),) = ([t for t in request.topics if t.topic == "t"],)
            assert {p.current_leader_epoch for p in topic_asked.partitions} == {5}
            found = [EpochEndOffset(self.epochs[p.partition], p.partition) for p in topic_asked.partitions]
            return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult("t", found)])
        assert isinstance(request, DescribeLogDirsRequest)
        assert [(t.topic, t.partitions) for t in request.topics or ()] == [("t", [0, 1, 2])]
        entries = [DescribeLogDirsPartition(n) for n in sorted(self.on_disk)]
        entries += [DescribeLogDirsPartition(n, is_future_key=True) for n in self.future]
        result = DescribeLogDirsResult(log_dir="/d", topics=[DescribeLogDirsTopic("t", entries)])
        return DescribeLogDirsResponse(results=[] if self.denied else [result])

    def look(self, *topics: str, after: str = "") -> tuple[list[tuple[int, str, Remedy]], KafkaLook]:
        async def settled(_broker_id: int) -> None: ...

        broker = self.cluster.brokers[ME]
        look = KafkaLook(self.cluster, broker, self.ask, settled, after)
        found: Iterable[Difference] = asyncio.run(look.differences(topics))
        return [(d.partition, d.held, d.remedy) for d in found], look


def test_a_broker_that_holds_what_it_was_told_differs_in_nothing() -> None:
    found, look = KafkaPeer().look()
    assert (found, look.partial, look.examined, look.last) == ([], "", None, "")


def _set(peer: KafkaPeer, number: int, **changes: object) -> None:
    for name, value in changes.items():
        setattr(peer.shown[number], name, value)


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (
            lambda p: _set(p, 2, leader_epoch=4),
            (2, "leader 2, leader epoch 4, ISR [2, 3], replicas [2, 3]", Remedy.TELL),
        ),
        (lambda p: p.shown.pop(2), (2, "nothing", Remedy.TELL)),
        (lambda p: p.epochs.update({0: codes.NOT_LEADER_OR_FOLLOWER}),
            (0, "no leader at leader epoch 5", Remedy.RAISE)),
        (lambda p: p.epochs.update({1: codes.NONE}), (1, "leader at leader epoch 5", Remedy.RAISE)),
        (lambda p: p.epochs.update({1: codes.FENCED_LEADER_EPOCH}), (1, "a leader epoch above 5", Remedy.RAISE)),
        (lambda p: p.epochs.update({1: codes.UNKNOWN_LEADER_EPOCH}), (1, "a leader epoch below 5", Remedy.TELL)),
        (lambda p: p.epochs.update({0: codes.KAFKA_STORAGE_ERROR}), (0, "a replica on a failed disk", Remedy.TELL)),
        (lambda p: p.on_disk.discard(1), (1, "nothing", Remedy.TELL)),
        (lambda p: p.on_disk.add(2), (2, "a replica on its disk", Remedy.NONE)),
        (
            lambda p: p.strangers.append(
                MetadataResponseTopic(0, "x", partitions=[MetadataResponsePartition(0, 0, 1, 0, [1], [1])])
            ),
            (0, "leader 1, leader epoch 0, ISR [1], replicas [1]", Remedy.FORGET),
        ),
    ],
)  # fmt: skip
def test_each_difference_is_named_with_its_remedy(
    spoil: Callable[[KafkaPeer], object], expected: tuple[int, str, Remedy]
) -> None:
    peer = KafkaPeer()
    spoil(peer)
    found, look = peer.look()
    assert (found, look.partial) == ([expected], "")


def test_a_leader_that_is_not_alive_is_none_in_metadata() -> None:
    peer = KafkaPeer()
    del peer.cluster.brokers[2]
    _set(peer, 2, leader_id=-1, error_code=codes.LEADER_NOT_AVAILABLE)
    assert peer.look()[0] == []


@pytest.mark.parametrize(("error", "differs"), [(72, False), (codes.LEADER_NOT_AVAILABLE, True)])
def test_a_leader_without_the_listener_of_the_connection_is_none_in_metadata(
    error: int, differs: bool
) -> None:
    """LISTENER_NOT_FOUND is Kafka's error 72."""
    peer = KafkaPeer()
    _set(peer, 2, leader_id=-1, error_code=error)
    assert bool(peer.look()[0]) is differs


def test_what_cannot_be_asked_is_said() -> None:
    peer = KafkaPeer()
    peer.denied = True
    found, look = peer.look()
    assert found == []
    assert "needs Describe on the cluster" in look.partial
    peer.deaf = {OffsetForLeaderEpochRequest, DescribeLogDirsRequest}
    found, look = peer.look()
    assert (found, look.partial) == ([], "metadata only: no answer")
    peer.deaf = {MetadataRequest}
    with pytest.raises(UnreachableError, match="no answer"):
        peer.look()


def test_looks_take_turns_where_there_is_too_much_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_look, "PAGE_MAX", 3)
    monkeypatch.setattr(kafka_look, "LOOK_MAX", 4)
    peer = KafkaPeer()
    peer.cluster.topics["u"] = peer.cluster.topics["t"]
    pages, everything = KafkaLook(peer.cluster, peer.cluster.brokers[ME], peer.ask, _never, "")._pages(())
    assert ([len(page) for page in pages], everything) == ([1], False)
    found, look = peer.look()
    assert (found, look.examined, look.last) == ([], {"t"}, "t")
    assert peer.asked == [["t"]]
    assert peer.look("t")[1].last == ""


def test_a_topic_that_the_broker_alone_knows_is_found_also_where_one_request_is_too_small_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_look, "PAGE_MAX", 3)
    peer = KafkaPeer()
    peer.cluster.topics["u"] = peer.cluster.topics["t"]
    peer.strangers = [
        MetadataResponseTopic(0, "x", partitions=[MetadataResponsePartition(0, 0, 1, 0, [1], [1])])
    ]
    found, look = peer.look()
    assert [(number, remedy) for number, _, remedy in found] == [(0, Remedy.FORGET)]
    assert (look.examined, peer.asked) == (None, [None, ["t"], ["t"]])


def test_a_look_at_some_topics_in_between_moves_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_look, "LOOK_MAX", 4)
    peer = KafkaPeer()
    for name in ("u", "v"):
        peer.cluster.topics[name] = peer.cluster.topics["t"]
    kafka = (Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092),)
    peer.cluster.brokers[ME] = msgspec.structs.replace(peer.cluster.brokers[ME], endpoints=kafka)

    def nobody(*_: object) -> Any:
        raise AssertionError

    auditor = Auditor(
        peer.cluster, Expected(peer.cluster), ControllerMetrics(CollectorRegistry()), 1.0,
        settled=lambda _: True, open_transport=nobody, ask_kafka=peer.ask, tell=nobody, record=lambda _: None,
        heard=lambda _: None, version=lambda: None,
    )  # fmt: skip

    async def looks() -> list[tuple[str, str]]:
        after = []
        for topics in ((), ("v",)):
            audit = await auditor.look(ME, topics)
            assert audit is not None
            after.append((audit.last, audit.why))
        return after

    assert asyncio.run(looks()) == [("t", "topics after t follow in the next look"), ("t", "")]


def test_pages_hold_as_many_partitions_as_one_request_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_look, "PAGE_MAX", 6)
    peer = KafkaPeer()
    for name in ("u", "v"):
        peer.cluster.topics[name] = peer.cluster.topics["t"]
    pages, _ = KafkaLook(peer.cluster, peer.cluster.brokers[ME], peer.ask, _never, "")._pages(["t", "u", "v"])
    assert [len(page) for page in pages] == [2, 1]


def test_topics_that_go_are_neither_asked_for_nor_strangers() -> None:
    peer = KafkaPeer()
    shown = MetadataResponseTopic(0, "x", partitions=[MetadataResponsePartition(0, 0, 1, 0, [1], [1])])
    peer.strangers = [shown]
    peer.cluster.topics_to_delete = {"t", "x"}
    assert (peer.look()[0], peer.asked) == ([], [None])


def test_what_a_newer_controller_decided_is_not_told_again() -> None:
    peer = KafkaPeer()
    peer.cluster.topics["t"].partitions[0].leadership = state(1, [1, 2], 6, 8, controller_epoch=9)
    peer.epochs[0] = codes.UNKNOWN_LEADER_EPOCH
    assert peer.look()[0] == []


def test_the_order_of_an_isr_is_no_difference() -> None:
    peer = KafkaPeer()
    _set(peer, 0, isr_nodes=[2, 1])
    assert peer.look()[0] == []
    _set(peer, 0, replica_nodes=[2, 1])
    assert [number for number, _, _ in peer.look()[0]] == [0], "but that of the replicas is"


def test_a_look_at_some_topics_is_none_at_everything() -> None:
    peer = KafkaPeer()
    _, look = peer.look("t")
    assert (look.examined, peer.asked) == ({"t"}, [["t"]])


def test_a_broker_that_has_seen_a_higher_leader_epoch_gets_one_above_it() -> None:
    peer = KafkaPeer()
    peer.epochs[1] = codes.FENCED_LEADER_EPOCH

    async def settled(_broker_id: int) -> None: ...

    look = KafkaLook(peer.cluster, peer.cluster.brokers[ME], peer.ask, settled, "")
    (found,) = asyncio.run(look.differences(()))
    assert found.floor == 6


def test_a_topic_made_again_while_the_broker_is_asked_is_not_compared() -> None:
    peer = KafkaPeer()
    _set(peer, 2, leader_epoch=4)
    ask = peer.ask

    async def made_again(broker: Broker, request: Message) -> Message:
        answer = await ask(broker, request)
        if isinstance(request, DescribeLogDirsRequest):
            peer.cluster.topics["t"] = copy(peer.cluster.topics["t"])
        return answer

    peer.ask = made_again  # type: ignore[assignment, method-assign]
    assert peer.look()[0] == []


def test_a_replica_that_is_to_be_on_another_disk_is_none_yet() -> None:
    peer = KafkaPeer()
    peer.future = [2]
    assert peer.look()[0] == []


def test_a_replica_on_its_way_out_is_no_stranger() -> None:
    for out in ("stray", "departing"):
        peer = KafkaPeer()
        peer.on_disk.add(2)
        partition = peer.cluster.topics["t"].partitions[2]
        if out == "stray":
            peer.cluster.reassignments.strays[partition] = {ME: None}  # type: ignore[dict-item]
        else:
            partition.set_departing({ME: ReplicaState.OFFLINE})
        assert peer.look()[0] == [], out


ID = "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.mark.parametrize(
    ("ours", "theirs", "held"),
    [(ID, 1, None), (ID, 2, "topic id AAAAAAAAAAAAAAAAAAAAAg"), (ID, 0, None), ("", 1, f"topic id {ID}")],
)
def test_a_former_topic_s_id_is_told_once(ours: str, theirs: int, held: str | None) -> None:
    peer = KafkaPeer()
    peer.cluster.topics["t"].id = ours
    peer.topic_id = theirs.to_bytes(16, "big")
    assert peer.look()[0] == ([] if held is None else [(0, held, Remedy.TELL)])


def test_of_a_topic_that_may_not_be_seen_nothing_is_said_of_metadata() -> None:
    peer = KafkaPeer()
    peer.topic_error = codes.TOPIC_AUTHORIZATION_FAILED
    peer.shown.clear()
    found, look = peer.look()
    assert (found, look.partial) == ([], "topics are hidden: our user needs Describe on topics there")
    peer.topic_error = codes.UNKNOWN_TOPIC_OR_PARTITION
    assert [number for number, _, _ in peer.look()[0]] == [0, 1, 2]


async def _never(_broker_id: int) -> None:
    raise AssertionError
