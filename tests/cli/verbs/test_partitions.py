"""``pctl partitions``: which are listed, and what brokers add."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.cli.pctl import partitions
from controller.client import admin
from controller.core.effects import TopicInfo
from controller.runtime.zookeeper.cluster_reader import ClusterState, PartitionInfo
from proto.gen import inspection_pb2 as pb
from tests.support.cli.verbs import Asked, typed
from tests.support.core.world import a_broker, state

INTERNAL = "__consumer_offsets"
#: Broker 9 is gone.
PARTITIONS = [
    PartitionInfo("t", 0, (1, 2, 3), state(1, (1, 2, 3), 1, 1)),
    PartitionInfo("t", 1, (1, 2, 3), state(1, (1, 2), 1, 1)),
    PartitionInfo("t", 2, (1, 2, 3), state(1, (1,), 1, 1)),
    PartitionInfo("t", 3, (1, 2, 3), state(-1, (1, 2, 3), 1, 1)),
    PartitionInfo("t", 4, (1, 2, 3), None),
    PartitionInfo("t", 5, (9, 2, 3), state(9, (9, 2, 3), 1, 1)),
    PartitionInfo(INTERNAL, 0, (1, 2), state(-1, (1,), 1, 1)),
]
CLUSTER = ClusterState(
    100,
    "c:1",
    7,
    brokers={b: a_broker(b, b) for b in (1, 2, 3)},
    topics={name: TopicInfo(name, "id", {}, {}, {}, 0, 1) for name in ("t", INTERNAL)},
    partitions=PARTITIONS,
    configs={"t": {"min.insync.replicas": "2"}},
)


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ("", ["t-0", "t-1", "t-2", "t-3", "t-4", "t-5"]),
        ("--internal", ["t-0", "t-1", "t-2", "t-3", "t-4", "t-5", f"{INTERNAL}-0"]),
        ("--topic t --unavailable", ["t-3", "t-4", "t-5"]),
        ("--unavailable", ["t-3", "t-4", "t-5", f"{INTERNAL}-0"]),
        ("--under-replicated", ["t-1", "t-2", "t-4", f"{INTERNAL}-0"]),
        ("--under-min-isr", ["t-2"]),
        ("--at-min-isr", ["t-1", f"{INTERNAL}-0"]),
        ("--under-replicated --unavailable", ["t-4", f"{INTERNAL}-0"]),
    ],
)
def test_partitions_are_listed_by_what_is_wrong_with_them(
    options: str, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who searches finds internal ones, too."""
    Asked(CLUSTER, Audit=pb.AuditResponse()).install(monkeypatch, partitions)
    found = typed(f"partitions {options}")
    assert [f"{row['topic']}-{row['partition']}" for row in json.loads(found.stdout)] == shown
    assert ("1 partition of internal topics is left out" in found.stderr) == (not options)


def test_what_brokers_refuse_is_told_beside_what_zookeeper_has(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = pb.AuditResponse()
    for broker in (2, 3):
        answer.problems.add(topic="t", partition=1, broker_id=broker, what="refuses it")
    asked = Asked(CLUSTER, Audit=answer).install(monkeypatch, partitions)
    whys = {row["partition"]: row["why"] for row in json.loads(typed("partitions --topic t").stdout)}
    assert whys[1] == "out of sync: 3; broker 2 refuses it; broker 3 refuses it"
    assert whys[0] == ""
    assert [(list(r.topics), r.recorded) for r in asked.of("Audit")] == [(["t"], True)]
    Asked(CLUSTER, Audit=admin.NoAnswerError("away")).install(monkeypatch, partitions)
    shown = typed("partitions --topic t")
    assert (len(json.loads(shown.stdout)), "refusals of brokers are not known" in shown.stderr) == (6, True)


def test_sizes_are_in_the_order_of_the_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = pb.DescribeReplicasResponse()
    answer.silent.add(broker=3, why="it is away")
    told: Any = answer.partitions.add(topic="t", partition=0)
    told.replicas.add(broker=2, size_bytes=20, offset_lag=1, on_failed_disk=True)
    told.replicas.add(broker=1, size_bytes=0, offset_lag=-1)
    Asked(CLUSTER, Audit=pb.AuditResponse(), DescribeReplicas=answer).install(monkeypatch, partitions)
    shown = typed("partitions --topic t --sizes")
    assert "left out" not in shown.stderr + typed("partitions --unavailable").stderr
    rows = json.loads(shown.stdout)
    assert (rows[0]["size_bytes"], rows[0]["offset_lag"]) == ([0, 20, None], [None, 1, None])
    assert (rows[0]["failed_disks"], rows[1]["size_bytes"]) == ([2], [None, None, None])
    assert [row["why"] for row in rows[1:]] == [
        "out of sync: 3",
        "out of sync: 2, 3",
        "1, 2, 3 of the ISR [1, 2, 3] is alive, but no new leader is elected yet",
        "no state yet",
        "its leader 9 is offline, and no new leader is elected yet",
    ]
    assert "broker 3 does not say what is on its disks: it is away" in shown.stderr
