"""What Kafka brokers are told, decoded again: every field, at every version that is spoken."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controller.core.model import Broker, Cluster, Endpoint, LeaderAndIsr, Partition, Topic
from controller.core.outbox import Push, PushKind
from controller.runtime import shared_chunks
from controller.runtime.kafka import control_requests
from controller.runtime.kafka.control_requests import (
    API_KEYS,
    VERSIONS,
    ControlRequests,
    UnsupportedBrokerError,
    control_versions,
)
from controller.runtime.kafka.endpoints import Addresses, Listeners
from controller.runtime.kafka.topic_ids import uuid_bytes
from proto.gen.kafka import leader_and_isr_request as lisr
from proto.gen.kafka import stop_replica_request as stop
from proto.gen.kafka import update_metadata_request as umr
from proto.kafka.apis import APIS, decode_request_header
from proto.kafka.primitives import ZERO_UUID
from tests.support.runtime.pushes import decide, topic

LISR, UMR, STOP = PushKind.LEADER_AND_ISR, PushKind.UPDATE_METADATA, PushKind.STOP_REPLICA
ID = "JbxJ2ck0RYSWkPOHk5AzEQ"
ID_BYTES = bytes.fromhex("25bc49d9c93445849690f38793903311")
OTHER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
LISTENERS = Listeners("", "", "PLAINTEXT")
OWN = {"": ("c1", 9192)}


def kafka_broker(id_: int, rack: str | None = None, listener: str = "PLAINTEXT") -> Broker:
    return Broker(id_, 50 + id_, (Endpoint(listener, "PLAINTEXT", f"h{id_}", 9000 + id_),), rack)


BROKER = kafka_broker(1, "r1")


def cluster(*brokers: Broker) -> Cluster:
    made = Cluster(9001, 7)
    made.brokers = {b.id: b for b in (brokers or (BROKER,))}
    return made


def requests(
    of: Cluster, bytes_max: int = 10**6, listeners: Listeners = LISTENERS, own: Addresses = OWN
) -> ControlRequests:
    return ControlRequests(of, bytes_max, listeners, own)


def built(builder: ControlRequests, push: Push, version: int) -> list[Any]:
    """The requests of a push, decoded; their headers and counts are right."""
    found: list[Any] = []
    for raw, count in builder.build(push, {push.kind: version}):
        header, at = decode_request_header(raw)
        assert header == (API_KEYS[push.kind], version, 0, "9001")
        request: Any = APIS[API_KEYS[push.kind]].request.decode_at(raw, at, version)
        assert sum(len(t.partition_states) for t in request.topic_states) == count
        found.append(request)
    return found


def one(builder: ControlRequests, push: Push, version: int) -> Any:
    (request,) = built(builder, push, version)
    return request


def test_a_replica_on_a_failed_disk_is_offline_though_its_broker_is_not() -> None:
    of = cluster(BROKER, kafka_broker(2))
    failed, fine = topic("t", 2, (1, 2), ID)
    of.offline_dirs = {2: {failed}}
    push = Push(UMR, BROKER, [failed, fine], [], shared_key=None, brokers_version=1)
    (told,) = one(requests(of), push, 8).topic_states
    assert [p.offline_replicas for p in told.partition_states] == [[2], []]


@pytest.mark.parametrize("version", VERSIONS[LISR])
def test_leader_and_isr_carries_every_field(version: int) -> None:
    (partition,) = topic("t", 1, (1, 2, 3), ID)
    partition.leadership = LeaderAndIsr(2, 4, (1, 2), 9, 6, 1)
    partition.adding, partition.removing = (3,), (2,)
    push = Push(LISR, BROKER, [partition], [True])
    assert one(requests(cluster()), push, version) == lisr.LeaderAndIsrRequest(
        controller_id=9001,
        is_kraft_controller=False,
        controller_epoch=7,
        broker_epoch=51,
        type=0,
        topic_states=[
            lisr.LeaderAndIsrTopicState(
                "t",
                ID_BYTES if version >= 5 else ZERO_UUID,
                [
                    lisr.LeaderAndIsrPartitionState(
                        partition_index=0,
                        controller_epoch=6,
                        leader=2,
                        leader_epoch=4,
                        isr=[1, 2],
                        partition_epoch=9,
                        replicas=[1, 2, 3],
                        adding_replicas=[3],
                        removing_replicas=[2],
                        is_new=True,
                        leader_recovery_state=1 if version >= 6 else 0,
                    )
                ],
            )
        ],
        live_leaders=[],
    )


@pytest.mark.parametrize("version", VERSIONS[UMR])
def test_metadata_carries_every_field_and_this_controller(version: int) -> None:
    (partition,) = topic("t", 1, (1, 2), ID)
    partition.leadership = LeaderAndIsr(1, 4, (1,), 9, 6)
    push = Push(UMR, BROKER, [partition], brokers_version=1)
    assert one(requests(cluster()), push, version) == umr.UpdateMetadataRequest(
        controller_id=9001,
        is_kraft_controller=False,
        type=0,
        controller_epoch=7,
        broker_epoch=51,
        topic_states=[
            umr.UpdateMetadataTopicState(
                "t",
                ID_BYTES if version >= 7 else ZERO_UUID,
                [
                    umr.UpdateMetadataPartitionState(
                        partition_index=0,
                        controller_epoch=6,
                        leader=1,
                        leader_epoch=4,
                        isr=[1],
                        zk_version=9,
                        replicas=[1, 2],
                        offline_replicas=[2],
                    )
                ],
            )
        ],
        live_brokers=[
            umr.UpdateMetadataBroker(
                1, endpoints=[umr.UpdateMetadataEndpoint(9001, "h1", "PLAINTEXT", 0)], rack="r1"
            ),
            umr.UpdateMetadataBroker(
                9001, endpoints=[umr.UpdateMetadataEndpoint(9192, "c1", "PLAINTEXT", 0)], rack="r1"
            ),
        ],
    )


@pytest.mark.parametrize("version", VERSIONS[STOP])
def test_stop_replica_carries_every_field(version: int) -> None:
    staying, deleted = topic("t", 2, (1, 2)), topic("gone", 1, (1,))
    stateless = topic("new", 1, (1,))
    stateless[0].leadership = None
    context = cluster()
    context.topics_to_delete.add("gone")
    decide(staying[1])
    push = Push(STOP, BROKER, [*staying, *deleted, *stateless], [False, True, True, False])
    state = stop.StopReplicaPartitionState
    assert one(requests(context), push, version) == stop.StopReplicaRequest(
        controller_id=9001,
        is_kraft_controller=False,
        controller_epoch=7,
        broker_epoch=51,
        topic_states=[
            stop.StopReplicaTopicState("t", [state(0, 0, False), state(1, 1, True)]),
            stop.StopReplicaTopicState("gone", [state(0, -2, True)]),
            stop.StopReplicaTopicState("new", [state(0, -1, False)]),
        ],
    )


@pytest.mark.parametrize("version", VERSIONS[UMR])
def test_partitions_of_a_topic_being_deleted_are_sent_as_removed_and_first(version: int) -> None:
    """Leader -2, epochs 0: Kafka's LeaderAndIsr.duringDelete. Not together with a recreated topic of the name."""
    old, new = topic("t", 2, (1,), OTHER_ID), topic("t", 1, (1,), ID)
    for partition in old:
        partition.topic.deleted = True
        partition.leadership = LeaderAndIsr(1, 4, (1,), 9, 6)
    push = Push(UMR, BROKER, [*new, *old, old[0]], brokers_version=1)
    removal, rest = built(requests(cluster()), push, version)
    (gone,) = removal.topic_states
    assert [
        (s.partition_index, s.leader, s.leader_epoch, s.zk_version, s.isr) for s in gone.partition_states
    ] == [(0, -2, 0, 0, [1]), (1, -2, 0, 0, [1])]
    (alive,) = rest.topic_states
    assert [(s.partition_index, s.leader) for s in alive.partition_states] == [(0, 1)]
    assert removal.live_brokers == rest.live_brokers != []


def test_partitions_are_grouped_by_topic_and_those_without_a_leadership_left_out() -> None:
    a, b = topic("a", 3, (1,)), topic("b", 2, (1,))
    a[1].leadership = None
    mixed = [b[1], a[2], b[0], a[0], a[1]]
    for kind, flags in ((LISR, [False] * 5), (UMR, ())):
        request = one(requests(cluster()), Push(kind, BROKER, mixed, flags), VERSIONS[kind][-1])
        assert [
            (t.topic_name, [s.partition_index for s in t.partition_states]) for t in request.topic_states
        ] == [
            ("b", [1, 0]),
            ("a", [2, 0]),
        ]


def test_a_push_without_partitions_tells_the_live_brokers() -> None:
    request = one(requests(cluster()), Push(UMR, BROKER, (), brokers_version=1), 8)
    assert request.topic_states == []
    assert [b.id for b in request.live_brokers] == [1, 9001]


def test_live_brokers_are_encoded_anew_when_they_change() -> None:
    context = cluster()
    builder = requests(context)
    one(builder, Push(UMR, BROKER, (), brokers_version=1), 8)
    context.brokers[2] = kafka_broker(2)
    stale = one(builder, Push(UMR, BROKER, (), brokers_version=1), 8)
    assert [b.id for b in stale.live_brokers] == [1, 9001]
    fresh = one(builder, Push(UMR, BROKER, (), brokers_version=2), 8)
    # Not every broker has a rack, so this controller has none.
    assert [(b.id, b.rack) for b in fresh.live_brokers] == [(1, "r1"), (2, None), (9001, None)]


def endpoints_of(request: Any, id_: int) -> list[tuple[str, str, int, int]]:
    (found,) = (b for b in request.live_brokers if b.id == id_)
    return [(e.listener, e.host, e.port, e.security_protocol) for e in found.endpoints]


def test_this_controller_is_listed_where_brokers_look_for_it_and_where_it_has_an_address() -> None:
    two = Broker(
        2,
        60,
        (
            Endpoint("EXTERNAL", "SSL", "x2", 1),
            Endpoint("INTERNAL", "SASL_SSL", "i2", 2),
            Endpoint("CONTROL", "SASL_SSL", "p2", 3),
            Endpoint("TOOLS", "SASL_SSL", "t2", 5),
            Endpoint("CLIENTS", "SASL_SSL", "k2", 6),
            Endpoint("ODD", "NO_SUCH_PROTOCOL", "o2", 4),
        ),
    )
    listeners = Listeners("INTERNAL", "CONTROL", "SASL_SSL")
    named = {"INTERNAL": ("c1", 9192), "TOOLS": ("c2", 9193), "EXTERNAL": ("c3", 9194), "NONE": ("c4", 9195)}
    request = one(requests(cluster(two), listeners=listeners, own=named), Push(UMR, two, ()), 8)
    assert endpoints_of(request, 2) == [
        ("EXTERNAL", "x2", 1, 1),
        ("INTERNAL", "i2", 2, 3),
        ("CONTROL", "p2", 3, 3),
        ("TOOLS", "t2", 5, 3),
        ("CLIENTS", "k2", 6, 3),
    ]
    assert endpoints_of(request, 9001) == [
        ("INTERNAL", "c1", 9192, 3),
        ("CONTROL", "c1", 9192, 3),
        ("TOOLS", "c2", 9193, 3),
    ]
    request = one(requests(cluster(two), listeners=listeners), Push(UMR, two, ()), 8)
    assert endpoints_of(request, 9001) == [("INTERNAL", "c1", 9192, 3), ("CONTROL", "c1", 9192, 3)]
    named_apart = cluster(kafka_broker(1, listener="A"), kafka_broker(2, listener="B"))
    request = one(requests(named_apart), Push(UMR, BROKER, ()), 8)
    assert endpoints_of(request, 9001) == [("A", "c1", 9192, 0), ("B", "c1", 9192, 0)]


def test_a_broker_of_grpc_is_not_listed_and_lends_this_controller_no_listener_name_and_no_rack() -> None:
    grpc = Broker(2, 60, (Endpoint("GRPC", "PLAINTEXT", "g", 5),))
    request = one(requests(cluster(grpc, BROKER)), Push(UMR, BROKER, ()), 8)
    assert [b.id for b in request.live_brokers] == [1, 9001]
    assert endpoints_of(request, 9001) == [("PLAINTEXT", "c1", 9192, 0)]
    assert request.live_brokers[1].rack == BROKER.rack


def test_without_an_address_of_its_own_this_controller_is_not_listed() -> None:
    request = one(requests(cluster(), own={}), Push(UMR, BROKER, ()), 8)
    assert [b.id for b in request.live_brokers] == [1]


@pytest.mark.parametrize("malformed", ["", "id", "not base64!", "A" * 100])
def test_a_topic_without_a_readable_id_has_the_id_zero(malformed: str) -> None:
    (partition,) = topic("t", 1, (1,), malformed)
    request = one(requests(cluster()), Push(LISR, BROKER, [partition], [False]), 7)
    assert request.topic_states[0].topic_id == ZERO_UUID


def test_topic_ids_are_read_as_kafka_writes_them() -> None:
    assert uuid_bytes(ID) == ID_BYTES
    assert uuid_bytes("-_8AAAAAAAAAAAAAAAAAAA") == b"\xfb\xff" + bytes(14)


# --- versions ----------------------------------------------------------------------------------------------


def spoken(lisr_max: int, umr_max: int, stop_max: int) -> dict[int, range]:
    return {4: range(lisr_max + 1), 6: range(umr_max + 1), 5: range(stop_max + 1)}


@pytest.mark.parametrize(
    ("theirs", "chosen"),
    [
        ((4, 6, 3), (4, 6, 3)),  # Kafka 2.6
        ((5, 7, 3), (5, 7, 3)),  # 2.8
        ((6, 7, 3), (6, 7, 3)),  # 3.3
        ((7, 8, 4), (7, 8, 4)),  # 3.9
        ((9, 9, 9), (7, 8, 4)),
    ],
)
def test_the_newest_common_version_is_spoken(
    theirs: tuple[int, int, int], chosen: tuple[int, int, int]
) -> None:
    found = control_versions(3, spoken(*theirs))
    assert (found[LISR], found[UMR], found[STOP]) == chosen


def test_a_broker_without_a_common_version_is_named() -> None:
    with pytest.raises(
        UnsupportedBrokerError, match="broker 3 speaks 0 to 2 of StopReplica; this controller speaks 3 to 4"
    ):
        control_versions(3, spoken(4, 6, 2))
    with pytest.raises(UnsupportedBrokerError, match=r"broker 3 speaks 8 to 9 of LeaderAndIsr; .* 4 to 7"):
        control_versions(3, {**spoken(4, 6, 3), 4: range(8, 10)})
    with pytest.raises(UnsupportedBrokerError, match="broker 3 speaks no version of UpdateMetadata"):
        control_versions(3, {4: range(5), 5: range(5)})


# --- sharing -----------------------------------------------------------------------------------------------


@pytest.fixture
def encodings(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many structures of each kind are encoded."""
    counted: Counter[str] = Counter()
    encode = control_requests._encoded

    def counting(structure: Any, version: int) -> Any:
        counted[type(structure).__name__] += 1
        return encode(structure, version)

    monkeypatch.setattr(control_requests, "_encoded", counting)
    return counted


def test_metadata_is_encoded_once_for_all_brokers_of_a_version(encodings: Counter[str]) -> None:
    others = [kafka_broker(n) for n in range(1, 5)]
    builder = requests(cluster(*others))
    partitions = topic("t", 100, (1, 2))
    for broker in others:
        push = Push(UMR, broker, partitions, shared_key=(0, 0, 100, 100))
        request = one(builder, push, 8)
        assert request.broker_epoch == broker.epoch
    assert encodings == {
        "UpdateMetadataPartitionState": 100,
        "UpdateMetadataTopicState": 1,
        "UpdateMetadataBroker": 5,
    }
    one(builder, Push(UMR, others[0], partitions, shared_key=(0, 0, 100, 100)), 6)
    assert encodings["UpdateMetadataPartitionState"] == 200
    builder.forget()
    one(builder, Push(UMR, others[0], partitions, shared_key=(0, 0, 100, 100)), 6)
    assert encodings["UpdateMetadataPartitionState"] == 300


def test_of_shared_metadata_only_so_many_bytes_are_kept(
    encodings: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_chunks, "BYTES_MAX", 1000)
    builder = requests(cluster(kafka_broker(1)))
    large = [topic("n" * 900, 1, (1,)), topic("m" * 900, 1, (1,))]
    for number in (0, 0, 1, 1, 0):
        one(builder, Push(UMR, kafka_broker(1), large[number], shared_key=(number, 0, 1, 1)), 8)
    assert encodings["UpdateMetadataPartitionState"] == 3


def test_a_partition_s_leader_and_isr_is_encoded_once_while_it_stays(encodings: Counter[str]) -> None:
    context = cluster(kafka_broker(1), kafka_broker(2))
    builder = requests(context)
    (partition,) = topic("t", 1, (1, 2))

    def order(broker_id: int, is_new: bool = False, version: int = 7) -> Any:
        push = Push(LISR, context.brokers[broker_id], [partition], [is_new])
        return one(builder, push, version).topic_states[0].partition_states[0]

    assert order(1) == order(2)
    assert encodings["LeaderAndIsrPartitionState"] == 1
    assert order(1, is_new=True).is_new
    assert not order(1).is_new
    decide(partition)
    assert order(1).leader_epoch == 1
    partition.assign((1, 2, 3), adding=(3,))
    assert (order(1).replicas, order(1).adding_replicas) == ([1, 2, 3], [3])
    partition.assign((1, 2, 3))
    assert order(1).adding_replicas == []
    partition.assign((1, 2, 3), removing=(2,))
    assert order(1).removing_replicas == [2]
    partition.assign((3, 1, 2), removing=partition.removing)
    assert order(1).replicas == [3, 1, 2]
    order(1, version=4)


# --- sizes -------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30)), max_size=60),
    st.integers(60, 400),
    st.sampled_from([LISR, UMR, STOP]),
)
@example([(4, number) for number in range(30)], 400, LISR)
def test_large_pushes_are_split_in_order_and_nothing_is_lost(
    wanted: list[tuple[int, int]], bytes_max: int, kind: PushKind
) -> None:
    topics = [Topic("t" * (50 * n + 1), ID) for n in range(5)]
    partitions = []
    for number_of_topic, number in wanted:
        partition = Partition(topics[number_of_topic], number, (1, 2, 3))
        partition.leadership = LeaderAndIsr(1, 0, (1, 2, 3), 0, 7)
        partitions.append(partition)
    flags = () if kind is UMR else [False] * len(partitions)
    builder = requests(cluster(), bytes_max=bytes_max, own={})
    version = VERSIONS[kind][-1]
    (empty,) = [len(raw) for raw, _ in builder.build(Push(UMR, BROKER, ()), {UMR: 8})]
    at = 0
    for raw, count in builder.build(Push(kind, BROKER, partitions, flags), {kind: version}):
        assert len(raw) <= bytes_max + empty or count == 1
        _, start = decode_request_header(raw)
        request: Any = APIS[API_KEYS[kind]].request.decode_at(raw, start, version)
        named = Counter(
            (t.topic_name, s.partition_index) for t in request.topic_states for s in t.partition_states
        )
        assert named == Counter((p.topic.name, p.number) for p in partitions[at : at + count])
        at += count
    assert at == len(partitions)
