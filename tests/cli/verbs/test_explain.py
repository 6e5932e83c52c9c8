"""``pctl explain``: who is asked, and what a controller that cannot tell leaves to ZooKeeper."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from controller.cli.computed.explanations import of_controller
from controller.cli.pctl.decisions import explain as verbs
from controller.cli.pctl.main import main
from controller.client import admin, last_address
from controller.core.model import Attribution, Maintenance
from controller.exit_codes import EXIT_FAILED
from controller.runtime.zookeeper.cluster_reader import ClusterState
from controller.runtime.zookeeper.single_codecs import Resignation
from proto.gen import inspection_pb2 as pb
from tests.support.cli.verbs import Asked, refused


@pytest.fixture
def found_by_zookeeper(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether it was by ``--offline``, for each time that the last controller's answer was not taken."""
    taken: list[bool] = []
    monkeypatch.setattr(verbs, "_found_by_zookeeper", lambda *given: taken.append(given[3]))
    monkeypatch.setattr(last_address, "last", lambda _: "c:1")
    return taken


@pytest.mark.parametrize(
    ("answer", "told", "looks"),
    [
        (pb.ExplainResponse(explanation='{"words": ["it leads"]}'), "it leads\n", []),
        (admin.NoAnswerError("away"), "", [False]),
        (refused("Explain", "OPERATION_NOT_ATTEMPTED"), "", [False]),
    ],
)
def test_a_controller_that_cannot_tell_leaves_it_to_the_next_and_to_zookeeper(
    answer: Any,
    told: str,
    looks: list[bool],
    found_by_zookeeper: list[bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Asked(Explain=answer).install(monkeypatch)
    shown = CliRunner().invoke(main, ["explain", "broker", "1"])
    assert (shown.exit_code, shown.stdout, found_by_zookeeper) == (0, told, looks)


def test_what_a_controller_knows_not_to_be_there_is_not(
    found_by_zookeeper: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    Asked(Explain=refused("Explain", "INVALID_REQUEST", "no broker 1")).install(monkeypatch)
    shown = CliRunner().invoke(main, ["explain", "broker", "1"])
    assert (shown.exit_code, shown.stderr, found_by_zookeeper) == (EXIT_FAILED, "pctl: no broker 1\n", [])


def test_offline_asks_no_controller(found_by_zookeeper: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked().install(monkeypatch)
    assert CliRunner().invoke(main, ["explain", "broker", "1", "--offline"]).exit_code == 0
    assert (asked.requests, found_by_zookeeper) == ([], [True])


def test_the_answer_in_data_says_whose_it_is(
    found_by_zookeeper: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    Asked(Explain=pb.ExplainResponse(explanation='{"words": []}')).install(monkeypatch)
    shown = CliRunner().invoke(main, ["-o", "json", "explain", "controller"])
    assert json.loads(shown.stdout) == {"source": "controller", "words": []}


def test_a_partition_of_a_topic_that_does_not_decode_is_not_called_absent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    snapshot: Any = SimpleNamespace(problems={"/brokers/topics/t": "no JSON"})
    for topic, told in [("t", "/brokers/topics/t: no JSON"), ("u", "no partition u-3")]:
        with pytest.raises(SystemExit):
            verbs._no_partition(snapshot, topic, 3)
        assert capsys.readouterr().err == f"pctl: {told}\n"


@pytest.mark.parametrize(("option", "each"), [("", False), ("--all", True)])
def test_each_deficit_of_a_broker_is_shown_to_who_asks(
    option: str, each: bool, found_by_zookeeper: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = '{"words": ["broker 1 is registered"], "lacks": ["t-0: out of sync"]}'
    Asked(Explain=pb.ExplainResponse(explanation=answer)).install(monkeypatch)
    shown = CliRunner().invoke(main, ["explain", "broker", "1", *option.split()])
    assert shown.stdout.splitlines() == ["broker 1 is registered", *["  t-0: out of sync"] * each]


def test_from_zookeeper_what_is_suspended_is_said_to_be() -> None:
    paused = ClusterState(5, "", 4, maintenance=Maintenance(paused=Attribution("disks", "ann")))
    (note,) = of_controller(paused)["notes"]
    assert note.startswith("the controllers start no automatic work: ")
    assert "ann" in note


def test_from_zookeeper_a_cluster_that_was_handed_back_is_said_to_be() -> None:
    handed_back = ClusterState(5, "", 4, resignation=Resignation("trying", "ann", 1))
    assert "pctl controllers claim" in of_controller(handed_back)["changes"][0]
