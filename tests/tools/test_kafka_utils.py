"""kafka-utils 4.1.0 of Yelp, unchanged, on a cluster of ours: each command, and what it did as seen from outside.

``kafka-cluster-manager`` reads brokers, topics and configuration from ZooKeeper and writes its plan to
``/admin/reassign_partitions``: all its commands work. ``kafka-check`` reads the registrations from ZooKeeper, for
``--first-broker-only`` and ``--controller-only``; the checks themselves, as well as kafka-consumer-manager,
kafka-rolling-restart and kafka-corruption-check, speak Kafka's wire protocol to brokers or log in on their machines by
ssh, so they do not apply: ours speak gRPC.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controller.core import znode_paths
from tests.support.cli.operator import Operator
from tests.tools.installation import Tool
from tests.tools.topic import Topic, topic

pytestmark = [pytest.mark.slow, pytest.mark.long]

#: Broker 4 has nothing.
BEFORE = [[1, 2], [2, 3], [3, 1], [1, 3], [2, 1], [3, 2]]

#: A plan as the tool wrote it down is carried out.
APPLY = ("--apply", "--no-confirm")
#: No cap on moves: all of a plan at once.
EVERYTHING = ("--max-partition-movements=99", "--max-leader-changes=99")
REBALANCE = ("rebalance", "--brokers", "--leaders", *EVERYTHING)
GROUPS = """
from kafka_utils.kafka_cluster_manager.cluster_info import replication_group_parser

class ByHost(replication_group_parser.ReplicationGroupParser):
    def get_replication_group(self, broker):
        return f"{broker.metadata['host']}-{broker.id % 2}"
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def discovery(kafka_utils: Tool, cluster: Operator, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where kafka-utils looks for clusters; ours is ``ours/here``."""
    directory = tmp_path_factory.mktemp("discovery")
    here = {"broker_list": [], "zookeeper": cluster.cluster.connect}
    # YAML takes JSON.
    (directory / "ours.yaml").write_text(json.dumps({"clusters": {"here": here}}))
    return directory


@pytest.fixture
def run(kafka_utils: Tool, discovery: Path) -> Run:
    """Run a command of kafka-utils on our cluster."""

    def run(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        where = ["--cluster-type=ours", "--cluster-name=here", f"--discovery-base-path={discovery}"]
        return kafka_utils.run(command, *where, *arguments)

    return run


@pytest.fixture
def manage(run: Run) -> Run:
    """kafka-cluster-manager; it must succeed."""

    def manage(*arguments: str) -> subprocess.CompletedProcess[str]:
        ended = run("kafka-cluster-manager", *arguments)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended

    return manage


@pytest.fixture
def orders(cluster: Operator, run: Run) -> Iterator[Topic]:
    with topic(cluster, "orders", BEFORE) as created:
        yield created


def planned(path: Path) -> dict[int, list[int]]:
    """The plan that a command wrote to a file, by partition."""
    return {entry["partition"]: entry["replicas"] for entry in json.loads(path.read_text())["partitions"]}


def counted(said: str, heading: str) -> dict[int, int]:
    """The numbers by broker below a heading of ``stats``."""
    rows = said.split(heading)[1].split("\n\n")[0]
    return {int(id_): int(count) for id_, count in re.findall(r"^(\d+) +\| (\d+) *$", rows, re.MULTILINE)}


def test_stats_count_what_each_broker_has(manage: Run, orders: Topic) -> None:
    said = manage("stats").stdout
    assert counted(said, "Partition Count") == {1: 4, 2: 4, 3: 4, 4: 0}
    assert counted(said, "Leader Count") == {1: 2, 2: 2, 3: 2, 4: 0}


def test_assignments_are_those_of_the_znodes(manage: Run, orders: Topic, tmp_path: Path) -> None:
    stored = json.loads(manage("store_assignments").stdout)
    assert {(e["topic"], e["partition"]): e["replicas"] for e in stored["partitions"]} == {
        ("orders", number): ids for number, ids in enumerate(BEFORE)
    }
    manage("store_assignments", f"--json_out={tmp_path / 'stored.json'}")
    assert planned(tmp_path / "stored.json") == dict(enumerate(BEFORE))


def test_rebalance_moves_partitions_with_their_records(manage: Run, orders: Topic, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    manage(f"--write-to-file={plan}", *REBALANCE)
    assert orders.replicas == dict(enumerate(BEFORE)), "without --apply nothing changes"
    assert planned(plan)
    manage(*APPLY, f"--write-to-file={plan}", *REBALANCE)
    orders.moved(orders.replicas | planned(plan))
    assert orders.load() == {1: 3, 2: 3, 3: 3, 4: 3}
    assert "Cluster already balanced" in manage(*APPLY, *REBALANCE).stderr


@pytest.mark.parametrize(
    "balancer",
    [["--partition-count-balancer"], ["--genetic-balancer", "--balancer-args=--num-gens 10 --max-pop 5"]],
    ids=["by count", "genetic"],
)
def test_replicas_are_spread_over_groups(
    manage: Run, orders: Topic, tmp_path: Path, balancer: list[str]
) -> None:
    """Groups are what a parser of the operator's makes of a registration: here host and odd or even id."""
    (tmp_path / "groups.py").write_text(GROUPS)
    plan = tmp_path / "plan.json"
    grouped = (f"--group-parser={tmp_path}:groups", *balancer, f"--write-to-file={plan}")
    manage(*APPLY, *grouped, "rebalance", "--replication-groups", *REBALANCE[1:])
    orders.moved(orders.replicas | planned(plan))
    assert [sorted(id_ % 2 for id_ in ids) for ids in orders.replicas.values()] == [[0, 1]] * len(BEFORE)


def test_decommission_empties_a_broker(manage: Run, orders: Topic, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    manage(*APPLY, f"--write-to-file={plan}", "decommission", "3", *EVERYTHING)
    orders.moved(orders.replicas | planned(plan))
    assert orders.load()[3] == 0
    assert sum(orders.load().values()) == 12
    assert 3 not in orders.leaders.values()
    assert "No more replicas" in manage(*APPLY, "decommission", "3", *EVERYTHING).stdout


def test_a_decommission_in_steps_ends_as_well(manage: Run, orders: Topic, tmp_path: Path) -> None:
    """One partition a run, as its default of one movement asks for."""
    plan = tmp_path / "plan.json"
    for left in (3, 2, 1, 0):
        manage(*APPLY, f"--write-to-file={plan}", "decommission", "3")
        assert len(planned(plan)) == 1
        orders.moved(orders.replicas | planned(plan))
        assert orders.load()[3] == left


def test_replace_broker_puts_one_in_the_place_of_another(manage: Run, orders: Topic) -> None:
    manage(*APPLY, "replace-broker", "--source-broker=1", "--dest-broker=4", *EVERYTHING)
    orders.moved({n: [4 if id_ == 1 else id_ for id_ in ids] for n, ids in enumerate(BEFORE)})
    said = manage(*APPLY, "replace-broker", "--source-broker=1", "--dest-broker=4", *EVERYTHING).stdout
    assert "already replaced" in said


def test_revoked_leadership_and_a_preferred_election(
    manage: Run, orders: Topic, cluster: Operator, tmp_path: Path
) -> None:
    """The tool only changes who is preferred, and prints what kafka-preferred-replica-election is to be given; that
    program writes it to ``/admin/preferred_replica_election``, as this test does in its place."""
    manage(*APPLY, "revoke-leadership", "2", *EVERYTHING[1:])
    cluster.wait(lambda: cluster.zk.exists(znode_paths.REASSIGN_PARTITIONS) is None)
    preferred = {number: ids[0] for number, ids in orders.replicas.items()}
    assert 2 not in preferred.values()
    assert {n: set(ids) for n, ids in orders.replicas.items()} == {
        n: set(ids) for n, ids in enumerate(BEFORE)
    }
    assert orders.leaders == {number: ids[0] for number, ids in enumerate(BEFORE)}
    wanted = tmp_path / "wanted"
    wanted.write_text("".join(f"orders:{number}\n" for number in range(len(BEFORE))))
    said = manage("preferred-replica-election", f"--topic-partition-filter={wanted}").stdout
    cluster.zk.create(znode_paths.PREFERRED_ELECTION, json.dumps({"version": 1, **json.loads(said)}).encode())
    orders.led_by(preferred)
    cluster.wait(lambda: cluster.zk.exists(znode_paths.PREFERRED_ELECTION) is None)
    orders.readable()


def test_a_replication_factor_goes_up_and_down(manage: Run, orders: Topic, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    for factor in (4, 1):
        manage(*APPLY, f"--write-to-file={plan}", "set_replication_factor", "--topic=orders", str(factor))
        orders.moved(planned(plan))
        assert {len(ids) for ids in orders.replicas.values()} == {factor}


def test_no_plan_is_made_while_another_is_carried_out(
    run: Run, manage: Run, orders: Topic, cluster: Operator, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    with cluster.frozen_controller():
        manage(*APPLY, f"--write-to-file={plan}", "decommission", "3", *EVERYTHING)
        refused = run("kafka-cluster-manager", *APPLY, "decommission", "2", *EVERYTHING)
    assert refused.returncode == 1
    assert "Previous reassignment pending" in refused.stderr
    orders.moved(orders.replicas | planned(plan))
    manage(*APPLY, f"--write-to-file={plan}", "decommission", "2", *EVERYTHING)
    orders.moved(orders.replicas | planned(plan))
    assert orders.load()[2] == 0


def test_a_broker_that_is_gone_is_decommissioned(manage: Run, orders: Topic, cluster: Operator) -> None:
    """Its id is on no list of brokers any more, only among the replicas."""
    member = cluster.cluster.members["broker-3"]
    member.stop()
    cluster.wait(lambda: cluster.zk.exists("/brokers/ids/3") is None)
    try:
        manage(*APPLY, "replace-broker", "--source-broker=3", "--dest-broker=4", *EVERYTHING)
        cluster.wait(lambda: cluster.zk.exists(znode_paths.REASSIGN_PARTITIONS) is None)
    finally:
        member.start()
    orders.moved({n: [4 if id_ == 3 else id_ for id_ in ids] for n, ids in enumerate(BEFORE)})


def test_checks_know_who_is_meant_by_the_registrations(run: Run, orders: Topic, cluster: Operator) -> None:
    for check in ("offline", "min_isr", "replica_unavailability", "replication_factor"):
        first = run("kafka-check", "--first-broker-only", "--broker-id=2", check)
        assert (first.returncode, "has not the lowest id" in first.stdout) == (0, True), first.stderr
        other = run("kafka-check", "--controller-only", "--broker-id=2", check)
        assert (other.returncode, "is not the controller" in other.stdout) == (0, True), other.stderr
