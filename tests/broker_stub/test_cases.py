"""The reference's broker cases (tests/cases/broker_cases.jsonl), one test for each row.

Others are named in REPLICATION, in ELSEWHERE with the reason, or by the tests of real processes and a real ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker_stub.control.replicas import Role, describe
from tests.support.broker.builders import ID_X, ID_Y, BrokerHarness, leader_state, metadata_state, stop_state
from tests.support.reference_rows import load

CASES = load("broker_cases.jsonl")
NAMED_IDS = {"X": ID_X, "Y": ID_Y, "real": ID_X}

#: Rows of the replicated log, fetches and ISR changes: replication/test_replication_cases.py runs each.
REPLICATION = frozenset(
    {
        "K396", "K406", "K448", "K462", "K468", "K469", "K470", "K471", "K472", "K473", "K476", "K477", "K478",
        "K485", "K488", "K490", "K491", "K492", "K494", "K499", "K541",
    }
)  # fmt: skip
_NO_MOVES = (
    "a replica stays in the data directory where it was put: nothing moves it to another of the broker's"
)
#: What belongs to a protocol or a disk layout that is not ours.
ELSEWHERE = {
    "K400": _NO_MOVES,
    "K402": _NO_MOVES,
    "K410": "stray replicas are found from a full LeaderAndIsr, which exists in the KRaft migration only",
    "K434": _NO_MOVES,
    "K435": "a full LeaderAndIsr exists in the KRaft migration only",
    "K480": "there is one form of the request, which has ISR and broker epochs: zookeeper/test_isr_writers.py::"
    "test_its_own_membership_is_that_of_its_present_registration",
    "K516": "our endpoint never changes while registered: nothing updates a registration in place",
}


def cases(*suites: str) -> list[Any]:
    """The rows of these suites that are to be run, as pytest parameters."""
    return [
        pytest.param(row, id=f"{row_id}-{row['test']}")
        for row_id, row in CASES.items()
        if row["suite"] in suites and row_id not in REPLICATION and row_id not in ELSEWHERE
    ]


def lead_given(broker: BrokerHarness, given: dict[str, Any]) -> None:
    """Bring a broker to the partition that a row starts from."""
    partition = given.get("partition")
    if partition == "leader at epoch 1":
        assert broker.lead(leader_state(leader_epoch=1)) == ["NONE"]
    elif isinstance(partition, dict):
        assert broker.lead(leader_state(**partition)) == ["NONE"]


@pytest.mark.parametrize("row", cases("KafkaApisTest"))
def test_broker_epoch_gate(row: dict[str, Any]) -> None:
    broker = BrokerHarness()
    broker.handlers.registered(row["given"]["broker_epoch"])
    before = broker.handlers.describe()
    epoch = row["when"]["broker_epoch"]
    send: dict[str, Callable[[], str]] = {
        "UpdateMetadata": lambda: broker.update(metadata_state(), broker_epoch=epoch),
        "LeaderAndIsr": lambda: broker.lead(leader_state(), broker_epoch=epoch)[0],
        "StopReplica": lambda: broker.stop(stop_state("bar"), broker_epoch=epoch)[0],
    }
    assert send[row["when"]["request"]]() == row["then"]["error"]
    if not row["then"]["handled"]:
        assert broker.handlers.describe() == before


@pytest.mark.parametrize("row", cases("BrokerEpochIntegrationTest"))
def test_control_requests_and_the_broker_epoch(row: dict[str, Any]) -> None:
    """Broker 1 of the row follows broker 0 in new-topic-0 at leader epoch 0."""
    broker = BrokerHarness(broker_id=1, controller_epoch=1)
    broker.handlers.registered(100)
    assert broker.lead(leader_state("new-topic"), broker_epoch=100) == ["NONE"]
    when, then = row["when"], row["then"]
    epoch = {"current": 100, "current-1": 99, "current+1": 101}[when["broker_epoch"]]
    state = when["state"]
    if when["request"] == "StopReplica":
        sent = stop_state("new-topic", leader_epoch=state["leader_epoch"], delete=state["delete"])
        assert broker.stop(sent, broker_epoch=epoch) == [then["error"]]
        assert not broker.hosts("new-topic")
    elif when["request"] == "LeaderAndIsr":
        assert broker.lead(leader_state("new-topic", **state), broker_epoch=epoch) == [then["error"]]
        assert broker.replica("new-topic").role is Role.LEADER
    else:
        assert broker.update(metadata_state("new-topic", **state), broker_epoch=epoch) == then["error"]
        cached = broker.handlers.metadata.partition("new-topic", 0)
        assert (cached.leader if cached else None) == (1 if then["error"] == "NONE" else None)


@pytest.mark.parametrize("row", cases("LeaderElectionTest"))
def test_stale_controller_epoch(row: dict[str, Any]) -> None:
    sent = row["when"]["leader_and_isr"]
    broker = BrokerHarness(broker_id=sent["to"], controller_epoch=row["given"]["cluster_controller_epoch"])
    header = {"controller_id": sent["controller_id"], "controller_epoch": sent["controller_epoch"]}
    state = leader_state("new-topic", replicas=[0, 1], **sent["state"])
    assert broker.lead(state, **header) == [row["then"]["error"]]
    assert not broker.hosts("new-topic")


@pytest.mark.parametrize(
    "row", [p for p in cases("ReplicaManagerTest") if "stop_replica" in p.values[0]["when"]]
)
def test_stop_replica(row: dict[str, Any]) -> None:
    given, sent, then = row["given"], row["when"]["stop_replica"], row["then"]
    broker = BrokerHarness(controller_epoch=given.get("last_controller_epoch", 0))
    lead_given(broker, given)
    hosted_before = broker.hosts()
    state = stop_state(leader_epoch=sent["leader_epoch"], delete=sent["delete"])
    answer = broker.stop(state, controller_epoch=sent.get("controller_epoch", broker.controller_epoch))
    # A partition error is only there when the request as a whole was taken.
    assert answer == [then.get("partition_error", then.get("error"))]
    hosted = then.get("hosted", hosted_before and not sent["delete"])
    assert broker.hosts() is hosted
    if then.get("log_present") is False or (not hosted and hosted_before):
        assert broker.disk.steps[-1].after is None
        assert broker.disk.steps[-1].folder
    if then["error" if "error" in then else "partition_error"] != "NONE":
        assert broker.replica().role is Role.LEADER


def topic_ids_of(when: dict[str, Any], topic: str = "foo") -> dict[str, str]:
    """The ids that a request of the row's version carries: before version 5 there were none."""
    version = when.get("version", when.get("leader_and_isr", {}).get("version"))
    named = when.get("topic_id", when.get("leader_and_isr", {}).get("topic_id"))
    return {} if named is None or version == 4 else {topic: NAMED_IDS[named]}


@pytest.mark.parametrize("row", [p for p in cases("ReplicaManagerTest") if "topic_id" in str(p.values[0])])
def test_topic_ids(row: dict[str, Any]) -> None:
    given, when, then = row["given"], row["when"], row["then"]
    broker = BrokerHarness()
    if given.get("data_dir") == "unusable":
        broker.disk.failing[("foo", 0)] = "unusable"
    sent = dict(when["leader_and_isr"])
    if given.get("log_topic_id") or "after" in given or "fetcher_topic_id" in given:
        earlier = given.get("log_topic_id") or given.get("fetcher_topic_id")
        leader = sent["leader"]
        first = broker.lead(
            leader_state(leader=leader), topic_ids={"foo": NAMED_IDS[earlier]} if earlier else {}
        )
        assert first == ["NONE"]
    topic = sent.pop("topic", "foo")
    for name in ("topic_id", "version"):
        sent.pop(name, None)
    answer = broker.lead(leader_state(topic, **sent), topic_ids=topic_ids_of(when, topic))
    storage_error = "KAFKA_STORAGE_ERROR" if then.get("hosted") == "offline" else "NONE"
    assert answer == [then.get("partition_error", then.get("error", storage_error))]
    replica = broker.replica(topic)
    if then.get("hosted") == "offline":
        assert replica.role is Role.OFFLINE
        assert replica.topic_id == NAMED_IDS[then["topic_id"]]
    if "log_topic_id" in then:
        assert replica.topic_id == NAMED_IDS[then["log_topic_id"]]
    if "partition_metadata_file" in then:
        assert replica.topic_id is then["partition_metadata_file"] is None
    # What is on the disk keeps its id, whatever a request without one says.


@pytest.mark.parametrize("row", [CASES["K403"], CASES["K427"]], ids=lambda row: row["id"])
def test_becoming_a_follower(row: dict[str, Any]) -> None:
    """The control part; that nothing is truncated and who is fetched from: replication/test_fetcher.py."""
    broker = BrokerHarness()
    if "leader_epoch" in row["given"]:
        given = row["given"]
        broker.lead(leader_state(leader=given["follower_of"], leader_epoch=given["leader_epoch"]))
    sent = row["when"]["leader_and_isr"]
    assert broker.lead(leader_state(**sent)) == ["NONE"]
    replica = broker.replica()
    assert (replica.role, replica.leader) == (Role.FOLLOWER, sent["leader"])
    assert (replica.leader_epoch, replica.partition_epoch) == (sent["leader_epoch"], sent["partition_epoch"])


@pytest.mark.parametrize("row", cases("AssignmentStateTest"))
def test_assignment_state(row: dict[str, Any]) -> None:
    sent = dict(row["when"]["leader_and_isr"])
    adding, removing = sent.pop("adding"), sent.pop("removing")
    broker = BrokerHarness()
    # The original's test calls the partition directly: there broker 0 is led without being in replicas.
    replicas = sent["replicas"] if 0 in sent["replicas"] else [*sent["replicas"], *adding]
    state = leader_state(**{**sent, "replicas": replicas}, adding_replicas=adding, removing_replicas=removing)
    assert broker.lead(state) == ["NONE"]
    described = describe(broker.replica(), 0)
    assert {name: described[name] for name in row["then"]} == row["then"]


@pytest.mark.parametrize("row", cases("PartitionTest"))
def test_partition(row: dict[str, Any]) -> None:
    given, when, then = row["given"], row["when"], row["then"]
    broker = BrokerHarness()
    if "leader_epoch" in given:
        following = "become_follower" in when
        start = {name: given[name] for name in ("leader_epoch", "partition_epoch") if name in given}
        broker.lead(leader_state(leader=1 if following else 0, **start))
    before = broker.replica() if broker.hosts() else None
    kind, sent = next(iter(when.items()))
    fields = {name: value for name, value in sent.items() if name != "leader"}
    leader = 1 if kind == "become_follower" else 0
    broker.lead(leader_state(leader=sent.get("leader") if kind == "become_follower" else leader, **fields))
    after = broker.replica()
    if then.get("applied") is False or then.get("new_leader") is False:
        assert after == before
    if then.get("applied") is True:
        assert after.leader_epoch == sent["leader_epoch"]
    if "partition_epoch" in then:
        assert after.partition_epoch == then["partition_epoch"]
    described = describe(after, 0)
    if "under_replicated" in then:
        assert described["under_replicated"] is then["under_replicated"]
    if "remote_replicas" in then:
        assert described["remote_replicas"] == then["remote_replicas"]
        assert described["reassigning"] is (then["state"] != "simple")
