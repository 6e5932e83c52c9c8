"""The numbers of Kafka's gauge ControllerState (reference, section 11.1); gauges with labels."""

from __future__ import annotations

import re
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controller.core.events import EventKind
from controller.runtime.observe.metrics import (
    IDLE,
    ZOOKEEPER,
    ControllerMetrics,
    GaugeSource,
    ZooKeeperMetrics,
    state_of,
)
from tests.support.paths import DOCS

#: The reference's list, of what has an event here, and what is of the same kind.
REFERENCE = {
    1: {EventKind.FAILOVER, EventKind.RECONNECTED},
    2: {EventKind.BROKER_CHANGE},
    3: {
        EventKind.TOPIC_CHANGE,
        EventKind.PARTITION_MODIFICATIONS,
        EventKind.CREATE_TOPICS,
        EventKind.CREATE_PARTITIONS,
    },
    4: {
        EventKind.TOPIC_DELETION,
        EventKind.TOPIC_DELETION_RETRY,
        EventKind.DELETE_TOPICS,
        EventKind.DELETION_PROGRESS,
        EventKind.STOP_REPLICA_RESPONSE,
    },
    5: {EventKind.REASSIGNMENT, EventKind.ALTER_REASSIGNMENTS, EventKind.REASSIGNMENT_IN_SYNC},
    6: {EventKind.LEADER_REBALANCE},
    7: {EventKind.PREFERRED_ELECTION, EventKind.ELECT_LEADERS},
    8: {EventKind.CONTROLLED_SHUTDOWN},
    9: {EventKind.ISR_CHANGE, EventKind.ALTER_PARTITION},
    10: {EventKind.LEADER_AND_ISR_RESPONSE},
    11: {EventKind.LOG_DIR},
    15: {EventKind.LIST_REASSIGNMENTS},
    17: {EventKind.UPDATE_FEATURES},
}


@pytest.mark.parametrize("state", REFERENCE)
def test_events_have_the_states_of_the_original(state: int) -> None:
    assert {state_of(kind) for kind in REFERENCE[state]} == {state}


#: Events for which the original has no state of its own, or no event.
WITHOUT_STATE = {
    EventKind.SETTINGS_CHANGE,
    EventKind.FORGET_BROKER,
    EventKind.SET_FREEZE,
    EventKind.ALLOCATE_PRODUCER_IDS,
    EventKind.ALTER_CONFIGS,
    EventKind.ALTER_SCRAM_CREDENTIALS,
    EventKind.DESCRIBE_CONFIGS,
    EventKind.DESCRIBE_FEATURES,
    EventKind.SET_DRAIN,
    EventKind.STATE_DIFFERENCE,
    EventKind.STORED_STATES,
    EventKind.SET_PAUSE,
    EventKind.SET_MAINTENANCE,
    EventKind.MAINTENANCE_CHECK,
    EventKind.CANCEL_SHUTDOWN,
    EventKind.APPROVE_STOP,
    EventKind.WITHDRAW_STOP_APPROVAL,
}


def test_an_event_is_idle_only_where_that_is_decided() -> None:
    assert state_of(None) == IDLE
    assert {kind for kind in EventKind if state_of(kind) == IDLE} == WITHOUT_STATE


def test_the_migration_state_is_kafka_s_of_a_cluster_that_keeps_to_zookeeper() -> None:
    """``ZkMigrationState.ZK``; 3 would be a migration that is finalized: to KRaft."""
    assert ZOOKEEPER == 4


def test_every_state_is_one_of_the_originals() -> None:
    assert {state_of(kind) for kind in EventKind} <= set(range(18))


def test_a_gauge_has_all_its_rows_each_with_its_own_labels() -> None:
    registry = CollectorRegistry()
    rows = [("g", "text", {"setting": s, "file": f}, v) for s, f, v in (("a", "x", 1.0), ("b", "y", 2.0))]
    GaugeSource(lambda: rows, registry)
    assert [registry.get_sample_value("g", labels) for _, _, labels, _ in rows] == [1.0, 2.0]


QUICK = ["0.0005", "0.001", "0.0025", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0",
         "10.0", "30.0"]  # fmt: skip
#: Dashboards and alerts ask for these.
BUCKETS = {
    "kafka_server_zookeeperclientmetrics_zookeeperrequestlatency_seconds": QUICK,
    "partition_controller_event_loop_lag_seconds": QUICK,
    "kafka_controller_controllerstats_rateandtime_seconds": QUICK,
    "kafka_controller_controllereventmanager_eventqueuetime_seconds": QUICK,
    "partition_controller_leaderless_seconds": [
        "0.1", "0.5", "1.0", "2.0", "5.0", "10.0", "20.0", "30.0", "60.0", "120.0", "300.0", "900.0", "3600.0",
    ],
}  # fmt: skip


def test_times_are_told_in_these_steps() -> None:
    metrics = ControllerMetrics(CollectorRegistry())
    metrics.event_seconds.labels("x").observe(1)
    found = {
        family.name: [s.labels["le"] for s in family.samples if "le" in s.labels]
        for family in metrics.registry.collect()
        if family.type == "histogram"
    }
    assert {name: found[name] for name in BUCKETS} == {
        name: [*steps, "+Inf"] for name, steps in BUCKETS.items()
    }


def test_names_and_labels_are_those_of_the_documented_table() -> None:
    rows = re.findall(
        r"^\| `(\w+?)(?:_total)?(?:{(\w+)})?` \| (.*) \|$", (DOCS / "operations.md").read_text(), re.M
    )
    documented = {name: {label, *re.findall(r"`(\w+)`", text)} for name, label, text in rows}
    metrics = ControllerMetrics(CollectorRegistry())
    #: The names of an instrument's labels are told nowhere but here.
    made: Any = metrics.registry._collector_to_names
    for each in made:
        assert set(each._labelnames) <= documented[each._name], each._name


def test_connection_changes_are_counted_by_their_name() -> None:
    registry = CollectorRegistry()
    metrics = ZooKeeperMetrics(registry)
    for name in ("expired", "suspended", "expired"):
        metrics.state(name)
    name = "kafka_server_sessionexpirelistener_zookeeper_transitions_total"
    assert [registry.get_sample_value(name, {"state": s}) for s in ("expired", "suspended")] == [2, 1]
