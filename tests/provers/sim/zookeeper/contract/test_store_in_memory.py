"""The store at moments that a real server does not offer: in memory, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controller.core import effects, znode_paths
from controller.core.cluster import term_history
from controller.core.effects import (
    Committed,
    CreateNode,
    CreateState,
    DeleteNode,
    Problem,
    ReadStates,
    SetTopic,
    Unconfirmed,
)
from controller.core.model import LeaderAndIsr
from controller.core.standby.prepared import Prepared
from controller.errors import FencedError, LeaseExpiredError
from controller.runtime.observe.metrics import StandbyMetrics
from controller.runtime.zookeeper import codecs, jute, single_codecs
from controller.runtime.zookeeper import session as session_module
from controller.runtime.zookeeper import store as store_module
from controller.runtime.zookeeper.fenced_node import FencedNode
from controller.runtime.zookeeper.session import ConnectionLossError, NoNodeError, Session
from controller.runtime.zookeeper.standby import Standby
from controller.runtime.zookeeper.state_cache import StateCache
from controller.runtime.zookeeper.state_mirror import Warmth
from controller.runtime.zookeeper.store import Store
from tests.provers.sim.zookeeper.contract.in_memory import CHROOT, CONNECT, a_session, told_in
from tests.provers.sim.zookeeper.ensemble import Ensemble
from tests.provers.sim.zookeeper.hands import Hands
from tests.provers.sim.zookeeper.network import Network
from tests.provers.sim.zookeeper.session import sessions_on
from tests.runtime.zookeeper.test_state_mirror import World, following, world
from tests.runtime.zookeeper.test_store import StoreHarness, info, partitions, state
from tests.support.runtime.sessions import until


@asynccontextmanager
async def place() -> AsyncIterator[tuple[Network, StoreHarness, Hands]]:
    async with a_session() as (network, session, zk):
        yield network, await StoreHarness(session).prepare(), zk


told = told_in(place, "network", "harness", "zk")


@asynccontextmanager
async def standby_place() -> AsyncIterator[tuple[World]]:
    with sessions_on(Network(Ensemble())):
        async with world(CONNECT) as made:
            yield (made,)


told_of_a_standby = told_in(standby_place, "made")


def answering(session: Session, monkeypatch: pytest.MonkeyPatch, path: str, code: int) -> None:
    """Bulk reads say this of one znode."""
    read = session.bulk_get

    async def said(paths: Any) -> list[jute.Node | int]:
        nodes = await read(paths)
        return [code if p == path else node for p, node in zip(paths, nodes, strict=True)]

    monkeypatch.setattr(session, "bulk_get", said)


# --- the lease -----------------------------------------------------------------------------------------------


@told
async def test_a_read_that_is_tried_again_ends_with_the_lease(
    harness: StoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(_path: str) -> None:
        raise ConnectionLossError

    monkeypatch.setattr(harness.session, "get", lost)
    async with asyncio.timeout(60):
        with pytest.raises(LeaseExpiredError):
            await harness.read(effects.ReadFeature())


@told
async def test_a_commit_whose_answer_is_lost_after_the_lease_is_no_conflict(
    harness: StoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(_ops: object) -> None:
        monkeypatch.setattr(harness.session, "lease_remaining_s", lambda: -0.1)
        raise ConnectionLossError

    monkeypatch.setattr(harness.session, "multi", lost)
    with pytest.raises(LeaseExpiredError):
        await harness.commit(DeleteNode("/admin/x"))


# --- reading -------------------------------------------------------------------------------------------------


@told
async def test_nothing_is_kept_of_watches_on_topics_that_are_gone(harness: StoreHarness, zk: Hands) -> None:
    """One for each topic that is deleted would be a leak."""
    for name in ("kept", "deleted"):
        zk.create(f"/brokers/topics/{name}", b'{"version":3,"partitions":{"0":[1]}}')
    await harness.read(effects.ReadTopics(["kept", "deleted"]))
    known = harness.session._client._data_watchers
    before = set(known)
    zk.delete("/brokers/topics/deleted")
    await harness.read(effects.ReadTopics(["deleted", "never"]))
    assert before - set(known) == {f"{CHROOT}/brokers/topics/deleted"}
    assert set(known) <= before
    zk.create("/brokers/topics/deleted", b'{"version":3,"partitions":{"0":[1]}}')
    await harness.read(effects.ReadTopics(["deleted"]))
    assert set(known) == before


@told
async def test_forgetting_a_watch_leaves_those_of_others(harness: StoreHarness) -> None:
    session = harness.session
    mine, other = (lambda *_: None), (lambda *_: None)
    for watch in (mine, other):
        await session.arm_data_watches(["/none"], watch)
    session.forget_data_watches(["/none", "/unknown"], mine)
    (left,) = session._client._data_watchers[f"{CHROOT}/none"]
    assert left.callback is other
    session.forget_data_watches(["/none"], other)
    assert not session._client._data_watchers


@told
async def test_an_unreadable_state_in_a_later_part_is_named(
    harness: StoreHarness, zk: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "BULK_PATHS", 2)
    zk.create("/brokers/topics/t", b"{}")
    made = partitions("t", 5)
    assert await harness.commit(*(CreateState(p, state()) for p in made)) == Committed(1)
    zk.set(znode_paths.state_path("t", 3), b"junk")
    read = await harness.read(ReadStates(made))
    assert [found.path for found in read if isinstance(found, Problem)] == [znode_paths.state_path("t", 3)]


@told
async def test_what_does_not_decode_or_is_not_there_hides_nothing_else(
    harness: StoreHarness, zk: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    zk.create("/brokers/topics/good", b'{"version":3,"partitions":{"0":[1,2]}}')
    zk.create("/config/topics/good", b'{"version":1,"config":{"a":"1"}}', makepath=True)
    for path in ("/brokers/topics/bad", "/config/topics/bad"):
        zk.create(path, b"junk")
    names = ["good", "bad", "absent"]
    good, bad, absent = await harness.read(effects.ReadTopics(names))
    assert isinstance(good, effects.TopicInfo)
    assert (good.partitions, bad.path, absent) == ({0: (1, 2)}, "/brokers/topics/bad", None)
    good, bad, absent = await harness.read(effects.ReadTopicConfigs(names))
    assert (good, bad.path, absent) == ({"a": "1"}, "/config/topics/bad", {})
    answering(harness.session, monkeypatch, "/config/topics/good", jute.NO_AUTH)
    secret, *_ = await harness.read(effects.ReadTopicConfigs(names))
    assert (secret.path, secret.error) == ("/config/topics/good", single_codecs.NOT_READ)


@told
async def test_a_notification_that_may_not_be_read_hides_none_after_it(
    harness: StoreHarness, zk: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [f"/config/changes/config_change_000000000{n}" for n in range(2)]
    for path in paths:
        zk.create(path, b'{"version":2,"entity_path":"topics/t"}')
    answering(harness.session, monkeypatch, paths[0], jute.NO_AUTH)
    (first, problem), second = await harness.read(effects.ReadConfigChanges())
    assert (first, problem.path, second) == (paths[0], paths[0], (paths[1], "topics/t"))


async def _no_node(session: Session) -> None:
    with pytest.raises(NoNodeError):
        await session.delete("/none")


async def _refused(session: Session) -> None:
    with pytest.raises(jute.MultiError):
        await session.multi([jute.op_delete(session.packed_path("/none"), -1)])


def _writing(write: str, *arguments: Any) -> Callable[[Session], Awaitable[None]]:
    return lambda session: getattr(session, write)(*arguments)


@pytest.mark.parametrize(
    "asks",
    [
        Session.ping,
        _no_node,
        _refused,
        _writing("multi", [jute.op_check(f"{CHROOT}{znode_paths.CONTROLLER_EPOCH}".encode(), -1)]),
        _writing("create", "/new", b""),
        _writing("delete", znode_paths.DELETE_TOPICS),
    ],
    ids=["sync", "no node", "a refused commit", "a commit", "create", "delete"],
)
@told
async def test_what_a_majority_has_answered_renews_the_lease(
    harness: StoreHarness, asks: Callable[[Session], Awaitable[None]]
) -> None:
    session = harness.session
    await session.ping()
    whole_s = session.lease_remaining_s()
    await asyncio.sleep(2)
    assert session.lease_remaining_s() <= whole_s - 2
    await asks(session)
    assert session.lease_remaining_s() > whole_s - 1


@told
async def test_what_is_as_it_should_be_is_left_out_and_all_else_is_written(
    harness: StoreHarness, zk: Hands
) -> None:
    zk.create("/brokers/topics/t", b'{"version":3,"partitions":{"0":[1]}}')
    for path in ("/admin/there", "/admin/goes"):
        zk.create(path, b"", makepath=True)
    (known,) = await harness.read(effects.ReadTopics(["t"]))
    wider = replace(known, partitions={0: (1, 2)})
    writes: list[effects.Write] = [
        *(DeleteNode("/admin/never"), DeleteNode("/admin/goes"), DeleteNode("/admin/neither")),
        *(effects.CreateNode("/admin/there"), effects.CreateNode("/admin/comes"), SetTopic(wider)),
    ]
    assert isinstance(await harness.commit(*writes), Committed)
    assert zk.exists("/admin/goes") is None
    assert zk.exists("/admin/comes") is not None
    (found,) = await harness.read(effects.ReadTopics(["t"]))
    assert found.partitions == {0: (1, 2)}
    assert isinstance(await harness.commit(effects.CreateTopic(wider)), Unconfirmed)


@told
async def test_states_are_created_beside_parents_that_are_there(harness: StoreHarness, zk: Hands) -> None:
    zk.create("/brokers/topics/t/partitions/1", b"", makepath=True)
    made = partitions("t", 3)
    assert isinstance(await harness.commit(*(CreateState(p, state()) for p in made)), Committed)
    assert await harness.read(ReadStates(made)) == [state()] * 3


@told
async def test_an_unreadable_registration_tells_its_incarnation(harness: StoreHarness, zk: Hands) -> None:
    zk.create("/brokers/ids/2", b"{")
    (problem,) = (await harness.read(effects.ReadBrokers())).problems
    assert problem.czxid == zk.exists("/brokers/ids/2").czxid


def test_equal_contents_of_other_versions_are_other_states() -> None:
    data, cache = codecs.encode_state(LeaderAndIsr(1, 4, (1, 2), 0, 1)), StateCache()
    for version in (3, 5):
        found = cache.decode("t", 0, jute.Node(data, version, 1))
        assert isinstance(found, LeaderAndIsr)
        assert found.partition_epoch == version


@told
async def test_a_store_that_is_closed_hears_of_nothing(harness: StoreHarness, zk: Hands) -> None:
    await harness.read(effects.ReadTopicNames())
    harness.store.close()
    zk.create("/brokers/topics/t", b"{}")
    await asyncio.sleep(1)
    assert harness.events == []


@told
async def test_a_configuration_that_may_not_be_read_is_deleted_with_its_topic(
    harness: StoreHarness, zk: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    zk.create("/brokers/topics/t", b"{}")
    zk.create("/config/topics/t", b"{}", makepath=True)
    answering(harness.session, monkeypatch, "/config/topics/t", jute.NO_AUTH)
    (tree,) = await harness.read(effects.ReadTopicTrees(["t"]))
    assert tree == ["/brokers/topics/t", "/config/topics/t"]


@told_of_a_standby
async def test_it_counts_what_came_from_memory(made: World) -> None:
    await made.create("moving", 2)
    await made.edit("moving", adding={0: (2,)})
    async with following(made):
        pass
    await made.write(1, 5)
    await made.write(1, 5, "moving")
    assert await made.mirror.settle()
    store = Store(made.standby, 1, lambda _: None, mirror=made.mirror)
    await store.perform(effects.Read(1, effects.ReadPrepared()))
    assert (store.topics_from_memory, store.from_memory, store.from_zookeeper) == (1, 2, 0)
    left = [*partitions("t", 3)[1:2], *partitions("moving", 2)]
    found = await store.perform(effects.Read(2, ReadStates(left)))
    assert (store.from_memory, store.from_zookeeper) == (3, 2)
    assert isinstance(found, effects.Answer)
    stored = [state for state in found.value if isinstance(state, LeaderAndIsr)]  # type: ignore[attr-defined]
    assert [s.leader_epoch for s in stored] == [5, 0, 5]


@told_of_a_standby
async def test_what_is_in_quarantine_is_not_taken_from_memory_and_a_leader_hears_of_no_tree(
    made: World,
) -> None:
    await made.create("bad", 1)
    async with following(made):
        pass
    assert await made.mirror.settle()
    avoided = {znode_paths.topic_path("bad"): "it raised"}
    store = Store(made.standby, 1, lambda _: None, avoided, mirror=made.mirror)
    answer = await store.perform(effects.Read(1, effects.ReadPrepared()))
    assert isinstance(answer, effects.Answer)
    assert isinstance(answer.value, Prepared)
    assert "bad" not in answer.value.topics
    await made.write(0, 3)
    await made.standby.ping()
    assert made.standby.heard() == []


@told_of_a_standby
async def test_a_standby_that_proves_nothing_watches_nothing(made: World) -> None:

    async def digest(*_: object) -> None: ...

    standby = Standby(made.standby, StandbyMetrics(CollectorRegistry()), digest)
    standby.follow()
    await until(lambda: standby.mirror.warmth is Warmth.WARM, "all to be read")
    standby.mirror._connection = -1
    assert await standby.settled() is None
    await made.write(0, 3)
    await made.standby.ping()
    assert made.standby.heard() == []


# --- writing -------------------------------------------------------------------------------------------------


@told
async def test_many_topics_are_written_in_as_few_parts_as_fit(
    harness: StoreHarness, zk: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    infos = [info(f"t{n}", 0, 20) for n in range(6)]
    two = 2 * (len(codecs.encode_topic(infos[0])) + 400)
    monkeypatch.setattr(store_module, "MULTI_BYTES_MAX", two)
    for one in infos:
        zk.create(f"/brokers/topics/{one.name}", b"{}")
    sizes: list[int] = []
    multi = harness.session.multi

    async def counted(ops: Any) -> None:
        sizes.append(len(ops) - 1)
        await multi(ops)

    monkeypatch.setattr(harness.session, "multi", counted)
    assert await harness.commit(*(SetTopic(one) for one in infos)) == Committed(1)
    assert sizes == [2, 2, 2]
    for conflict, refused in (("t0", True), ("t5", False)):
        latest = [replace(one, version=zk.get(f"/brokers/topics/{one.name}")[1].version) for one in infos]
        zk.set(f"/brokers/topics/{conflict}", b"{}")
        outcome = await harness.commit(*map(SetTopic, latest))
        assert isinstance(outcome, Unconfirmed)
        assert outcome.refused == refused, "whether nothing of it was written"


@told
async def test_a_node_that_may_not_be_read_is_deleted_all_the_same(
    harness: StoreHarness, zk: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    zk.create("/admin/delete_topics/b")
    answering(harness.session, monkeypatch, "/admin/delete_topics/b", jute.NO_AUTH)
    writes = [DeleteNode(f"/admin/delete_topics/{name}") for name in ("a", "b")]
    assert await harness.commit(*writes) == Committed(1)
    assert zk.get_children("/admin/delete_topics") == []


NODE: FencedNode[tuple[term_history.TermRecord, ...]] = FencedNode(term_history.PATH, ())


@told
async def test_a_node_of_the_controller_s_own_that_does_not_decode_is_replaced(
    harness: StoreHarness, zk: Hands
) -> None:
    zk.create(term_history.PATH, b"junk", makepath=True)
    value, version = await NODE.read(harness.session)
    assert (value, version) == ((), 0)
    term = term_history.TermRecord(1, 1, 1000)
    await NODE.write(harness.session, 1, (term,), version)
    assert await NODE.read(harness.session) == ((term,), 1)


@told
async def test_a_node_of_the_controller_s_own_is_fenced(harness: StoreHarness) -> None:
    with pytest.raises(jute.MultiError):
        await NODE.write(harness.session, 7, (), None)
    assert await NODE.read(harness.session) == ((), None)


@told
async def test_who_is_deposed_meanwhile_puts_no_parent_back(
    harness: StoreHarness, zk: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    zk.delete(znode_paths.DELETE_TOPICS)
    look = harness.session.exists

    async def exists(path: str) -> Any:
        await harness.depose()
        return await look(path)

    monkeypatch.setattr(harness.session, "exists", exists)
    with pytest.raises(FencedError):
        await harness.commit(CreateNode(f"{znode_paths.DELETE_TOPICS}/t"))
    assert zk.exists(znode_paths.DELETE_TOPICS) is None


@told
async def test_what_another_has_written_meanwhile_is_not_written_over(
    harness: StoreHarness, zk: Hands
) -> None:
    topic = znode_paths.topic_path("t")
    zk.create(topic, b"{}")
    zk.set(topic, b"{}")
    zk.create(znode_paths.FEATURE, b"{}")
    assert isinstance(await harness.commit(SetTopic(info("t", 0, 1))), Unconfirmed)
    assert isinstance(await harness.commit(effects.PutFeature(7, {"f": 1})), Unconfirmed)
    assert (zk.get(topic)[0], zk.get(znode_paths.FEATURE)[0]) == (b"{}", b"{}")


@told
async def test_what_exists_already_costs_one_look(
    harness: StoreHarness, zk: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [f"{znode_paths.KAFKA_IDS}/{n}" for n in range(5)]
    for path in paths[:4]:
        zk.create(path, makepath=True)
    multi, count = harness.session.multi, 0

    async def counting(ops: Any) -> None:
        nonlocal count
        count += 1
        await multi(ops)

    monkeypatch.setattr(harness.session, "multi", counting)
    assert await harness.commit(*map(effects.CreateNode, paths)) == Committed(1)
    assert count == 2
    assert zk.exists(paths[4])


@told
async def test_who_is_in_quarantine_or_is_a_controller_is_no_broker(harness: StoreHarness, zk: Hands) -> None:
    broker = b'{"version":4,"host":"h","port":9}'
    for id_, data in ((1, broker), (2, broker), (3, codecs.encode_own_registration([], None))):
        zk.create(znode_paths.broker_path(id_), data, makepath=True)
    harness.store._quarantined = {znode_paths.broker_path(2): "it raised"}
    answer = await harness.read(effects.ReadBrokers())
    assert list(answer.brokers) == [1]
    assert [(p.path, p.problem) for p in answer.problems] == [(znode_paths.broker_path(2), "it raised")]


@told_of_a_standby
async def test_a_store_that_is_closed_ends_what_its_standby_hears(made: World) -> None:
    async with following(made):
        pass
    assert await made.mirror.settle()
    events: list[object] = []
    store = Store(made.standby, 1, events.append, mirror=made.mirror)
    await store.perform(effects.Read(1, effects.ReadPrepared()))
    store.close()
    await made.edit("t", partitions={0: (2, 1)})
    await made.standby.ping()
    assert events == []
