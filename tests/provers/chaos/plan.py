"""What goes wrong, and when: episodes drawn from a seed. Pure: the same seed and means give the same plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from random import Random

ZOOKEEPERS = tuple(f"zk-{n}" for n in (1, 2, 3))
CONTROLLERS = tuple(f"controller-{n}" for n in (1, 2, 3))
BROKERS = tuple(f"broker-{n}" for n in (1, 2, 3, 4, 5))
EVERYBODY = (*ZOOKEEPERS, *CONTROLLERS, *BROKERS)
#: Whoever is the active controller when the fault begins.
ACTIVE = "the active controller"
#: What an episode takes on average with its recovery, seconds.
EPISODE_S = 9.5


class Means(StrEnum):
    """What the surroundings permit."""

    PACKETS = "packets between any two hosts can be dropped"
    ZOOKEEPER_PACKETS = "packets between members and ZooKeeper can be dropped"
    LOSS = "a share of packets can be dropped"
    SLOW = "a host's link can be made slow"
    MOUNTS = "disks of a fixed size can be mounted"
    WALL_CLOCKS = "wall clocks can jump"


class Kind(StrEnum):
    KILL = "kill -9"
    FREEZE = "freeze"
    CUT = "cut"
    DEAF = "one way"
    LOSS = "loss"
    SLOW = "slow link"
    DISK_FULL = "disk full"
    STATE_LOG_FULL = "state log full"
    CLOCK = "wall clock"
    JUMP = "wall clock jumps"
    ROLL = "rolling restart"


@dataclass(frozen=True)
class Fault:
    """One fault. ``who``: whom it strikes; ``peers``: from whom it is cut (DEAF: whom it does not hear); ``amount``:
    share of packets lost, bits a second, seconds of clock."""

    kind: Kind
    who: tuple[str, ...]
    peers: tuple[str, ...] = ()
    amount: float = 0.0

    def __str__(self) -> str:
        who, peers = _names(self.who), _names(self.peers)
        match self.kind:
            case Kind.KILL:
                return f"kill -9 of {who}"
            case Kind.FREEZE:
                return f"SIGSTOP of {who}"
            case Kind.CUT:
                return f"{who} cut from {peers}"
            case Kind.DEAF:
                hear = "hear" if " and " in who else "hears"
                return f"{who} {hear} nothing from {peers}"
            case Kind.LOSS:
                return f"{who} loses {self.amount:.0%} of what arrives"
            case Kind.SLOW:
                return f"{who} sends {self.amount / 1000:.0f} kbit/s"
            case Kind.DISK_FULL:
                return f"data disk of {who} full"
            case Kind.STATE_LOG_FULL:
                return f"state-log disk of {who} full"
            case Kind.CLOCK:
                return f"wall clock of {who} off by {self.amount:+.0f} s from its start"
            case Kind.JUMP:
                return f"wall clock of {who} jumps by {self.amount:+.0f} s"
            case Kind.ROLL:
                return f"rolling restart (SIGTERM) of {who}"


@dataclass(frozen=True)
class Episode:
    """Faults that begin together and are healed together ``hold_s`` later; ``pause_s`` of quiet come before."""

    number: int
    faults: tuple[Fault, ...]
    hold_s: float
    pause_s: float

    @property
    def name(self) -> str:
        return "; ".join(map(str, self.faults))

    def __str__(self) -> str:
        return f"episode {self.number}, {self.hold_s:.1f} s: {self.name}"


def _names(names: Sequence[str]) -> str:
    for group, word in (
        (ZOOKEEPERS, "ZooKeeper"),
        (BROKERS, "all brokers"),
        (CONTROLLERS, "all controllers"),
    ):
        if set(names) == set(group):
            return word
    if len(names) >= len(EVERYBODY) - 1:
        return "everybody"
    return " and ".join(names)


Recipe = Callable[[Random], Fault]


def _some(random: Random, group: Sequence[str], most: int = 1) -> tuple[str, ...]:
    return tuple(sorted(random.sample(group, random.randint(1, most))))


def _active_or_other(random: Random) -> tuple[str, ...]:
    return (random.choice((ACTIVE, ACTIVE, *CONTROLLERS)),)


def _two_brokers(kind: Kind) -> Recipe:
    def draw(random: Random) -> Fault:
        one, other = random.sample(BROKERS, 2)
        return Fault(kind, (one,), (other,))

    return draw


def _anybody(kind: Kind, low: float, high: float) -> Recipe:
    return lambda random: Fault(
        kind, (random.choice((ACTIVE, *EVERYBODY)),), amount=round(random.uniform(low, high), 2)
    )


def _one_way_to_zookeeper(group: Sequence[str]) -> Recipe:
    def draw(random: Random) -> Fault:
        who = (random.choice(group),)
        return Fault(Kind.DEAF, *((who, ZOOKEEPERS) if random.random() < 0.5 else (ZOOKEEPERS, who)))

    return draw


def _one_way_to_brokers(random: Random) -> Fault:
    who = _some(random, BROKERS, 2)
    return Fault(Kind.DEAF, *(((ACTIVE,), who) if random.random() < 0.5 else (who, (ACTIVE,))))


def _alone(random: Random) -> Fault:
    who = random.choice((*BROKERS, *CONTROLLERS))
    return Fault(Kind.CUT, (who,), tuple(name for name in EVERYBODY if name != who))


def _zookeeper_split(random: Random) -> Fault:
    who = random.choice(ZOOKEEPERS)
    return Fault(Kind.CUT, (who,), tuple(name for name in ZOOKEEPERS if name != who))


def _clock(kind: Kind, *groups: Sequence[str]) -> Recipe:
    """One of a group, each group as often as another."""
    return lambda random: Fault(
        kind, (random.choice(random.choice(groups)),), amount=float(random.choice((-3600, -40, 40, 3600)))
    )


#: Each kind of fault, and what it needs. Every run deals all of them before any comes again.
RECIPES: tuple[tuple[Means | None, Recipe], ...] = (
    (None, lambda _: Fault(Kind.KILL, (ACTIVE,))),
    (None, lambda r: Fault(Kind.KILL, _some(r, CONTROLLERS, 2))),
    (None, lambda r: Fault(Kind.KILL, _some(r, BROKERS, 2))),
    (None, lambda r: Fault(Kind.KILL, _some(r, ZOOKEEPERS))),
    (None, lambda r: Fault(Kind.KILL, tuple(sorted(r.sample(ZOOKEEPERS, 2))))),
    (None, lambda r: Fault(Kind.FREEZE, tuple(sorted(r.sample(ZOOKEEPERS, 2))))),
    (None, lambda r: Fault(Kind.FREEZE, _active_or_other(r))),
    (None, lambda r: Fault(Kind.FREEZE, _some(r, BROKERS, 2))),
    (None, lambda r: Fault(Kind.FREEZE, _some(r, ZOOKEEPERS))),
    (Means.ZOOKEEPER_PACKETS, lambda r: Fault(Kind.CUT, _active_or_other(r), ZOOKEEPERS)),
    (Means.ZOOKEEPER_PACKETS, lambda r: Fault(Kind.CUT, _some(r, BROKERS, 2), ZOOKEEPERS)),
    (Means.ZOOKEEPER_PACKETS, _one_way_to_zookeeper((ACTIVE, *CONTROLLERS))),
    (Means.ZOOKEEPER_PACKETS, _one_way_to_zookeeper(BROKERS)),
    (Means.PACKETS, lambda r: Fault(Kind.CUT, (ACTIVE,), _some(r, BROKERS, 3))),
    (Means.PACKETS, _two_brokers(Kind.CUT)),
    (Means.PACKETS, _two_brokers(Kind.DEAF)),
    (Means.PACKETS, _one_way_to_brokers),
    (Means.PACKETS, _alone),
    (Means.PACKETS, _zookeeper_split),
    (Means.LOSS, _anybody(Kind.LOSS, 0.05, 0.4)),
    (Means.SLOW, _anybody(Kind.SLOW, 100_000, 1_000_000)),
    (Means.MOUNTS, lambda r: Fault(Kind.DISK_FULL, _some(r, BROKERS))),
    (Means.MOUNTS, lambda r: Fault(Kind.STATE_LOG_FULL, _active_or_other(r))),
    (Means.WALL_CLOCKS, _clock(Kind.CLOCK, BROKERS, CONTROLLERS)),
    (Means.WALL_CLOCKS, _clock(Kind.JUMP, (ACTIVE,), CONTROLLERS, BROKERS, ZOOKEEPERS)),
    (None, lambda _: Fault(Kind.ROLL, CONTROLLERS)),
    (None, lambda _: Fault(Kind.ROLL, BROKERS)),
)


#: What the fast tests play: the active controller dies, a broker is alone, ZooKeeper is.
SHORT = (
    Episode(1, (Fault(Kind.KILL, (ACTIVE,)),), 4.5, 0.5),
    Episode(2, (Fault(Kind.CUT, ("broker-2",), ZOOKEEPERS),), 4.5, 0.5),
    Episode(3, (Fault(Kind.KILL, ("zk-1", "zk-2")),), 2.0, 0.5),
)


def draw(
    seed: int, episodes: int, means: frozenset[Means], hold_s: tuple[float, float] = (2.0, 9.0)
) -> list[Episode]:
    """The plan. ``hold_s``: between which limits faults last; some end before sessions do, some after."""
    random = Random(seed)
    usable = [recipe for need, recipe in RECIPES if need is None or need in means]
    deck: list[Recipe] = []
    drawn = []
    for number in range(1, episodes + 1):
        if not deck:
            deck = random.sample(usable, len(usable))
        faults = [deck.pop()(random)]
        for _ in range(random.choice((0, 0, 1, 1, 2))):
            another = random.choice(usable)(random)
            if _compatible(another, faults):
                faults.append(another)
        pause_s, held_s = round(random.uniform(0.5, 2.0), 1), round(random.uniform(*hold_s), 1)
        drawn.append(Episode(number, tuple(faults), held_s, pause_s))
    return drawn


def only(kind: Kind, seed: int, means: frozenset[Means]) -> Iterator[Episode]:
    """Of the plan of a seed, without end, the faults of one kind. None, if there is no way to have them here."""
    if not any(
        need in means or need is None for need, recipe in RECIPES if recipe(Random(seed)).kind is kind
    ):
        return
    length, numbers = len(RECIPES), count(1)
    while True:
        plan = draw(seed, length, means)
        for episode in plan[length // 2 if length > len(RECIPES) else 0 :]:
            if faults := tuple(fault for fault in episode.faults if fault.kind is kind):
                yield Episode(next(numbers), faults, episode.hold_s, episode.pause_s)
        length *= 2


def _compatible(another: Fault, faults: Sequence[Fault]) -> bool:
    """Whether it strikes other members than those do, so that what heals one does not heal the other."""
    struck = {name for fault in faults for name in fault.who}
    # The active one may be any of them.
    if struck & {ACTIVE, *CONTROLLERS} and set(another.who) & {ACTIVE, *CONTROLLERS}:
        return False
    return not struck & set(another.who)
