"""``pctl maintenance``: what is asked for, and what there is nothing to do about."""

from __future__ import annotations

from typing import Any

import click
import pytest

from controller.cli.pctl import maintenance as verbs
from controller.core.model import Attribution, Maintenance
from controller.exit_codes import EXIT_FAILED, EXIT_REFUSED
from controller.runtime.zookeeper.cluster_reader import ClusterState
from proto.gen import maintenance_pb2 as pb
from tests.support.cli.verbs import Asked, ended, refused
from tests.support.core.world import a_broker

ANN = Attribution("disks", "ann")
BY: dict[str, Any] = {"reason": "r", "author": "bob", "yes": True, "dry_run": False}
PAUSED, NOT = Maintenance(paused=ANN), Maintenance()


def cluster(maintenance: Maintenance, *brokers: int) -> ClusterState:
    return ClusterState(100, "c:1", 7, brokers={b: a_broker(b, b) for b in brokers}, maintenance=maintenance)


@pytest.mark.parametrize(
    ("verb", "before", "asks"),
    [
        (verbs.pause, NOT, True),
        # Another reason, or another author.
        (verbs.pause, PAUSED, True),
        (verbs.resume, PAUSED, True),
        (verbs.resume, NOT, False),
    ],
)
async def test_only_an_end_of_what_is_not_in_force_needs_nothing(
    verb: Any, before: Maintenance, asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(cluster(before), SetPause=pb.OperatorResponse()).install(monkeypatch, verbs)
    assert await ended(verb, **BY) == 0
    assert asked.methods == ["SetPause"] * asks


async def test_a_step_that_is_refused_decides_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other brokers are asked for all the same."""
    answers = {1: refused("SetDrain", "INVALID_REQUEST", "no"), 2: pb.OperatorResponse()}
    asked = Asked(cluster(NOT, 1, 2, 3), SetDrain=lambda request: answers[request.broker_id])
    asked.install(monkeypatch, verbs)
    assert await ended(verbs.drain, brokers=(1, 2), force=False, no_wait=True, **BY) == EXIT_FAILED
    assert [request.broker_id for _, request in asked.requests] == [1, 2]
    told = capsys.readouterr().err
    assert "broker 1: INVALID_REQUEST: no" in told
    assert "drained" not in told


@pytest.mark.parametrize(("force", "code"), [(False, EXIT_REFUSED), (True, 0)])
async def test_somebody_must_be_left_to_lead(force: bool, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is drained already does not."""
    before = Maintenance(drained={3: ANN})
    asked = Asked(cluster(before, 1, 2, 3), SetDrain=pb.OperatorResponse()).install(monkeypatch, verbs)
    assert await ended(verbs.drain, brokers=(1, 2), force=force, no_wait=True, **BY) == code
    assert asked.methods == ["SetDrain"] * (2 * force)
    assert await ended(verbs.drain, brokers=(1,), force=False, no_wait=True, **BY) == 0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1m", 60), ("90m", 5400), ("8h", 28_800), ("99999d", 99_999 * 86_400), ("100000d", None), ("0h", None)],
)
def test_how_long_a_freeze_is_meant_to_last(text: str, seconds: int | None) -> None:
    nothing: Any = None
    if seconds is None:
        with pytest.raises(click.BadParameter, match="as 90m, 8h, 2d"):
            verbs._duration(nothing, nothing, text)
    else:
        assert verbs._duration(nothing, nothing, text) == seconds


def test_who_is_offline_is_named_and_counted() -> None:
    answer = pb.DescribeMaintenanceResponse(gone=[4, 9], known_brokers=6, offline_limit=3)
    assert verbs._offline(answer) == (
        "offline brokers: 4, 9 (2 of 6; 4 are registered); maintenance begins automatically once 3 brokers are offline"
    )
    assert verbs._offline(pb.DescribeMaintenanceResponse(known_brokers=6)) == (
        "offline brokers: none (0 of 6; 6 are registered); maintenance never begins automatically"
    )
