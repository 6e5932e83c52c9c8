"""zk-shell 1.3.4, unchanged, on a cluster of ours: an operator who reads znodes and writes requests by hand.

All of it works: zk-shell only knows ZooKeeper. What is written is what Kafka's documentation has operators write.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from controller.core import znode_paths
from tests.support.cli.operator import Operator
from tests.tools.installation import Tool
from tests.tools.topic import VALUES, Topic, topic

pytestmark = pytest.mark.slow

BEFORE = [[1, 2], [2, 3]]

Shell = Callable[..., str]


@pytest.fixture
def shell(zk_shell: Tool, cluster: Operator) -> Shell:
    """Run commands of zk-shell, all of which must succeed; what they printed."""

    def shell(*commands: str) -> str:
        text = "".join(f"{command}\n" for command in commands)
        ended = zk_shell.run("zk-shell", "--run-from-stdin", cluster.cluster.connect, text=text)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    return shell


@pytest.fixture
def orders(shell: Shell, cluster: Operator) -> Iterator[Topic]:
    with topic(cluster, "orders", BEFORE) as created:
        yield created


def requested(path: str, content: object) -> str:
    """The command that writes a request."""
    return f"create {path} '{json.dumps(content)}'"


def test_the_tree_is_kafkas(shell: Shell, orders: Topic) -> None:
    assert shell("ls /brokers/ids").split() == ["1", "2", "3", "4"]
    assert shell("ls /brokers/topics").split() == ["orders"]
    top = set(shell("ls /").split())
    assert top >= {"admin", "brokers", "config", "controller", "controller_epoch", "isr_change_notification"}
    found = shell("find /brokers/topics/orders state").split()
    assert found == [f"/brokers/topics/orders/partitions/{n}/state" for n in (0, 1)]


def test_znodes_are_json_that_it_can_take_apart(shell: Shell, orders: Topic) -> None:
    assert json.loads(shell("json_cat /brokers/topics/orders"))["partitions"] == {"0": [1, 2], "1": [2, 3]}
    state = json.loads(shell("get /brokers/topics/orders/partitions/1/state"))
    assert {"version", "leader", "leader_epoch", "isr", "controller_epoch"} <= set(state)
    registered = json.loads(shell("json_cat /brokers/ids/1"))
    assert registered["host"] == "127.0.0.1"
    assert isinstance(registered["port"], int)
    assert shell("json_get /controller brokerid").strip() == "1"
    assert shell("json_valid /brokers/ids true").splitlines() == [f"{id_}: yes." for id_ in range(1, 5)]


def test_a_reassignment_is_written_by_hand(shell: Shell, orders: Topic) -> None:
    listed = [{"topic": "orders", "partition": 0, "replicas": [4, 1]}]
    shell(requested("/admin/reassign_partitions", {"version": 1, "partitions": listed}))
    orders.moved({0: [4, 1], 1: [2, 3]})


def test_a_preferred_election_is_written_by_hand(shell: Shell, orders: Topic, cluster: Operator) -> None:
    cluster.ok("elect", "leader", "3", "--partition=orders-1")
    orders.led_by({0: 1, 1: 3})
    listed = [{"topic": "orders", "partition": 1}]
    shell(requested("/admin/preferred_replica_election", {"version": 1, "partitions": listed}))
    orders.led_by({0: 1, 1: 2})
    cluster.wait(lambda: cluster.zk.exists(znode_paths.PREFERRED_ELECTION) is None)


@pytest.mark.parametrize(
    "content",
    [
        '{"version":1,"partitions":{"0":[3,4]}}',
        '{"version":2,"partitions":{"0":[3,4]},"adding_replicas":{},"removing_replicas":{}}',
        '{"version":3,"topic_id":"Jm0IjUVkTBqZ5w2zrpQx0g","partitions":{"0":[3,4]},'
        '"adding_replicas":{},"removing_replicas":{}}',
        '{"partitions":{"0":[3,4]},"version":3,"made_by":{"somebody":["else"]}}',
    ],
    ids=["version 1", "version 2", "version 3", "more than is known"],
)
def test_a_topic_is_made_and_deleted_by_hand(shell: Shell, cluster: Operator, content: str) -> None:
    """There is no configuration znode: all defaults."""
    shell(f"create /brokers/topics/handmade '{content}'")
    made = Topic(cluster, "handmade")
    cluster.wait(lambda: cluster.zk.exists("/brokers/topics/handmade/partitions/0/state") is not None)
    made.led_by({0: 3})
    made.write()
    made.readable()
    shell("create /admin/delete_topics/handmade ''")
    cluster.wait(lambda: cluster.zk.exists("/brokers/topics/handmade") is None)
    assert shell("ls /admin/delete_topics").split() == []
    cluster.wait(lambda: not any(cluster.cluster.directory.glob("broker-*/handmade-0")))


def test_a_topic_grows_by_hand(shell: Shell, orders: Topic, cluster: Operator) -> None:
    fields = json.loads(shell("get /brokers/topics/orders"))
    fields["partitions"]["2"] = [3, 4]
    shell(f"set /brokers/topics/orders '{json.dumps(fields)}'")
    cluster.wait(lambda: cluster.zk.exists("/brokers/topics/orders/partitions/2/state") is not None)
    orders.led_by({0: 1, 1: 2, 2: 3})
    cluster.ok("produce", "orders", "--partition=2", *VALUES)
    orders.readable()


def test_configuration_changes_by_hand(shell: Shell, orders: Topic, cluster: Operator) -> None:
    """min.insync.replicas of a topic, then the notification that Kafka's tools leave: brokers heed it."""
    changed = {"version": 1, "config": {"min.insync.replicas": "2"}}
    notified = {"version": 2, "entity_path": "topics/orders"}
    stopped = cluster.cluster.members["broker-2"]
    stopped.stop()
    try:
        cluster.wait(lambda: cluster.state("orders", 0)["isr"] == [1])
        cluster.ok("produce", "orders", "--partition=0", "taken")
        shell(
            f"set /config/topics/orders '{json.dumps(changed)}'",
            f"create /config/changes/config_change_ '{json.dumps(notified)}' false true",
        )
        produce = ("--timeout=1", "produce", "orders", "--partition=0", "refused")
        cluster.wait(lambda: "NOT_ENOUGH_REPLICAS" in cluster.run(*produce).output)
    finally:
        stopped.start()


def test_the_controller_is_moved_by_hand(shell: Shell, orders: Topic, cluster: Operator) -> None:
    before = int(shell("get /controller_epoch"))
    shell("rm /controller")
    cluster.wait(lambda: int(cluster.zk.get("/controller_epoch")[0]) == before + 1)
    cluster.wait(lambda: cluster.json("cluster").get("controller_answers") == "yes")
    orders.readable()


@pytest.mark.parametrize(
    "wrong",
    [
        *("{not json", '{"version":1,"partitions":[{"topic":7}]}'),
        *(pytest.param(content, marks=pytest.mark.long) for content in ('["a list"]', "")),
    ],
)
def test_nonsense_does_not_make_the_controller_deaf(
    shell: Shell, orders: Topic, cluster: Operator, wrong: str
) -> None:
    both = ("/admin/reassign_partitions", "/admin/preferred_replica_election")
    shell(*(f"create {path} '{wrong}'" for path in both))
    cluster.wait(lambda: all(cluster.zk.exists(path) is None for path in both))
    cluster.ok("elect", "leader", "3", "--partition=orders-1")
    moves = [{"topic": "orders", "partition": 0, "replicas": [3, 4]}]
    elections = [{"topic": "orders", "partition": 1}]
    shell(
        requested(both[0], {"version": 1, "partitions": moves}),
        requested(both[1], {"version": 1, "partitions": elections}),
    )
    orders.moved({0: [3, 4], 1: [2, 3]})
    cluster.wait(lambda: orders.leaders[1] == 2)
