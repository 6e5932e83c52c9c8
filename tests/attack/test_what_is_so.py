"""What brokers refuse, what they were never told, and what somebody edited is said wherever a partition is shown."""

from __future__ import annotations

import json
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.support.cli.operator import pctl
from tests.support.runtime.clusters import brokers, controller, http

pytestmark = pytest.mark.slow


def data(connect: str, *arguments: str) -> Any:
    return json.loads(pctl(connect, "-o", "json", *arguments).stdout)


def test_a_topic_wiped_by_hand_is_refused_and_all_say_so(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    with controller(zookeeper, tmp_path) as running, brokers(zookeeper, tmp_path, 2):
        create = ("topics", "create", "rec", "--partitions", "1", "--replication-factor", "2")
        assert pctl(zookeeper, *create).exit_code == 0
        assert pctl(zookeeper, "audit").exit_code == 0, pctl(zookeeper, "audit").output
        zk.delete("/brokers/topics/rec", recursive=True)
        running.until(lambda: json.loads(http(running, "/state"))["term"]["topics"] == 0)
        again = pctl(zookeeper, "--timeout", "5", *create)
        assert again.exit_code == 1, again.output

        found = pctl(zookeeper, "-o", "json", "audit")
        assert found.exit_code == 1, found.output
        refused = [p for p in json.loads(found.stdout)["problems"] if p["kind"] == "refused"]
        assert {p["broker"] for p in refused} == {1, 2}
        assert "former topic of this name" in refused[0]["mend"]
        explained = data(zookeeper, "explain", "partition", "rec", "0")
        assert "has not acknowledged" in explained["summary"]
        assert any("former topic of this name" in change for change in explained["changes"])
        (row,) = data(zookeeper, "partitions", "--topic", "rec")
        assert "refuses LeaderAndIsr: INCONSISTENT_TOPIC_ID" in row["why"]
        (row,) = data(zookeeper, "topics", "describe", "rec")
        assert "refuses LeaderAndIsr: INCONSISTENT_TOPIC_ID" in row["why"]
        assert "INCONSISTENT_TOPIC_ID" in data(zookeeper, "brokers")[0]["push_problem"]
        term = json.loads(http(running, "/state"))["term"]
        assert term["replica_problems"]
        assert term["brokers"]["1"]["refused_partitions"] == 1
        assert 'partition_controller_broker_refused_partitions{broker_id="1"} 1.0' in http(
            running, "/metrics"
        )


def test_a_frozen_leader_has_not_acknowledged(zookeeper: str, tmp_path: Path) -> None:
    with controller(zookeeper, tmp_path), brokers(zookeeper, tmp_path, 2) as started:
        started[1].process.send_signal(signal.SIGSTOP)
        try:
            assignment = ("--replica-assignment", "2:1", "--no-wait")
            assert pctl(zookeeper, "topics", "create", "frozen", *assignment).exit_code == 0
            explained = data(zookeeper, "explain", "partition", "frozen", "0")
            assert "2 is to lead it, but has not acknowledged that: broker 2" in explained["summary"]
            asked = pctl(zookeeper, "--timeout", "30", "audit")
            assert asked.exit_code == 3, asked.output
        finally:
            started[1].process.send_signal(signal.SIGCONT)


def test_an_edited_state_is_taken_over_and_all_agree(zookeeper: str, zk: KazooClient, tmp_path: Path) -> None:
    with controller(zookeeper, tmp_path) as running, brokers(zookeeper, tmp_path, 2):
        create = ("topics", "create", "t", "--replica-assignment", "1:2")
        assert pctl(zookeeper, *create).exit_code == 0
        path = "/brokers/topics/t/partitions/0/state"
        state = json.loads(zk.get(path)[0])
        zk.set(path, json.dumps({**state, "leader": 2, "leader_epoch": state["leader_epoch"] + 1}).encode())

        def agree() -> bool:
            (row,) = data(zookeeper, "partitions", "--topic", "t")
            explained = data(zookeeper, "explain", "partition", "t", "0")
            known = explained["leader"], explained["leader_epoch"]
            return known == (row["leader"], row["leader_epoch"]) == (2, state["leader_epoch"] + 2)

        running.until(agree)
        assert "taken_over" in pctl(zookeeper, "history", "--kind", "audit").output
        zk.set(path, b"junk")
        running.until(partial(decodes, zk, path))
        assert json.loads(zk.get(path)[0])["leader"] == 2
        assert "put_right" in pctl(zookeeper, "history", "--kind", "audit").output
        produced = pctl(zookeeper, "produce", "t", "x")
        assert produced.exit_code == 0, produced.output
        running.until(lambda: pctl(zookeeper, "audit").exit_code == 0)


def decodes(zk: KazooClient, path: str) -> bool:
    try:
        return bool(json.loads(zk.get(path)[0]))
    except ValueError:
        return False
