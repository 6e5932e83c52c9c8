"""The store in memory, on which plans and the core's tests run, against a real server: the same steps come to the same
answers and events. Not alike, and so in no case here: a watch on an absent topic fires at once on a server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from controller.core import effects
from controller.core.effects import (
    Answer,
    AnyQuery,
    Commit,
    Committed,
    CreateNode,
    CreateState,
    CreateTopic,
    DeleteNode,
    NotifyConfig,
    PutFeature,
    Read,
    SetReassignment,
    SetState,
    SetTopic,
    TopicInfo,
    Write,
    WriteNode,
)
from controller.core.events import Event
from controller.core.model import LeaderAndIsr, Partition, Topic
from controller.core.znode_paths import (
    CONTROLLER_EPOCH,
    PERSISTENT,
    PREFERRED_ELECTION,
    REASSIGN_PARTITIONS,
    NodePath,
    deletion_path,
    partition_path,
    partitions_path,
    state_path,
    topic_config_path,
    topic_path,
)
from controller.planning.snapshot import Snapshot
from controller.planning.store import Store as MemoryStore
from controller.runtime.zookeeper import codecs, jute
from controller.runtime.zookeeper.session import Session
from controller.runtime.zookeeper.store import Store

pytestmark = pytest.mark.slow

T0, T1 = (Partition(Topic("t"), number, (1, 2)) for number in range(2))
CONFIG: NodePath[object] = NodePath(topic_config_path("t"))
CREATED = TopicInfo("t", "A" * 22, {0: (1, 2), 1: (2, 1)}, {}, {}, 0, 0)


def state(epoch: int = 0) -> LeaderAndIsr:
    return LeaderAndIsr(1, epoch, (1, 2), epoch, 1)


def all_of_t(*numbers: int) -> list[Write]:
    nodes = [*(state_path("t", n) for n in numbers), *(partition_path("t", n) for n in numbers)]
    return [DeleteNode(path) for path in (*nodes, partitions_path("t"), topic_path("t"))]


TOPICS_READ = (effects.ReadTopicNames(), effects.ReadTopics(["t"]))
#: Reads, which arm watches, and batches of writes.
Steps = Sequence[AnyQuery | list[Write]]
CASES: dict[str, Steps] = {
    "a topic's life": [
        effects.ReadTopicNames(),
        [CreateTopic(CREATED)],
        [CreateTopic(CREATED)],
        *TOPICS_READ,
        [CreateState(T0, state()), CreateState(T1, state())],
        [CreateState(T0, state())],
        effects.ReadStates([T0, T1]),
        effects.ReadTopicTrees(["t", "none"]),
        [SetTopic(CREATED)],
        [SetTopic(CREATED)],
        *TOPICS_READ,
        [DeleteNode(topic_path("t"))],
        all_of_t(0, 1),
        effects.ReadTopicNames(),
        effects.ReadStates([T0]),
        effects.ReadTopicTrees(["t"]),
    ],
    "states": [
        [CreateState(T0, state())],
        [CreateTopic(CREATED)],
        [CreateState(T0, state())],
        [SetState(T0, state(1)), SetState(T1, state(1))],
        effects.ReadStates([T0, T1]),
        [SetState(T0, state(1))],
        [SetState(T0, state(1))],
        effects.ReadStates([T0, T1]),
    ],
    "markers of deletion": [
        effects.ReadPendingDeletions(),
        [CreateNode(deletion_path("t")), CreateNode(deletion_path("u"))],
        [CreateNode(deletion_path("t"))],
        effects.ReadPendingDeletions(),
        [DeleteNode(deletion_path("t")), DeleteNode(deletion_path("none"))],
        [DeleteNode(deletion_path("u"))],
        effects.ReadPendingDeletions(),
    ],
    "nodes read one by one": [
        effects.ReadNodes([CONFIG]),
        [WriteNode(topic_config_path("t"), {"a": "1"}, 0)],
        [WriteNode(topic_config_path("t"), {"a": "1"}, None)],
        [WriteNode(topic_config_path("t"), {"a": "2"}, None)],
        [WriteNode(topic_config_path("t"), {"a": "2"}, 0)],
        [WriteNode(topic_config_path("t"), {"a": "3"}, 0)],
        effects.ReadNodes([CONFIG, NodePath(topic_config_path("none"))]),
        effects.ReadTopicConfigs(["t", "none"]),
        effects.ReadTopicTrees(["t"]),
        [DeleteNode(topic_config_path("t"))],
        effects.ReadTopicConfigs(["t"]),
    ],
    "changes of configuration": [
        effects.ReadConfigChanges(),
        [NotifyConfig("topics/t")],
        [NotifyConfig("brokers/<default>")],
        effects.ReadConfigChanges(),
    ],
    "a feature": [
        effects.ReadFeature(),
        [PutFeature(0)],
        [PutFeature(None)],
        [PutFeature(None)],
        [PutFeature(0, {"f": 2})],
        effects.ReadFeature(),
    ],
    "what is not there": [
        effects.ReadPreferredElection(),
        effects.ReadReassignment(),
        effects.ReadIsrNotifications(),
        effects.ReadLogDirEvents(),
        effects.ReadNotifications(),
        [DeleteNode(PREFERRED_ELECTION), DeleteNode(REASSIGN_PARTITIONS)],
        [SetReassignment([], 0)],
        [SetReassignment([("t", 0, (1,))], 0)],
        effects.ReadReassignment(),
    ],
}
LISTED = (("t", 0, (1, 2)), ("t", 1, (2,)))
#: What a tool has written before: it is watched, trimmed and removed.
ASKED: dict[str, Steps] = {
    "a reassignment": [
        effects.ReadReassignment(),
        [SetReassignment(LISTED[:1], 0)],
        effects.ReadReassignment(),
        [SetReassignment([], 0)],
        [SetReassignment([], 1)],
        effects.ReadReassignment(),
    ],
    "an election": [
        effects.ReadPreferredElection(),
        [DeleteNode(PREFERRED_ELECTION)],
        effects.ReadPreferredElection(),
    ],
}


def plain(value: Any) -> Any:
    """Without what no two servers have in common: transaction ids and sequence numbers."""
    if isinstance(value, TopicInfo):
        return replace(value, czxid=0)
    if isinstance(value, str):
        return re.sub(r"\d{10}$", "N", value)
    if isinstance(value, list):
        # Names of children come in no order.
        found = [plain(item) for item in value]
        return sorted(found) if all(isinstance(item, str) and "/" not in item for item in found) else found
    return tuple(plain(item) for item in value) if type(value) is tuple else value


async def on_a_server(session: Session, steps: Steps) -> list[Any]:
    """What each step comes to: an answer, or whether the writes landed and the events that they are."""
    events: list[Event] = []
    store = Store(session, 0, events.append)
    found: list[Any] = []
    for step in steps:
        if isinstance(step, list):
            outcome = await store.perform(Commit(1, step))
            # Watches come on a thread of their own.
            await asyncio.sleep(0.1)
            found.append((isinstance(outcome, Committed), set(events)))
            events.clear()
        else:
            answer = await store.perform(Read(2, step))
            assert isinstance(answer, Answer)
            found.append(plain(answer.value))
    return found


def in_memory(store: MemoryStore, steps: Steps) -> list[Any]:
    found: list[Any] = []
    for step in steps:
        if isinstance(step, list):
            landed = store.commit(step) is None
            found.append((landed, set(store.events)))
            store.events.clear()
        else:
            found.append(plain(store.answer(step)))
    return found


async def prepared(session: Session) -> MemoryStore:
    for path in PERSISTENT:
        await session.ensure(path)
    await session.multi([jute.op_create(session.packed_path(CONTROLLER_EPOCH), b"1")])
    return MemoryStore(Snapshot(100, 1, {}, {}, {}, feature=None))


@pytest.mark.parametrize("name", CASES)
async def test_both_stores_answer_alike(session: Session, name: str) -> None:
    memory = await prepared(session)
    assert in_memory(memory, CASES[name]) == await on_a_server(session, CASES[name])


@pytest.mark.parametrize("name", ASKED)
async def test_both_watch_what_tools_write(session: Session, name: str) -> None:
    memory = await prepared(session)
    await session.ensure("/admin")
    await session.create(REASSIGN_PARTITIONS, codecs.encode_reassignments(LISTED))
    await session.create(PREFERRED_ELECTION, codecs.encode_partition_list([("t", 0)]))
    memory.put_watched(REASSIGN_PARTITIONS, effects.ReassignmentRequest(LISTED, 0))
    memory.put_watched(PREFERRED_ELECTION, [("t", 0)])
    assert in_memory(memory, ASKED[name]) == await on_a_server(session, ASKED[name])
