"""Options, questions and daemons' commands that no verb has for itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import click
import pytest
from click.testing import CliRunner, Result

from controller.cli import zookeeper as zookeeper_module
from controller.cli import zookeeper_security_migration as migration
from controller.cli.common import confirmation, options, replica_problems
from controller.cli.common.broker_addresses import broker_addresses
from controller.cli.common.options import Options, Verb
from controller.cli.main import main as partition_controller
from controller.cli.pctl.main import main
from controller.client import admin
from controller.core.model import Broker, Endpoint
from controller.errors import EnvironmentFault
from controller.exit_codes import EXIT_REFUSED
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.acl_migration import Migrated
from controller.runtime.zookeeper.cluster_reader import ClusterState
from controller.runtime.zookeeper.session import ConnectionLossError, Session
from controller.workload import checker, load
from proto.gen import inspection_pb2
from proto.security.tokens import tokens_in

SESSION = cast("Session", None)


# --- options -------------------------------------------------------------------------------------------------


@click.command(cls=Verb)
@click.argument("names", nargs=-1)
def listing(names: tuple[str, ...]) -> None:
    click.echo(" ".join(names))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(listing, arguments, obj=Options("h:1", "table", 1.0))


def test_texts_are_utf_8_also_in_lists() -> None:
    assert run("a", "b").output == "a b\n"
    refused = run("a", "\udcff")
    assert (refused.exit_code, "must be UTF-8" in refused.output) == (2, True)


def test_how_it_is_shown_may_be_said_twice() -> None:
    assert run("a", "-o", "json", "-o", "tsv").exit_code == 0


def test_an_option_of_the_program_has_its_place_before_the_verb() -> None:
    refused = CliRunner().invoke(main, ["topics", "list", "--timeout", "3"])
    assert (refused.exit_code, "--timeout: give it before the verb" in refused.output) == (2, True)


def test_a_token_is_sent_over_tls_only(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    refused = CliRunner().invoke(main, [f"--token-file={tmp_path / 'token'}", "--zookeeper=h:1", "cluster"])
    assert (refused.exit_code, "tokens are sent over TLS only" in refused.output) == (2, True)


async def test_a_round_without_an_answer_ends(capsys: pytest.CaptureFixture[str]) -> None:
    async with asyncio.timeout(20):
        await options._round(
            Options("h:1", "tsv", 0.01), options._Rounds("tsv", 1.0), cast("Any", asyncio.Event().wait())
        )
    text = "pctl: ZooKeeper at h:1 or the controller gave no answer within 0.02 s\n"
    assert capsys.readouterr().err == text


async def test_a_watch_tries_again_after_its_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    class Enough(Exception):  # noqa: N818
        pass

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise Enough

    def away(_: Options) -> Any:
        raise EnvironmentFault("away")

    monkeypatch.setattr(Options, "connected", away)
    monkeypatch.setattr(options, "asyncio", SimpleNamespace(sleep=pause))
    with pytest.raises(Enough):
        await options._repeat(Options("h:1", "tsv", 1.0), 2.5, cast("Any", None))
    assert pauses == [2.5, 2.5]


async def test_a_watch_goes_on_in_another_session(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds: list[int] = []
    opened: list[Any] = []

    @asynccontextmanager
    async def connected(_: Options) -> AsyncIterator[Any]:
        opened.append(SimpleNamespace(over=False))
        yield opened[-1]

    async def work(session: Any) -> None:
        rounds.append(len(opened))
        session.over = len(rounds) % 2 == 0
        if len(rounds) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(Options, "connected", connected)
    with pytest.raises(KeyboardInterrupt):
        await options._repeat(Options("h:1", "tsv", 1.0), 0.0, work)
    assert rounds == [1, 1, 2, 2]
    assert capsys.readouterr().out == "\n\n", "an empty line before all but the first"


def test_a_session_is_opened_where_it_is_asked_for_and_nothing_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        cluster_reader, "connected", lambda *given, **more: asked.append((given, more["create_chroot"]))
    )
    Options("h:1/x", "table", 2.5).connected()
    assert asked == [(("h:1/x", 2500), False)]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionLossError(), "pctl: the connection to ZooKeeper at h:1 was lost\n"),
        (EnvironmentFault("no ZooKeeper"), "pctl: no ZooKeeper\n"),
    ],
)
def test_an_expected_failure_is_a_line(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @asynccontextmanager
    async def connected(_: Options) -> AsyncIterator[Any]:
        yield SESSION

    @options.on_cluster
    async def verb(_options: Options, _session: Session) -> None:
        raise error

    monkeypatch.setattr(Options, "connected", connected)
    with pytest.raises(SystemExit) as ended:
        verb(Options("h:1", "table", 1.0))
    assert (ended.value.code, capsys.readouterr().err) == (1, said)
    with pytest.raises(click.UsageError, match="brokers answer only"):
        verb(Options("", "table", 1.0, bootstrap=["b:1"]))


def test_rounds_of_yaml_are_documents(capsys: pytest.CaptureFixture[str]) -> None:
    printer = options._Rounds("yaml", 1.0)
    for _ in range(2):
        printer.show("a: 1\n", "")
    assert capsys.readouterr().out == "---\na: 1\n---\na: 1\n"


@pytest.mark.parametrize(("typed", "offered"), [("pa", ["partitions"]), ("tion", [])])
def test_completion_offers_verbs_that_begin_so(typed: str, offered: list[str]) -> None:
    context = click.Context(main)
    assert [item.value for item in main.shell_complete(context, typed)] == offered


def test_brokers_are_addressed_by_number_and_by_our_listener() -> None:
    ours, other = Endpoint("GRPC", "PLAINTEXT", "g", 1), Endpoint("PLAINTEXT", "PLAINTEXT", "p", 2)
    brokers = {2: Broker(2, 1, (other, ours)), 1: Broker(1, 1, (other, Endpoint("X", "PLAINTEXT", "x", 3)))}
    assert broker_addresses(ClusterState(brokers=brokers)) == ["p:2", "g:1"]


async def test_a_partition_may_have_several_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = inspection_pb2.AuditResponse()
    for broker in (1, 2):
        answer.problems.add(topic="t", partition=0, broker_id=broker, what="refuses")

    async def ask(*_: Any) -> Any:
        return answer

    monkeypatch.setattr(admin, "ask", ask)
    found = await replica_problems.replica_problems(Options("h:1", "table", 1.0), ClusterState(1, "c:1", 7))
    assert found == {("t", 0): ["broker 1 refuses", "broker 2 refuses"]}


async def test_without_the_controller_s_answer_no_problem_is_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def ask(*_: Any) -> Any:
        raise admin.NoAnswerError("nobody answers")

    monkeypatch.setattr(admin, "ask", ask)
    assert not await replica_problems.replica_problems(
        Options("h:1", "table", 1.0), ClusterState(1, "c:1", 7)
    )
    assert "(nobody answers): refusals of brokers are not known" in capsys.readouterr().err


# --- questions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agrees", [False, True])
def test_a_question_is_asked_beside_the_data_and_a_no_changes_nothing(
    agrees: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, bool]] = []

    def ask(question: str, *, err: bool = False) -> bool:
        asked.append((question, err))
        return agrees

    monkeypatch.setattr(confirmation, "is_interactive", lambda: True)
    monkeypatch.setattr(click, "confirm", ask)
    if agrees:
        confirmation.confirm("Delete?", yes=False)
    else:
        with pytest.raises(SystemExit) as ended:
            confirmation.confirm("Delete?", yes=False)
        assert ended.value.code == EXIT_REFUSED
    assert asked == [("Delete?", True)]


def test_a_dry_run_of_nothing_has_no_writes(capsys: pytest.CaptureFixture[str]) -> None:
    confirmation.nothing_to_do(Options("h:1", "json", 1.0), "all is so", dry_run=True)
    assert json.loads(capsys.readouterr().out) == {"writes": [], "pushes": {}, "notes": []}
    confirmation.nothing_to_do(Options("h:1", "json", 1.0), "all is so")
    assert json.loads(capsys.readouterr().out) == []


# --- partition-controller ------------------------------------------------------------------------------------


def test_a_token_that_cannot_be_kept_is_not_shown(tmp_path: Path) -> None:
    failed = CliRunner().invoke(
        partition_controller, ["tokens", "add", "a", f"--file={tmp_path / 'no' / 'x'}"]
    )
    assert (failed.exit_code, failed.stdout) == (1, "")


def test_a_file_of_tokens_that_cannot_be_read_stays(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    token = CliRunner().invoke(partition_controller, ["tokens", "add", "a", f"--file={file}"]).stdout.strip()
    held = file.read_bytes()
    file.write_bytes(held + b"\xff\n")
    failed = CliRunner().invoke(partition_controller, ["tokens", "add", "b", f"--file={file}"])
    assert (failed.exit_code, "cannot be read" in failed.output) == (1, True)
    assert file.read_bytes() == held + b"\xff\n"
    file.write_bytes(held)
    assert tokens_in(file).current().holder(token) == "a"


def test_a_setting_without_a_flag_is_said_to_have_none() -> None:
    refused = CliRunner().invoke(partition_controller, ["check-config", "--delete-topic-enable=false"])
    said = " ".join(refused.output.split())
    assert refused.exit_code == 2
    assert "this setting has no flag: give it as PARTITION_CONTROLLER_DELETE_TOPIC_ENABLE" in said


def test_certificates_are_looked_at_before_a_daemon_starts(tmp_path: Path) -> None:
    (tmp_path / "junk.pem").write_text("junk")
    refused = CliRunner(
        env={
            **{
                f"PARTITION_CONTROLLER_SSL_{name}": str(tmp_path / "junk.pem")
                for name in ("CA", "CERTIFICATE", "KEY")
            },
            "PARTITION_CONTROLLER_HTTP_LISTEN": "127.0.0.1:0",
            "PARTITION_CONTROLLER_HTTP_SSL": "false",
        }
    ).invoke(partition_controller, ["check-config", "--controller-id=1"])
    assert (refused.exit_code, "ssl_" in refused.stderr) == (2, True), refused.output


@pytest.mark.parametrize(("kind", "secured"), [("secure", True), ("unsecure", False)])
@pytest.mark.parametrize("failures", [0, 3])
def test_a_migration_secures_or_opens_and_ends_as_it_went(
    kind: str, secured: bool, failures: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    async def migrate(settings: Any, _check: bool) -> Migrated:
        asked.append(settings.zookeeper_set_acl)
        return Migrated(7, failures, ["/a"][:failures])

    monkeypatch.setattr(migration, "_migrate", migrate)
    (tmp_path / "password").write_text("p")
    (tmp_path / "password").chmod(0o600)
    login = ["--zookeeper-digest-username=kafka", f"--zookeeper-digest-password-file={tmp_path / 'password'}"]
    done = CliRunner().invoke(
        partition_controller, ["zookeeper-security-migration", f"--acl={kind}", "--zookeeper=h:1", *login]
    )
    assert (done.exit_code, asked) == (int(failures > 0), [secured]), done.output
    assert ("and 2 more" in done.output) is (failures > 0)


def test_a_migration_whose_connection_is_lost_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: Any) -> Migrated:
        raise ConnectionLossError

    monkeypatch.setattr(migration, "_migrate", lost)
    (tmp_path / "password").write_text("p")
    (tmp_path / "password").chmod(0o600)
    login = ["--zookeeper-digest-username=kafka", f"--zookeeper-digest-password-file={tmp_path / 'password'}"]
    done = CliRunner().invoke(
        partition_controller, ["zookeeper-security-migration", "--acl=secure", "--zookeeper=h:1", *login]
    )
    assert (done.exit_code, done.output) == (
        1,
        "zookeeper-security-migration: the connection to ZooKeeper was lost: run it again\n",
    )


def test_of_an_ensemble_that_lost_a_server_it_is_said_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def server(port: int, *, runs: bool) -> Any:
        process = SimpleNamespace(returncode=None if runs else 9)
        return SimpleNamespace(
            running=lambda: runs, process=process, last_words=lambda: "", data_dir=tmp_path, client_port=port
        )

    stopped: list[int] = []
    ensemble: Any = SimpleNamespace(
        start=lambda: None, stop=lambda: stopped.append(1), connect_string="h:1",
        servers=[server(1, runs=True), server(2, runs=False), server(3, runs=True)],
    )  # fmt: skip
    monkeypatch.setattr(zookeeper_module, "EmbeddedZooKeeper", lambda *_: ensemble)
    monkeypatch.setattr(
        zookeeper_module, "signal", SimpleNamespace(signal=lambda *_: None, SIGHUP=1, SIGTERM=2, SIGINT=3)
    )
    monkeypatch.setattr(
        zookeeper_module,
        "threading",
        SimpleNamespace(Event=lambda: SimpleNamespace(wait=lambda _: False, set=None)),
    )
    ended = CliRunner().invoke(partition_controller, ["zookeeper", "--servers=3", f"--data-dir={tmp_path}"])
    assert (ended.exit_code, stopped) == (1, [1])
    assert "server on port 2 ended unexpectedly with 9" in ended.stderr


# --- workload and verdict ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "acks"), [("all", -1), ("1", 1), ("0", 0)])
def test_a_load_waits_for_as_many_as_is_asked_for(
    given: str, acks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[load.Load] = []

    async def running(plan: load.Load, _stop: asyncio.Event, _report: Callable[[Any], None]) -> str:
        plans.append(plan)
        return "done"

    monkeypatch.setattr(load, "run", running)
    arguments = ["--bootstrap=h:1", "--topic=t", f"--history={tmp_path / 'h'}", f"--acks={given}"]
    done = CliRunner().invoke(partition_controller, ["workload", *arguments])
    assert (done.exit_code, [plan.acks for plan in plans]) == (0, [acks]), done.output


def test_a_load_has_what_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[load.Load] = []

    async def running(plan: load.Load, _stop: asyncio.Event, _report: Callable[[Any], None]) -> str:
        plans.append(plan)
        return "done"

    monkeypatch.setattr(load, "run", running)
    given = (
        f"--bootstrap=h:1 --topic=t --history={tmp_path / 'h'} --writers=2 --readers=3 --rate=4 --value-bytes=5"
        " --acks=0 --request-timeout-ms=6 --delivery-timeout-ms=7"
    )
    assert CliRunner().invoke(partition_controller, ["workload", *given.split()]).exit_code == 0
    assert plans == [load.Load(("h:1",), "t", tmp_path / "h", 2, 3, 4.0, 5, 0, 6, 7, tls=None)]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("workload --kafka --zookeeper=h:1 --topic=t --history=h", "--kafka needs --bootstrap"),
        ("verdict --history=empty --topic=t --data-dir=1=", "must be BROKER=DIRECTORY"),
        ("verdict --history=empty --topic=t --data-dir=1=. --data-dir=1=..", "broker 1 has one already"),
    ],
)
def test_what_a_load_and_its_judge_cannot_do(
    line: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").touch()
    refused = CliRunner().invoke(partition_controller, line.split())
    assert (refused.exit_code, says in refused.output) == (2, True), refused.output


def test_a_verdict_on_nothing_ends_with_one(tmp_path: Path) -> None:
    (tmp_path / "history").touch()
    done = CliRunner().invoke(
        partition_controller,
        ["verdict", f"--history={tmp_path / 'history'}", "--topic=t", f"--data-dir=1={tmp_path}"],
    )
    assert (done.exit_code, done.output.startswith("NOTHING CHECKED")) == (1, True)


def test_of_many_findings_the_first_are_shown_and_all_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    findings = [checker.Finding(next(iter(checker.Kind)), "t", 0, n, 1, n, f"finding {n}") for n in range(23)]
    monkeypatch.setattr(checker, "check", lambda *_: checker.Verdict(findings, acknowledged=23))
    (tmp_path / "history").touch()
    done = CliRunner().invoke(
        partition_controller,
        ["verdict", f"--history={tmp_path / 'history'}", "--topic=t", f"--data-dir=1={tmp_path}"],
    )
    lines = done.output.splitlines()
    assert (done.exit_code, lines[20]) == (1, "and 3 more")
    assert [f"finding {n}" in lines[n] for n in range(20)] == [True] * 20
