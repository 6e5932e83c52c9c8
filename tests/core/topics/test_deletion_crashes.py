"""The controller ends at every step of a deletion, and its successor finishes it: the end is the undisturbed one's.

Ended means: from one commit on, nothing of it reaches ZooKeeper or a broker, and it hears of nothing. The commit
itself either landed or did not.
"""

from __future__ import annotations

from typing import Any

import pytest

from controller.core import commits
from controller.core.effects import Commit
from controller.core.events import Event, EventKind
from controller.core.requests.topics import DeleteTopics, TopicRef
from controller.core.topics import znode_deletion
from tests.support.core.harness import Fate, MachineHarness
from tests.support.core.world import World

BROKERS = (1, 2, 3)


class _EndedError(Exception):
    """The controller is no more."""


def new_world() -> World:
    world = World(*BROKERS)
    world.create_topic("t", {0: [1, 2], 1: [2, 3], 2: [3]})
    world.create_topic("u", {0: [2]})
    world.create_topic("kept", {0: [1, 2, 3]})
    world.configure("t", {"a": "b"})
    world.configure("kept", {})
    return world


def end_state(world: World) -> dict[str, Any]:
    """Everything durable: what is in ZooKeeper, but for epochs that count failovers, and on disks."""
    return {
        "topics": {name: info.partitions for name, info in world.topics.items()},
        "states": {key: (s.leader, s.isr) for key, s in world.states.items()},
        "configs": world.configs,
        "deletions": world.deletions,
        "folders": world.folders,
    }


def begin(world: World, end_at: int | None, landed: bool) -> tuple[MachineHarness, list[Commit]]:
    """Delete two topics, one by request; the controller ends at its ``end_at``-th commit."""
    rig = MachineHarness.active(world)
    made: list[Commit] = []

    def fate(commit: Commit) -> Fate:
        made.append(commit)
        if len(made) - 1 == end_at:
            if landed:
                assert world.commit(commit.writes) is None
            raise _EndedError
        return Fate.ANSWERED

    rig.fate = fate
    world.mark_for_deletion("t")
    rig.send(DeleteTopics([TopicRef("u")]))
    try:
        rig.run()
    except _EndedError:
        world.events.clear()
        world.watches.clear()
    return rig, made


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that there are many steps to end at."""
    monkeypatch.setattr(commits, "BATCH_WRITES", 1)
    monkeypatch.setattr(znode_deletion, "BATCH_WRITES", 2)


def undisturbed() -> tuple[dict[str, Any], int]:
    """The end state, and how many commits led there."""
    world = new_world()
    rig, made = begin(world, None, False)
    rig.check_converged()
    state = end_state(world)
    assert set(state["topics"]) == {"kept"}
    assert state["deletions"] == []
    return state, len(made)


STEPS = 13


@pytest.mark.usefixtures("small_batches")
def test_there_are_as_many_steps_as_are_tried() -> None:
    _, count = undisturbed()
    assert count == STEPS


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("landed", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", range(STEPS))
def test_the_successor_finishes(step: int, landed: bool) -> None:
    wanted, _ = undisturbed()
    world = new_world()
    begin(world, step, landed)
    successor = MachineHarness(world, epoch=2).failover()
    if "u" in world.topics and "u" not in world.deletions:
        # The request was never answered: whoever asked asks again.
        successor.ask(DeleteTopics([TopicRef("u")]))
    assert end_state(world) == wanted
    successor.check_converged()


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("landed", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", range(STEPS))
def test_the_successor_ends_too(step: int, landed: bool) -> None:
    """At its first commit, and the third one finishes."""
    wanted, _ = undisturbed()
    world = new_world()
    begin(world, step, landed)
    second = MachineHarness(world, epoch=2)
    commits_made = 0

    def fate(_: Commit) -> Fate:
        nonlocal commits_made
        commits_made += 1
        if commits_made > 1:
            raise _EndedError
        return Fate.ANSWERED

    second.fate = fate
    world.events.append(Event(EventKind.FAILOVER))
    try:
        second.run()
    except _EndedError:
        world.events.clear()
        world.watches.clear()
    third = MachineHarness(world, epoch=3).failover()
    if "u" in world.topics:
        third.ask(DeleteTopics([TopicRef("u")]))
    assert end_state(world) == wanted
    third.check_converged()
