"""DescribeState: the digests kept request by request are those of what the broker holds, computed from scratch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_stub.control import handlers, pages
from broker_stub.control.gates import ControllerTerm
from broker_stub.control.replicas import IsrChange
from proto.digest import Digest, hosted_item, metadata_item, offline_item, topic_id_item, total_of
from proto.gen import broker_control_pb2 as wire
from proto.gen import common_pb2 as codes
from tests.support.broker.builders import ID_X, ID_Y, BrokerHarness, leader_state, metadata_state

TOPICS = ("foo", "bar", "baz")
names = st.sampled_from(TOPICS)
numbers = st.integers(0, 2)
ids = st.dictionaries(names, st.sampled_from([ID_X, ID_Y]))
some_brokers = st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True)


@st.composite
def steps(draw: Any) -> tuple[Any, ...]:
    kind = draw(st.sampled_from(["lead", "lead", "stop", "update", "update", "fail", "isr", "lose"]))
    topic, partition, epoch = draw(names), draw(numbers), draw(st.integers(0, 5))
    leader, isr = draw(st.integers(-2, 2)), draw(some_brokers)
    return kind, topic, partition, epoch, leader, isr, draw(ids), draw(st.booleans())


def carry_out(broker: BrokerHarness, step: tuple[Any, ...]) -> None:
    kind, topic, partition, epoch, leader, isr, topic_ids, flag = step
    if kind == "lead":
        state = leader_state(
            topic, partition, leader=max(leader, 0), leader_epoch=epoch, partition_epoch=epoch, isr=isr
        )
        broker.lead(state, topic_ids=topic_ids)
    elif kind == "stop":
        broker.stop(
            wire.StopReplicaPartitionState(
                topic=topic, partition=partition, leader_epoch=-1, delete_partition=flag
            )
        )
    elif kind == "update":
        known = metadata_state(
            topic, partition, leader=leader, leader_epoch=epoch, partition_epoch=epoch, isr=isr
        )
        broker.update(known, topic_ids=topic_ids, ends_snapshot=flag, controller_epoch=7 + epoch // 3)
        broker.controller_epoch = max(broker.controller_epoch, 7 + epoch // 3)
    elif kind == "fail":
        broker.handlers.replicas_failed([(topic, partition)], "no space")
    elif kind == "isr":
        broker.handlers.isr_changed(IsrChange((topic, partition), (0,), tuple(isr), epoch, epoch + 3))
    elif kind == "lose" and flag and epoch == 5:
        broker.handlers.replicas.fail([r.key for r in broker.handlers.replicas], "the disk is gone")


def described(broker: BrokerHarness, **page: Any) -> wire.DescribeStateResponse:
    return broker.handlers.describe_state(wire.DescribeStateRequest(**page).SerializeToString())


def from_scratch(broker: BrokerHarness, topic: str) -> tuple[int, int]:
    answer = described(broker, partitions=wire.PartitionPage(topic=topic))
    hosted = [
        hosted_item(
            topic,
            r.partition,
            r.topic_id,
            r.leader,
            r.leader_epoch,
            (r.partition_epoch, list(r.isr)) if r.role == "leader" else None,
        )
        for r in answer.hosted
        if r.role in ("leader", "follower")
    ]
    known = [
        metadata_item(topic, k.partition, k.leader, k.leader_epoch, k.partition_epoch, k.isr, k.replicas)
        for k in answer.known
    ]
    identity = topic_id_item(topic, answer.topic_id) if known else 0
    return total_of(hosted), total_of([*known, identity])


@settings(max_examples=8 * settings().max_examples)
@given(st.lists(steps(), max_size=25))
def test_what_is_kept_equals_what_is_computed_anew(story: list[tuple[Any, ...]]) -> None:
    broker = BrokerHarness()
    for step in story:
        carry_out(broker, step)
    answer = described(broker, topics=wire.TopicPage())
    kept = {t.topic: (t.digests.hosted, t.digests.metadata) for t in answer.topics}
    fresh = {topic: from_scratch(broker, topic) for topic in TOPICS}
    assert kept == {topic: digests for topic, digests in fresh.items() if digests != (0, 0)}
    assert answer.digests.hosted == total_of(hosted for hosted, _ in kept.values())
    assert answer.digests.metadata == total_of(metadata for _, metadata in kept.values())


@given(st.lists(st.tuples(names, st.integers(1, 2**64 - 1)), max_size=20), st.randoms())
def test_a_digest_does_not_depend_on_the_order(items: list[tuple[str, int]], rng: Any) -> None:
    one, other = Digest(), Digest()
    for topic, item in items:
        one.replace(topic, 0, item)
    rng.shuffle(items)
    for topic, item in items:
        other.replace(topic, 0, item)
    assert (one.total, one.by_topic) == (other.total, other.by_topic)
    for topic, item in items:
        other.replace(topic, item, 0)
    assert (other.total, other.by_topic) == (0, {})


def test_pages_end_and_go_on(monkeypatch: Any) -> None:
    monkeypatch.setattr(pages, "PAGE_MAX", 2)
    broker = BrokerHarness()
    broker.update(*(metadata_state(f"t{n}", p) for n in range(5) for p in range(5)))
    names_: list[str] = []
    after, more = "", True
    while more:
        answer = described(broker, topics=wire.TopicPage(after=after))
        names_ += [t.topic for t in answer.topics]
        after, more = names_[-1], answer.more
    assert names_ == [f"t{n}" for n in range(5)]
    found: list[int] = []
    more = True
    while more:
        first = found[-1] + 1 if found else 0
        answer = described(broker, partitions=wire.PartitionPage(topic="t3", first=first))
        found += [k.partition for k in answer.known]
        more = answer.more
    assert found == list(range(5))


def test_any_difference_in_a_field_is_another_item() -> None:
    base = {"topic": "t", "partition": 0, "leader": 1, "leader_epoch": 2}
    hosted: list[dict[str, Any]] = [
        {**base, "topic_id": ID_X, "led_as": None},
        {**base, "topic_id": ID_Y, "led_as": None},
        {**base, "topic_id": ID_X, "led_as": (3, (1,))},
        {**base, "topic_id": ID_X, "led_as": (3, (1, 2))},
        {**base, "topic_id": ID_X, "led_as": (4, (1,))},
        {**base, "topic_id": ID_X, "led_as": None, "leader_epoch": 3},
        {**base, "topic_id": ID_X, "led_as": None, "partition": 1},
    ]
    assert len({hosted_item(**fields) for fields in hosted}) == len(hosted)
    rest: dict[str, Any] = {**base, "partition_epoch": 4, "isr": (1, 2), "replicas": (1, 2)}
    changes: list[dict[str, Any]] = [
        {},
        {"isr": (1,)},
        {"replicas": (2, 1)},
        {"partition_epoch": 5},
        {"leader": 2},
    ]
    assert len({metadata_item(**{**rest, **change}) for change in changes}) == len(changes)
    assert metadata_item(**rest) == metadata_item(**{**rest, "isr": (2, 1)})
    offline = [("t", 0, (1,)), ("t", 1, (1,)), ("u", 0, (1,)), ("t", 0, (1, 2)), ("t", 0, ())]
    assert len({offline_item(*fields) for fields in offline}) == len(offline)
    assert offline_item("t", 0, (1, 2)) == offline_item("t", 0, (2, 1))


def fresh(broker: BrokerHarness) -> tuple[int, int, int]:
    """The digests of what it holds, from scratch."""
    other = BrokerHarness()
    for replica in broker.handlers.replicas:
        other.handlers.replicas._put(replica.key, replica)
    cache = broker.handlers.metadata
    for topic in cache.topics():
        other.handlers.metadata._identify(topic, cache.topic_id(topic))
        for item in cache.partitions(topic):
            other.handlers.metadata._put(item)
    known = other.handlers
    return known.replicas.digest.total, known.metadata.digest.total, known.metadata.offline.total


def test_what_replaces_another_takes_its_place_in_the_digests() -> None:
    broker = BrokerHarness()
    for epoch, offline in ((0, []), (1, [1]), (2, [0, 1]), (3, [])):
        broker.lead(leader_state(leader_epoch=epoch, partition_epoch=epoch))
        broker.update(metadata_state(leader_epoch=0, partition_epoch=epoch, offline_replicas=offline))
        handlers = broker.handlers
        digests = handlers.replicas.digest, handlers.metadata.digest, handlers.metadata.offline
        assert tuple(d.total for d in digests) == fresh(broker)


def test_a_comparison_goes_on_after_a_change_of_a_newer_event() -> None:
    broker = BrokerHarness()
    broker.lead(leader_state(), controller_epoch=7, event_id=9)
    request = wire.DescribeStateRequest()
    request.fence.controller_epoch = 7
    request.fence.event_id = 8
    response = broker.deliver("describe_state", request.SerializeToString())
    assert response.fenced
    assert response.digests.hosted


def test_what_is_older_than_a_fence_comes_late() -> None:
    """What was read behind it is compared: nothing older may change it afterwards."""
    broker = BrokerHarness()
    broker.lead(leader_state(), controller_epoch=7, event_id=7)
    request = wire.DescribeStateRequest()
    request.fence.controller_epoch = 7
    request.fence.event_id = 9
    assert broker.deliver("describe_state", request.SerializeToString()).fenced
    assert broker.lead(leader_state(leader_epoch=9), controller_epoch=7, event_id=8) == [
        "STALE_CONTROLLER_EPOCH"
    ]


def test_nothing_is_carried_out_between_a_fence_and_what_is_read_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker, alone = BrokerHarness(), list[bool]()
    broker.lead(leader_state(), controller_epoch=7)

    def answer(*given: Any) -> wire.DescribeStateResponse:
        alone.append(broker.handlers._lock.locked())
        return pages.answer(*given)

    monkeypatch.setattr(handlers, "pages", SimpleNamespace(answer=answer))
    request = wire.DescribeStateRequest()
    request.fence.controller_epoch = 7
    assert broker.deliver("describe_state", request.SerializeToString()).fenced
    assert alone == [True]


def test_a_fence_of_a_deposed_controller_is_refused() -> None:
    broker = BrokerHarness()
    broker.lead(leader_state(), controller_epoch=7)
    request = wire.DescribeStateRequest()
    request.fence.controller_epoch = 6
    request.fence.event_id = 1
    response = broker.deliver("describe_state", request.SerializeToString())
    assert codes.ErrorCode.Name(response.error_code) == "STALE_CONTROLLER_EPOCH"
    assert not response.fenced


def test_only_a_leader_tells_its_isr() -> None:
    """A follower is not told of every change of it."""
    broker = BrokerHarness()
    broker.lead(leader_state("foo", 0), leader_state("foo", 1, leader=1))
    answer = described(broker, partitions=wire.PartitionPage(topic="foo"))
    assert [(r.partition, r.role, list(r.isr)) for r in answer.hosted] == [
        (0, "leader", [0, 1]),
        (1, "follower", []),
    ]


def test_what_is_told_of_a_replica_and_of_a_partition() -> None:
    broker = BrokerHarness()
    broker.lead(leader_state("foo", leader_epoch=3, partition_epoch=8))
    broker.update(metadata_state("foo", leader_epoch=3, partition_epoch=8, offline_replicas=[1]))
    answer = described(broker, partitions=wire.PartitionPage(topic="foo"))
    (hosted,), (known,) = answer.hosted, answer.known
    assert (hosted.leader_epoch, hosted.partition_epoch) == (3, 8)
    assert (known.leader_epoch, known.partition_epoch) == (3, 8)
    cache = broker.handlers.metadata
    assert (answer.digests.metadata, answer.digests.offline) == (cache.digest.total, cache.offline.total)
    assert answer.digests.metadata != answer.digests.offline


def test_behind_a_page_that_is_just_full_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE_MAX", 2)
    broker = BrokerHarness()
    broker.update(*(metadata_state("foo", partition) for partition in range(4)))
    broker.lead(leader_state("bar", 0))
    answer = described(broker, partitions=wire.PartitionPage(topic="foo", first=2))
    assert ([k.partition for k in answer.known], answer.more) == ([2, 3], False)
    answer = described(broker, partitions=wire.PartitionPage(topic="bar"))
    assert ([r.partition for r in answer.hosted], list(answer.known)) == ([0], [])


def test_sizes_on_disk_are_told_of_the_topics_that_were_asked_for() -> None:
    broker, asked = BrokerHarness(), list[Any]()

    def on_disk(topics: Any) -> list[wire.LogDirReplica]:
        asked.append(topics)
        return [wire.LogDirReplica(topic="foo", size_bytes=7)]

    broker.handlers._data_plane = SimpleNamespace(on_disk=on_disk)
    answer = described(broker, log_dirs=wire.LogDirsPage(topics=["foo"]))
    assert (asked, [r.size_bytes for r in answer.on_disk]) == ([{"foo"}], [7])


def test_an_answer_names_the_epoch_that_a_refused_controller_has_to_exceed() -> None:
    broker = BrokerHarness()
    assert described(broker).controller_epoch == 0
    broker.lead(leader_state(), controller_epoch=7)
    assert described(broker).controller_epoch == 7
    stale = wire.LeaderAndIsrRequest(controller_epoch=6).SerializeToString()
    response = broker.deliver("leader_and_isr", stale)
    assert (codes.ErrorCode.Name(response.error_code), response.controller_epoch) == (
        "STALE_CONTROLLER_EPOCH",
        7,
    )


def test_who_makes_up_epochs_is_logged_once_and_fills_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "_LIARS_MAX", 2)
    broker = BrokerHarness()
    broker.lead(leader_state(), controller_epoch=7)
    refused = []
    for number, sender in enumerate(("a", "a", "b", "c", "d"), 100):
        message = wire.StopReplicaRequest(controller_epoch=99).SerializeToString()
        term = ControllerTerm(number, 7, 7, 0)
        assert broker.handlers.stop_replica(message, sender, term).error_code != codes.NONE
        refused.append(len([r for r in broker.log.of_kind("reject") if "sent by" in r["reason"]]))
        assert len(broker.handlers._liars) <= 2
    assert refused == [1, 1, 2, 3, 4]


def test_what_changes_nothing_is_neither_logged_nor_told() -> None:
    broker = BrokerHarness()
    broker.lead(leader_state("foo", leader_epoch=3, partition_epoch=8))
    logged = len(broker.log.records)
    broker.handlers.isr_changed(IsrChange(("foo", 0), (0, 1), (0, 1), 3, 9))
    broker.handlers.replicas_failed([("other", 0)], "no space")
    assert (len(broker.log.records), broker.losses) == (logged, [])
    broker.handlers.isr_changed(IsrChange(("foo", 0), (0, 1), (0,), 3, 10))
    broker.handlers.replicas_failed([("foo", 0)], "no space")
    assert (len(broker.log.records), broker.losses) == (logged + 2, ["no space"])


def test_one_line_stands_for_all_that_was_known_already() -> None:
    broker = BrokerHarness()
    states = [leader_state("foo", partition, leader_epoch=3) for partition in range(3)]
    broker.lead(*states)
    broker.log.records.clear()
    broker.lead(*states, leader_state("foo", 3, leader_epoch=3))
    (unchanged,) = broker.log.of_kind("unchanged")
    assert (unchanged["count"], len(broker.log.records)) == (3, 2)
