"""``pctl elect``: which partitions are asked for, and what was only tried counts as possible."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.cli.common import attribution
from controller.cli.computed.dry_run import DryRun
from controller.cli.pctl import elect
from controller.core.effects import TopicInfo
from controller.exit_codes import EXIT_REFUSED, EXIT_USAGE
from controller.runtime.zookeeper.cluster_reader import ClusterState, PartitionInfo
from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2
from tests.support.cli.verbs import Asked, typed
from tests.support.core.world import a_broker, state

#: Of each topic that is here: 9 is gone, u is being deleted.
PARTITIONS = [
    PartitionInfo("t", 0, (1, 2), state(1, (1, 2), 1, 1)),
    PartitionInfo("t", 1, (2, 1), state(1, (1, 2), 1, 1)),
    PartitionInfo("t", 2, (1, 2), None),
    PartitionInfo("t", 3, (9, 2), state(9, (9,), 1, 1)),
    PartitionInfo("t", 4, (3, 2), state(-1, (3,), 1, 1)),
    PartitionInfo("u", 0, (2, 1), state(1, (1, 2), 1, 1)),
]
CLUSTER = ClusterState(
    100,
    "c:1",
    7,
    brokers={b: a_broker(b, b) for b in (1, 2, 3)},
    topics={
        name: TopicInfo(
            name, "id", {p.partition: p.replicas for p in PARTITIONS if p.topic == name}, {}, {}, 1, 1
        )
        for name in ("t", "u")
    },
    partitions=PARTITIONS,
    deleting=["u"],
)
NOT_AVAILABLE = common_pb2.PREFERRED_LEADER_NOT_AVAILABLE


def answers(request: Any, refuses: set[str]) -> pb.ElectLeadersResponse:
    made = pb.ElectLeadersResponse()
    for p in request.topic_partitions:
        code = NOT_AVAILABLE if f"{p.topic}-{p.partition}" in refuses else 0
        made.results.add(topic=p.topic, partition=p.partition, error_code=code)
    return made


def install(monkeypatch: pytest.MonkeyPatch, *refuses: str) -> Asked:
    """``refuses``: of these nobody can be elected."""

    async def run_on_copy(_: Any, __: Any, step: tuple[str, Any]) -> DryRun:
        return DryRun([answers(step[1], set(refuses))], {})

    monkeypatch.setattr(elect, "run_on_copy", run_on_copy)
    asked = Asked(CLUSTER, ElectLeaders=lambda request: answers(request, set(refuses)))
    return asked.install(monkeypatch, elect, attribution)


def named(asked: Asked) -> list[str]:
    return [
        f"{p.topic}-{p.partition}" for request in asked.of("ElectLeaders") for p in request.topic_partitions
    ]


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("preferred --all", ["t-1", "t-2", "t-4"]),
        ("preferred --topic u", ["u-0"]),
        ("preferred --partition t-0", []),
        ("preferred --partition t-0 --partition t-1", ["t-1"]),
        # Of a whole topic, those of which it has replicas; of others that it cannot lead, the controller says so.
        ("leader 3 --topic t", ["t-4"]),
        ("leader 1 --topic t", ["t-2"]),
        ("leader 3 --partition t-0", ["t-0"]),
        ("unclean --all --yes", ["t-2", "t-3", "t-4"]),
        ("unclean --partition t-0 --yes", []),
    ],
)
def test_who_is_led_as_asked_is_left_alone(
    command: str, wanted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = install(monkeypatch)
    assert typed(f"elect {command}").exit_code == 0
    assert named(asked) == wanted


def test_what_the_controller_would_refuse_is_shown_as_impossible(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "t-1")
    shown = typed("elect preferred --topic t")
    assert {row["partition"]: row["possible"] for row in json.loads(shown.stdout)} == {
        "t-1": False,
        "t-2": True,
        "t-4": True,
    }
    assert (shown.exit_code, "2 of 3 partitions are led" in shown.stderr) == (EXIT_REFUSED, True)


def test_who_is_led_so_by_now_is_led_so(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    by_now = pb.ElectLeadersResponse()
    by_now.results.add(topic="t", partition=1, error_code=common_pb2.ELECTION_NOT_NEEDED)
    Asked(CLUSTER, ElectLeaders=by_now).install(monkeypatch, elect)
    shown = typed("elect preferred --partition t-1")
    assert (shown.exit_code, "1 of 1 partitions are led" in shown.stderr) == (0, True)


@pytest.mark.parametrize("command", ["preferred", "leader 2", "unclean --yes"])
def test_nothing_is_asked_for_that_cannot_be(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = install(monkeypatch, *(f"t-{n}" for n in range(5)))
    shown = typed(f"elect {command} --topic t")
    assert (shown.exit_code, asked.methods) == (EXIT_REFUSED, [])
    assert "t-2: PREFERRED_LEADER_NOT_AVAILABLE" in shown.stderr


def test_records_are_not_lost_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = install(monkeypatch)
    shown = typed("elect unclean --topic t")
    assert (shown.exit_code, asked.methods) == (EXIT_USAGE, [])
    assert "There is no terminal to confirm at: use --yes; nothing was changed" in shown.stderr


@pytest.mark.parametrize(
    ("command", "kind", "leader"),
    [
        ("preferred", pb.PREFERRED, None),
        ("", pb.PREFERRED, None),
        ("leader 2", pb.CHOSEN, 2),
        ("unclean", pb.UNCLEAN, None),
    ],
)
def test_what_is_tried_and_asked_for_is_the_election_that_was_named(
    command: str, kind: pb.ElectionType, leader: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, tried = install(monkeypatch), list[Any]()
    once: Any = vars(elect)["run_on_copy"]

    async def run_on_copy(options: Any, session: Any, *steps: Any) -> Any:
        tried.extend(request for _, request in steps)
        return await once(options, session, *steps)

    monkeypatch.setattr(elect, "run_on_copy", run_on_copy)
    assert typed(f"elect {command} --topic t --yes").exit_code == 0
    for request in (*tried, *asked.of("ElectLeaders")):
        assert request.election_type == kind
        assert (request.leader if request.HasField("leader") else None) == leader
    assert len(tried) == 1


def test_the_help_of_elections_lists_their_kinds() -> None:
    for option in ("-h", "--help"):
        said = typed(f"elect {option}").stdout
        assert all(kind in said for kind in ("preferred", "leader", "unclean")), said


def test_who_is_alive_may_lead_uncleanly(monkeypatch: pytest.MonkeyPatch) -> None:
    """In sync or not: that is what records are lost by."""
    install(monkeypatch)
    rows = json.loads(typed("elect unclean --partition t-3 --partition t-4 --yes").stdout)
    assert [(row["isr"], row["alive"]) for row in rows] == [([9], [2]), ([3], [3, 2])]


def test_a_file_names_partitions_beside_those_of_the_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, listed = install(monkeypatch), tmp_path / "some.json"
    listed.write_text('{"partitions": [{"topic": "t", "partition": 1}, {"topic": "t", "partition": 4}]}')
    assert typed(f"elect preferred --partition t-2 --partition t-1 --file {listed}").exit_code == 0
    assert named(asked) == ["t-1", "t-2", "t-4"]


def test_what_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = install(monkeypatch)
    for option in ("--topic v", "--partition t-5"):
        assert f"no topic or partition '{option.split()[1]}'" in typed(f"elect preferred {option}").stderr
    assert "name --topic, --partition, --file or --all" in typed("elect preferred").stderr
    assert asked.methods == []


async def test_partitions_that_a_file_names_are_found_without_a_search_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may name as many as there are."""
    compared = 0

    class Name(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str(self) == other

        __hash__ = str.__hash__

    partitions = [PartitionInfo("t", n, (1,), None) for n in range(100)]
    Asked(replace(CLUSTER, partitions=partitions)).install(monkeypatch)
    names = tuple(Name(p.name) for p in partitions)
    session: Any = None
    _, found = await elect._named_partitions(session, (), elect._with_listed(names, None), False)
    assert (found, compared < 10 * len(partitions)) == (partitions, True)
