"""What operators and gauges are told of deletions."""

from __future__ import annotations

from controller.core.topics.deletion_status import DeletionPhase, DeletionStatus, deletions
from controller.core.topics.reasons import ReplicaNotDeleted, Unreachable, ZnodeUnreadable
from controller.core.znode_paths import topic_path
from tests.support.core.harness import MachineHarness
from tests.support.core.world import World


def test_every_phase_is_told_with_its_reason() -> None:
    world = World(1, 2)
    world.create_topic("going", {0: [1], 1: [1]})
    world.create_topic("held", {0: [1, 2]})
    rig = MachineHarness.active(world)
    world.damage(topic_path("unreadable"), "not JSON")
    world.create_topic("unreadable", {0: [1]})
    rig.run()
    assert deletions(rig.cluster) == []
    world.broker_down(2)
    rig.run()
    rig.hold_stops = True
    world.mark_for_deletion("going", "held", "unreadable")
    rig.run()
    assert deletions(rig.cluster) == [
        DeletionStatus("going", DeletionPhase.STARTED, None, 2),
        DeletionStatus(
            "held",
            DeletionPhase.INELIGIBLE,
            ReplicaNotDeleted(2, "held-0", Unreachable.NOT_ONLINE),
            replicas_left=2,
            replicas_ineligible=1,
        ),
        DeletionStatus("unreadable", DeletionPhase.WAITING, ZnodeUnreadable("not JSON")),
    ]
    rig.hold_stops = False
    rig.answer_stops()
    rig.run()
    (held, _) = deletions(rig.cluster)
    assert (held.topic, held.replicas_left, held.replicas_ineligible) == ("held", 1, 0)


def test_a_topic_found_at_failover_is_queued_until_its_turn() -> None:
    world = World(1)
    world.create_topic("t", {0: [1]})
    rig = MachineHarness.active(world)
    rig.cluster.topics_to_delete.add("t")
    assert deletions(rig.cluster) == [DeletionStatus("t", DeletionPhase.QUEUED, None, 1)]
