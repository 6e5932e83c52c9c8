"""The original's rows about what brokers ask of the controller: AlterPartition and controlled shutdown.

Rows say ``P``, ``L``, ``B`` for the current partition, leader and broker epoch, and leave out what is current.
"""

from __future__ import annotations

from typing import Any

import pytest

from controller.core.context import CoreSettings
from controller.core.model import RECOVERED, RECOVERING, LeaderAndIsr
from controller.core.requests.brokers import AlterPartition, ControlledShutdown, Proposal
from tests.support.core.cases import key_named, rows
from tests.support.core.harness import MachineHarness
from tests.support.core.world import World
from tests.support.reference_rows import Row

ROWS = {p.values[0]["id"]: p.values[0] for p in rows("integration")}


def selected(test: str) -> list[Any]:
    return [pytest.param(row, id=id_) for id_, row in ROWS.items() if row["test"] == test]


def rig_of(given: Row) -> MachineHarness:
    """Brokers, and topics initialised on them."""
    world = World(*given["brokers"])
    unclean = given.get("config", {}).get("unclean_leader_election", False)
    rig = MachineHarness.active(world, settings=CoreSettings(unclean_leader_election_enable=unclean))
    for name, assignment in given.get("topics", {}).items():
        world.create_topic(name, {int(n): ids for n, ids in assignment.items()})
    rig.run()
    return rig


def number(written: Any, letter: str, current: int) -> int:
    """``P-1`` and the like; nothing written is the current one."""
    return current + int(str(written or letter).removeprefix(letter).removeprefix("current") or 0)


def request_of(rig: MachineHarness, asked: Row) -> AlterPartition:
    topic, partition = (
        key_named(asked.get("partition", "t-0")) if "topic" not in asked else ("t", asked["partition"])
    )
    held = rig.partition("t", 0)
    state = held.leadership
    assert state is not None
    isr = asked.get("new_isr", state.isr)
    by_name = (
        asked.get("by") == "name" or asked.get("addressed_by") == "topic_name" or asked.get("version", 2) < 2
    )
    proposal = Proposal(
        topic,
        "" if by_name else held.topic.id,
        partition,
        number(asked.get("leader_epoch"), "L", state.leader_epoch),
        tuple(isr if isinstance(isr, list) else state.isr),
        RECOVERING if asked.get("leader_recovery_state") == "RECOVERING" else RECOVERED,
        number(asked.get("partition_epoch"), "P", state.partition_epoch),
    )
    sender = asked.get("from", state.leader)
    registered = rig.world.brokers.get(sender)
    epoch = registered.epoch if registered else 1
    return AlterPartition(sender, number(asked.get("broker_epoch"), "B", epoch), [proposal])


def check(rig: MachineHarness, answer: Any, then: Row, before: LeaderAndIsr) -> None:
    assert answer.error.name == then["error"]
    if "partition_error" in then:
        (altered,) = answer.partitions
        assert altered.error.name == then["partition_error"]
    if then.get("isr") == "unchanged" or then["error"] != "NONE":
        assert rig.world.states[("t", 0)] == before


@pytest.mark.parametrize("row", selected("testAlterPartitionErrors"))
def test_errors(row: Row) -> None:
    rig = rig_of(row["given"])
    before = rig.world.states[("t", 0)]
    (answer,) = rig.ask(request_of(rig, row["when"]["alter_partition"]))
    check(rig, answer, row["then"], before)


@pytest.mark.parametrize("row", selected("testAlterPartitionErrorsAfterUncleanElection"))
def test_errors_after_an_unclean_election(row: Row) -> None:
    rig = rig_of(row["given"])
    for action in row["given"]["actions_before"]:
        perform(rig, action)
    before = rig.world.states[("t", 0)]
    assert before.recovery == RECOVERING
    (answer,) = rig.ask(request_of(rig, row["when"]["alter_partition"]))
    check(rig, answer, row["then"], before)


def perform(rig: MachineHarness, action: Row) -> None:
    match action["op"]:
        case "create_topic":
            rig.world.create_topic(action["topic"], {int(n): ids for n, ids in action["assignment"].items()})
        case "stop_broker":
            rig.send(ControlledShutdown(action["broker"], None))
            rig.run()
            rig.world.broker_down(action["broker"])
        case "start_broker":
            rig.world.broker_up(action["broker"])
        case "expect_state":
            for name, wanted in action["state"].items():
                stored = rig.world.states[key_named(name)]
                assert (stored.leader, list(stored.isr)) == (wanted["leader"], wanted["isr"])
                recovery = RECOVERING if wanted.get("leader_recovery_state") == "RECOVERING" else RECOVERED
                assert stored.recovery == recovery
    rig.run()


@pytest.mark.parametrize("row", [*selected("testAlterPartition"), *selected("testIdempotentAlterPartition")])
def test_success_and_its_repetition(row: Row) -> None:
    given, asked, then = row["given"], row["when"]["alter_partition"], row["then"]
    rig = rig_of(given)
    before = rig.world.states[("t", 0)]
    request = request_of(rig, {k: v for k, v in asked.items() if v != "p"})
    for _ in range(given.get("sends_before", 0) + 1):
        (answer,) = rig.ask(request)
    assert answer.error.name == then["error"]
    (altered,) = answer.partitions
    wanted = then["response"]
    assert (altered.state.leader, list(altered.state.isr)) == (wanted["leader"], wanted["isr"])
    assert altered.state.leader_epoch == before.leader_epoch
    step = 1 if wanted["partition_epoch"] == "p+1" else 0
    assert altered.state.partition_epoch == before.partition_epoch + step


@pytest.mark.parametrize("row", selected("testShutdownBrokerNotAddedToIsr"))
def test_a_broker_that_left_does_not_join(row: Row) -> None:
    rig = rig_of(row["given"])
    create, stop, alter, start = row["when"]["actions"]
    perform(rig, create)
    perform(rig, stop)
    (answer,) = rig.ask(request_of(rig, alter))
    (altered,) = answer.partitions
    assert altered.error.name == row["then"]["partition_error"]
    assert list(rig.world.states[("t", 0)].isr) == row["then"]["isr_after_request"]
    perform(rig, start)
    rig.ask(request_of(rig, alter))
    assert list(rig.world.states[("t", 0)].isr) == row["then"]["isr_after_restart"]


@pytest.mark.parametrize("row", selected("testControllerRejectControlledShutdownRequestWithStaleBrokerEpoch"))
def test_a_former_incarnation_does_not_shut_down(row: Row) -> None:
    rig = rig_of(row["given"])
    (action,) = row["when"]["actions"]
    epoch = rig.world.brokers[action["broker"]].epoch
    (answer,) = rig.ask(
        ControlledShutdown(action["broker"], number(action["broker_epoch"], "current", epoch))
    )
    assert answer.error.name == row["then"]["error"]
    assert rig.cluster.shutting_down == set()
