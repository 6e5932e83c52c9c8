"""The znodes of a plan: watches, parents, versions and conflicts are as ZooKeeper has them."""

from __future__ import annotations

from dataclasses import replace

from controller.core.effects import (
    BrokersAnswer,
    CreateNode,
    CreateState,
    CreateTopic,
    DeleteNode,
    FeatureAnswer,
    Problem,
    PutFeature,
    ReadBrokers,
    ReadFeature,
    ReadKafkaIds,
    ReadNodes,
    ReadReassignment,
    ReadTopics,
    ReadTopicTrees,
    ReassignmentRequest,
    SetReassignment,
    SetTopic,
    StoredNode,
    TopicInfo,
    WriteNode,
)
from controller.core.events import EventKind
from controller.core.model import FeatureRange, LeaderAndIsr, Partition, Topic
from controller.core.znode_paths import (
    KAFKA_IDS,
    REASSIGN_PARTITIONS,
    TOPICS,
    NodePath,
    broker_path,
    deletion_path,
    partition_path,
    partitions_path,
    state_path,
    topic_path,
)
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


def test_each_write_makes_the_next_version_of_what_it_writes() -> None:
    store = Store(EMPTY.snapshot())
    store.put_node("/new", "one")
    store.put_node("/new", "two")
    assert store.answer(ReadNodes([NodePath("/new"), NodePath("/none")])) == [StoredNode("two", 1), None]
    for expected, value in ((1, "three"), (2, "four")):
        assert store.commit([WriteNode("/new", value, expected)]) is None
    assert store.nodes["/new"] == StoredNode("four", 3)
    assert store.commit([WriteNode("/new", "five", 2)]) == "BADVERSION"
    assert store.commit([WriteNode("/new", "five", None)]) == "BADVERSION"
    assert store.commit([WriteNode("/none", "five", 0)]) == "NONODE"
    assert store.commit([WriteNode("/other", "one", None)]) is None
    assert store.nodes["/other"] == StoredNode("one", 0)
    store.feature = None
    assert store.commit([PutFeature(0, {"f": 1})]) == "NONODE"
    assert (
        store.commit([PutFeature(None, {"f": 3})]) is store.commit([PutFeature(0, {"f": 4, "g": 5})]) is None
    )
    features = (FeatureRange("f", 4, 4), FeatureRange("g", 5, 5))
    assert store.answer(ReadFeature()) == FeatureAnswer(True, 1, features)
    store.put_watched(REASSIGN_PARTITIONS, ReassignmentRequest((("t", 0, (1,)),), 0))
    assert store.commit([SetReassignment([("t", 0, (2,))], 1)]) == "BADVERSION"
    assert store.commit([SetReassignment([("t", 0, (2,))], 0)]) is None
    assert store.reassignment == ReassignmentRequest((("t", 0, (2,)),), 1)
    assert store.commit([SetReassignment([], 1)]) is None
    assert store.reassignment is None


def test_incarnations_follow_those_of_the_snapshot() -> None:
    """A broker that registers anew, and a topic made anew, are newer than all there were."""
    small = Small((1, 2), {("t", 0): ((1,), 1, (1,))}).snapshot()
    newest = replace(small, topics={"t": replace(small.topics["t"], czxid=700)})
    there = [b.epoch for b in small.brokers.values()] + [t.czxid for t in small.topics.values()]
    for snapshot, newest_zxid in ((small, max(there)), (newest, 700)):
        store = Store(snapshot)
        store.register(snapshot.brokers[1])
        assert store.brokers[1].epoch == newest_zxid + 1
        assert store.commit([CreateTopic(replace(INFO, name="u"))]) is None
        assert store.topics["u"].czxid == newest_zxid + 2
    nothing = Store(replace(EMPTY.snapshot(), brokers={}))
    assert nothing.commit([CreateTopic(INFO)]) is None
    assert nothing.topics["t"].czxid == 1


def test_an_unreadable_registration_is_told_with_the_epoch_of_a_broker_that_is_known() -> None:
    store = Store(Small((1, 2), {}).snapshot())
    store.problems |= {broker_path("1"): "garbage", broker_path("9"): "garbage", topic_path("t"): "garbage"}
    answer = store.answer(ReadBrokers())
    assert answer == BrokersAnswer(
        {2: store.brokers[2]},
        (
            Problem(broker_path("1"), "garbage", store.brokers[1].epoch),
            Problem(broker_path("9"), "garbage", -1),
        ),
    )


def test_a_marker_is_made_once_and_only_what_is_there_is_deleted() -> None:
    store = Store(EMPTY.snapshot())
    writes = [CreateNode(deletion_path("t")), CreateNode(deletion_path("t")), CreateNode(f"{KAFKA_IDS}/100")]
    assert store.commit([*writes, CreateNode(f"{KAFKA_IDS}/101")]) is None
    assert (store.deletions, store.answer(ReadKafkaIds())) == (["t"], [100, 101])
    store.take_changes()
    gone = [deletion_path("t"), topic_path("never"), f"{KAFKA_IDS}/100", state_path("never", 0)]
    assert store.commit([DeleteNode(path) for path in gone]) is None
    assert (store.deletions, store.answer(ReadKafkaIds())) == ([], [101])
    assert deletion_path("t") in [change.path for change in store.take_changes()]


def test_a_topic_goes_only_with_all_that_is_below_it() -> None:
    store = Store(Small((1,), {(name, 0): ((1,), 1, (1,)) for name in ("t", "u")}).snapshot())
    assert store.commit([DeleteNode(topic_path("t"))]) == "NOTEMPTY"
    assert store.commit([DeleteNode(state_path("t", 0)), DeleteNode(topic_path("t"))]) == "NOTEMPTY"
    assert list(store.topics) == ["t", "u"], "nothing of it has landed"
    gone = [state_path("t", 0), partition_path("t", 0), partitions_path("t"), topic_path("t")]
    assert store.answer(ReadTopicTrees(("t", "never"))) == [gone, []]
    assert store.commit([DeleteNode(path) for path in gone]) is None
    assert (list(store.topics), list(store.states)) == (["u"], [("u", 0)])


def test_only_topics_that_are_there_are_watched_as_they_are_read() -> None:
    store = Store(Small((1,), {("t", 0): ((1,), 1, (1,))}).snapshot())
    store.answer(ReadTopics(("t", "never")))
    assert store.watches == {topic_path("t")}


def test_what_is_written_anew_can_be_read_again() -> None:
    store = Store(EMPTY.snapshot())
    store.problems[REASSIGN_PARTITIONS] = "garbage"
    store.put_watched(REASSIGN_PARTITIONS, ReassignmentRequest((), 0))
    assert store.answer(ReadReassignment()) == ReassignmentRequest((), 0)


def test_what_is_created_has_its_parents_and_is_not_there_yet() -> None:
    store = Store(EMPTY.snapshot())
    partition = Partition(Topic("t"), 0, (1,))
    state = LeaderAndIsr(1, 0, (1,), 0, 1)
    assert store.commit([CreateState(partition, state)]) == "NONODE"
    assert store.commit([CreateTopic(INFO)]) is None
    assert store.commit([CreateTopic(INFO)]) == "NODEEXISTS"
    assert store.commit([CreateState(partition, state)]) is None
    assert store.commit([CreateState(partition, state)]) == "NODEEXISTS"
    store.take_changes()
    assert store.commit([CreateState(Partition(Topic("t"), 1, (1,)), state)]) is None
    made = [change.path for change in store.take_changes()]
    assert made == [partition_path("t", 1), state_path("t", 1)], "the parent of both is there"


def test_a_topic_is_written_at_the_version_that_was_read() -> None:
    store = Store(EMPTY.snapshot())
    store.commit([CreateTopic(INFO)])
    for version in range(3):
        assert store.commit([SetTopic(replace(INFO, version=version))]) is None
        assert store.commit([SetTopic(replace(INFO, version=version))]) == "BADVERSION"
    assert store.topics["t"].version == 3


def test_what_is_not_there_is_deleted_without_a_change() -> None:
    store = Store(EMPTY.snapshot())
    absent = [
        deletion_path("x"),
        REASSIGN_PARTITIONS,
        state_path("x", 0),
        topic_path("x"),
        "/config/topics/x",
    ]
    assert store.commit([DeleteNode(path) for path in absent]) is None
    assert store.take_changes() == []
