"""What all verbs share: what is said without a cluster, requests during a failover, plans, reasons, records."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import click
import pytest

from controller.cli import check_cluster
from controller.cli.common import attribution, output, progress, reassignment_files, record_format, requests
from controller.cli.common import cluster_state as messages
from controller.cli.common.options import Options
from controller.cli.common.progress import Progress, follow
from controller.cli.common.reassignment_files import PlanError, read_names, read_plan
from controller.client import admin
from controller.core.model import Attribution, Freeze, Maintenance
from controller.core.requests.operator import REASON_MAX
from controller.runtime.kafka.cluster_check import BrokerFacts, Check, ClusterFacts, Finding, Level, Wanted
from controller.runtime.observe.history_filter import Filter
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ClusterState
from controller.runtime.zookeeper.session import Session
from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2, inspection_pb2
from tests.support.core.world import a_broker

SESSION = cast("Session", None)


# --- a cluster that is not there -----------------------------------------------------------------------------


class Tree:
    """What is below the chroot."""

    def __init__(self, *paths: str) -> None:
        self.paths = paths

    async def children(self, path: str) -> list[str]:
        assert path == "/"
        return list({one.split("/")[1] for one in self.paths})

    async def exists(self, path: str) -> object | None:
        return object() if path in self.paths else None


@pytest.mark.parametrize(
    ("zookeeper", "said"),
    [
        ("h:1", "at / of ZooKeeper at h:1; clusters are at /a, /b: pctl --zookeeper h:1/a ..."),
        ("h:1/x", "at /x of ZooKeeper at h:1; clusters are at /x/a, /x/b: pctl --zookeeper h:1/x/a ..."),
    ],
)
async def test_clusters_below_a_chroot_that_has_none_are_named(
    zookeeper: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tree: Any = Tree("/b/controller_epoch", "/a/controller_epoch", "/c/brokers")
    with pytest.raises(SystemExit):
        await messages.fail_without_cluster(zookeeper, tree, ClusterState())
    assert capsys.readouterr().err == f"pctl: there is no cluster {said}\n"


async def test_a_cluster_that_nobody_leads_is_one() -> None:
    await messages.fail_without_cluster("h:1", SESSION, ClusterState(brokers={1: a_broker(1, 1)}))


def test_of_many_unreadable_znodes_some_are_named_and_all_counted(capsys: pytest.CaptureFixture[str]) -> None:
    messages.note_problems(ClusterState(problems={f"/{n:03}": "odd" for n in range(103)}))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 101
    assert lines[99:] == ["pctl: unreadable znode /099: odd", "pctl: 3 more znodes are unreadable"]


def test_what_is_drained_and_frozen_is_shown_as_such() -> None:
    who = Attribution("r", "ann")
    state = Maintenance(drained={3: who, 1: who}, freeze=Freeze("holidays", "bob", 1))
    shown = messages.maintenance_fields(state)
    assert (shown["drained"], shown["paused"]) == ([1, 3], None)
    assert "holidays" in shown["frozen"]


# --- requests during a failover ------------------------------------------------------------------------------

STANDING = ClusterState(controllers=[cast("Any", object())])
LEADING = ClusterState(5, "c:1", 7)


class Failover:
    """What each look finds, and what the controller answers when it is asked who it is. A look takes a second."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, looks: list[ClusterState], codes: list[int | str]
    ) -> None:
        self.looks, self.codes, self.now_s = looks, codes, 0.0
        self.asked: list[tuple[str, float]] = []
        monkeypatch.setattr(cluster_reader, "look", self.look)
        monkeypatch.setattr(admin, "describe_cluster", self.describe)
        monkeypatch.setattr(admin, "ask", self.ask)
        monkeypatch.setattr(requests, "_LOOK_S", 0)
        monkeypatch.setattr(requests, "time", SimpleNamespace(monotonic=lambda: self.now_s))

    async def look(self, *_: Any, **__: Any) -> ClusterState:
        self.now_s += 1
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    async def describe(self, *_: Any) -> pb.DescribeClusterResponse | str:
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        if isinstance(code, str):
            return code
        return pb.DescribeClusterResponse(error_code=code)  # type: ignore[arg-type]

    async def ask(self, endpoint: str, _method: str, _request: Any, timeout_s: float, _tls: Any) -> str:
        self.asked.append((endpoint, timeout_s))
        return "answer"

    async def request(self) -> Any:
        async with asyncio.timeout(20):
            return await requests.ask(Options("", "json", 10.0), SESSION, "SetPause", None)


@pytest.mark.parametrize(
    ("looks", "codes", "asked"),
    [
        ([LEADING], [0], ("c:1", 9.0)),
        ([STANDING, STANDING, LEADING], [0], ("c:1", 7.0)),
        ([LEADING], [common_pb2.NOT_CONTROLLER, common_pb2.NOT_CONTROLLER, 0], ("c:1", 7.0)),
        ([ClusterState()], [0], ("", 9.0)),
        ([STANDING], [0], ("", 0.2)),
        ([LEADING], [common_pb2.NOT_CONTROLLER], ("c:1", 0.2)),
    ],
    ids=["leads", "is elected", "takes over", "nobody", "nobody is elected", "takes over for long"],
)
async def test_a_request_waits_for_who_takes_over(
    looks: list[ClusterState],
    codes: list[int | str],
    asked: tuple[str, float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As long as it may take; what is left of that is the request's."""
    failover = Failover(monkeypatch, list(looks), list(codes))
    assert await failover.request() == "answer"
    assert failover.asked == [asked]


@pytest.mark.parametrize(("standbys", "listens"), [(0, False), (1, True)], ids=["alone", "it listens"])
async def test_a_request_does_not_wait_for_who_cannot_be_replaced_or_answers_oddly(
    standbys: int, listens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def listening(_: str, _s: float) -> bool:
        return listens

    monkeypatch.setattr(admin, "listens", listening)
    failover = Failover(
        monkeypatch, [ClusterState(5, "c:1", 7, [cast("Any", object())] * (1 + standbys))], ["UNAVAILABLE"]
    )
    with pytest.raises(admin.NoAnswerError, match="SetPause was not sent"):
        await failover.request()
    assert failover.now_s == 1


async def test_a_request_waits_for_the_successor_of_who_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    gone, successor = (ClusterState(5, at, 7, [cast("Any", object())] * 2) for at in ("127.0.0.1:1", "c:2"))
    failover = Failover(monkeypatch, [gone, successor], ["UNAVAILABLE", 0])
    assert await failover.request() == "answer"
    assert failover.asked == [("c:2", 8.0)]


async def test_a_request_names_a_silent_controller_and_goes_to_its_successor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    frozen, successor = ClusterState(5, "c:1", 7), ClusterState(6, "c:2", 8)
    failover = Failover(monkeypatch, [frozen, frozen, frozen, successor], [0])

    left: list[str] = []

    async def describe(endpoint: str, *_: Any) -> Any:
        try:
            return await (asyncio.Event().wait() if endpoint == "c:1" else failover.describe())
        except asyncio.CancelledError:
            left.append(endpoint)
            raise

    monkeypatch.setattr(admin, "describe_cluster", describe)
    monkeypatch.setattr(requests, "_SILENT_S", 0)
    assert await failover.request() == "answer"
    assert failover.asked == [("c:2", 5.0)]
    assert capsys.readouterr().err == "waiting for controller 5 at c:1\n"
    assert left == ["c:1"], "it is asked no longer"


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (
            "CreateTopics",
            "the controller at c:1 has not answered CreateTopics yet; "
            "check whether it was carried out before trying again\n",
        ),
        ("DescribeConfigs", ""),
    ],
)
async def test_who_is_interrupted_is_told_that_a_change_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], method: str, said: str
) -> None:
    Failover(monkeypatch, [LEADING], [0])
    asked = asyncio.Event()

    async def ask(*_: Any) -> None:
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(admin, "ask", ask)
    asking = asyncio.create_task(requests.ask(Options("", "json", 10.0), SESSION, method, None))
    await asked.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert capsys.readouterr().err == said


async def test_who_does_not_take_a_connection_in_time_does_not_listen() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, ExitStack() as stack:
        address = server.getsockname()
        endpoint = f"127.0.0.1:{address[1]}"
        assert await admin.listens(endpoint, 60)
        # Nobody accepts: once its queue is full, connections are not even refused.
        for _ in range(2):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        assert not await admin.listens(endpoint, 0.1)


# --- progress ------------------------------------------------------------------------------------------------


def test_of_many_reasons_some_are_named() -> None:
    assert Progress(7, 9, tuple("abcdefg")).line("done") == "2 of 9 done: a; b; c; d; e; and 2 more"


async def test_the_end_is_said_also_just_after_another_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "POLL_EVERY_S", 0)
    left = iter([2, 1, 0])

    async def measure() -> Progress:
        return Progress(next(left), 2)

    await follow(Options("", "table", 600.0), "are done", measure)
    assert capsys.readouterr().err.splitlines() == ["0 of 2 are done", "2 of 2 are done"]


# --- plans ---------------------------------------------------------------------------------------------------


def plan(path: Path, *partitions: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return path


@pytest.mark.parametrize(
    ("partitions", "problem"),
    [
        ([], "must name at least one partition"),
        ([{"topic": "t", "partition": 0}], r"partitions\[0\] \(t-0\): replicas: missing"),
        ([{"topic": "t", "partition": 0, "replicas": [1, 1]}], r"\(t-0\): .*"),
        ([{"topic": "t", "partition": 0, "replicas": []}], r"\(t-0\): .*"),
    ],
)
def test_a_plan_that_cannot_be_meant_is_refused(
    partitions: list[dict[str, Any]], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(PlanError, match=problem):
        read_plan(plan(tmp_path / "plan", *partitions))


def test_a_cancellation_needs_names_only_and_a_file_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = plan(tmp_path / "plan", {"topic": "t", "partition": 0}, {"topic": "t", "partition": 2})
    assert read_names(file) == [("t", 0), ("t", 2)]
    monkeypatch.setattr(reassignment_files, "BYTES_MAX", file.stat().st_size)
    assert len(read_names(file)) == 2
    monkeypatch.setattr(reassignment_files, "BYTES_MAX", file.stat().st_size - 1)
    with pytest.raises(PlanError, match="must have at most that"):
        read_names(file)


# --- reasons -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "taken"), [("r" * REASON_MAX, True), ("r" * (REASON_MAX + 1), False), ("  ", False), ("", False)]
)
def test_a_reason_has_one_to_a_thousand_characters(text: str, taken: bool) -> None:
    check = attribution._text_of(REASON_MAX)
    context, parameter = click.Context(click.Command("x")), click.Option(["--reason"])
    if taken:
        assert check(context, parameter, text) == text
    else:
        with pytest.raises(click.BadParameter):
            check(context, parameter, text)


@pytest.mark.parametrize(
    ("error", "reason", "yes", "terminal", "raised"),
    [
        ("POLICY_VIOLATION", None, False, True, None),
        ("POLICY_VIOLATION", None, True, True, click.UsageError),
        ("POLICY_VIOLATION", None, False, False, click.UsageError),
        ("POLICY_VIOLATION", "mine", False, True, admin.RefusedError),
        ("TOPIC_DELETION_DISABLED", None, False, True, admin.RefusedError),
    ],
)
async def test_only_who_is_refused_for_want_of_a_reason_is_asked_for_it(
    error: str,
    reason: str | None,
    yes: bool,
    terminal: bool,
    raised: type[Exception] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At a terminal, and not before. What is typed is cut where the controller would refuse it."""
    sent = list[str]()

    async def ask(_options: Any, _session: Any, method: str, request: Any) -> str:
        sent.append(request.reason)
        if len(sent) == 1:
            raise admin.RefusedError("h:1", method, error, "no")
        return "done"

    monkeypatch.setattr(attribution, "ask", ask)
    monkeypatch.setattr(attribution, "is_interactive", lambda: terminal)
    monkeypatch.setattr(click, "prompt", lambda *_, **__: " " + "r" * (REASON_MAX + 5))
    request = inspection_pb2.ApproveStopRequest()
    going = attribution.ask_with_reason(
        Options("", "json", 1.0), SESSION, "DeleteTopics", request, reason, yes=yes
    )
    if raised is None:
        assert await going == "done"
        assert sent == ["", "r" * REASON_MAX]
    else:
        with pytest.raises(raised):
            await going
        assert sent == [reason or ""]


# --- records and cells ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"kind": "isr", "topic": "t", "partition": 0, "isr": "1,2"}, "t-0: ISR 1,2"),
        ({"kind": "isr", "topic": "t", "partition": 0, "from": "1", "to": "1,2"}, "t-0: ISR 1 -> 1,2"),
        ({"kind": "broker", "replica": 0, "node": 7, "from": "offline", "to": "online"}, "broker 0: offline -> online"),
        (
            {"kind": "broker", "node": 7, "from": "online", "to": "offline", "silent_us": 62_500_000},
            "broker 7: online -> offline, last sign 62.5 s before",
        ),
        ({"kind": "partition", "topic": "t", "partition": 0, "from": "x", "to": "x"}, "t-0: x"),
        (
            {"kind": "request", "to": "SetPause", "principal": "User:a", "error": "E", "count": 7},
            "SetPause by User:a at an unknown address: refused: E, 7 times",
        ),
        ({"kind": "leader", "topic": "t", "partition": 0, "from": "-1", "to": "0"}, "t-0: leader none -> 0"),
        (
            {"kind": "failover", "to": "ready", "count": 0, "duration_us": 1500},
            "failover: ready, 0, 1.5 ms",
        ),
    ],
)  # fmt: skip
def test_what_happened_is_said(record: dict[str, Any], said: str) -> None:
    assert record_format.what_happened(record) == said


def test_partition_0_is_a_filter() -> None:
    assert record_format.filter_message(Filter("t", 0)).has_partition
    assert not record_format.filter_message(Filter("t", None)).has_partition


def test_cells() -> None:
    assert output._cell("a\x1b[31m").isprintable()
    assert output._tsv([[1, 2], [3]]) == "[[1,2],[3]]"
    assert output._tsv([1, 2]) == "1,2"
    nothing = [None, False, 0, ""]
    assert list(map(output._tsv, nothing)) == ["", "false", "0", ""]
    assert list(map(output._cell, [*nothing, [], {}])) == ["-", "no", "0", "-", "-", "-"]
    whole = "x" * output.CELL_CHARS_MAX
    assert (output.cut(whole), output.cut(whole + "y")) == (whole, f"{whole}... (501 characters)")


# --- check-cluster -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("details", [False, True])
def test_only_blockers_count_and_what_is_well_is_a_detail(
    details: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    check = next(iter(Check))
    findings = [
        Finding(Level.OK, check, -1, "as it should be"),
        Finding(Level.WARNING, check, 0, "of broker 0"),
        Finding(Level.BLOCKER, check, -1, "of all"),
    ]
    wanted: Any = cast("Wanted", None)
    check_cluster._print_tables(ClusterFacts([]), findings, wanted, details=details)
    said = capsys.readouterr().out
    assert ("as it should be" in said) is details
    rows = {line.rpartition("  ")[2]: line.split() for line in said.splitlines()}
    assert (rows["of broker 0"][2], rows["of all"][2]) == ("0", "-")
    assert "with these settings: 1 blockers." in said


def test_whichever_broker_is_the_controller_is_shown_as_such() -> None:
    brokers = [BrokerFacts(a_broker(b, b)) for b in (1, 2, 3)]
    rows = check_cluster._brokers(ClusterFacts(brokers, controller_id=2))
    assert [(row["broker"], row["controller"]) for row in rows] == [(1, False), (2, True), (3, False)]


def test_numbers_that_are_keys_are_texts_in_each_style(capsys: pytest.CaptureFixture[str]) -> None:
    for style, shown in (("yaml", "'1': 2\n"), ("json", '{\n  "1": 2\n}\n'), ("tsv", "1\t2\n")):
        output.print_data({1: 2}, style)
        assert capsys.readouterr().out == shown


def test_several_brokers_are_brokers() -> None:
    for ids, named in (([1], "broker 1"), ([1, 2], "brokers 1, 2"), ([0, 2, 1], "brokers 0, 2, 1")):
        assert messages.brokers_text(ids) == named
