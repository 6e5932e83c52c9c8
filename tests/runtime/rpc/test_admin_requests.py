"""What operators ask over real gRPC of a controller on a real ZooKeeper: every error, and what is written."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from google.protobuf.json_format import MessageToDict
from kazoo.client import KazooClient

from controller.client import admin
from controller.core import znode_paths
from controller.core.cluster.quarantine import Quarantine, SubjectKind, Suspect
from controller.core.model import Flapping
from controller.core.outbox.pushes import PushKind
from controller.runtime.audit.auditor import BrokerAudit, Verdict
from controller.runtime.config import Settings
from controller.runtime.daemon import Daemon, Role
from controller.runtime.rpc.audit import _show
from controller.runtime.rpc.server import start_server
from controller.runtime.zookeeper import codecs
from controller.runtime.zookeeper.state_mirror import Warmth
from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2, inspection_pb2, maintenance_pb2
from proto.security.access import Openness
from proto.statelog.writer import StateLogWriter
from tests.support.runtime.admins import REQUESTS, ask, error_name, errors, garbage, move
from tests.support.runtime.callers import Active, controller
from tests.support.runtime.daemons import running
from tests.support.runtime.inspections import three
from tests.support.runtime.pushes import FakeBroker
from tests.support.runtime.sessions import until

pytestmark = pytest.mark.slow

TOPICS = {"t": '{"0":[1,2],"1":[2,1]}', "u": '{"0":[1,2]}'}


def asked(active: Active, method: str, error: str) -> float:
    labels = {"method": method, "error": error}
    return active.daemon.registry.get_sample_value("partition_controller_requests_total", labels) or 0.0


def topic_znode(zk: KazooClient, name: str) -> Any:
    return json.loads(zk.get(f"/brokers/topics/{name}")[0])


def deletions(*topics: tuple[str, str]) -> pb.DeleteTopicsRequest:
    return pb.DeleteTopicsRequest(topics=[pb.DeletableTopic(name=n, topic_id=i) for n, i in topics])


# --- every method ------------------------------------------------------------------------------------------


#: What the requests are answered with as a whole where nothing is: NONE, but for these.
ANSWERED = dict.fromkeys(("ForgetBroker", "CancelShutdown"), "BROKER_NOT_AVAILABLE")


async def test_each_method_answers_and_garbage_is_an_invalid_request_without_a_traceback(
    zookeeper: str, zk: KazooClient, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with controller(zookeeper, zk, tmp_path) as active:
        for method, request in REQUESTS.items():
            expected = ANSWERED.get(method, "NONE")
            answer = await ask(active.daemon.grpc_endpoint, method, request)
            assert error_name(answer.error_code) == expected, method
            broken = type(answer).FromString(await garbage(active.daemon.grpc_endpoint, method))
            assert error_name(broken.error_code) == "INVALID_REQUEST", method
            assert [asked(active, method, error) for error in ("INVALID_REQUEST", expected)] == [1, 1]
    assert "Traceback" not in "".join(capfd.readouterr())


async def test_a_standby_answers_not_controller(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    zk.create(znode_paths.CONTROLLER, codecs.encode_controller(7, "h:7"), ephemeral=True)
    daemon = Daemon(Settings(zookeeper=zookeeper, state_log_dir=tmp_path))
    server, port = await start_server(daemon, "127.0.0.1", 0)
    endpoint = f"127.0.0.1:{port}"
    try:
        async with running(daemon):
            await until(lambda: daemon.role is Role.STANDBY, "standby")
            for method, request in REQUESTS.items():
                assert error_name((await ask(endpoint, method, request)).error_code) == "NOT_CONTROLLER"
            with pytest.raises(
                admin.NoAnswerError, match=r"NOT_CONTROLLER to DeleteTopics: .*; check whether"
            ):
                await admin.ask(endpoint, "DeleteTopics", deletions(("t", "")), 5)
    finally:
        await server.stop(0)
    assert not zk.exists("/admin/delete_topics/t")


async def test_nobody_there_is_said_in_words() -> None:
    with pytest.raises(admin.NoAnswerError, match="no controller is active"):
        await admin.ask("", "DeleteTopics", deletions(("t", "")), 5)
    with pytest.raises(admin.NoAnswerError, match=r"did not answer DeleteTopics \(UNAVAILABLE"):
        await admin.ask("127.0.0.1:1", "DeleteTopics", deletions(("t", "")), 5)


async def test_a_controller_that_is_older_than_the_request_did_nothing() -> None:
    """So nothing is to be checked."""
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        with pytest.raises(
            admin.NoAnswerError, match=r"does not know SetFreeze, and did nothing: .* older"
        ) as raised:
            await admin.ask(f"127.0.0.1:{port}", "SetFreeze", maintenance_pb2.SetFreezeRequest(), 5)
    finally:
        await server.stop(0)
    assert "check whether" not in str(raised.value)


# --- DeleteTopics ------------------------------------------------------------------------------------------


async def test_deletion_is_refused_topic_by_topic(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    async with controller(zookeeper, zk, tmp_path, FakeBroker(1), FakeBroker(2), topics=TOPICS) as active:
        topic_id = active.partition("t").topic.id
        request = deletions(
            ("", ""), ("t", topic_id), ("", "no-such-id"), ("u", ""), ("u", ""), ("../x", ""), ("nope", "")
        )
        answer = await ask(active.daemon.grpc_endpoint, "DeleteTopics", request)
        assert errors(answer.responses) == [
            "INVALID_REQUEST",
            "INVALID_REQUEST",
            "UNKNOWN_TOPIC_ID",
            "INVALID_REQUEST",
            "INVALID_REQUEST",
            "UNKNOWN_TOPIC_OR_PARTITION",
            "UNKNOWN_TOPIC_OR_PARTITION",
        ]
        assert all(entry.error_message for entry in answer.responses)
        assert zk.get_children("/admin/delete_topics") == []


async def test_deletion_by_id_is_marked_when_answered_and_tells_what_holds_it_up(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    """Brokers that confirm nothing hold it up; asking again is a success, and waits on."""
    async with controller(zookeeper, zk, tmp_path, FakeBroker(1), FakeBroker(2), topics=TOPICS) as active:
        endpoint = active.daemon.grpc_endpoint
        topic_id = active.partition("t").topic.id
        for name, wanted in (("", topic_id), ("t", "")):
            answer = await ask(endpoint, "DeleteTopics", deletions((name, wanted)))
            (entry,) = answer.responses
            assert (entry.name, entry.topic_id, entry.error_code) == ("t", topic_id, 0)
            assert zk.exists("/admin/delete_topics/t")
        await until(lambda: "t" in active.term.machine.cluster.deletions_ineligible, "the refusal")
        listed = await ask(endpoint, "ListTopicDeletions", pb.ListTopicDeletionsRequest())
        (held,) = listed.topics
        assert (held.name, held.replicas_left) == ("t", 4)
        assert "UNKNOWN_SERVER_ERROR" in held.pending_reason


async def test_deletion_is_refused_where_it_is_disabled(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    def disable(daemon: Daemon) -> None:
        daemon.settings = Settings(zookeeper=zookeeper, state_log_dir=tmp_path, delete_topic_enable=False)

    topics = {"t": '{"0":[1]}'}
    async with controller(zookeeper, zk, tmp_path, FakeBroker(1), topics=topics, before=disable) as active:
        answer = await ask(active.daemon.grpc_endpoint, "DeleteTopics", deletions(("t", ""), ("", "")))
        assert errors(answer.responses) == ["TOPIC_DELETION_DISABLED"] * 2
        assert not zk.exists("/admin/delete_topics/t")


# --- reassignments -----------------------------------------------------------------------------------------


async def test_reassignment_is_refused_partition_by_partition(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    async with controller(zookeeper, zk, tmp_path, FakeBroker(1), FakeBroker(2), topics=TOPICS) as active:
        request = pb.AlterPartitionReassignmentsRequest(
            partitions=[
                move("t", 0, []),
                move("t", 0, [1]),
                move("t", 1, [1, 1]),
                move("u", 0, [1, 9]),
                move("u", 5, [-1]),
                move("nope", 0, [1, 2]),
                move("t", -1, [2]),
                move("t", 7, None),
            ]
        )
        answer = await ask(active.daemon.grpc_endpoint, "AlterPartitionReassignments", request)
        assert errors(answer.responses) == [
            "INVALID_REPLICA_ASSIGNMENT",
            "INVALID_REQUEST",
            "INVALID_REPLICA_ASSIGNMENT",
            "INVALID_REPLICA_ASSIGNMENT",
            "INVALID_REPLICA_ASSIGNMENT",
            "UNKNOWN_TOPIC_OR_PARTITION",
            "UNKNOWN_TOPIC_OR_PARTITION",
            "UNKNOWN_TOPIC_OR_PARTITION",
        ]
        assert [(r.topic, r.partition) for r in answer.responses][-1] == ("t", 7)
        cancel = pb.AlterPartitionReassignmentsRequest(partitions=[move("t", 0, None)])
        answer = await ask(active.daemon.grpc_endpoint, "AlterPartitionReassignments", cancel)
        assert errors(answer.responses) == ["NO_REASSIGNMENT_IN_PROGRESS"]
        assert topic_znode(zk, "t")["partitions"] == {"0": [1, 2], "1": [2, 1]}


async def test_a_move_is_recorded_when_answered_listed_with_its_reason_and_cancelled(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    brokers = [FakeBroker(id_) for id_ in (1, 2, 3)]
    async with controller(zookeeper, zk, tmp_path, *brokers, topics=TOPICS) as active:
        endpoint = active.daemon.grpc_endpoint
        request = pb.AlterPartitionReassignmentsRequest(partitions=[move("t", 0, [3, 1])])
        answer = await ask(endpoint, "AlterPartitionReassignments", request)
        assert errors(answer.responses) == ["NONE"]
        stored = topic_znode(zk, "t")
        assert stored["partitions"]["0"] == [3, 1, 2]
        assert (stored["adding_replicas"], stored["removing_replicas"]) == ({"0": [3]}, {"0": [2]})
        every = pb.ListPartitionReassignmentsRequest()
        (ongoing,) = (await ask(endpoint, "ListPartitionReassignments", every)).partitions
        assert (ongoing.topic, ongoing.partition, ongoing.queued) == ("t", 0, False)
        assert (list(ongoing.replicas), list(ongoing.adding_replicas)) == ([3, 1, 2], [3])
        assert list(ongoing.removing_replicas) == [2]
        assert any("target 3 is not in the ISR" in reason for reason in ongoing.reasons)
        other = pb.ListPartitionReassignmentsRequest(
            partitions=[
                common_pb2.PartitionName(topic="u"),
                common_pb2.PartitionName(topic="nope", partition=3),
            ]
        )
        assert list((await ask(endpoint, "ListPartitionReassignments", other)).partitions) == []
        cancel = pb.AlterPartitionReassignmentsRequest(partitions=[move("t", 0, None)])
        answer = await ask(endpoint, "AlterPartitionReassignments", cancel)
        assert errors(answer.responses) == ["NONE"]
        assert topic_znode(zk, "t")["partitions"]["0"] == [1, 2]


# --- ElectLeaders ------------------------------------------------------------------------------------------


async def test_elections_that_are_refused(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    async with controller(zookeeper, zk, tmp_path, FakeBroker(1), FakeBroker(2), topics=TOPICS) as active:
        endpoint = active.daemon.grpc_endpoint
        named = [common_pb2.PartitionName(topic="t")]
        for request, says in (
            (pb.ElectLeadersRequest(election_type=7, topic_partitions=named), "election_type = 7"),  # type: ignore[arg-type]
            (pb.ElectLeadersRequest(), "topic_partitions"),
            (pb.ElectLeadersRequest(topic_partitions=named, all_partitions=True), "not both"),
            (pb.ElectLeadersRequest(election_type=pb.CHOSEN, topic_partitions=named), "leader"),
            (pb.ElectLeadersRequest(topic_partitions=named, leader=1), "leader = 1"),
        ):
            answer = await ask(endpoint, "ElectLeaders", request)
            assert error_name(answer.error_code) == "INVALID_REQUEST"
            assert says in answer.error_message
        several = [
            common_pb2.PartitionName(topic="nope"),
            *named,
            common_pb2.PartitionName(topic="u", partition=4),
        ]
        answer = await ask(endpoint, "ElectLeaders", pb.ElectLeadersRequest(topic_partitions=several))
        assert errors(answer.results) == [
            "UNKNOWN_TOPIC_OR_PARTITION",
            "ELECTION_NOT_NEEDED",
            "UNKNOWN_TOPIC_OR_PARTITION",
        ]
        outsider = pb.ElectLeadersRequest(election_type=pb.CHOSEN, topic_partitions=named, leader=9)
        assert errors((await ask(endpoint, "ElectLeaders", outsider)).results) == ["INVALID_REQUEST"]
        unclean = pb.ElectLeadersRequest(election_type=pb.UNCLEAN, topic_partitions=named)
        assert errors((await ask(endpoint, "ElectLeaders", unclean)).results) == ["ELECTION_NOT_NEEDED"]


async def test_a_chosen_leader_leads_when_answered_and_all_go_back_to_the_preferred(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    async with controller(zookeeper, zk, tmp_path, FakeBroker(1), FakeBroker(2), topics=TOPICS) as active:
        endpoint = active.daemon.grpc_endpoint
        chosen = pb.ElectLeadersRequest(
            election_type=pb.CHOSEN, topic_partitions=[common_pb2.PartitionName(topic="t")], leader=2
        )
        answer = await ask(endpoint, "ElectLeaders", chosen)
        assert [(r.error_code, r.leader) for r in answer.results] == [(0, 2)]
        assert active.stored()[0] == 2
        answer = await ask(endpoint, "ElectLeaders", pb.ElectLeadersRequest(all_partitions=True))
        assert [(r.topic, r.partition, r.error_code, r.leader) for r in answer.results] == [("t", 0, 0, 1)]
        assert active.stored()[0] == 1


# --- what the controller knows ------------------------------------------------------------------------------


def told(answer: Any) -> dict[str, Any]:
    """All fields of an answer, also those without a value."""
    return MessageToDict(
        answer,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
        use_integers_for_enums=True,
    )


async def test_the_cluster_is_described_as_the_controller_knows_it(
    zookeeper: str, zk: KazooClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StateLogWriter, "not_written", "it is full")
    async with three(zookeeper, zk, tmp_path) as (active, endpoint):
        term, cluster = active.term, active.term.machine.cluster
        await until(lambda: not any(term.machine.outbox.pending(b) for b in (1, 2, 3)), "all is told")
        cluster.brokers[1] = msgspec.structs.replace(cluster.brokers[1], rack="r1")
        cluster.flapping[2] = Flapping(losses=3, hold_us=5_900_000)
        cluster.problems["/brokers/topics/x"] = "junk"
        active.daemon.state_log.dropped = 7

        async def described_with_problems() -> dict[str, Any]:
            """What a broker answers meanwhile to what it is told, or asked by the audit, ends such a problem."""
            term.senders.status[1].refused[PushKind.STOP_REPLICA] = "refuses it"
            term.senders.status[2].unreachable = "it is asleep"
            term.senders.status[3].not_led[active.partition("t")] = "STALE"
            return told(await ask(endpoint, "DescribeCluster", REQUESTS["DescribeCluster"]))

        for _ in range(50):
            found = await described_with_problems()
            if all(b["push_problem"] for b in found["brokers"]):
                break
        ports = {b: cluster.brokers[b].endpoints[0].port for b in (1, 2, 3)}
        described = {
            b: {
                "broker_id": b,
                "broker_epoch": str(cluster.brokers[b].epoch),
                "endpoints": [
                    {"listener": "GRPC", "security_protocol": "GRPC", "host": "127.0.0.1", "port": ports[b]}
                ],
                "rack": "",
                "leader_count": 1,
                "replica_count": 2,
                "pending_pushes": "0",
                "push_problem": "",
                "refuses_pushes": False,
                "losses": 0,
                "hold_s": 0,
                "newer_states": 0,
                "newer_wait": "",
            }
            for b in (1, 2, 3)
        }
        described[1] |= {"rack": "r1", "push_problem": "refuses it", "refuses_pushes": True}
        described[2] |= {"push_problem": "it is asleep", "losses": 3, "hold_s": 5}
        described[3] |= {"push_problem": "refuses LeaderAndIsr of 1 partition: STALE x1", "replica_count": 3}
        assert found == {
            "error_code": 0,
            "controller_id": 1,
            "controller_epoch": 1,
            "event_id": str(term.machine.event_id),
            "brokers": list(described.values()),
            "topic_count": 2,
            "partition_count": 3,
            "offline_partition_count": 0,
            "preferred_replica_imbalance_count": 0,
            "problems": {"/brokers/topics/x": "junk"},
            "problem_count": 1,
            "unguarded": found["unguarded"],
            "state_log_problem": "it is full",
            "state_log_dropped": "7",
        }
        for openness in (Openness.BY_DEFAULT, Openness.GUARDED):
            active.daemon.openness = openness
            answer = await ask(endpoint, "DescribeCluster", REQUESTS["DescribeCluster"])
            assert answer.unguarded is (openness is Openness.BY_DEFAULT)


async def test_a_standby_tells_what_it_has_in_memory(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    async with controller(
        zookeeper, zk, tmp_path / "1", FakeBroker(1), topics={"t": '{"0":[1],"1":[1]}'}
    ) as active:
        waiting = Daemon(Settings(controller_id=2, zookeeper=zookeeper, state_log_dir=tmp_path / "2"))
        server, port = await start_server(waiting, "127.0.0.1", 0)
        try:
            async with running(waiting):
                await until(
                    lambda: waiting.standby is not None and waiting.standby.mirror.warmth is Warmth.WARM,
                    "its mirror",
                )
                answer = await ask(f"127.0.0.1:{port}", "DescribeCluster", REQUESTS["DescribeCluster"])
                assert (error_name(answer.error_code), answer.controller_id) == ("NOT_CONTROLLER", 1)
                assert (answer.standby.states, answer.standby.behind) == (2, 0)
                assert answer.standby.warmth == Warmth.WARM.value
                assert answer.standby.behind_s >= 0.0
                await garbage(f"127.0.0.1:{port}", "DescribeCluster")
        finally:
            await server.stop(0)
        assert active.daemon.active
        broken = await garbage(active.daemon.grpc_endpoint, "DescribeCluster")
        answer = pb.DescribeClusterResponse.FromString(broken)
        assert (error_name(answer.error_code), answer.HasField("standby")) == ("INVALID_REQUEST", False)


async def test_what_is_in_quarantine_and_what_is_being_deleted_is_listed(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    async with three(zookeeper, zk, tmp_path) as (active, endpoint):
        suspects = [
            Suspect(
                SubjectKind.TOPIC, name, "TopicChange", "KeyError: 1", "abc", 1, 7, 99, "t-0", 3, quarantined
            )
            for name, quarantined in (("u", False), ("t", True))
        ]
        for suspect in suspects:
            active.term.quarantine = Quarantine(
                {**active.term.quarantine.suspects, str(suspect.subject): suspect}
            )
        found = told(await ask(endpoint, "ListQuarantine", maintenance_pb2.ListQuarantineRequest()))
        both = {
            "event": "TopicChange", "detail": "t-0", "error": "KeyError: 1", "digest": "abc", "count": "3",
            "controller_id": 1, "controller_epoch": 7, "at_ms": "99",
        }  # fmt: skip
        assert found["suspects"] == [
            {"name": str(suspects[1].subject), "quarantined": True, **both},
            {"name": str(suspects[0].subject), "quarantined": False, **both},
        ]
        active.term.quarantine = Quarantine()
        await asyncio.to_thread(zk.delete, znode_paths.broker_path(3))
        await until(lambda: 3 not in active.term.machine.cluster.brokers, "broker 3 is gone")
        await ask(endpoint, "DeleteTopics", deletions(("u", "")))
        await until(active.idle, "nothing more can be done")
        (deletion,) = (await ask(endpoint, "ListTopicDeletions", pb.ListTopicDeletionsRequest())).topics
        assert (deletion.name, deletion.replicas_left) == ("u", 1)
        assert deletion.pending_reason == "replica 3 of u-0: its broker or disk is not online"


@pytest.mark.parametrize(
    ("verdict", "topics", "shown", "differences", "left"),
    [
        (Verdict.DIFFERENT, set(), "AUDIT_DIFFERENT", 2, 5),
        (Verdict.DIFFERENT, {"t"}, "AUDIT_DIFFERENT", 1, 0),
        (Verdict.DIFFERENT, {"absent"}, "AUDIT_EQUAL", 0, 0),
        (Verdict.PENDING, {"absent"}, "AUDIT_PENDING", 0, 0),
        (Verdict.PARTIAL, set(), "AUDIT_PARTIAL", 2, 5),
    ],
)
def test_an_audit_is_told_of_the_topics_asked_for(
    verdict: Verdict, topics: set[str], shown: str, differences: int, left: int
) -> None:
    audit = BrokerAudit(7, left=5)
    keys: Any = {("t", 0, "leader"): None, ("u", 0, "leader"): None}
    audit.known = keys
    audit.ended(verdict, "why")
    found = _show(3, audit, topics)
    assert (found.broker_id, inspection_pb2.AuditVerdict.Name(found.verdict), found.why) == (3, shown, "why")
    assert (found.differences, found.topics_left) == (differences, left)
    assert (found.asked_at_ms > 0) is (verdict is not Verdict.PENDING)


async def test_two_servers_do_not_share_a_port(tmp_path: Path) -> None:
    """Half of the callers would else reach the other process."""
    daemons = [Daemon(Settings(state_log_dir=tmp_path / str(n))) for n in range(2)]
    server, port = await start_server(daemons[0], "127.0.0.1", 0)
    try:
        with pytest.raises(OSError, match=r"."):
            await start_server(daemons[1], "127.0.0.1", port)
    finally:
        await server.stop(0)
        for daemon in daemons:
            daemon.state_log.close()
