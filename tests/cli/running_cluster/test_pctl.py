"""What pctl shows and does on a running cluster, as a table and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from controller.cli.pctl.partitions import PARTITION_COLUMNS
from controller.core import znode_paths
from controller.core.model import LeaderAndIsr
from controller.runtime.zookeeper import codecs
from tests.support.cli.operator import Operator
from tests.support.runtime.programs import BIN, run_to_end

pytestmark = pytest.mark.slow

TOPICS = "/brokers/topics"


def test_cluster(operator: Operator) -> None:
    fields = operator.json("cluster")
    assert fields["controller"] == 1
    assert fields["controller_endpoint"].startswith("127.0.0.1:")
    assert fields["controller_epoch"] >= 1
    assert fields["candidates"] == [1]
    assert fields["brokers"] == 3
    assert fields["controller_answers"] == "yes"
    text = operator.ok("cluster").stdout
    for name, value in fields.items():
        if isinstance(value, int | str) and name != "pending_pushes":
            assert f"{name.replace('_', ' ')}  " in text
            assert str(value) in text


def test_controllers(operator: Operator) -> None:
    (row,) = operator.json("controllers")
    assert (row["controller"], row["role"]) == (1, "active")
    assert operator.table("controllers") == [
        ["CONTROLLER", "ROLE", "MEMORY", "GRPC", "HTTP"],
        ["1", "active", "-", row["grpc"], row["http"]],
    ]


def test_brokers(operator: Operator) -> None:
    rows = operator.json("brokers")
    assert [r["broker"] for r in rows] == [1, 2, 3]
    for row in rows:
        assert row["epoch"] == operator.zk.exists(f"/brokers/ids/{row['broker']}").czxid
        assert row["endpoint"].startswith("127.0.0.1:")
        assert row["push_problem"] == ""
        assert row["state"] == ["ready"]
    table = operator.table("brokers")
    assert table[0][:3] == ["BROKER", "STATE", "EPOCH"]
    assert [line[0] for line in table[1:]] == ["1", "2", "3"]


def test_topic_is_created_led_listed_and_described(operator: Operator) -> None:
    created = operator.ok(
        "topics", "create", "orders", "--partitions=6", "--replication-factor=2", "--config=retention.ms=1000"
    )
    assert "created topic orders with 6 partitions" in created.stderr
    # It has waited: every partition has a leader already.
    states = [operator.state("orders", n) for n in range(6)]
    assert {s["leader"] for s in states} == {1, 2, 3}
    assert codecs.decode_config("/c", operator.zk.get("/config/topics/orders")[0]) == {"retention.ms": "1000"}

    (row,) = [r for r in operator.json("topics", "list") if r["topic"] == "orders"]
    assert (row["partitions"], row["replication_factor"], row["deleting"]) == (6, 2, False)
    assert row["id"] == json.loads(operator.zk.get("/brokers/topics/orders")[0])["topic_id"]
    (line,) = [line for line in operator.table("topics", "list") if line[0] == "orders"]
    assert line[:4] == ["orders", row["id"], "6", "2"]

    described = operator.json("topics", "describe", "orders")
    assert list(described[0]) == list(PARTITION_COLUMNS)
    for n, partition in enumerate(described):
        assert (partition["topic"], partition["partition"]) == ("orders", n)
        assert partition["leader"] == states[n]["leader"] == partition["replicas"][0]
        assert sorted(partition["replicas"]) == sorted(partition["isr"])
        assert (partition["leader_epoch"], partition["recovery"], partition["why"]) == (0, "RECOVERED", "")
    table = operator.table("topics", "describe", "orders")
    assert table[0] == ["TOPIC", "PARTITION", "LEADER", "LEADER", "EPOCH", *table[0][5:]]
    assert [line[:3] for line in table[1:]] == [
        ["orders", str(n), str(s["leader"])] for n, s in enumerate(states)
    ]


def test_style_may_be_asked_for_before_and_after_the_verb(operator: Operator) -> None:
    before = operator.run("-o", "json", "controllers").stdout
    assert operator.run("controllers", "-o", "json").stdout == before
    assert operator.run("-o", "table", "controllers", "--output=json").stdout == before


def test_assignment_by_hand_is_taken_as_it_is(operator: Operator) -> None:
    operator.ok("topics", "create", "byhand", "--replica-assignment=3:1,2:3")
    assert json.loads(operator.zk.get("/brokers/topics/byhand")[0])["partitions"] == {
        "0": [3, 1],
        "1": [2, 3],
    }
    assert [operator.state("byhand", n)["leader"] for n in (0, 1)] == [3, 2]


@pytest.mark.parametrize("style", ["table", "json"])
def test_dry_run_prints_the_exact_writes_and_changes_nothing(operator: Operator, style: str) -> None:
    before = operator.zk.get_children("/brokers/topics"), operator.zk.get_children("/config/topics")
    arguments = (
        "topics",
        "create",
        "dry",
        "--replica-assignment=1:2,2:3",
        "--config=a=[bold] :100: [/x]",
        "--dry-run",
    )
    if style == "json":
        tried = operator.json(*arguments)
        written = {row["path"]: row for row in tried["writes"]}
        config, topic = (json.loads(written[f"{base}/dry"]["new"]) for base in ("/config/topics", TOPICS))
        assert f"{TOPICS}/dry/partitions/1/state" in written
        assert (tried["source"], {row["when"] for row in tried["writes"]}) == ("controller", {"at once"})
        assert config == {"version": 1, "config": {"a": "[bold] :100: [/x]"}}
        assert topic["partitions"] == {"0": [1, 2], "1": [2, 3]}
    else:
        said = operator.ok(*arguments).stdout
        assert '{"version":1,"config":{"a":"[bold] :100: [/x]"}}' in said
        assert '"partitions":{"0":[1,2],"1":[2,3]}' in said
    assert (operator.zk.get_children("/brokers/topics"), operator.zk.get_children("/config/topics")) == before


def test_a_configuration_left_behind_is_replaced(operator: Operator) -> None:
    operator.zk.create("/config/topics/again", b'{"version":1,"config":{"old":"1"}}')
    operator.ok("topics", "create", "again", "--config=new=2")
    assert codecs.decode_config("/c", operator.zk.get("/config/topics/again")[0]) == {"new": "2"}


def test_partitions_that_are_not_well_say_why(operator: Operator) -> None:
    # Nobody takes the second replica back into the ISR meanwhile.
    with operator.frozen_controller():
        operator.topic_by_hand("lagging", [1, 2, 98], 1, [1])
        operator.topic_by_hand("leaderless", [98, 99], -1, [98, 99])
        rows = operator.json("partitions", "--topic=lagging", "--topic=leaderless")
    assert {r["topic"]: r["why"] for r in rows} == {
        "lagging": "out of sync: 2, 98 (offline)",
        "leaderless": "no member of the ISR [98, 99] is alive",
    }
    unavailable = [r["topic"] for r in operator.json("partitions", "--unavailable")]
    assert "leaderless" in unavailable
    assert not {"lagging", "orders"} & set(unavailable)
    under = {r["topic"] for r in operator.json("partitions", "--under-replicated")}
    assert {"lagging"} <= under
    assert "orders" not in under
    assert ["leaderless", "0", "-1"] in [line[:3] for line in operator.table("partitions")]


def test_unreadable_znodes_are_named_and_hide_nothing(operator: Operator) -> None:
    operator.zk.create("/brokers/ids/77", b"junk")
    operator.zk.create("/brokers/topics/unreadable", b"[]")
    try:
        for verb in (("brokers",), ("topics", "list"), ("cluster",), ("partitions",)):
            result = operator.ok(*verb)
            assert "pctl: unreadable znode /brokers/ids/77: " in result.stderr
        assert len([row for row in operator.json("brokers") if row["state"] != ["gone"]]) == 3
        assert "unreadable znode /brokers/topics/unreadable" in operator.ok("topics", "list").stderr
        described = operator.run("topics", "describe", "unreadable")
        assert described.exit_code == 1
        assert "/brokers/topics/unreadable: " in described.stderr
        listed = operator.run("partitions", "--topic=unreadable")
        assert (listed.exit_code, listed.stderr) == (1, described.stderr)
    finally:
        operator.zk.delete("/brokers/ids/77")
        operator.zk.delete("/brokers/topics/unreadable")


# --- elections ---------------------------------------------------------------------------------------------


def test_election_gives_the_preferred_leader_back(operator: Operator) -> None:
    with operator.controller_away():
        for name in ("elect-a", "elect-b", "elect-c"):
            operator.topic_by_hand(name, [1, 2], 2, [2, 1])
    asked = ("elect", "--topic=elect-a", "--partition=elect-b-0")
    expected = [
        {"partition": f"{name}-0", "leader": 2, "preferred": 1, "possible": True}
        for name in ("elect-a", "elect-b")
    ]
    tried = operator.json(*asked, "--dry-run")
    assert tried["partitions"] == expected
    assert [row["path"].split("/")[3] for row in tried["writes"]] == ["elect-a", "elect-b"]
    assert operator.table(*asked, "--dry-run")[:3] == [
        ["PARTITION", "LEADER", "PREFERRED", "POSSIBLE"],
        ["elect-a-0", "2", "1", "yes"],
        ["elect-b-0", "2", "1", "yes"],
    ]
    assert operator.state("elect-a", 0)["leader"] == 2
    done = operator.ok(*asked)
    assert "2 of 2 partitions are led by their preferred replica" in done.stderr
    assert [operator.state(f"elect-{name}", 0)["leader"] for name in "abc"] == [1, 1, 2]
    assert "nothing to do" in operator.ok(*asked).stderr
    operator.ok("elect", "--partition=elect-c-0")
    assert operator.state("elect-c", 0)["leader"] == 1


def test_pctl_as_a_program_takes_its_zookeeper_from_the_environment(
    operator: Operator, tmp_path: Path
) -> None:
    environment = {"PCTL_ZOOKEEPER": operator.cluster.connect}
    done = run_to_end([str(BIN / "pctl"), "-o", "json", "controllers"], tmp_path, environment)
    assert (done.returncode, json.loads(done.stdout)[0]["role"]) == (0, "active")


def test_a_state_is_what_the_codec_says(operator: Operator) -> None:
    operator.topic_by_hand("codec", [2], 2, [2])
    # Until the controller has taken it over, and written it.
    operator.wait(lambda: operator.state("codec", 0)["leader_epoch"] == 4)
    (row,) = operator.json("partitions", "--topic=codec")
    data, stat = operator.zk.get(znode_paths.state_path("codec", 0))
    state = codecs.decode_state("codec", 0, data, stat.version)
    assert state == LeaderAndIsr(
        row["leader"],
        row["leader_epoch"],
        tuple(row["isr"]),
        row["partition_epoch"],
        row["controller_epoch"],
        directories=state.directories,
    )
    assert len(state.directories) == 1
