"""The harness works, with Kafka's own controller."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.embedded_kafka import jars
from controller.errors import EnvironmentFault
from controller.workload import history
from controller.workload.checker import Kind, check
from controller.workload.history import Begun, Ended
from controller.workload.kafka_replicas import read_replica
from controller.workload.replicas import read_logs
from tests.kafka.cluster import KafkaCluster
from tests.kafka.conftest import MakeCluster, running
from tests.kafka.load import Load
from tests.kafka.side_by_side.znodes import differences, snapshot
from tests.support.kafka.tools import Tool
from tests.support.runtime.programs import program

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.kafka_long]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, zookeeper_server: str) -> Iterator[KafkaCluster]:
    """Three brokers that no test ends."""
    with running(tmp_path_factory.mktemp("kafka"), f"{zookeeper_server}/harness") as cluster:
        yield cluster


def test_kill_of_a_broker_under_load_loses_nothing(make_kafka: MakeCluster) -> None:
    cluster = make_kafka()
    cluster.create_topic("t", 6, 3, config={"min.insync.replicas": "2"})
    victim = next(id_ for id_ in cluster.brokers if id_ != cluster.controller_id())
    with Load(cluster, "t", writers=2, readers=2) as load:
        load.run_for(2)
        cluster.brokers[victim].kill()
        cluster.until("new leaders", lambda: cluster.led("t", without=[victim]))
        load.run_for(2)
        cluster.restart(victim)
        cluster.until("full ISRs", lambda: cluster.in_sync("t"))
        load.run_for(1)
        outcome = load.finish()
    assert outcome.ok, outcome
    # The session timeout is 6 s: a gap shorter than that would mean that nothing was killed.
    assert 3 < outcome.longest_gap_s < 20, outcome
    assert outcome.verdict.replicas == 18


def test_freeze_and_controlled_shutdown(make_kafka: MakeCluster) -> None:
    cluster = make_kafka()
    cluster.create_topic("t", 3, 3)
    first = cluster.controller_id()
    cluster.brokers[first].freeze()
    cluster.until("another controller", lambda: cluster.controller_id() not in (-1, first))
    cluster.brokers[first].thaw()
    cluster.until("full ISRs", lambda: cluster.in_sync("t"))
    assert len(cluster.elections_by_brokers()) == 2
    stopped = next(id_ for id_ in cluster.brokers if id_ != cluster.controller_id())
    assert cluster.brokers[stopped].stop()
    assert cluster.led("t", without=[stopped])
    assert (
        "Controlled shutdown request returned successfully" in cluster.brokers[stopped].server_log.read_text()
    )


def test_transactions_and_what_was_aborted(kafka: KafkaCluster) -> None:
    kafka.create_topic("transactions", 3, 3)
    with Load(kafka, "transactions", transactional=True, rate=100) as load:
        load.until("transactions", lambda: load.writers[0].transactions["committed"] >= 10)
        outcome = load.finish()
    assert outcome.ok, outcome
    assert outcome.transactions["aborted"] >= 1


def test_the_check_notices_lost_and_foreign_records(kafka: KafkaCluster) -> None:
    kafka.create_topic("tampered", 1, 1)
    with Load(kafka, "tampered", readers=0) as load:
        load.until("records", lambda: load.acknowledged() >= 20)
        load.__exit__()
    load.lines = [line for line in load.lines if not (isinstance(line, Begun | Ended) and line.sequence == 0)]
    load.lines += [Begun(1, 10**6, "tampered", 0, 0, 1), Ended(1, 10**6, 1, 2, 10**6)]
    verdict = load.finish(replicas=False).verdict
    assert [finding.kind for finding in verdict.findings] == [Kind.LOST, Kind.INVENTED], verdict.line()


def test_kafkas_tools_and_a_java_producer(kafka: KafkaCluster) -> None:
    tools = kafka.tools
    done = tools.run(
        Tool.TOPICS, "--create", "--topic", "java", "--partitions", "2", "--replication-factor", "3"
    )
    assert done.returncode == 0, done.stderr
    done = tools.run(
        Tool.PRODUCER_PERFORMANCE,
        *("--topic", "java", "--num-records", "500", "--record-size", "100", "--throughput", "-1"),
    )
    assert "500 records sent" in done.stdout, done.stderr
    done = tools.run(Tool.VERIFIABLE_PRODUCER, "--topic", "java", "--max-messages", "50", "--acks", "-1")
    assert '"acked":50' in done.stdout, done.stderr
    done = tools.run(
        Tool.CONSOLE_CONSUMER, "--topic", "java", "--from-beginning", "--max-messages", "550", "--group", "g"
    )
    assert len(done.stdout.splitlines()) == 550, done.stderr
    for tool, arguments, shown in (
        (Tool.CONSUMER_GROUPS, ["--describe", "--group", "g"], "java"),
        (Tool.LOG_DIRS, ["--describe", "--topic-list", "java"], '"java-1"'),
        (Tool.CONFIGS, ["--entity-type", "topics", "--entity-name", "java", "--alter", "--add-config",
                        "retention.ms=60000"], "Completed"),
        (Tool.CONFIGS, ["--entity-type", "topics", "--entity-name", "java", "--describe"], "retention.ms=60000"),
        (Tool.LEADER_ELECTION, ["--election-type", "preferred", "--all-topic-partitions"], ""),
        (Tool.REASSIGN_PARTITIONS, ["--list"], "No partition reassignments"),
        (Tool.BROKER_API_VERSIONS, [], "AlterPartition"),
    ):  # fmt: skip
        done = tools.run(tool, *arguments)
        assert done.returncode == 0, f"{tool}: {done.stdout}{done.stderr}"
        assert shown in done.stdout, f"{tool}: {done.stdout}{done.stderr}"


def test_a_tool_that_hangs_is_killed(kafka: KafkaCluster) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        kafka.tools.run(Tool.CONSOLE_CONSUMER, "--topic", "nothing-here", timeout_s=4)


def test_the_same_scenario_twice_leaves_the_same_znodes(kafka: KafkaCluster) -> None:
    def scenario() -> dict[str, str]:
        kafka.create_topic("twice", assignment=[[1, 2, 3], [2, 3, 1]], config={"retention.ms": "60000"})
        found = snapshot(kafka.zk, ["/brokers/topics/twice", "/config/topics/twice", "/controller_epoch"])
        admin = kafka.admin()
        admin.delete_topics(["twice"])["twice"].result(30)
        kafka.until("the deletion", lambda: not kafka.zk.exists("/brokers/topics/twice"))
        return found

    first, second = scenario(), scenario()
    assert '"controller_epoch":E1' in first["/brokers/topics/twice/partitions/0/state"]
    assert '"topic_id":ID' in first["/brokers/topics/twice"]
    assert differences(first, second) == []
    state = first["/brokers/topics/twice/partitions/1/state"]
    second["/brokers/topics/twice/partitions/1/state"] = state.replace('"leader":2', '"leader":3')
    assert len(differences(first, second)) == 1


@pytest.mark.parametrize("version", jars.VERSIONS[1:])
def test_older_brokers_serve_a_load(make_kafka: MakeCluster, version: str) -> None:
    cluster = make_kafka(
        versions=dict.fromkeys((1, 2), version), properties={"offsets.topic.replication.factor": "2"}
    )
    cluster.create_topic("t", 2, 2)
    with Load(cluster, "t") as load:
        load.run_for(1)
        outcome = load.finish()
    assert outcome.ok, outcome


@pytest.mark.parametrize("control_plane", [False, True])
def test_brokers_with_several_listeners_serve_a_load(make_kafka: MakeCluster, control_plane: bool) -> None:
    names = ["EXTERNAL", "INTERNAL", *(["CONTROL"] if control_plane else [])]
    cluster = make_kafka(
        versions=dict.fromkeys((1, 2), jars.NEWEST),
        listeners=names,
        properties={
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
            "inter.broker.listener.name": "INTERNAL",
            **({"control.plane.listener.name": "CONTROL"} if control_plane else {}),
        },
    )
    cluster.create_topic("t", 2, 2)
    assert [endpoint.split(":")[0] for endpoint in cluster.json("/brokers/ids/1")["endpoints"]] == names


def test_a_broker_that_cannot_start_says_why(make_kafka: MakeCluster) -> None:
    cluster = make_kafka(versions={1: jars.NEWEST})
    broker = cluster.brokers[1]
    broker.kill()
    broker.properties = {"broker.id": "-7"}
    cluster.await_gone(1)
    broker.start()
    assert broker.process is not None
    broker.process.wait(60)
    with pytest.raises(EnvironmentFault, match=r"(?s)broker 1 \(Kafka 3\.9\.1\) ended.*broker\.id") as raised:
        broker.check()
    assert str(broker.directory) in str(raised.value)


def test_a_changed_batch_is_seen_on_disk(kafka: KafkaCluster, tmp_path: Path) -> None:
    kafka.create_topic("disk", 1, 1)
    with Load(kafka, "disk", readers=0) as load:
        load.until("records", lambda: load.acknowledged() >= 5)
        assert load.finish().ok
    (id_,) = kafka.assignment("disk")[0]
    (segment,) = (kafka.brokers[id_].data_dirs[0] / "disk-0").glob("*.log")
    copy = tmp_path / segment.name
    data = bytearray(segment.read_bytes())
    whole = read_replica(segment.parent)
    assert whole.end_offset >= 5
    assert [record.content.sequence for record in whole.records] == list(range(whole.end_offset))
    data[80] ^= 1
    copy.write_bytes(data)
    changed = read_replica(tmp_path)
    assert [a == b for a, b in zip(whole.batches, changed.batches, strict=True)].count(False) == 1


def test_a_controller_of_ours_claims_and_is_ended(make_kafka: MakeCluster) -> None:
    cluster = make_kafka(versions={1: jars.NEWEST})
    (ours,) = cluster.add_controllers(1)
    assert cluster.controller_id() == ours.controller_id
    ours.kill()
    cluster.until("Kafka's own controller", lambda: cluster.controller_id() == 1)
    assert len(cluster.elections_by_brokers()) == 2


def test_the_playgrounds_workload(kafka: KafkaCluster, tmp_path: Path) -> None:
    kafka.create_topic("workload", 3, 3)
    path = tmp_path / "history.jsonl"
    flags = [f"--bootstrap={kafka.bootstrap}", "--topic=workload", f"--history={path}", "--rate=100"]
    command = [sys.executable, "-m", "controller.cli.main", "workload", "--kafka", *flags]
    with program(command, tmp_path) as process:
        process.until(lambda: path.exists() and len(history.load(path).reads) >= 50)
        assert process.terminate() == 0, process.said()
    recorded = history.load(path)
    data_dirs = {id_: broker.data_dirs[0] for id_, broker in kafka.brokers.items()}
    assigned = {("workload", number): ids for number, ids in kafka.assignment("workload").items()}
    verdict = check(recorded, read_logs(data_dirs, assigned, read_replica))
    assert verdict.ok, verdict.line()
    assert (verdict.replicas, verdict.unacknowledged) == (9, 0)
    assert len(recorded.reads) == verdict.acknowledged
