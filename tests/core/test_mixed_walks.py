"""Random mixed walks: everything at once, the invariants at every step, and at the end everything is done.

``WALKS=5000 pytest tests/core/test_mixed_walks.py -m slow`` for a long one, ``WALKS_FROM`` says with which seed it
begins. A failure names its seed; ``walk(seed, STEPS, steps=[...])`` plays some of its operations.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from controller.core import commits
from controller.core.context import CoreSettings, Handler, Pause
from controller.core.partitions import initial_state
from controller.core.reassignment import phases, stray_replicas
from controller.core.topics import deletion, znode_deletion
from controller.core.znode_paths import topic_path
from tests.support.core.harness import Fate
from tests.support.core.mixed_walk import BROKERS, MIN_ISR, TOPICS, UNCLEAN, Everything, Move, Operation
from tests.support.core.world import Key, state_path

STEPS = 30
A: Key = ("a", 0)
REBALANCE = "LEADER_REBALANCE"
#: In some walks these are so small that several parts of one event are in flight.
BATCHES = ((commits, "BATCH_WRITES"), (initial_state, "BATCH_CREATES"), (znode_deletion, "BATCH_WRITES"))


def settings_of(chance: random.Random) -> CoreSettings:
    return CoreSettings(
        unclean_leader_election_enable=chance.random() < 0.2,
        reassignment_concurrent_moves_max=chance.choice([0, 0, 1]),
        reassignment_concurrent_moves_per_broker_max=chance.choice([0, 0, 1]),
        leader_imbalance_per_broker_percentage=chance.choice([0, 10]),
        leader_rebalance_leaders_per_second=chance.choice([0, 1]),
        maintenance_offline_brokers_percentage=chance.choice([0, 0, 50]),
        maintenance_offline_brokers_min=2,
        maintenance_healthy_seconds=5,
    )


class Chance(random.Random):
    """What operations are made of."""

    def broker(self) -> int:
        return self.choice(BROKERS)

    def brokers(self) -> list[int]:
        return self.sample(BROKERS, self.choice([1, 2, 2, 3]))

    def few(self) -> tuple[int, ...]:
        return tuple(self.brokers()[: self.choice([1, 1, 2])])

    def lists(self) -> list[list[int]]:
        return [self.brokers() for _ in range(self.choice([1, 2]))]

    def topic(self) -> str:
        return self.choice(TOPICS)

    def key(self) -> Key:
        return self.topic(), self.choice([0, 0, 1, 2])

    def targets(self) -> dict[Key, list[int]]:
        return {self.key(): self.brokers() for _ in range(self.choice([1, 1, 2]))}

    def on(self) -> bool:
        return self.random() < 0.5

    def path(self) -> str:
        name, number = self.key()
        paths = (topic_path(name), state_path(name, number), f"/config/topics/{name}")
        return self.choice((*paths, f"/brokers/ids/{self.broker()}"))


#: By operation: how often it comes, and with which arguments.
OPERATIONS: dict[str, tuple[int, Callable[[Chance], Operation]]] = {
    "up": (6, lambda c: (c.broker(),)),
    "down": (5, lambda c: c.few()),
    "bounce": (3, lambda c: c.few()),
    "leave": (3, lambda c: (c.broker(),)),
    "stay": (2, lambda c: (c.broker(),)),
    "slow": (2, lambda c: (c.broker(),)),
    "fast": (2, lambda c: (c.broker(),)),
    "disk": (2, lambda c: (c.broker(), *c.key())),
    "mend_disk": (1, lambda c: (c.broker(),)),
    "refuse": (2, lambda c: (c.broker(), c.on())),
    "hold_stops": (2, lambda c: (c.on(),)),
    "alter": (4, lambda c: (*c.key(), c.randrange(8))),
    "notify": (1, lambda c: (*c.key(), c.randrange(8))),
    "write": (1, lambda c: (*c.key(), c.randrange(8))),
    "join": (5, lambda c: ()),
    "ids": (1, lambda c: (c.broker(),)),
    "create": (3, lambda c: (c.topic(), c.lists())),
    "place": (1, lambda c: (c.topic(), c.choice([1, 2]), c.choice([1, 2, 3]))),
    "create_znode": (2, lambda c: (c.topic(), c.lists())),
    "expand": (2, lambda c: (c.topic(), 1)),
    "expand_znode": (2, lambda c: (c.topic(), c.lists())),
    "delete": (3, lambda c: (c.topic(),)),
    "mark": (3, lambda c: (c.topic(),)),
    "unmark": (1, lambda c: (c.topic(),)),
    "wipe": (1, lambda c: (c.topic(),)),
    "move": (6, lambda c: (c.targets(),)),
    "cancel": (2, lambda c: ()),
    "move_znode": (3, lambda c: (c.targets(),)),
    "list": (1, lambda c: ()),
    "elect": (
        3,
        lambda c: (c.choice(["preferred", "unclean", "chosen"]), [c.key()] if c.on() else [], c.broker()),
    ),
    "elect_znode": (1, lambda c: ([c.key()],)),
    "config": (2, lambda c: (c.topic(), c.choice([UNCLEAN, MIN_ISR]), c.choice(["true", "2", None]))),
    "default": (1, lambda c: (c.choice(["true", "false", None]),)),
    "config_znode": (1, lambda c: (c.topic(), c.choice(["true", "false", "maybe"]))),
    "drain": (2, lambda c: (c.broker(), c.on())),
    "pause": (2, lambda c: (c.on(),)),
    "mode": (2, lambda c: (c.on(),)),
    "freeze": (2, lambda c: (c.on(),)),
    "forget": (2, lambda c: (c.broker(),)),
    "approve": (1, lambda c: (c.broker(),)),
    "withdraw": (1, lambda c: (c.broker(),)),
    "tick": (
        4,
        lambda c: (
            c.choice(["LEADER_REBALANCE", "MAINTENANCE_CHECK", "TOPIC_DELETION_RETRY", "CONFIG_CHANGE"]),
            c.choice([1, 6, 600]),
        ),
    ),
    "reconnect": (1, lambda c: ()),
    "damage": (1, lambda c: (c.path(),)),
    "mend": (1, lambda c: ()),
    "failover": (3, lambda c: (c.choice([0, 0, 1, 3]),)),
}


def operations(chance: Chance) -> Iterator[Operation]:
    """For ever: whatever anybody may do."""
    names, weights = list(OPERATIONS), [weight for weight, _ in OPERATIONS.values()]
    while True:
        (name,) = chance.choices(names, weights)
        yield (name, *OPERATIONS[name][1](chance))


def moves(seed: int, count: int) -> list[Move]:
    chance = Chance(seed)
    following = operations(chance)
    return [(next(following), chance.choice([None, None, 0, 1, 2, 4])) for _ in range(count)]


def walk(seed: int, count: int, steps: Sequence[Move] | None = None) -> Everything:
    """One walk; the same for the same seed. ``steps``: these operations instead of the seed's own."""
    chance = random.Random(f"fate {seed}")
    settings = settings_of(chance)
    rate = chance.choice([0.0, 0.0, 0.05, 0.2])
    fates = [
        chance.choice([Fate.LOST, Fate.LANDED]) if chance.random() < rate else Fate.ANSWERED
        for _ in range(200)
    ]
    order = [chance.randrange(6) for _ in range(100)] if chance.random() < 0.5 else []
    outside = (
        [chance.choice([0, 0, chance.randrange(8)]) for _ in range(100)] if chance.random() < 0.3 else []
    )
    batch = chance.choice([None, None, 1, 2, 3])
    done: list[Move] = []
    with pytest.MonkeyPatch.context() as patch:
        for module, name in BATCHES if batch else ():
            patch.setattr(module, name, batch)
        try:
            everything = Everything(settings, fates, order, outside)
            for move in moves(seed, count) if steps is None else steps:
                done.append(move)
                everything.apply(move)
            everything.end()
        except Exception as error:
            error.add_note(f"seed {seed}, {settings}, after {len(done)} operations, the last {done[-3:]}")
            raise
    return everything


def test_walks_keep_the_invariants() -> None:
    for seed in range(60):
        walk(seed, STEPS)


@pytest.mark.slow
@pytest.mark.long
def test_many_walks_keep_the_invariants() -> None:
    start = int(os.environ.get("WALKS_FROM", "1000"))
    for seed in range(start, start + int(os.environ.get("WALKS", "150"))):
        walk(seed, 3 * STEPS)


#: Walks, what becomes of their commits, and which ISRs are written in between.
FOUND: list[tuple[list[Move], list[Fate], list[int]]] = [
    ([(("create_znode", "c", [[1, 2]]), None)], [Fate.LOST, Fate.LOST], []),
    ([(("alter", "a", 0, 1), None), (("down", 2), 0), (("bounce", 3), None)], [], []),
    ([(("expand_znode", "a", [[1], [3]]), None), (("down", 3), None)], [Fate.LOST] * 3, []),
    ([(("down", 3), None)], [], [3]),
    ([(("pause", True), None), (("down", 2), None), (("failover", 0), None), (("tick", REBALANCE, 6), None)], [], []),
    ([(("down", 1), None), (("down", 2), None), (("move", {A: [3, 4]}), None), (("up", 1), None)], [], []),
    ([(("mode", True), None), (("mark", "a"), None), (("failover", 0), None), (("down", 2), None)], [], []),
    ([(("move", {A: [2, 4]}), None), (("drain", 2, True), None), (("alter", "a", 0, 15), None)], [], []),
    ([(("down", 2), None), (("mark", "a"), None), (("failover", 0), None)], [], []),
    ([(("hold_stops", True), 0), (("mark", "a"), None), (("bounce", 2), 0)], [], []),
    ([(("mark", "a"), None), (("create_znode", "a", [[1]]), 0), (("mark", "a"), 0)], [Fate.LANDED], []),
    ([(("slow", 2), 0), (("mark", "a"), 1), (("wipe", "a"), 0), (("create_znode", "a", [[2]]), None)], [], []),
]  # fmt: skip


@pytest.mark.parametrize(("steps", "faults", "outside"), FOUND)
def test_walks_that_once_found_something(steps: list[Move], faults: list[Fate], outside: list[int]) -> None:
    everything = Everything(CoreSettings(), faults, (), outside)
    for step in steps:
        everything.apply(step)
    everything.end()


def nothing(*_: object) -> Handler[None]:
    yield Pause.YIELD


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("module", "name"),
    [
        (deletion, "admit"),
        (deletion, "brokers_started"),
        (stray_replicas, "retry"),
        (phases, "remove_listed"),
        (phases, "completed_by_isr"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_left_out_is_missed(module: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, name, nothing)

    def walks() -> None:
        for seed in range(30):
            walk(seed, STEPS)

    with pytest.raises(AssertionError):
        walks()


def test_a_walk_is_the_same_each_time() -> None:
    one, other = walk(7, STEPS), walk(7, STEPS)
    assert one.world.history == other.world.history
    assert one.world.topics == other.world.topics
