"""``pctl cluster`` and ``pctl controllers``: what is counted, and who has taken over."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from controller.cli.common.options import Options
from controller.cli.pctl import cluster as verbs
from controller.client import admin
from controller.core.cluster.quarantine import Quarantine, SubjectKind, Suspect
from controller.core.cluster.term_history import TermRecord
from controller.core.effects import Problem
from controller.exit_codes import EXIT_FAILED, EXIT_REFUSED, EXIT_USAGE
from controller.runtime.zookeeper import single_codecs
from controller.runtime.zookeeper.cluster_reader import ClusterState, ControllerInfo, PartitionInfo
from controller.runtime.zookeeper.single_codecs import Resignation
from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2, maintenance_pb2
from tests.support.cli.verbs import Asked, refused, typed
from tests.support.core.world import a_broker, state

NOBODY: Any = None
BY = "--reason r --author ann --yes"
#: 100 leads, 101 and 102 stand by.
OURS = [ControllerInfo(n, f"c{n}:1", "", n == 100) for n in (100, 101, 102)]


def led_by(controller_id: int, epoch: int, **changes: Any) -> ClusterState:
    """By one of ours; by a broker of Kafka's if it has no endpoint."""
    return ClusterState(controller_id, f"c{controller_id}:1", epoch, **{"controllers": OURS, **changes})


KAFKA = replace(led_by(3, 7), controller_endpoint="")


def test_partitions_are_counted_by_what_is_wrong_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is being deleted nothing is wrong. A leader that is gone is none."""
    partitions = [
        PartitionInfo("t", 0, (1, 2, 3), state(1, (1, 2, 3), 1, 1)),
        PartitionInfo("t", 1, (1, 2, 3), state(2, (2, 1), 1, 1)),
        PartitionInfo("t", 2, (1, 2, 3), state(1, (1,), 1, 1)),
        PartitionInfo("t", 3, (1, 2, 3), state(-1, (1,), 1, 1)),
        PartitionInfo("t", 4, (1, 2, 9), None),
        PartitionInfo("t", 5, (1, 2, 9), state(9, (1, 2, 9), 1, 1)),
        PartitionInfo("u", 0, (1, 2, 3), state(-1, (1,), 1, 1)),
    ]
    known = ClusterState(
        100,
        "",
        7,
        brokers={b: a_broker(b, b) for b in (1, 2, 3)},
        partitions=partitions,
        deleting=["u"],
        configs={"t": {"min.insync.replicas": "2"}},
    )
    Asked(known).install(monkeypatch)
    found = json.loads(typed("cluster").stdout)
    assert {name: found[name] for name in found if name.endswith("partitions")} == {
        "partitions": 7,
        "unavailable_partitions": 3,
        "under_replicated_partitions": 4,
        "under_min_isr_partitions": 2,
        "at_min_isr_partitions": 1,
    }
    assert (found["not_on_preferred_leader"], found["brokers"], found["brokers_gone"]) == (1, 3, [9])
    assert ["brokers", "3", "of", "4"] in [
        line.split() for line in typed("cluster", "table").stdout.splitlines()
    ]


def test_terms_last_until_their_end_or_until_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long nobody led is unknown after a term that ended without a word, or that nobody recorded."""
    terms = (
        TermRecord(100, 5, 10_000, 20_000, why="resigned"),
        TermRecord(101, 6, 20_500, 30_000, why="?", end_unknown=True),
        TermRecord(100, 7, 31_000, 35_000, why="resigned"),
        TermRecord(100, 9, 37_000),
    )

    async def read(*_: Any) -> Any:
        return [SimpleNamespace(value=terms)]

    monkeypatch.setattr(single_codecs, "read_nodes", read)
    monkeypatch.setattr(verbs, "time", SimpleNamespace(time=lambda: 40.0))
    Asked(led_by(100, 9)).install(monkeypatch)
    found = json.loads(typed("controllers history").stdout)
    assert [(r["seconds"], r["vacant_before_s"], r["until"], r["why"]) for r in found] == [
        (10.0, None, "1970-01-01T00:00:20.000Z", "resigned"),
        (None, 0.5, "1970-01-01T00:00:30.000Z", "?"),
        (4.0, None, "1970-01-01T00:00:35.000Z", "resigned"),
        (3.0, None, None, "it leads"),
    ]


def test_a_history_of_terms_that_cannot_be_read_is_not_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    async def read(*_: Any) -> Any:
        return [Problem("/controller_terms", "no JSON")]

    monkeypatch.setattr(single_codecs, "read_nodes", read)
    Asked(led_by(100, 9)).install(monkeypatch)
    shown = typed("controllers history")
    assert (shown.exit_code, "/controller_terms: no JSON" in shown.stderr) == (EXIT_FAILED, True)


@pytest.mark.parametrize(
    ("behind", "told"), [(0, "warm: 5 states"), (3, "warm: 5 states, 3 behind for 1.2 s")]
)
async def test_a_standby_that_lags_says_so(behind: int, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def describe(*_: Any) -> pb.DescribeClusterResponse:
        standby = pb.StandbyDescription(warmth="warm", states=5, behind=behind, behind_s=1.2)
        return pb.DescribeClusterResponse(error_code=code, standby=standby)

    monkeypatch.setattr(admin, "describe_cluster", describe)
    code = common_pb2.NOT_CONTROLLER
    assert await verbs._memory(Options("", "json", 1.0), OURS[1]) == told
    code = common_pb2.CLUSTER_AUTHORIZATION_FAILED
    assert await verbs._memory(Options("", "json", 1.0), OURS[1]) == "it does not say"
    assert await verbs._memory(Options("", "json", 1.0), OURS[0]) == "", "who leads stands by for nobody"


def test_a_broker_of_kafka_is_not_asked_to_resign(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(KAFKA).install(monkeypatch, verbs)
    assert typed(f"controllers resign {BY}").exit_code == EXIT_REFUSED
    assert asked.requests == []


@pytest.mark.parametrize(
    ("now", "code", "told"),
    [
        (led_by(101, 8), 0, "controller 101 is the controller, epoch 8"),
        (led_by(102, 8), EXIT_FAILED, "controller 102 took over instead: 101 was not elected in time"),
    ],
)
def test_who_was_to_take_over_is_who_has(
    now: ClusterState,
    code: int,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = led_by(100, 7)
    asked = Asked(before, before, before, now, ResignController=maintenance_pb2.OperatorResponse())
    asked.install(monkeypatch, verbs)
    monkeypatch.setattr(verbs, "_LOOK_S", 0)
    shown = typed(f"controllers move 101 {BY}")
    assert (shown.exit_code, told in shown.stderr) == (code, True)
    ((_, request),) = asked.requests
    assert (request.successor, request.reason, request.author) == (101, "r", "ann")


def test_who_is_no_candidate_cannot_take_over(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(led_by(100, 7)).install(monkeypatch, verbs)
    shown = typed(f"controllers move 7 {BY}")
    assert (shown.exit_code, asked.methods) == (EXIT_REFUSED, [])
    assert "controller 7 is no candidate: there are [100, 101, 102]" in shown.stderr


@pytest.mark.parametrize(
    ("now", "code", "told"),
    [
        (replace(led_by(3, 8), controller_endpoint=""), 0, "broker 3 is the controller, epoch 8"),
        (led_by(100, 7), EXIT_FAILED, "accepted, but nobody has taken over within 9 s"),
    ],
)
def test_who_has_taken_over_is_said_or_that_nobody_has(
    now: ClusterState, code: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = itertools.count()
    monkeypatch.setattr(verbs, "time", SimpleNamespace(monotonic=lambda: next(now_s)))
    monkeypatch.setattr(verbs, "_LOOK_S", 0)
    asked = Asked(led_by(100, 7), now, ResignController=maintenance_pb2.OperatorResponse())
    asked.install(monkeypatch, verbs)
    shown = typed(f"--timeout 9 controllers resign --to-kafka {BY}")
    assert (shown.exit_code, told in shown.stderr) == (code, True)
    assert [request.to_kafka for request in asked.of("ResignController")] == [True]


@pytest.mark.parametrize("verb", ["resign", "resign --to-kafka", "move 101"])
def test_control_stays_where_it_is_unless_somebody_agrees(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(led_by(100, 7)).install(monkeypatch, verbs)
    shown = typed(f"controllers {verb} --reason r --author ann")
    assert (shown.exit_code, asked.methods) == (EXIT_USAGE, [])


def test_who_leads_need_not_take_over_unless_it_is_a_broker_of_the_same_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Asked(led_by(100, 7)).install(monkeypatch, verbs)
    assert typed(f"controllers move 100 {BY}").exit_code == 0
    assert asked.requests == []
    broker = replace(led_by(100, 7), controller_endpoint="")
    asked = Asked(broker, ResignController=refused("ResignController", "INVALID_REQUEST"))
    asked.install(monkeypatch, verbs)
    assert typed(f"controllers move 100 {BY}").exit_code == EXIT_FAILED
    assert asked.methods == ["ResignController"]


async def test_nobody_has_taken_over_before_the_epoch_has_risen_and_somebody_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The former controller may be seen for a while, and nobody between two."""
    before, nobody, after = led_by(100, 7), led_by(-1, 8), led_by(101, 8)
    # A look reads the controller first, and its epoch after that.
    looks = [before, before, nobody, nobody, led_by(100, 8), after]
    asked = Asked(*looks).install(monkeypatch)
    monkeypatch.setattr(verbs, "_LOOK_S", 0)
    assert await verbs._follow(Options("", "json", 1.0), NOBODY, before) == 101
    assert asked.looks == [after]


def test_control_is_claimed_by_whoever_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([admin.NoAnswerError("c100:1 is away"), maintenance_pb2.OperatorResponse()])
    asked = Asked(KAFKA, led_by(101, 8), ClaimController=lambda _: next(answers)).install(monkeypatch)
    assert typed("controllers claim --yes").exit_code == 0
    assert asked.endpoints == ["c100:1", "c101:1"]


@pytest.mark.parametrize("handed_back", [False, True])
def test_who_leads_claims_only_what_was_handed_back(
    handed_back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An election may be won just before the hand-over is asked for, which holds from the next one on."""
    given = Resignation("r", "ann", 1) if handed_back else None
    asked = Asked(
        led_by(100, 7, resignation=given), led_by(100, 8), ClaimController=maintenance_pb2.OperatorResponse()
    ).install(monkeypatch)
    assert typed("controllers claim --yes").exit_code == 0
    assert asked.methods == ["ClaimController"] * handed_back


def test_what_raised_is_listed_by_name_from_zookeeper_where_nobody_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which may be why somebody asks."""
    suspects = {
        f"topic:{name}": Suspect(
            SubjectKind.TOPIC, name, "e", "KeyError", "d", 100, 7, 1_000, quarantined=held
        )
        for name, held in (("u", True), ("t", False))
    }
    away = admin.NoAnswerError("nobody leads")
    Asked(ClusterState(quarantine=Quarantine(suspects)), ListQuarantine=away).install(monkeypatch, verbs)
    rows = json.loads(typed("quarantine list").stdout)
    assert [(row["name"], row["state"]) for row in rows] == [("topic:t", "suspect"), ("topic:u", "left out")]
    assert (rows[0]["controller"], rows[0]["epoch"], rows[0]["last"]) == (100, 7, "1970-01-01T00:00:01.000Z")


@pytest.mark.parametrize("refuses", [False, True])
def test_what_is_not_released_is_not_said_to_be(refuses: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = refused("ReleaseQuarantine", "INVALID_REQUEST", "there is none")
    Asked(ReleaseQuarantine=answer if refuses else maintenance_pb2.OperatorResponse()).install(
        monkeypatch, verbs
    )
    shown = typed(f"quarantine release topic/t {BY}")
    assert shown.exit_code == (EXIT_FAILED if refuses else 0)
    assert ("released topic/t" in shown.stderr, "there is none" in shown.stderr) == (not refuses, refuses)


@pytest.mark.parametrize(
    ("error", "code"), [("OPERATION_NOT_ATTEMPTED", EXIT_REFUSED), ("INVALID_REQUEST", EXIT_FAILED)]
)
def test_what_is_refused_for_safety_is_no_failure(
    error: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(led_by(100, 7), ResignController=refused("ResignController", error))
    asked.install(monkeypatch, verbs)
    assert typed(f"controllers resign --to-kafka {BY}").exit_code == code


def test_candidates_are_listed_with_what_each_is_ready_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who leads is not asked; and who does not answer is listed all the same."""
    asked: list[str] = []

    async def describe(endpoint: str, *_: Any) -> pb.DescribeClusterResponse | str:
        asked.append(endpoint)
        if endpoint == "c102:1":
            return "away"
        return pb.DescribeClusterResponse(error_code=common_pb2.NOT_CONTROLLER)

    monkeypatch.setattr(admin, "describe_cluster", describe)
    given = Resignation("upgrade", "ann", 1)
    Asked(led_by(100, 7, resignation=given)).install(monkeypatch)
    shown = typed("controllers")
    rows = [(row["controller"], row["role"], row["memory"]) for row in json.loads(shown.stdout)]
    assert rows == [
        (100, "active", ""),
        (101, "standby", "off"),
        (102, "standby", "it does not answer"),
    ]
    assert asked == ["c101:1", "c102:1"]
    assert "handed back to Kafka's brokers by ann: upgrade" in shown.stderr


@pytest.mark.parametrize("unguarded", [False, True])
def test_who_leads_tells_who_refuses_and_who_may(unguarded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def describe(*_: Any) -> pb.DescribeClusterResponse | str:
        return answer

    brokers = [pb.BrokerDescription(broker_id=b, pending_pushes=b, refuses_pushes=b == 2) for b in (1, 2, 3)]
    answer: pb.DescribeClusterResponse | str = pb.DescribeClusterResponse(
        brokers=brokers, unguarded=unguarded
    )
    monkeypatch.setattr(admin, "describe_cluster", describe)
    Asked(led_by(100, 7)).install(monkeypatch)
    told = json.loads(typed("cluster").stdout)
    assert (told["controller_answers"], told["pending_pushes"], told["brokers_refusing_pushes"]) == (
        "yes",
        6,
        [2],
    )
    assert ("access" in told) is unguarded
    assert told["candidates"] == [100, 101, 102]
    for silent in ("away", pb.DescribeClusterResponse(error_code=common_pb2.NOT_CONTROLLER)):
        answer = silent
        told = json.loads(typed("cluster").stdout)
        assert (told["controller_answers"][:4], "pending_pushes" in told) == ("no (", False)


def test_without_a_candidate_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(replace(KAFKA, controllers=[])).install(monkeypatch)
    assert (typed("controllers claim --yes").exit_code, asked.requests) == (EXIT_REFUSED, [])
