"""What one replica and one broker's metadata are compared with, and how many states at once."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from controller.core.model import NO_EPOCH, Cluster, LeaderAndIsr, Partition, ReplicaState, Topic
from controller.core.outbox import PushKind
from controller.core.topics.reasons import BeingReassigned
from controller.runtime.audit import auditor
from controller.runtime.audit import expected as expected_module
from controller.runtime.audit.auditor import BrokerAudit, Verdict
from controller.runtime.audit.differences import (
    Held,
    Remedy,
    Side,
    _hosted,
    _metadata,
    _newer,
    _remedy,
    differences,
    was_told,
)
from controller.runtime.audit.expected import Expected
from controller.runtime.audit.state_rounds import StateRounds
from controller.runtime.audit.whole_state import Comparisons, _Asker
from controller.runtime.push.status import SenderStatus
from proto.gen import broker_control_pb2 as pb
from tests.support.core.world import a_broker

STATE = LeaderAndIsr(1, 5, (1, 2), 7, 1)


def a_partition() -> tuple[Cluster, Partition]:
    """On brokers 1 and 2, both online."""
    cluster, topic = Cluster(100), Topic("t", "id")
    cluster.brokers = {b: a_broker(b, b) for b in (1, 2, 3)}
    cluster.add_topic(topic)
    partition = topic.partitions[0] = Partition(topic, 0, (1, 2))
    partition.leadership = STATE
    for broker_id in (1, 2):
        partition.set_states([broker_id], ReplicaState.ONLINE)
    return cluster, partition


def held(**changes: int) -> Held:
    fields: dict[str, Any] = {"partition": 0, "leader": 1, "leader_epoch": 5, "partition_epoch": 7}
    known = pb.KnownPartition(**{**fields, **changes}, isr=[1, 2], replicas=[1, 2])
    return Held("id", known={0: known})


def test_each_epoch_of_metadata_counts() -> None:
    _, partition = a_partition()
    assert list(_metadata(partition, STATE, held())) == []
    for changes in ({"leader_epoch": 4}, {"partition_epoch": 6}, {"leader": 2}):
        assert len(list(_metadata(partition, STATE, held(**changes)))) == 1, changes


def test_who_is_asked_for_a_replica() -> None:
    cluster, partition = a_partition()
    assert was_told(cluster, 2, partition, STATE)
    cluster.offline_dirs[2] = {partition}
    assert not was_told(cluster, 2, partition, STATE)
    assert dict(Expected(cluster)._host(partition, STATE)).keys() == {1}
    cluster.offline_dirs.clear()
    cluster.shutting_down.add(2)
    assert [was_told(cluster, b, partition, STATE) for b in (1, 2)] == [True, False]
    cluster.shutting_down.clear()
    partition.set_states([2], ReplicaState.OFFLINE)
    assert [was_told(cluster, b, partition, STATE) for b in (1, 2)] == [True, False]
    # Who is told of a leader that is not there keeps what it had.
    del cluster.brokers[1]
    assert not was_told(cluster, 1, partition, STATE)


def test_a_difference_says_what_was_told_what_is_held_and_what_mends_it() -> None:
    cluster, partition = a_partition()
    (lacking,) = _hosted(cluster, 2, partition, STATE, None)
    follower = "follower (leader 1, leader epoch 5, topic id id)"
    assert str(lacking) == f"LeaderAndIsr: told {follower}, holds nothing; it is told again"
    (other,) = _metadata(partition, STATE, held(leader_epoch=4))
    words = "leader 1, leader epoch {}, partition epoch 7, ISR [1, 2], replicas [1, 2]"
    assert str(other) == (
        f"UpdateMetadata: told {words.format(5)}, holds {words.format(4)}; it is told again"
    )


def test_a_leader_s_isr_has_no_order() -> None:
    cluster, partition = a_partition()
    replica = pb.HostedReplica(
        partition=0, role="leader", topic_id="id", leader=1, leader_epoch=5, partition_epoch=7
    )
    for isr, found in (((1, 2), 0), ((2, 1), 0), ((2,), 1)):
        replica.isr[:] = isr
        assert len(list(_hosted(cluster, 1, partition, STATE, replica))) == found, isr


def test_a_replica_on_its_way_out_is_no_difference() -> None:
    cluster, partition = a_partition()
    replica = pb.HostedReplica(partition=0, role="follower", topic_id="id", leader=1, leader_epoch=5)
    assert len(list(_hosted(cluster, 3, partition, STATE, replica))) == 1
    partition.set_departing({3: ReplicaState.OFFLINE})
    assert list(_hosted(cluster, 3, partition, STATE, replica)) == []


@pytest.mark.parametrize(("role", "found"), [("leader", 1), ("follower", 1), ("offline", 0), ("", 0)])
def test_of_a_topic_that_is_not_there_only_what_is_served_is_told(role: str, found: int) -> None:
    cluster, _ = a_partition()
    replica = pb.HostedReplica(partition=4, role=role, topic_id="id", leader=1, leader_epoch=5)
    item = pb.KnownPartition(partition=3, leader=1)
    holding = Held("id", hosted={4: replica}, known={3: item})
    sides = [(d.partition, d.side, d.remedy) for d in differences(cluster, 1, "absent", holding)]
    assert sides == [(3, Side.METADATA, Remedy.FORGET), (4, Side.HOSTED, Remedy.NONE)][: 1 + found]


@pytest.mark.parametrize("unread", [False, True])
def test_of_a_topic_that_cannot_be_read_nothing_is_told(unread: bool) -> None:
    """Its leaders go on leading, and clients find them."""
    cluster, _ = a_partition()
    holding = Held("id", known={0: pb.KnownPartition(partition=0, leader=1)})
    if unread:
        cluster.problems["/brokers/topics/other"] = "it does not decode"
    assert len(differences(cluster, 1, "other", holding)) == (0 if unread else 1)
    # What is known of it was read before.
    cluster.controller_epoch = STATE.controller_epoch
    cluster.problems["/brokers/topics/t"] = "it does not decode"
    assert len(differences(cluster, 3, "t", held(partition_epoch=6))) == 1


@pytest.mark.parametrize("begun", [False, True])
def test_a_topic_whose_deletion_waits_is_compared(begun: bool) -> None:
    """What it waits for may wait for what its leader lacks: a state that somebody has touched, for example."""
    cluster, _ = a_partition()
    cluster.controller_epoch = STATE.controller_epoch
    cluster.deletions_waiting["t"] = BeingReassigned("t-0", 1)
    if begun:
        cluster.topics_to_delete.add("t")
    found = differences(cluster, 3, "t", held(partition_epoch=6))
    assert len(found) == (0 if begun else 1)


def test_differences_are_told_in_order_of_their_numbers() -> None:
    cluster, partition = a_partition()
    cluster.controller_epoch = STATE.controller_epoch
    numbers = [17, 3, 9, 1, 33]
    for number in numbers:
        other = partition.topic.partitions[number] = Partition(partition.topic, number, (1, 2))
        other.leadership = STATE
    found = differences(cluster, 3, "t", Held("id", known={99: pb.KnownPartition(partition=99, leader=1)}))
    assert [d.partition for d in found] == [0, 1, 3, 9, 17, 33, 99]


def test_a_topic_made_again_while_it_is_compared_is_not_equal() -> None:
    cluster, partition = a_partition()

    async def topic(of: Topic) -> Any:
        found = await Expected(cluster).topic(of)
        cluster.topics["t"] = Topic("t", "another")
        return found

    comparing: Any = SimpleNamespace(_cluster=cluster, _expected=SimpleNamespace(topic=topic))
    assert asyncio.run(Comparisons._topic(comparing, partition.topic, 1)) is None


async def test_of_a_topic_without_any_state_nothing_is_expected() -> None:
    """Nobody was told of it yet: a broker that does not know it lacks nothing."""
    cluster, topic = Cluster(100), Topic("t", "id")
    cluster.add_topic(topic)
    topic.partitions[0] = Partition(topic, 0, (1, 2))
    expected = Expected(cluster)
    assert await expected.topic(topic) == (0, {}, 0)

    async def of(topic: Topic, broker_id: int) -> Any:
        return await Comparisons._topic(comparing, topic, broker_id)

    async def topics() -> dict[str, Any]:
        return {}

    comparing: Any = SimpleNamespace(_cluster=cluster, _expected=expected, _topic=of)
    asker: Any = SimpleNamespace(broker=a_broker(1, 1), topics=topics)
    assert await Comparisons._by_topic(comparing, asker) == (frozenset(), frozenset())


def test_a_round_takes_about_the_interval() -> None:
    cluster, topic = Cluster(100), Topic("t", "id")
    cluster.add_topic(topic)
    topic.partitions.update((n, Partition(topic, n, (1,))) for n in range(5000))
    rounds = StateRounds(cluster, 11)
    assert [len(rounds.next()) for _ in range(13)] == [0, *[500] * 10, 0, 500]
    quick = StateRounds(cluster, 2)
    # At most 2,000 a second, as audit_interval_seconds says.
    assert [len(quick.next()) for _ in range(3)] == [0, 2000, 2000]


def test_a_topic_may_grow_or_go_in_the_midst_of_a_round() -> None:
    """Partitions and topics that come meanwhile are in the next one."""
    cluster, topics = Cluster(100), [Topic(name, name) for name in "tu"]
    for topic in topics:
        cluster.add_topic(topic)
        topic.partitions.update((n, Partition(topic, n, (1,))) for n in range(150))
    rounds = StateRounds(cluster, 4)
    assert [len(rounds.next()) for _ in range(2)] == [0, 100]
    topics[0].partitions[150] = Partition(topics[0], 150, (1,))
    del cluster.topics["u"]
    cluster.add_topic(Topic("v", "v"))
    assert [len(rounds.next()) for _ in range(4)] == [100, 100, 0, 100]


def test_who_was_not_reached_was_not_asked() -> None:
    audit = BrokerAudit(1)
    audit.ended(Verdict.PENDING)
    audit.ended(Verdict.UNREACHABLE, "no answer")
    assert audit.age_s is None
    audit.ended(Verdict.EQUAL)
    assert audit.age_s is not None


def test_how_long_ago_something_was_is_a_matter_of_no_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """An alert that hears of minutes without an answer must not fire because somebody corrects the time."""
    audit, status = BrokerAudit(1), SenderStatus(1)
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    audit.ended(Verdict.EQUAL)
    status.acknowledge(PushKind.LEADER_AND_ISR, 1, time.monotonic())
    monkeypatch.setattr(time, "monotonic", lambda: 107.0)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert (audit.age_s, status.age_s) == (7.0, 7.0)


def test_the_id_of_a_topic_is_compared_whatever_partitions_it_has() -> None:
    _, partition = a_partition()
    topic = partition.topic
    del topic.partitions[0]
    third = topic.partitions[3] = Partition(topic, 3, (1, 2))
    third.leadership = STATE
    known = pb.KnownPartition(
        partition=3, leader=1, leader_epoch=5, partition_epoch=7, isr=[1, 2], replicas=[1, 2]
    )
    assert list(_metadata(third, STATE, Held("id", known={3: known}))) == []
    assert len(list(_metadata(third, STATE, Held("another", known={3: known})))) == 1


def test_a_leader_is_ahead_in_its_own_leader_epoch_only() -> None:
    cluster, partition = a_partition()
    for leader_epoch, ahead in ((5, True), (4, False)):
        replica = pb.HostedReplica(
            partition=0, role="leader", topic_id="id", leader=1, leader_epoch=leader_epoch, partition_epoch=8
        )
        (found,) = _hosted(cluster, 1, partition, STATE, replica)
        assert found.ahead is ahead


async def test_nothing_is_kept_of_topics_and_partitions_that_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(expected_module, "BLOCK", 4)
    cluster, topic = Cluster(100), Topic("t", "id")
    cluster.add_topic(topic)
    for number in range(10):
        topic.partitions[number] = Partition(topic, number, (1, 2))
        topic.partitions[number].leadership = STATE
    kept = Expected(cluster)
    await kept.refresh()
    for number in range(4, 10):
        del topic.partitions[number]
    assert await kept.refresh() == await Expected(cluster).refresh()
    cluster.remove_topic("t")
    await kept.refresh()
    assert kept._kept == {}


async def test_all_pages_of_topics_are_read() -> None:
    pages = {
        "": pb.DescribeStateResponse(topics=[pb.TopicDigests(topic="a")], more=True),
        "a": pb.DescribeStateResponse(topics=[pb.TopicDigests(topic="b")]),
    }

    async def ask(request: pb.DescribeStateRequest) -> pb.DescribeStateResponse:
        return pages[request.topics.after]

    asker: Any = SimpleNamespace(ask=ask)
    assert list(await _Asker.topics(asker)) == ["a", "b"]


async def test_the_comparison_of_a_former_process_ends() -> None:
    cancelled = asyncio.create_task(asyncio.sleep(60))
    queue = SimpleNamespace(broker=a_broker(1, 8), comparing=False)
    outbox = SimpleNamespace(queues={1: queue})
    comparing: Any = SimpleNamespace(_outbox=outbox, _tasks={1: (a_broker(1, 7), cancelled)})
    Comparisons.sync(comparing, deciding=True)
    assert comparing._tasks == {}
    with pytest.raises(asyncio.CancelledError):
        await cancelled


@pytest.mark.parametrize(
    ("replica", "remedy"),
    [
        ({"leader_epoch": 4}, (Remedy.TELL, NO_EPOCH)),
        ({"leader_epoch": 5}, (Remedy.RAISE, 5)),
        ({"leader_epoch": 9}, (Remedy.NEWER, NO_EPOCH)),
        ({"leader_epoch": 9, "role": "offline"}, (Remedy.TELL, NO_EPOCH)),
        ({"leader_epoch": 9, "topic_id": "other"}, (Remedy.TELL, NO_EPOCH)),
        ({"leader_epoch": 9, "topic_id": "id"}, (Remedy.NEWER, NO_EPOCH)),
        # ZooKeeper has forgotten: a leader epoch has one leader, and partition epochs grow.
        ({"leader_epoch": 5, "leader": 3}, (Remedy.NEWER, NO_EPOCH)),
        ({"leader_epoch": 4, "partition_epoch": 8}, (Remedy.NEWER, NO_EPOCH)),
        # Not told anything since its broker was started: it takes its leader epoch, and none below.
        ({"leader_epoch": 4, "role": "none"}, (Remedy.TELL, NO_EPOCH)),
        ({"leader_epoch": 5, "partition_epoch": 8, "role": "none"}, (Remedy.TELL, NO_EPOCH)),
        ({"leader_epoch": 5, "leader": 3, "role": "none"}, (Remedy.NEWER, NO_EPOCH)),
        ({"leader_epoch": 6, "role": "none"}, (Remedy.NEWER, NO_EPOCH)),
    ],
)
def test_a_leader_epoch_that_a_broker_has_seen_is_raised_unless_it_answers_anyway(
    replica: dict[str, Any], remedy: tuple[Remedy, int]
) -> None:
    expected = pb.HostedReplica(
        partition=0, role="follower", leader_epoch=5, partition_epoch=7, topic_id="id"
    )
    assert _remedy(expected, pb.HostedReplica(partition=0, **{"role": "follower", **replica})) == remedy


@pytest.mark.parametrize(
    ("replica", "newer"),
    [
        ({"role": "leader", "leader": 2, "isr": [3, 2, 9]}, (2, (2, 3))),
        # Who followed knows only whom.
        ({"role": "follower", "leader": 3}, (3, (3,))),
        ({"role": "none", "leader": 3, "isr": [1, 3]}, (3, (3,))),
        # That one is not assigned: the next best is a replica that followed it.
        ({"role": "follower", "leader": 9}, (2, (2,))),
        ({"role": "follower", "leader": -1}, (2, ())),
    ],
)
def test_of_a_newer_state_those_are_in_sync_of_whom_it_is_known(
    replica: dict[str, Any], newer: tuple[int, tuple[int, ...]]
) -> None:
    told = _newer(2, (1, 2, 3), pb.HostedReplica(leader_epoch=9, partition_epoch=4, **replica))
    assert (told.leader, told.isr) == newer
    assert (told.leader_epoch, told.partition_epoch) == (9, 4)


async def test_of_too_many_topics_that_differ_each_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, from where the last look ended, and then from the first on."""
    monkeypatch.setattr(auditor, "TOPICS_MAX", 2)
    cluster = Cluster(1)
    for name in ("e", "b", "d"):
        cluster.add_topic(Topic(name, "id"))
    nothing: Any = None
    look = auditor._Look(cluster, nothing, nothing, nothing, nothing, nothing, nothing)
    told = [pb.DescribeStateResponse(more=name == "c", topics=[{"topic": name}]) for name in ("c", "a")]

    async def ask(_: Any) -> pb.DescribeStateResponse:
        asked.append(None)
        return told[len(asked) - 1]

    async def differs(*_: Any) -> bool:
        return True

    monkeypatch.setattr(look, "_ask", ask)
    monkeypatch.setattr(look, "_differs", differs)
    for after, chosen in (("", ["a", "b"]), ("b", ["c", "d"]), ("d", ["e", "a"])):
        asked: list[None] = []
        assert await look._unequal_topics(after) == chosen
        assert (look.left, look.last, len(asked)) == (3, chosen[-1], 2)
