"""A rolling upgrade under load, and the way back: processes of two versions lead, follow and serve side by side."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from controller.playground.cluster import Member, Playground, PlaygroundError
from controller.playground.verdict import BadVerdictError
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.session import Session
from controller.workload.checker import Verdict
from tests.provers.chaos.processes import state_changes
from tests.provers.chaos.verdicts import two_masters
from tests.provers.durability.kills import BROKERS, begin, whole
from tests.support.paths import ROOT

CONTROLLERS = 3
#: The version before this one: without Kafka's brokers, TLS, authorization, audit, warm standbys, replica directories.
FORMER = "8e6f38d25c076fcd53fa6057a55db1d4a0dbd4fa"
PACKAGES = ("controller", "broker_stub", "proto")
#: Where the console scripts are defined.
MAINS = {"partition-controller": "controller.cli.main", "broker-stub": "broker_stub.cli"}


class NoHistoryError(Exception):
    """This tree is no checkout, or one whose history does not reach back so far."""


def former_version(revision: str, folder: Path) -> Path:
    """The product's packages as they were, in ``folder``. Raises NoHistoryError."""
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", revision, *PACKAGES]
    try:
        done = subprocess.run(command, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoHistoryError(f"revision {revision} is not in the history of this checkout") from error
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
        tar.extractall(folder, filter="data")
    return folder


def by_module(command: list[str]) -> list[str]:
    """The command of a console script, such that PYTHONPATH says whose code it runs."""
    module = MAINS[Path(command[0]).name]
    # -P: the directory that we are in is not where its modules are.
    return [sys.executable, "-P", "-c", f"from {module} import main; main()", *command[1:]]


def run_from(member: Member, tree: Path) -> None:
    """From its next start on, the member's program is that of ``tree``; what it depends on is this Python's."""
    member.environment = {**member.environment, "PYTHONPATH": str(tree)}


async def upgrade(cluster: Playground, former: Path, rate: float = 100.0) -> Verdict:
    """All members of a prepared cluster begin as ``former``, become this version, and go back, one by one under load.

    Raises BadVerdictError if a record was lost or two controllers led in one epoch, PlaygroundError if anything does
    not come up.
    """
    for member in cluster.members.values():
        member.command = by_module(member.command)
        # Not a setting of every version; on loopback it may be left out.
        member.environment = {k: v for k, v in member.environment.items() if "ALLOW_EVERYONE" not in k}
        run_from(member, former)
        member.start()
    async with cluster_reader.connected(cluster.connect, 20_000) as session:
        await cluster.active(session)
        workload = await begin(cluster, session, rate=rate)
        for tree, words in ((ROOT, "this version"), (former, "the former version")):
            began_us = time.time_ns() // 1000
            await _roll(cluster, session, tree, words)
            await workload.wait_for_writes(began_us, f"the change to {words}")
        verdict = await workload.verdict(session)
    lines, _ = state_changes(cluster.state_logs, [])
    epochs = {line.record["controller_epoch"] for line in lines if line.record["role"] == "controller"}
    assert len(epochs - {-1}) > 2, f"with each version somebody else led: {epochs}"
    if found := two_masters(lines):
        raise BadVerdictError("; ".join(map(str, found[:5])))
    if crashes := [str(path) for path in cluster.state_logs.rglob("crash-*")]:
        raise PlaygroundError(f"something raised: {crashes}")
    return verdict


async def _roll(cluster: Playground, session: Session, tree: Path, words: str) -> None:
    """Standbys first, then who leads, then brokers, each when all replicas are in sync (docs/deploy.md)."""
    leads, _ = await cluster.active(session)
    standbys = [id_ for id_ in range(1, CONTROLLERS + 1) if id_ != leads]
    for id_ in (*standbys, leads):
        await _replace(cluster, cluster.members[f"controller-{id_}"], tree, words)
        await cluster.until(
            session, "candidates", lambda s: len({c.controller_id for c in s.controllers}) == CONTROLLERS
        )
        await cluster.active(session)
    for id_ in range(1, BROKERS + 1):
        await _replace(cluster, cluster.members[f"broker-{id_}"], tree, words)
        await cluster.until(session, "every replica in sync", whole)


async def _replace(cluster: Playground, member: Member, tree: Path, words: str) -> None:
    cluster.say(f"{member.name} becomes {words}")
    await asyncio.to_thread(member.stop)
    run_from(member, tree)
    member.start()
