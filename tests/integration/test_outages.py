"""ZooKeeper away, frozen, failing over: the controller stops acting in time, and goes on when it can."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from controller.embedded_zookeeper.ensemble import EmbeddedZooKeeper
from controller.playground.cluster import Playground, healthy
from controller.playground.verdict import WORKLOAD, WorkloadCheck
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ClusterState
from tests.integration.conftest import StartCluster, create, http_addresses, http_answer, read_records

pytestmark = pytest.mark.slow

PAIR = {0: [1, 2], 1: [2, 1]}


@pytest.fixture
def own_zookeeper(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[EmbeddedZooKeeper]:
    """A ZooKeeper this test may hurt; the parameter is the number of servers."""
    with EmbeddedZooKeeper(
        tmp_path / "own-zookeeper", servers=request.param, heap_mb=256, force_sync=False
    ) as embedded:
        yield embedded


def wait_for(reached: Callable[[], bool], timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not reached():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def wait_until_no_leader(cluster: Playground) -> None:
    """Until no controller calls itself the leader, although ZooKeeper says nothing."""
    addresses = http_addresses(cluster)
    wait_for(lambda: all(http_answer(address, "/leader")[0] != 200 for address in addresses.values()), 20)


def registrations(cluster_state: ClusterState) -> set[int]:
    """Broker epochs."""
    return {broker.epoch for broker in cluster_state.brokers.values()}


def led_and_counted(count: int, cluster_state: ClusterState) -> bool:
    return len(cluster_state.partitions) == count and healthy(cluster_state)


@pytest.mark.parametrize("own_zookeeper", [1], indirect=True)
async def test_frozen_zookeeper_makes_the_leader_stop_by_its_own_clock(
    start_cluster: StartCluster, own_zookeeper: EmbeddedZooKeeper
) -> None:
    cluster = start_cluster(brokers=2, connect=own_zookeeper.connect_string)
    async with cluster_reader.connected(cluster.connect, 20_000) as session:
        active, _ = await cluster.active(session)
        await cluster.until(session, "registered", lambda s: len(s.brokers) == 2)
        await create(session, "t", PAIR)
        await cluster.until(session, "led", healthy)
    assert http_answer(http_addresses(cluster)[active], "/leader")[0] == 200

    own_zookeeper.servers[0].kill(signal.SIGSTOP)
    try:
        wait_until_no_leader(cluster)
        for address in http_addresses(cluster).values():
            assert http_answer(address, "/live")[0] == 200
    finally:
        own_zookeeper.servers[0].kill(signal.SIGCONT)

    async with cluster_reader.connected(cluster.connect, 20_000) as session:
        await cluster.active(session)
        await cluster.until(session, "brokers are back", lambda s: len(s.brokers) == 2)
        await create(session, "after", PAIR)
        await cluster.until(session, "led", lambda s: len(s.partitions) == 4 and healthy(s))


@pytest.mark.parametrize("own_zookeeper", [1], indirect=True)
async def test_killed_zookeeper_comes_back_and_everybody_with_it(
    start_cluster: StartCluster, own_zookeeper: EmbeddedZooKeeper
) -> None:
    cluster = start_cluster(brokers=2, connect=own_zookeeper.connect_string)
    async with cluster_reader.connected(cluster.connect, 20_000) as session:
        await cluster.active(session)
        await cluster.until(session, "registered", lambda s: len(s.brokers) == 2)
    own_zookeeper.servers[0].kill()
    wait_until_no_leader(cluster)
    own_zookeeper.stop()
    own_zookeeper.start()
    async with cluster_reader.connected(cluster.connect, 20_000) as session:
        await cluster.active(session)
        await cluster.until(session, "brokers are back", lambda s: len(s.brokers) == 2)
        await create(session, "t", PAIR)
        await cluster.until(session, "led", healthy)


@pytest.mark.parametrize("own_zookeeper", [1], indirect=True)
@pytest.mark.parametrize("restarted", [False, True], ids=["alive", "restarted"])
async def test_a_zookeeper_from_a_backup_loses_nothing_that_brokers_know(
    start_cluster: StartCluster,
    own_zookeeper: EmbeddedZooKeeper,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    restarted: bool,
) -> None:
    """In the backup broker 1 leads and is in sync; since then it was away, and lacks what the others acknowledged."""
    monkeypatch.setenv("PARTITION_CONTROLLER_AUDIT_INTERVAL_SECONDS", "1")
    cluster = start_cluster(connect=own_zookeeper.connect_string)
    (server,) = own_zookeeper.servers
    async with cluster_reader.connected(cluster.connect, 20_000) as session:
        await cluster.active(session)
        await cluster.until(session, "registered", lambda s: len(s.brokers) == 3)
        await cluster.create_topic(session, "t", {0: [1, 2, 3], 1: [1, 3, 2]}, {"min.insync.replicas": "2"})
        await cluster.until(session, "led", healthy)
        former = registrations(await cluster.look(session))
        workload = WorkloadCheck(cluster, "t", 2)
        await workload.start()
    server.stop()
    shutil.copytree(server.data_dir, tmp_path / "backup")
    server.start()
    async with cluster_reader.connected(cluster.connect, 20_000) as session:
        await cluster.active(session)
        killed_us = time.time_ns() // 1000
        cluster.members["broker-1"].kill()
        await cluster.until(session, "others lead", lambda s: 1 not in s.brokers and healthy(s), ["broker-1"])
        await workload.wait_for_writes(killed_us, "the kill")
    for name, member in cluster.members.items():
        if restarted and name != WORKLOAD:
            member.kill()
    server.stop()
    shutil.rmtree(server.data_dir)
    shutil.copytree(tmp_path / "backup", server.data_dir)
    server.start()
    restored_us = time.time_ns() // 1000
    async with cluster_reader.connected(cluster.connect, 20_000) as session:
        # Who is elected by the older data before all have registered would lead under epochs that were others'.
        for name in ("broker-1", "broker-2", "broker-3") if restarted else ("broker-1",):
            cluster.members[name].start()
        for name in ("controller-1", "controller-2") if restarted else ():
            await cluster.until(session, "registered anew", lambda s: len(registrations(s) - former) == 3)
            cluster.members[name].start()
        await workload.wait_for_writes(restored_us, "the restoration")
        await workload.verdict(session)


@pytest.mark.parametrize("own_zookeeper", [1], indirect=True)
async def test_without_zookeeper_nobody_is_ready_and_sigterm_still_ends_everybody(
    start_cluster: StartCluster, own_zookeeper: EmbeddedZooKeeper
) -> None:
    cluster = start_cluster(brokers=0, connect=own_zookeeper.connect_string)
    async with cluster_reader.connected(cluster.connect, 20_000) as session:
        await cluster.active(session)
        await cluster.until(session, "both are candidates", lambda s: len(s.controllers) == 2)
    own_zookeeper.servers[0].kill()
    addresses = http_addresses(cluster)
    wait_for(lambda: all(http_answer(address, "/ready")[0] == 503 for address in addresses.values()))
    for member in cluster.members.values():
        member.signal(signal.SIGTERM)
    for member in cluster.members.values():
        assert member.process is not None
        assert member.process.wait(30) == 0


@pytest.mark.long
@pytest.mark.parametrize("own_zookeeper", [3], indirect=True)
async def test_each_server_of_an_ensemble_may_die_and_no_change_falls_into_the_gap(
    start_cluster: StartCluster, own_zookeeper: EmbeddedZooKeeper
) -> None:
    cluster = start_cluster(brokers=2, connect=own_zookeeper.connect_string)
    async with cluster_reader.connected(cluster.connect, 20_000) as session:
        await cluster.active(session)
        await cluster.until(session, "registered", lambda s: len(s.brokers) == 2)
    for number, server in enumerate(own_zookeeper.servers):
        server.kill()
        server.stop()
        # Whoever was connected to it is on its way to another one and has lost its watches.
        async with cluster_reader.connected(cluster.connect, 30_000) as session:
            await create(session, f"t{number}", PAIR)
            await cluster.until(session, "led", partial(led_and_counted, 2 * (number + 1)))
        server.start()
        wait_for(server.serving)
    records = read_records(cluster.state_logs)
    writers: dict[int, set[int]] = {}
    for record in records:
        if record["role"] == "controller" and record["kind"] in ("leader", "isr"):
            writers.setdefault(record["controller_epoch"], set()).add(record["node"])
    assert all(len(nodes) == 1 for nodes in writers.values())


async def test_no_zookeeper_at_all_is_said_and_waited_out(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    embedded = EmbeddedZooKeeper(tmp_path / "late", heap_mb=256, force_sync=False)
    cluster = start_cluster(controllers=1, brokers=0, connect=embedded.connect_string)
    wait_for(lambda: bool(http_addresses(cluster)))
    addresses = http_addresses(cluster)
    assert http_answer(addresses[1], "/ready")[0] == 503
    assert http_answer(addresses[1], "/live")[0] == 200
    with embedded:
        async with cluster_reader.connected(cluster.connect, 20_000) as session:
            await cluster.active(session)
        assert http_answer(addresses[1], "/ready")[0] == 200
