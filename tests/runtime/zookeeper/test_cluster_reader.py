"""What an operator's tool makes of the cluster as it read it."""

from __future__ import annotations

from controller.runtime.zookeeper.cluster_reader import ClusterState, PartitionInfo
from tests.support.core.world import state


def test_who_is_in_sync_beside_the_assignment_stands_for_no_replica() -> None:
    """As while a partition is being moved."""
    assert PartitionInfo("t", 0, (1, 2), state(1, [1, 3], 5, 7)).under_replicated()
    assert not PartitionInfo("t", 0, (1, 2), state(1, [1, 2, 3], 5, 7)).under_replicated()


def test_a_topic_s_own_setting_comes_before_the_brokers_default() -> None:
    found = ClusterState(
        configs={"t": {"min.insync.replicas": "1"}, "u": {"min.insync.replicas": "many"}},
        broker_defaults={"min.insync.replicas": "2"},
    )
    assert [found.min_isr(topic) for topic in ("t", "u", "v")] == [1, 2, 2]
