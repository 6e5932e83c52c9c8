"""The playground as a newcomer starts it: everything from nothing, and nothing left over.

Its demo is that of ``make run``, line by line: tests/docs/test_readme.py.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from controller.cli.main import main
from controller.core.model import Broker, Endpoint, LeaderAndIsr
from controller.playground import cluster, operations, scripts
from controller.playground.cluster import Member, Playground, PlaygroundError, healthy
from controller.playground.command import fresh_directory
from controller.playground.gameday import FAULTS, SHORT
from controller.playground.verdict import WorkloadCheck
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ClusterState, PartitionInfo
from controller.runtime.zookeeper.session import ConnectionLossError, Session
from controller.workload.history import Begun, Ended, Line
from proto.security.authorization import CLUSTER, Operation, Principal
from proto.security.rules import RuleAuthorizer, rules_in_file
from tests.support.runtime.programs import BIN, program, run_to_end


def left_over(directory: Path) -> dict[int, str]:
    """Processes whose command line names the directory: pid to command."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(directory) in command and int(entry.parent.name) != os.getpid():
            found[int(entry.parent.name)] = command
    return found


def test_controllers_of_a_secured_playground_may_ask_each_other(tmp_path: Path) -> None:
    """How far a standby is behind, for the console (docs/console.md)."""
    rules = tmp_path / "authorizer.toml"
    rules.write_text(cluster.RULES)
    allowed = RuleAuthorizer(rules_in_file(rules), frozenset()).allowed
    may = [
        (name, operation.value)
        for name in ("CN=controller-2", "CN=broker-2", "CN=somebody", "ANONYMOUS")
        for operation in (Operation.DESCRIBE, Operation.ALTER)
        if allowed(Principal(name, "ipv4:127.0.0.1:5"), operation, CLUSTER)
    ]
    assert may == [("CN=controller-2", "DESCRIBE")]


def playground(*arguments: str) -> list[str]:
    return [str(BIN / "partition-controller"), "playground", "--no-report", "--data-dir=run", *arguments]


def assert_good_verdict(said: str) -> None:
    """The last word, after something was really judged."""
    (verdict,) = re.findall(r"verdict: (.*)", said)
    found = re.fullmatch(
        r"GOOD: nothing lost, .* equal byte for byte "
        r"\(([\d,]+) acknowledged records and ([\d,]+) reads against (\d+) replicas of 24 partitions.*\)",
        verdict,
    )
    assert found, verdict
    assert all(int(number.replace(",", "")) > 0 for number in found.groups())


@pytest.mark.long
@pytest.mark.slow
def test_rolling_restart_end_to_end(tmp_path: Path) -> None:
    done = run_to_end(playground("--script=rolling", "--brokers=2"), tmp_path)
    assert left_over(tmp_path) == {}
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout
    for name in ("broker-1", "broker-2"):
        assert said.index(f"SIGTERM {name}") < said.index(f"{name} is back")
    # The other one leads them all meanwhile, and the first one catches up before it is its turn.
    assert said.count("36 partitions are led") == 2
    assert said.count("every replica of every partition is in sync") == 2
    assert_good_verdict(said)


@pytest.mark.long
@pytest.mark.slow
def test_an_operator_s_day_end_to_end(tmp_path: Path) -> None:
    done = run_to_end(playground("--script=operations"), tmp_path)
    assert left_over(tmp_path) == {}
    assert done.returncode == 0, done.stdout + done.stderr
    story = [
        "yes: 1 may stop now",
        "no: 1, 2 may not stop now",
        "loss of broker 1",
        "broker 1: drained",
        "9 of 9 partitions are led by their preferred replica",
        "orders-1: 3 leads it; it is under-replicated, [2] not in sync",
        "leader 2 -> ",
        "1 of 1 partitions are reassigned",
        "1 of 1 topics are deleted",
        "topic audit: deleting -> deleted",
    ]
    places = [done.stdout.index(text) for text in story]
    assert places == sorted(places)
    assert_good_verdict(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "faults"),
    [
        pytest.param("gameday-short", SHORT, marks=pytest.mark.long),
        pytest.param("gameday", 22, marks=pytest.mark.gameday_long),
    ],
)
def test_a_game_day_end_to_end(tmp_path: Path, script: str, faults: int) -> None:
    """Of each fault the right thing is said, and following the advice mends it: else the script fails."""
    done = run_to_end(playground(f"--script={script}"), tmp_path, timeout_s=1800)
    assert left_over(tmp_path) == {}
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("    mended") == faults <= len(FAULTS)
    assert_good_verdict(done.stdout)


@pytest.mark.long
@pytest.mark.slow
def test_failover_end_to_end(tmp_path: Path) -> None:
    done = run_to_end(playground("--script=failover", "--brokers=1"), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout
    assert "1 brokers are registered" in said
    assert said.count("kill -9 the active controller") == 3
    assert said.count("took over after") == 3
    (run,) = (tmp_path / "run").glob("run-*")
    assert_good_verdict(said)
    for name in ("controller-1", "controller-2", "broker-1"):
        assert (run / "state-logs" / name / "state-change.jsonl").stat().st_size > 0
    assert left_over(tmp_path) == {}


@pytest.mark.slow
def test_sigterm_ends_all_of_the_idle_playground(zookeeper: str, tmp_path: Path) -> None:
    """Ctrl-C does, too: README's examples end so."""
    command = playground("--script=idle", "--brokers=1", f"--zookeeper={zookeeper}")
    with program(command, tmp_path) as running:
        running.until(lambda: "Ctrl-C ends the playground" in running.said())
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(120) == 0, running.said()
        assert "interrupted: the verdict follows" in running.said()
        assert_good_verdict(running.said())
    assert left_over(tmp_path) == {}


@pytest.mark.slow
def test_a_playground_interrupted_again_ends_without_a_verdict(zookeeper: str, tmp_path: Path) -> None:
    command = playground("--script=idle", "--brokers=1", f"--zookeeper={zookeeper}")
    with program(command, tmp_path) as running:
        running.until(lambda: "Ctrl-C ends the playground" in running.said())
        # A frozen broker keeps the verdict waiting.
        (broker,) = (
            pid
            for pid, name in left_over(tmp_path).items()
            if "broker-stub run" in name and not name.startswith("/bin/sh")
        )
        os.kill(broker, signal.SIGSTOP)
        running.process.send_signal(signal.SIGINT)
        running.until(lambda: "interrupted: the verdict follows" in running.said())
        running.process.send_signal(signal.SIGINT)
        os.kill(broker, signal.SIGCONT)
        assert running.process.wait(120) == 1
        assert "verdict:" not in running.said()
    assert left_over(tmp_path) == {}


@pytest.mark.slow
def test_an_idle_playground_whose_session_is_over_has_a_verdict(
    zookeeper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who plays may stop ZooKeeper for a while."""
    looked: list[ClusterState] = []

    async def verdict(session: Session) -> None:
        looked.append(await cluster_reader.look(session))

    async def prepare(_: Any, session: Session) -> tuple[int, Any]:
        await session.close()
        return 1, SimpleNamespace(verdict=verdict)

    def say(text: str, _: str = "") -> None:
        if "Ctrl-C ends the playground" in text:
            os.kill(os.getpid(), signal.SIGINT)

    async def play() -> None:
        async with cluster_reader.connected(zookeeper, 10_000) as session:
            idle: Any = SimpleNamespace(members={}, operator_environment={}, connect=zookeeper, say=say)
            await scripts.idle(idle, session)

    monkeypatch.setattr(scripts, "prepare", prepare)
    asyncio.run(play())
    assert len(looked) == 1


@pytest.mark.slow
def test_a_killed_playground_leaves_nobody(zookeeper: str, tmp_path: Path) -> None:
    command = playground("--script=idle", "--brokers=1", f"--zookeeper={zookeeper}")
    with program(command, tmp_path) as running:
        running.until(lambda: "Ctrl-C ends the playground" in running.said())
        running.process.kill()
    deadline = time.monotonic() + 20
    while (left := left_over(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == {}


@pytest.mark.slow
def test_a_bad_verdict_fails_the_playground(zookeeper: str, tmp_path: Path) -> None:
    """A byte of a record that only time would show to be wrong is turned in one replica, behind everybody's back."""
    command = playground("--script=idle", "--brokers=3", f"--zookeeper={zookeeper}")
    with program(command, tmp_path) as running:
        running.until(lambda: "Ctrl-C ends the playground" in running.said())
        (segment,) = (tmp_path / "run").glob("run-*/broker-2/orders-3/*.log")
        with segment.open("rb+") as file:
            file.seek(70)
            byte = file.read(1)
            file.seek(70)
            file.write(bytes([byte[0] ^ 1]))
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(120) == 1, running.said()
        assert "verdict: BAD: 1 diverged" in running.said()
        assert "diverged: orders-3@" in running.said()
        assert "crc is" in running.said()
    assert left_over(tmp_path) == {}


@pytest.mark.slow
def test_usage_is_checked(tmp_path: Path) -> None:
    for bad in ("--script=x", "--brokers=0", "--controllers=1"):
        assert run_to_end(playground(bad), tmp_path).returncode == 2


def test_of_the_runs_that_have_ended_only_the_last_is_kept(tmp_path: Path) -> None:
    """And whatever is not a playground's."""
    with subprocess.Popen(["true"]) as ended:
        pass
    goes_on = f"run-20260102T030405-{os.getppid()}"
    former = [f"run-20260102T030405-{process}" for process in (ended.pid, os.getpid())]
    for name in ("other", "run-1", "run-results", *former, goes_on):
        (tmp_path / name / "x").mkdir(parents=True)
    fresh = fresh_directory(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ("other", "run-1", "run-results", goes_on, fresh.name)
    )
    assert list(fresh.iterdir()) == []


def test_a_data_directory_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = CliRunner().invoke(main, ["playground", f"--data-dir={tmp_path / 'file'}"])
    assert (refused.exit_code, "Invalid value for --data-dir" in refused.output) == (2, True), refused.output


def test_a_process_that_ends_by_itself_is_said_with_its_last_words(tmp_path: Path) -> None:
    member = Member("broken", ["sh", "-c", "echo last words; exit 3"], tmp_path / "log")
    member.start()
    assert member.process is not None
    member.process.wait(10)
    with pytest.raises(PlaygroundError, match=r"broken ended with 3; .*last words"):
        member.check()
    member.stop()
    assert Playground(tmp_path, zookeeper="h:1").connect == "h:1/playground"


async def test_nobody_waits_for_a_leader_when_all_controllers_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def look(*_: Any, **__: Any) -> ClusterState:
        return ClusterState()

    monkeypatch.setattr(cluster_reader, "look", look)
    going, ended = (
        Member(f"controller-{n}", ["sh", "-c", does], tmp_path / f"log-{n}")
        for n, does in enumerate(("exec sleep 60", "echo no room; exit 2"), 1)
    )
    made = Playground(tmp_path, members={member.name: member for member in (going, ended)})
    try:
        for member in (going, ended):
            member.start()
        assert ended.process is not None
        ended.process.wait(10)
        monkeypatch.setattr(cluster, "WAIT_S", 0.1)
        with pytest.raises(PlaygroundError, match="no active controller within"):
            await made.active(cast(Session, None))
        del made.members[going.name]
        with pytest.raises(PlaygroundError, match=r"controller-2 ended with 2; .*no room"):
            await made.active(cast(Session, None))
    finally:
        for member in (going, ended):
            member.kill()


def test_processes_are_not_told_of_another_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who played with --secure has its variables, which say so themselves, in the shell."""
    monkeypatch.setenv("PCTL_SSL_CA", "/another/ca.pem")
    member = Member(
        "env", ["sh", "-c", "echo $PCTL_SSL_CA $PCTL_SSL_KEY $HOME"], tmp_path / "log", {"PCTL_SSL_KEY": "k"}
    )
    member.start()
    assert member.process is not None
    member.process.wait(10)
    member.stop()
    assert (tmp_path / "log").read_text().split() == ["k", os.environ["HOME"]]


async def test_a_lost_answer_of_zookeeper_ends_no_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[ClusterState | ConnectionLossError] = [ConnectionLossError(), ClusterState()]

    async def look(_: Any, **__: Any) -> ClusterState:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(cluster_reader, "look", look)
    session: Any = None
    assert isinstance(await Playground(tmp_path, zookeeper="h:1").look(session), ClusterState)
    answers[:] = [ConnectionLossError()]
    monkeypatch.setattr(cluster, "WAIT_S", 0.0)
    with pytest.raises(PlaygroundError, match=r"ZooKeeper at h:1/playground gave no answer for 0 s"):
        await Playground(tmp_path, zookeeper="h:1").look(session)


def test_healthy_means_led_by_somebody_registered() -> None:
    cluster_state = ClusterState()
    assert not healthy(cluster_state)
    cluster_state.partitions.append(PartitionInfo("t", 0, (1,), LeaderAndIsr(1, 0, (1,), 0, 0)))
    assert not healthy(cluster_state)
    cluster_state.brokers[1] = Broker(1, 1, (Endpoint("GRPC", "PLAINTEXT", "h", 1),))
    assert healthy(cluster_state)
    cluster_state.partitions.append(PartitionInfo("t", 1, (1,), None))
    assert not healthy(cluster_state)


@pytest.fixture
def workload(tmp_path: Path) -> tuple[WorkloadCheck, list[str]]:
    """Of two partitions, and what it says."""
    said = list[str]()
    playground: Any = SimpleNamespace(
        directory=tmp_path,
        workload_flags=list,
        operator_environment={},
        say=lambda text, _colour: said.append(text),
    )
    return WorkloadCheck(playground, "t", 2), said


def begun(sequence: int, partition: int, at_us: int) -> Begun:
    return Begun(0, sequence, "t", partition, 0, at_us)


async def test_only_what_was_sent_after_a_failure_shows_that_writes_work(
    workload: tuple[WorkloadCheck, list[str]],
) -> None:
    check, said = workload
    lines: list[Line] = [
        begun(1, 0, 900),
        begun(2, 1, 1_000_000),
        Ended(0, 2, 1, 1_250_000, offset=5),
        Ended(0, 1, 1, 1_100_000, offset=6),
    ]
    for line in lines:
        check._counts.add(line)
    assert check._unwritten(0) == []
    assert check._unwritten(1000) == [0], "it was sent before and acknowledged after"
    for sequence, (sent_us, done_us) in enumerate(((1_500_000, 3_500_000), (1_600_000, 9_000_000)), 3):
        check._counts.add(begun(sequence, 0, sent_us))
        check._counts.add(Ended(0, sequence, 1, done_us, offset=sequence))
    check._counts.add(begun(9, 1, 1_700_000))
    check._counts.add(Ended(0, 9, 3, 1_800_000))
    check._counts.add(begun(10, 1, 1_900_000))
    await check.wait_for_writes(1_000_000, "the kill")
    assert said == [
        "  writes to all 2 partitions of t are acknowledged 2.50 s after the kill; 4 acknowledged since the last "
        "report, 1 given up"
    ]
    check._counts.add(Ended(0, 10, 1, 2_000_000, offset=11))
    assert (check._unwritten(0), check._counts.given_up) == ([0], 0), (
        "unfinished sends count for the next report"
    )


@pytest.mark.parametrize("code", [0, 1, 3])
async def test_a_step_that_ends_otherwise_than_expected_ends_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    pctl = tmp_path / "pctl"
    pctl.write_text(f"#!/bin/sh\necho $3; exit {code}\n")
    pctl.chmod(0o755)
    monkeypatch.setattr(operations, "sys", SimpleNamespace(executable=str(tmp_path / "python")))
    playground: Any = SimpleNamespace(say=lambda *_: None, connect="h:1", operator_environment={})
    await operations._pctl(playground, "brokers", code)
    for expected in {0, 1, 3} - {code}:
        with pytest.raises(PlaygroundError, match=f"pctl brokers ended with {code}, not {expected}: brokers"):
            await operations._pctl(playground, "brokers", expected)
