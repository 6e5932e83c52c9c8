"""Parts of the playground by themselves: members, waits, what the scripts look at, and the judge's patience."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controller.client import admin
from controller.core.model import LeaderAndIsr
from controller.embedded_kafka.brokers import KafkaBroker
from controller.playground import cluster, command, gameday, operations, scripts, verdict
from controller.playground.cluster import KafkaMember, Member, Playground, PlaygroundError
from controller.playground.gameday import Day, Expected
from controller.playground.verdict import BadVerdictError, WorkloadCheck
from controller.runtime.zookeeper import cluster_reader, codecs, jute
from controller.runtime.zookeeper.cluster_reader import ClusterState, ControllerInfo, PartitionInfo
from controller.runtime.zookeeper.session import ConnectionLossError, Session
from controller.workload import checker, history, kafka_replicas, replicas
from controller.workload.checker import ReplicaLog, Verdict
from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2
from tests.support.core.world import a_broker

SESSION = cast("Session", None)


def shell(script: str, directory: Path, **environment: str) -> Member:
    return Member("member", ["sh", "-c", script], directory / "log", environment)


# --- members -------------------------------------------------------------------------------------------------


def test_a_member_s_variables_go_before_those_of_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARTITION_CONTROLLER_X", "the shell's")
    assert cluster.shell_with({"PARTITION_CONTROLLER_X": "its own"})["PARTITION_CONTROLLER_X"] == "its own"


def test_who_does_not_heed_sigterm_is_killed(tmp_path: Path) -> None:
    member = shell("trap '' TERM; echo ready; while :; do sleep 0.1; done", tmp_path)
    member.start()
    process = member.process
    assert process is not None
    while "ready" not in member.log_path.read_text():
        assert process.poll() is None
    member.stop(0.01)
    assert process.returncode == -signal.SIGKILL
    assert (member.process, member.ended) == (None, False)


def test_a_kill_gives_nobody_time(tmp_path: Path) -> None:
    member = shell("trap 'echo last words; exit 0' TERM; echo ready; while :; do sleep 0.1; done", tmp_path)
    assert not member.ended
    member.start()
    process = member.process
    assert process is not None
    while "ready" not in member.log_path.read_text():
        assert process.poll() is None
    member.kill()
    assert process.returncode == -signal.SIGKILL
    member.check()


def test_members_are_found_where_they_are(tmp_path: Path) -> None:
    ours = Playground(tmp_path, controllers=2)
    assert (list(ours._controller_ids), ours.data_dir(2)) == ([1, 2], tmp_path / "broker-2")
    kafkas = Playground(tmp_path, controllers=2, kafka=True)
    broker = KafkaBroker(2, "h:1", tmp_path / "k", {"PLAINTEXT": 9092})
    kafkas.members["broker-2"] = KafkaMember("broker-2", [], tmp_path / "log", broker=broker)
    assert (list(kafkas._controller_ids), kafkas.data_dir(2)) == ([9001, 9002], tmp_path / "k" / "data-1")
    assert kafkas.workload_flags() == ["--kafka", f"--bootstrap={broker.address}"]


@pytest.mark.parametrize(
    ("secure", "kafka", "everybody"), [(False, False, True), (True, False, False), (True, True, True)]
)
def test_with_certificates_their_holders_have_rights_by_rules(
    secure: bool, kafka: bool, everybody: bool, tmp_path: Path
) -> None:
    given = Playground(tmp_path, secure=secure, kafka=kafka)._access("X_")
    assert (given == {"X_ALLOW_EVERYONE": "true"}) is everybody
    assert ("X_AUTHORIZER_FILE" in given) is not everybody


# --- waits ---------------------------------------------------------------------------------------------------


class Looks:
    """What each look at ZooKeeper finds; the last for ever."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *looks: ClusterState | Exception) -> None:
        self.looks = list(looks)
        monkeypatch.setattr(cluster_reader, "look", self)

    async def __call__(self, *_: Any, **__: Any) -> ClusterState:
        look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if isinstance(look, Exception):
            raise look
        return look


async def test_who_waits_sees_that_a_process_has_ended_unless_it_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = shell("exit 3", tmp_path)
    member.start()
    assert member.process is not None
    member.process.wait(10)
    waiting = Playground(tmp_path, members={"member": member})
    Looks(monkeypatch, ClusterState(), ClusterState(controller_id=5))

    def led(state: ClusterState) -> bool:
        return state.controller_id == 5

    with pytest.raises(PlaygroundError, match="member ended with 3"):
        await waiting.until(SESSION, "a controller", led)
    Looks(monkeypatch, ClusterState(), ClusterState(controller_id=5))
    found, _ = await waiting.until(SESSION, "a controller", led, ignore=["member"])
    assert found.controller_id == 5
    member.stop()


async def test_a_lost_answer_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Looks(monkeypatch, ConnectionLossError(), ClusterState(controller_id=5))
    assert (await Playground(tmp_path, zookeeper="h:1").look(SESSION)).controller_id == 5


def created(code: int) -> pb.CreateTopicsResponse:
    made = pb.CreateTopicsResponse()
    made.topics.add(name="t", error_code=code, error_message="why")
    return made


@pytest.mark.parametrize(
    ("answers", "refused"),
    [
        ([created(0)], False),
        ([created(common_pb2.TOPIC_ALREADY_EXISTS)], True),
        ([admin.NoAnswerError("silence"), created(common_pb2.TOPIC_ALREADY_EXISTS)], False),
        ([admin.NoAnswerError("silence"), created(common_pb2.INVALID_PARTITIONS)], True),
    ],
)
async def test_a_topic_may_be_there_after_an_attempt_without_an_answer(
    answers: list[Any], refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    left = list(answers)

    async def ask(_endpoint: str, _method: str, request: Any, *_: Any) -> Any:
        asked.extend(request.topics)
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    Looks(monkeypatch, ClusterState(5, "c:1", 7))
    monkeypatch.setattr(admin, "ask", ask)
    creating = Playground(tmp_path, zookeeper="h:1").create_topic(SESSION, "t", (24, 3))
    if refused:
        with pytest.raises(PlaygroundError, match="topic t: why"):
            await creating
    else:
        await creating
    assert {(topic.num_partitions, topic.replication_factor) for topic in asked} == {(24, 3)}


async def test_a_successor_is_another_that_has_completed_its_failover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though one of several controllers has ended."""
    ended = shell("exit 2", tmp_path)
    ended.start()
    assert ended.process is not None
    ended.process.wait(10)
    answers: list[Any] = [
        "silence",
        pb.DescribeClusterResponse(error_code=common_pb2.NOT_CONTROLLER),
        pb.DescribeClusterResponse(),
    ]

    async def describe(endpoint: str, *_: Any) -> Any:
        assert endpoint == "c:2"
        return answers.pop(0)

    Looks(monkeypatch, ClusterState(1, "c:1", 7), ClusterState(), ClusterState(2, "c:2", 8))
    monkeypatch.setattr(admin, "describe_cluster", describe)
    members = {"controller-1": ended, "controller-2": Member("controller-2", [], tmp_path / "log2")}
    assert (await Playground(tmp_path, members=members).active(SESSION, other_than=1))[0] == 2
    assert answers == []
    ended.stop()


async def test_a_script_begins_once_zookeeper_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from controller.errors import EnvironmentFault

    tries: list[int] = []

    class Connecting:
        async def __aenter__(self) -> Session:
            tries.append(1)
            if len(tries) < 3:
                raise EnvironmentFault("away")
            return SESSION

        async def __aexit__(self, *_: object) -> None:
            pass

    async def script(*_: Any) -> None:
        tries.append(0)

    monkeypatch.setattr(cluster_reader, "connected", lambda *_: Connecting())
    monkeypatch.setitem(command.SCRIPTS, "demo", script)
    ground: Any = SimpleNamespace(connect="h:1")
    await command.play(ground, "demo")
    assert tries == [1, 1, 1, 0]
    tries.clear()
    monkeypatch.setattr(command, "WAIT_S", -1.0)
    with pytest.raises(EnvironmentFault):
        await command.play(ground, "demo")


# --- what the scripts look at --------------------------------------------------------------------------------


def partition(leader: int, isr: tuple[int, ...], number: int = 0, topic: str = "t") -> PartitionInfo:
    return PartitionInfo(topic, number, (1, 2), LeaderAndIsr(leader, 0, isr, 0, 0))


def state_of(*partitions: PartitionInfo, live: tuple[int, ...] = (1, 2)) -> ClusterState:
    return ClusterState(brokers={b: a_broker(b, b) for b in live}, partitions=list(partitions))


@pytest.mark.parametrize(
    ("look", "found", "so"),
    [
        (scripts.in_sync, state_of(partition(1, (1, 2))), True),
        (scripts.in_sync, state_of(partition(1, (1,))), False),
        (scripts.in_sync, state_of(partition(1, (1, 2)), live=(2,)), False),
        (scripts._preferred, state_of(partition(1, (1, 2))), True),
        (scripts._preferred, state_of(partition(2, (1, 2))), False),
        (scripts._led_where_possible, state_of(partition(2, (1, 2)), live=(2,)), True),
        (scripts._led_where_possible, state_of(partition(1, (1, 2)), live=(2,)), False),
        (scripts._led_where_possible, state_of(partition(-1, (1,)), live=(2,)), True),
        (scripts._led_where_possible, state_of(partition(-1, (1, 2)), live=(2,)), False),
        (scripts._led_where_possible, state_of(PartitionInfo("t", 0, (1, 2), None)), False),
    ],
)
def test_what_scripts_wait_for(look: Callable[[ClusterState], bool], found: ClusterState, so: bool) -> None:
    assert look(found) is so


def test_leaders_of_registered_brokers_are_counted() -> None:
    found = state_of(partition(1, (1,)), partition(9, (9,), 1), partition(1, (1,), 2))
    assert scripts._leaders(found) == "broker 1 leads 2, broker 2 leads 0"


class Ground:
    """A playground whose conditions hold at once; ``made``: its topics, ``waited``: what was waited for."""

    def __init__(self, brokers: int = 3) -> None:
        self.brokers, self.made, self.said = brokers, list[Any](), list[str]()
        self.waited = dict[str, Callable[[ClusterState], bool]]()
        self.found = state_of(partition(1, (1, 2)))
        self.members = dict[str, Any]()
        self.takes_over = True
        self.connect, self.operator_environment = "h:1/play", dict[str, str]()

    def say(self, text: str, *_: str) -> None:
        self.said.append(text)

    async def active(self, *_: object, **__: object) -> tuple[int, float]:
        if not self.takes_over:
            raise PlaygroundError("nobody takes over")
        return 7, 0.1

    async def until(
        self, _: object, what: str, holds: Callable[[ClusterState], bool]
    ) -> tuple[ClusterState, float]:
        self.waited[what] = holds
        return self.found, 0.1

    async def look(self, _: object) -> ClusterState:
        return self.found

    async def create_topic(self, _: object, *what: object) -> None:
        self.made.append(what)


@pytest.mark.parametrize(
    ("brokers", "factor", "in_sync"), [(1, 1, "1"), (2, 2, "1"), (3, 3, "2"), (5, 3, "2")]
)
async def test_what_is_acknowledged_survives_the_loss_of_a_broker(
    monkeypatch: pytest.MonkeyPatch, brokers: int, factor: int, in_sync: str
) -> None:
    async def start() -> None: ...

    monkeypatch.setattr(scripts, "WorkloadCheck", lambda *_: SimpleNamespace(start=start))
    ground: Any = Ground(brokers)
    await scripts.prepare(ground, SESSION)
    wanted = {"min.insync.replicas": in_sync}
    assert ground.made == [("orders", (24, factor), wanted), ("payments", (12, factor), wanted)]


@pytest.mark.parametrize("takes_over", [True, False])
async def test_a_frozen_controller_is_thawed_whatever_comes_of_it(takes_over: bool) -> None:
    ground: Any = Ground()
    signals: list[int] = []
    ground.members = {"controller-1": SimpleNamespace(signal=signals.append)}
    ground.takes_over = takes_over
    if takes_over:
        assert await scripts._freeze(ground, SESSION, 1) == 7
    else:
        with pytest.raises(PlaygroundError):
            await scripts._freeze(ground, SESSION, 1)
    assert signals == [signal.SIGSTOP, signal.SIGCONT]


async def test_only_partitions_that_others_lead_are_elected_for() -> None:
    ground: Any = Ground()
    asked: list[Any] = []

    async def create(path: str, data: bytes) -> None:
        asked.append((path, codecs.decode_partition_list(path, data)))

    session: Any = SimpleNamespace(create=create)
    await scripts._elect_preferred(ground, session)
    assert asked == [], "each is led by its preferred replica"
    ground.found = state_of(partition(1, (1, 2)), partition(2, (1, 2), 1))
    await scripts._elect_preferred(ground, session)
    assert asked == [("/admin/preferred_replica_election", [("t", 1)])]


async def test_who_restarts_is_waited_for_itself() -> None:
    ground: Any = Ground()
    started: list[str] = []
    for name in ("controller-2", "broker-2"):
        ground.members = {name: SimpleNamespace(start=lambda name=name: started.append(name))}
        await scripts.restart(ground, SESSION, name)
    candidate, registered = ground.waited.values()
    found = [ClusterState(controllers=[ControllerInfo(id_, "", "", active=False)]) for id_ in (1, 2)]
    assert [candidate(each) for each in found] == [False, True]
    assert [registered(state_of(live=live)) for live in ((1,), (1, 2))] == [False, True]
    assert started == ["controller-2", "broker-2"]


async def test_the_second_ctrl_c_has_its_usual_effect() -> None:
    before = signal.getsignal(signal.SIGINT)
    async with scripts._interruptible() as interrupted:
        os.kill(os.getpid(), signal.SIGINT)
        await interrupted.wait()
        assert signal.getsignal(signal.SIGINT) is before
    assert signal.getsignal(signal.SIGINT) is before


async def test_a_member_that_ended_is_told_of_once_and_started_for_the_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ground: Any = Ground()
    happened: list[Any] = []
    ended = SimpleNamespace(pid=1, poll=lambda: 9, returncode=9)
    ground.members = {
        "broker-1": SimpleNamespace(process=ended, start=lambda: happened.append("started")),
        "broker-2": SimpleNamespace(process=SimpleNamespace(pid=2, poll=lambda: None, returncode=None)),
    }

    async def verdict(_: object) -> None:
        happened.append("verdict")

    async def prepare(*_: object) -> Any:
        return 1, SimpleNamespace(verdict=verdict)

    rounds, interrupted = [3], asyncio.Event()

    async def sleep(_: float) -> None:
        rounds[0] -= 1
        if not rounds[0]:
            interrupted.set()

    @asynccontextmanager
    async def at_hand(*_: object) -> AsyncIterator[Any]:
        yield interrupted

    monkeypatch.setattr(scripts, "prepare", prepare)
    monkeypatch.setattr(scripts, "_interruptible", at_hand)
    monkeypatch.setattr(scripts, "asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(cluster_reader, "connected", at_hand)
    session: Any = SimpleNamespace(negotiated_ms=1000)
    await scripts.idle(ground, session)
    assert [text for text in ground.said if "ended with" in text] == ["broker-1 ended with 9"]
    assert happened == ["started", "verdict"]


# --- the judge -----------------------------------------------------------------------------------------------


def judge(tmp_path: Path, **more: Any) -> WorkloadCheck:
    ground: Any = SimpleNamespace(
        directory=tmp_path, workload_flags=list, operator_environment={}, say=lambda *_: None,
        kafka=False, data_dir=lambda id_: tmp_path / f"broker-{id_}",
    )  # fmt: skip
    vars(ground).update(more)
    return WorkloadCheck(ground, "t", 2)


def test_the_judge_waits_for_its_own_topic(tmp_path: Path) -> None:
    check = judge(tmp_path)
    assert not check._in_sync(state_of(partition(1, (1, 2), topic="other")))
    assert not check._in_sync(state_of(partition(1, (1,))))
    assert not check._in_sync(state_of(partition(1, (1, 2)), live=(2,)))
    well = state_of(partition(1, (1, 2)), partition(1, (1,), topic="other"))
    assert check._in_sync(well)
    assert check._leaders(well) == {("t", 0): 1}


@pytest.mark.parametrize("kafka", [False, True])
async def test_logs_are_judged_when_they_end_alike_or_after_a_while(
    kafka: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Any] = []
    found = [{("t", 0): {1: ReplicaLog(0, end), 2: ReplicaLog(0, 5)}} for end in (3, 4, 5, 6)]

    def read_logs(directories: Any, assigned: Any, read: Any) -> Any:
        reads.append(read)
        assert (sorted(directories), dict(assigned)) == ([1, 2], {("t", 0): (1, 2)})
        return found[len(reads) - 1] if len(reads) <= len(found) else found[0]

    monkeypatch.setattr(replicas, "read_logs", read_logs)
    monkeypatch.setattr(verdict, "SETTLE_PAUSE_S", 0)
    now = state_of(partition(1, (1, 2)), partition(1, (1, 2), topic="other"))
    assert await judge(tmp_path, kafka=kafka)._logs_once_equal(now) == found[2]
    assert set(reads) == {(kafka_replicas if kafka else replicas).read_replica}
    monkeypatch.setattr(verdict, "SETTLE_TIMEOUT_S", -1.0)
    assert await judge(tmp_path, kafka=kafka)._logs_once_equal(now) == found[3]


@pytest.mark.parametrize("good", [False, True])
async def test_a_verdict_on_nothing_is_bad_too(
    good: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, found = judge(tmp_path), Verdict(acknowledged=int(good), partitions=1)

    async def checked(_: Session) -> tuple[checker.Verdict, history.History]:
        return found, history.History()

    monkeypatch.setattr(check, "check", checked)
    if good:
        assert await check.verdict(SESSION) is found
    else:
        with pytest.raises(BadVerdictError, match="NOTHING CHECKED"):
            await check.verdict(SESSION)


async def test_a_load_that_writes_nothing_or_has_ended_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = judge(tmp_path)
    monkeypatch.setattr(verdict, "WAIT_S", -1.0)
    with pytest.raises(PlaygroundError, match="not every partition of t was acknowledged"):
        await check.wait_for_writes(0, "the kill")
    monkeypatch.setattr(verdict, "WAIT_S", 20.0)
    check._member.command = ["sh", "-c", "echo no topic; exit 1"]
    check._member.start()
    assert check._member.process is not None
    check._member.process.wait(10)
    with pytest.raises(PlaygroundError, match=r"workload ended with 1; .*no topic"):
        await check.wait_for_writes(0, "the kill")
    check._member.stop()


# --- the game day --------------------------------------------------------------------------------------------


class Said(Day):
    """``answers``: what pctl says, one after the other; the last for ever."""

    def __init__(self, *answers: tuple[int, str]) -> None:
        ground: Any = SimpleNamespace(say=lambda *_: None, connect="h:1/play")
        super().__init__(ground, SESSION)
        self.answers = list(answers)

    async def pctl(self, command: str) -> tuple[int, str]:
        del command
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


async def test_pctl_has_to_say_all_of_it_and_to_end_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(_: float) -> None:
        pass

    monkeypatch.setattr(gameday, "asyncio", SimpleNamespace(sleep=at_once))
    day = Said((1, "broker 2 is gone"), (0, "gone and paused"), (1, "gone and paused"))
    assert await day.says(Expected("health", ("gone", "paused"), 1)) == ""
    assert day.answers == [(1, "gone and paused")], "the third time"
    assert await Said((7, "gone")).says(Expected("health", ("gone",))) == ""
    monkeypatch.setattr(gameday, "SAID_WITHIN_S", -1.0)
    said = await Said((0, "gone")).says(Expected("health", ("gone", "paused"), 0))
    assert said == "pctl health ended with 0, without ['paused']: gone"
    assert "ended with 1" in await Said((1, "gone")).says(Expected("health", ("gone",), 0))


async def test_a_command_of_the_day_that_fails_ends_it() -> None:
    await Said((0, "")).do("a", "b")
    with pytest.raises(PlaygroundError, match="pctl b ended with 3: no"):
        await Said((0, ""), (3, "no")).do("a", "b")


async def test_what_is_written_by_hand_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []

    class Kept:
        async def get(self, _path: str) -> tuple[bytes, None]:
            return b"as it was", None

        def packed_path(self, path: str) -> str:
            return path

        async def multi(self, operations: list[Any]) -> None:
            written.extend(operations)

    day = Said((0, ""))
    day.session = cast("Session", Kept())
    monkeypatch.setattr(jute, "op_set", lambda *given: given)
    await day.write("/x", b"oops")
    await day.restore("/x")
    assert written == [("/x", b"oops", -1), ("/x", b"as it was", -1)]


async def test_who_is_stopped_has_ended_before_it_is_started_again() -> None:
    happened: list[Any] = []
    process = SimpleNamespace(wait=lambda limit: happened.append(limit))
    member = SimpleNamespace(signal=happened.append, process=process)
    day = Said((0, ""))
    vars(day.playground)["members"] = {"broker-2": member}
    await day.stop("broker-2")
    assert happened == [signal.SIGTERM, gameday.SAID_WITHIN_S]


async def test_all_that_is_below_a_topic_is_found() -> None:
    children = {"/t": ["a", "b"], "/t/a": ["c"]}

    async def names(path: str) -> list[str]:
        return children.get(path, [])

    session: Any = SimpleNamespace(children=names)
    assert await gameday._below(session, "/t") == ["/t", "/t/a", "/t/a/c", "/t/b"]


async def test_a_fault_counts_as_mended_once_the_cluster_is_stable(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []

    async def verdict(_: object) -> None:
        happened.append("verdict")

    async def prepare(*_: object) -> Any:
        return 1, SimpleNamespace(verdict=verdict)

    class Good(Day):
        async def pctl(self, command: str) -> tuple[int, str]:
            happened.append(command)
            return 0, "gone"

    async def act(_: Day) -> None:
        happened.append("act")

    monkeypatch.setattr(gameday, "prepare", prepare)
    monkeypatch.setattr(gameday, "Day", Good)
    fault = gameday.Fault("odd", act, (Expected("health", ("gone",)),), act)
    ground: Any = Ground()
    await gameday.gameday(ground, SESSION, [fault])
    assert happened == ["act", "health", "act", "wait --until stable", "verdict"]


def test_the_wrong_chroot_is_the_one_above() -> None:
    ground: Any = SimpleNamespace(connect="h:1/play")
    (fault,) = (one for one in gameday.FAULTS if not one.expected)
    (expected,) = gameday._expected(ground, fault)
    assert expected.command == "--zookeeper h:1 cluster"
    assert expected.words == ("there is no cluster at", "/play")


async def test_lines_that_are_left_out_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pctl = tmp_path / "pctl"
    pctl.write_text("#!/bin/sh\nseq 15\n")
    pctl.chmod(0o755)
    monkeypatch.setattr(operations, "sys", SimpleNamespace(executable=str(tmp_path / "python")))
    ground: Any = SimpleNamespace(say=lambda *_: None, connect="h:1", operator_environment={})
    await operations._pctl(ground, "brokers")
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines == [*map(str, range(1, 13)), "(3 lines more)"]
