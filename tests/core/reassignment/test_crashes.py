"""A controller that ends at any commit of a move leaves what its successor finishes, to the same end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from controller.core.context import CoreSettings
from controller.core.effects import Commit
from tests.support.core.harness import Fate, MachineHarness
from tests.support.core.reassignments import active, ask, copy_all

T = ("t", 0)


class Ended(Exception):  # noqa: N818  (not an error: the controller is gone)
    """The controller ends here."""


def by_api(rig: MachineHarness) -> None:
    ask(rig, {T: [3, 4], ("t", 1): [4]})


def by_znode(rig: MachineHarness) -> None:
    rig.world.ask_reassignment({T: [3, 4], ("t", 1): [4]})
    rig.run()


def cancelled(rig: MachineHarness) -> None:
    ask(rig, {T: [3, 4], ("t", 1): [4]})
    ask(rig, {T: None, ("t", 1): None})


def overridden(rig: MachineHarness) -> None:
    ask(rig, {T: [4, 5], ("t", 1): [5]})
    ask(rig, {T: [3, 4], ("t", 1): [4]})


def waiting(rig: MachineHarness) -> None:
    ask(rig, {("t", 1): [4], T: [3, 4]})


STORIES = (by_api, by_znode, cancelled, overridden, waiting)


def begin(story: Callable[[MachineHarness], None]) -> MachineHarness:
    settings = CoreSettings(reassignment_concurrent_moves_max=1) if story is waiting else None
    return active(1, 2, 3, 4, 5, settings=settings, t=[[1, 2, 3], [1]])


def play(rig: MachineHarness, story: Callable[[MachineHarness], None]) -> None:
    story(rig)
    copy_all(rig)


def outcome(rig: MachineHarness) -> Any:
    """All that must not depend on who led when: assignments, leaders, ISRs as sets, folders, the legacy znode."""
    world = rig.world
    return {
        "topics": {
            n: (i.partitions, i.adding, i.removing, i.original, i.queued, i.stray)
            for n, i in world.topics.items()
        },
        "states": {k: (s.leader, set(s.isr)) for k, s in world.states.items()},
        "folders": {b: folders for b, folders in world.folders.items() if folders},
        "znode": world.reassignment,
    }


def commits_of(story: Callable[[MachineHarness], None]) -> int:
    rig = begin(story)
    play(rig, story)
    return len(rig.commits())


CUTS = [(story, n, landed) for story in STORIES for n in range(commits_of(story)) for landed in (False, True)]


@pytest.mark.parametrize(
    ("story", "cut", "landed"),
    CUTS,
    ids=[f"{s.__name__}-{n}-{'after' if landed else 'before'}" for s, n, landed in CUTS],
)
def test_the_end_is_that_of_an_undisturbed_move(
    story: Callable[[MachineHarness], None], cut: int, landed: bool
) -> None:
    undisturbed = begin(story)
    play(undisturbed, story)

    rig = begin(story)
    left = cut

    def fate(commit: Commit) -> Fate:
        nonlocal left
        left -= 1
        if left < 0:
            if landed:
                rig.world.commit(commit.writes)
            raise Ended
        return Fate.ANSWERED

    rig.fate = fate
    with pytest.raises(Ended):
        play(rig, story)
    rig.world.events.clear()
    rig.world.watches.clear()
    successor = MachineHarness(rig.world, epoch=2, settings=rig.settings).failover()
    # Whoever asked and got no answer asks again.
    story(successor)
    copy_all(successor)
    assert outcome(successor) == outcome(undisturbed)
