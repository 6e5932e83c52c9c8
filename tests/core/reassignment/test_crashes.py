"""A controller that ends at any commit of a move leaves what its successor finishes: the end is the undisturbed one's.

Random histories follow: moves, cancels, overrides, deaths of brokers, lost answers, successors at any moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.context import CoreSettings
from controller.core.effects import Commit
from controller.core.events import Event, EventKind
from controller.core.reassignment import concurrency
from controller.core.requests.brokers import AlterPartition
from tests.support.core.harness import Fate, Rig
from tests.support.core.reassignments import active, ask, check_moved, copy_all, request
from tests.support.core.world import Key

T = ("t", 0)


class Ended(Exception):  # noqa: N818  (not an error: the controller is gone)
    """The controller ends here."""


# --- at every commit -------------------------------------------------------------------------------------


def by_api(rig: Rig) -> None:
    ask(rig, {T: [3, 4], ("t", 1): [4]})


def by_znode(rig: Rig) -> None:
    rig.world.ask_reassignment({T: [3, 4], ("t", 1): [4]})
    rig.run()


def cancelled(rig: Rig) -> None:
    ask(rig, {T: [3, 4], ("t", 1): [4]})
    ask(rig, {T: None, ("t", 1): None})


def overridden(rig: Rig) -> None:
    ask(rig, {T: [4, 5], ("t", 1): [5]})
    ask(rig, {T: [3, 4], ("t", 1): [4]})


def waiting(rig: Rig) -> None:
    ask(rig, {("t", 1): [4], T: [3, 4]})


STORIES = (by_api, by_znode, cancelled, overridden, waiting)


def begin(story: Callable[[Rig], None]) -> Rig:
    settings = CoreSettings(reassignment_concurrent_moves_max=1) if story is waiting else None
    return active(1, 2, 3, 4, 5, settings=settings, t=[[1, 2, 3], [1]])


def play(rig: Rig, story: Callable[[Rig], None]) -> None:
    story(rig)
    copy_all(rig)


def outcome(rig: Rig) -> Any:
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


def commits_of(story: Callable[[Rig], None]) -> int:
    rig = begin(story)
    play(rig, story)
    return len(rig.commits())


CUTS = [(story, n, landed) for story in STORIES for n in range(commits_of(story)) for landed in (False, True)]


@pytest.mark.parametrize(
    ("story", "cut", "landed"),
    CUTS,
    ids=[f"{s.__name__}-{n}-{'after' if landed else 'before'}" for s, n, landed in CUTS],
)
def test_the_end_is_that_of_an_undisturbed_move(story: Callable[[Rig], None], cut: int, landed: bool) -> None:
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
    successor = Rig(rig.world, epoch=2, settings=rig.settings).failover()
    # Whoever asked and got no answer asks again.
    story(successor)
    copy_all(successor)
    assert outcome(successor) == outcome(undisturbed)


# --- random histories ------------------------------------------------------------------------------------

Operation = tuple[Any, ...]
KEYS = st.sampled_from([("t", 0), ("t", 1), ("u", 0)])
BROKERS = st.integers(1, 5)
TARGETS = st.lists(BROKERS, min_size=1, max_size=3, unique=True)
ACTIONS = st.one_of(
    st.tuples(st.just("move"), KEYS, TARGETS),
    st.tuples(st.just("znode"), KEYS, TARGETS),
    st.tuples(st.just("cancel"), KEYS),
    st.tuples(st.just("down"), BROKERS),
    st.tuples(st.just("up"), BROKERS),
    st.tuples(st.just("bounce"), BROKERS),
    st.tuples(st.just("copy"), KEYS, BROKERS),
    st.tuples(st.just("lag"), KEYS, BROKERS),
    st.tuples(st.just("refuse"), st.booleans()),
    st.tuples(st.just("silence"), st.booleans()),
    st.tuples(st.just("successor")),
)
#: What happens, and how many steps the controller takes before the next (None: until it is quiet).
HISTORIES = st.lists(st.tuples(ACTIONS, st.sampled_from([None, None, 1, 3])), max_size=25)
FATES = st.lists(st.sampled_from([Fate.ANSWERED, Fate.ANSWERED, Fate.LOST, Fate.LANDED]), max_size=8)


class History:
    """One play; replicas that hold what was acknowledged are kept account of."""

    def __init__(self, fates: Sequence[Fate], cap: int) -> None:
        self.fates = list(fates)
        self.settings = CoreSettings(reassignment_concurrent_moves_max=cap)
        self.rig = active(1, 2, 3, 4, 5, settings=self.settings, t=[[1, 2], [2, 3, 4]], u=[[5]])
        self.epoch = 1
        self.refusing = False
        self._take_over(self.rig)

    def _take_over(self, rig: Rig) -> None:
        rig.fate = self.fate
        rig.reconnects = True
        rig.stop_error = lambda *_: "UNKNOWN_SERVER_ERROR" if self.refusing else ""
        self.rig = rig

    def fate(self, _: Commit) -> Fate:
        return self.fates.pop(0) if self.fates else Fate.ANSWERED

    def apply(self, operation: Operation) -> None:
        (name, *arguments), steps = operation
        getattr(self, f"do_{name}")(*arguments)
        if steps is None:
            self.rig.run()
        for _ in range(steps or 0):
            self.rig.advance()

    def do_move(self, key: Key, target: Sequence[int]) -> None:
        self.rig.send(request({key: target}))

    def do_cancel(self, key: Key) -> None:
        self.rig.send(request({key: None}))

    def do_znode(self, key: Key, target: Sequence[int]) -> None:
        self.rig.world.ask_reassignment({key: target})

    def do_down(self, broker_id: int) -> None:
        if broker_id in self.rig.world.brokers:
            self.rig.world.broker_down(broker_id)

    def do_up(self, broker_id: int) -> None:
        if broker_id not in self.rig.world.brokers:
            self.rig.world.broker_up(broker_id)

    def do_bounce(self, broker_id: int) -> None:
        if broker_id in self.rig.world.brokers:
            self.rig.world.bounce(broker_id)

    def do_copy(self, key: Key, broker_id: int) -> None:
        self._propose(key, broker_id, joins=True)

    def do_lag(self, key: Key, broker_id: int) -> None:
        self._propose(key, broker_id, joins=False)

    def _propose(self, key: Key, broker_id: int, *, joins: bool) -> None:
        """The leader, as it was told last, takes a follower into the ISR or out of it."""
        for leader in self.rig.world.brokers:
            notified = self.rig.notified.get(leader)
            entry = notified.replicas.get(key) if notified else None
            stored = self.rig.world.states.get(key)
            if notified is None or entry is None or stored is None or entry.leader != leader:
                continue
            follows = broker_id in self.rig.world.folders and key in self.rig.world.folders[broker_id]
            others = [b for b in stored.isr if b != broker_id]
            isr = [*others, broker_id] if joins and follows else others
            if leader in isr:
                proposal = self.rig.proposal(isr, *key, leader_epoch=entry.leader_epoch)
                self.rig.send(AlterPartition(leader, notified.epoch, [proposal]))

    def do_refuse(self, refusing: bool) -> None:
        self.refusing = refusing

    def do_silence(self, silent: bool) -> None:
        """Brokers delete, and their answers are on their way until they speak again; a successor never hears them."""
        self.rig.hold_stops = silent
        if not silent:
            self.rig.answer_stops()

    def do_successor(self) -> None:
        """The controller is gone, whatever it was doing."""
        world = self.rig.world
        world.events.clear()
        world.watches.clear()
        self.epoch += 1
        self._take_over(Rig(world, epoch=self.epoch, settings=self.settings))
        world.events.append(Event(EventKind.FAILOVER))
        self.rig.run()

    def settle(self) -> None:
        """Faults stop, brokers are there, followers copy."""
        self.fates.clear()
        self.refusing = False
        self.do_silence(False)
        for broker_id in range(1, 6):
            self.do_up(broker_id)
        self.rig.run()
        for _ in range(3):
            copy_all(self.rig)
            self.rig.now_us += 10**10
            self.rig.world.events.append(Event(EventKind.TOPIC_DELETION_RETRY))
            self.rig.run()

    def check(self) -> None:
        rig = self.rig
        rig.check_converged()
        assert rig.world.reassignment is None
        for key in rig.world.states:
            held = concurrency.pending_reasons(rig.cluster, self.settings, rig.partition(*key))
            assert held == [], f"{key}: {held}"
            check_moved(rig, key, rig.world.topics[key[0]].partitions[key[1]])


@given(HISTORIES, FATES, st.sampled_from([0, 0, 1]))
def test_every_move_ends(operations: list[Operation], fates: list[Fate], cap: int) -> None:
    history = History(fates, cap)
    for operation in operations:
        history.apply(operation)
    history.settle()
    history.check()
