"""The verdict on real clusters: nothing is lost where nothing may be, and where something must be, it is seen."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio
from click.testing import CliRunner

from controller.cli.main import main
from controller.playground.cluster import Playground
from controller.playground.verdict import BadVerdictError, WorkloadCheck
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ClusterState, PartitionInfo
from controller.runtime.zookeeper.session import Session
from controller.workload.history import load
from controller.workload.writers import now_us
from tests.support.runtime.programs import BIN, run_to_end

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(zookeeper: str, tmp_path: Path) -> Iterator[Playground]:
    playground = Playground(tmp_path / "run", 1, 3, zookeeper)
    try:
        playground.start()
        yield playground
    finally:
        playground.stop()


@pytest_asyncio.fixture
async def session(cluster: Playground) -> AsyncIterator[Session]:
    async with cluster_reader.connected(cluster.connect, 20_000) as connected:
        await cluster.active(connected)
        await cluster.until(connected, "all brokers", lambda cluster_state: len(cluster_state.brokers) == 3)
        yield connected


async def create(
    cluster: Playground, session: Session, replicas: Sequence[Sequence[int]], configs: dict[str, str]
) -> None:
    await cluster.create_topic(session, "t", dict(enumerate(replicas)), configs)
    await cluster.until(session, "leaders", all_of(lambda p: p.state is not None and p.state.leader >= 0))


def all_of(good: Callable[[PartitionInfo], bool]) -> Callable[[ClusterState], bool]:
    return lambda cluster_state: (
        bool(cluster_state.partitions) and all(good(p) for p in cluster_state.partitions)
    )


def led_by(*leaders: int) -> Callable[[ClusterState], bool]:
    return all_of(lambda p: p.state is not None and p.state.leader in leaders)


def isr_is(*ids: int) -> Callable[[ClusterState], bool]:
    return all_of(lambda p: p.state is not None and set(p.state.isr) == set(ids))


@pytest.mark.long
async def test_a_leader_killed_under_load_loses_nothing(cluster: Playground, session: Session) -> None:
    await create(cluster, session, [(1, 2, 3), (1, 3, 2), (2, 1, 3)], {"min.insync.replicas": "2"})
    judgement = WorkloadCheck(cluster, "t", 3)
    await judgement.start()
    killed_us = now_us()
    cluster.members["broker-1"].kill()
    await cluster.until(session, "new leaders", led_by(2, 3))
    await judgement.wait_for_writes(killed_us, "the kill")
    cluster.members["broker-1"].start()
    await cluster.until(session, "back in sync", isr_is(1, 2, 3))
    verdict = await judgement.verdict(session)
    assert verdict.findings == []
    assert (verdict.partitions, verdict.replicas) == (3, 9)
    assert min(verdict.acknowledged, verdict.reads, verdict.batches) > 0
    assert_the_command_agrees(cluster, 0, "GOOD: nothing lost")


async def test_an_unclean_election_loses_and_the_checker_sees_it(
    cluster: Playground, session: Session
) -> None:
    """Broker 1 acknowledges alone, and dies; broker 2, which has none of that, is made leader."""
    configs = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    await create(cluster, session, [(1, 2)], configs)
    judgement = WorkloadCheck(cluster, "t", 1)
    await judgement.start()
    cluster.members["broker-2"].kill()
    await cluster.until(session, "broker 1 alone", isr_is(1))
    await judgement.wait_for_writes(now_us(), "broker 2 was out")
    await read_what_is_acknowledged(cluster)
    cluster.members["broker-1"].kill()
    await cluster.until(session, "broker 1 gone", lambda cluster_state: 1 not in cluster_state.brokers)
    cluster.members["broker-2"].start()
    await cluster.until(session, "unclean leader", led_by(2))
    await judgement.wait_for_writes(now_us(), "the unclean election")
    cluster.members["broker-1"].start()
    await cluster.until(session, "both in sync", isr_is(1, 2))
    with pytest.raises(BadVerdictError, match=r"BAD: .*\d+ lost"):
        await judgement.verdict(session)
    said = assert_the_command_agrees(cluster, 1, "BAD: ")
    lost, early = (re.search(rf"(\d+) {kind}", said) for kind in ("lost", "read uncommitted"))
    assert lost is not None
    assert int(lost[1]) > 0
    # Readers had been given them, as they were committed by then.
    assert early is not None
    # What was left is the same everywhere.
    assert "diverged" not in said
    assert "invented" not in said


async def read_what_is_acknowledged(cluster: Playground) -> None:
    """Wait until a reader was given the last record that is acknowledged now."""
    path = cluster.directory / "workload-history.jsonl"
    last = max(write.offset for write in load(path).writes if write.offset is not None)
    async with asyncio.timeout(60):
        while True:
            if any(read.offset >= last for read in load(path).reads):
                return
            await asyncio.sleep(0.05)


def assert_the_command_agrees(cluster: Playground, code: int, verdict: str) -> str:
    """``partition-controller verdict`` on the same history and directories; what it said."""
    command = [
        str(BIN / "partition-controller"),
        "verdict",
        "--topic=t",
        f"--history={cluster.directory / 'workload-history.jsonl'}",
        *[f"--data-dir={id_}={cluster.data_dir(id_)}" for id_ in (1, 2, 3)],
    ]
    done = run_to_end(command, cluster.directory)
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith(verdict)
    return done.stdout


async def test_a_workload_killed_and_started_again_is_judged_as_one(
    cluster: Playground, session: Session
) -> None:
    await create(cluster, session, [(1, 2, 3)], {"min.insync.replicas": "2"})
    first = WorkloadCheck(cluster, "t", 1)
    await first.start()
    cluster.members["workload"].kill()
    await asyncio.sleep(0)
    second = WorkloadCheck(cluster, "t", 1)
    await second.start()
    verdict = await second.verdict(session)
    assert verdict.findings == []


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["workload", "--topic=t", "--history=h"], 2, "name either --bootstrap or --zookeeper"),
        (["workload", "--topic=t", "--history=h", "--bootstrap=x"], 2, "must be HOST:PORT"),
        (["workload", "--topic=t", "--history=h", "--bootstrap=x:1", "--rate=0"], 2, "--rate"),
        (["workload", "--topic=t", "--history=/proc/x/h", "--bootstrap=127.0.0.1:1"], 1, "/proc/x"),
        (["verdict", "--topic=t", "--history=nope", "--data-dir=1=."], 2, "nope"),
        (["verdict", "--topic=t", "--history=bad", "--data-dir=1=nope"], 2, "no such directory"),
        (["verdict", "--topic=t", "--history=bad", "--data-dir=x=."], 2, "must be BROKER=DIRECTORY"),
        (["verdict", "--topic=t", "--history=bad", "--data-dir=1=."], 1, "bad:1: "),
        (["verdict", "--topic=t", "--history=empty", "--data-dir=1=."], 1, "NOTHING CHECKED"),
    ],
)
def test_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, says: str
) -> None:
    (tmp_path / "bad").write_text("{}\n")
    (tmp_path / "empty").touch()
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, arguments)
    assert isinstance(done.exception, SystemExit)
    assert done.exit_code == code
    assert says in done.output
