"""Who leads, and that nobody else does: election, hand-over, death, freezing, stale znodes (reference, section 2)."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import Any

import pytest

from controller.core import znode_paths
from controller.core.model import NO_LEADER
from controller.playground.cluster import Playground, healthy
from controller.runtime.zookeeper import cluster_reader, jute
from controller.runtime.zookeeper.session import Session
from tests.integration.conftest import StartCluster, create, http_addresses, http_answer, read_records
from tests.support.runtime.sessions import until

pytestmark = pytest.mark.slow


async def test_first_controller_has_epoch_1_and_a_clean_hand_over_needs_no_timeout(
    start_cluster: StartCluster, session: Session
) -> None:
    cluster = start_cluster(brokers=1)
    first, _ = await cluster.active(session)
    seen = await cluster_reader.look(session)
    assert seen.controller_epoch == 1
    data, stat = await session.get(znode_paths.CONTROLLER)
    assert stat.owner != 0
    fields = json.loads(data)
    assert fields["version"] == 2
    assert fields["brokerid"] == first
    assert fields["kraftControllerEpoch"] == -1
    assert fields["endpoint"].startswith("127.0.0.1:")

    cluster.members[f"controller-{first}"].signal(signal.SIGTERM)
    second, _ = await cluster.active(session, other_than=first)

    assert (await cluster_reader.look(session)).controller_epoch == 2
    process = cluster.members[f"controller-{first}"].process
    assert process is not None
    assert process.wait(15) == 0
    records = read_records(cluster.state_logs / f"controller-{first}")
    lives = [r["to"] for r in records if r["kind"] == "controller"]
    assert lives[0] == "started"
    assert lives[-2:] == ["resigned", "stopped"]
    assert second != first


async def test_killed_controller_is_replaced_and_the_successor_leads_the_orphans(
    start_cluster: StartCluster, session: Session
) -> None:
    cluster = start_cluster(brokers=2)
    active, _ = await cluster.active(session)
    await cluster.until(session, "registered", lambda s: len(s.brokers) == 2)
    await create(session, "t", {0: [1, 2], 1: [2, 1]})
    await cluster.until(session, "led", healthy)

    cluster.members["broker-1"].kill()
    cluster.members[f"controller-{active}"].kill()

    await cluster.active(session, other_than=active)
    seen, _ = await cluster.until(
        session,
        "everything led by broker 2",
        lambda s: [p.state.leader for p in s.partitions if p.state] == [2, 2],
        ignore=["broker-1", f"controller-{active}"],
    )
    assert {p.state.isr for p in seen.partitions if p.state} == {(2,)}


async def test_deleting_controller_again_and_again_always_ends_with_someone_elected(
    start_cluster: StartCluster, session: Session
) -> None:
    cluster = start_cluster(brokers=1)
    await cluster.active(session)
    for _ in range(5):
        before = (await cluster_reader.look(session, topics=())).controller_epoch
        await session.delete(znode_paths.CONTROLLER)
        await cluster.until(session, "a higher epoch", lambda s, b=before: s.controller_epoch > b)  # type: ignore[misc]
        await cluster.active(session)


async def test_restart_within_its_own_session_timeout_does_not_mistake_the_old_znode_for_leadership(
    start_cluster: StartCluster, session: Session
) -> None:
    cluster = start_cluster(controllers=1, brokers=1, session_timeout_ms=10_000)
    active, _ = await cluster.active(session)
    member = cluster.members[f"controller-{active}"]
    member.kill()
    assert (await cluster_reader.look(session)).controller_id == active  # still there: the session lives on
    member.start()
    await cluster.until(session, "elected anew", lambda s: s.controller_epoch == 2)
    await cluster.active(session)


async def _frozen_in_the_middle(cluster: Playground, session: Session, active: int) -> None:
    """Kill a broker that everything depends on, and freeze the controller once it began to write."""
    cluster.members["broker-1"].kill()
    path = znode_paths.state_path("t", 0)
    _, before = await session.get(path)
    while (await session.get(path))[1].version == before.version:
        pass
    cluster.members[f"controller-{active}"].signal(signal.SIGSTOP)


async def test_frozen_controller_cannot_write_or_command_after_it_wakes(
    start_cluster: StartCluster, session: Session
) -> None:
    cluster = start_cluster(brokers=3)
    active, _ = await cluster.active(session)
    await cluster.until(session, "registered", lambda s: len(s.brokers) == 3)
    await create(session, "t", {n: [1, 2, 3] for n in range(3000)})
    await cluster.until(session, "led", healthy)
    old_epoch = (await cluster_reader.look(session, topics=())).controller_epoch

    await _frozen_in_the_middle(cluster, session, active)
    successor, _ = await cluster.active(session, other_than=active)
    _, elected = await session.get(znode_paths.CONTROLLER)
    cluster.members[f"controller-{active}"].signal(signal.SIGCONT)
    await cluster.until(
        session,
        "the woken one is a standby",
        lambda s: any(c.controller_id == active for c in s.controllers),
        ignore=["broker-1"],
    )
    await cluster.until(session, "led again", healthy, ignore=["broker-1"])
    await asyncio.sleep(1)  # whatever was stuck in its sockets has arrived by now

    assert successor != active
    late = 0
    asked = [session._client.get_async(znode_paths.state_path("t", n)) for n in range(3000)]
    for data, stat in (answer.get() for answer in asked):
        if json.loads(data)["controller_epoch"] <= old_epoch and stat.mzxid > elected.czxid:
            late += 1
    assert late == 0
    # Brokers: once one has heard of the new epoch, nothing of the old one changes anything.
    for broker in (2, 3):
        newest = -1
        for record in read_records(cluster.state_logs / f"broker-{broker}"):
            if record["kind"] == "replica":
                assert record["controller_epoch"] >= newest
                newest = max(newest, record["controller_epoch"])
    resigned = [
        r
        for r in read_records(cluster.state_logs / f"controller-{active}")
        if r["kind"] == "controller" and r["to"] == "resigned" and r["controller_epoch"] == old_epoch
    ]
    assert len(resigned) == 1


async def test_unreadable_controller_epoch_elects_nobody_until_it_is_mended(
    start_cluster: StartCluster, session: Session
) -> None:
    await session.create(znode_paths.CONTROLLER_EPOCH, b"seven")
    cluster = start_cluster(brokers=0)
    await cluster.until(session, "candidates", lambda s: len(s.controllers) == 2)

    def rejections() -> list[dict[str, Any]]:
        return [r for r in read_records(cluster.state_logs) if r["kind"] == "reject"]

    await until(lambda: bool(rejections()), "a rejection in the log")
    await asyncio.sleep(1)
    assert (await cluster_reader.look(session)).controller_id == -1
    rejected = rejections()
    assert "/controller_epoch" in rejected[0]["reason"]
    assert "decimal number" in rejected[0]["reason"]
    assert len(rejected) <= 2  # once for each candidate, not once for each attempt
    for address in http_addresses(cluster).values():
        status, said = http_answer(address, "/ready")
        assert (status, rejected[0]["reason"] in said) == (503, True)

    await session.multi([jute.op_set(session.packed_path(znode_paths.CONTROLLER_EPOCH), b"41", -1)])
    await cluster.active(session)
    assert (await cluster_reader.look(session)).controller_epoch == 42


async def test_garbage_in_controller_is_not_taken_for_anybody(
    start_cluster: StartCluster, session: Session
) -> None:
    await session.create(znode_paths.CONTROLLER, b"\xff{not json")
    cluster = start_cluster(brokers=0)
    await cluster.until(session, "candidates", lambda s: len(s.controllers) == 2)
    assert (await cluster_reader.look(session)).controller_id == NO_LEADER
    await session.delete(znode_paths.CONTROLLER)
    await cluster.active(session)
