"""Breadth first through everything that can become of one topic, the product and the model side by side.

A state is what both are in, epochs apart; from each, every event is tried once. States wait as pickles.
"""

from __future__ import annotations

import itertools
import pickle
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from controller.core.events import Event, EventKind, StopReport
from controller.core.requests import brokers as broker_requests
from controller.core.requests.brokers import ControlledShutdown
from controller.core.requests.elections import ElectionType, ElectLeaders
from controller.core.requests.errors import ErrorCode
from tests.provers.model.against import KEY, differences
from tests.provers.model.enumeration import BROKERS, subsets
from tests.provers.model.events import Controller, Proposal
from tests.provers.model.machines import NO_LEADER, Ids, Leadership
from tests.support.core.harness import MachineHarness
from tests.support.core.world import World

#: Longer than any pause before a deletion is tried again.
LONG_US = 11 * 60 * 1_000_000


class Happening(NamedTuple):
    """One event: its kind, and whom or what it is about."""

    kind: str
    who: Ids = ()
    what: Any = None


class StatefulHarness(MachineHarness):
    """A rig that can be put away and taken out again."""

    _FRESH = ("_topic_ids", "stop_error", "fate", "pick", "_ids")

    def __getstate__(self) -> dict[str, Any]:
        self.forget()
        self.replies.clear()
        return {name: value for name, value in vars(self).items() if name not in self._FRESH}

    def __setstate__(self, held: dict[str, Any]) -> None:
        vars(self).update(held)
        self._topic_ids = (f"generated-{n}" for n in itertools.count(1))
        self.stop_error, self.fate, self.pick = _no_error, _answered, _first
        self._ids = itertools.count(10**6)
        self.chronicle.forget()


_plain = MachineHarness(World())
_no_error, _answered, _first = _plain.stop_error, _plain.fate, _plain.pick


@dataclass(frozen=True)
class Universe:
    """Which events there are, and which assignments a topic may be created with."""

    name: str
    kinds: frozenset[str]
    assignments: tuple[Ids, ...]
    brokers: Ids = BROKERS
    #: Brokers tell their data directories (ADR 17).
    told: bool = False


@dataclass
class Found:
    """What an exploration came to."""

    states: int = 0
    pairs: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


def possible(universe: Universe, model: Controller) -> Iterator[Happening]:
    """Every event that can happen now."""
    up = tuple(b for b in universe.brokers if b in model.registered)
    away = tuple(b for b in universe.brokers if b not in model.registered)
    every = [
        *(Happening("up", who) for who in ([(b,) for b in away] + ([away] if len(away) > 1 else []))),
        *(Happening("down", who) for who in subsets(up)[1:]),
        *(Happening("bounce", who) for who in [(b,) for b in up] + ([up] if len(up) > 1 else [])),
        *(Happening("exchange", (b,), a) for b in up for a in away),
        *(Happening("shutdown", (b,)) for b in up),
        Happening("failover"),
        *_without_data(model, up, away),
    ]
    if not model.known:
        every += [Happening("create", (), assigned) for assigned in universe.assignments]
        every += [Happening("elect", (), ("preferred", None)), Happening("alter", (), Proposal(1, (1,)))]
    else:
        every += _of_topic(model, up)
    yield from (one for one in every if one.kind in universe.kinds)


def _without_data(model: Controller, up: Ids, away: Ids) -> Iterator[Happening]:
    """Who comes back with an empty directory, or with the one that it had when it got in sync."""
    lost = model.lacking(model.stored)
    yield from (Happening("up empty", (b,)) for b in away)
    yield from (Happening("bounce empty", (b,)) for b in up)
    yield from (Happening("failover empty", (b,)) for b in up)
    yield from (Happening("bounce restored", (b,)) for b in up if b in lost)


def _of_topic(model: Controller, up: Ids) -> Iterator[Happening]:
    yield Happening("elect", (), ("preferred", None))
    yield Happening("elect", (), ("unclean", None))
    yield from (Happening("elect", (), ("chosen", b)) for b in BROKERS)
    yield from (Happening("alter", (), proposal) for proposal in _proposals(model))
    yield Happening("unclean", (), not model.unclean)
    stored = model.stored
    if stored is not None and stored.leader in up and stored == model.cached:
        isrs = [isr for isr in subsets(model.replicas) if stored.leader in isr and isr != stored.isr]
        yield from (Happening("isr written", (), isr) for isr in isrs)
    if stored != model.cached:
        yield Happening("isr notified")
    yield from (Happening("disk", (b,)) for b in up if b in model.replicas)
    if not model.queued:
        yield Happening("delete")
    yield from (Happening("deleted", (b,)) for b in sorted(model.answering))
    yield from (Happening("deletion refused", (b,)) for b in sorted(model.answering))
    if model.held and model.retried:
        yield Happening("deletion retried")


def _proposals(model: Controller) -> Iterator[Proposal]:
    """Of the leader, and what only a confused or late broker sends."""
    known = model.cached
    leader = known.leader if known is not None and known.leader != NO_LEADER else 1
    for isr in subsets(model.replicas)[1:]:
        yield Proposal(leader, isr)
    if known is None or leader not in known.isr:
        return
    yield Proposal(leader, known.isr, recovering=True)
    yield Proposal(leader, (leader,), recovering=True)
    yield Proposal(next(b for b in BROKERS if b != leader), (leader,))
    for isr in {known.isr, (leader,), model.replicas}:
        yield Proposal(leader, isr, leader_epoch=-1)
        yield Proposal(leader, isr, leader_epoch=1)
        yield Proposal(leader, isr, partition_epoch=-1)
        yield Proposal(leader, isr, partition_epoch=1)
        yield Proposal(leader, isr, stale=True)


def happen(one: Happening, rig: MachineHarness, model: Controller) -> tuple[MachineHarness, str]:
    """Let it happen to both; the product from then on, and what the caller was answered."""
    world, answer = rig.world, ""
    match one.kind:
        case "up" | "up empty":
            _directories(one, model)
            for broker in one.who:
                world.broker_up(broker, **_told(model, broker))
            rig.run()
            model.brokers(came=one.who)
        case "down":
            world.broker_down(*one.who)
            rig.run()
            model.brokers(went=one.who)
        case "bounce" | "bounce empty" | "bounce restored":
            _directories(one, model)
            _bounce(rig, model, one.who)
            rig.run()
            model.brokers(bounced=one.who)
        case "exchange":
            world.broker_down(*one.who)
            world.broker_up(one.what, **_told(model, one.what))
            rig.run()
            model.brokers(came=(one.what,), went=one.who)
        case "failover" | "failover empty":
            # While nobody was the controller.
            if one.who:
                _directories(one, model)
                _bounce(rig, model, one.who)
            rig = _failover(rig)
            model.happen("failover")
        case "shutdown":
            answer = _shutdown(rig, one.who[0])
            model.happen("controlled shutdown", one.who)
        case "create":
            world.create_topic("t", {0: one.what})
            rig.run()
            model.happen("creation", assigned=one.what)
        case _:
            answer = _to_topic(one, rig, model)
    return rig, answer


def _directories(one: Happening, model: Controller) -> None:
    """What brokers have from now on."""
    for broker in one.who:
        if one.kind.endswith("empty"):
            model.directories[broker] += 1
        elif one.kind == "bounce restored":
            assert model.stored is not None
            model.directories[broker] = dict(zip(model.stored.isr, model.stored.directories, strict=True))[
                broker
            ]


def _told(model: Controller, broker: int) -> dict[str, Ids]:
    return {"directories": (model.directories[broker],)} if model.directories else {}


def _bounce(rig: MachineHarness, model: Controller, who: Ids) -> None:
    rig.world.broker_down(*who)
    for broker in who:
        rig.world.broker_up(broker, **_told(model, broker))


def _failover(rig: MachineHarness) -> MachineHarness:
    rig.world.events.clear()
    fresh = StatefulHarness(rig.world, rig.cluster.controller_epoch + 1)
    fresh.hold_stops = True
    return fresh.failover()


def _shutdown(rig: MachineHarness, broker: int) -> str:
    (reply,) = rig.ask(ControlledShutdown(broker, rig.world.brokers[broker].epoch))
    assert reply.error.name == "NONE"
    return "still leads" if reply.remaining else ""


def _to_topic(one: Happening, rig: MachineHarness, model: Controller) -> str:
    world, answer = rig.world, ""
    match one.kind:
        case "elect":
            kind, chosen = one.what
            (reply,) = rig.ask(ElectLeaders(ElectionType[kind.upper()], [KEY], chosen))
            answer = reply.partitions[0].error.name
            model.elect(kind, chosen)
        case "alter":
            answer = _alter(rig, one.what)
            model.alter(one.what)
        case "unclean":
            config = {"unclean.leader.election.enable": str(one.what).lower()}
            world.put_node("/config/topics/t", config)
            world.notify_config("topics/t")
            rig.run()
            model.unclean = one.what
            model.happen("unclean enabled" if one.what else "unclean disabled")
        case "isr written":
            held = model.stored
            assert held is not None
            # As Kafka's brokers do, without directories: they count as unknown.
            model.stored = held._replace(
                isr=one.what, partition_epoch=held.partition_epoch + 1, directories=()
            )
            world.shrink_or_grow(*KEY, one.what)
            model.pushes, model.refusals, model.reply = [], [], ""
        case "isr notified":
            world.notify_isr(KEY)
            rig.run()
            model.happen("isr notification")
        case "disk":
            world.lost.setdefault(one.who[0], set()).add(KEY)
            world.notify_log_dir(one.who[0])
            rig.run()
            model.lost.update(one.who)
            model.happen("disk notification", one.who)
        case _:
            _to_deletion(one, rig, model)
    return answer


def _alter(rig: MachineHarness, proposal: Proposal) -> str:
    partition = rig.cluster.partition(*KEY)
    held = partition.leadership if partition else None
    sent = broker_requests.Proposal(
        "t",
        partition.topic.id if partition else "no such id",
        0,
        (held.leader_epoch if held else 0) + proposal.leader_epoch,
        proposal.isr,
        int(proposal.recovering),
        (held.partition_epoch if held else 0) + proposal.partition_epoch,
        _epochs(rig, proposal.isr),
    )
    broker = rig.world.brokers.get(proposal.sender)
    epoch = (broker.epoch if broker else 1) - proposal.stale
    (reply,) = rig.ask(rig.alter(proposal.sender, sent, broker_epoch=epoch))
    error: ErrorCode = reply.partitions[0].error if reply.partitions else reply.error
    return error.name


def _epochs(rig: MachineHarness, isr: Ids) -> Ids:
    """KIP-903: broker epochs of the members, from brokers that tell directories, too."""
    known = rig.world.brokers
    if not any(broker.directories for broker in known.values()):
        return ()
    return tuple(known[b].epoch if b in known else -1 for b in isr)


def _to_deletion(one: Happening, rig: MachineHarness, model: Controller) -> None:
    match one.kind:
        case "delete":
            rig.world.mark_for_deletion("t")
            rig.run()
            model.happen("deletion")
        case "deleted" | "deletion refused":
            (broker,) = one.who
            model.answering.discard(broker)
            _answer_stop(rig, broker, refused=one.kind != "deleted" or broker in model.lost)
            model.happen("deletion refused" if broker in model.lost else one.kind, one.who)
        case "deletion retried":
            rig.now_us += LONG_US
            rig.world.events.append(Event(EventKind.TOPIC_DELETION_RETRY))
            rig.run()
            model.happen("deletion retried")


def _answer_stop(rig: MachineHarness, broker: int, refused: bool) -> None:
    """The newest answer of one broker arrives; older ones of it are lost."""
    report = [r for r in rig.stops if r.broker_id == broker][-1]
    rig.stops = [r for r in rig.stops if r.broker_id != broker]
    named = [*report.deleted, *(p for p, _ in report.failed)]
    if refused:
        report = StopReport(broker, report.broker_epoch, [], [(p, "KAFKA_STORAGE_ERROR") for p in named])
    rig.world.events.append(Event(EventKind.STOP_REPLICA_RESPONSE, body=report, serial=10**7 + rig.now_us))
    rig.run()


def key(model: Controller) -> tuple[Any, ...]:
    """A state without epochs: the one thing of them that matters is whether memory is up to date."""
    held = None
    if model.stored is not None:
        held = (model.stored.leader, model.stored.isr, model.stored.recovering)
    stale = None
    if model.cached is not None and model.cached != model.stored:
        stale = (model.cached.leader, model.cached.isr, model.cached.recovering)
    return (
        *(
            frozenset(s)
            for s in (model.registered, model.leaving, model.failed_disks, model.lost, model.answering)
        ),
        (model.known, model.partition, model.replicas, tuple(model.state(b) for b in model.replicas)),
        (_data(model, model.stored), _data(model, model.cached)),
        (held, stale, model.queued, model.started, model.held, model.retried, model.unclean),
    )


def _data(model: Controller, state: Leadership | None) -> tuple[int, ...]:
    """Of each member: 0 nobody knows what it had in the ISR, 1 it has that, 2 it has something else."""
    if state is None or not state.directories:
        return ()
    pairs = zip(state.isr, state.directories, strict=True)
    return tuple(0 if not d else 1 if model.directories[b] == d else 2 for b, d in pairs)


def beginning(universe: Universe) -> tuple[StatefulHarness, Controller]:
    model = Controller(set(universe.brokers))
    if universe.told:
        model.directories = {b: b * 10**6 for b in universe.brokers}
    world = World()
    for broker in universe.brokers:
        world.broker_up(broker, **_told(model, broker))
    rig = StatefulHarness(world)
    rig.hold_stops = True
    rig.failover()
    return rig, model


def explore(universe: Universe, limit: int | None = None, problems_max: int = 1) -> Found:
    """All states reachable, or ``limit`` of them; stops once ``problems_max`` pairs of state and event differ."""
    found = Found()
    start = beginning(universe)
    waiting: deque[tuple[bytes, tuple[Happening, ...]]] = deque([(pickle.dumps(start, -1), ())])
    seen = {key(start[1])}
    while waiting and (limit is None or found.states < limit):
        frozen, path = waiting.popleft()
        found.states += 1
        for one in list(possible(universe, pickle.loads(frozen)[1])):
            found.pairs[one.kind] += 1
            for waiting_answers in (True, False):
                rig, model = pickle.loads(frozen)
                model.waiting = waiting_answers
                problems, rig = compared(one, rig, model)
                if not problems or len(model.lost) < 2:
                    break
            if problems:
                story = "\n".join(f"  {e}" for e in (*path, one))
                found.problems.append("\n".join([f"after\n{story}", *problems]))
                if len(found.problems) >= problems_max:
                    return found
            elif (state := key(model)) not in seen:
                seen.add(state)
                model.waiting = True
                waiting.append((pickle.dumps((rig, model), -1), (*path, one)))
    return found


def compared(one: Happening, rig: MachineHarness, model: Controller) -> tuple[list[str], MachineHarness]:
    """In what both differ after an event, and the product from then on."""
    try:
        rig, answer = happen(one, rig, model)
    except (AssertionError, IndexError) as broken:
        return [f"an invariant is broken: {broken}"], rig
    problems = differences(model, rig, refusals=False)
    if answer != model.reply:
        problems.append(f"answered {answer}, expected {model.reply}")
    return problems, rig
