"""What pctl says of brokers, partitions and moves that it has read, and its exit codes, without a cluster."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import click
import grpc
import pytest
from click.testing import CliRunner
from grpc.aio import Metadata

from broker_stub.client.errors import DeliveryError
from controller.cli.common import cluster_state as messages
from controller.cli.common import options, output, progress
from controller.cli.common.options import Options
from controller.cli.common.progress import Progress, follow
from controller.cli.common.requests import Refusal, refusals, report
from controller.cli.computed import explanations, from_brokers, snapshots
from controller.cli.computed.dry_run import DryRun, print_dry_run
from controller.cli.pctl import brokers, config, elect, health, reassign, records, topics
from controller.cli.pctl import cluster as cluster_verbs
from controller.cli.pctl import main as main_module
from controller.cli.pctl.main import main
from controller.cli.pctl.moving import decommission
from controller.cli.pctl.moving.load import note_copied, targets
from controller.cli.pctl.partitions import partition_row, why
from controller.client import admin, last_address
from controller.core.config_keys import HIDDEN
from controller.core.effects import TopicInfo
from controller.core.model import Attribution, Maintenance, StopApproval
from controller.errors import ControllerError
from controller.exit_codes import EXIT_FAILED, EXIT_REFUSED, EXIT_USAGE
from controller.runtime.process import EXIT_BUG, EXIT_OK
from controller.runtime.rpc.methods import ADMIN_SERVICE, METHODS
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ClusterState, PartitionInfo
from controller.runtime.zookeeper.session import ConnectionLossError, Session
from proto.gen import admin_service_pb2 as pb
from proto.gen import broker_data_pb2 as wire
from proto.gen import common_pb2
from proto.gen import inspection_pb2 as inspection
from tests.support.core.world import a_broker, state

ANN = Attribution("disks", "ann")


def moving(**changes: Any) -> TopicInfo:
    info = {"partitions": {0: (1, 2), 1: (2, 3)}, "adding": {}, "removing": {}}
    return TopicInfo("t", "id", **{**info, **changes}, version=0, czxid=1)


def cluster(*topics: TopicInfo, live: tuple[int, ...] = (1, 2, 3)) -> ClusterState:
    return ClusterState(
        100, "c:1", 7, brokers={b: a_broker(b, 50 + b) for b in live}, topics={t.name: t for t in topics}
    )


# --- refusals and exit codes -----------------------------------------------------------------------------


def test_exit_codes_are_those_that_scripts_and_units_know() -> None:
    """docs/operations.md and deploy.md; systemd starts nothing again after 2."""
    assert (EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_REFUSED, EXIT_BUG) == (0, 1, 2, 3, 70)
    assert health.EXIT_UNKNOWN == 3


def test_what_the_controller_refused_is_named_and_decides_the_exit_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    safe = Refusal("t-0", "PREFERRED_LEADER_NOT_AVAILABLE", "it is away")
    other = Refusal("t-1", "INVALID_REQUEST", "")
    assert report([]) == 0
    assert report([safe]) == EXIT_REFUSED
    assert report([safe, other]) == report([other]) == EXIT_FAILED
    first = capsys.readouterr().err.splitlines()[0]
    assert first == "pctl: t-0: PREFERRED_LEADER_NOT_AVAILABLE: it is away"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("TOPIC_DELETION_DISABLED", EXIT_REFUSED),
        ("REASSIGNMENT_IN_PROGRESS", EXIT_REFUSED),
        ("PREFERRED_LEADER_NOT_AVAILABLE", EXIT_REFUSED),
        ("ELIGIBLE_LEADERS_NOT_AVAILABLE", EXIT_REFUSED),
        ("POLICY_VIOLATION", EXIT_REFUSED),
        ("INVALID_REPLICA_ASSIGNMENT", EXIT_FAILED),
        ("UNKNOWN_TOPIC_OR_PARTITION", EXIT_FAILED),
        ("TOPIC_AUTHORIZATION_FAILED", EXIT_FAILED),
        ("NOT_CONTROLLER", EXIT_FAILED),
    ],
)
def test_a_refusal_that_protects_the_cluster_is_no_failure(error: str, code: int) -> None:
    """docs/operations.md. The errors are Kafka's."""
    assert report([Refusal("t-0", error, "")]) == code
    assert report([Refusal("t-0", error, "")], reassign.MOVE_SAFETY) == (
        EXIT_REFUSED if error == "INVALID_REPLICA_ASSIGNMENT" else code
    )


@pytest.mark.parametrize(
    ("error", "code"), [(19, EXIT_REFUSED), (20, EXIT_REFUSED), (7, EXIT_FAILED), (3, EXIT_FAILED)]
)
async def test_a_record_that_too_few_would_have_is_refused(error: int, code: int) -> None:
    """NOT_ENOUGH_REPLICAS and NOT_ENOUGH_REPLICAS_AFTER_APPEND; Kafka's numbers."""
    with pytest.raises(SystemExit) as ended:
        async with records._client_errors_fail():
            raise DeliveryError(error, "t-0", "", 1)
    assert ended.value.code == code
    assert records.ACKS == {"all": -1, "1": 1, "0": 0}


def test_only_what_carries_an_error_is_a_refusal() -> None:
    results = [
        pb.ElectLeadersResult(topic="t", partition=0),
        pb.ElectLeadersResult(topic="t", partition=1, error_code=common_pb2.ELECTION_NOT_NEEDED),
        pb.ElectLeadersResult(
            topic="t", partition=2, error_code=common_pb2.INVALID_REQUEST, error_message="no"
        ),
    ]
    answer = pb.ElectLeadersResponse(results=results)
    assert refusals([("a", results[0]), ("c", results[2])]) == [Refusal("c", "INVALID_REQUEST", "no")]
    assert [r.name for r in elect._refused(answer)] == ["t-2"], "who leads already counts as done"
    assert elect._possible(DryRun([answer], {})) == {"t-0", "t-1"}


@pytest.mark.parametrize(
    ("verdicts", "problems", "code"),
    [
        ((inspection.AUDIT_EQUAL, inspection.AUDIT_EQUAL), 0, 0),
        ((inspection.AUDIT_EQUAL, inspection.AUDIT_UNREACHABLE), 0, 3),
        ((inspection.AUDIT_EQUAL, inspection.AUDIT_PENDING), 0, 3),
        ((inspection.AUDIT_DIFFERENT, inspection.AUDIT_UNREACHABLE), 0, 1),
        ((inspection.AUDIT_EQUAL, inspection.AUDIT_EQUAL), 1, 1),
    ],
)
def test_an_audit_is_good_only_where_all_were_asked(
    verdicts: tuple[inspection.AuditVerdict, ...], problems: int, code: int
) -> None:
    answer = inspection.AuditResponse(
        brokers=[inspection.BrokerAudit(broker_id=n, verdict=v) for n, v in enumerate(verdicts)],
        problems=[inspection.ReplicaProblem(topic="t")] * problems,
    )
    assert brokers._exit_code(answer) == code


@pytest.mark.parametrize(
    ("verb", "first"),
    [(["brokers"], "broker\t"), (["partitions"], "topic\tpartition\t"), (["topics", "list"], "topic\tid\t")],
)
def test_brokers_answer_three_verbs_each_with_its_own(
    verb: list[str], first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def asked(*_: Any) -> wire.MetadataResponse:
        return wire.MetadataResponse()

    monkeypatch.setattr(from_brokers, "_asked", asked)
    shown = CliRunner().invoke(main, ["--bootstrap", "h:1", "-o", "tsv", *verb])
    assert (shown.exit_code, shown.output.startswith(first)) == (0, True)
    repeated = CliRunner().invoke(main, ["--bootstrap", "h:1", *verb, "--watch", "1"])
    assert (repeated.exit_code, "cannot answer" in repeated.output) == (2, True)


def test_an_audit_fills_its_columns_and_says_of_each_broker_how_it_is() -> None:
    words = {
        "AUDIT_NOT_YET": "not asked yet",
        "AUDIT_EQUAL": "equal",
        "AUDIT_DIFFERENT": "different",
        "AUDIT_PENDING": "pending",
        "AUDIT_UNREACHABLE": "not reached",
        "AUDIT_PARTIAL": "partly compared",
    }
    rows = {v: brokers._audited(inspection.BrokerAudit(verdict=v)) for v in words}
    assert list(words) == inspection.AuditVerdict.keys()
    assert {verdict: row["verdict"] for verdict, row in rows.items()} == words
    problem = brokers._problem(inspection.ReplicaProblem(topic="t"))
    (finding,) = brokers._findings([problem])
    shown = (brokers._AUDIT_COLUMNS, brokers._PROBLEM_COLUMNS, brokers._FINDING_COLUMNS)
    for row, columns in zip((rows["AUDIT_EQUAL"], problem, finding), shown, strict=True):
        assert tuple(row) == columns


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ({}, None),
        ({"asked_at_ms": 9_990_000, "age_s": 30.2}, 30),
        ({"asked_at_ms": 9_990_000, "age_s": 0.0}, 0),
    ],
)
def test_how_long_ago_a_broker_was_compared_is_no_matter_of_two_clocks(
    told: dict[str, Any], shown: int | None
) -> None:
    found = inspection.BrokerAudit(verdict=inspection.AUDIT_EQUAL, **told)
    assert brokers._audited(found)["compared_s_ago"] == shown


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (
            admin.RefusedError("h:1", "ResignController", "OPERATION_NOT_ATTEMPTED", "no standby"),
            EXIT_REFUSED,
        ),
        (admin.RefusedError("h:1", "ResignController", "CLUSTER_AUTHORIZATION_FAILED", "no"), EXIT_FAILED),
        (admin.NoAnswerError("nobody answers"), EXIT_FAILED),
    ],
)
def test_leadership_stays_where_it_is_for_safety_or_because_it_failed(
    error: admin.RequestFailedError, code: int
) -> None:
    with pytest.raises(SystemExit) as ended:
        cluster_verbs._fail(error)
    assert ended.value.code == code


# --- settings, topics and features -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "kind", "name"),
    [
        (("t", None, False, None, False), pb.TOPIC, "t"),
        ((None, 0, False, None, False), pb.BROKER, "0"),
        ((None, None, True, None, False), pb.BROKER, ""),
        ((None, None, False, 0, False), pb.CONTROLLER, "0"),
        ((None, None, False, None, True), pb.CONTROLLER, ""),
        ((None, None, False, None, False), None, ""),
        (("t", None, True, None, False), None, ""),
        ((None, 0, True, None, False), None, ""),
        ((None, None, True, None, True), None, ""),
    ],
)
def test_settings_are_of_one_that_is_named(given: Any, kind: Any, name: str) -> None:
    if kind is None:
        with pytest.raises(click.UsageError, match="name one of"):
            config._named(*given)
        return
    assert config._named(*given) == pb.ConfigResource(resource_type=kind, resource_name=name)


@pytest.mark.parametrize(
    ("resource", "changing"),
    [
        (pb.ConfigResource(resource_type=pb.BROKER, resource_name="1"), {"b", "c", "own=", "gone"}),
        (pb.ConfigResource(resource_type=pb.BROKER), {"a", "c", "default=", "gone"}),
    ],
)
async def test_only_what_is_set_for_the_same_can_have_it_so(
    monkeypatch: pytest.MonkeyPatch, resource: pb.ConfigResource, changing: set[str]
) -> None:
    """A default of all brokers does not make a setting of one of them unnecessary. "=": is deleted."""
    answer = pb.DescribeConfigsResponse()
    result = answer.results.add(resource=resource)
    for key in ("a", "own"):
        result.configs.add(name=key, value="1", source="brokers/1")
    for key in ("b", "default"):
        result.configs.add(name=key, value="2", source="brokers/<default>")
    result.configs.add(name="ssl.key.password", value=HIDDEN, source="brokers/1")
    result.configs.add(name="sasl.jaas.config", value=HIDDEN, source="brokers/<default>")

    async def ask(*_: Any) -> pb.DescribeConfigsResponse:
        return answer

    monkeypatch.setattr(config, "ask", ask)
    wanted = {"a": "1", "b": "2", "c": "3", "own=": None, "default=": None, "gone": "1"}
    nothing: Any = None
    rows = await config._present(
        nothing, nothing, resource, {key.rstrip("="): value for key, value in wanted.items()}
    )
    assert {key for key, row in zip(wanted, rows, strict=True) if row["changes"]} == changing
    (hidden,) = await config._present(nothing, nothing, resource, {"ssl.key.password": "secret"})
    assert (hidden["new"], hidden["changes"]) == (HIDDEN, True), "what is hidden may differ"


INTERNAL = TopicInfo("__consumer_offsets", "id", {0: (1,)}, {}, {}, version=0, czxid=2)


async def test_topics_are_listed_with_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While a partition is moved it has more replicas than the others."""
    known = cluster(moving(partitions={0: (1, 2), 1: (2, 3, 1)}), INTERNAL)

    async def look(*_: Any, **__: Any) -> ClusterState:
        return known

    monkeypatch.setattr(cluster_reader, "look", look)
    listed: Any = inspect.unwrap(topics.topics_list.callback)  # type: ignore[arg-type]
    await listed(Options("", "json", 1), None, internal=False)
    (row,) = json.loads(capsys.readouterr().out)
    assert [row[name] for name in ("topic", "partitions", "replication_factor")] == ["t", 2, 3]


async def test_a_round_that_fails_is_shown_and_not_the_last(capsys: pytest.CaptureFixture[str]) -> None:
    printer = options._Rounds("tsv", 1.0)
    for error in (SystemExit(1), ConnectionLossError(), ControllerError("gone"), None):

        async def work(raised: BaseException | None = error) -> None:
            click.echo("a row")
            if raised is not None:
                raise raised

        await options._round(Options("", "tsv", 1), printer, work())
    shown = capsys.readouterr()
    assert shown.out.count("a row") == 4
    assert [line.partition("pctl: ")[2] for line in shown.err.splitlines()][1:] == ["gone"]


def test_an_answer_says_in_data_where_it_is_from() -> None:
    assert (snapshots.CONTROLLER, snapshots.ZOOKEEPER) == ("controller", "zookeeper")


def test_access_to_zookeeper_may_be_in_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = {setting.name: None for setting in main_module._ACCESS.settings}
    assert main_module._access(flags) is None
    monkeypatch.setenv("PCTL_ZOOKEEPER_SSL_CLIENT_ENABLE", "true")
    assert main_module._access(flags) is not None
    for wrong in ("perhaps", ""):
        monkeypatch.setenv("PCTL_ZOOKEEPER_SSL_CLIENT_ENABLE", wrong)
        with pytest.raises(click.UsageError):
            main_module._access(flags)


async def test_a_topic_has_a_size_where_all_its_replicas_have(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = inspection.DescribeReplicasResponse()
    for topic, sizes in (("t", (1, 2)), ("t", (3,)), ("u", (4, -1)), ("v", (-1,))):
        partition = answer.partitions.add(topic=topic)
        for size in sizes:
            partition.replicas.add(size_bytes=size)

    async def ask(*_: Any) -> inspection.DescribeReplicasResponse:
        return answer

    monkeypatch.setattr(topics, "ask", ask)
    state = cluster(moving(partitions={0: (1, 2), 1: (2, 3)}))
    rows = [topics._topic_row(state, name, 0) for name in ("t", "u", "v", "w")]
    assert [rows[0][name] for name in ("partitions", "replicas", "brokers")] == [2, 4, [1, 2, 3]]
    nothing: Any = None
    await topics._add_sizes(nothing, nothing, rows)
    assert [row["size"] for row in rows] == [6, "unknown", "unknown", "unknown"]


async def test_only_the_deletion_that_was_accepted_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[str] = []

    async def look(*_: Any, **__: Any) -> ClusterState:
        return cluster(moving())

    async def ask(*_: Any, **__: Any) -> Any:
        return pb.DeleteTopicsResponse(
            responses=[
                pb.DeletedTopic(name="t"),
                pb.DeletedTopic(name="u", error_code=common_pb2.TOPIC_DELETION_DISABLED),
            ]
        )

    async def wait(_options: Any, _session: Any, names: list[str]) -> None:
        waited.extend(names)

    monkeypatch.setattr(cluster_reader, "look", look)
    for name, made in (("ask", ask), ("ask_with_reason", ask), ("_wait_until_deleted", wait)):
        monkeypatch.setattr(topics, name, made)
    monkeypatch.setattr(topics, "fail_without_topics", lambda *_: None)
    monkeypatch.setattr(topics, "_add_sizes", ask)
    delete: Any = inspect.unwrap(topics.delete_topics.callback)  # type: ignore[arg-type]
    with pytest.raises(SystemExit) as ended:
        await delete(
            Options("", "tsv", 1), None, ("t", "u"), reason=None, yes=True, dry_run=False, no_wait=False
        )
    assert (ended.value.code, waited) == (EXIT_REFUSED, ["t"])


# --- progress ------------------------------------------------------------------------------------------------


async def test_who_waits_says_why_also_when_nobody_answers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "POLL_EVERY_S", 0)
    monkeypatch.setattr(progress, "NOTE_EVERY_S", 0)
    found: Iterator[Progress | Exception] = iter(
        [
            Progress(2, 3, ("t-0: waits", "t-1: waits")),
            admin.NoAnswerError("nobody answers"),
            Progress(1, 3, ("t-1: waits",)),
            Progress(0, 3),
        ]
    )

    async def measure() -> Progress:
        now = next(found)
        if isinstance(now, Exception):
            raise now
        return now

    assert await follow(Options("", "table", 600.0), "are done", measure) == Progress(0, 3)
    assert capsys.readouterr().err.splitlines() == [
        "1 of 3 are done: t-0: waits; t-1: waits",
        "1 of 3 are done: nobody answers",
        "2 of 3 are done: t-1: waits",
        "3 of 3 are done",
    ]


@pytest.mark.parametrize("ended", [asyncio.CancelledError(), ConnectionLossError()], ids=type)
async def test_who_waits_no_longer_hears_that_the_work_goes_on(
    ended: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    async def measure() -> Progress:
        raise ended

    with pytest.raises(type(ended)):
        await follow(Options("", "table", 600.0), "are done", measure)
    assert "continues in the background" in capsys.readouterr().err


@pytest.mark.parametrize(
    "now", [cluster(), replace(cluster(moving()), deleting=["t"])], ids=["gone", "going"]
)
async def test_who_waits_for_leaders_of_a_topic_that_another_deletes_waits_no_longer(
    now: ClusterState, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def look(*_: Any, **__: Any) -> ClusterState:
        return now

    monkeypatch.setattr(cluster_reader, "look", look)
    session = cast("Session", None)
    with pytest.raises(SystemExit) as ended:
        await topics.wait_for_leaders(Options("", "table", 600.0), session, "t", [1])
    assert ended.value.code == EXIT_FAILED
    assert "topic t is being deleted, or is deleted already" in capsys.readouterr().err


@pytest.mark.parametrize(("patient", "silent", "polls"), [(False, 0, 3), (True, 0, 5), (True, 1, 6)])
async def test_the_time_counts_anew_only_where_something_gets_done(
    patient: bool, silent: int, polls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look takes 10 s, and 25 s are to be waited; of those with an answer, something is done at the second only."""
    monkeypatch.setattr(progress, "POLL_EVERY_S", 0)
    looks = 0
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: 10.0 * looks))

    async def measure() -> Progress:
        nonlocal looks
        looks += 1
        if looks <= silent:
            raise admin.NoAnswerError("nobody answers")
        return Progress(5 if looks == silent + 1 else 4, 5)

    assert (await follow(Options("", "table", 25.0), "are done", measure, patient=patient)).left == 4
    assert looks == polls


# --- rows ----------------------------------------------------------------------------------------------------


def test_no_term_lasts_less_than_no_time() -> None:
    """Whose clock is behind that of the controller sees its term begin in the future."""
    assert [cluster_verbs._lasted_s(1_000, until_ms) for until_ms in (3_500, 1_000, 400)] == [2.5, 0.0, 0.0]


def test_the_states_of_a_broker() -> None:
    now = cluster()
    now.maintenance = Maintenance(drained={2: ANN})
    # Of a former life of broker 1.
    lives = {1: now.brokers[1].epoch - 1, 3: now.brokers[3].epoch}
    now.approvals = {b: StopApproval(epoch, "disks", "ann", 0) for b, epoch in lives.items()}
    known = {b: pb.BrokerDescription(broker_id=b) for b in (1, 2)}
    known[1].hold_s = 5

    def states(id_: int, described: dict[int, Any] | None) -> list[str]:
        return brokers._state(now, now.brokers[id_], described, (2,) if described is not None else ())

    assert states(1, known) == ["flapping"]
    assert states(2, known) == ["shutting down", "drained"]
    assert states(3, known) == ["ignored", "approved to stop"]
    assert states(1, None) == ["ready"], "from ZooKeeper alone"


def test_the_load_of_a_broker() -> None:
    now = cluster()
    now.partitions = [
        PartitionInfo("t", 0, (1, 2), state(1, (1,), 0, 0)),
        PartitionInfo("t", 1, (2, 1), state(2, (2, 1), 0, 0)),
        PartitionInfo("t", 2, (1, 2), None),
    ]
    load = brokers._loads(now)
    now.partitions.clear()  # They are counted once, not for each broker.
    assert load(1) == {"leaders": 1, "replicas": 3, "in_sync": 2}
    assert load(2) == {"leaders": 1, "replicas": 3, "in_sync": 1}


def test_a_partition_has_no_more_min_isr_than_replicas_and_all_reasons() -> None:
    now = cluster(live=(1,))
    now.configs = {"t": {"min.insync.replicas": "3"}}
    row = partition_row(
        now, PartitionInfo("t", 0, (1, 2), state(1, (1,), 4, 6)), {("t", 0): ["broker 1 refuses it", "too"]}
    )
    assert (row["min_isr"], row["recovery"]) == (2, "RECOVERED")
    assert row["why"] == "out of sync: 2 (offline); broker 1 refuses it; too"


def test_an_isr_that_came_back_empty_is_said_to_need_an_unclean_election() -> None:
    now = cluster()
    now.brokers = {1: a_broker(1, 51, directories=(11,)), 2: a_broker(2, 52, directories=(22,))}
    kept = state(-1, (1,), 4, 6)
    lost = PartitionInfo("t", 0, (1, 2), type(kept)(-1, 4, (1,), 6, 1, 0, (7,)))
    assert "only an unclean election helps" in why(now, lost)
    assert "no new leader is elected yet" in why(now, PartitionInfo("t", 0, (1, 2), kept))


def test_a_name_that_is_there_but_cannot_be_read_is_not_called_absent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = cluster()
    now.problems["/brokers/topics/broken"] = "not JSON"
    messages.fail_without_topics(now, ["broken"])
    with pytest.raises(SystemExit):
        messages.fail_without_topics(now, ["broken", "absent"])
    with pytest.raises(SystemExit):
        messages.fail_without_readable_topic(now, "broken")
    assert capsys.readouterr().err.splitlines() == [
        "pctl: no topic 'absent'",
        "pctl: /brokers/topics/broken: not JSON",
    ]


def test_who_entered_maintenance() -> None:
    shown = messages.maintenance_fields(Maintenance(entered=ANN, automatic=True))["maintenance"]
    assert shown == messages.maintenance_fields(Maintenance(entered=ANN))["maintenance"] + " (automatic)"


def test_rows_that_differ_in_their_keys_have_all_of_them_as_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.print_data([{"a": 1}, {"a": None, "b": True}, {"b": [1, 2]}], "tsv")
    assert capsys.readouterr().out == "a\tb\n1\t\n\ttrue\n\t1,2\n"


# --- moves -----------------------------------------------------------------------------------------------


def test_where_partitions_will_be() -> None:
    """What waits for its turn comes after what is under way; what is deleted will be nowhere."""
    info = moving(
        partitions={0: (1, 2, 3), 1: (2, 3), 2: (3, 1)},
        adding={0: (3,)},
        removing={0: (1,)},
        queued={0: (5, 6), 1: (4,)},
    )
    gone = TopicInfo("gone", "id2", {0: (1,)}, {}, {}, 0, 1)
    now = cluster(info, gone)
    now.deleting = ["gone"]
    assert targets(now) == {("t", 0): (5, 6), ("t", 1): (4,), ("t", 2): (3, 1)}
    assert targets(cluster(moving(partitions={0: (1, 2, 3)}, adding={0: (3,)}, removing={0: (1,)}))) == {
        ("t", 0): (2, 3)
    }


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({("t", 0): 1024, ("t", 1): 1024}, ": 3.0 KiB"),
        ({("t", 0): 1024}, ": 1.0 KiB and 2 of unknown size"),
        ({}, ", of unknown size"),
    ],
)
def test_how_much_is_copied(
    sizes: dict[tuple[str, int], int], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    current = {("t", 0): (1, 2), ("t", 1): (2, 3), ("t", 2): (1, 2)}
    note_copied(current, {("t", 0): (3, 2), ("t", 1): (1, 4)}, sizes)
    assert capsys.readouterr().err == f"2 of 3 partitions change, 3 replicas are copied{said}\n"


def test_what_a_cancellation_keeps_is_in_the_order_of_before() -> None:
    entry = pb.OngoingPartitionReassignment(
        topic="t", partition=0, replicas=[3, 2, 1], adding_replicas=[3], removing_replicas=[1]
    )
    assert reassign._kept(moving(original={0: (1, 2)}), entry) == [1, 2]
    assert reassign._kept(moving(), entry) == [2, 1]
    assert reassign._kept(None, entry) == [2, 1]


def test_what_a_broker_that_goes_still_waits_for() -> None:
    """Leftovers on a broker that is gone are deleted when it returns: nothing waits for them."""
    info = moving(
        partitions={0: (1, 2), 1: (2, 3), 2: (1, 3), 3: (2, 3)},
        queued={0: (2, 3)},
        stray={1: (1,), 3: (9,)},
    )
    assert decommission._moving(cluster(info), (1, 9)) == [("t", 0), ("t", 1)]
    assert decommission._moving(cluster(info, live=(1, 2, 3, 9)), (9,)) == [("t", 3)]


@pytest.mark.parametrize(
    ("changes", "live", "said"),
    [
        ({"partitions": {0: (2, 3)}}, (1, 2), "nothing is left on broker 1: it may be stopped for good"),
        ({"partitions": {0: (1, 3)}}, (1, 2), "broker 1 still has 1 partition: t-0; run it again"),
        (
            {"partitions": {0: (2, 3)}, "queued": {0: (1,)}},
            (1, 2),
            "broker 1 still has 1 partition: t-0; run it again",
        ),
        (
            {"partitions": {0: (2, 3)}, "stray": {0: (1,)}},
            (1, 2),
            "broker 1 has not yet deleted 1 old replica; run it again",
        ),
        (
            {"partitions": {0: (2, 3)}, "stray": {0: (1,)}},
            (2,),
            "nothing is assigned to broker 1, which is gone; 1 old replica would be deleted if it came back",
        ),
    ],
)
def test_a_broker_is_said_to_be_empty_only_if_it_is(
    changes: dict[str, Any], live: tuple[int, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with nullcontext() if "nothing" in said else pytest.raises(SystemExit):
        decommission._say_empty(cluster(moving(**changes), live=live), [1])
    assert capsys.readouterr().err.removeprefix("pctl: ") == f"{said}\n"


@pytest.mark.parametrize(
    ("live", "said"),
    [
        ((1, 2, 3), "run it again once t is deleted\n"),
        ((2, 3), "run it again once t is deleted; if the broker does not return, pctl brokers forget 1\n"),
    ],
)
def test_a_topic_that_is_being_deleted_is_not_moved_by_running_it_again(
    live: tuple[int, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    now = cluster(moving(), live=live)
    now.deleting = ["t"]
    with pytest.raises(SystemExit):
        decommission._say_empty(now, [1])
    assert capsys.readouterr().err == f"pctl: broker 1 still has 1 partition: t-0; {said}"


# --- what brokers and dry runs say -----------------------------------------------------------------------


def test_pushes_of_a_dry_run_are_in_the_order_of_the_brokers(capsys: pytest.CaptureFixture[str]) -> None:
    kind = "update_metadata"
    data: dict[str, Any] = {"writes": [], "pushes": {"10": {kind: 1}, "9": {kind: 2}}, "notes": ["a note"]}
    print_dry_run(Options("", "table", 1.0), DryRun([], data))
    shown = capsys.readouterr()
    assert re.findall(r"^(\d+) ", shown.out, re.M) == ["9", "10"]
    assert shown.err.splitlines() == ["nothing would be written", "a note"]
    data["writes"] = [
        {"when": when, "path": "/x", "old": None, "new": ""} for when in ("at once", "then", "then")
    ]
    print_dry_run(Options("", "table", 1.0), DryRun([], data))
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.endswith(":")][:2] == ["at once:", "then:"]
    assert sum(line.split() == ["/x", "-", "(empty)"] for line in lines) == 3


@pytest.mark.parametrize(("active", "epoch"), [(True, 7), (False, 8)])
def test_a_snapshot_is_that_of_the_active_controller_or_of_the_next(active: bool, epoch: int) -> None:
    now = cluster()
    now.controller_id = 100 if active else -1
    assert snapshots.snapshot_of(now).controller_epoch == epoch


# --- requests without an answer ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "harmless"),
    [(name, not rpc.recorded) for name, rpc in METHODS[ADMIN_SERVICE].items() if name != "Watch"],
)
@pytest.mark.parametrize("answered", [False, True])
async def test_what_may_have_been_changed_is_to_be_checked_before_it_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, method: str, harmless: bool, answered: bool
) -> None:
    async def no_answer(*_: object, **__: object) -> Any:
        if answered:
            return SimpleNamespace(error_code=common_pb2.NOT_CONTROLLER)
        raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, Metadata(), Metadata(), "gone")

    monkeypatch.setattr(admin, "open_channel", lambda *_: nullcontext())
    monkeypatch.setattr(admin, "AdminServiceStub", lambda _: SimpleNamespace(**{method: no_answer}))
    with pytest.raises(admin.NoAnswerError) as raised:
        await admin.ask("h:1", method, None, 1.0)
    assert ("check whether it was carried out" in str(raised.value)) is not harmless
    assert ("; try again" in str(raised.value)) == (answered and harmless)


async def test_what_a_controller_refuses_is_not_answered_from_zookeeper(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """But where it cannot tell, as a failover is under way, ZooKeeper can."""
    refusals = ["OPERATION_NOT_ATTEMPTED", "INVALID_REQUEST"]

    async def look(*_: object, **__: object) -> ClusterState:
        return cluster()

    async def ask(endpoint: str, method: str, *_: object) -> Any:
        error = refusals.pop(0)
        raise admin.RefusedError(endpoint, method, error, f"why: {error}")

    monkeypatch.setattr(cluster_reader, "look", look)
    monkeypatch.setattr(admin, "ask", ask)
    remembered: list[str] = []
    monkeypatch.setattr(last_address, "remember", lambda _, endpoint: remembered.append(endpoint))
    options, session = Options("", "json", 1.0), cast("Session", None)
    assert await snapshots.ask_unless_offline(options, session, "Plan", None) is None
    assert remembered == [], "the next one does not ask it first"
    assert "from ZooKeeper alone (why: OPERATION_NOT_ATTEMPTED)" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        await snapshots.ask_unless_offline(options, session, "Plan", None)
    assert capsys.readouterr().err == "pctl: why: INVALID_REQUEST\n"


def test_a_snapshot_has_what_is_being_deleted_and_what_topics_allow() -> None:
    now = cluster(moving())
    now.deleting, now.partitions = ["t"], [PartitionInfo("t", 0, (1, 2), state(-1, (9,), 3, 5))]
    assert snapshots.snapshot_of(now).deleting == ("t",)
    now.deleting = []

    def decided(allowed: str) -> Any:
        now.configs = {"t": {"unclean.leader.election.enable": allowed}}
        return explanations.of_partition(snapshots.snapshot_of(now), "t", 0, controller_active=True)

    allowed, denied = decided("true"), decided("false")
    assert allowed != denied
    now.problems = {"/config/topics/t": "no JSON"}
    unreadable = decided("true")
    why = "its settings are unreadable, and permit no unclean election: /config/topics/t: no JSON"
    assert (list(unreadable["notes"]), unreadable["rules"]) == ([why], denied["rules"])
