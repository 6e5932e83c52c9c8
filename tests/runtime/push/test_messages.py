"""Messages are concatenations of parts encoded once; what arrives is what one big message would have said."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.model import Broker, Cluster, Endpoint, LeaderAndIsr, Partition, ReplicaState
from controller.core.outbox import Push, PushKind
from controller.runtime import shared_chunks
from controller.runtime.push import entries
from controller.runtime.push.messages import MessageBuilder
from proto.gen import broker_control_pb2 as pb
from tests.support.runtime.pushes import topic

BROKER = Broker(1, 55, (Endpoint("GRPC", "PLAINTEXT", "h1", 9), Endpoint("EXTRA", "SSL", "x", 8)), "r1")


def cluster(*brokers: Broker) -> Cluster:
    made = Cluster(100, 7)
    made.brokers = {b.id: b for b in (brokers or (BROKER,))}
    return made


def built(builder: MessageBuilder, push: Push, kind: Any) -> list[Any]:
    messages = []
    for raw, count in builder.build(push):
        message = kind.FromString(raw)
        assert len(message.partition_states) == count
        messages.append(message)
    return messages


def test_leader_and_isr_carries_every_field_of_the_reference() -> None:
    (partition,) = topic("t", 1, (1, 2, 3))
    partition.leadership = LeaderAndIsr(1, 4, (1, 2), 9, 6, 1)
    partition.adding, partition.removing = (3,), (2,)
    push = Push(PushKind.LEADER_AND_ISR, BROKER, [partition], [True], event_id=12)
    (message,) = built(MessageBuilder(cluster(), 10**6), push, pb.LeaderAndIsrRequest)
    assert message == pb.LeaderAndIsrRequest(
        controller_id=100,
        controller_epoch=7,
        broker_epoch=55,
        event_id=12,
        topic_ids={"t": "id"},
        live_leaders=[pb.LiveLeader(broker_id=1, host="h1", port=9)],
        partition_states=[
            pb.LeaderAndIsrPartitionState(
                topic="t",
                partition=0,
                controller_epoch=6,
                leader=1,
                leader_epoch=4,
                isr=[1, 2],
                partition_epoch=9,
                replicas=[1, 2, 3],
                adding_replicas=[3],
                removing_replicas=[2],
                is_new=True,
                leader_recovery_state=1,  # type: ignore[arg-type]
            )
        ],
    )


def test_metadata_carries_all_brokers_and_who_is_offline() -> None:
    (partition,) = topic("t", 1, (1, 2))
    push = Push(PushKind.UPDATE_METADATA, BROKER, [partition], event_id=3, brokers_version=1)
    (message,) = built(MessageBuilder(cluster(), 10**6), push, pb.UpdateMetadataRequest)
    assert message == pb.UpdateMetadataRequest(
        controller_id=100,
        controller_epoch=7,
        broker_epoch=55,
        event_id=3,
        topic_ids={"t": "id"},
        live_brokers=[
            pb.LiveBroker(
                broker_id=1,
                rack="r1",
                endpoints=[
                    pb.Endpoint(listener="GRPC", security_protocol="PLAINTEXT", host="h1", port=9),
                    pb.Endpoint(listener="EXTRA", security_protocol="SSL", host="x", port=8),
                ],
            )
        ],
        partition_states=[
            pb.UpdateMetadataPartitionState(
                topic="t",
                partition=0,
                controller_epoch=7,
                leader=1,
                leader_epoch=0,
                isr=[1, 2],
                partition_epoch=0,
                replicas=[1, 2],
                offline_replicas=[2],
            )
        ],
    )


def test_metadata_without_partitions_still_lists_brokers() -> None:
    push = Push(PushKind.UPDATE_METADATA, BROKER, (), brokers_version=1)
    (message,) = built(MessageBuilder(cluster(), 10**6), push, pb.UpdateMetadataRequest)
    assert [b.broker_id for b in message.live_brokers] == [1]
    assert len(message.partition_states) == 0


def test_a_topic_being_deleted_has_leader_minus_2() -> None:
    (partition,) = topic("t", 1, (1,))
    context = cluster()
    context.topics_to_delete.add("t")
    builder = MessageBuilder(context, 10**6)
    push = Push(PushKind.UPDATE_METADATA, BROKER, [partition], brokers_version=1)
    (state,) = built(builder, push, pb.UpdateMetadataRequest)[0].partition_states
    assert (state.leader, state.leader_epoch, state.partition_epoch) == (-2, 0, 0)
    push = Push(PushKind.STOP_REPLICA, BROKER, [partition], [True])
    (stop,) = built(builder, push, pb.StopReplicaRequest)[0].partition_states
    assert (stop.leader_epoch, stop.delete_partition) == (-2, True)


def test_removals_come_first_and_apart() -> None:
    """A broker forgets a topic's id with its last partition: in one message that would be the new topic's."""
    (old,) = topic("t", 1, (1,), topic_id="old")
    (new,) = topic("t", 1, (1,), topic_id="new")
    old.topic.deleted = True
    push = Push(PushKind.UPDATE_METADATA, BROKER, [old, new, *topic("t", 1, (1,), topic_id="old")])
    push.partitions[2].topic.deleted = True
    removal, rest = built(MessageBuilder(cluster(), 10**6), push, pb.UpdateMetadataRequest)
    assert [(e.topic, e.leader) for e in removal.partition_states] == [("t", -2)]
    assert [(e.topic, e.leader) for e in rest.partition_states] == [("t", 1)]
    assert dict(rest.topic_ids) == {"t": "new"}


def test_partitions_without_leadership_are_left_out() -> None:
    known, unknown = topic("t", 2, (1,))
    unknown.leadership = None
    builder = MessageBuilder(cluster(), 10**6)
    push = Push(PushKind.LEADER_AND_ISR, BROKER, [unknown, known], [True, False])
    (message,) = built(builder, push, pb.LeaderAndIsrRequest)
    assert [(s.partition, s.is_new) for s in message.partition_states] == [(0, False)]
    assert built(builder, Push(PushKind.LEADER_AND_ISR, BROKER, [unknown], [False]), None) == []
    push = Push(PushKind.UPDATE_METADATA, BROKER, [unknown], brokers_version=1)
    assert len(built(builder, push, pb.UpdateMetadataRequest)[0].partition_states) == 0


def test_an_entry_is_encoded_anew_when_anything_in_it_changed() -> None:
    (partition,) = topic("t", 1, (1, 2))
    builder = MessageBuilder(cluster(), 10**6)

    def sent(is_new: bool = False) -> Any:
        push = Push(PushKind.LEADER_AND_ISR, BROKER, [partition], [is_new])
        return built(builder, push, pb.LeaderAndIsrRequest)[0].partition_states[0]

    before = sent()
    assert sent() == before
    assert sent(is_new=True).is_new
    assert partition.leadership is not None
    partition.leadership = partition.leadership.successor(2, (2,), 8, 0)
    after = sent()
    assert (after.leader, list(after.isr), after.leader_epoch) == (2, [2], 1)
    partition.assign((2, 3), adding=(3,))
    assert (list(sent().replicas), list(sent().adding_replicas)) == ([2, 3], [3])
    partition.assign((2, 3))
    assert list(sent().adding_replicas) == []
    partition.assign((2, 3), removing=(2,))
    assert list(sent().removing_replicas) == [2]


names = st.text("abcdefgh.", min_size=1, max_size=60)


@given(
    st.lists(st.tuples(names, st.integers(1, 30)), min_size=1, max_size=4, unique_by=lambda t: t[0]),
    st.data(),
)
def test_splitting_keeps_every_partition_once_and_every_part_complete(
    topics: list[tuple[str, int]], data: st.DataObject
) -> None:
    partitions: list[Partition] = [p for name, count in topics for p in topic(name, count, (1, 2))]
    partitions[0].set_states([1], ReplicaState.ONLINE)
    bytes_max = data.draw(st.integers(1, 3000))
    builder = MessageBuilder(cluster(), bytes_max)
    wanted = [(p.topic.name, p.number) for p in partitions]
    for kind, message_type in (
        (PushKind.LEADER_AND_ISR, pb.LeaderAndIsrRequest),
        (PushKind.UPDATE_METADATA, pb.UpdateMetadataRequest),
        (PushKind.STOP_REPLICA, pb.StopReplicaRequest),
    ):
        push = Push(kind, BROKER, partitions, [False] * len(partitions), brokers_version=1)
        messages = built(builder, push, message_type)
        assert [(s.topic, s.partition) for m in messages for s in m.partition_states] == wanted
        for message in messages:
            assert (message.controller_epoch, message.broker_epoch) == (7, 55)
            entries = sum(len(s.SerializeToString()) for s in message.partition_states)
            assert entries <= bytes_max or len(message.partition_states) == 1
            if kind is not PushKind.STOP_REPLICA:
                assert set(message.topic_ids) == {s.topic for s in message.partition_states}


def test_each_change_of_the_live_brokers_is_encoded() -> None:
    context = cluster()
    builder = MessageBuilder(context, 10**6)

    def told(version: int) -> list[int]:
        push = Push(PushKind.UPDATE_METADATA, BROKER, [], brokers_version=version)
        return [b.broker_id for b in built(builder, push, pb.UpdateMetadataRequest)[0].live_brokers]

    assert told(1) == [1]
    context.brokers[2] = Broker(2, 56, BROKER.endpoints)
    assert told(2) == [1, 2]


def test_a_replica_on_a_failed_disk_is_offline_although_its_broker_is_there() -> None:
    (partition,) = topic("t", 1, (1,))
    context = cluster()
    context.offline_dirs[1] = {partition}
    push = Push(PushKind.UPDATE_METADATA, BROKER, [partition], brokers_version=1)
    (state,) = built(MessageBuilder(context, 10**6), push, pb.UpdateMetadataRequest)[0].partition_states
    assert list(state.offline_replicas) == [1]


def test_parts_are_as_few_as_fit_and_each_names_its_own_leaders() -> None:
    partitions = topic("t", 6, (1, 2))
    for partition in partitions[2:]:
        assert partition.leadership is not None
        partition.leadership = partition.leadership.successor(2, (1, 2), 8, 0)
    context = cluster(BROKER, Broker(2, 56, BROKER.endpoints))
    push = Push(PushKind.LEADER_AND_ISR, BROKER, partitions, [False] * 6)
    (whole,) = built(MessageBuilder(context, 10**6), push, pb.LeaderAndIsrRequest)
    two = 2 * (max(len(s.SerializeToString()) for s in whole.partition_states) + 2)
    parts = built(MessageBuilder(context, two), push, pb.LeaderAndIsrRequest)
    assert [len(part.partition_states) for part in parts] == [2, 2, 2]
    assert [[leader.broker_id for leader in part.live_leaders] for part in parts] == [[1], [2], [2]]


def test_only_the_last_part_ends_a_snapshot() -> None:
    partitions = topic("t", 3, (1, 2))
    push = Push(PushKind.UPDATE_METADATA, BROKER, partitions, ends_snapshot=True, snapshot_of=["t"])
    parts = built(MessageBuilder(cluster(), 1), push, pb.UpdateMetadataRequest)
    assert [(part.ends_snapshot, list(part.snapshot_of.topics)) for part in parts] == [
        (False, []), (False, []), (True, ["t"]),
    ]  # fmt: skip


def test_what_is_shared_is_shared_by_those_of_one_key() -> None:
    builder = MessageBuilder(cluster(), 10**6)

    def told(key: int, name: str) -> list[str]:
        shared = (key, 0, 1, 1)
        push = Push(PushKind.UPDATE_METADATA, BROKER, topic(name, 1, (1,)), shared_key=shared)
        return [s.topic for s in built(builder, push, pb.UpdateMetadataRequest)[0].partition_states]

    assert [told(1, "a"), told(2, "b"), told(1, "not looked at"), told(2, "nor this")] == [
        ["a"], ["b"], ["a"], ["b"],
    ]  # fmt: skip


def test_of_what_is_shared_the_oldest_goes_where_it_would_be_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    builder = MessageBuilder(cluster(), 10**6)

    def told(key: int, name: str) -> Any:
        push = Push(PushKind.UPDATE_METADATA, BROKER, topic(name, 1, (1,)), shared_key=(key, 0, 1, 1))
        return built(builder, push, pb.UpdateMetadataRequest)[0].partition_states[0].topic

    monkeypatch.setattr(shared_chunks, "BYTES_MAX", 1000)
    long = "n" * 400  # less than a thousand bytes, two are more
    assert [told(1, "a"), told(2, long), told(1, "not looked at")] == ["a", long, "a"]
    assert [told(3, long), told(2, "looked at"), told(2, "not looked at")] == [long, "looked at", "looked at"]


def test_who_stops_without_deleting_hears_the_leader_epoch() -> None:
    (partition,) = topic("t", 1, (1,))
    partition.leadership = LeaderAndIsr(2, 6, (2,), 9, 7)
    push = Push(PushKind.STOP_REPLICA, BROKER, [partition], [False])
    (stop,) = built(MessageBuilder(cluster(), 10**6), push, pb.StopReplicaRequest)[0].partition_states
    assert (stop.leader_epoch, stop.delete_partition) == (6, False)


@pytest.mark.parametrize("size", [1, 120, 127, 128, 1022, 1023, 1024, 16_383, 16_384, 2_097_152])
def test_an_entry_of_any_length_is_framed_as_protobuf_does(size: int) -> None:
    entry = pb.LeaderAndIsrPartitionState(topic="t" * size)
    whole = pb.LeaderAndIsrRequest(partition_states=[entry])
    assert entries._framed(entry.SerializeToString()) == whole.SerializeToString()


def test_what_entries_share_is_bounded() -> None:
    """There are ever new names and epochs."""
    shared = [made.cache_info() for made in vars(entries).values() if hasattr(made, "cache_info")]
    assert shared
    assert all(info.maxsize for info in shared)
