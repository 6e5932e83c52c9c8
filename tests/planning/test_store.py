"""The znodes of a plan: which watches fire, and which parents are made, are as ZooKeeper has them."""

from __future__ import annotations

from dataclasses import replace

from controller.core.effects import CreateState, CreateTopic, DeleteNode, SetTopic, TopicInfo
from controller.core.events import EventKind
from controller.core.model import LeaderAndIsr, Partition, Topic
from controller.core.znode_paths import TOPICS, partition_path, partitions_path, state_path, topic_path
from controller.planning.store import Store
from tests.support.planning.clusters import Small

EMPTY = Small((1,), {})
INFO = TopicInfo("t", "id", {0: (1,)}, {}, {}, 0, 0)


def test_the_watch_of_children_fires_when_one_comes_or_goes_and_not_when_one_changes() -> None:
    store = Store(EMPTY.snapshot())

    def fired(write: CreateTopic | SetTopic | DeleteNode) -> list[EventKind]:
        store.watches.update((TOPICS, topic_path("t")))
        assert store.commit([write]) is None
        store.watches.clear()
        kinds = [event.kind for event in store.events]
        store.events.clear()
        return kinds

    changed, came = EventKind.PARTITION_MODIFICATIONS, EventKind.TOPIC_CHANGE
    assert fired(CreateTopic(INFO)) == [changed, came]
    assert fired(SetTopic(replace(store.topics["t"], partitions={0: (1,), 1: (1,)}))) == [changed]
    assert fired(DeleteNode(topic_path("t"))) == [changed, came]


def test_a_topic_made_again_has_its_parents_made_again() -> None:
    store = Store(EMPTY.snapshot())
    partition = Partition(Topic("t", "id"), 0, (1,))
    state = LeaderAndIsr(1, 0, (1,), 0, 1)
    parents = [partitions_path("t"), partition_path("t", 0)]
    for _ in range(2):
        assert store.commit([CreateTopic(INFO)]) is store.commit([CreateState(partition, state)]) is None
        made = [change.path for change in store.take_changes() if change.new is not None]
        assert made == [topic_path("t"), *parents, state_path("t", 0)]
        gone = [state_path("t", 0), *reversed(parents), topic_path("t")]
        assert store.commit([DeleteNode(path) for path in gone]) is None
        assert [change.path for change in store.take_changes()] == gone
