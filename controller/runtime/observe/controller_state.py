"""What the controller is doing, as the number that Kafka's gauge ControllerState shows (reference, section 11.1)."""

from __future__ import annotations

from controller.core.events import EventKind

IDLE = 0
#: The state of a controller's process that keeps its metadata in ZooKeeper (ZkMigrationState).
ZOOKEEPER = 4

#: Events that Kafka has no state for, ours among them, count as idle, like its own without one.
_STATES = {
    EventKind.FAILOVER: 1,
    EventKind.RECONNECTED: 1,
    EventKind.BROKER_CHANGE: 2,
    EventKind.TOPIC_CHANGE: 3,
    EventKind.PARTITION_MODIFICATIONS: 3,
    EventKind.CREATE_TOPICS: 3,
    EventKind.CREATE_PARTITIONS: 3,
    EventKind.TOPIC_DELETION: 4,
    EventKind.TOPIC_DELETION_RETRY: 4,
    EventKind.STOP_REPLICA_RESPONSE: 4,
    EventKind.DELETION_PROGRESS: 4,
    EventKind.DELETE_TOPICS: 4,
    EventKind.REASSIGNMENT: 5,
    EventKind.REASSIGNMENT_IN_SYNC: 5,
    EventKind.ALTER_REASSIGNMENTS: 5,
    EventKind.LEADER_REBALANCE: 6,
    EventKind.PREFERRED_ELECTION: 7,
    EventKind.ELECT_LEADERS: 7,
    EventKind.CONTROLLED_SHUTDOWN: 8,
    EventKind.ALTER_PARTITION: 9,
    EventKind.ISR_CHANGE: 9,
    EventKind.LEADER_AND_ISR_RESPONSE: 10,
    EventKind.LOG_DIR: 11,
    # Of the default for all topics, 13, and of one topic: which of them it is, is only found when it is handled.
    EventKind.CONFIG_CHANGE: 14,
    EventKind.LIST_REASSIGNMENTS: 15,
    EventKind.UPDATE_FEATURES: 17,
}


def state_of(kind: EventKind | None) -> int:
    """The number of the event being handled; None: none is."""
    return IDLE if kind is None else _STATES.get(kind, IDLE)
