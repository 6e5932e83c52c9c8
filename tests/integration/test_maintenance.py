"""Too many brokers are killed at once: the controller enters maintenance by itself, says so, and leaves it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from controller.core.znode_paths import MAINTENANCE
from controller.playground.cluster import Playground, healthy
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ClusterState
from controller.runtime.zookeeper.session import Session
from proto.statelog.schema import READY
from tests.integration.conftest import StartCluster, create, read_records
from tests.support.cli.operator import pctl

pytestmark = pytest.mark.slow

LOST = (1, 2, 3)


async def pctl_output(cluster: Playground, *arguments: str) -> str:
    """What pctl prints; it has an event loop of its own."""
    result = await asyncio.to_thread(pctl, cluster.connect, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


async def test_three_of_five_brokers_are_killed_and_return(
    start_cluster: StartCluster, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a controller out of maintenance would do.
    monkeypatch.setenv("PARTITION_CONTROLLER_UNCLEAN_LEADER_ELECTION_ENABLE", "true")
    # It ends with the last one that returns, whatever event comes upon that, or not at all.
    monkeypatch.setenv("PARTITION_CONTROLLER_MAINTENANCE_HEALTHY_SECONDS", "1000000")
    cluster = start_cluster(brokers=5)
    first, _ = await cluster.active(session)
    await cluster.until(session, "registered", lambda s: len(s.brokers) == 5)
    await create(session, "t", {0: [1, 4, 5], 1: [2, 5], 2: [3, 1, 2], 3: [4, 5]})
    await cluster.until(session, "led and in sync", _in_sync)
    gone = [f"broker-{n}" for n in LOST]
    for name in gone:
        cluster.members[name].kill()

    await cluster.until(
        session,
        "maintenance, and clean leaders",
        # The third has no clean candidate.
        lambda s: s.maintenance.automatic and _leaders(s) == [4, 5, -1, 4],
        ignore=gone,
    )
    fields = json.loads(await pctl_output(cluster, "-o", "json", "cluster"))
    assert "3 of 5 brokers are gone (1, 2, 3)" in fields["maintenance"]
    shown = json.loads(await pctl_output(cluster, "-o", "json", "maintenance", "show"))
    assert (shown["entered_automatically"], shown["offline_brokers"], shown["offline_limit"]) == (
        True,
        list(LOST),
        3,
    )
    assert f"entered by controller {first}" in await pctl_output(cluster, "explain", "controller")

    # The next controller goes on with it.
    cluster.members[f"controller-{first}"].kill()
    second, _ = await cluster.active(session, other_than=first)
    assert (await cluster_reader.look(session)).maintenance.automatic

    def of_second() -> list[dict[str, Any]]:
        return read_records(cluster.state_logs / f"controller-{second}")

    # Brokers that its failover found would be none that return.
    async with asyncio.timeout(60):
        while not any(r["kind"] == "failover" and r["to"] == READY for r in of_second()):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    for name in gone:
        cluster.members[name].start()
    cluster_state, _ = await cluster.until(
        session,
        "the end of maintenance, and leaders",
        lambda s: s.maintenance.entered is None and healthy(s),
        ignore=[f"controller-{first}"],
    )
    assert cluster_state.maintenance.accepted == ()
    assert MAINTENANCE not in cluster_state.problems

    def maintenance_records() -> list[dict[str, Any]]:
        return [
            r
            for r in [*read_records(cluster.state_logs / f"controller-{first}"), *of_second()]
            if r["kind"] == "controller" and r["to"] in ("maintenance", "left_maintenance")
        ]

    # The log is written by a thread of its own.
    async with asyncio.timeout(20):
        while len(records := maintenance_records()) < 2:  # noqa: ASYNC110  (a file has no events)
            await asyncio.sleep(0.1)
    assert [r["to"] for r in records] == ["maintenance", "left_maintenance"]
    assert records[0]["cause"] == "BrokerChange"


def _in_sync(cluster_state: ClusterState) -> bool:
    return len(cluster_state.partitions) == 4 and not any(
        p.under_replicated() for p in cluster_state.partitions
    )


def _leaders(cluster_state: ClusterState) -> list[int]:
    return [p.state.leader if p.state else -1 for p in cluster_state.partitions]
