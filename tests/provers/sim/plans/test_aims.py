"""Faults that wait for their moment."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.provers.sim.environment.loop import VirtualTimeLoop
from tests.provers.sim.plans.aims import Aims
from tests.provers.sim.plans.plan import BY_BROKER, BY_CONTROLLER, BY_NODE, FAULTS, MOMENTS, plan
from tests.provers.sim.simulate import simulate
from tests.provers.sim.zookeeper.tree import DataSet, NodeCreated, NodeDeleted, SessionEnded


class AimsHarness:
    def __init__(self) -> None:
        self.loop = VirtualTimeLoop()
        self.begun: list[tuple[float, str, tuple[Any, ...]]] = []
        self.aims = Aims(self.loop, lambda *what: self.begun.append((self.loop.time() - self.start, *what)))
        self.start = self.loop.time()

    def pass_time(self) -> list[tuple[float, str, tuple[Any, ...]]]:
        self.loop.call_later(1.0, self.loop.stop)
        self.loop.run_forever()
        return self.begun


@pytest.fixture
def harness() -> Any:
    made = AimsHarness()
    yield made
    made.loop.close()


def test_it_strikes_once_after_the_named_count_and_delay(harness: AimsHarness) -> None:
    harness.aims.take("takes Fetch", 2, 0.25, "", "depose", ())
    for _ in range(4):
        harness.aims.taken("broker-1", "broker-2", "Fetch")
    harness.aims.sent("broker-1", "broker-2", "Fetch")
    assert harness.pass_time() == [(0.25, "depose", ())]


@pytest.mark.parametrize(
    ("fault", "arguments", "at", "begun"),
    [
        ("kill_broker", (3, 0.5), "doer", (1, 0.5)),
        ("kill_broker", (3, 0.5), "other", (3, 0.5)),
        ("pause_controller", (0, 0.5), "other", (2, 0.5)),
        ("pause_controller", (0, 0.5), "doer", (0, 0.5)),
        ("expire", ("broker-3",), "other", ("controller-2",)),
        ("expire", ("broker-3",), "", ("broker-3",)),
        ("stop_zookeeper", (0, 0.5), "doer", (0, 0.5)),
    ],
)
def test_it_strikes_who_does_it_or_whom_it_is_done_to(
    harness: AimsHarness, fault: str, arguments: tuple[Any, ...], at: str, begun: tuple[Any, ...]
) -> None:
    harness.aims.take("sends AlterPartition", 1, 0.0, at, fault, arguments)
    harness.aims.sent("broker-1", "controller-2", "AlterPartition")
    assert harness.pass_time() == [(0.0, fault, begun)]


def test_what_ends_is_forgotten(harness: AimsHarness) -> None:
    harness.aims.take("session ends", 1, 0.0, "", "depose", ())
    harness.aims.forget()
    harness.aims.agreed((SessionEnded(7),), "ensemble", {})
    assert harness.pass_time() == []


@pytest.mark.parametrize(
    ("change", "doer", "moment"),
    [
        (NodeCreated("/controller", b"", 31, 1, 1), "controller-1", "is elected"),
        (NodeCreated("/brokers/ids/3", b"", 31, 1, 1), "broker-3", "registers"),
        (NodeCreated("/brokers/topics/t/partitions/0/state", b"", 31, 0, 1), "controller-1", "creates state"),
        (DataSet("/brokers/topics/t/partitions/0/state", b"", 1), "controller-1", "changes state"),
        (DataSet("/brokers/topics/t/partitions/0/state", b"", 1), "broker-1", "changes ISR"),
        (DataSet("/brokers/topics/t", b"", 1), "controller-1", "changes topic"),
        (NodeDeleted("/admin/delete_topics/t"), "controller-1", "deletes"),
        (SessionEnded(7), "broker-7", "session ends"),
    ],
)
def test_moments_of_transactions(harness: AimsHarness, change: Any, doer: str, moment: str) -> None:
    for known in MOMENTS:
        harness.aims.take(known, 1, 0.0, "doer", "expire", (known,))
    writer = "ensemble" if isinstance(change, SessionEnded) else doer
    harness.aims.agreed((change,), writer, {7: "broker-7"})
    assert harness.pass_time() == [(0.0, "expire", (doer,))]
    assert moment not in [aim.moment for aim in harness.aims._aims]


def test_every_fault_knows_whom_it_can_be_about() -> None:
    assert {*BY_BROKER, *BY_CONTROLLER, *BY_NODE} <= FAULTS.keys()
    assert {name for name in FAULTS if name.endswith("_broker")} <= set(BY_BROKER)
    assert {name for name in FAULTS if name.endswith("_controller")} == set(BY_CONTROLLER)
    chosen = plan(1).options
    drawn = {name: arguments(Random(1), chosen) for name, arguments in FAULTS.items()}
    assert {name for name, found in drawn.items() if found and isinstance(found[0], str)} == set(BY_NODE)


@pytest.mark.slow
def test_in_runs_they_strike() -> None:
    stories = (simulate(plan(seed), telling=True).story for seed in range(1, 41))
    assert any("--- now: " in line for story in stories for line in story)
