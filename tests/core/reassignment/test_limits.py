"""What counts towards the limits of concurrent reassignments."""

from __future__ import annotations

from controller.core.context import CoreSettings
from controller.core.model import Cluster, Partition, Topic
from controller.core.reassignment.assignment import Assignment
from controller.core.reassignment.concurrency import ConcurrencyLimit, lost_replicas


def test_whoever_gets_or_loses_a_replica_takes_part() -> None:
    settings = CoreSettings(reassignment_concurrent_moves_per_broker_max=1)
    limit = ConcurrencyLimit(Cluster(100, 7), settings)
    one, other, third = (Partition(Topic("t"), number, (1, 2)) for number in range(3))
    running = Assignment((1, 2, 3), (3,), (2,))
    limit.take(one, running)
    assert limit.why_wait(one, running) is None, "it runs already"
    assert limit.why_wait(other, Assignment((1, 4, 2), (4,), (2,))) is not None, "2 loses a replica already"
    assert limit.why_wait(third, Assignment((1, 4, 5), (4,), (5,))) is None


def test_a_replica_that_is_being_added_is_not_lost() -> None:
    cluster = Cluster(100, 7)
    partition = Partition(Topic("t"), 0, ())
    partition.reassign((1, 2, 3), (3,), (2,))
    assert lost_replicas(cluster, partition) == [1, 2], "no broker is registered"
