"""``pctl maintenance``: what is asked for, and what there is nothing to do about."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import click
import pytest

from controller.cli.common import progress
from controller.cli.common.options import Options
from controller.cli.pctl import maintenance as verbs
from controller.client import admin
from controller.core.effects import TopicInfo
from controller.core.model import Attribution, Maintenance
from controller.exit_codes import EXIT_FAILED, EXIT_REFUSED
from controller.runtime.zookeeper.cluster_reader import ClusterState, PartitionInfo
from proto.gen import maintenance_pb2 as pb
from proto.gen.admin_service_pb2 import DescribeClusterResponse
from tests.support.cli.verbs import Asked, in_vain, refused, typed
from tests.support.core.world import a_broker, state

ANN = Attribution("disks", "ann")
BY = "--reason r --author bob --yes"
PAUSED, NOT = Maintenance(paused=ANN), Maintenance()


def cluster(maintenance: Maintenance, *brokers: int) -> ClusterState:
    return ClusterState(100, "c:1", 7, brokers={b: a_broker(b, b) for b in brokers}, maintenance=maintenance)


@pytest.mark.parametrize(
    ("verb", "before", "asks"),
    [
        ("pause", NOT, True),
        # Another reason, or another author.
        ("pause", PAUSED, True),
        ("resume", PAUSED, True),
        ("resume", NOT, False),
    ],
)
def test_only_an_end_of_what_is_not_in_force_needs_nothing(
    verb: str, before: Maintenance, asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(cluster(before), SetPause=pb.OperatorResponse()).install(monkeypatch, verbs)
    assert typed(f"maintenance {verb} {BY}").exit_code == 0
    assert asked.methods == ["SetPause"] * asks


@pytest.mark.parametrize(
    ("offline", "tried"),
    [(0, None), (1, refused("DryRun", "UNKNOWN_SERVER_ERROR", "KeyError")), (1, admin.NoAnswerError("late"))],
)
def test_a_warning_that_cannot_be_given_keeps_nobody_from_an_end(
    offline: int, tried: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def described(*_: Any) -> DescribeClusterResponse:
        return DescribeClusterResponse(offline_partition_count=offline)

    asked = Asked(cluster(PAUSED), DryRun=tried, SetPause=pb.OperatorResponse())
    asked.install(monkeypatch, verbs)
    monkeypatch.setattr(admin, "describe_cluster", described)
    shown = typed(f"maintenance resume {BY}")
    assert shown.exit_code == 0
    assert asked.methods == ["DryRun"] * offline + ["SetPause"]
    assert (str(tried) in shown.stderr) is bool(offline)


def test_a_step_that_is_refused_decides_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other brokers are asked for all the same."""
    answers = {1: refused("SetDrain", "INVALID_REQUEST", "no"), 2: pb.OperatorResponse()}
    asked = Asked(cluster(NOT, 1, 2, 3), SetDrain=lambda request: answers[request.broker_id])
    asked.install(monkeypatch, verbs)
    shown = typed(f"maintenance drain 1 2 --no-wait {BY}")
    assert shown.exit_code == EXIT_FAILED
    assert [request.broker_id for _, request in asked.requests] == [1, 2]
    assert "broker 1: INVALID_REQUEST: no" in shown.stderr
    assert ": drained" not in shown.stderr


@pytest.mark.parametrize(("force", "code"), [(False, EXIT_REFUSED), (True, 0)])
def test_somebody_must_be_left_to_lead(force: bool, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is drained already does not."""
    before = Maintenance(drained={3: ANN})
    asked = Asked(cluster(before, 1, 2, 3), SetDrain=pb.OperatorResponse()).install(monkeypatch, verbs)
    assert typed(f"maintenance drain 1 2 --no-wait {'--force' * force} {BY}").exit_code == code
    assert asked.methods == ["SetDrain"] * (2 * force)
    asked.requests.clear()
    assert typed(f"maintenance drain 1 {BY}").exit_code == 0
    assert asked.methods == ["SetDrain"], "it led nothing"


def test_the_load_of_drained_brokers_is_shown_and_all_that_they_led_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Broker 3 leads nothing, and has one replica."""
    drained = Maintenance(drained={1: ANN, 3: ANN})
    asked = Asked(
        holding(led(1, 1, 2, 3)),
        holding(led(2, 1, 2, 3), maintenance=drained),
        SetDrain=pb.OperatorResponse(),
        DescribeMaintenance=pb.DescribeMaintenanceResponse(),
    ).install(monkeypatch, verbs)
    rows = json.loads(typed(f"maintenance drain 1 3 {BY}").stdout)
    assert [(r["broker"], r["leaders"], r["replicas"]) for r in rows] == [(1, 1, 1), (3, 0, 1)]
    assert "DescribeMaintenance" in asked.methods


def test_a_shutdown_of_a_broker_that_is_not_there_cannot_be_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Asked(cluster(NOT, 1), DescribeMaintenance=pb.DescribeMaintenanceResponse()).install(monkeypatch, verbs)
    shown = typed("maintenance cancel-shutdown 9 --yes")
    assert (shown.exit_code, "broker 9 is not registered" in shown.stderr) == (EXIT_FAILED, True)


def test_who_waits_for_a_drain_in_vain_hears_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    in_vain(monkeypatch)
    partitions = [led(1, 1, 2, number=number) for number in range(2)]
    Asked(
        holding(*partitions),
        holding(*partitions, maintenance=Maintenance(drained={1: ANN})),
        SetDrain=pb.OperatorResponse(),
        DescribeMaintenance=pb.DescribeMaintenanceResponse(),
    ).install(monkeypatch, verbs)
    shown = typed(f"--timeout 0.1 maintenance drain 1 {BY}")
    assert shown.exit_code == EXIT_FAILED
    assert "broker 1 still leads 2 partitions that others could lead: t-0; t-1; it continues" in shown.stderr


def test_each_refusal_of_several_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nobody is said to be drained."""
    answers = {
        1: refused("SetDrain", "INVALID_REQUEST", "no"),
        2: pb.OperatorResponse(),
        3: refused("SetDrain", "POLICY_VIOLATION", "never"),
    }
    now = holding(led(2, 1, 2), brokers=(1, 2, 3, 4))
    Asked(now, SetDrain=lambda request: answers[request.broker_id]).install(monkeypatch, verbs)
    shown = typed(f"maintenance drain 1 2 3 --no-wait {BY}")
    assert (shown.exit_code, ": drained" in shown.stderr) == (EXIT_FAILED, False)
    assert "broker 1: INVALID_REQUEST: no\npctl: broker 3: POLICY_VIOLATION: never\n" in shown.stderr


@pytest.mark.parametrize(("isr", "stays"), [((1,), True), ((1, 2), False)])
def test_what_a_drained_broker_leads_on_is_named(
    isr: tuple[int, ...], stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    drained = Maintenance(drained={1: ANN})
    Asked(
        holding(led(1, *isr)),
        holding(led(1 if stays else 2, *isr), maintenance=drained),
        SetDrain=pb.OperatorResponse(),
        DescribeMaintenance=pb.DescribeMaintenanceResponse(),
    ).install(monkeypatch, verbs)
    said = typed(f"maintenance drain 1 {BY}").stderr
    assert ("broker 1 goes on leading partitions that no other broker can lead: t-0" in said) == stays
    assert "broker 1: drained" in said


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


def test_what_is_in_force_is_shown_with_who_shuts_down_and_who_is_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = pb.DescribeMaintenanceResponse(
        shutting_down=[2], gone=[4, 9], accepted=[9], known_brokers=4, offline_limit=3
    )
    Asked(cluster(PAUSED, 1, 2), DescribeMaintenance=answer).install(monkeypatch)
    shown = typed("maintenance show", "table").stdout.splitlines()
    assert [line.split() for line in shown[1:3]] == [
        ["paused", "-", "ann", "disks"],
        ["shutting", "down", "2", "-", "-"],
    ]
    assert shown[3].startswith("offline brokers: 4, 9 (2 of 4; 2 are registered)")
    assert shown[4] == "of these, accepted by an operator: 9"
    told = json.loads(typed("maintenance show").stdout)
    names = ("shutting_down", "offline_brokers", "accepted", "known_brokers", "offline_limit")
    assert [told[name] for name in names] == [[2], [4, 9], [9], 4, 3]


def test_without_the_controller_what_zookeeper_has_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nobody is said to have accepted what nobody accepted."""
    away = admin.NoAnswerError("c:1 is away")
    Asked(cluster(PAUSED, 1, 2), DescribeMaintenance=away).install(monkeypatch)
    shown = typed("maintenance show", "table")
    assert ["paused", "-", "ann", "disks"] in [line.split() for line in shown.stdout.splitlines()]
    assert "c:1 is away; the state below is read from ZooKeeper" in shown.stderr
    answer = pb.DescribeMaintenanceResponse(gone=[4], known_brokers=3)
    Asked(cluster(PAUSED, 1, 2), DescribeMaintenance=answer).install(monkeypatch)
    assert "accepted" not in typed("maintenance show", "table").stdout


@pytest.mark.parametrize("refuses", [False, True])
def test_what_is_in_force_is_shown_first_and_what_was_refused_is_not_done(
    refuses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = refused("SetPause", "INVALID_REQUEST", "no") if refuses else pb.OperatorResponse()
    Asked(cluster(Maintenance(entered=ANN)), SetPause=answer).install(monkeypatch, verbs)
    shown = typed(f"maintenance pause {BY}", "table")
    assert ["maintenance", "-", "ann", "disks"] in [line.split() for line in shown.stdout.splitlines()]
    assert (shown.exit_code == 0, "done" in shown.stderr.split()) == (not refuses, not refuses)


def test_who_is_offline_is_named_and_counted() -> None:
    answer = pb.DescribeMaintenanceResponse(gone=[4, 9], known_brokers=6, offline_limit=3)
    assert verbs._offline(answer) == (
        "offline brokers: 4, 9 (2 of 6; 4 are registered); maintenance begins automatically once 3 brokers are offline"
    )
    assert verbs._offline(pb.DescribeMaintenanceResponse(known_brokers=6)) == (
        "offline brokers: none (0 of 6; 6 are registered); maintenance never begins automatically"
    )


def led(leader: int, *isr: int, number: int = 0) -> PartitionInfo:
    return PartitionInfo("t", number, isr, state(leader, isr, 1, 1))


def holding(*partitions: PartitionInfo, brokers: tuple[int, ...] = (1, 2, 3), **fields: Any) -> ClusterState:
    info = TopicInfo("t", "id", {p.partition: p.replicas for p in partitions}, {}, {}, version=0, czxid=1)
    known = cluster(fields.pop("maintenance", NOT), *brokers)
    return replace(known, topics={"t": info}, partitions=list(partitions))


@pytest.mark.parametrize(
    ("now", "shutting_down", "waits"),
    [
        (led(2, 1, 2), [], False),
        (led(1, 1, 2), [], True),
        # Nobody else can.
        (led(1, 1), [], False),
        (led(1, 1, 2), [2], False),
    ],
)
def test_a_drained_broker_is_waited_for_while_somebody_else_can_lead(
    now: PartitionInfo, shutting_down: list[int], waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "POLL_EVERY_S", 0)
    drained = Maintenance(drained={1: ANN})
    asked = Asked(
        holding(led(1, 1, 2)),
        holding(now, maintenance=drained),
        holding(led(2, 1, 2), maintenance=drained),
        SetDrain=pb.OperatorResponse(),
        DescribeMaintenance=pb.DescribeMaintenanceResponse(shutting_down=shutting_down),
    ).install(monkeypatch, verbs)
    shown = typed(f"maintenance drain 1 {BY}")
    assert shown.exit_code == 0
    assert asked.methods.count("DescribeMaintenance") == 2 + waits


def test_only_drained_brokers_are_undrained(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(cluster(Maintenance(drained={2: ANN}), 1, 2), SetDrain=pb.OperatorResponse())
    asked.install(monkeypatch, verbs)
    shown = typed(f"maintenance undrain 1 2 {BY}")
    assert (shown.exit_code, "broker 2: not drained any more" in shown.stderr) == (0, True)
    assert [row["broker"] for row in json.loads(shown.stdout)] == [2]
    assert [(r.broker_id, r.drained) for r in asked.of("SetDrain")] == [(2, False)]
    assert typed(f"maintenance undrain 1 {BY}").exit_code == 0
    assert len(asked.of("SetDrain")) == 1


@pytest.mark.parametrize(("option", "epoch"), [("", -1), ("--epoch 0", 0), ("--epoch 77", 77)])
def test_a_shutdown_of_the_life_that_is_named_is_cancelled(
    option: str, epoch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an epoch, of any life; of a broker that is not shutting down, none."""
    asked = Asked(
        cluster(NOT, 1, 2),
        DescribeMaintenance=pb.DescribeMaintenanceResponse(shutting_down=[1]),
        CancelShutdown=pb.OperatorResponse(),
    ).install(monkeypatch, verbs)
    assert typed(f"maintenance cancel-shutdown 1 {option} --yes").exit_code == 0
    assert typed(f"maintenance cancel-shutdown 2 {option} --yes").exit_code == 0
    assert [(r.broker_id, r.broker_epoch) for r in asked.of("CancelShutdown")] == [(1, epoch)]


@pytest.mark.parametrize(
    ("leads", "left", "of"), [((1, 1, 2), 1, 2), ((1, 2, 2), 0, 2), ((1, 2, 1), 1, 2), ((2, 2, 2), 0, 3)]
)
async def test_what_nobody_else_can_lead_is_neither_done_nor_left(
    leads: tuple[int, int, int], left: int, of: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broker 1 led all three; it alone is in sync for the first."""
    isrs = ((1,) if leads[0] == 1 else (1, 2), (1, 2), (1, 2))
    partitions = (led(leads[n], *isr, number=n) for n, isr in enumerate(isrs))
    now = holding(*partitions, maintenance=Maintenance(drained={1: ANN}))
    Asked(now, DescribeMaintenance=pb.DescribeMaintenanceResponse()).install(monkeypatch)
    nothing: Any = None
    found = await verbs._drain_progress(Options("", "json", 1.0), nothing, [1], 3)
    assert (found.left, found.total) == (left, of)
