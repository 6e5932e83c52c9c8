"""The core's reads and writes on a real server: fencing, conflicts, parents, sizes, and lost replies."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

from controller.core import effects, znode_paths
from controller.core.effects import (
    Answer,
    Commit,
    Committed,
    CreateNode,
    CreateState,
    CreateTopic,
    DeleteNode,
    NotifyConfig,
    Problem,
    PutFeature,
    Read,
    SetState,
    SetTopic,
    TopicInfo,
    Unconfirmed,
    WriteNode,
)
from controller.core.events import Event, EventKind
from controller.core.model import FeatureRange, LeaderAndIsr, Partition, Topic
from controller.errors import FencedError, LeaseExpiredError
from controller.runtime.config import Settings
from controller.runtime.daemon import Daemon
from controller.runtime.zookeeper import codecs, jute
from controller.runtime.zookeeper.session import ConnectionState, Session
from controller.runtime.zookeeper.store import MULTI_BYTES_MAX, Store
from tests.support.runtime.daemons import running
from tests.support.runtime.proxy import proxied
from tests.support.runtime.sessions import opened, until

pytestmark = pytest.mark.slow


class StoreHarness:
    """A store on a session, with the epoch znode of a controller that won version 1."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.events: list[Event] = []
        self.store = Store(session, 1, self.events.append)

    async def prepare(self) -> Self:
        for path in (*znode_paths.PERSISTENT, "/admin"):
            await self.session.ensure(path)
        await self.session.create(znode_paths.CONTROLLER_EPOCH, b"0")
        await self.depose()
        return self

    async def depose(self) -> None:
        """Somebody writes a newer epoch."""
        await self.session.multi(
            [jute.op_set(self.session.packed_path(znode_paths.CONTROLLER_EPOCH), b"1", -1)]
        )

    async def commit(self, *writes: effects.Write) -> effects.Outcome:
        return await self.store.perform(Commit(1, writes))

    async def read(self, query: effects.AnyQuery) -> Any:
        answer = await self.store.perform(Read(2, query))
        assert isinstance(answer, Answer)
        return answer.value


@pytest.fixture
async def harness(session: Session) -> StoreHarness:
    return await StoreHarness(session).prepare()


def partitions(name: str, count: int) -> list[Partition]:
    topic = Topic(name)
    return [Partition(topic, n, (1, 2)) for n in range(count)]


def state(epoch: int = 0, leader: int = 1) -> LeaderAndIsr:
    return LeaderAndIsr(leader, epoch, (1, 2), epoch, 1)


def info(name: str, version: int, count: int = 1) -> TopicInfo:
    return TopicInfo(name, "A" * 22, dict.fromkeys(range(count), (1, 2)), {}, {}, 0, version)


# --- states ------------------------------------------------------------------------------------------------


async def test_states_are_created_read_and_replaced(harness: StoreHarness, zk: KazooClient) -> None:
    zk.create("/brokers/topics/t", b"{}")
    made = partitions("t", 3)
    assert await harness.commit(*(CreateState(p, state()) for p in made)) == Committed(1)
    assert zk.get("/brokers/topics/t/partitions/2/state")[0] == codecs.encode_state(state())
    assert zk.get("/brokers/topics/t/partitions/2")[0] == b""
    assert await harness.commit(*(SetState(p, state(1, 2)) for p in made[:2])) == Committed(1)
    unknown = partitions("nope", 1)
    read = await harness.read(effects.ReadStates([*made, *unknown]))
    assert read == [state(1, 2), state(1, 2), state(), None]


@pytest.mark.parametrize("existing", ["partitions", "partitions/0", "partitions/1"])
async def test_some_parents_exist_already(harness: StoreHarness, zk: KazooClient, existing: str) -> None:
    zk.create(f"/brokers/topics/t/{existing}", makepath=True)
    made = partitions("t", 3)
    assert await harness.commit(*(CreateState(p, state()) for p in made)) == Committed(1)
    assert await harness.read(effects.ReadStates(made)) == [state()] * 3


async def test_a_state_that_exists_is_a_conflict_and_nothing_lands(
    harness: StoreHarness, zk: KazooClient
) -> None:
    zk.create("/brokers/topics/t/partitions/1/state", b"theirs", makepath=True)
    outcome = await harness.commit(*(CreateState(p, state()) for p in partitions("t", 3)))
    assert isinstance(outcome, Unconfirmed)
    assert "-110" in outcome.reason
    assert zk.get("/brokers/topics/t/partitions/1/state")[0] == b"theirs"
    assert zk.get_children("/brokers/topics/t/partitions") == ["1"]


async def test_a_topic_that_vanished_is_a_conflict(harness: StoreHarness) -> None:
    assert isinstance(await harness.commit(CreateState(partitions("gone", 1)[0], state())), Unconfirmed)


async def test_one_conflict_rolls_the_whole_batch_back(harness: StoreHarness, zk: KazooClient) -> None:
    zk.create("/brokers/topics/t", b"{}")
    made = partitions("t", 3)
    await harness.commit(*(CreateState(p, state()) for p in made))
    zk.set("/brokers/topics/t/partitions/1/state", b"theirs")
    outcome = await harness.commit(*(SetState(p, state(1)) for p in made))
    assert isinstance(outcome, Unconfirmed)
    assert "-103" in outcome.reason
    assert outcome.refused
    assert await harness.read(effects.ReadStates([made[0]])) == [state()]


async def test_an_unreadable_state_hides_no_other(harness: StoreHarness, zk: KazooClient) -> None:
    zk.create("/brokers/topics/t", b"{}")
    made = partitions("t", 3)
    await harness.commit(*(CreateState(p, state()) for p in made))
    zk.set("/brokers/topics/t/partitions/1/state", b'{"version":1}')
    first, second, third = await harness.read(effects.ReadStates(made))
    assert first == third == state()
    assert isinstance(second, Problem)
    assert second.path == "/brokers/topics/t/partitions/1/state"
    assert "leader" in second.problem


# --- fencing -----------------------------------------------------------------------------------------------


def _every_write() -> dict[str, effects.Write]:
    (partition,) = partitions("t", 1)
    return {
        "SetState": SetState(partition, state(1)),
        "CreateState": CreateState(partition, state()),
        "CreateTopic": CreateTopic(info("new", 0)),
        "SetTopic": SetTopic(info("t", 0)),
        "DeleteNode": DeleteNode("/brokers/topics/t"),
        "PutFeature": PutFeature(None),
        "CreateNode": CreateNode("/admin/delete_topics/t"),
        "WriteNode": WriteNode("/config/topics/t", {}, None),
        "NotifyConfig": NotifyConfig("topics/t"),
    }


@pytest.mark.parametrize("write", _every_write())
@pytest.mark.parametrize("epoch", ["changed", "deleted"])
async def test_every_write_of_a_deposed_controller_is_refused(
    harness: StoreHarness, zk: KazooClient, write: str, epoch: str
) -> None:
    zk.create("/brokers/topics/t", b"{}")
    if epoch == "changed":
        await harness.depose()
    else:
        zk.delete(znode_paths.CONTROLLER_EPOCH)
    with pytest.raises(FencedError, match="/controller_epoch"):
        await harness.commit(_every_write()[write])
    assert zk.get("/brokers/topics/t")[0] == b"{}"
    assert zk.get_children("/brokers/topics/t") == []
    assert not zk.exists(znode_paths.FEATURE)
    assert not zk.exists("/admin/delete_topics/t")
    assert zk.get_children("/config/topics") == zk.get_children("/config/changes") == []


async def test_nothing_is_submitted_without_a_lease(
    harness: StoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness.session, "lease_remaining_s", lambda: -0.001)
    with pytest.raises(LeaseExpiredError):
        await harness.commit(PutFeature(None))
    with pytest.raises(LeaseExpiredError):
        await harness.read(effects.ReadFeature())


# --- everything else ---------------------------------------------------------------------------------------


async def test_absent_nodes_to_delete_are_fine_and_the_rest_goes(
    harness: StoreHarness, zk: KazooClient
) -> None:
    for name in ("a", "b"):
        zk.create(f"/admin/delete_topics/{name}")
    outcome = await harness.commit(
        *(DeleteNode(f"/admin/delete_topics/{n}") for n in ("x", "a", "y", "b", "z")), DeleteNode("/admin/no")
    )
    assert outcome == Committed(1)
    assert zk.get_children("/admin/delete_topics") == []


async def test_hundreds_of_absent_nodes_cost_one_look(
    harness: StoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = 0
    multi = harness.session.multi

    async def counted(ops: Any) -> None:
        nonlocal attempts
        attempts += 1
        await multi(ops)

    monkeypatch.setattr(harness.session, "multi", counted)
    every = [DeleteNode(f"/config/topics/t{n}") for n in range(300)]
    assert await harness.commit(*every, CreateNode("/admin/delete_topics/new")) == Committed(1)
    assert attempts == 2


async def test_a_node_to_create_that_is_there_is_fine_and_the_rest_goes(
    harness: StoreHarness, zk: KazooClient
) -> None:
    zk.create("/admin/delete_topics/b", b"kept")
    outcome = await harness.commit(*(CreateNode(f"/admin/delete_topics/{n}") for n in "abc"))
    assert outcome == Committed(1)
    assert sorted(zk.get_children("/admin/delete_topics")) == ["a", "b", "c"]
    assert zk.get("/admin/delete_topics/b")[0] == b"kept"
    assert zk.get("/admin/delete_topics/a")[0] == b""


async def test_markers_are_watched(harness: StoreHarness, zk: KazooClient) -> None:
    assert await harness.read(effects.ReadPendingDeletions()) == []
    zk.create("/admin/delete_topics/t")
    await until(lambda: harness.events == [Event(EventKind.TOPIC_DELETION)], "the event")
    assert await harness.read(effects.ReadPendingDeletions()) == ["t"]


@pytest.mark.parametrize("thorough", [False, True])
async def test_a_topics_tree_can_be_deleted_in_its_order(
    harness: StoreHarness, zk: KazooClient, thorough: bool
) -> None:
    for number in range(3):
        zk.create(f"/brokers/topics/t/partitions/{number}", makepath=True)
    zk.create("/brokers/topics/t/partitions/0/state")
    zk.create("/brokers/topics/t/foreign/deep", makepath=True)
    zk.create("/brokers/topics/bare")
    for name in ("t", "half"):
        zk.create(f"/config/topics/{name}", makepath=True)
    names = ["t", "absent", "bare", "half"]
    whole, absent, bare, half = await harness.read(effects.ReadTopicTrees(names, thorough))
    assert (absent, bare, half) == ([], ["/brokers/topics/bare"], ["/config/topics/half"])
    assert len(whole) == len(set(whole)) == 9
    assert whole[-2:] == ["/brokers/topics/t", "/config/topics/t"]
    assert await harness.commit(*map(DeleteNode, whole)) == Committed(1)
    assert zk.get_children("/brokers/topics") == ["bare"]


async def test_a_thorough_look_finds_what_others_put_below_a_partition(
    harness: StoreHarness, zk: KazooClient
) -> None:
    zk.create("/brokers/topics/t/partitions/0/state/foreign", makepath=True)
    (usual,) = await harness.read(effects.ReadTopicTrees(["t"]))
    assert isinstance(await harness.commit(*map(DeleteNode, usual)), Unconfirmed)
    (thorough,) = await harness.read(effects.ReadTopicTrees(["t"], thorough=True))
    assert await harness.commit(*map(DeleteNode, thorough)) == Committed(1)
    assert zk.get_children("/brokers/topics") == []


async def test_what_is_expected_of_a_tree_is_not_looked_for(harness: StoreHarness, zk: KazooClient) -> None:
    for number in range(3):
        zk.create(f"/brokers/topics/t/partitions/{number}/state", makepath=True)
    zk.create("/config/topics/t", makepath=True)
    (looked,) = await harness.read(effects.ReadTopicTrees(["t"]))
    (expected, other) = await harness.read(
        effects.ReadTopicTrees(["t", "other"], expected={"t": [0, 1, 2], "other": [0]})
    )
    assert sorted(expected) == sorted(looked)
    assert other[-1] == "/brokers/topics/other"
    (too_few,) = await harness.read(effects.ReadTopicTrees(["t"], expected={"t": [0, 1]}))
    assert isinstance(await harness.commit(*map(DeleteNode, too_few)), Unconfirmed)
    (too_many,) = await harness.read(effects.ReadTopicTrees(["t"], expected={"t": range(9)}))
    assert await harness.commit(*map(DeleteNode, too_many)) == Committed(1)
    assert zk.get_children("/brokers/topics") == zk.get_children("/config/topics") == []


async def test_a_node_with_children_is_a_conflict(harness: StoreHarness, zk: KazooClient) -> None:
    zk.create("/brokers/topics/t/partitions", makepath=True)
    assert isinstance(await harness.commit(DeleteNode("/brokers/topics/t")), Unconfirmed)


async def test_feature_is_created_and_replaced(harness: StoreHarness, zk: KazooClient) -> None:
    assert await harness.read(effects.ReadFeature()) is None
    assert await harness.commit(PutFeature(None)) == Committed(1)
    assert await harness.read(effects.ReadFeature()) == effects.FeatureAnswer(True, 0)
    assert isinstance(await harness.commit(PutFeature(None)), Unconfirmed)
    assert await harness.commit(PutFeature(0, {"f": 3})) == Committed(1)
    assert await harness.read(effects.ReadFeature()) == effects.FeatureAnswer(
        True, 1, (FeatureRange("f", 3, 3),)
    )
    zk.set(znode_paths.FEATURE, b"junk")
    assert isinstance(await harness.read(effects.ReadFeature()), Problem)


async def test_topic_znodes_over_the_limit_of_one_multi_are_split(zookeeper: str, zk: KazooClient) -> None:
    """A server that nobody configured takes 1 MiB."""
    names = [f"t{n}" for n in range(6)]
    infos = [info(name, 0, 15_000) for name in names]
    assert sum(len(codecs.encode_topic(i)) for i in infos) > MULTI_BYTES_MAX
    async with proxied(zookeeper) as proxy, opened(proxy.connect) as (session, _):
        harness = await StoreHarness(session).prepare()
        for name in names:
            zk.create(f"/brokers/topics/{name}", b"{}")
        before = proxy.requests[jute.OP_MULTI]
        assert await harness.commit(*(SetTopic(i) for i in infos)) == Committed(1)
        assert proxy.requests[jute.OP_MULTI] > before + 1
        assert proxy.bytes_max[jute.OP_MULTI] < 2**20
        found = await harness.read(effects.ReadTopics(names))
        assert [len(t.partitions) for t in found] == [15_000] * 6
        assert [t.version for t in found] == [1] * 6


async def test_topics_configs_and_lists(harness: StoreHarness, zk: KazooClient) -> None:
    zk.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1]}}')
    zk.create("/brokers/topics/bad", b"[]")
    zk.create("/config/topics/t", b'{"version":1,"config":{"a":"b"}}')
    zk.create("/config/topics/bad", b"7")
    zk.create("/admin/delete_topics/t")
    zk.create("/isr_change_notification/isr_change_2", b"")
    zk.create("/log_dir_event_notification/log_dir_event_1", b"")
    assert sorted(await harness.read(effects.ReadTopicNames())) == ["bad", "t"]
    topic, bad, absent = await harness.read(effects.ReadTopics(["t", "bad", "absent"]))
    assert topic.partitions == {0: (1,)}
    assert topic.czxid == zk.exists("/brokers/topics/t").czxid
    assert isinstance(bad, Problem)
    assert absent is None
    config, bad, absent = await harness.read(effects.ReadTopicConfigs(["t", "bad", "absent"]))
    assert (config, absent) == ({"a": "b"}, {})
    assert isinstance(bad, Problem)
    assert await harness.read(effects.ReadPendingDeletions()) == ["t"]
    assert await harness.read(effects.ReadNotifications()) == [
        "/log_dir_event_notification/log_dir_event_1",
        "/isr_change_notification/isr_change_2",
    ]


async def test_notifications_good_and_bad_oldest_first(harness: StoreHarness, zk: KazooClient) -> None:
    paths = [
        zk.create(f"{znode_paths.ISR_NOTIFICATIONS}/isr_change_", data, sequence=True)
        for data in (b'{"version":1,"partitions":[{"topic":"t","partition":3}]}', b"[]", b"")
    ]
    assert paths[0].endswith("isr_change_0000000000")
    good, bad, empty = await harness.read(effects.ReadIsrNotifications())
    assert good == (paths[0], [("t", 3)])
    assert [(path, problem.path) for path, problem in (bad, empty)] == [(p, p) for p in paths[1:]]
    paths = [
        zk.create(f"{znode_paths.LOG_DIR_NOTIFICATIONS}/log_dir_event_", data, sequence=True)
        for data in (b'{"version":1,"broker":2,"event":1}', b'{"version":1,"event":1}')
    ]
    good, bad = await harness.read(effects.ReadLogDirEvents())
    assert good == (paths[0], 2)
    assert bad[0] == paths[1]
    assert "`broker`" in bad[1].problem
    every = await harness.read(effects.ReadNotifications())
    assert await harness.commit(*(DeleteNode(path) for path in every)) == Committed(1)
    assert await harness.read(effects.ReadIsrNotifications()) == []
    assert await harness.read(effects.ReadLogDirEvents()) == []


async def test_brokers_good_and_bad(harness: StoreHarness, zk: KazooClient) -> None:
    zk.create("/brokers/ids/1", b'{"version":4,"host":"h","port":9}')
    zk.create("/brokers/ids/2", b"{")
    zk.create("/brokers/ids/x", b'{"version":4,"host":"h","port":9}')
    zk.create("/brokers/ids/²", b'{"version":4,"host":"h","port":9}')
    answer = await harness.read(effects.ReadBrokers())
    assert {id_: b.epoch for id_, b in answer.brokers.items()} == {1: zk.exists("/brokers/ids/1").czxid}
    assert sorted(p.path for p in answer.problems) == ["/brokers/ids/2", "/brokers/ids/x", "/brokers/ids/²"]


async def test_removed_parents_are_put_back_and_watched(harness: StoreHarness, zk: KazooClient) -> None:
    for path in (
        znode_paths.BROKER_IDS,
        znode_paths.TOPICS,
        znode_paths.DELETE_TOPICS,
        znode_paths.ISR_NOTIFICATIONS,
    ):
        zk.delete(path)
    assert (await harness.read(effects.ReadBrokers())).brokers == {}
    assert await harness.read(effects.ReadTopicNames()) == []
    assert await harness.read(effects.ReadPendingDeletions()) == []
    assert await harness.read(effects.ReadNotifications()) == []
    zk.create("/brokers/topics/t", b"")
    await until(lambda: harness.events == [Event(EventKind.TOPIC_CHANGE)], "the watch")


async def test_a_write_below_a_removed_parent_puts_it_back(harness: StoreHarness, zk: KazooClient) -> None:
    parents = (
        znode_paths.TOPIC_CONFIGS,
        znode_paths.CONFIG_CHANGES,
        znode_paths.TOPICS,
        znode_paths.DELETE_TOPICS,
    )
    for path in parents:
        zk.delete(path)
    outcome = await harness.commit(
        effects.write_node(znode_paths.topic_config_path("t"), {"retention.ms": "1"}, None),
        effects.NotifyConfig("topics/t"),
        CreateTopic(info("t", -1)),
        CreateNode("/admin/delete_topics/u"),
    )
    assert outcome == Committed(1)
    assert [zk.get_children(path) for path in parents] == [["t"], ["config_change_0000000000"], ["t"], ["u"]]


async def test_a_removed_parent_that_may_not_be_put_back_is_a_write_that_failed(
    harness: StoreHarness, zk: KazooClient
) -> None:
    zk.delete(znode_paths.CONFIG_CHANGES)
    before, _ = zk.get_acls(znode_paths.CONFIG)
    zk.set_acls(znode_paths.CONFIG, [make_acl("world", "anyone", read=True, admin=True)])
    outcome = await harness.commit(effects.NotifyConfig("topics/t"))
    zk.set_acls(znode_paths.CONFIG, before)
    assert isinstance(outcome, Unconfirmed)
    assert "an ACL forbids it" in outcome.reason
    assert await harness.commit(effects.NotifyConfig("topics/t")) == Committed(1)


async def test_watches_say_look_again(harness: StoreHarness, zk: KazooClient) -> None:
    topic = b'{"version":1,"partitions":{"0":[1]}}'
    zk.create("/brokers/topics/t", topic)
    zk.create("/brokers/ids/1", b"{}")
    await harness.read(effects.ReadTopicNames())
    await harness.read(effects.ReadTopics(["t"]))
    await harness.read(effects.ReadBrokers())
    assert await harness.read(effects.ReadPreferredElection()) is None
    await harness.read(effects.ReadNotifications())
    cases: list[tuple[Callable[[], object], Event]] = [
        (lambda: zk.set("/brokers/topics/t", topic), Event(EventKind.PARTITION_MODIFICATIONS, "t")),
        (lambda: zk.set("/brokers/ids/1", b"{ }"), Event(EventKind.BROKER_CHANGE)),
        (lambda: zk.create("/brokers/ids/2", b"{}"), Event(EventKind.BROKER_CHANGE)),
        (lambda: zk.create("/brokers/topics/u", topic), Event(EventKind.TOPIC_CHANGE)),
        (lambda: zk.create(znode_paths.PREFERRED_ELECTION, b"{}"), Event(EventKind.PREFERRED_ELECTION)),
        (lambda: zk.create(f"{znode_paths.ISR_NOTIFICATIONS}/isr_change_1"), Event(EventKind.ISR_CHANGE)),
        (lambda: zk.create(f"{znode_paths.LOG_DIR_NOTIFICATIONS}/log_dir_event_1"), Event(EventKind.LOG_DIR)),
    ]
    for change, expected in cases:
        harness.events.clear()
        change()
        await until(lambda e=expected: harness.events == [e], str(expected))  # type: ignore[misc]
    assert isinstance(await harness.read(effects.ReadPreferredElection()), Problem)
    harness.events.clear()
    await harness.read(effects.ReadIsrNotifications())
    await harness.read(effects.ReadLogDirEvents())
    zk.delete(f"{znode_paths.ISR_NOTIFICATIONS}/isr_change_1")
    zk.delete(f"{znode_paths.LOG_DIR_NOTIFICATIONS}/log_dir_event_1")
    await until(
        lambda: harness.events == [Event(EventKind.ISR_CHANGE), Event(EventKind.LOG_DIR)], "the watches again"
    )


async def test_a_registration_that_goes_is_one_event(harness: StoreHarness, zk: KazooClient) -> None:
    """Its list and its znode are both watched."""
    zk.create("/brokers/ids/1", b"{}")
    await harness.read(effects.ReadBrokers())
    await harness.read(effects.ReadTopicNames())
    zk.delete("/brokers/ids/1")
    # Events come in their order.
    zk.create("/brokers/topics/t", b"")
    expected = [Event(EventKind.BROKER_CHANGE), Event(EventKind.TOPIC_CHANGE)]
    await until(lambda: harness.events[-1:] == expected[-1:], "the topic")
    assert harness.events == expected


# --- lost replies ------------------------------------------------------------------------------------------


async def test_a_commit_whose_reply_is_lost_is_unsettled_although_it_landed(
    zookeeper: str, zk: KazooClient
) -> None:
    async with proxied(zookeeper) as proxy, opened(proxy.connect) as (session, changes):
        harness = await StoreHarness(session).prepare()
        zk.create("/brokers/topics/t", b"{}")
        made = partitions("t", 2)
        proxy.lose_answers.append(jute.OP_MULTI)
        outcome = await harness.commit(*(CreateState(p, state()) for p in made))
        assert isinstance(outcome, Unconfirmed)
        assert "lost" in outcome.reason
        assert not outcome.refused
        # The same session goes on, and reading back shows that it landed.
        assert await harness.read(effects.ReadStates(made)) == [state()] * 2
        assert ConnectionState.EXPIRED not in changes


async def test_a_read_whose_reply_is_lost_is_read_again(zookeeper: str, zk: KazooClient) -> None:
    async with proxied(zookeeper) as proxy, opened(proxy.connect) as (session, _):
        harness = await StoreHarness(session).prepare()
        zk.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1]}}')
        await session.bulk_get(["/"])  # the first on a connection finds out that there is multiRead
        before = proxy.requests[jute.OP_MULTI_READ]
        proxy.lose_answers.append(jute.OP_MULTI_READ)
        (topic,) = await harness.read(effects.ReadTopics(["t"]))
        assert topic.partitions == {0: (1,)}
        assert proxy.requests[jute.OP_MULTI_READ] == before + 3


async def test_lost_replies_of_a_whole_creation_end_in_success(
    zookeeper: str, zk: KazooClient, tmp_path: Path
) -> None:
    """End to end: one answer after another is lost, and the topic is led all the same, each state written once."""
    async with proxied(zookeeper) as proxy:
        settings = Settings(zookeeper=proxy.connect, state_log_dir=tmp_path)
        async with running(Daemon(settings)) as daemon:
            await until(lambda: daemon.active, "the failover")
            zk.create("/brokers/ids/1", b'{"version":5,"endpoints":["GRPC://127.0.0.1:1"]}')
            # The first two multis of the creation: the topic's id, and the states.
            proxy.lose_answers += [jute.OP_MULTI, jute.OP_MULTI]
            zk.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1],"1":[1]}}')
            await until(lambda: bool(zk.exists("/brokers/topics/t/partitions/1/state")), "states")
            await until(lambda: not proxy.lose_answers and known(daemon) == ["OnlinePartition"] * 2, "online")
            for number in range(2):
                data, stat = zk.get(f"/brokers/topics/t/partitions/{number}/state")
                assert json.loads(data)["leader"] == 1
                assert stat.version == 0
            term = daemon.term
            assert term is not None
            topic = term.machine.cluster.topics["t"]
            stored = json.loads(zk.get("/brokers/topics/t")[0])
            assert stored["topic_id"] == topic.id != ""
            assert zk.get(znode_paths.CONTROLLER_EPOCH)[0] == b"1"  # nobody resigned over it


def known(daemon: Daemon) -> list[str]:
    term = daemon.term
    return [p.state.value for p in term.machine.cluster.partitions()] if term else []
