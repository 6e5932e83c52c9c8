"""Looking and thinking ahead over real gRPC: what only the active controller knows, bad input, and approvals."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message
from kazoo.client import KazooClient

from controller.cli.computed.snapshots import snapshot_of
from controller.core.cluster import dynamic_settings
from controller.core.effects import Problem
from controller.core.events import DiskReport
from controller.core.explain.brokers import explain_broker
from controller.core.explain.partitions import Deciding, explain_partition
from controller.core.model import LeaderAndIsr, ReplicaState
from controller.core.requests.configs import AlterConfigs, ConfigAlteration, ConfigResource, ConfigScope
from controller.core.znode_paths import config_path
from controller.planning import scenarios
from controller.planning.context import cluster_of
from controller.planning.scenarios import Terms
from controller.planning.snapshot import Snapshot
from controller.planning.stoppable import stoppable
from controller.runtime.rpc import dry_run
from controller.runtime.rpc.translate.inspection import BROKERS_MAX
from controller.runtime.rpc.translate.plan_data import explanation_data, plan_data, stoppable_data
from controller.runtime.zookeeper import cluster_reader
from proto.gen import inspection_pb2 as pb
from proto.gen import maintenance_pb2
from proto.gen.common_pb2 import PartitionName
from proto.gen.maintenance_pb2 import SetDrainRequest
from tests.support.runtime.admins import ask, error_name
from tests.support.runtime.inspections import SIGNED, check, explained, plan_of, planned, three
from tests.support.runtime.sessions import until

pytestmark = pytest.mark.slow

SETTINGS = b'{"version":1,"config":{"unclean.leader.election.enable":"%s"}}'


async def from_zookeeper(connect: str) -> Any:
    async with cluster_reader.connected(connect, 20_000) as session:
        return snapshot_of(await cluster_reader.look(session, configs=True))


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value, default=list))


# --- the same as from ZooKeeper ------------------------------------------------------------------------------


async def test_answers_equal_those_from_zookeeper_where_nothing_else_is_known(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    async with three(zookeeper, zk, tmp_path) as (_, endpoint):
        snapshot = await from_zookeeper(zookeeper)
        for request, made in (
            (
                plan_of(broker_loss=pb.BrokerSet(broker_ids=[1])),
                scenarios.broker_loss(snapshot, [1], Terms()),
            ),
            (plan_of(drain=2), scenarios.drain(snapshot, 2, Terms())),
            (plan_of(rolling_restart=pb.BrokerSet()), scenarios.rolling_restart(snapshot, Terms())),
            (
                plan_of(rolling_restart=pb.BrokerSet(broker_ids=[2, 3]), batch=0),
                scenarios.rolling_restart(snapshot, Terms(), 0, [2, 3]),
            ),
            (plan_of(preferred_election=True), scenarios.preferred_election(snapshot, Terms())),
        ):
            request.list_writes = True
            answer = await ask(endpoint, "Plan", request)
            assert planned(answer) == as_json(plan_data(made, True))
            assert answer.safe == made.safe
        answer = await ask(endpoint, "CheckStoppable", check(1, 3))
        assert json.loads(answer.answer) == as_json(stoppable_data(stoppable(snapshot, [1, 3], Terms())))
        assert not answer.stoppable
        cluster = cluster_of(snapshot)
        partition = cluster.partition("t", 0)
        assert partition is not None
        known = await explained(endpoint, partition=PartitionName(topic="t", partition=0))
        # Which event it was, only the controller remembers.
        event = event_named_by(known)
        found = explain_partition(cluster, partition, unclean_allowed=False, deciding=event)
        assert known == as_json(explanation_data(found))
        assert [rule["leader"] for rule in known["rules"]] == [1, 1, 1]


def event_named_by(known: dict[str, Any]) -> Deciding:
    at = re.search(r" at (\S+Z)$", known["words"][2])
    assert at is not None, known["words"]
    return Deciding(known["event_id"], known["cause"], 1, at[1])


# --- what only the active controller knows ---------------------------------------------------------------------


async def test_the_event_that_decided_is_named_also_when_it_was_of_a_former_term(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    async with three(zookeeper, zk, tmp_path) as (active, endpoint):
        named = PartitionName(topic="t", partition=0)
        created = await explained(endpoint, partition=named)
        assert (created["event_id"] > 0, created["cause"]) == (True, "TopicChange")
        zk.delete("/brokers/ids/1")
        await until(
            lambda: (found := active.partition("t", 0).leadership) is not None and found.leader == 2,
            "broker 2 to lead",
        )
        moved = await explained(endpoint, partition=named)
        active.daemon.state_log.flush()
        records = map(json.loads, (tmp_path / "state-change.jsonl").read_text().splitlines())
        *_, last = (
            r["event_id"]
            for r in records
            if (r["kind"], r.get("topic")) == ("leader", "t") and r["partition"] == 0
        )
        assert (moved["event_id"], moved["cause"]) == (last, "BrokerChange")
        assert f"; decided by event {last} (BrokerChange) of controller epoch 1 at 2" in moved["words"][2]
        zk.delete("/controller")
        await until(lambda: active.daemon.active and active.term.won.epoch == 2, "the next term")
        later = await explained(endpoint, partition=named)
        assert (later["event_id"], later["cause"]) == (last, "BrokerChange")
        # Somebody else changed it since: which event that was is not known here.
        data = json.loads(zk.get("/brokers/topics/t/partitions/0/state")[0])
        active.partition("t", 0).leadership = LeaderAndIsr(
            data["leader"], data["leader_epoch"], tuple(data["isr"]), 99, 2
        )
        unknown = await explained(endpoint, partition=named)
        assert (unknown["event_id"], unknown["cause"]) == (0, "")
        assert unknown["words"][2].endswith("the event is in that controller's state-change log")


async def test_a_broker_in_shutdown_and_a_failed_disk_are_known_here_only(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    async with three(zookeeper, zk, tmp_path, unclean_leader_election_enable=True) as (active, endpoint):
        cluster = active.term.machine.cluster
        await active.caller.shut_down(3, cluster.brokers[3].epoch)
        report = DiskReport(2, cluster.brokers[2].epoch, [active.partition("t", 0)])
        active.term._report(report)
        await until(lambda: 2 in cluster.offline_dirs and active.idle(), "the disk report")

        loss = plan_of(broker_loss=pb.BrokerSet(broker_ids=[1]))
        here = planned(await ask(endpoint, "Plan", loss))["steps"][0]
        snapshot = await from_zookeeper(zookeeper)
        there = scenarios.broker_loss(snapshot, [1], Terms()).steps[0]
        assert "t-0" in here["offline"]
        # It takes the broker that is leaving, and the failed disk, for candidates.
        assert {m["partition"]: m["to"] for m in here["moved"]}["t-0"] == -1
        assert snapshot.shutting_down == frozenset()
        assert there != here

        found = await explained(endpoint, broker=3)
        assert found["summary"].startswith("it is shutting down")
        assert found["changes"]
        rules = (await explained(endpoint, partition=PartitionName(topic="t", partition=0)))["rules"]
        assert {c["failed"] for c in rules[0]["candidates"]} == {"", "is online", "does not shut down"}
        assert rules[1]["permitted"]
        notes = (await explained(endpoint, controller=True))["notes"]
        assert "in controlled shutdown: brokers 3" in notes
        assert "broker 2 has 1 replica on failed disks" in notes
        assert notes[0].endswith(": on (by its setting)")
        answer = await ask(endpoint, "CheckStoppable", check(1))
        assert json.loads(answer.answer)["shutting_down"] == [3]
        described = await ask(endpoint, "DescribeTopics", pb.DescribeTopicsRequest(topics=["t"]))
        assert list(described.topics[0].partitions[0].offline_replicas) == [2]


async def test_drains_are_known_to_both(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    async with three(zookeeper, zk, tmp_path) as (_, endpoint):
        request = maintenance_pb2.SetDrainRequest(broker_id=2, drained=True, **SIGNED)
        await ask(endpoint, "SetDrain", request)
        loss = plan_of(broker_loss=pb.BrokerSet(broker_ids=[1]))
        here = planned(await ask(endpoint, "Plan", loss))["steps"][0]
        assert {m["partition"]: m["to"] for m in here["moved"]}["t-0"] == 3
        snapshot = await from_zookeeper(zookeeper)
        there = scenarios.broker_loss(snapshot, [1], Terms())
        assert as_json(plan_data(there, False))["steps"][0] == here
        found = await explained(endpoint, broker=2)
        assert found["notes"] == ["kept free of leaderships by ann: kernel"]


async def test_a_deletion_and_a_move_are_explained(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    async with three(zookeeper, zk, tmp_path) as (active, endpoint):
        zk.create("/admin/delete_topics/u")
        held = active.term.machine.cluster.deletions_ineligible
        replica = active.partition("u", 0)
        await until(lambda: "u" in held, "the refusal of the brokers")
        ineligible = (ReplicaState.DELETION_INELIGIBLE,)
        await until(lambda: tuple(replica.replica_states) != ineligible, "the end of the attempt")
        found = await explained(endpoint, deletion="u")
        assert found["phase"] == "ineligible"
        assert found["waits_for"] == ["broker 3, which has not deleted it: u-0"]
        assert "it is retried automatically, after a pause that grows with every refusal" in found["changes"]
        moved = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2,9]}]}'
        zk.create("/admin/reassign_partitions", moved)
        partition = active.partition("t", 0)
        await until(lambda: bool(partition.adding), "the move")
        found = await explained(endpoint, reassignment=PartitionName(topic="t", partition=0))
        assert found["phase"] == "ongoing"
        assert found["changes"][0] == "broker 9 returns and catches up with 1"


async def test_a_broker_is_explained_with_what_it_holds_and_a_move_with_what_it_waits_for(
    zookeeper: str, zk: KazooClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with three(zookeeper, zk, tmp_path) as (active, endpoint):
        found = await explained(endpoint, broker=3)
        cluster = active.term.machine.cluster
        mine = [p for p in cluster.partitions() if 3 in p.replicas]
        assert found == as_json(explanation_data(explain_broker(cluster, 3, mine)))
        assert found != as_json(explanation_data(explain_broker(cluster, 3, [])))
        moved = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2,9]}]}'
        zk.create("/admin/reassign_partitions", moved)
        partition = active.partition("t", 0)
        await until(lambda: bool(partition.adding), "the move")
        await until(active.idle, "everybody has heard")
        not_told = {2: "it is asleep"}
        monkeypatch.setattr(active.term.senders, "not_told", lambda id_, _: not_told.get(id_, ""))
        found = await explained(endpoint, reassignment=PartitionName(topic="t", partition=0))
        assert found["waits_for"][0] == "its replica does not follow the present leader: it is asleep"
        assert found["waits_for"][1].startswith("target 9 is not in the ISR")


async def test_partitions_are_described_in_order_of_their_numbers(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    async with three(zookeeper, zk, tmp_path) as (active, endpoint):
        topic = active.term.machine.cluster.topics["t"]
        topic.partitions = dict(reversed(topic.partitions.items()))
        answer = await ask(endpoint, "DescribeTopics", pb.DescribeTopicsRequest(topics=["t"]))
        assert [p.partition for p in answer.topics[0].partitions] == [0, 1]


async def test_an_audit_of_some_topics_tells_of_their_problems(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    async with three(zookeeper, zk, tmp_path) as (active, endpoint):
        for name in ("t", "u"):
            active.term.senders.status[3].not_led[active.partition(name)] = "STALE"
        for topics, named in (([], ["t", "u"]), (["u"], ["u"]), (["absent"], [])):
            answer = await ask(endpoint, "Audit", pb.AuditRequest(recorded=True, topics=topics))
            assert [(p.topic, p.broker_id) for p in answer.problems] == [(name, 3) for name in named]
            assert answer.problems_left == 0


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ([("BROKER", "1"), ("BROKER", ""), ("BROKER", "1")], ["/config/brokers/1"]),
        ([("BROKER", "x"), ("BROKER", "٣"), ("TOPIC", "t")], []),
        ([("CONTROLLER", ""), ("BROKER", "2")], ["/config/brokers/2", str(dynamic_settings.PATH)]),
    ],
)
def test_what_a_dry_run_reads_beside_the_snapshot(asked: list[tuple[str, str]], found: list[str]) -> None:
    resources = [ConfigResource(ConfigScope[scope], name) for scope, name in asked]
    altered = AlterConfigs([ConfigAlteration(resource, ()) for resource in resources])
    step = dry_run.Step("AlterConfigs", pb.DryRunRequest(), altered)
    assert [str(path) for path in dry_run.paths([step])] == found


def test_what_a_dry_run_cannot_read_is_added_to_the_snapshot_s_problems() -> None:
    path = config_path("brokers/1")
    snapshot = Snapshot(1, 7, {}, {}, {}, problems={"/a": "junk"})
    found = dry_run.with_nodes(snapshot, [path], [Problem(str(path), "odd")])
    assert found.problems == {"/a": "junk", str(path): "odd"}
    assert found.nodes == {}


async def test_znodes_that_cannot_be_read_are_named_by_the_explanation(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    """The brokers' default permits unclean elections, but who cannot read the topic's settings holds none."""
    zk.create("/config/brokers/<default>", SETTINGS % b"true", makepath=True)
    async with three(zookeeper, zk, tmp_path) as (active, endpoint):
        zk.set("/brokers/topics/t", b"[]")
        zk.create("/config/topics/t", b"[]", makepath=True)
        await until(lambda: "/brokers/topics/t" in active.term.machine.cluster.problems, "the bad znode")
        found = await explained(endpoint, partition=PartitionName(topic="t", partition=0))
        topic, settings = found["notes"]
        assert topic.startswith("its topic is unreadable, what was read before counts: /brokers/topics/t: ")
        assert settings.startswith(
            "its settings are unreadable, and permit no unclean election: /config/topics/t: "
        )
        assert [rule["permitted"] for rule in found["rules"]] == [True, False, True]
        zk.set("/config/topics/t", SETTINGS % b"true")
        found = await explained(endpoint, partition=PartitionName(topic="t", partition=0))
        assert [rule["permitted"] for rule in found["rules"]] == [True, True, True]


# --- DescribeTopics ----------------------------------------------------------------------------------------------


async def test_topics_are_described(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    async with three(zookeeper, zk, tmp_path) as (active, endpoint):
        zk.set("/brokers/topics/u", b"[]")
        zk.create("/brokers/topics/bad", b"{}")
        await until(lambda: "/brokers/topics/bad" in active.term.machine.cluster.problems, "the bad znode")
        request = pb.DescribeTopicsRequest(topics=["nope", "t", "bad", ""])
        answer = await ask(endpoint, "DescribeTopics", request)
        assert [(topic.name, error_name(topic.error_code)) for topic in answer.topics] == [
            ("nope", "UNKNOWN_TOPIC_OR_PARTITION"),
            ("t", "NONE"),
            ("bad", "UNKNOWN_SERVER_ERROR"),
            ("", "UNKNOWN_TOPIC_OR_PARTITION"),
        ]
        assert "/brokers/topics/bad: " in answer.topics[2].error_message
        topic = answer.topics[1]
        assert topic.topic_id == active.partition("t").topic.id
        first = topic.partitions[0]
        assert (first.partition, first.leader, first.leader_epoch) == (0, 1, 0)
        assert (list(first.replicas), list(first.isr), list(first.offline_replicas)) == (
            [1, 2, 3],
            [1, 2, 3],
            [],
        )
        everything = await ask(endpoint, "DescribeTopics", pb.DescribeTopicsRequest())
        assert [topic.name for topic in everything.topics] == ["t", "u"]
        zk.delete("/brokers/ids/3")
        await until(lambda: active.stored("u")[0] == -1 and active.idle(), "the loss of broker 3")
        answer = await ask(endpoint, "DescribeTopics", pb.DescribeTopicsRequest(topics=["u"]))
        (partition,) = answer.topics[0].partitions
        assert (partition.leader, list(partition.offline_replicas)) == (-1, [3])
        assert error_name(partition.error_code) == "LEADER_NOT_AVAILABLE"


# --- bad input ---------------------------------------------------------------------------------------------------


def dry(method: str, request: Message | bytes = b"") -> pb.DryRunRequest:
    body = request if isinstance(request, bytes) else request.SerializeToString()
    return pb.DryRunRequest(steps=[pb.DryRunStep(method=method, request=body)])


NOBODY = list(range(10, 10 + BROKERS_MAX))
BAD: list[tuple[str, Any, str, str]] = [
    ("Explain", pb.ExplainRequest(), "INVALID_REQUEST", "subject: must be one of partition, broker"),
    ("Explain", pb.ExplainRequest(broker=-1), "INVALID_REQUEST", "broker[0] = -1: must be from 0"),
    (
        "Explain",
        pb.ExplainRequest(partition=PartitionName(topic="nope", partition=0)),
        "UNKNOWN_TOPIC_OR_PARTITION",
        "no partition nope-0",
    ),
    (
        "Explain",
        pb.ExplainRequest(partition=PartitionName(topic="t", partition=-2)),
        "INVALID_REQUEST",
        "partition.partition = -2",
    ),
    (
        "Explain",
        pb.ExplainRequest(partition=PartitionName()),
        "INVALID_REQUEST",
        "partition.topic: must name",
    ),
    (
        "Explain",
        pb.ExplainRequest(reassignment=PartitionName(topic="t", partition=9)),
        "UNKNOWN_TOPIC_OR_PARTITION",
        "no partition t-9",
    ),
    ("Explain", pb.ExplainRequest(deletion="nope"), "UNKNOWN_TOPIC_OR_PARTITION", "no topic 'nope'"),
    ("Explain", pb.ExplainRequest(deletion="\x00/../x"), "UNKNOWN_TOPIC_OR_PARTITION", "no topic"),
    ("Plan", plan_of(), "INVALID_REQUEST", "scenario: must be one of broker_loss, rack_loss"),
    ("Plan", plan_of(broker_loss=pb.BrokerSet()), "INVALID_REQUEST", "must name at least one broker"),
    (
        "Plan",
        plan_of(broker_loss=pb.BrokerSet(broker_ids=[1, -7])),
        "INVALID_REQUEST",
        "broker_loss.broker_ids[1] = -7: must be from 0",
    ),
    ("Plan", plan_of(broker_loss=pb.BrokerSet(broker_ids=[9])), "INVALID_REQUEST", "there are 1, 2, 3"),
    ("Plan", plan_of(broker_loss=pb.BrokerSet(broker_ids=NOBODY)), "INVALID_REQUEST", "and 9950 more"),
    (
        "Plan",
        plan_of(broker_loss=pb.BrokerSet(broker_ids=[*NOBODY, 1])),
        "INVALID_REQUEST",
        "names 10001 brokers, must name at most 10000",
    ),
    ("Plan", plan_of(rack_loss=""), "INVALID_REQUEST", "rack_loss: must name a rack"),
    ("Plan", plan_of(rack_loss="r9"), "INVALID_REQUEST", "no registered broker is in rack 'r9'"),
    ("Plan", plan_of(drain=-1), "INVALID_REQUEST", "drain[0] = -1"),
    ("Plan", plan_of(drain=1, batch=2), "INVALID_REQUEST", "batch: only with rolling_restart"),
    ("Plan", plan_of(rolling_restart=pb.BrokerSet(), batch=-1), "INVALID_REQUEST", "batch = -1"),
    ("Plan", plan_of(rolling_restart=pb.BrokerSet(broker_ids=[8])), "INVALID_REQUEST", "broker 8 not"),
    ("Plan", plan_of(preferred_election=False), "INVALID_REQUEST", "preferred_election: must be true"),
    ("Plan", plan_of(drain=1, min_isr_default=-1), "INVALID_REQUEST", "min_isr_default = -1"),
    ("CheckStoppable", check(), "INVALID_REQUEST", "broker_ids: must name at least one broker"),
    ("CheckStoppable", check(-1), "INVALID_REQUEST", "broker_ids[0] = -1"),
    ("CheckStoppable", check(1, min_isr_default=100_000), "INVALID_REQUEST", "min_isr_default = 100000"),
    ("ApproveStop", pb.ApproveStopRequest(), "INVALID_REQUEST", "broker_ids: must name at least one"),
    ("ApproveStop", pb.ApproveStopRequest(check=check(1)), "INVALID_REQUEST", "reason and author: must both"),
    ("WithdrawStopApproval", pb.WithdrawStopApprovalRequest(), "INVALID_REQUEST", "must name at least one"),
    (
        "WithdrawStopApproval",
        pb.WithdrawStopApprovalRequest(broker_ids=[1], reason="not today"),
        "INVALID_REQUEST",
        "author: must be given",
    ),
    ("DryRun", pb.DryRunRequest(), "INVALID_REQUEST", "steps: must be from 1 to 1000, there are 0"),
    ("DryRun", dry("Explode"), "INVALID_REQUEST", "steps[0].method = 'Explode': must be one of AlterConfigs"),
    ("DryRun", dry("DescribeConfigs"), "INVALID_REQUEST", "must be one of AlterConfigs"),
    ("DryRun", dry("SetPause", b"\xff"), "INVALID_REQUEST", "steps[0].request: is no request of SetPause"),
    ("DryRun", dry("SetDrain", SetDrainRequest(broker_id=-2)), "INVALID_REQUEST", "broker_id = -2: must not"),
    ("DryRun", dry("ApproveStop"), "INVALID_REQUEST", "broker_ids: must name at least one"),
    ("DryRun", dry("ApproveStop", pb.ApproveStopRequest(check=check(1))), "INVALID_REQUEST", "must both"),
    (
        "DryRun",
        pb.DryRunRequest(steps=[*dry("ApproveStop").steps, *dry("SetPause").steps]),
        "INVALID_REQUEST",
        "the only step",
    ),
]


async def test_bad_input(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    async with three(zookeeper, zk, tmp_path) as (_, endpoint):
        for method, request, error, said in BAD:
            answer = await ask(endpoint, method, request)
            assert (error_name(answer.error_code), said in answer.error_message) == (error, True), (
                f"{method} {request}: {answer.error_message}"
            )
            assert len(answer.error_message) < 1000
        # Ten thousand that nobody knows: a reason each, and no more.
        answer = await ask(endpoint, "CheckStoppable", check(*NOBODY))
        reasons = json.loads(answer.answer)["reasons"]
        assert (len(reasons), reasons[0]["reason"]) == (BROKERS_MAX, "unknown_broker")
        zk.create("/config/topics/t", b'{"version":1,"config":{"min.insync.replicas":"many"}}')
        answer = await ask(endpoint, "Plan", plan_of(drain=1))
        assert "/config/topics/t: min.insync.replicas = 'many'" in answer.error_message
