"""The original's KafkaZkClientTest (``runtime_cases.jsonl``), on our store and a real server."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError

from controller.core import effects, znode_paths
from controller.core.effects import (
    Committed,
    CreateState,
    CreateTopic,
    DeleteNode,
    SetReassignment,
    SetState,
    SetTopic,
    Unconfirmed,
    Write,
)
from controller.core.events import Event, EventKind
from controller.errors import FencedError
from controller.runtime.election import registration
from controller.runtime.election.controller_election import Candidate
from controller.runtime.zookeeper import codecs, jute
from controller.runtime.zookeeper.store import Store
from proto.incarnations import new_incarnation
from tests.runtime.zookeeper.test_store import StoreHarness, info, partitions, state
from tests.support.reference_rows import Row, load
from tests.support.runtime.sessions import until

pytestmark = pytest.mark.slow

ROWS = load("runtime_cases.jsonl")
#: ZooKeeper's error codes by the names that rows use.
CODES = {"NO_NODE": "-101", "BAD_VERSION": "-103", "NODE_EXISTS": "-110"}
TOPIC = b'{"version":1,"partitions":{"0":[1]}}'


@pytest.fixture
async def harness(session: Any) -> StoreHarness:
    return await StoreHarness(session).prepare()


async def by_another(harness: StoreHarness, epoch_version: int, *writes: Write) -> effects.Outcome:
    """A commit by a controller that believes in another version of ``/controller_epoch``; V is 1."""
    return await Store(harness.session, epoch_version, harness.events.append).perform(
        effects.Commit(1, writes)
    )


async def fenced(harness: StoreHarness, *writes: Write) -> None:
    """CONTROLLER_MOVED: with V+1."""
    with pytest.raises(FencedError, match="/controller_epoch"):
        await by_another(harness, 2, *writes)


def conflicted(outcome: effects.Outcome, code: str) -> None:
    assert isinstance(outcome, Unconfirmed)
    assert CODES[code] in outcome.reason


# --- topics and brokers --------------------------------------------------------------------------------------


async def k501(harness: StoreHarness, zk: KazooClient, row: Row) -> None:
    counts = []
    listed = [row["when"]["create"]["topic1"], row["when"]["then_set"]["topic1"]]
    for version, lists in enumerate(listed):
        named = effects.TopicInfo("topic1", "A" * 22, dict(enumerate(map(tuple, lists))), {}, {}, 0, 0)
        write = CreateTopic(named) if version == 0 else SetTopic(named)
        assert await harness.commit(write) == Committed(1)
        (found,) = await harness.read(effects.ReadTopics(["topic1"]))
        assert [list(ids) for ids in found.partitions.values()] == lists
        counts.append(len(found.partitions))
    assert counts == row["then"]["partition_count"]
    zk.create("/brokers/topics/topic2", TOPIC)
    assert sorted(await harness.read(effects.ReadTopicNames())) == row["then"]["all_topics_after_topic2"]


async def k502(harness: StoreHarness, zk: KazooClient, row: Row) -> None:
    assert await harness.read(effects.ReadTopicNames()) == []
    assert await harness.session.children(znode_paths.TOPICS) == []
    zk.create("/brokers/topics/t", TOPIC)
    await until(lambda: harness.events == [Event(EventKind.TOPIC_CHANGE)], "the watch")


async def k517(harness: StoreHarness, zk: KazooClient, row: Row) -> None:
    for broker in row["given"]["brokers"]:
        zk.create(znode_paths.broker_path(broker), b'{"version":4,"host":"h","port":1}', ephemeral=True)
    found = (await harness.read(effects.ReadBrokers())).brokers
    assert sorted(found) == row["then"]["sorted"]
    assert {b.epoch for b in found.values()} == {zk.exists(znode_paths.broker_path(b)).czxid for b in found}


async def k524(harness: StoreHarness, zk: KazooClient, row: Row) -> None:
    for name in row["given"]["topics"]:
        zk.create(znode_paths.topic_path(name), b'{"version":1,"partitions":{"0":[1,2],"1":[1,2]}}')
    made = partitions("topic1", 2)
    await harness.commit(*(CreateState(p, state()) for p in made))
    found = await harness.read(effects.ReadTopics(["topic1", "topic2"]))
    assert [sorted(t.partitions) for t in found] == [[0, 1], [0, 1]]
    absent = partitions("topic2", 2)
    assert await harness.read(effects.ReadStates([*made, *absent])) == [state(), state(), None, None]
    assert len(row["then"]["partitions"]) == len(made)


# --- partition states ----------------------------------------------------------------------------------------


async def k519(harness: StoreHarness, zk: KazooClient, row: Row) -> None:
    zk.create("/brokers/topics/t", TOPIC)
    for partition in partitions("t", 2):
        conflicted(
            await harness.commit(SetState(partition, state(1))),
            row["then"]["failed"][f"p1{partition.number}"],
        )
    assert zk.get_children("/brokers/topics/t") == []


async def _two_states(harness: StoreHarness, zk: KazooClient) -> list[Any]:
    zk.create("/brokers/topics/t", TOPIC)
    made = partitions("t", 2)
    assert await harness.commit(*(CreateState(p, state()) for p in made)) == Committed(1)
    return made


async def k520(harness: StoreHarness, zk: KazooClient, row: Row) -> None:
    made = await _two_states(harness, zk)
    await fenced(harness, *(SetState(p, state(1)) for p in made))
    assert await harness.read(effects.ReadStates(made)) == [state()] * 2


async def k522(harness: StoreHarness, zk: KazooClient, row: Row) -> None:
    """A state of version 1 is not replaced by what was decided on version 0: it is read anew and decided again."""
    made = await _two_states(harness, zk)
    assert await harness.commit(*(SetState(p, state(1)) for p in made)) == Committed(1)
    conflicted(await harness.commit(*(SetState(p, state(1, 2)) for p in made)), "BAD_VERSION")
    assert await harness.read(effects.ReadStates(made)) == [state(1)] * len(row["then"]["retry"])


async def k525(harness: StoreHarness, zk: KazooClient, row: Row) -> None:
    zk.create("/brokers/topics/t", TOPIC)
    moved, created, again = row["then"]["results"]
    (partition,) = partitions("t", 1)
    write = CreateState(partition, state())
    assert (moved, created) == ("CONTROLLER_MOVED", "OK")
    await fenced(harness, write)
    assert zk.get_children("/brokers/topics/t") == []
    assert await harness.commit(write) == Committed(1)
    conflicted(await harness.commit(CreateState(partition, state(0, 2))), again)
    assert await harness.read(effects.ReadStates([partition])) == [state()]


async def k526(harness: StoreHarness, zk: KazooClient, row: Row) -> None:
    zk.create("/brokers/topics/t", TOPIC)
    before, _, _, _ = row["then"]["results"]
    (partition,) = partitions("t", 1)
    conflicted(await harness.commit(SetState(partition, state(1))), before)
    await harness.commit(CreateState(partition, state()))
    assert await harness.commit(SetState(partition, state(1))) == Committed(1)
    await fenced(harness, SetState(partition, state(2)))
    assert await by_another(harness, 1, SetState(partition, state(2))) == Committed(1)
    assert zk.exists(znode_paths.state_path("t", 0)).version == 2


# --- the controller's own nodes ------------------------------------------------------------------------------


async def k528(harness: StoreHarness, zk: KazooClient, row: Row) -> None:
    zk.delete(znode_paths.CONTROLLER_EPOCH)
    path, results = harness.session.packed_path(znode_paths.CONTROLLER_EPOCH), []
    for step in row["when"]["steps"]:
        op = (
            jute.op_create(path, b"0")
            if step == "create 0"
            else jute.op_set(path, step.split()[1].encode(), 0)
        )
        try:
            await harness.session.multi([op])
            version = zk.exists(znode_paths.CONTROLLER_EPOCH).version
            results.append(f"OK version {version}" if version else "OK")
        except jute.MultiError as error:
            results.append(next(name for name, code in CODES.items() if code == str(error.code)))
    assert results == row["then"]["results"]


#: Section 1.1 of the reference, last note.
PERSISTENT = [
    "/consumers",
    "/brokers/ids",
    "/brokers/topics",
    "/brokers/seqid",
    "/config/changes",
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
    "/admin/delete_topics",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
]


async def k532(harness: StoreHarness, zk: KazooClient, row: Row) -> None:
    for path in PERSISTENT:
        if zk.exists(path) and not zk.get_children(path):
            zk.delete(path)
    for _ in range(2):
        await registration.register(harness.session, Candidate(1, "h:1", new_incarnation()), "h:2")
        assert [path for path in PERSISTENT if not zk.exists(path)] == []


# --- requests of tools ---------------------------------------------------------------------------------------


async def k531(harness: StoreHarness, zk: KazooClient, row: Row) -> None:
    assert row["then"]["results"] == ["stored", "NODE_EXISTS", "CONTROLLER_MOVED, kept", "gone"]
    asked = codecs.encode_partition_list([("t", 0), ("t", 1)])
    zk.create(znode_paths.PREFERRED_ELECTION, asked)
    assert await harness.read(effects.ReadPreferredElection()) == [("t", 0), ("t", 1)]
    with pytest.raises(NodeExistsError):
        zk.create(znode_paths.PREFERRED_ELECTION, asked)
    await fenced(harness, DeleteNode(znode_paths.PREFERRED_ELECTION))
    assert zk.exists(znode_paths.PREFERRED_ELECTION)
    assert await harness.commit(DeleteNode(znode_paths.PREFERRED_ELECTION)) == Committed(1)
    assert not zk.exists(znode_paths.PREFERRED_ELECTION)


async def k368(harness: StoreHarness, zk: KazooClient, row: Row) -> None:
    """As tools write it: with a space here and there, and a partition of each topic."""
    asked = row["when"]["zk_write"]
    listed = [
        {"topic": name.rpartition("-")[0], "partition": int(name.rpartition("-")[2])}
        for name in asked["partitions"]
    ]
    zk.create(asked["path"], json.dumps({"version": 1, "partitions": listed}, indent=1).encode())
    read = await harness.read(effects.ReadPreferredElection())
    assert [f"{topic}-{number}" for topic, number in read] == row["then"]["zk_read"]


async def k510(harness: StoreHarness, zk: KazooClient, row: Row) -> None:
    """The tool creates the node; the controller trims it, and deletes it with its last entry."""
    assert row["then"]["results"] == ["CONTROLLER_MOVED", "stored", "replaced", "empty", "stored"]
    both = [("t", 0, (1, 2)), ("t", 1, (2, 1))]
    zk.create(znode_paths.REASSIGN_PARTITIONS, codecs.encode_reassignments(both))
    await fenced(harness, SetReassignment(both[:1], 0))
    assert tuple((await harness.read(effects.ReadReassignment())).entries) == tuple(both)
    assert await harness.commit(SetReassignment(both[:1], 0)) == Committed(1)
    found = await harness.read(effects.ReadReassignment())
    assert (tuple(found.entries), found.version) == (tuple(both[:1]), 1)
    await fenced(harness, SetReassignment([], 1))
    # Somebody wrote to it meanwhile: what was decided on the version before counts for nothing.
    conflicted(await harness.commit(SetReassignment([], 0)), "BAD_VERSION")
    assert await harness.commit(SetReassignment([], 1)) == Committed(1)
    assert await harness.read(effects.ReadReassignment()) is None
    zk.create(znode_paths.REASSIGN_PARTITIONS, codecs.encode_reassignments(both))
    assert (await harness.read(effects.ReadReassignment())).version == 0


async def k512(harness: StoreHarness, zk: KazooClient, row: Row) -> None:
    assert await harness.commit(DeleteNode(znode_paths.topic_path("absent"))) == Committed(1)
    assert await harness.commit(CreateTopic(info("present", 0))) == Committed(1)
    await fenced(harness, DeleteNode(znode_paths.topic_path("present")))
    assert zk.exists(znode_paths.topic_path("present"))
    assert await harness.commit(DeleteNode(znode_paths.topic_path("present"))) == Committed(1)
    assert not zk.exists(znode_paths.topic_path("present"))


# --- notifications -------------------------------------------------------------------------------------------


async def k505(harness: StoreHarness, zk: KazooClient, row: Row) -> None:
    for listed in ([("topic1", 0), ("topic1", 1)], [("topic1", 0)]):
        data = codecs.encode_partition_list(listed)
        zk.create(f"{znode_paths.ISR_NOTIFICATIONS}/isr_change_", data, sequence=True)
    found = await harness.read(effects.ReadIsrNotifications())
    assert [path.rpartition("_")[2] for path, _ in found] == row["then"]["sequence_numbers"]
    numbers = [f"p1{number}" for _, listed in found for _, number in listed]
    assert numbers == row["then"]["partitions"]


async def _notifications(harness: StoreHarness, zk: KazooClient, prefix: str, data: bytes) -> list[str]:
    return [zk.create(prefix, data, sequence=True) for _ in range(3)]


async def k506(harness: StoreHarness, zk: KazooClient, row: Row) -> None:
    assert row["then"]["results"] == ["CONTROLLER_MOVED", "ok", "ok (absent)", "none left"]
    prefix = f"{znode_paths.ISR_NOTIFICATIONS}/isr_change_"
    paths = await _notifications(harness, zk, prefix, codecs.encode_partition_list([("t", 0)]))
    await fenced(harness, DeleteNode(paths[1]))
    assert len(zk.get_children(znode_paths.ISR_NOTIFICATIONS)) == 3
    for _ in range(2):
        assert await harness.commit(DeleteNode(paths[1])) == Committed(1)
        assert [p for p, _ in await harness.read(effects.ReadIsrNotifications())] == [paths[0], paths[2]]
    assert await harness.commit(*map(DeleteNode, paths)) == Committed(1)
    assert zk.get_children(znode_paths.ISR_NOTIFICATIONS) == []


async def k509(harness: StoreHarness, zk: KazooClient, row: Row) -> None:
    assert row["then"]["results"] == ["CONTROLLER_MOVED", "1 left", "0 left"]
    prefix = f"{znode_paths.LOG_DIR_NOTIFICATIONS}/log_dir_event_"
    paths = await _notifications(harness, zk, prefix, b'{"version":1,"broker":3,"event":1}')
    asked = [DeleteNode(paths[n]) for n in row["when"]["delete"][0]["seqs"]]
    await fenced(harness, *asked)
    assert len(zk.get_children(znode_paths.LOG_DIR_NOTIFICATIONS)) == 3
    assert await harness.commit(*asked) == Committed(1)
    assert await harness.read(effects.ReadLogDirEvents()) == [(paths[1], 3)]
    assert await harness.commit(*map(DeleteNode, paths)) == Committed(1)
    assert zk.get_children(znode_paths.LOG_DIR_NOTIFICATIONS) == []


CASES: dict[str, Callable[[StoreHarness, KazooClient, Row], Awaitable[None]]] = {
    function.__name__.upper(): function
    for function in (
        k368, k501, k502, k505, k506, k509, k510, k512, k517, k519, k520, k522, k524, k525, k526, k528, k531, k532
    )
}  # fmt: skip


@pytest.mark.parametrize("id_", CASES)
async def test_row(harness: StoreHarness, zk: KazooClient, id_: str) -> None:
    await CASES[id_](harness, zk, ROWS[id_])


async def test_a_listing_without_a_watch_arms_none(harness: StoreHarness, zk: KazooClient) -> None:
    """The neighbour of the row about its watch: what an inspection reads must not make events."""
    assert await harness.session.children(znode_paths.TOPICS) == []
    zk.create("/brokers/topics/t", TOPIC)
    # An event of the topic would come before this one.
    assert await harness.read(effects.ReadPendingDeletions()) == []
    zk.create(f"{znode_paths.DELETE_TOPICS}/t")
    await until(lambda: bool(harness.events), "the watch")
    assert harness.events == [Event(EventKind.TOPIC_DELETION)]


async def test_a_landed_update_counts_one_version_up_and_one_of_many_that_conflicts_stops_all(
    harness: StoreHarness, zk: KazooClient
) -> None:
    """Where the original reports one by one, a batch here lands whole or not at all."""
    made = await _two_states(harness, zk)
    assert await harness.commit(*(SetState(p, state(1)) for p in made)) == Committed(1)
    assert [zk.exists(znode_paths.state_path("t", n)).version for n in range(2)] == [1, 1]
    absent = partitions("t", 3)[2]
    for stopping, code in (
        (SetState(made[1], state(1, 2)), "BAD_VERSION"),
        (SetState(absent, state(2)), "NO_NODE"),
    ):
        conflicted(await harness.commit(SetState(made[0], state(2)), stopping), code)
        assert await harness.read(effects.ReadStates(made)) == [state(1), state(1)]
