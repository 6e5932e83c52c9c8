"""DeleteTopics: which markers a request writes, and what each topic's answer is."""

from __future__ import annotations

import pytest

from controller.core.commits import ATTEMPTS_MAX
from controller.core.requests.errors import ErrorCode
from controller.core.requests.topics import DeleteTopics, TopicRef
from controller.core.topics import delete_topics
from controller.core.znode_paths import topic_path
from tests.support.core.deletions import active, check_gone
from tests.support.core.harness import Fate


def test_asked_for_twice_and_with_answers_lost() -> None:
    world, rig = active(1, t=[[1]])
    fates = iter([Fate.LOST, Fate.LANDED])
    rig.fate = lambda _: next(fates, Fate.ANSWERED)
    first, second = rig.ask(DeleteTopics([TopicRef("t")]), DeleteTopics([TopicRef("t")]))
    assert first.topics[0].error is second.topics[0].error is ErrorCode.NONE
    check_gone(world, rig, "t")


def test_a_marker_that_cannot_be_written_is_no_success() -> None:
    world, rig = active(1, t=[[1]])
    rig.fate = lambda _: Fate.LOST
    (answer,) = rig.ask(DeleteTopics([TopicRef("t")]))
    assert answer.topics[0].error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "could not be written" in answer.topics[0].message
    assert world.deletions == []


def test_markers_that_cannot_be_written_cost_those_of_their_batch_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delete_topics, "BATCH_WRITES", 2)
    world, rig = active(1, **{name: [[1]] for name in ("a", "b", "c", "d", "e")})
    fates = iter([Fate.LOST] * ATTEMPTS_MAX)
    rig.fate = lambda _: next(fates, Fate.ANSWERED)
    (answer,) = rig.ask(DeleteTopics([TopicRef(name) for name in ("a", "b", "c", "d", "e")]))
    failed, done = ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE
    assert [topic.error for topic in answer.topics] == [failed, failed, done, done, done]
    assert set(world.topics) == {"a", "b"}


def test_topics_that_are_named_by_their_ids_go_together_and_nothing_is_refused() -> None:
    world, rig = active(1, t=[[1]], u=[[1]])
    ids = [world.topics[name].topic_id for name in "tu"]
    (reply,) = rig.ask(DeleteTopics([TopicRef(topic_id=id_) for id_ in ids]))
    assert [topic.error for topic in reply.topics] == [ErrorCode.NONE, ErrorCode.NONE]
    assert (world.topics, rig.rejects()) == ({}, [])


def test_a_topic_that_is_named_by_its_name_and_by_its_id_is_named_twice() -> None:
    world, rig = active(1, t=[[1]])
    (reply,) = rig.ask(DeleteTopics([TopicRef("t"), TopicRef(topic_id=world.topics["t"].topic_id)]))
    assert [topic.error for topic in reply.topics] == [ErrorCode.INVALID_REQUEST] * 2
    assert set(world.topics) == {"t"}


def test_a_topic_whose_name_nobody_may_give_it_is_not_deleted_by_request() -> None:
    """It is known by its problem only: whoever made its znode by hand deletes that."""
    world, rig = active(1)
    world.create_topic("a b", {0: [1]})
    world.damage(topic_path("a b"), "topic 'a b': allowed are letters, digits, '.', '_' and '-'")
    rig.run()
    (answer,) = rig.ask(DeleteTopics([TopicRef("a b")]))
    assert answer.topics[0].error is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert world.deletions == []
