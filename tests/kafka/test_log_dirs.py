"""A broker loses one of its log directories: its other replicas go on."""

from __future__ import annotations

import json

import pytest

from tests.kafka.cluster import KafkaCluster
from tests.kafka.conftest import MakeCluster
from tests.kafka.load import Load
from tests.support.cli.operator import pctl

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.kafka_long]


def leader_of(cluster: KafkaCluster, number: int) -> int:
    state = cluster.states("t")["t", number]
    assert state is not None
    return state.leader


def test_replicas_on_a_failed_disk_are_offline_until_it_is_back(make_kafka: MakeCluster) -> None:
    cluster = make_kafka(
        log_dirs=2,
        # Root may write anywhere, and open files stay writable: a checkpoint is what notices the loss.
        properties={"replica.high.watermark.checkpoint.interval.ms": "1000"},
        controllers_wanted=1,
    )
    cluster.create_topic("t", 6, 3, config={"min.insync.replicas": "2"})
    victim = leader_of(cluster, 0)
    disk = next(d for d in cluster.brokers[victim].data_dirs if (d / "t-0").exists())
    lost = {n for n in range(6) if (disk / f"t-{n}").exists()}
    kept = {n: leader_of(cluster, n) for n in set(range(6)) - lost}
    assert kept
    with Load(cluster, "t", writers=1, readers=1) as load:
        load.run_for(0.5)
        aside = disk.rename(disk.with_suffix(".aside"))
        disk.write_bytes(b"")
        cluster.until("new leaders", lambda: all(gone_from(cluster, n, victim) for n in lost))
        cluster.until("no notification", lambda: not cluster.zk.get_children("/log_dir_event_notification"))
        assert {n: leader_of(cluster, n) for n in kept} == kept
        assert all(not gone_from(cluster, n, victim) for n in kept)
        assert str(victim) in cluster.zk.get_children("/brokers/ids")
        load.run_for(1)
        number = min(lost)
        rows = json.loads(pctl(cluster.zookeeper, "-o", "json", "partitions", "--under-replicated").stdout)
        mine = {row["partition"]: row["why"] for row in rows if row["topic"] == "t"}
        assert mine == dict.fromkeys(sorted(lost), f"out of sync: {victim}")
        sized = json.loads(
            pctl(cluster.zookeeper, "-o", "json", "partitions", "--topic", "t", "--sizes").stdout
        )
        assert {row["partition"] for row in sized if row["failed_disks"] == [victim]} == lost
        for row in sized:
            unknown = [b for b, size in zip(row["replicas"], row["size_bytes"], strict=True) if size is None]
            assert unknown == row["failed_disks"], row
            assert max(size for size in row["size_bytes"] if size is not None) > 0, row
        explained = pctl(cluster.zookeeper, "explain", "partition", "t", str(number)).stdout
        assert "disk" in explained, explained
        # No client asks for the lost replicas: metadata names them offline.
        offline = json.loads(pctl(cluster.zookeeper, "-o", "json", "brokers").stdout)
        print(explained, offline)
        disk.unlink()
        aside.rename(disk)
        assert cluster.brokers[victim].stop()
        cluster.restart(victim)
        cluster.until("full ISRs", lambda: cluster.in_sync("t"))
        outcome = load.finish()
    assert outcome.ok, outcome
    assert json.loads(pctl(cluster.zookeeper, "-o", "json", "partitions", "--under-replicated").stdout) == []
    shown = pctl(cluster.zookeeper, "-o", "json", "topics", "delete", "t", "--yes").stdout
    (going,) = json.JSONDecoder().raw_decode(shown)[0]
    assert going["size"] > 0


def gone_from(cluster: KafkaCluster, number: int, broker: int) -> bool:
    """Whether a partition is led, and not by this broker, which is out of sync."""
    state = cluster.states("t")["t", number]
    return state is not None and state.leader not in (-1, broker) and broker not in state.isr
