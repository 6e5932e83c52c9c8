"""Each invariant of the ledger can be violated, and what is right is not called a violation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proto.gen import broker_control_pb2 as wire
from tests.provers.sim.checks.ledger import SCRIBBLE, Ledger
from tests.provers.sim.zookeeper.tree import (
    Change,
    DataSet,
    Node,
    NodeCreated,
    NodeDeleted,
    Transaction,
    VersionChecked,
)

STATE = "/brokers/topics/foo/partitions/0/state"
FENCE = VersionChecked("/controller_epoch")


class LedgerHarness:
    """A ledger, of which controller 1 is elected in epoch 1 and foo-0 is led by broker 1 of [1, 2, 3]."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.excused: list[tuple[str, str, int]] = []
        self.writer = "controller-1"
        self.ledger = Ledger(self.found.append, lambda: self.writer, lambda *what: self.excused.append(what))
        self.write(DataSet("/controller_epoch", b"1", 1))
        self.topic([1, 2, 3])
        self.write(FENCE, NodeCreated(STATE, _state(), 31, 0, 1))
        assert not self.found

    def write(self, *changes: Change, by: str = "controller-1") -> list[str]:
        self.writer = by
        self.ledger.agreed(Transaction(1, 0, changes))
        return self.found

    def topic(self, replicas: list[int]) -> None:
        value = json.dumps({"version": 3, "topic_id": "id", "partitions": {"0": replicas}}).encode()
        self.write(FENCE, NodeCreated("/brokers/topics/foo", value, 31, 0, 1))

    def state(self, version: int, *, by: str = "controller-1", **fields: Any) -> list[str]:
        return self.write(FENCE, DataSet(STATE, _state(**fields), version), by=by)

    def send_leader_and_isr(self, caller: str = "controller-1", epoch: int = 1, **fields: Any) -> list[str]:
        known: dict[str, Any] = {"leader": 1, "leader_epoch": 0, "isr": [1, 2, 3], "partition_epoch": 0}
        state = wire.LeaderAndIsrPartitionState(topic="foo", partition=0, **{**known, **fields})
        request = wire.LeaderAndIsrRequest(controller_epoch=epoch, partition_states=[state])
        self.ledger.control_request(caller, "broker-2", "/x/LeaderAndIsr", request.SerializeToString())
        return self.found


def _state(**fields: Any) -> bytes:
    known = {"version": 1, "leader": 1, "leader_epoch": 0, "controller_epoch": 1, "isr": [1, 2, 3]}
    return json.dumps(known | fields).encode()


def test_what_is_right() -> None:
    harness = LedgerHarness()
    assert not harness.send_leader_and_isr()
    assert not harness.state(1, leader=2, leader_epoch=1, isr=[2, 3])
    assert not harness.state(2, by="broker-2", leader=2, leader_epoch=1, isr=[2, 3, 1])
    assert not harness.send_leader_and_isr(leader=2, leader_epoch=1, isr=[2, 3], partition_epoch=1)
    assert not harness.write(DataSet("/controller_epoch", b"2", 2), by="controller-2")
    assert not harness.write(FENCE, NodeDeleted(STATE), NodeDeleted("/brokers/topics/foo"), by="controller-2")
    assert not harness.excused


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"leader": 2, "isr": [2, 3]}, "two leaders"),
        ({"leader": 2, "leader_epoch": -1, "isr": [2]}, "the leader epoch went back"),
        ({"leader_epoch": 1, "isr": []}, "the ISR is empty"),
        ({"leader_epoch": 1, "isr": [2, 3]}, "the leader is not in the ISR"),
        ({"leader_epoch": 1, "isr": [1, 7]}, "is not within the replicas"),
        ({"leader_epoch": 1, "controller_epoch": 0}, "in controller epoch 1"),
        ({"leader_epoch": 1, "controller_epoch": 2}, "in controller epoch 1"),
    ],
)
def test_states_that_must_not_be(fields: dict[str, Any], words: str) -> None:
    assert words in " ".join(LedgerHarness().state(1, **fields))


def test_a_broker_changes_no_leader() -> None:
    assert (
        "broker-2 wrote another leader"
        in LedgerHarness().state(1, by="broker-2", leader=2, leader_epoch=1)[0]
    )


def test_controller_epochs_go_up_by_one() -> None:
    assert "went from 1 to 3" in LedgerHarness().write(DataSet("/controller_epoch", b"3", 2))[0]


def test_a_controller_checks_its_epoch_with_every_write() -> None:
    harness = LedgerHarness()
    found = harness.write(DataSet(STATE, _state(leader_epoch=1), 1))
    assert found == [f"controller-1 changed {STATE} without checking its controller epoch"]
    assert len(harness.write(NodeDeleted("/admin/delete_topics/foo"))) == 2


@pytest.mark.parametrize(
    "fields",
    [{"leader": 2}, {"leader_epoch": 1}, {"isr": [1]}, {"partition_epoch": 1}],
)
def test_brokers_are_told_what_is_durable(fields: dict[str, Any]) -> None:
    assert "what was never durable" in LedgerHarness().send_leader_and_isr(**fields)[0]


def test_only_who_is_elected_writes() -> None:
    harness = LedgerHarness()
    harness.write(DataSet("/controller_epoch", b"2", 2), by="controller-2")
    marker = NodeDeleted("/admin/delete_topics/foo")
    assert not harness.write(FENCE, marker, by="controller-2")
    assert harness.write(FENCE, marker) == ["controller-1 wrote as controller in epoch 2 of controller-2"]


def test_only_who_was_elected_sends_orders() -> None:
    assert (
        "told broker-2 to be elected in controller epoch 1"
        in LedgerHarness().send_leader_and_isr(caller="controller-2")[0]
    )
    assert "to be elected in controller epoch 2" in LedgerHarness().send_leader_and_isr(epoch=2)[0]


def _registration(directory: str) -> bytes:
    return json.dumps({"directories": [directory * 22]}).encode()


def registered(harness: LedgerHarness, broker_id: int, directory: str) -> list[str]:
    path = f"/brokers/ids/{broker_id}"
    created = NodeCreated(path, b"", 31, 7, 1, False)
    return harness.write(created, DataSet(path, _registration(directory), 1), by=f"broker-{broker_id}")


def test_lost_data_alone_excuses_nothing() -> None:
    harness = LedgerHarness()
    harness.ledger.data_lost(1)
    harness.state(1, leader_epoch=1, isr=[1])
    harness.write(DataSet("/controller_epoch", b"2", 2), by="controller-2")
    assert not harness.excused
    assert not harness.ledger.lost(), "it has a leader"


def test_only_an_operator_helps_where_all_in_sync_members_lost_data() -> None:
    harness = LedgerHarness()
    harness.ledger.unclean_possible = False
    harness.ledger.data_lost(1)
    harness.state(1, leader=-1, leader_epoch=1, isr=[1, 2])
    assert not harness.ledger.lost(), "broker 2 may come back"
    harness.state(2, leader=-1, leader_epoch=2, isr=[1])
    assert harness.ledger.lost() == [("foo", 0)]
    harness.ledger.given_up.add(("foo", 0))
    assert not harness.state(3, leader=1, leader_epoch=3, isr=[1], leader_recovery_state=1)
    assert harness.excused == [("foo", "id", 0)]


def test_an_unclean_election_of_a_member_is_one() -> None:
    harness = LedgerHarness()
    harness.ledger.unclean_possible = False
    found = harness.state(1, leader=1, leader_epoch=1, isr=[1], leader_recovery_state=1)
    assert "nobody permitted it" in found[0]


def test_who_is_registered_with_another_directory_than_it_got_in_sync_with() -> None:
    harness = LedgerHarness()
    registered(harness, 1, "A")
    harness.ledger.data_lost(1)
    assert not registered(harness, 1, "B")
    harness.state(1, leader=-1, leader_epoch=1, isr=[1], isr_directories={"1": 1})
    assert harness.ledger.lost() == [("foo", 0)]


def test_a_directory_changes_only_by_a_loss() -> None:
    harness = LedgerHarness()
    assert not registered(harness, 1, "A")
    assert not registered(harness, 1, "A")
    assert "has lost nothing, and registered with another directory" in registered(harness, 1, "B")[0]


def test_who_left_the_isr_since_it_lost_data_is_well_again() -> None:
    harness = LedgerHarness()
    harness.ledger.data_lost(1)
    harness.state(1, leader=2, leader_epoch=1, isr=[2, 3])
    registered(harness, 1, "B")
    harness.state(2, leader=2, leader_epoch=1, isr=[2, 3, 1])
    harness.state(3, leader=-1, leader_epoch=2, isr=[1])
    assert not harness.ledger.lost()


def test_who_lost_data_may_still_get_in_sync_by_its_former_registration() -> None:
    harness = LedgerHarness()
    harness.state(1, leader=2, leader_epoch=1, isr=[2, 3])
    harness.ledger.data_lost(1)
    harness.state(2, leader=2, leader_epoch=1, isr=[2, 3, 1])
    harness.state(3, leader=-1, leader_epoch=2, isr=[1])
    assert harness.ledger.lost() == [("foo", 0)]


def test_what_came_after_a_loss_lost_nothing() -> None:
    harness = LedgerHarness()
    harness.ledger.data_lost(1)
    harness.write(NodeDeleted("/brokers/topics/foo/partitions/0/state"))
    harness.state(0, leader=2, isr=[2, 1])
    harness.state(1, leader=-1, leader_epoch=1, isr=[1])
    assert not harness.ledger.lost()


def test_an_unclean_election_is_an_excuse() -> None:
    harness = LedgerHarness()
    harness.state(1, leader=2, leader_epoch=1, isr=[2])
    harness.state(2, leader=3, leader_epoch=2, isr=[3])
    assert harness.excused == [("foo", "id", 0)]


def test_a_leader_that_is_not_in_sync() -> None:
    harness = LedgerHarness()
    harness.state(1, isr=[1, 2])
    harness.state(2, leader=3, leader_epoch=1, isr=[3])
    assert not harness.found
    assert harness.excused
    harness.ledger.unclean_possible = False
    (found,) = harness.state(3, leader=2, leader_epoch=2, isr=[2])
    assert "not in sync, and nobody permitted it" in found


def test_what_a_deleted_notification_named_is_known() -> None:
    harness = LedgerHarness()
    path = "/isr_change_notification/isr_change_0000000001"
    named = json.dumps({"version": 1, "partitions": [{"topic": "foo", "partition": 0}]}).encode()
    record = {"controller_epoch": 1, "topic": "foo", "partition": 0, "partition_epoch": 1}

    def found_late(controller: str, version: int) -> list[str]:
        harness.ledger.found_late(controller, record | {"partition_epoch": version})
        return harness.found

    harness.state(1, by="broker-1", isr=[1, 2])
    harness.write(NodeCreated(path, named, 31, 0, 1), by="broker-1")
    assert found_late("controller-1", 1) == []
    harness.write(FENCE, NodeDeleted(path))
    harness.state(2, by="broker-1", isr=[1])
    assert found_late("controller-1", 2) == found_late("controller-2", 1) == []
    (told,) = found_late("controller-1", 1)
    assert "deleted the notification" in told
    harness.write(NodeCreated(path, b"{", 31, 0, 1), by="operator")


def test_a_late_copy_puts_metadata_back() -> None:
    harness = LedgerHarness()

    def told(number: int) -> set[tuple[str, int]]:
        of = wire.UpdateMetadataPartitionState(topic="foo", partition=number, leader=-2)
        request = wire.UpdateMetadataRequest(controller_epoch=1, partition_states=[of])
        message = request.SerializeToString()
        harness.ledger.control_request("controller-1", "broker-2", "/x/UpdateMetadata", message)
        return harness.ledger.told_older["broker-2"]

    assert told(0) == told(0) == told(1) == set(), "nothing came in between the same two"
    assert told(0) == {("foo", 0)}
    assert told(2) == {("foo", 0)}
    assert not harness.found


def test_what_a_hand_has_put_back_is_new_until_somebody_else_writes() -> None:
    harness = LedgerHarness()
    for version, by in ((1, "operator"), (2, "operator")):
        assert not harness.ledger.put_back
        harness.write(DataSet(STATE, SCRIBBLE if version == 1 else _state(), version), by=by)
    assert harness.ledger.put_back == {("foo", 0)}
    harness.state(3, leader_epoch=1)
    assert not harness.ledger.put_back


def test_what_waits_to_be_moved_and_whether_anything_held_it_up() -> None:
    harness = LedgerHarness()
    maintenance = "/controllers/maintenance"
    value = b'{"partitions": {"0": [1, 2, 3]}, "queued_replicas": {"0": [1, 2]}}'
    harness.write(DataSet(maintenance, b'{"version":', 1), by="operator")
    harness.write(FENCE, DataSet(maintenance, b'{"paused": null, "freeze": null}', 1))
    assert not harness.ledger.was_suspended
    harness.write(FENCE, DataSet("/brokers/topics/foo", value, 1))
    assert harness.ledger.topics["foo"].queued == {0: (1, 2)}
    harness.write(FENCE, DataSet(maintenance, b'{"freeze": {"author": "me"}}', 2))
    assert harness.ledger.was_suspended


def test_a_state_of_the_topic_before_lands_on_what_a_hand_has_put_in_its_place() -> None:
    harness = LedgerHarness()
    elsewhere = json.dumps({"partitions": {"0": [7, 8]}}).encode()
    topic = "/brokers/topics/foo"
    harness.write(NodeDeleted(topic), NodeCreated(topic, elsewhere, 31, 0, 1), by="operator")
    assert not harness.state(0)


# --- what was there before is put back -----------------------------------------------------------------------


class Restored(LedgerHarness):
    """Broker 2 leads in leader epoch 1, alone in the ISR; then the first state is put back."""

    def __init__(self, *, known: bool, **fields: Any) -> None:
        super().__init__()
        self.state(1, leader=2, leader_epoch=1, isr=[2])
        self.ledger.restoring = ("foo", 0), known
        self.state(2, by="operator", **fields)
        self.ledger.restoring = None
        assert not self.found


def test_an_older_state_is_written_over_by_who_knows_better() -> None:
    assert not Restored(known=True).state(3, leader=2, leader_epoch=2, isr=[2])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"leader": 1, "leader_epoch": 2}, "a leader that is not in sync"),
        ({"leader": 3, "leader_epoch": 1, "isr": [3]}, "two leaders"),
        ({"leader": 1, "leader_epoch": 0}, "the leader epoch went back"),
    ],
)
def test_who_knows_better_decides_nothing_by_an_older_state(fields: dict[str, Any], words: str) -> None:
    harness = Restored(known=True)
    harness.ledger.unclean_possible = False
    assert words in " ".join(harness.state(3, **fields))


@pytest.mark.parametrize("who", ["nobody", "who died since"])
def test_where_nobody_knows_better_an_older_state_is_believed(who: str) -> None:
    harness = Restored(known=who != "nobody")
    harness.ledger.unclean_possible = False
    if who != "nobody":
        assert not harness.excused
        harness.write(DataSet("/controller_epoch", b"2", 2), by="controller-2")
    by, epoch = ("controller-1", 1) if who == "nobody" else ("controller-2", 2)
    assert not harness.state(3, by=by, leader=3, leader_epoch=1, isr=[3], controller_epoch=epoch)
    assert set(harness.excused) == {("foo", "id", 0)}


@pytest.mark.parametrize(("leader", "allowed"), [(2, True), (3, False)])
def test_who_led_by_what_is_forgotten_may_lead_again_and_nobody_else(leader: int, allowed: bool) -> None:
    harness = Restored(known=False, isr=[1])
    harness.ledger.unclean_possible = False
    found = " ".join(harness.state(3, leader=leader, leader_epoch=2, isr=[leader]))
    assert ("a leader that is not in sync" in found) is not allowed


def test_an_isr_of_before_under_the_same_leader_epoch_is_taken_for_its_leader_s() -> None:
    harness = Restored(known=True, leader=2, leader_epoch=1, isr=[2, 3])
    assert harness.excused == [("foo", "id", 0)]
    assert not Restored(known=True, leader=2, leader_epoch=1, isr=[2]).excused


@pytest.mark.parametrize("id_", [None, "other"])
@pytest.mark.parametrize("known", [True, False])
def test_a_topic_keeps_the_id_that_brokers_know_as_long_as_a_controller_does(
    id_: str | None, known: bool
) -> None:
    harness = LedgerHarness()

    def write(id_: str | None, by: str) -> list[str]:
        value = json.dumps({"version": 3, "topic_id": id_, "partitions": {"0": [1, 2, 3]}}).encode()
        return harness.write(FENCE, DataSet("/brokers/topics/foo", value, 1), by=by)

    harness.ledger.misnaming = known
    assert not write(id_, "operator")
    harness.ledger.misnaming = None
    assert (harness.ledger.misnamed, harness.ledger.topics["foo"].id) == ({"foo": known}, "id")
    assert bool(write("another", "controller-1")) == known
    write("id", "controller-1")
    assert not harness.ledger.misnamed


# --- ZooKeeper is restored from a backup ---------------------------------------------------------------------


class WentBack(LedgerHarness):
    """Broker 2 leads in leader epoch 1, alone in the ISR; the backup is from before. ``away``: who does not run."""

    def __init__(
        self,
        away: int = 0,
        replicas: tuple[int, ...] = (1, 2, 3),
        known: tuple[int, int, int] = (1, 2, 1),
        version: int = 1,
        **since: Any,
    ) -> None:
        super().__init__()
        self.ledger.unclean_possible = False
        self.ledger.forgotten.remembered = lambda id_, _: known if id_ == known[1] else (0, 1, 0)
        self.ledger.forgotten.is_running = lambda id_: id_ != away
        self.write(DataSet("/controller_epoch", b"2", 2), by="controller-2")
        fields = {"leader": 2, "leader_epoch": 1, "isr": [2], "controller_epoch": 2, **since}
        self.state(version, by="controller-2", **fields)
        topic = json.dumps({"topic_id": "id", "partitions": {"0": replicas}}).encode()
        nodes = {"/controller_epoch": b"1", "/brokers/topics/foo": topic, STATE: _state()}
        self.ledger.went_back({path: Node(data) for path, data in nodes.items()})
        self.write(DataSet("/controller_epoch", b"2", 2), by="controller-3")
        assert not self.found

    def decide(self, **fields: Any) -> str:
        return " ".join(self.state(1, by="controller-3", **{"controller_epoch": 2, **fields}))


def test_after_a_backup_who_was_in_sync_by_what_brokers_were_told_leads_again() -> None:
    harness = WentBack()
    assert "ZooKeeper has forgotten State(leader=2" in harness.ledger.not_taken_over()[0]
    assert not harness.decide(leader=2, leader_epoch=2, isr=[2])
    assert not harness.ledger.not_taken_over()
    assert not harness.excused


def test_after_a_backup_nobody_else_is_in_sync() -> None:
    assert "which ZooKeeper has forgotten" in WentBack().decide(leader=1, leader_epoch=2, isr=[1])
    harness = WentBack(known=(1, 2, 2), version=2)
    fields = {"leader": 2, "leader_epoch": 2, "isr": [2, 3], "controller_epoch": 2}
    assert not harness.decide(**fields)
    assert "which ZooKeeper has forgotten" in " ".join(harness.state(2, by="controller-3", **fields))


@pytest.mark.parametrize(("registered", "knows"), [(False, False), (False, True), (True, False)])
def test_a_controller_that_cannot_know_of_the_backup_waits_for_no_broker(
    *, registered: bool, knows: bool
) -> None:
    harness = WentBack()
    harness.ledger.forgotten.is_registered = lambda id_: id_ != 2 or registered
    harness.ledger.forgotten.may_know = lambda writer: writer != "controller-3" or knows
    harness.decide(leader=-1, leader_epoch=2, isr=[2, 3])
    found = harness.decide(leader=3, leader_epoch=3, isr=[3])
    assert ("which ZooKeeper has forgotten" in found) == (registered or knows)
    assert harness.excused


def test_after_a_backup_leader_epochs_may_be_used_again_by_who_was_away() -> None:
    harness = WentBack()
    assert not harness.decide(leader=3, leader_epoch=1, isr=[3])
    assert (harness.excused, harness.ledger.believed) == ([("foo", "id", 0)], {("foo", 0)})


def test_what_only_a_broker_knows_that_does_not_run_need_not_be_taken_over() -> None:
    harness = WentBack(away=2)
    assert harness.excused == [("foo", "id", 0)]
    assert not harness.ledger.not_taken_over()
    assert not harness.decide(leader=3, leader_epoch=2, isr=[3])


def test_replicas_that_have_moved_since_the_backup_are_excused() -> None:
    harness = WentBack(replicas=(1, 2))
    assert harness.excused == [("foo", "id", 0)]
    assert not harness.ledger.not_taken_over()


def test_an_isr_that_shrank_in_a_leader_epoch_that_goes_on_is_known_by_its_leader_s_process() -> None:
    def harness(process: int) -> WentBack:
        made = WentBack(known=(0, 1, 1), leader=1, leader_epoch=0, isr=[1])
        made.ledger.forgotten.process_of = lambda _: process
        return made

    assert "which ZooKeeper has forgotten" in harness(0).decide(leader=2, leader_epoch=1, isr=[2])
    started_again = harness(1)
    assert not started_again.ledger.not_taken_over()
    assert not started_again.decide(leader=2, leader_epoch=1, isr=[2])
    assert started_again.excused


def test_an_isr_of_before_may_be_decided_by_until_brokers_were_asked() -> None:
    harness = WentBack(known=(0, 1, 5), version=5, leader=1, leader_epoch=0, isr=[1])
    assert not harness.decide(leader=1, leader_epoch=1, isr=[1, 2])
    assert harness.ledger.not_taken_over()
    assert "which ZooKeeper has forgotten" in harness.decide(leader=2, leader_epoch=2, isr=[2])
    mended = WentBack(known=(0, 1, 5), version=5, leader=1, leader_epoch=0, isr=[1])
    mended.decide(leader=1, leader_epoch=1, isr=[1, 2])
    assert not mended.decide(leader=1, leader_epoch=2, isr=[1])
    assert not mended.ledger.not_taken_over()
    assert not mended.excused
    # What does not look older to the leader is taken by it.
    taken = WentBack(known=(0, 1, 1), leader=1, leader_epoch=0, isr=[1])
    assert not taken.decide(leader=1, leader_epoch=1, isr=[1, 2])
    assert taken.excused
    assert not taken.ledger.not_taken_over()


def test_a_controller_epoch_that_was_forgotten_may_be_skipped_to() -> None:
    harness = WentBack()
    harness.write(DataSet("/controller_epoch", b"3", 3), by="controller-3")
    harness.ledger.went_back({"/controller_epoch": Node(b"1")})
    assert not harness.write(DataSet("/controller_epoch", b"3", 2), by="controller-1")
    assert "went from 3 to 5" in harness.write(DataSet("/controller_epoch", b"5", 3))[0]
