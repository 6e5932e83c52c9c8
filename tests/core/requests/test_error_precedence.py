"""Requests that break two rules at once, or more: which error is the answer (reference, sections 6 to 8, and Kafka's).

CreateTopics, CreatePartitions and DeleteTopics have theirs in ``test_create_topics`` and ``test_deletion_cases``.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import msgspec
import pytest

from controller.core.cluster.producer_ids import LAST_ID, ProducerIdBlock
from controller.core.config_keys import UNCLEAN
from controller.core.handlers import not_controller
from controller.core.model import FeatureRange
from controller.core.requests.api import ControllerRequest
from controller.core.requests.brokers import AllocateProducerIds, AlterPartition, ControlledShutdown, Proposal
from controller.core.requests.configs import (
    AlterConfigs,
    ConfigAlteration,
    ConfigChange,
    ConfigResource,
    ConfigScope,
    DescribeConfigs,
)
from controller.core.requests.elections import ElectionType, ElectLeaders
from controller.core.requests.features import FeatureUpdate, UpdateFeatures, UpgradeType
from controller.core.requests.operator import (
    AUTHOR_MAX,
    REASON_MAX,
    ApproveStop,
    CancelShutdown,
    SetDrain,
    SetMaintenance,
    SetPause,
    WithdrawStopApproval,
)
from controller.core.requests.reassignment import AlterPartitionReassignments, PartitionReassignment
from controller.core.znode_paths import PRODUCER_IDS
from tests.support.core.harness import Fate, MachineHarness
from tests.support.core.world import World, state

TOPIC, BROKER = ConfigScope.TOPIC, ConfigScope.BROKER


@pytest.fixture
def rig() -> MachineHarness:
    """Topic t: 0 on [1, 2] led by 1, 1 on [3, 1] led by 1 with 3 lagging, 2 never initialised (its broker 8 never was).
    Topic going: the same 0, waiting for broker 3 to be deleted. Broker 2 is leaving; 3 was, and is back out of sync."""
    world = World(1, 2, 3)
    world.create_topic("t", {0: [1, 2], 1: [3, 1], 2: [8]})
    world.create_topic("going", {0: [1, 2], 1: [3, 1], 2: [8]})
    for name in ("t", "going"):
        world.put_state(name, 0, state(1, [1, 2], 5, 7))
        world.put_state(name, 1, state(1, [1], 5, 7))
    world.brokers[1] = msgspec.structs.replace(world.brokers[1], features=(FeatureRange("f", 1, 3),))
    made = MachineHarness.active(world)
    made.stop_error = lambda *_: "UNKNOWN_SERVER_ERROR"
    world.mark_for_deletion("going")
    made.ask(ControlledShutdown(2, None))
    made.run()
    assert made.cluster.topics_deletion_started == {"going"}
    made.forget()
    return made


def epoch(rig: MachineHarness, broker_id: int = 1) -> int:
    return rig.world.brokers[broker_id].epoch


def errors(reply: Any) -> list[str]:
    """The top-level error, or those of the parts."""
    for parts in ("partitions", "resources", "results"):
        if reply.error.name == "NONE" and hasattr(reply, parts):
            return [part.error.name for part in getattr(reply, parts)]
    return [reply.error.name]


Case = tuple[Callable[[MachineHarness], Any], list[str]]


def check(rig: MachineHarness, case: Case) -> None:
    """The answer; and that nothing was written but what was asked rightly."""
    make, expected = case
    before = dict(rig.world.states), dict(rig.world.topics), dict(rig.world.nodes)
    (reply,) = rig.ask(make(rig))
    assert errors(reply) == expected
    assert (rig.world.states, rig.world.topics, rig.world.nodes) == before
    # Repetitions of what is so already, and elections that are not needed, are no refusals.
    assert rig.rejects() or set(expected) <= {"NONE", "ELECTION_NOT_NEEDED"}


# --- brokers' requests -------------------------------------------------------------------------------------


BROKERS_OWN: dict[str, Case] = {
    "shutdown: unknown before stale": (lambda _: ControlledShutdown(9, 0), ["BROKER_NOT_AVAILABLE"]),
    "shutdown: unknown, epoch not given": (lambda _: ControlledShutdown(9, None), ["BROKER_NOT_AVAILABLE"]),
    "shutdown: epoch -1": (lambda _: ControlledShutdown(2, -1), ["STALE_BROKER_EPOCH"]),
    "shutdown: stale, and leaving already": (lambda _: ControlledShutdown(2, 0), ["STALE_BROKER_EPOCH"]),
    "ids: unknown before stale": (lambda _: AllocateProducerIds(9, 0), ["BROKER_ID_NOT_REGISTERED"]),
    "ids: newer is stale, too": (
        lambda rig: AllocateProducerIds(1, epoch(rig) + 1),
        ["STALE_BROKER_EPOCH"],
    ),
}


@pytest.mark.parametrize("case", BROKERS_OWN.values(), ids=BROKERS_OWN)
def test_requests_of_brokers(rig: MachineHarness, case: Case) -> None:
    check(rig, case)


def test_a_stale_broker_is_told_so_though_no_producer_ids_are_left(rig: MachineHarness) -> None:
    rig.world.put_node(PRODUCER_IDS, ProducerIdBlock(1, LAST_ID - 999, LAST_ID))
    check(rig, (lambda _: AllocateProducerIds(1, 0), ["STALE_BROKER_EPOCH"]))
    check(rig, (lambda rig: AllocateProducerIds(1, epoch(rig)), ["UNKNOWN_SERVER_ERROR"]))


def proposal(**changes: Any) -> Proposal:
    """A valid one of broker 1 for t-1, with faults."""
    valid = Proposal("t", "", 1, 5, (1,), 0, 7)
    return msgspec.structs.replace(valid, **changes)


#: Faults by the row of section 8.4's table that they break.
NEWER, FENCED = {"partition_epoch": 8}, {"leader_epoch": 4}
OLD = {"partition_epoch": 6}
INVALID = {"recovery": 1}
INELIGIBLE = {"new_isr": (1, 2)}
PROPOSALS: dict[str, tuple[dict[str, Any], str]] = {
    "1 id, 2 newer": ({"topic_id": "another", **NEWER}, "UNKNOWN_TOPIC_ID"),
    "1 id, no such partition": ({"topic_id": "another", "partition": 7}, "UNKNOWN_TOPIC_ID"),
    "1 no leadership, 2 newer": ({"partition": 2, **NEWER}, "UNKNOWN_TOPIC_OR_PARTITION"),
    "1 unknown, 3 fenced": ({"topic": "x", **FENCED}, "UNKNOWN_TOPIC_OR_PARTITION"),
    "2 newer, 3 fenced": ({**NEWER, **FENCED}, "NOT_CONTROLLER"),
    "2 newer leader epoch, 5 old": ({"leader_epoch": 6, **OLD}, "NOT_CONTROLLER"),
    "2 newer, 4 a repetition": (NEWER, "NOT_CONTROLLER"),
    "2 newer, 6 invalid": ({**NEWER, **INVALID}, "NOT_CONTROLLER"),
    "3 fenced, 4 a repetition": (FENCED, "FENCED_LEADER_EPOCH"),
    "3 fenced, 5 old": ({**FENCED, **OLD}, "FENCED_LEADER_EPOCH"),
    "3 fenced, 6 invalid": ({**FENCED, **INVALID}, "FENCED_LEADER_EPOCH"),
    "4 a repetition, 5 old": (OLD, "NONE"),
    "5 old, 6 invalid": ({**OLD, **INVALID}, "INVALID_UPDATE_VERSION"),
    "5 old, 7 ineligible": ({**OLD, **INELIGIBLE}, "INVALID_UPDATE_VERSION"),
    "6 invalid, 7 ineligible": ({**INVALID, **INELIGIBLE}, "INVALID_REQUEST"),
}


@pytest.mark.parametrize(("faults", "error"), PROPOSALS.values(), ids=PROPOSALS)
def test_proposals_of_leaders(rig: MachineHarness, faults: dict[str, Any], error: str) -> None:
    check(rig, (lambda rig: AlterPartition(1, epoch(rig), [proposal(**faults)]), [error]))


def test_a_stale_sender_is_not_told_about_partitions(rig: MachineHarness) -> None:
    asked = [proposal(topic="x"), proposal(**NEWER)]
    check(rig, (lambda rig: AlterPartition(1, epoch(rig) + 1, asked), ["STALE_BROKER_EPOCH"]))
    check(rig, (lambda _: AlterPartition(9, 0, asked), ["STALE_BROKER_EPOCH"]))


@pytest.mark.parametrize(
    ("given", "error"), [(True, "INELIGIBLE_REPLICA"), (False, "OPERATION_NOT_ATTEMPTED")]
)
@pytest.mark.parametrize("leaving", [True, False])
def test_7_ineligible_before_8_a_conflict(
    rig: MachineHarness, leaving: bool, given: bool, error: str
) -> None:
    """Whoever else wrote is only found by writing."""
    if leaving:
        rig.ask(ControlledShutdown(3, None))
    rig.world.shrink_or_grow("t", 1, [1])
    rig.forget()
    joining = proposal(topic_id=rig.world.topics["t"].topic_id if given else "", new_isr=(1, 3))
    expected = error if leaving else "INVALID_UPDATE_VERSION"
    check(rig, (lambda rig: AlterPartition(1, epoch(rig), [joining]), [expected]))


# --- operators' requests -----------------------------------------------------------------------------------


def reassignments(*asked: tuple[str, int, tuple[int, ...] | None]) -> Callable[[MachineHarness], Any]:
    return lambda _: AlterPartitionReassignments([PartitionReassignment(*each) for each in asked])


def elect(
    kind: ElectionType, *numbers: int, topic: str = "t", leader: int | None = None
) -> Callable[[MachineHarness], Any]:
    return lambda _: ElectLeaders(kind, [(topic, n) for n in numbers], leader)


def alter(scope: ConfigScope, name: str, *changes: tuple[str, str | None]) -> ConfigAlteration:
    return ConfigAlteration(ConfigResource(scope, name), [ConfigChange(*change) for change in changes])


def update(name: str, level: int, upgrade_type: UpgradeType | None) -> Callable[[MachineHarness], Any]:
    return lambda _: UpdateFeatures([FeatureUpdate(name, level, upgrade_type)])


PREFERRED, UNCLEAN_ELECTION, CHOSEN = ElectionType.PREFERRED, ElectionType.UNCLEAN, ElectionType.CHOSEN
BAD = (UNCLEAN, "maybe")
REASSIGNMENTS: dict[str, Case] = {
    "empty, unknown partition": (reassignments(("t", 7, ())), ["INVALID_REPLICA_ASSIGNMENT"]),
    "duplicate, unknown topic": (reassignments(("x", 0, (1, 1))), ["INVALID_REPLICA_ASSIGNMENT"]),
    "negative, topic deleted": (reassignments(("going", 0, (1, -1))), ["INVALID_REPLICA_ASSIGNMENT"]),
    "dead, unknown topic": (reassignments(("x", 0, (1, 9))), ["INVALID_REPLICA_ASSIGNMENT"]),
    "leaving counts as dead, topic deleted": (
        reassignments(("going", 1, (1, 2))),
        ["INVALID_REPLICA_ASSIGNMENT"],
    ),
    "topic deleted, nobody in sync": (reassignments(("going", 1, (3,))), ["UNKNOWN_TOPIC_OR_PARTITION"]),
    "cancel: unknown, nothing to cancel": (reassignments(("t", 7, None)), ["UNKNOWN_TOPIC_OR_PARTITION"]),
    "cancel: topic deleted, nothing to cancel": (
        reassignments(("going", 0, None)),
        ["UNKNOWN_TOPIC_OR_PARTITION"],
    ),
    "cancel: nothing to cancel, never led": (reassignments(("t", 2, None)), ["NO_REASSIGNMENT_IN_PROGRESS"]),
    "dead, nobody in sync": (reassignments(("t", 1, (9,))), ["INVALID_REPLICA_ASSIGNMENT"]),
    "twice: the second, whatever else": (
        reassignments(("x", 0, (1,)), ("x", 0, ())),
        ["UNKNOWN_TOPIC_OR_PARTITION", "INVALID_REQUEST"],
    ),
}
ELECTIONS: dict[str, Case] = {
    "no such partition, topic deleted": (elect(PREFERRED, 7, topic="going"), ["UNKNOWN_TOPIC_OR_PARTITION"]),
    "topic deleted, no candidate": (elect(PREFERRED, 1, topic="going"), ["INVALID_TOPIC_EXCEPTION"]),
    "topic deleted, satisfied": (elect(UNCLEAN_ELECTION, 0, topic="going"), ["INVALID_TOPIC_EXCEPTION"]),
    "topic deleted, not a replica": (elect(CHOSEN, 0, topic="going", leader=9), ["INVALID_TOPIC_EXCEPTION"]),
    "no leadership, nobody online": (elect(PREFERRED, 2), ["PREFERRED_LEADER_NOT_AVAILABLE"]),
    "no leadership, not a replica": (elect(CHOSEN, 2, leader=1), ["ELIGIBLE_LEADERS_NOT_AVAILABLE"]),
    "not a replica, not online": (elect(CHOSEN, 0, leader=9), ["INVALID_REQUEST"]),
    "not needed, though another could not": (elect(UNCLEAN_ELECTION, 1), ["ELECTION_NOT_NEEDED"]),
    "nobody named, unknown partition": (elect(CHOSEN, 7), ["INVALID_REQUEST"]),
    "somebody named, topic deleted": (elect(PREFERRED, 0, topic="going", leader=1), ["INVALID_REQUEST"]),
    "everything, nobody named": (lambda _: ElectLeaders(CHOSEN, None), ["INVALID_REQUEST"]),
}
CONFIGS: dict[str, Case] = {
    "name, bad value": (lambda _: AlterConfigs([alter(TOPIC, "a/b", BAD)]), ["INVALID_TOPIC_EXCEPTION"]),
    "unknown, bad value": (lambda _: AlterConfigs([alter(TOPIC, "x", BAD)]), ["UNKNOWN_TOPIC_OR_PARTITION"]),
    "unknown, named twice": (
        lambda _: AlterConfigs([alter(TOPIC, "x", BAD), alter(TOPIC, "x")]),
        ["INVALID_REQUEST", "INVALID_REQUEST"],
    ),
    "no broker id, bad value": (lambda _: AlterConfigs([alter(BROKER, "one", BAD)]), ["INVALID_REQUEST"]),
    "key twice, bad value": (
        lambda _: AlterConfigs([alter(TOPIC, "t", BAD, (UNCLEAN, None))]),
        ["INVALID_REQUEST"],
    ),
    "bad value, only to be judged": (
        lambda _: AlterConfigs([alter(TOPIC, "t", BAD)], validate_only=True),
        ["INVALID_CONFIG"],
    ),
}
FEATURES: dict[str, Case] = {
    "empty name, no such type": (update("", 0, None), ["INVALID_REQUEST"]),
    "no such type, unknown feature": (update("x", 0, None), ["INVALID_REQUEST"]),
    "level 0 by an upgrade, unknown feature": (update("x", 0, UpgradeType.UPGRADE), ["INVALID_REQUEST"]),
    "unknown feature, nothing to take away": (
        update("x", 0, UpgradeType.SAFE_DOWNGRADE),
        ["INVALID_REQUEST"],
    ),
}
NO_REASON = ("", "")
SAFETY: dict[str, Case] = {
    "drain: unsigned, no such broker": (lambda _: SetDrain(9, True, *NO_REASON), ["INVALID_REQUEST"]),
    "drain: too long, no such broker": (
        lambda _: SetDrain(9, True, "x" * (REASON_MAX + 1), "who"),
        ["INVALID_REQUEST"],
    ),
    "drain: no such broker, the last one": (lambda _: SetDrain(9, True, "a", "b"), ["BROKER_NOT_AVAILABLE"]),
    "pause: no author, too long a reason": (
        lambda _: SetPause(True, "x" * (REASON_MAX + 1), ""),
        ["INVALID_REQUEST"],
    ),
    "maintenance: too long an author": (
        lambda _: SetMaintenance(True, "", "x" * (AUTHOR_MAX + 1)),
        ["INVALID_REQUEST"],
    ),
    "stay: no such broker, stale": (lambda _: CancelShutdown(9, 0), ["BROKER_NOT_AVAILABLE"]),
    "stay: stale, not leaving": (lambda _: CancelShutdown(1, 0), ["STALE_BROKER_EPOCH"]),
    "approval: unsigned, no such broker": (
        lambda _: ApproveStop({9: 0}, frozenset(), *NO_REASON, 0),
        ["INVALID_REQUEST"],
    ),
    "approval: no such broker, others counted": (
        lambda _: ApproveStop({9: 0}, frozenset({(1, 1)}), "a", "b", 0),
        ["BROKER_NOT_AVAILABLE"],
    ),
    "approval: stale, others counted": (
        lambda _: ApproveStop({1: 0}, frozenset({(1, 1)}), "a", "b", 0),
        ["STALE_BROKER_EPOCH"],
    ),
    "approval: others counted": (
        lambda rig: ApproveStop({1: epoch(rig)}, frozenset({(1, 1)}), "a", "b", 0),
        ["OPERATION_NOT_ATTEMPTED"],
    ),
    "withdrawal: unsigned, nothing to withdraw": (
        lambda _: WithdrawStopApproval([9], *NO_REASON),
        ["INVALID_REQUEST"],
    ),
}


@pytest.mark.parametrize("case", REASSIGNMENTS.values(), ids=REASSIGNMENTS)
def test_reassignments(rig: MachineHarness, case: Case) -> None:
    check(rig, case)


@pytest.mark.parametrize("case", ELECTIONS.values(), ids=ELECTIONS)
def test_elections(rig: MachineHarness, case: Case) -> None:
    check(rig, case)


@pytest.mark.parametrize("case", CONFIGS.values(), ids=CONFIGS)
def test_configurations(rig: MachineHarness, case: Case) -> None:
    check(rig, case)


def test_questions_about_configurations(rig: MachineHarness) -> None:
    """What is wrong with the name comes before what is wrong with the znode."""
    rig.world.put_node("/config/topics/a/b", {})
    rig.world.put_node("/config/topics/t", {})
    for name in ("a/b", "x", "t"):
        rig.world.damage(f"/config/topics/{name}")
    (reply,) = rig.ask(DescribeConfigs([ConfigResource(TOPIC, name) for name in ("a/b", "x", "t")]))
    assert errors(reply) == ["INVALID_TOPIC_EXCEPTION", "UNKNOWN_TOPIC_OR_PARTITION", "INVALID_CONFIG"]


@pytest.mark.parametrize("case", FEATURES.values(), ids=FEATURES)
def test_features(rig: MachineHarness, case: Case) -> None:
    check(rig, case)


def test_what_is_invalid_about_features_stays_so_where_the_rest_cannot_be_written(
    rig: MachineHarness,
) -> None:
    """Only successes become FEATURE_UPDATE_FAILED."""
    for broker_id in (2, 3):
        supporting = msgspec.structs.replace(
            rig.world.brokers[broker_id], features=(FeatureRange("f", 1, 3),)
        )
        rig.world.brokers[broker_id] = supporting
        rig.cluster.brokers[broker_id] = supporting
    rig.fate = lambda _: Fate.LOST
    updates = [FeatureUpdate("", 1, UpgradeType.UPGRADE), FeatureUpdate("f", 2, UpgradeType.UPGRADE)]
    (reply,) = rig.ask(UpdateFeatures(updates))
    assert errors(reply) == ["INVALID_REQUEST", "FEATURE_UPDATE_FAILED"]


@pytest.mark.parametrize("case", SAFETY.values(), ids=SAFETY)
def test_maintenance_and_approvals(rig: MachineHarness, case: Case) -> None:
    check(rig, case)


def test_the_last_broker_is_not_drained_and_one_that_is_unknown_is_said_to_be_so(rig: MachineHarness) -> None:
    rig.ask(SetDrain(3, True, "a", "b"))
    check(rig, (lambda _: SetDrain(1, True, "a", "b"), ["POLICY_VIOLATION"]))
    check(rig, (lambda _: SetDrain(9, True, "a", "b"), ["BROKER_NOT_AVAILABLE"]))
    check(rig, (lambda _: SetDrain(1, True, "", "b"), ["INVALID_REQUEST"]))


# --- who is asked --------------------------------------------------------------------------------------------


# Sorted: workers may import the modules in different orders.
@pytest.mark.parametrize(
    "request_type",
    sorted(ControllerRequest.__subclasses__(), key=attrgetter("__name__")),
    ids=lambda kind: kind.__name__,
)
def test_a_controller_that_does_not_lead_says_only_that(request_type: type[Any]) -> None:
    """Before it looks at anything in the request."""
    answer = not_controller(object.__new__(request_type))
    expected = "STALE_CONTROLLER_EPOCH" if request_type is ControlledShutdown else "NOT_CONTROLLER"
    assert errors(answer) == [expected]
