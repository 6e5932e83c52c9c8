"""The histogram of leaderless time."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from controller.core.model import LeaderAndIsr, Partition, PartitionState, Topic
from controller.core.records import PartitionTransition
from controller.runtime.observe.metrics import ControllerMetrics
from controller.runtime.observe.outages import Outages

ONLINE, OFFLINE = PartitionState.ONLINE, PartitionState.OFFLINE
GONE = PartitionState.NON_EXISTENT
STATE = LeaderAndIsr(1, 0, (1,), 0, 1)


def test_outages_begin_with_the_last_sign_and_end_with_a_leader() -> None:
    registry = CollectorRegistry()
    outages = Outages(ControllerMetrics(registry))

    def moved(
        number: int,
        before: PartitionState,
        after: PartitionState,
        at_s: int,
        silent_us: int | None = None,
        topic: str = "t",
    ) -> None:
        partition = Partition(Topic(topic), number, (1,))
        outages.take([PartitionTransition(partition, before, after, STATE, silent_us)], at_s * 1_000_000)

    def measured() -> tuple[float | None, float | None]:
        name = "partition_controller_leaderless_seconds"
        return registry.get_sample_value(f"{name}_count"), registry.get_sample_value(f"{name}_sum")

    moved(0, ONLINE, OFFLINE, 20, 18_000_000)
    moved(1, ONLINE, OFFLINE, 20)
    moved(2, ONLINE, OFFLINE, 20)
    moved(3, GONE, OFFLINE, 20)
    assert measured() == (0, 0)
    moved(0, OFFLINE, ONLINE, 21, topic="another")
    assert measured() == (0, 0)
    moved(0, OFFLINE, ONLINE, 21)
    assert measured() == (1, 19)
    moved(1, OFFLINE, ONLINE, 23)
    moved(2, OFFLINE, GONE, 24)
    moved(3, OFFLINE, ONLINE, 25)
    moved(1, ONLINE, ONLINE, 26)
    assert measured() == (2, 22)
