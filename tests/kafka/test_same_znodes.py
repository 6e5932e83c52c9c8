"""One scenario led by Kafka's own controller and by ours leaves the same znodes, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka.conftest import running
from tests.kafka.znodes import differences, snapshot

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.kafka_long]


def scenario(directory: Path, zookeeper: str, controllers: int) -> dict[str, str]:
    """A topic is created, a broker is killed, comes back, and another topic is deleted."""
    with running(directory, zookeeper, controllers_wanted=controllers) as cluster:
        # Kafka's own controller must not be the one that is killed, nor elect preferred leaders.
        if not controllers and cluster.controller_id() == 1:
            cluster.zk.delete("/controller")
            cluster.until("another controller", lambda: cluster.controller_id() > 1)
        cluster.create_topic(
            "t", assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]], config={"retention.ms": "60000"}
        )
        cluster.create_topic("gone", assignment=[[1, 2, 3]])
        cluster.brokers[1].kill()
        cluster.until("new leaders", lambda: cluster.led("t", without=[1]))
        cluster.restart(1)
        cluster.until("full ISRs", lambda: cluster.in_sync("t", "gone"))
        admin = cluster.admin()
        admin.delete_topics(["gone"])["gone"].result(30)
        cluster.until("the deletion", lambda: not cluster.zk.exists("/admin/delete_topics/gone"))
        return snapshot(cluster.zk)


def test_kill_restart_and_deletion(tmp_path: Path, zookeeper: str) -> None:
    kafkas = scenario(tmp_path / "kafkas", f"{zookeeper}/kafkas", 0)
    ours = scenario(tmp_path / "ours", f"{zookeeper}/ours", 1)
    assert differences(kafkas, ours) == []
