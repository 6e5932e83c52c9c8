"""The gates of the three control requests, in the reference's order (sections 10, 10.1, 10.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from broker_stub.control.gates import ControllerTerm, Gate, UnknownTerm
from broker_stub.control.handlers import NoData, UnreadableRequest
from broker_stub.control.replicas import Replica, Role, Transition
from broker_stub.control.requests import Header, Key
from proto.gen import broker_control_pb2 as wire
from proto.gen import common_pb2 as codes
from tests.support.broker.builders import ID_X, ID_Y, BrokerHarness, leader_state, metadata_state, stop_state

REQUESTS = ("lead", "stop", "update")


def send(broker: BrokerHarness, request: str, **header: Any) -> str:
    """Send one valid request of a kind. Returns its error code, top-level or per partition."""
    if request == "update":
        return broker.update(metadata_state(), **header)
    if request == "lead":
        return broker.lead(leader_state(), **header)[0]
    return broker.stop(stop_state(), **header)[0]


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize(
    ("broker_epoch", "error"),
    [
        (99, "STALE_BROKER_EPOCH"),
        (0, "STALE_BROKER_EPOCH"),
        (100, "NONE"),
        (101, "NONE"),
        (-1, "INVALID_REQUEST"),
    ],
)
def test_requests_to_a_former_incarnation_are_refused(
    request_name: str, broker_epoch: int, error: str
) -> None:
    broker = BrokerHarness()
    broker.handlers.registered(100)
    assert send(broker, request_name, broker_epoch=broker_epoch) == error


@pytest.mark.parametrize("request_name", REQUESTS)
def test_before_registration_any_broker_epoch_passes(request_name: str) -> None:
    assert send(BrokerHarness(), request_name, broker_epoch=5) == "NONE"


@pytest.mark.parametrize("remembered_from", REQUESTS)
@pytest.mark.parametrize("request_name", REQUESTS)
def test_controller_epoch_is_shared_by_all_requests(remembered_from: str, request_name: str) -> None:
    broker = BrokerHarness()
    assert send(broker, remembered_from, controller_epoch=7) == "NONE"
    assert send(broker, request_name, controller_epoch=6, event_id=44) == "STALE_CONTROLLER_EPOCH"
    assert broker.handlers.gate.controller_epoch == 7
    refusal = broker.log.of_kind("reject")[-1]
    assert (refusal["event_id"], refusal["controller_epoch"]) == (44, 7)
    assert "controller epoch 6, ZooKeeper had 7" in refusal["reason"]


def test_an_answer_names_the_controller_epoch_of_its_request() -> None:
    broker = BrokerHarness()
    requests: dict[str, Any] = {
        "leader_and_isr": wire.LeaderAndIsrRequest,
        "stop_replica": wire.StopReplicaRequest,
        "update_metadata": wire.UpdateMetadataRequest,
    }
    for epoch, (method, kind) in enumerate(requests.items(), 7):
        request = kind(controller_epoch=epoch, event_id=1)
        assert broker.deliver(method, request.SerializeToString()).controller_epoch == epoch


@pytest.mark.parametrize("late", REQUESTS)
@pytest.mark.parametrize("newest", REQUESTS)
def test_what_was_given_up_and_sent_again_changes_nothing_when_it_comes_late(newest: str, late: str) -> None:
    broker = BrokerHarness()
    assert send(broker, newest, controller_epoch=7, event_id=5) == "NONE"
    assert send(broker, late, controller_epoch=7, event_id=4) == "STALE_CONTROLLER_EPOCH"
    assert (
        "event 4 of controller epoch 7 comes late: event 5 was received before"
        in (broker.log.of_kind("reject")[-1]["reason"])
    )
    assert broker.handlers.gate.event_id == 5


@pytest.mark.parametrize("request_name", REQUESTS)
def test_a_sender_that_counts_no_events_is_never_late(request_name: str) -> None:
    broker = BrokerHarness()
    assert send(broker, "update", controller_epoch=7, event_id=5) == "NONE"
    assert send(broker, request_name, controller_epoch=7, event_id=0) == "NONE"
    assert broker.handlers.gate.event_id == 5


@pytest.mark.parametrize("request_name", REQUESTS)
def test_the_next_controller_counts_its_events_anew(request_name: str) -> None:
    broker = BrokerHarness()
    assert send(broker, request_name, controller_epoch=7, event_id=5) == "NONE"
    send(broker, request_name, controller_epoch=8, event_id=1)
    assert (broker.handlers.gate.controller_epoch, broker.handlers.gate.event_id) == (8, 1)


@pytest.mark.parametrize("request_name", REQUESTS)
def test_the_broker_epoch_is_checked_before_the_controller_epoch(request_name: str) -> None:
    broker = BrokerHarness()
    broker.handlers.registered(100)
    send(broker, request_name, controller_epoch=7)
    assert send(broker, request_name, controller_epoch=6, broker_epoch=99) == "STALE_BROKER_EPOCH"
    # A request for a former registration does not change the known controller epoch.
    assert send(broker, request_name, controller_epoch=9, broker_epoch=99) == "STALE_BROKER_EPOCH"
    assert broker.handlers.gate.controller_epoch == 7


HEADER = Header(controller_id=1, controller_epoch=7, broker_epoch=100, event_id=5)
TERM = ControllerTerm(look=1, controller_epoch=7, zxid=70, controller_id=1)


def gate_in_term() -> Gate:
    gate = Gate()
    gate.broker_epoch = 100
    assert gate.admit(HEADER, TERM) is None
    return gate


@pytest.mark.parametrize(
    "header",
    [
        HEADER._replace(controller_epoch=8),
        HEADER._replace(controller_epoch=2**31 - 1),
        HEADER._replace(controller_epoch=6),
        HEADER._replace(controller_id=2),
        HEADER._replace(event_id=4),
    ],
)
def test_who_names_another_controller_than_the_known_one_is_looked_up(header: Header) -> None:
    """And refused when ZooKeeper still has the known one."""
    gate = gate_in_term()
    with pytest.raises(UnknownTerm):
        gate.admit(header)
    refusal = gate.admit(header, TERM._replace(look=2))
    assert refusal is not None
    assert refusal.error == codes.STALE_CONTROLLER_EPOCH
    assert (gate.controller_epoch, gate.controller_id, gate.event_id) == (7, 1, 5)
    assert gate.admit(HEADER) is None


def test_a_fence_of_an_older_event_stands_already() -> None:
    """A controller that compares what a broker holds tells it of changes meanwhile, with newer events."""
    gate, older = gate_in_term(), HEADER._replace(event_id=4)
    with pytest.raises(UnknownTerm):
        gate.admit(older, changes=False)
    assert gate.admit(older, TERM._replace(look=2), changes=False) is None
    assert gate.event_id == 5
    assert gate.admit(older, TERM._replace(look=2)) is not None
    for other in ({"controller_epoch": 6}, {"controller_id": 2}, {"broker_epoch": 99}):
        assert gate.admit(older._replace(**other), TERM._replace(look=2), changes=False) is not None


def test_a_term_of_the_same_number_after_a_restored_backup_starts_anew() -> None:
    gate = gate_in_term()
    assert gate.admit(HEADER._replace(event_id=1), TERM._replace(look=2, zxid=65)) is None
    assert (gate.controller_epoch, gate.event_id) == (7, 1)


def test_a_lower_epoch_after_a_restored_backup_is_refused_until_it_exceeds_ours() -> None:
    gate = gate_in_term()
    lower = TERM._replace(look=2, controller_epoch=3, zxid=30, controller_id=2)
    assert gate.admit(HEADER._replace(controller_epoch=3, controller_id=2), lower) is not None
    assert gate.controller_epoch == 7
    higher = lower._replace(look=3, controller_epoch=8, zxid=31)
    assert gate.admit(HEADER._replace(controller_epoch=8, controller_id=2), higher) is None


def test_an_older_look_changes_nothing() -> None:
    gate = gate_in_term()
    gate.learn(TERM._replace(look=3, controller_epoch=8, zxid=80))
    gate.learn(TERM._replace(look=2))
    assert gate.controller_epoch == 8


def test_a_controller_that_is_gone_again_is_believed_by_its_epoch() -> None:
    gate = gate_in_term()
    gone = ControllerTerm(2, 8, 80, -1)
    assert gate.admit(HEADER._replace(controller_epoch=8, controller_id=2), gone) is None


def test_who_makes_epochs_up_is_logged_once() -> None:
    broker = BrokerHarness(controller_epoch=7)
    request = wire.StopReplicaRequest(controller_epoch=9, partition_states=[stop_state()]).SerializeToString()
    for sender in ("evil", "evil", "worse"):
        answer = broker.handlers.stop_replica(request, sender, TERM._replace(look=5))
        assert answer.error_code == codes.STALE_CONTROLLER_EPOCH
    assert [reject["reason"].rpartition("(")[2] for reject in broker.log.of_kind("reject")] == [
        "sent by evil)",
        "sent by worse)",
    ]


def test_a_refused_request_changes_nothing() -> None:
    broker = BrokerHarness(controller_epoch=5)
    broker.lead(leader_state())
    before = broker.handlers.describe()
    broker.lead(leader_state(leader_epoch=9), controller_epoch=4)
    broker.stop(stop_state(delete=True), controller_epoch=4)
    broker.update(metadata_state(), brokers=[7], controller_epoch=4)
    assert broker.handlers.describe() == before


@pytest.mark.parametrize(
    ("leader_epoch", "error", "kept"),
    [(4, "STALE_CONTROLLER_EPOCH", 5), (5, "STALE_CONTROLLER_EPOCH", 5), (6, "NONE", 6), (600, "NONE", 600)],
)
def test_leader_and_isr_needs_a_newer_leader_epoch(leader_epoch: int, error: str, kept: int) -> None:
    broker = BrokerHarness()
    broker.lead(leader_state(leader_epoch=5))
    assert broker.lead(leader_state(leader_epoch=leader_epoch)) == [error]
    assert broker.replica().leader_epoch == kept


@pytest.mark.parametrize("leader", [0, 1])
@pytest.mark.parametrize(("partition_epoch", "applied"), [(2, False), (3, True), (4, True)])
def test_an_older_partition_epoch_is_skipped_and_still_answered_none(
    leader: int, partition_epoch: int, applied: bool
) -> None:
    broker = BrokerHarness()
    broker.lead(leader_state(leader_epoch=1, partition_epoch=3))
    newer = leader_state(leader=leader, leader_epoch=2, partition_epoch=partition_epoch)
    assert broker.lead(newer) == ["NONE"]
    assert broker.replica().leader_epoch == (2 if applied else 1)
    assert broker.replica().partition_epoch == (partition_epoch if applied else 3)


def test_a_broker_hosts_no_partition_that_it_is_no_replica_of() -> None:
    broker = BrokerHarness()
    assert broker.lead(leader_state(replicas=[1, 2], leader=1)) == ["UNKNOWN_TOPIC_OR_PARTITION"]
    assert not broker.hosts()


def test_the_leader_epoch_is_checked_before_the_replicas() -> None:
    broker = BrokerHarness()
    broker.lead(leader_state(leader_epoch=5))
    assert broker.lead(leader_state(leader_epoch=4, replicas=[1, 2])) == ["STALE_CONTROLLER_EPOCH"]


@pytest.mark.parametrize("leader", [-1, 9])
def test_a_leader_that_is_not_live_makes_the_folder_only(leader: int) -> None:
    broker = BrokerHarness()
    state = leader_state(leader=leader, leader_epoch=3)
    assert broker.lead(state, topic_ids={"foo": ID_X}) == ["NONE"]
    assert broker.replica() == Replica("foo", 0, topic_id=ID_X)
    # The same epoch is then still new to us: the controller may send it again when the leader is known.
    broker.update(brokers=[0, 1, 9])
    assert broker.lead(state, topic_ids={"foo": ID_X}) == ["NONE"]
    assert broker.replica().role is (Role.NONE if leader == -1 else Role.FOLLOWER)


def test_a_leader_that_is_not_live_leaves_leadership_as_it_was() -> None:
    broker = BrokerHarness()
    broker.lead(leader_state(leader_epoch=3))
    before = broker.replica()
    assert broker.lead(leader_state(leader=9, leader_epoch=4, partition_epoch=8)) == ["NONE"]
    assert broker.replica() == before
    note = broker.log.of_kind("replica")[-1]
    assert (note["from"], note["to"]) == ("leader", "leader")
    assert "leader 9 is not live" in note["reason"]


def test_we_ourselves_need_not_be_in_the_cache_to_lead() -> None:
    broker = BrokerHarness(live_brokers=[])
    assert broker.lead(leader_state()) == ["NONE"]
    assert broker.replica().role is Role.LEADER


def test_a_follower_keeps_no_isr() -> None:
    broker = BrokerHarness()
    broker.lead(leader_state(leader=1, leader_epoch=2, partition_epoch=6))
    assert broker.replica().isr == ()
    assert (broker.replica().leader, broker.replica().partition_epoch) == (1, 6)
    assert broker.log.of_kind("replica")[-1]["isr"] == (0, 1)


class TestTopicIds:
    def test_conflicting_id_is_refused_whatever_the_epoch(self) -> None:
        broker = BrokerHarness()
        broker.lead(leader_state(leader_epoch=5), topic_ids={"foo": ID_X})
        for epoch in (4, 5, 6):
            answer = broker.lead(leader_state(leader_epoch=epoch), topic_ids={"foo": ID_Y})
            assert answer == ["INCONSISTENT_TOPIC_ID"]
        assert broker.replica().leader_epoch == 5

    def test_equal_epoch_may_assign_an_id(self) -> None:
        broker = BrokerHarness()
        broker.lead(leader_state())
        assert broker.lead(leader_state(), topic_ids={"foo": ID_X}) == ["NONE"]
        assert broker.replica().topic_id == ID_X
        assert broker.disk.steps[-1].folder
        assert broker.lead(leader_state(), topic_ids={"foo": ID_X}) == ["STALE_CONTROLLER_EPOCH"]

    def test_equal_epoch_may_drop_the_id_for_a_follower_only(self) -> None:
        broker = BrokerHarness()
        broker.lead(leader_state(leader=1), leader_state(partition=1), topic_ids={"foo": ID_X})
        answers = broker.lead(leader_state(leader=1), leader_state(partition=1))
        assert answers == ["NONE", "STALE_CONTROLLER_EPOCH"]
        assert broker.replica().topic_id == ID_X

    def test_a_newer_epoch_without_id_keeps_ours(self) -> None:
        broker = BrokerHarness()
        broker.lead(leader_state(), topic_ids={"foo": ID_X})
        assert broker.lead(leader_state(leader_epoch=1)) == ["NONE"]
        assert broker.replica().topic_id == ID_X

    def test_the_id_found_on_the_disk_counts(self) -> None:
        broker = BrokerHarness(found=[Replica("foo", 0, topic_id=ID_X)])
        assert broker.lead(leader_state(), topic_ids={"foo": ID_Y}) == ["INCONSISTENT_TOPIC_ID"]
        assert broker.lead(leader_state(), topic_ids={"foo": ID_X}) == ["NONE"]

    def test_the_nil_id_is_none(self) -> None:
        broker = BrokerHarness()
        assert broker.lead(leader_state(), topic_ids={"foo": "A" * 22}) == ["NONE"]
        assert broker.replica().topic_id is None


class TestStopReplica:
    @pytest.mark.parametrize("delete", [False, True])
    @pytest.mark.parametrize(
        ("leader_epoch", "error"),
        [
            (-2, "NONE"),
            (-1, "NONE"),
            (0, "FENCED_LEADER_EPOCH"),
            (4, "FENCED_LEADER_EPOCH"),
            (5, "NONE"),
            (6, "NONE"),
        ],
    )
    def test_an_older_leader_epoch_is_fenced(self, leader_epoch: int, error: str, delete: bool) -> None:
        broker = BrokerHarness()
        broker.lead(leader_state(leader_epoch=5))
        assert broker.stop(stop_state(leader_epoch=leader_epoch, delete=delete)) == [error]
        assert broker.hosts() is not (delete and error == "NONE")

    def test_without_delete_the_leadership_state_remains(self) -> None:
        broker = BrokerHarness()
        broker.lead(leader_state(leader_epoch=5, partition_epoch=2))
        for _ in range(2):
            broker.stop(stop_state(leader_epoch=5))
        assert [record["to"] for record in broker.log.of_kind("replica")] == ["leader", "stopped"]
        assert broker.replica().role is Role.STOPPED
        assert (broker.replica().leader_epoch, broker.replica().partition_epoch) == (5, 2)
        assert broker.lead(leader_state(leader_epoch=5)) == ["STALE_CONTROLLER_EPOCH"]
        assert broker.lead(leader_state(leader_epoch=6, partition_epoch=3)) == ["NONE"]
        assert broker.replica().role is Role.LEADER

    def test_stopping_does_not_raise_our_leader_epoch(self) -> None:
        broker = BrokerHarness()
        broker.lead(leader_state(leader_epoch=5))
        broker.stop(stop_state(leader_epoch=9))
        assert broker.replica().leader_epoch == 5

    def test_after_deletion_the_topic_may_begin_again(self) -> None:
        broker = BrokerHarness()
        broker.lead(leader_state(leader_epoch=5), topic_ids={"foo": ID_X})
        broker.stop(stop_state(leader_epoch=-2, delete=True))
        assert broker.lead(leader_state(leader_epoch=0), topic_ids={"foo": ID_Y}) == ["NONE"]
        assert broker.replica().topic_id == ID_Y

    def test_not_hosted_is_accepted_and_leftovers_are_deleted(self) -> None:
        broker = BrokerHarness()
        assert broker.stop(stop_state(leader_epoch=3, delete=True), stop_state("bar")) == ["NONE", "NONE"]
        assert [(step.key, step.after) for step in broker.disk.steps] == [(("foo", 0), None)]


class TestStorageErrors:
    def test_a_failed_folder_takes_its_partition_offline_and_no_other(self) -> None:
        broker = BrokerHarness()
        broker.disk.failing[("foo", 0)] = "no space left"
        answers = broker.lead(leader_state(), leader_state(partition=1), topic_ids={"foo": ID_X})
        assert answers == ["KAFKA_STORAGE_ERROR", "NONE"]
        assert broker.replica() == Replica("foo", 0, topic_id=ID_X, role=Role.OFFLINE)
        to_offline = [r for r in broker.log.of_kind("replica") if r["to"] == "offline"]
        assert [(r["topic"], r["partition"], r["reason"]) for r in to_offline] == [
            ("foo", 0, "no space left")
        ]

    @pytest.mark.parametrize("topic_id", [ID_X, ID_Y])
    def test_an_offline_replica_refuses_before_any_other_gate(self, topic_id: str) -> None:
        broker = BrokerHarness()
        broker.disk.failing[("foo", 0)] = "broken"
        broker.lead(leader_state(leader_epoch=5), topic_ids={"foo": ID_X})
        broker.disk.failing.clear()
        for epoch in (4, 5, 6):
            answer = broker.lead(leader_state(leader_epoch=epoch), topic_ids={"foo": topic_id})
            assert answer == ["KAFKA_STORAGE_ERROR"]
        assert broker.stop(stop_state(leader_epoch=-2, delete=True)) == ["KAFKA_STORAGE_ERROR"]
        assert broker.hosts()

    def test_a_lost_directory_takes_everything_offline(self) -> None:
        broker = BrokerHarness()
        broker.lead(leader_state(), leader_state(partition=1, leader=1))
        broker.disk.lost = "data directory is gone"
        assert broker.lead(leader_state(leader_epoch=1)) == ["KAFKA_STORAGE_ERROR"]
        assert [r.role for r in broker.handlers.replicas] == [Role.OFFLINE, Role.OFFLINE]
        assert broker.losses == ["data directory is gone"]

    def test_a_failed_deletion_is_a_storage_error(self) -> None:
        broker = BrokerHarness()
        broker.lead(leader_state())
        broker.disk.failing[("foo", 0)] = "read-only"
        assert broker.stop(stop_state(leader_epoch=-2, delete=True)) == ["KAFKA_STORAGE_ERROR"]
        assert broker.replica().role is Role.OFFLINE


MALFORMED_LEADER_STATES: list[tuple[str, dict[str, Any]]] = [
    ("topic", {"topic": ""}),
    ("topic", {"topic": ".."}),
    ("topic", {"topic": "."}),
    ("topic", {"topic": "../evil"}),
    ("topic", {"topic": "a/b"}),
    ("topic", {"topic": "a\\b"}),
    ("topic", {"topic": "a\0b"}),
    ("topic", {"topic": "foo\n"}),
    ("topic", {"topic": "t" * 250}),
    ("topic", {"topic": "ünïcode"}),
    ("partition", {"partition": -1}),
    ("controller_epoch", {"controller_epoch": -1}),
    ("leader", {"leader": -2}),
    ("leader", {"leader": -3}),
    ("leader_epoch", {"leader_epoch": -1}),
    ("partition_epoch", {"partition_epoch": -1}),
    ("replicas", {"replicas": []}),
    ("replicas", {"replicas": [0, 1, 0]}),
    ("replicas", {"replicas": [0, -1]}),
    ("isr", {"isr": [1, 1]}),
    ("isr", {"isr": [-5]}),
    ("adding_replicas", {"adding_replicas": [2, 2]}),
    ("removing_replicas", {"removing_replicas": [-2]}),
    ("leader_recovery_state", {"leader_recovery_state": 7}),
]


class TestMalformed:
    @pytest.mark.parametrize(("field", "fields"), MALFORMED_LEADER_STATES)
    def test_leader_and_isr_partition(self, field: str, fields: dict[str, Any]) -> None:
        broker = BrokerHarness()
        bad = leader_state(**{"topic": "foo", "partition": 0, **fields})
        assert broker.lead(leader_state("ok-1"), bad, leader_state("ok-2")) == [
            "NONE",
            "INVALID_REQUEST",
            "NONE",
        ]
        assert sorted(r.topic for r in broker.handlers.replicas) == ["ok-1", "ok-2"]
        (reject,) = broker.log.of_kind("reject")
        assert reject["error"] == "INVALID_REQUEST"
        assert reject["reason"].startswith(field)

    @pytest.mark.parametrize(
        ("field", "fields"),
        [
            ("topic", {"topic": "a/b"}),
            ("partition", {"partition": -1}),
            ("leader_epoch", {"leader_epoch": -3}),
        ],
    )
    def test_stop_replica_partition(self, field: str, fields: dict[str, Any]) -> None:
        broker = BrokerHarness()
        bad = stop_state(**{"delete": True, **fields})
        assert broker.stop(bad, stop_state("ok", delete=True)) == ["INVALID_REQUEST", "NONE"]
        assert [step.key for step in broker.disk.steps] == [("ok", 0)]
        assert broker.log.of_kind("reject")[-1]["reason"].startswith(field)

    @pytest.mark.parametrize(
        "fields",
        [
            {"topic": ""},
            {"partition": -1},
            {"leader": -3},
            {"leader_epoch": -2},
            {"controller_epoch": -1},
            {"replicas": []},
            {"replicas": [1, 1]},
            {"isr": [-1]},
            {"offline_replicas": [3, 3]},
        ],
    )
    def test_update_metadata_partition(self, fields: dict[str, Any]) -> None:
        broker = BrokerHarness()
        bad = metadata_state(**{"topic": "foo", **fields})
        assert broker.update(metadata_state("ok"), bad) == "INVALID_REQUEST"
        assert list(broker.handlers.metadata.describe()["topics"]) == ["ok"]
        assert len(broker.log.of_kind("reject")) == 1

    @pytest.mark.parametrize("request_name", REQUESTS)
    @pytest.mark.parametrize(
        ("field", "value"),
        [("controller_id", -1), ("controller_epoch", -1), ("broker_epoch", -2), ("event_id", -1)],
    )
    def test_header(self, request_name: str, field: str, value: int) -> None:
        broker = BrokerHarness()
        before = broker.handlers.describe()
        assert send(broker, request_name, **{field: value}) == "INVALID_REQUEST"
        assert broker.handlers.describe() == before
        assert broker.log.of_kind("reject")[-1]["reason"].startswith(field)

    @pytest.mark.parametrize(
        "brokers",
        [
            [wire.LiveBroker(broker_id=-1)],
            [wire.LiveBroker(broker_id=1), wire.LiveBroker(broker_id=1)],
            [wire.LiveBroker(broker_id=1, endpoints=[wire.Endpoint(port=70000)])],
            [wire.LiveBroker(broker_id=1, endpoints=[wire.Endpoint(port=-1)])],
        ],
    )
    def test_a_bad_live_broker_list_replaces_nothing(self, brokers: list[wire.LiveBroker]) -> None:
        broker = BrokerHarness()
        answer = broker.update(metadata_state(), live_brokers=brokers, controller_epoch=9)
        assert answer == "INVALID_REQUEST"
        assert broker.log.of_kind("reject")[-1]["reason"].startswith("live_brokers")
        assert broker.handlers.gate.controller_epoch == 0
        assert sorted(broker.handlers.metadata.live_brokers) == [0, 1, 2]
        assert broker.handlers.metadata.partition("foo", 0) is None

    def test_every_mention_of_a_repeated_partition_is_refused(self) -> None:
        broker = BrokerHarness()
        states = [leader_state(), leader_state("bar"), leader_state(leader_epoch=1)]
        assert broker.lead(*states) == ["INVALID_REQUEST", "NONE", "INVALID_REQUEST"]
        assert not broker.hosts()
        assert broker.stop(stop_state(), stop_state()) == ["INVALID_REQUEST", "INVALID_REQUEST"]
        assert broker.update(metadata_state(), metadata_state()) == "INVALID_REQUEST"

    @pytest.mark.parametrize("topic_id", ["short", "x" * 23, "x" * 21 + "\n", "../" + "x" * 19])
    def test_topic_id(self, topic_id: str) -> None:
        broker = BrokerHarness()
        states = [leader_state(), leader_state("ok")]
        assert broker.lead(*states, topic_ids={"foo": topic_id}) == ["INVALID_REQUEST", "NONE"]
        assert broker.update(metadata_state("ok"), topic_ids={"foo": topic_id}) == "INVALID_REQUEST"

    @pytest.mark.parametrize("method", ["leader_and_isr", "stop_replica", "update_metadata"])
    def test_bytes_that_are_no_message(self, method: str) -> None:
        broker = BrokerHarness()
        with pytest.raises(UnreadableRequest):
            getattr(broker.handlers, method)(b"\xff\xff\xff garbage")
        assert broker.log.of_kind("reject")[-1]["error"] == "INVALID_REQUEST"


def test_an_older_look_replaces_no_newer_one() -> None:
    gate = Gate()
    gate.learn(ControllerTerm(2, 5, 50, 2))
    gate.learn(ControllerTerm(1, 5, 40, 1))
    assert (gate.controller_epoch, gate.controller_id, gate.term_zxid) == (5, 2, 50)


def test_a_replica_that_is_not_assigned_any_more_takes_no_role() -> None:
    broker = BrokerHarness()
    assert broker.lead(leader_state()) == ["NONE"]
    elsewhere = leader_state(leader=1, leader_epoch=1, partition_epoch=1, replicas=[1, 2], isr=[1])
    assert broker.lead(elsewhere) == ["UNKNOWN_TOPIC_OR_PARTITION"]


def test_a_topic_id_that_comes_with_a_new_leader_epoch_is_written() -> None:
    broker = BrokerHarness()
    broker.lead(leader_state())
    broker.disk.steps.clear()
    broker.lead(leader_state(leader_epoch=1, partition_epoch=1), topic_ids={"foo": ID_X})
    assert [(step.folder, step.after and step.after.topic_id) for step in broker.disk.steps] == [(True, ID_X)]


@pytest.mark.parametrize(
    ("leader_epoch", "partition_epoch", "taken"), [(3, 8, True), (3, 7, False), (2, 8, False)]
)
def test_an_isr_is_taken_that_is_newer_and_of_this_leader(
    leader_epoch: int, partition_epoch: int, taken: bool
) -> None:
    broker = BrokerHarness()
    broker.lead(leader_state(leader_epoch=3, partition_epoch=7))
    broker.handlers.replicas.isr_changed(("foo", 0), leader_epoch, (0,), partition_epoch)
    (known,) = broker.handlers.replicas
    assert known.isr == ((0,) if taken else (0, 1))


def test_a_log_that_fails_as_its_role_changes_is_answered_so() -> None:
    broker = BrokerHarness()
    broker.handlers._data_plane = Failing()
    assert broker.lead(leader_state()) == ["KAFKA_STORAGE_ERROR"]
    assert broker.losses == ["no space"]
    assert [record["to"] for record in broker.log.of_kind("replica")] == ["offline"]


class Failing(NoData):
    def apply(self, cause: str, transitions: Sequence[Transition]) -> dict[Key, str]:
        return {("foo", 0): "no space"}


def test_denials_are_recorded_with_how_many_they_stand_for(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = BrokerHarness()
    admitted = [1, 0, 0, 3]
    monkeypatch.setattr(broker.handlers._denials, "admit", lambda: admitted.pop(0))
    for _ in range(4):
        broker.handlers.control_denied("LeaderAndIsr", "User:mallory", "192.0.2.1")
    one, three = broker.log.of_kind("request")
    assert (one["to"], one["principal"], one["address"]) == ("LeaderAndIsr", "User:mallory", "192.0.2.1")
    assert one["error"] == "CLUSTER_AUTHORIZATION_FAILED"
    assert ("count" in one, three["count"]) == (False, 3)
