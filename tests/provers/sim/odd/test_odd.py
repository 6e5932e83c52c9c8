"""What is odd is asked, and what is said to it is judged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2 as codes
from tests.provers.sim.checks.refusals import NOBODY, REFUSED, Refusals
from tests.provers.sim.odd.asking import DONE, INVALID, Case, findings
from tests.provers.sim.odd.scenarios import SCENARIOS
from tests.provers.sim.plans import plan as plans
from tests.provers.sim.plans.plan import Action, Plan, plan
from tests.provers.sim.simulate import simulate
from tests.provers.sim.zookeeper.tree import (
    Change,
    DataSet,
    NodeCreated,
    NodeDeleted,
    Transaction,
    VersionChecked,
)

#: Requests of all scenarios together, where all are answered.
REQUESTS_MIN = 120


def _quiet(seed: int) -> Plan:
    """Every scenario once, one after the other, and nothing that goes wrong."""
    known = plan(seed)
    options = replace(
        known.options,
        controllers=2,
        brokers=3,
        zookeepers=1,
        initial=((2, 2), (1, 3)),
        duration_s=16.0,
        members=1,
        old_brokers=0,
        lost=0.0,
        twice=0.0,
        slow=0.0,
        faults=(),
        operations=(),
        takeover=False,
        poison=False,
        oversized=False,
        handovers=0,
        interruptions=0,
    )
    actions = [Action(3.0 + 0.5 * number, "odd", (name, seed)) for number, name in enumerate(SCENARIOS)]
    return Plan(seed, options, tuple(actions))


def test_every_scenario_can_be_drawn() -> None:
    assert {*plans.SCENARIOS, *plans.OF_GROUPS, *plans.OF_KAFKA} == SCENARIOS.keys()
    drawn = {a.arguments[0] for seed in range(400) for a in plan(seed).actions if a.kind == "odd"}
    assert drawn == SCENARIOS.keys()


@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_odd_is_answered_as_it_has_to_be(seed: int) -> None:
    outcome = simulate(_quiet(seed))
    assert not outcome.violations, outcome.violations[0]
    assert outcome.figures["odd requests"] > REQUESTS_MIN, outcome.figures


def _answer(*parts: tuple[int, str], whole: int = codes.NONE) -> pb.CreateTopicsResponse:
    return pb.CreateTopicsResponse(
        error_code=whole,  # type: ignore[arg-type]
        topics=[pb.CreatedTopic(error_code=code, error_message=why) for code, why in parts],  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (_answer((codes.NONE, ""), (codes.INVALID_REQUEST, "why")), []),
        (_answer(whole=codes.NOT_CONTROLLER), []),
        (_answer((codes.NONE, ""), (codes.NOT_CONTROLLER, "it went")), []),
        (_answer(whole=codes.INVALID_REQUEST), ["got INVALID_REQUEST, not NONE"]),
        (
            _answer((codes.NONE, ""), (codes.NONE, "")),
            ["got NONE for part 1, not INVALID_REQUEST"],
        ),
        (
            _answer((codes.NONE, ""), (codes.INVALID_REQUEST, "")),
            ["got INVALID_REQUEST for part 1, and not why"],
        ),
        (_answer((codes.NONE, "")), ["got 1 results, not 2"]),
    ],
)
def test_an_answer_is_judged(answer: pb.CreateTopicsResponse, said: list[str]) -> None:
    case = Case("CreateTopics", pb.CreateTopicsRequest(), [DONE, INVALID])
    assert list(findings(case, answer)) == said


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (NodeCreated(f"/brokers/topics/{REFUSED}-1", b"{}", 31, 0, 1), True),
        (DataSet("/brokers/topics/t0", b'{"partitions":{"0":[%d]}}' % NOBODY, 2), True),
        (DataSet("/config/topics/t0", f'{{"retention.ms":"{REFUSED}"}}'.encode(), 2), True),
        (DataSet("/brokers/topics/t0", b'{"partitions":{"0":[1]}}', 2), False),
        (NodeDeleted(f"/brokers/topics/{REFUSED}-1"), False),
        (VersionChecked("/controller_epoch"), False),
    ],
)
def test_what_bears_the_mark_is_not_written(change: Change, *, wrong: bool) -> None:
    found: list[str] = []
    Refusals(found.append).agreed(Transaction(1, 0, (change,)), "controller-1")
    assert bool(found) == wrong
