"""What pctl health finds wrong, what pctl wait waits for, and min ISR, of a cluster state in memory."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from controller.cli.common.options import Options
from controller.cli.pctl import cluster as cluster_verbs
from controller.cli.pctl import health as health_verbs
from controller.cli.pctl.health import _print, wrong_with
from controller.cli.pctl.main import main
from controller.cli.pctl.partitions import why
from controller.client import admin
from controller.core.cluster.quarantine import Quarantine, SubjectKind, Suspect
from controller.core.model import Attribution, Freeze, LeaderAndIsr, Maintenance
from controller.planning.cluster_health import (
    Finding,
    Seen,
    Tally,
    Told,
    Unfinished,
    Wrong,
    unfinished,
    wrong,
)
from controller.planning.restrictions import freeze_text
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ClusterState, PartitionInfo
from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2, maintenance_pb2
from tests.support.core.world import a_broker, state

ANN = Attribution("disks", "ann")


def a_partition(
    number: int, leadership: LeaderAndIsr | None, replicas: tuple[int, ...] = (1, 2)
) -> PartitionInfo:
    return PartitionInfo("t", number, replicas, leadership)


def a_cluster(*partitions: PartitionInfo) -> ClusterState:
    return ClusterState(
        100,
        "c:1",
        7,
        brokers={b: a_broker(b, 50 + b) for b in (1, 2)},
        partitions=list(partitions),
        configs={"t": {"min.insync.replicas": "2"}},
    )


def answer(*, pending: int = 0, problem: str = "") -> pb.DescribeClusterResponse:
    brokers = [
        pb.BrokerDescription(broker_id=b, pending_pushes=pending, push_problem=problem) for b in (1, 2)
    ]
    return pb.DescribeClusterResponse(brokers=brokers)


def found(now: ClusterState, described: pb.DescribeClusterResponse | str | None) -> dict[str, str]:
    """By the words for programs (docs/operations.md)."""
    return {f.what.value: f.text for f in wrong_with(now, described)}


def test_a_cluster_that_is_well() -> None:
    partitions = [a_partition(n, state(1, isr, 3, 5)) for n, isr in enumerate([(1, 2), (2, 1)])]
    assert found(a_cluster(*partitions), answer()) == {}


def test_each_thing_that_is_wrong_is_named() -> None:
    now = a_cluster(
        a_partition(0, state(1, (1,), 3, 5)),
        a_partition(1, state(-1, (2,), 3, 5)),
        a_partition(2, state(9, (9,), 3, 5), (9, 1)),
        a_partition(3, None),
        a_partition(4, state(1, (1, 2), 3, 5), (1, 2, 9)),
    )
    now.problems["/brokers/ids/7"] = "junk"
    now.maintenance = Maintenance(paused=ANN, entered=ANN)
    assert found(now, answer(problem="refused")) == {
        "brokers_gone": "broker 9 is gone: 2 partitions lack it",
        "push_problem": "broker 2 does not take all pushes: refused",
        "unavailable_partitions": "3 partitions without a leader that is alive: t-1, t-2, t-3",
        "under_min_isr_partitions": "1 partition below min.insync.replicas: writes with acks=all fail: t-0",
        "under_replicated_partitions": "2 partitions with a replica out of sync: t-0, t-4",
        "unreadable_znodes": "1 unreadable znode: /brokers/ids/7",
        "paused": "paused by ann: disks",
        "maintenance": "maintenance by ann: disks",
    }


def test_who_is_registered_is_lacked_by_nobody() -> None:
    tally = Tally([1, 2])
    tally.add("t", 0, (9, 1), state(1, (1,)), 1)
    tally.add("t", 1, (1, 2), state(1, (1, 2)), 1)
    assert tally.lacking == {9: 1}


def test_a_partition_counts_under_the_worst_and_for_each_broker_it_lacks() -> None:
    tally = Tally([1, 2])
    assert tally.add("t", 0, (1, 2), state(1, (1,)), 2) is Wrong.UNDER_MIN_ISR
    assert tally.add("t", 1, (1, 2), state(1, (1,)), 1) is Wrong.UNDER_REPLICATED
    assert tally.add("t", 2, (8, 9), state(-1, (8,)), 1) is Wrong.UNAVAILABLE
    assert tally.add("t", 3, (1, 2), state(1, (2, 1)), 2) is None
    assert tally.lacking == {8: 1, 9: 1}


def test_partitions_beyond_those_that_are_named_are_counted() -> None:
    tally = Tally([1])
    for number in range(8):
        tally.add("t", number, (1,), state(-1, (1,)), 1)
    (found,) = tally.findings()
    assert found.text == "8 partitions without a leader that is alive: t-0, t-1, t-2, t-3, t-4 and 3 more"


def test_one_thing_that_is_wrong_hides_no_other() -> None:
    now = a_cluster(a_partition(0, state(1, (1,), 3, 5), (1, 9)))
    now.maintenance = Maintenance(paused=ANN, freeze=Freeze("quiet", "ann", 10**15))
    assert {"controller_does_not_answer", "brokers_gone", "paused", "frozen"} <= found(now, "why").keys()
    told = {1: Told("asleep", losses=4, hold_s=60)}
    seen = Seen(0, Tally([1]), told, (), Maintenance(), (), ())
    assert [f.what.value for f in wrong(seen)] == ["push_problem", "brokers_flapping"]


def test_registrations_that_do_not_go_together_are_wrong() -> None:
    now = a_cluster()
    now.brokers[1] = replace(now.brokers[2], id=1, cluster_id="other")
    now.cluster_id = "ours"
    named = found(now, answer())
    assert set(named) == {"brokers_share_an_endpoint", "broker_of_another_cluster"}
    assert named["brokers_share_an_endpoint"].startswith("brokers 1, 2 are registered with one address")


def test_a_zookeeper_that_went_back_is_wrong_until_what_it_forgot_is_taken_over() -> None:
    told = {
        b: pb.BrokerDescription(broker_id=b, newer_states=n, newer_wait=wait)
        for b, n, wait in ((1, 2, ""), (2, 1, "broker 3 may know newer ones: no answer"))
    }
    assert found(a_cluster(), pb.DescribeClusterResponse(brokers=[told[1]]))["zookeeper_went_back"] == (
        "broker 1 was told newer states of 2 partitions than ZooKeeper has, which went back: they are to be taken over"
    )
    assert found(a_cluster(), pb.DescribeClusterResponse(brokers=[told[2]]))["zookeeper_went_back"] == (
        "broker 2 was told newer states of 1 partition than ZooKeeper has, which went back: they are not taken over,"
        " since broker 3 may know newer ones: no answer"
    )


def test_what_is_left_out_is_wrong() -> None:
    now = a_cluster()
    raised = Suspect(SubjectKind.TOPIC, "t", "TopicChange", "KeyError: 7", "d", 1, 1, 0, quarantined=True)
    once = replace(raised, name="u", quarantined=False)
    now.quarantine = Quarantine({str(suspect.subject): suspect for suspect in (raised, once)})
    assert found(now, answer()) == {"in_quarantine": "in quarantine: topic/t"}


def test_a_controller_that_is_silent_or_absent_is_wrong() -> None:
    now = a_cluster()
    assert found(now, "UNAVAILABLE: refused") == {
        "controller_does_not_answer": "controller 100 does not answer: UNAVAILABLE: refused"
    }
    assert found(now, pb.DescribeClusterResponse()) == {
        "brokers_ignored": "broker 2 is ignored by the controller"
    }
    now.controller_id = 2
    assert found(now, None) == {}, "a broker of Kafka leads"
    now.controller_id = 0
    assert found(now, None) == {
        "no_controller": "no controller is active: /controller names 0, which is no registered broker"
    }
    now.kraft = True
    assert found(now, None) == {}, "a controller of KRaft leads"
    now.controller_id = -1
    assert found(now, None) == {"no_controller": "no controller is active"}


def test_a_controller_that_loses_its_log_is_wrong() -> None:
    """Nothing else shows it where nobody has a Prometheus."""
    described = answer()
    described.state_log_dropped = 12
    assert found(a_cluster(), described) == {}, "it can write again"
    described.state_log_problem = "No space left on device"
    assert found(a_cluster(), described) == {
        "state_log_not_written": "controller 100 cannot write its state-change log (No space left on device): "
        "12 records lost"
    }


def test_what_the_controller_tells_of_brokers_comes_in_the_order_of_their_ids() -> None:
    seen = Seen(0, Tally([1025, 3, 8]), {1025: Told(losses=4, hold_s=60)}, (), Maintenance(), (), ())
    assert [(f.what.value, f.text) for f in wrong(seen)] == [
        ("brokers_ignored", "broker 3 is ignored by the controller"),
        ("brokers_ignored", "broker 8 is ignored by the controller"),
        (
            "brokers_flapping",
            "broker 1025 comes and goes: it was lost 4 times, and gets no leaderships back until it is up for 60 s",
        ),
    ]


def test_a_freeze_says_until_when_it_is_meant() -> None:
    until_ms = 253_402_300_799_000
    assert freeze_text(Freeze("quiet", "ann", until_ms)) == "by ann: quiet (until 9999-12-31T23:59:59Z)"
    assert freeze_text(Freeze("quiet", "ann", 10 * until_ms)) == freeze_text(Freeze("quiet", "ann", until_ms))
    past = "by ann: quiet (until 2023-11-14T22:13:20Z, overdue: pctl unfreeze ends it)"
    assert freeze_text(Freeze("quiet", "ann", 1_700_000_000_000)) == past
    assert freeze_text(None) is None


def test_one_partition_lacks_a_broker() -> None:
    now = a_cluster(a_partition(0, state(1, (1, 2), 3, 5), (1, 2, 9)))
    assert found(now, answer())["brokers_gone"] == "broker 9 is gone: 1 partition lacks it"


def test_a_topic_that_is_being_deleted_lacks_its_brokers_and_nothing_else() -> None:
    """Brokers that are gone have replicas to delete."""
    now = a_cluster(
        a_partition(0, state(-1, (1, 2), 3, 5)),
        a_partition(1, None),
        a_partition(2, state(1, (1,), 3, 5), (1, 9)),
    )
    assert len(found(now, answer())) == 4
    now.deleting = ["t"]
    assert found(now, answer()) == {"brokers_gone": "broker 9 is gone: 1 partition lacks it"}


def test_what_is_under_way() -> None:
    assert list(unfinished(0, [], (), 0)) == []
    deleting = [f"t{n}" for n in range(7)]
    assert [(f.what.value, f.text) for f in unfinished(4, deleting, (2,), 1)] == [
        ("pending_pushes", "pushes pending: 4"),
        ("topics_being_deleted", "7 topics being deleted: t0, t1, t2, t3, t4 and 2 more"),
        ("reassignments", "1 partition being reassigned"),
        ("brokers_shutting_down", "shutting down: 2"),
    ]


@pytest.mark.parametrize(
    ("style", "well", "ill"),
    [
        ("table", "well\n", "x is wrong\n"),
        ("tsv", "\n", "what\tcount\ttext\npaused\t1\tx is wrong\n"),
    ],
)
def test_findings_are_printed_in_each_style(
    style: str, well: str, ill: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = Options("z:1", style, 1)
    _print(options, [])
    assert capsys.readouterr().out == well
    _print(options, [Finding(Wrong.PAUSED, 1, "x is wrong")])
    assert capsys.readouterr().out == ill
    _print(Options("z:1", "json", 1), [])
    assert json.loads(capsys.readouterr().out) == {"well": True, "findings": []}


@pytest.mark.parametrize(
    ("own", "default", "expected"),
    [
        ({}, {}, 1),
        ({}, {"min.insync.replicas": "3"}, 3),
        (None, {}, 2),
        ({"min.insync.replicas": "x"}, {}, 1),
    ],
)
def test_min_isr_is_the_topics_or_the_brokers_or_1(
    own: dict[str, str] | None, default: dict[str, str], expected: int
) -> None:
    now = a_cluster()
    now.broker_defaults = default
    if own is not None:
        now.configs = {"t": own}
    assert now.min_isr("t") == expected


def test_min_isr_of_few_replicas() -> None:
    """As many replicas as there are suffice (kafka.cluster.Partition.effectiveMinIsr)."""
    alone = a_partition(0, state(1, (1,), 3, 5), (1,))
    assert (alone.spare_in_sync(2), alone.spare_in_sync(1)) == (0, 0)
    two = a_partition(0, state(1, (1,), 3, 5))
    assert (two.spare_in_sync(2), two.spare_in_sync(1)) == (-1, 0)
    assert a_partition(0, None).spare_in_sync(1) is None


def test_why_a_partition_has_no_leader() -> None:
    now = a_cluster()
    alive, dead = a_partition(0, state(-1, (2, 1), 3, 5)), a_partition(0, state(-1, (8, 9), 3, 5))
    assert why(now, dead) == "no member of the ISR [8, 9] is alive"
    assert why(now, alive) == "2, 1 of the ISR [2, 1] is alive, but no new leader is elected yet"
    now.maintenance = Maintenance(paused=ANN)
    assert why(now, alive) == "2, 1 of the ISR [2, 1] is alive, but elections are paused by ann: disks"
    now.deleting = ["s", "t", "u"]
    assert [why(now, p) for p in (alive, dead, a_partition(0, None))] == ["its topic is being deleted"] * 3
    led = a_partition(0, state(1, (1,), 3, 5))
    assert why(now, led) == "out of sync: 2", "its deletion may wait"
    now.deleting = ["s", "tt"]
    assert why(now, dead) == "no member of the ISR [8, 9] is alive"


@pytest.mark.parametrize(
    ("isr", "under"), [((1, 2), False), ((2, 1), False), ((1, 2, 3), False), ((1,), True), (None, True)]
)
def test_under_replicated_is_what_lacks_an_assigned_replica(isr: tuple[int, ...] | None, under: bool) -> None:
    leadership = None if isr is None else state(isr[0], isr)
    assert a_partition(0, leadership).under_replicated() is under


# --- asked of a controller ---------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["health", "wait"])
def test_without_zookeeper_nobody_can_tell(verb: str) -> None:
    done = CliRunner().invoke(main, ["--zookeeper=127.0.0.1:1", "--timeout=0.1", verb])
    assert (done.exit_code, "127.0.0.1:1" in done.stderr) == (3, True)


class Controller:
    """The one of a cluster that is well. ``described``: what it answers to DescribeCluster."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.described: Any = answer()
        self.shutting_down: list[int] = []
        partition = a_partition(0, state(1, (1, 2), 3, 5))

        async def look(*_: object, **__: object) -> ClusterState:
            now = a_cluster(partition)
            now.controller_endpoint = "h:1"
            return now

        async def describe(*_: object) -> Any:
            return self.described

        async def ask(_endpoint: str, method: str, *_: object) -> Any:
            if method == "DescribeMaintenance":
                return maintenance_pb2.DescribeMaintenanceResponse(shutting_down=self.shutting_down)
            return pb.ListPartitionReassignmentsResponse()

        async def nothing(*_: object) -> None: ...

        monkeypatch.setattr(cluster_reader, "look", look)
        monkeypatch.setattr(health_verbs, "fail_without_cluster", nothing)
        monkeypatch.setattr(admin, "describe_cluster", describe)
        monkeypatch.setattr(admin, "ask", ask)

    async def found(self, *, stable: bool) -> list[str]:
        session: Any = None
        return [
            f.what.value
            for f in await health_verbs._findings(Options("z:1", "json", 1), session, stable=stable)
        ]


async def test_a_stable_cluster_has_no_work_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = Controller(monkeypatch)
    assert await controller.found(stable=True) == []
    controller.described, controller.shutting_down = answer(pending=2), [1]
    assert await controller.found(stable=False) == []
    assert await controller.found(stable=True) == [Unfinished.PUSHES.value, Unfinished.SHUTDOWNS.value]


async def test_a_controller_that_does_not_lead_is_not_taken_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = Controller(monkeypatch)
    controller.described = pb.DescribeClusterResponse(error_code=common_pb2.NOT_CONTROLLER)
    assert await controller.found(stable=True) == [Wrong.CONTROLLER_SILENT.value]


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (common_pb2.NOT_CONTROLLER, "NOT_CONTROLLER: its failover is not completed, or it resigned"),
        (
            common_pb2.CLUSTER_AUTHORIZATION_FAILED,
            "CLUSTER_AUTHORIZATION_FAILED: who asks may not DESCRIBE the cluster",
        ),
        (common_pb2.UNKNOWN_SERVER_ERROR, "UNKNOWN_SERVER_ERROR"),
    ],
)
async def test_why_the_controller_does_not_describe_the_cluster(
    code: common_pb2.ErrorCode, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Controller(monkeypatch).described = pb.DescribeClusterResponse(error_code=code)
    session: Any = None
    (finding,) = await health_verbs._findings(Options("z:1", "json", 1), session, stable=True)
    assert finding.text == f"controller 100 does not answer: {why}"


# --- pctl quarantine ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at_ms", "last"), [(1_500, "1970-01-01T00:00:01.500Z"), (2**63 - 1, "9999-12-31T23:59:59.000Z")]
)
def test_what_raised_is_listed_whatever_the_clock_said(at_ms: int, last: str) -> None:
    """And alike, whether the controller tells it or ZooKeeper."""
    stored = Suspect(SubjectKind.TOPIC, "t", "E", "KeyError", "d", 1, 2, at_ms)
    told = maintenance_pb2.Suspect(
        name="topic/t",
        **{
            name: getattr(stored, name)
            for name in maintenance_pb2.Suspect.DESCRIPTOR.fields_by_name
            if name != "name"
        },
    )
    rows = [cluster_verbs._suspect_row("topic/t", suspect) for suspect in (stored, told)]
    assert rows[0] == rows[1]
    assert (rows[0]["name"], rows[0]["last"]) == ("topic/t", last)
    assert tuple(rows[0]) == cluster_verbs._SUSPECT_COLUMNS
