"""The numbers of Kafka's gauge ControllerState (reference, section 11.1); gauges with labels."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from controller.core.events import EventKind
from controller.runtime.observe.metrics import IDLE, GaugeSource, state_of

#: The reference's list, of what has an event here.
REFERENCE = {
    1: {EventKind.FAILOVER},
    2: {EventKind.BROKER_CHANGE},
    3: {EventKind.TOPIC_CHANGE, EventKind.PARTITION_MODIFICATIONS},
    4: {EventKind.TOPIC_DELETION, EventKind.STOP_REPLICA_RESPONSE},
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


def test_every_state_is_one_of_the_originals() -> None:
    assert {state_of(kind) for kind in EventKind} <= set(range(18))


def test_a_gauge_has_all_its_rows_each_with_its_own_labels() -> None:
    registry = CollectorRegistry()
    rows = [("g", "text", {"setting": s, "file": f}, v) for s, f, v in (("a", "x", 1.0), ("b", "y", 2.0))]
    GaugeSource(lambda: rows, registry)
    assert [registry.get_sample_value("g", labels) for _, _, labels, _ in rows] == [1.0, 2.0]
