"""What does not fit into a znode is refused in words before anything of it is written; the rest is done."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core import znode_sizes
from controller.core.effects import TopicInfo
from controller.core.names import listed, shown
from controller.core.requests.configs import (
    AlterConfigs,
    ConfigAlteration,
    ConfigChange,
    ConfigResource,
    ConfigScope,
)
from controller.core.requests.operator import SetDrain, SetPause
from controller.core.requests.reassignment import AlterPartitionReassignments, PartitionReassignment
from controller.core.requests.topics import CreatePartitions, CreateTopics, Expansion, NewTopic
from controller.core.topics import create_topics
from controller.core.znode_sizes import ZNODE_BYTES_MAX, fits, topic_bytes
from tests.support.core.harness import MachineHarness
from tests.support.core.reassignments import active
from tests.support.core.world import World

T = ConfigResource(ConfigScope.TOPIC, "t")
#: Half of what a znode takes.
HALF = "x" * (ZNODE_BYTES_MAX // 2)


@pytest.fixture
def rig() -> MachineHarness:
    world = World(1, 2, 3)
    world.create_topic("t", {0: [1, 2]})
    rig = MachineHarness.active(world)
    rig.forget()
    return rig


def alter(rig: MachineHarness, **changes: str) -> tuple[str, str]:
    listed_ = [ConfigChange(key, value) for key, value in changes.items()]
    (reply,) = rig.ask(AlterConfigs([ConfigAlteration(T, listed_)]))
    (answer,) = reply.resources
    return answer.error.name, answer.message


def test_a_configuration_grows_as_long_as_it_fits(rig: MachineHarness) -> None:
    assert alter(rig, a=HALF) == ("NONE", "")
    error, message = alter(rig, b=HALF)
    assert (error, "/config/topics/t" in message, str(ZNODE_BYTES_MAX) in message) == (
        "INVALID_CONFIG",
        True,
        True,
    )
    assert alter(rig, b="y") == ("NONE", "")
    assert rig.world.nodes["/config/topics/t"].value == {"a": HALF, "b": "y"}


def test_a_topic_and_its_configuration_fit_into_one_write(rig: MachineHarness) -> None:
    large = dict.fromkeys(range(40000), (1, 2))
    (reply,) = rig.ask(
        CreateTopics(
            [
                NewTopic("fits", configs={"a": HALF}),
                NewTopic("n", assignment=large, configs={"a": HALF}),
                NewTopic("m", configs={"a": HALF * 3}),
            ]
        )
    )
    assert [topic.error.name for topic in reply.topics] == ["NONE", "INVALID_CONFIG", "INVALID_CONFIG"]
    assert "with the assignment" in reply.topics[1].message
    assert set(rig.world.topics) == {"t", "fits"}


@pytest.mark.parametrize("factor", [1, 3, 2**31 - 1])
def test_too_many_partitions_are_refused_before_they_are_placed(rig: MachineHarness, factor: int) -> None:
    (reply,) = rig.ask(CreateTopics([NewTopic("n", 899_999, factor)]))
    assert reply.topics[0].error.name == "INVALID_PARTITIONS"
    (reply,) = rig.ask(CreatePartitions([Expansion("t", 200_000)]))
    assert reply.topics[0].error.name == "INVALID_PARTITIONS"


def test_one_request_asks_for_so_many_partitions_and_the_rest_is_refused(
    rig: MachineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(create_topics, "PARTITIONS_MAX", 10)
    (reply,) = rig.ask(CreateTopics([NewTopic("a", 6), NewTopic("b", 5), NewTopic("c", 4)]))
    assert [topic.error.name for topic in reply.topics] == ["NONE", "POLICY_VIOLATION", "NONE"]
    assert "at most 10 new ones, and asked for 6 before" in reply.topics[1].message
    (reply,) = rig.ask(CreatePartitions([Expansion("a", 12), Expansion("c", 9), Expansion("t", 4)]))
    assert [topic.error.name for topic in reply.topics] == ["NONE", "POLICY_VIOLATION", "NONE"]
    by_hand = [NewTopic(name, assignment=dict.fromkeys(range(6), (1,))) for name in "xy"]
    (reply,) = rig.ask(CreateTopics(by_hand))
    assert [topic.error.name for topic in reply.topics] == ["NONE", "POLICY_VIOLATION"]


def test_topics_of_one_request_begin_at_different_brokers(rig: MachineHarness) -> None:
    (reply,) = rig.ask(CreateTopics([NewTopic(name) for name in "abc"]))
    assert {topic.assignment[0][0] for topic in reply.topics} == {1, 2, 3}


def test_a_move_that_makes_its_topic_too_large_is_refused_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = active(1, 2, 3, 4, t=[[1, 2]] * 20, u=[[1, 2]])
    before = topic_bytes(rig.world.topics["t"])
    monkeypatch.setattr(znode_sizes, "ZNODE_BYTES_MAX", before + 60)
    rig.forget()
    reassignments = [PartitionReassignment("t", n, (3, 4)) for n in range(20)]
    (reply,) = rig.ask(AlterPartitionReassignments([*reassignments, PartitionReassignment("u", 0, (3, 4))]))
    assert [answer.error.name for answer in reply.partitions] == ["UNKNOWN_SERVER_ERROR"] * 20 + ["NONE"]
    assert "move fewer of the 20 partitions of t at once" in reply.partitions[0].message
    assert (rig.world.topics["t"].adding, rig.partition("u").adding) == ({}, (3, 4))
    (reply,) = rig.ask(AlterPartitionReassignments(reassignments[:1]))
    assert reply.partitions[0].error.name == "NONE"
    # What is too large all the same may become smaller.
    monkeypatch.setattr(znode_sizes, "ZNODE_BYTES_MAX", before - 60)
    (reply,) = rig.ask(AlterPartitionReassignments([PartitionReassignment("t", 0, None)]))
    assert reply.partitions[0].error.name == "NONE"
    # Or stay as large.
    (reply,) = rig.ask(AlterPartitionReassignments([PartitionReassignment("t", 1, (2, 1))]))
    assert reply.partitions[0].error.name == "NONE"
    assert rig.world.topics["t"].adding == {}


def test_reasons_that_do_not_fit_together_are_refused(
    rig: MachineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.core.commits.ZNODE_BYTES_MAX", 300)
    (reply,) = rig.ask(SetDrain(1, True, "r" * 100, "ann"))
    assert reply.error.name == "NONE"
    (reply,) = rig.ask(SetPause(True, "r" * 200, "ann"))
    assert "/controllers/maintenance: would take" in reply.message
    assert rig.cluster.maintenance.paused is None
    assert set(rig.cluster.maintenance.drained) == {1}


ids = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4, unique=True).map(tuple)
assignments = st.dictionaries(st.integers(0, 2**31 - 1), ids, max_size=20)


@given(assignments, assignments, assignments, st.integers(1, 3000))
def test_what_fits_is_what_is_at_most_so_large(
    partitions: dict[int, tuple[int, ...]],
    adding: dict[int, tuple[int, ...]],
    queued: dict[int, tuple[int, ...]],
    limit: int,
) -> None:
    info = TopicInfo("t", "A" * 22, partitions, adding, {}, 1, 1, queued=queued)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(znode_sizes, "ZNODE_BYTES_MAX", limit)
        assert fits(info) is (topic_bytes(info) <= limit)


def test_the_size_of_a_topic_is_what_is_written_to_within_some_hundred_bytes() -> None:
    partitions: dict[int, tuple[int, ...]] = {n: (n, n + 1, 2**31 - 1) for n in range(3000)}
    written = len(msgspec.json.encode({str(n): replicas for n, replicas in partitions.items()}))
    info = TopicInfo("t", "A" * 22, partitions, {}, {}, 1, 1)
    assert abs(written - topic_bytes(info)) < 300


def test_what_is_long_is_shown_in_part() -> None:
    assert shown("a\nb") == r"'a\nb'"
    assert shown("x" * 5000) == f"{'x' * 100!r}... (5000 characters)"
    assert listed(["a", "b"]) == "a; b"
    assert listed(["p"] * 12) == "; ".join(["p"] * 10) + "; and 2 more"


def test_what_others_keep_in_the_znode_takes_its_place() -> None:
    small = TopicInfo("t", "id", {0: (1, 2)}, {}, {}, 1, 0)
    assert fits(small)
    assert fits(replace(small, others={"theirs": HALF.encode()}))
    assert not fits(replace(small, others={"theirs": HALF.encode(), "too": HALF.encode()}))
