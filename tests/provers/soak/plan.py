"""What goes wrong in a soak: one fault after another, without end. Pure.

Some members are never restarted, so that what leaks slowly is seen: they are frozen and cut off only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from tests.provers.chaos.plan import ACTIVE, BROKERS, CONTROLLERS, ZOOKEEPERS, Episode, Fault, Kind

#: Quiet before each fault, and how long it lasts, seconds: some end before sessions do.
PAUSE_S, HOLD_S = (8.0, 25.0), (2.0, 8.0)
ELDERS = (ZOOKEEPERS[0], CONTROLLERS[0], BROKERS[0])
_RESTARTED = {
    group: tuple(name for name in group if name not in ELDERS) for group in (ZOOKEEPERS, CONTROLLERS, BROKERS)
}
Recipe = Callable[[Random], Fault]


def _one(kind: Kind, *names: str) -> Recipe:
    return lambda random: Fault(kind, (random.choice(names),))


def _cut(*names: str) -> Recipe:
    return lambda random: Fault(Kind.CUT, (random.choice(names),), ZOOKEEPERS)


RECIPES: tuple[Recipe, ...] = (
    _one(Kind.KILL, *_RESTARTED[CONTROLLERS]),
    _one(Kind.KILL, *_RESTARTED[BROKERS]),
    _one(Kind.KILL, *_RESTARTED[ZOOKEEPERS]),
    _one(Kind.FREEZE, ACTIVE),
    _one(Kind.FREEZE, *BROKERS),
    _one(Kind.FREEZE, *ZOOKEEPERS),
    _cut(ACTIVE),
    _cut(*BROKERS),
    lambda _: Fault(Kind.ROLL, _RESTARTED[CONTROLLERS]),
    lambda _: Fault(Kind.ROLL, _RESTARTED[BROKERS]),
)


def draw(seed: int) -> Iterator[Episode]:
    """Every kind once before any comes again."""
    random = Random(seed)
    number = 0
    while True:
        for recipe in random.sample(RECIPES, len(RECIPES)):
            number += 1
            pause_s, hold_s = round(random.uniform(*PAUSE_S), 1), round(random.uniform(*HOLD_S), 1)
            yield Episode(number, (recipe(random),), hold_s, pause_s)
