"""What a seed decides beforehand: how a run is set up, and everything that will be done to it, at which moment.

Swarm testing: each run draws which kinds of faults and operations there are at all, so that some runs have much of one
thing and nothing of another. What is drawn depends on the seed alone, never on what happens, so that leaving out some
actions leaves the others as they were.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from random import Random
from typing import Any, NamedTuple

TOPICS = ("t0", "t1", "t2", "t3")
ACTIVE = 0
#: A fault that waits for its moment (`tests.provers.sim.plans.aims`).
AIM = "aim"
MOMENTS = (
    "is elected",
    "registers",
    "creates state",
    "changes state",
    "changes ISR",
    "changes topic",
    "deletes",
    "session ends",
    *(
        f"{does} {method}"
        for does in ("sends", "takes")
        for method in (
            "LeaderAndIsr",
            "UpdateMetadata",
            "StopReplica",
            "AlterPartition",
            "ControlledShutdown",
        )
    ),
    "takes Fetch",
    "takes Produce",
    "takes OffsetCommit",
)
#: How the names of topics begin that nobody writes to: they may be removed by hand. One of them has just this name.
VICTIM = "gone"
#: When somebody else comes in between (`tests.provers.sim.plans.conflicts`): before a write, or after a read.
WRITE, READ = "write", "read"
#: About how long an operation is in the works, seconds.
MIDST_S = 0.1


class Action(NamedTuple):
    """``at_s`` after the beginning. ``arguments`` are plain numbers, strings and tuples of them."""

    at_s: float
    kind: str
    arguments: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.at_s:7.3f} s  {self.kind}{self.arguments!r}"


@dataclass(frozen=True)
class Options:
    """How a run is set up. Times in seconds unless their names say otherwise."""

    controllers: int
    brokers: int
    zookeepers: int
    duration_s: float
    session_timeout_ms: int
    unclean: bool
    rebalance_s: int
    moves_max: int
    min_isr: int
    #: So many speak the protocol of Kafka 2.6: leaders write ISRs to ZooKeeper, followers ask where epochs end.
    old_brokers: int
    #: Whether ZooKeeper is 3.6 or newer.
    multi_read: bool
    message_bytes_max: int
    maintenance_min: int
    #: How much the product does at once; 0: as it comes.
    step: int
    flush_messages: int
    #: Topics at the beginning: partitions and replication factor.
    initial: tuple[tuple[int, int], ...]
    write_interval_s: float
    acks_one: bool
    consumers: int
    members: int
    zk_delay_s: float
    slow: float
    lost: float
    twice: float
    actions_per_s: float
    faults: tuple[str, ...]
    operations: tuple[str, ...]
    #: A broker of Kafka's elects itself whenever ``/controller`` is absent, and ours claim it back.
    takeover: bool = False
    #: There is a topic for which every controller raises. Nothing is deleted: brokers that miss it learn of no deletion
    #: while a topic is not read.
    poison: bool = False
    #: Somebody without any right sends requests to brokers.
    stranger: bool = False
    #: gRPC by mutual TLS, and an authorizer with rules.
    secured: bool = False
    #: Somebody with a certificate speaks for others; only where it takes one.
    impostor: bool = False
    #: A partition is named thousands of times in one request; a topic znode has far too many replicas.
    flood: bool = False
    oversized: bool = False
    #: Copies of controllers are started beside them.
    namesake: bool = False
    #: Operators, brokers and members of groups ask for what cannot be, and for what hardly anybody asks for
    #: (`tests.provers.sim.odd`).
    odd: bool = False
    #: Somebody else writes what is just being decided upon (`tests.provers.sim.plans.conflicts`).
    conflict: bool = False
    #: What was there before is put back (`tests.provers.sim.plans.restores`).
    restored: bool = False
    #: Each write of a kind fails, as somebody else writes first, or its answer is lost.
    thwarted: bool = False
    #: Each broker has so many data directories.
    disks: int = 1
    #: Brokers start while one of several disks fails.
    start_without_disk: bool = False
    #: Brokers die and are back while what they send to others is held up: the others get both processes' requests.
    held_up: bool = False
    #: Once all is mended, so many hand-overs from one controller to the next while a broker is gone
    #: (`tests.provers.sim.handovers`). They come after all else: until then a seed's course is as it would be without.
    handovers: int = 0
    #: After those, so many times a broker goes and comes while other things happen (`tests.provers.sim.interruptions`).
    interruptions: int = 0
    #: And after those, so many episodes of a cluster in which nothing else goes wrong (`tests.provers.sim.episodes`).
    episodes: int = 0
    #: And last, so many times ZooKeeper is restored from a backup (`tests.provers.sim.episodes.backups`).
    backups: int = 0

    def __str__(self) -> str:
        return ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields(self))


#: Shares of the seeds with ``takeover``, ``secured``, ``stranger`` and ``namesake``, and with ``poison`` of those
#: without takeover.
TAKEOVERS, SECURED, STRANGERS, NAMESAKES, POISONS = 0.15, 0.3, 0.3, 0.2, 0.1
#: Share of the seeds with hand-overs, of those with controllers that stand by and a broker that can be missed.
HANDOVERS = 0.5
#: Share of the seeds with interruptions, of those with two brokers or more.
INTERRUPTIONS = 0.5
#: Share of the seeds with episodes, of those in which all topics can be asked for.
EPISODES = 0.5
#: Share of the seeds in which ZooKeeper is restored, of those with two brokers or more.
BACKUPS = 0.25
#: Share of the seeds with brokers of several disks.
SEVERAL_DISKS = 0.25
#: With ``held_up``, of those with a broker to send to.
HELD_UP = 0.2
#: Of those that are secured, with ``impostor``; and of all with ``flood``, and with ``oversized``.
IMPOSTORS, FLOODS, OVERSIZED = 0.6, 0.1, 0.1
#: With ``conflict``, of those without poison; and how many these have.
CONFLICTED, CONFLICTS = 0.5, (4, 12)
#: With ``thwarted``, of those without poison; and with what the first controller writes first, of these.
THWARTED, FROM_THE_BEGINNING = 0.1, 0.4
#: With ``restored``, of those without poison.
RESTORED = 0.3
#: With ``odd``, of those without poison; and how many scenarios these have.
ODD, ODDITIES = 0.5, (4, 12)
SCENARIOS = (
    "refused_topics",
    "refused_deletions",
    "refused_expansions",
    "life_of_a_topic",
    "refused_moves",
    "to_and_fro",
    "refused_elections",
    "elections_twice",
    "refused_configs",
    "configs_to_and_fro",
    "settings_of_controllers",
    "refused_features",
    "refused_restrictions",
    "set_and_lifted",
    "all_drained",
    "forgotten",
    "spoilt_proposals",
    "brokers_of_former_lives",
    "refused_reads_and_writes",
    "edited_into_nonsense",
    "topics_on_the_move",
)
#: Where there are groups; and where brokers of Kafka's would be led.
OF_GROUPS = ("refused_members", "life_of_a_group")
OF_KAFKA = ("topics_on_controllers",)


@dataclass(frozen=True)
class Plan:
    seed: int
    options: Options
    actions: tuple[Action, ...]


def plan(seed: int) -> Plan:
    """The same for the same seed, everywhere."""
    rng = Random(f"{seed}:plan")
    options = _options(seed, rng)
    tampering = _tampering(Random(f"{seed}:tampering"), options)
    actions = sorted(_actions(rng, options) + _apart(seed, options) + tampering)
    if options.poison:
        actions = [action for action in actions if action.kind != "delete"]
    return Plan(seed, options, tuple(actions))


def _options(seed: int, rng: Random) -> Options:
    brokers = rng.choice((1, 2, 3, 3, 3, 4))
    initial = tuple(
        (rng.choice((1, 1, 2, 3)), min(brokers, rng.choice((1, 2, 3, 3))))
        for _ in range(rng.choice((1, 2, 3)))
    )
    takeover = Random(f"{seed}:takeover").random() < TAKEOVERS
    disks = _disks(Random(f"{seed}:disks"))
    options = _drawn(seed, rng, brokers, initial, takeover, disks)
    return replace(
        options,
        handovers=_handovers(Random(f"{seed}:handovers"), options),
        interruptions=_interruptions(Random(f"{seed}:interruptions"), options),
        episodes=_episodes(Random(f"{seed}:episodes"), options),
        backups=_backups(Random(f"{seed}:backups"), options),
    )


def _handovers(rng: Random, options: Options) -> int:
    """A missing broker must not be what makes a cluster go into maintenance."""
    stood_by = options.controllers > 1 and options.brokers > 1 and options.maintenance_min > 1
    apart = options.takeover or options.poison or options.oversized
    return rng.randint(1, 3) if rng.random() < HANDOVERS and stood_by and not apart else 0


def _interruptions(rng: Random, options: Options) -> int:
    apart = options.takeover or options.poison or options.oversized or options.maintenance_min == 1
    return rng.randint(1, 3) if rng.random() < INTERRUPTIONS and options.brokers > 1 and not apart else 0


def _episodes(rng: Random, options: Options) -> int:
    apart = options.poison or options.oversized
    return rng.randint(1, 3) if rng.random() < EPISODES and not apart else 0


def _backups(rng: Random, options: Options) -> int:
    apart = options.poison or options.oversized
    return rng.choice((1, 1, 2)) if rng.random() < BACKUPS and options.brokers > 1 and not apart else 0


def _drawn(
    seed: int, rng: Random, brokers: int, initial: tuple[tuple[int, int], ...], takeover: bool, disks: int
) -> Options:
    return Options(
        controllers=rng.choice((1, 2, 2, 3)),
        brokers=brokers,
        zookeepers=rng.choice((1, 3)),
        duration_s=rng.choice((4.0, 8.0, 12.0)),
        session_timeout_ms=rng.choice((1000, 2000, 3000)),
        unclean=rng.random() < 0.15,
        rebalance_s=rng.choice((1, 3, 300)),
        moves_max=rng.choice((0, 0, 1)),
        min_isr=rng.choice((1, 1, 2)),
        old_brokers=rng.choice((0, 0, 0, 1, brokers)),
        multi_read=rng.random() < 0.8,
        message_bytes_max=rng.choice((1_048_576, 10_000)),
        maintenance_min=rng.choice((3, 3, 1)),
        step=rng.choice((0, 0, 1, 2)),
        flush_messages=rng.choice((1, 1 << 40)),
        initial=initial,
        write_interval_s=rng.choice((0.4, 0.4, 0.1)),
        acks_one=rng.random() < 0.2,
        consumers=rng.choice((0, 1)),
        members=rng.choice((0, 0, 0, 1, 2)),
        zk_delay_s=rng.choice((0.0005, 0.002, 0.02)),
        slow=rng.choice((0.0, 0.0, 0.02)),
        lost=rng.choice((0.0, 0.0, 0.01)),
        twice=rng.choice((0.0, 0.0, 0.02)),
        actions_per_s=rng.choice((0.5, 1.0, 2.0)),
        faults=_some(rng, tuple(FAULTS)),
        operations=_some(rng, tuple(OPERATIONS)),
        # Drawn apart: all else of a seed is as it would be without.
        takeover=takeover,
        poison=_poisoned(seed, takeover=takeover),
        stranger=Random(f"{seed}:stranger").random() < STRANGERS,
        secured=Random(f"{seed}:secured").random() < SECURED,
        impostor=Random(f"{seed}:secured").random() < SECURED
        and Random(f"{seed}:impostor").random() < IMPOSTORS,
        flood=Random(f"{seed}:flood").random() < FLOODS,
        oversized=Random(f"{seed}:oversized").random() < OVERSIZED,
        namesake=Random(f"{seed}:namesake").random() < NAMESAKES,
        odd=Random(f"{seed}:odd").random() < ODD and not _poisoned(seed, takeover=takeover),
        conflict=Random(f"{seed}:conflict").random() < CONFLICTED and not _poisoned(seed, takeover=takeover),
        restored=Random(f"{seed}:restored").random() < RESTORED and not _poisoned(seed, takeover=takeover),
        thwarted=Random(f"{seed}:thwarted").random() < THWARTED and not _poisoned(seed, takeover=takeover),
        disks=disks,
        start_without_disk=disks > 1,
        held_up=brokers > 1 and Random(f"{seed}:held_up").random() < HELD_UP,
    )


def _poisoned(seed: int, *, takeover: bool) -> bool:
    return not takeover and Random(f"{seed}:poison").random() < POISONS


def _disks(rng: Random) -> int:
    return rng.choice((2, 2, 3)) if rng.random() < SEVERAL_DISKS else 1


def _some(rng: Random, names: tuple[str, ...]) -> tuple[str, ...]:
    """Now and then few, mostly about half."""
    share = rng.choice((0.1, 0.3, 0.5, 0.8))
    return tuple(name for name in names if rng.random() < share)


def _actions(rng: Random, options: Options) -> list[Action]:
    kinds = [(name, FAULTS[name]) for name in options.faults]
    kinds += [(name, OPERATIONS[name]) for name in options.operations]
    actions: list[Action] = []
    # The first moments matter, too: nobody is up yet then.
    at_s = rng.choice((0.0, 1.0, 2.0))
    while kinds and (at_s := at_s + rng.expovariate(options.actions_per_s)) < options.duration_s:
        name, arguments = rng.choice(kinds)
        actions.append(Action(round(at_s, 6), name, arguments(rng, options)))
        # Some things only go wrong when they come together, or in the midst of something.
        if options.faults and rng.random() < 0.4:
            name, delay_s = rng.choice(options.faults), rng.uniform(0.0, MIDST_S)
            actions.append(Action(round(at_s + delay_s, 6), name, FAULTS[name](rng, options)))
        if options.faults and rng.random() < 0.4:
            actions.append(Action(round(at_s, 6), AIM, _aim(rng, options)))
        if rng.random() < 0.3:
            at_s -= rng.expovariate(options.actions_per_s)
    return actions


def _apart(seed: int, options: Options) -> list[Action]:
    """Of the faults whose draws leave all others as they were."""
    actions: list[Action] = []
    for name, arguments in APART.items():
        rng = Random(f"{seed}:{name}:actions")
        if getattr(options, name):
            times = rng.randint(*TIMES.get(name, (1, 4)))
            moments = [rng.uniform(0.0, options.duration_s) for _ in range(times)]
            if name == "thwarted" and rng.random() < FROM_THE_BEGINNING:
                moments[0] = 0.0
            actions += [Action(round(at_s, 6), name, arguments(rng, options)) for at_s in moments]
    return actions


def _tampering(rng: Random, options: Options) -> list[Action]:
    """Drawn apart: all else of a seed is as it would be without."""
    if rng.random() >= TAMPERED:
        return []
    kinds = [rng.choice(list(TAMPERING)) for _ in range(rng.randint(1, 4))]
    return [
        Action(round(rng.uniform(1.0, options.duration_s), 6), kind, TAMPERING[kind](rng, options))
        for kind in kinds
    ]


# arguments, by kind of action

Arguments = Callable[[Random, Options], tuple[Any, ...]]


def _broker(rng: Random, options: Options) -> int:
    return rng.randint(1, options.brokers)


def _controller(rng: Random, options: Options) -> int:
    """The active one, mostly."""
    return ACTIVE if rng.random() < 0.7 else rng.randint(1, options.controllers)


def _node(rng: Random, options: Options) -> str:
    return (
        f"broker-{_broker(rng, options)}" if rng.random() < 0.6 else f"controller-{_controller(rng, options)}"
    )


def _short_s(rng: Random) -> float:
    """From a moment to beyond the session timeout."""
    return round(rng.choice((0.05, 0.5, 1.5, 3.0)) * rng.uniform(0.5, 1.5), 6)


def _topic(rng: Random) -> str:
    return rng.choice(TOPICS)


def _ids(rng: Random, options: Options) -> tuple[int, ...]:
    count = rng.randint(1, min(3, options.brokers))
    return tuple(rng.sample(range(1, options.brokers + 1), count))


def _broker_for(rng: Random, options: Options) -> tuple[Any, ...]:
    return _broker(rng, options), _short_s(rng)


def _scenario(rng: Random, options: Options) -> str:
    if options.takeover and rng.random() < 0.5:
        return rng.choice(OF_KAFKA)
    if options.members and rng.random() < 0.3:
        return rng.choice(OF_GROUPS)
    return rng.choice(SCENARIOS)


def _controller_for(rng: Random, options: Options) -> tuple[Any, ...]:
    return _controller(rng, options), _short_s(rng)


def _server(rng: Random, options: Options) -> int:
    return rng.randrange(options.zookeepers)


def _aim(rng: Random, options: Options) -> tuple[Any, ...]:
    """Arguments of ``Aims.take``."""
    fault = rng.choice(options.faults)
    return (
        rng.choice(MOMENTS),
        rng.choice((1, 1, 1, 2, 3, 6)),
        rng.choice((0.0, 0.0, 0.002, 0.02)),
        rng.choice(("doer", "other", "")),
        fault,
        FAULTS[fault](rng, options),
    )


FAULTS: dict[str, Arguments] = {
    "kill_broker": _broker_for,
    "bounce_broker": lambda rng, options: (_broker(rng, options), 0.0),
    "stop_broker": _broker_for,
    "pause_broker": _broker_for,
    "kill_controller": _controller_for,
    "stop_controller": _controller_for,
    "pause_controller": _controller_for,
    "part_from_zookeeper": lambda rng, options: (
        _node(rng, options),
        rng.choice(((True, True), (True, False), (False, True))),
        _short_s(rng),
    ),
    "part": lambda rng, options: (
        _node(rng, options),
        f"broker-{_broker(rng, options)}",
        rng.random() < 0.5,
        _short_s(rng),
    ),
    "isolate": lambda rng, options: (_node(rng, options), _short_s(rng)),
    "drop_connection": lambda rng, options: (_node(rng, options),),
    "lose_commit": lambda rng, options: (_node(rng, options), rng.choice(("request", "reply"))),
    "expire": lambda rng, options: (_node(rng, options),),
    "stop_zookeeper": lambda rng, options: (_server(rng, options), _short_s(rng)),
    "stop_zookeeper_leader": lambda rng, _: (_short_s(rng),),
    "lag_zookeeper": lambda rng, options: (_server(rng, options), _short_s(rng)),
    "cut_off_zookeeper": lambda rng, options: (_server(rng, options), _short_s(rng)),
    "jump_clock": lambda rng, options: (_node(rng, options), rng.choice((-3600.0, -1.0, 1.0, 3600.0))),
    "fail_disk": lambda rng, options: (_broker(rng, options), rng.choice(("", *TOPICS)), 2 * _short_s(rng)),
    "lose_disk": _broker_for,
    "cut_power": _broker_for,
    "blackout": lambda rng, _: (rng.random() < 0.5, _short_s(rng)),
    "depose": lambda _rng, _options: (),
}

#: What somebody does to what controllers rely on; the audit has to find it.
TAMPERING: dict[str, Arguments] = {
    "edit_state": lambda rng, _: (
        _topic(rng),
        rng.randrange(3),
        rng.random() < 0.5,
        rng.choice((0, 0, 1, 10**9)),
    ),
    "scribble": lambda rng, _: (_topic(rng), rng.randrange(3)),
    "forget_metadata": lambda rng, options: (_broker(rng, options), _topic(rng), rng.randrange(3)),
}
#: Share of the seeds with tampering.
TAMPERED = 0.15

#: Each is a field of `Options`, too.
APART: dict[str, Arguments] = {
    "stranger": lambda rng, options: (
        _broker(rng, options),
        rng.choice(("LeaderAndIsr", "UpdateMetadata", "StopReplica")),
        rng.choice((1_000_000, 2**31 - 1)),
        rng.choice((99, 1)),
    ),
    "impostor": lambda rng, options: (
        rng.choice(("producer-1", f"broker-{_broker(rng, options)}", "broker-99")),
        _broker(rng, options),
        rng.choice(("LeaderAndIsr", "UpdateMetadata", "StopReplica", "AlterPartition", "ControlledShutdown")),
    ),
    "flood": lambda rng, options: (_broker(rng, options), rng.choice((2, 1500))),
    "oversized": lambda _rng, _options: (),
    "conflict": lambda rng, options: _conflict(rng, options),
    "thwarted": lambda rng, options: _thwarted(rng, options),
    "restored": lambda rng, options: _restored(rng, options),
    "odd": lambda rng, options: (_scenario(rng, options), rng.randrange(2**31)),
    "held_up": lambda rng, options: (_broker(rng, options), round(rng.uniform(0.2, 1.2), 6)),
    "start_without_disk": lambda rng, options: (_broker(rng, options), 2 * _short_s(rng)),
    "namesake": lambda rng, options: (
        rng.randint(1, options.controllers),
        round(rng.uniform(0.5, 2.5) * options.session_timeout_ms / 1000, 6),
    ),
}

#: How many there are of each in a run that has them.
TIMES = {"odd": ODDITIES, "conflict": CONFLICTS}

#: Faults whose first argument is a broker's id, a controller's, or a node's name.
BY_BROKER = (
    "kill_broker",
    "bounce_broker",
    "stop_broker",
    "pause_broker",
    "fail_disk",
    "lose_disk",
    "cut_power",
)
BY_CONTROLLER = ("kill_controller", "stop_controller", "pause_controller")
BY_NODE = ("part_from_zookeeper", "part", "isolate", "drop_connection", "lose_commit", "expire", "jump_clock")

OPERATIONS: dict[str, Arguments] = {
    "create": lambda rng, options: (
        _topic(rng),
        tuple(_ids(rng, options) for _ in range(rng.randint(1, 3))),
        rng.random() < 0.3,
    ),
    "delete": lambda rng, _: (_topic(rng), rng.random() < 0.3),
    "expand": lambda rng, options: (_topic(rng), _ids(rng, options)),
    "reassign": lambda rng, options: (
        _topic(rng),
        rng.randrange(3),
        _ids(rng, options),
        rng.random() < 0.3,
    ),
    "cancel_reassignment": lambda rng, _: (_topic(rng), rng.randrange(3)),
    "elect_preferred": lambda rng, _: (_topic(rng), rng.randrange(3), rng.random() < 0.3),
    "elect_unclean": lambda rng, _: (_topic(rng), rng.randrange(3)),
    "elect_chosen": lambda rng, options: (_topic(rng), rng.randrange(3), _broker(rng, options)),
    "allocate_ids": lambda rng, options: (_broker(rng, options),),
    "update_feature": lambda rng, _: (rng.randint(0, 4), rng.choice((1, 2, 3))),
    "look": lambda rng, options: (_topic(rng), rng.randrange(3), _broker(rng, options)),
    "litter": lambda rng, _: (rng.randrange(5),),
    "set_min_isr": lambda rng, _: (_topic(rng), rng.choice((1, 2))),
    "set_unclean": lambda rng, _: (_topic(rng), rng.random() < 0.5),
    "drain": lambda rng, options: (_broker(rng, options), _short_s(rng)),
    "pause": lambda rng, _: (_short_s(rng),),
    "cancel_shutdown": lambda rng, options: (_broker(rng, options),),
}

#: Who comes in between, by what it is about, and what brings it about.
RIVALS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "state": (
        (
            "touched",
            "shrunk",
            "led_by_another",
            "newer",
            "scribbled",
            "removed",
            "renewed",
            "bereft",
            "bereft",
        ),
        (
            "elect_preferred",
            "bounce_broker",
            "reassign",
            "kill_broker",
            "stop_broker",
            "move_many",
            "elect_many",
        ),
    ),
    "isr": (
        ("touched", "shrunk", "led_by_another", "scribbled", "removed"),
        ("pause_broker", "stop_broker", "bounce_broker"),
    ),
    "new state": (("created_first", "begun", "removed", "renewed"), ("create", "expand")),
    "topic": (
        ("touched", "marked", "expanded", "scribbled", "removed", "renewed"),
        ("reassign", "move_many", "cancel_reassignment", "expand", "create"),
    ),
    "new topic": (("created_first", "created_alike"), ("create",)),
    "end of topic": (("removed", "renewed", "littered", "expanded", "scribbled"), ("delete",)),
    "reassignment": (
        ("touched", "another_request", "another_request", "removed", "scribbled"),
        ("reassign", "litter", "move_many"),
    ),
    "preferred": (("touched", "another_election", "removed", "scribbled"), ("elect_preferred", "litter")),
    "deletion": (("touched", "removed"), ("delete",)),
    "config": (
        ("touched", "marked", "removed", "scribbled", "ill_valued"),
        ("set_min_isr", "set_unclean", "create", "announce"),
    ),
    "ours": (("touched", "removed", "scribbled"), ("drain", "pause")),
    "feature": (("touched", "scribbled"), ("update_feature",)),
    "producer_ids": (("touched", "taken_first", "scribbled"), ("allocate_ids",)),
    "notification": (("removed", "touched"), ("bounce_broker", "fail_disk", "litter")),
    "epoch": (("superseded", "reigned_over"), ("depose", "stop_controller", "elect_preferred", "reassign")),
    "kafka_id": (("removed",), ("depose",)),
    "broker": (("departed", "scribbled", "moved"), ("bounce_broker", "kill_broker", "depose")),
}
#: What brings things about, and is asked for nowhere else.
PROVOCATIONS: dict[str, Arguments] = {
    "move_many": lambda rng, options: (_ids(rng, options), rng.random() < 0.3),
    "elect_many": lambda rng, _: (rng.random() < 0.5,),
    "announce": lambda rng, _: (rng.randrange(4),),
}
#: Those that are by a znode of a tool's.
_BY_ZNODE = ("reassignment", "preferred")
#: Nobody writes these beside a controller, and nobody reads those.
_READ_ONLY, _WRITE_ONLY = ("broker",), ("new state", "new topic", "isr", "kafka_id")


def _conflict(rng: Random, options: Options) -> tuple[Any, ...]:
    """Arguments of ``Conflicts.begin``."""
    return _conflict_about(rng.choice(tuple(RIVALS)), rng, options)


def _thwarted(rng: Random, options: Options) -> tuple[Any, ...]:
    """As above: of every write that is next, or of more than are tried."""
    what = rng.choice([name for name in RIVALS if name not in _READ_ONLY])
    _, kind, _, _, _, provoked, how = _conflict_about(what, rng, options)
    rival = "unanswered" if "touched" not in RIVALS[what][0] else rng.choice(("unanswered", "touched"))
    return WRITE, kind, 1, rng.choice((1, 2, 12)), rival, provoked, how


def _restored(rng: Random, options: Options) -> tuple[Any, ...]:
    """Arguments of ``Conflicts.restore``; at times those of a conflict, which it is then."""
    kind = rng.choice(("state", "state", "isr", "topic"))
    what = rng.choice(("unnamed", "misnamed") if kind == "topic" else ("put_back_state",))
    when = rng.choice(("now", WRITE, "between"))
    topic, number, ago = rng.choice(TOPICS[:3]), rng.choice((0, 0, 1)), rng.choice((1, 1, 2, 3))
    _, _, count, times, _, provoked, how = _conflict_about(kind, rng, options)
    conflict = (WRITE, kind, count, min(times, 2), what, provoked, how)
    return when, what, topic, number, ago, conflict if when == WRITE else ()


def _conflict_about(what: str, rng: Random, options: Options) -> tuple[Any, ...]:
    rivals, provocations = RIVALS[what]
    provoked = rng.choice(provocations)
    how = (OPERATIONS | PROVOCATIONS | FAULTS)[provoked](rng, options)
    if provoked in OPERATIONS and how and how[0] in TOPICS:
        another = f"{VICTIM}{rng.randint(1, 4)}"
        topic = another if provoked == "create" else rng.choice((how[0], TOPICS[0], VICTIM, another))
        how = (topic, *how[1:])
    if what in _BY_ZNODE and rng.random() < 0.7 and provoked in ("reassign", "elect_preferred"):
        how = (*how[:-1], True)
    reads = what in _READ_ONLY or (what not in _WRITE_ONLY and rng.random() < 0.35)
    return (
        READ if reads else WRITE,
        what.rpartition(" ")[2],
        rng.choice((1, 1, 1, 2, 4)),
        rng.choice((1, 1, 1, 2, 12)),
        rng.choice(rivals),
        provoked,
        how,
    )
