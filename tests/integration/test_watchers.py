"""Brokers and topics come, go and change by their znodes (reference, sections 6 and 7)."""

from __future__ import annotations

import json
import signal

import pytest
from msgspec.structs import replace

from controller.core import znode_paths
from controller.core.model import LeaderAndIsr
from controller.playground.cluster import Playground, healthy
from controller.runtime.zookeeper import cluster_reader, codecs, jute
from controller.runtime.zookeeper.cluster_reader import ClusterState
from controller.runtime.zookeeper.session import Session
from tests.integration.conftest import StartCluster, create, read_records
from tests.support.runtime.sessions import until

pytestmark = pytest.mark.slow


async def rewrite(session: Session, path: str, data: bytes) -> None:
    await session.multi([jute.op_set(session.packed_path(path), data, -1)])


def state_of(cluster_state: ClusterState, topic: str, partition: int = 0) -> LeaderAndIsr | None:
    """Without the directories of its members: their ids are random, and whose they are is tested once, below."""
    state = next(
        (p.state for p in cluster_state.partitions if (p.topic, p.partition) == (topic, partition)), None
    )
    return None if state is None else replace(state, directories=())


async def ready(cluster: Playground, session: Session, brokers: int) -> None:
    await cluster.active(session)
    await cluster.until(session, "registered", lambda s: len(s.brokers) == brokers)


async def test_topic_created_by_znode_gets_an_id_states_and_leaders(
    start_cluster: StartCluster, session: Session
) -> None:
    cluster = start_cluster(controllers=1, session_timeout_ms=20_000)
    await ready(cluster, session, 3)
    await create(session, "t", {0: [1, 2, 3], 1: [3, 1, 2]})
    cluster_state, _ = await cluster.until(session, "led", healthy)
    assert state_of(cluster_state, "t", 0) == LeaderAndIsr(1, 0, (1, 2, 3), 0, 1)
    assert state_of(cluster_state, "t", 1) == LeaderAndIsr(3, 0, (3, 1, 2), 0, 1)
    assert len(cluster_state.topics["t"].topic_id) == 22
    raw, _ = await session.get(znode_paths.state_path("t", 0))
    directories = {str(b): cluster_state.brokers[b].directories[0] for b in (1, 2, 3)}
    assert len(set(directories.values())) == 3
    own = json.dumps({"isr_directories": directories}, separators=(",", ":"))[1:]
    kafkas = '{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2,3],'
    assert raw.decode() == kafkas + own


async def test_topic_with_a_dead_replica_starts_on_the_live_ones(
    start_cluster: StartCluster, session: Session
) -> None:
    cluster = start_cluster(controllers=1, brokers=1, session_timeout_ms=20_000)
    await ready(cluster, session, 1)
    await create(session, "t", {0: [9, 1]})
    cluster_state, _ = await cluster.until(session, "led", healthy)
    assert state_of(cluster_state, "t") == LeaderAndIsr(1, 0, (1,), 0, 1)


async def test_expansion_by_rewriting_the_znode_again_and_again(
    start_cluster: StartCluster, session: Session
) -> None:
    cluster = start_cluster(controllers=1, session_timeout_ms=20_000)
    await ready(cluster, session, 3)
    await create(session, "t", {0: [1, 2]})
    for count in (2, 3, 7):
        await cluster.until(session, "led", healthy)
        info = (await cluster_reader.look(session)).topics["t"]
        wider = {str(n): [1 + n % 3, 1 + (n + 1) % 3] for n in range(count)} | {"0": [1, 2]}
        data = {"version": 3, "topic_id": info.topic_id, "partitions": wider}
        await rewrite(session, znode_paths.topic_path("t"), json.dumps(data).encode())
        cluster_state, _ = await cluster.until(
            session,
            f"{count} partitions",
            lambda s, n=count: len(s.partitions) == n and healthy(s),  # type: ignore[misc]
        )
    assert state_of(cluster_state, "t") == LeaderAndIsr(1, 0, (1, 2), 0, 1)


async def test_removed_and_recreated_by_hand_is_initialised_at_once(
    start_cluster: StartCluster, session: Session
) -> None:
    cluster = start_cluster(controllers=1, session_timeout_ms=20_000)
    await ready(cluster, session, 3)
    await create(session, "t", {0: [1, 2]})
    before, _ = await cluster.until(session, "led", healthy)
    for path in ("/partitions/0/state", "/partitions/0", "/partitions", ""):
        await session.delete(znode_paths.topic_path("t") + path)
    await create(session, "t", {0: [3]})
    cluster_state, _ = await cluster.until(
        session, "led by 3", lambda s: healthy(s) and s.partitions[0].replicas == (3,)
    )
    assert state_of(cluster_state, "t") == LeaderAndIsr(3, 0, (3,), 0, 1)
    assert cluster_state.topics["t"].topic_id != before.topics["t"].topic_id


async def test_dead_broker_moves_leaders_shrinks_isrs_and_returns_as_a_follower(
    start_cluster: StartCluster, session: Session
) -> None:
    cluster = start_cluster(controllers=1)
    await ready(cluster, session, 3)
    await create(session, "led", {0: [1, 2, 3]})
    await create(session, "followed", {0: [2, 1, 3]})
    await create(session, "sole", {0: [1]})
    await cluster.until(session, "led", healthy)

    cluster.members["broker-1"].kill()
    cluster_state, _ = await cluster.until(
        session,
        "three new states",
        lambda s: all(p.state and p.state.partition_epoch == 1 for p in s.partitions),
        ignore=["broker-1"],
    )
    # The traces of the reference, section 6.
    assert state_of(cluster_state, "led") == LeaderAndIsr(2, 1, (2, 3), 1, 1)
    assert state_of(cluster_state, "followed") == LeaderAndIsr(2, 1, (2, 3), 1, 1)
    assert state_of(cluster_state, "sole") == LeaderAndIsr(-1, 1, (1,), 1, 1)

    cluster.members["broker-1"].start()
    cluster_state, _ = await cluster.until(session, "sole is led", healthy)
    assert state_of(cluster_state, "sole") == LeaderAndIsr(1, 2, (1,), 2, 1)
    # It comes back as a follower; into the ISR it comes without a new leader epoch.
    back = LeaderAndIsr(2, 1, (2, 3, 1), 2, 1)
    await cluster.until(session, "led is in sync", lambda s: state_of(s, "led") == back)


async def test_bounced_broker_is_seen_by_its_epoch_although_its_id_never_vanished(
    start_cluster: StartCluster, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The controller it would ask is frozen.
    monkeypatch.setenv("BROKER_STUB_CONTROLLED_SHUTDOWN_ENABLE", "false")
    cluster = start_cluster(controllers=1, session_timeout_ms=30_000)
    await ready(cluster, session, 3)
    await create(session, "t", {0: [1, 2]})
    await cluster.until(session, "led", healthy)
    epoch = (await cluster_reader.look(session)).brokers[1].epoch
    controller = cluster.members["controller-1"]
    # The controller looks away while the broker goes and comes back.
    controller.signal(signal.SIGSTOP)
    cluster.members["broker-1"].stop()
    cluster.members["broker-1"].start()
    await cluster.until(session, "a new epoch", lambda s: 1 in s.brokers and s.brokers[1].epoch > epoch)
    controller.signal(signal.SIGCONT)
    # A failure, so another leads; then a startup, so it is in sync again.
    cluster_state, _ = await cluster.until(
        session,
        "handled as a failure",
        lambda s: state_of(s, "t") == LeaderAndIsr(2, 1, (2, 1), 2, s.controller_epoch),
    )
    assert cluster_state.brokers[1].epoch > epoch


async def test_broken_znodes_are_named_and_hide_nobody_else(
    start_cluster: StartCluster, session: Session
) -> None:
    cluster = start_cluster(controllers=1)
    await ready(cluster, session, 3)
    broken = {
        "json": b"{",
        "types": b'{"version":3,"partitions":{"0":["one"]}}',
        "missing": b'{"version":3}',
        "negative": b'{"version":3,"partitions":{"0":[-1]}}',
        "absurd": b'{"version":3,"partitions":{"99999999999":[1]}}',
        "twice": b'{"version":3,"partitions":{"0":[1,1]}}',
        "nobody": b'{"version":3,"partitions":{"0":[]}}',
        "empty": b"",
        "deep": b"[" * 100_000,
    }
    for name, data in broken.items():
        await session.create(znode_paths.topic_path(name), data)
    await session.create(f"{znode_paths.BROKER_IDS}/77", b'{"version":5,"endpoints":["nonsense"]}')
    await session.create(f"{znode_paths.BROKER_IDS}/78", b'{"version":99,"endpoints":[]}')
    await session.create(f"{znode_paths.BROKER_IDS}/bob", b"{}")
    await create(session, "good", {0: [1, 2]})
    cluster.members["broker-3"].kill()
    await cluster.until(
        session,
        "the good topic is led and the death noticed",
        lambda s: state_of(s, "good") is not None and 3 not in s.brokers,
        ignore=["broker-3"],
    )
    await rewrite(session, znode_paths.topic_path("json"), b'{"version":3,"partitions":{"0":[2]}}')
    cluster_state, _ = await cluster.until(
        session, "the mended topic is led", lambda s: state_of(s, "json") is not None, ignore=["broker-3"]
    )
    assert state_of(cluster_state, "json") == LeaderAndIsr(2, 0, (2,), 0, 1)
    rejected = {
        r["reason"] for r in read_records(cluster.state_logs / "controller-1") if r["kind"] == "reject"
    }
    for name in broken:
        assert any(reason.startswith(f"/brokers/topics/{name}:") for reason in rejected), name
    for name in ("77", "78", "bob"):
        assert any(reason.startswith(f"/brokers/ids/{name}:") for reason in rejected), name


async def test_unreadable_state_is_left_alone_named_and_taken_up_once_mended(
    start_cluster: StartCluster, session: Session
) -> None:
    for path in ("/brokers/topics/t/partitions/0", "/brokers/topics/t/partitions/1"):
        await session.ensure(path)
    await rewrite(
        session, znode_paths.topic_path("t"), b'{"version":1,"partitions":{"0":[1],"1":[1],"2":[1]}}'
    )
    await session.create(znode_paths.state_path("t", 0), b'{"version":2,"leader":1,"leader_epoch":3}')
    await session.create(
        znode_paths.state_path("t", 1),
        b'{"version":1,"leader":1,"leader_epoch":3,"controller_epoch":0,"isr":[1]}',
    )
    cluster = start_cluster(controllers=1, brokers=1, session_timeout_ms=20_000)
    await ready(cluster, session, 1)
    # Nobody answered for it at failover, so the surviving decision is the leader epoch after the known one.
    await cluster.until(
        session, "its neighbours are led", lambda s: all(state_of(s, "t", n) is not None for n in (1, 2))
    )
    assert (await session.get(znode_paths.state_path("t", 0)))[
        0
    ] == b'{"version":2,"leader":1,"leader_epoch":3}'
    mended = b'{"version":1,"leader":-1,"leader_epoch":3,"controller_epoch":0,"isr":[1]}'
    await rewrite(session, znode_paths.state_path("t", 0), mended)
    await session.create(f"{znode_paths.BROKER_IDS}/55", b'{"version":4,"host":"127.0.0.1","port":1}')
    cluster_state, _ = await cluster.until(
        session, "led", lambda s: (st := state_of(s, "t")) is not None and st.leader == 1
    )
    state = state_of(cluster_state, "t")
    assert state is not None
    assert state.leader_epoch == 4


async def test_preferred_election_znode_is_carried_out_and_removed(
    start_cluster: StartCluster, session: Session
) -> None:
    cluster = start_cluster(controllers=1, brokers=2, session_timeout_ms=20_000)
    await ready(cluster, session, 2)
    # ISR as a caught-up follower leaves it, leader not the preferred one.
    await session.ensure("/brokers/topics/t/partitions/0")
    await session.create(
        znode_paths.state_path("t", 0),
        b'{"version":1,"leader":2,"leader_epoch":5,"controller_epoch":0,"isr":[2,1]}',
    )
    await rewrite(session, znode_paths.topic_path("t"), b'{"version":1,"partitions":{"0":[1,2]}}')
    await cluster.until(session, "led", healthy)
    for request in (b"garbage", codecs.encode_partition_list([("t", 0), ("nope", 3)])):
        await session.create(znode_paths.PREFERRED_ELECTION, request)
        while await session.exists(znode_paths.PREFERRED_ELECTION):
            pass
    cluster_state = await cluster_reader.look(session)
    state = state_of(cluster_state, "t")
    assert state is not None
    assert (state.leader, state.isr) == (1, (2, 1))

    def both_rejected() -> bool:
        records = read_records(cluster.state_logs / "controller-1")
        reasons = [r["reason"] for r in records if r["kind"] == "reject"]
        return any(r.startswith("/admin/preferred_replica_election: ") for r in reasons) and any(
            "nope-3" in r for r in reasons
        )

    await until(both_rejected, "both rejections in the log")
