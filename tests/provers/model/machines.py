"""Interprets the tables of the two state machines over one partition of at most three replicas.

Memory, the stored state and what brokers are sent are plain values of ``Model``. Independent of the code under test: of
the product nothing is imported here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.provers.model import tables
from tests.provers.model.tables import GONE, NEW, OFFLINE, ONLINE, Candidate, Effect, Legal

Ids = tuple[int, ...]
NO_LEADER, DURING_DELETE = -1, -2

#: How often each row of each table was used, by its id; and each legal transition taken.
used: Counter[str] = Counter()
taken: Counter[tuple[str, str, str]] = Counter()


class Leadership(NamedTuple):
    """What a partition state znode holds, and its version."""

    leader: int
    leader_epoch: int
    isr: Ids
    partition_epoch: int
    controller_epoch: int
    recovering: bool = False
    #: Parallel to ``isr``, the data directory with which each member got in sync; 0: not told. Empty: of none.
    directories: Ids = ()

    def kept(self, isr: Ids) -> Ids:
        """Directories of these members."""
        known = dict(zip(self.isr, self.directories, strict=False))
        return told(known.get(b, 0) for b in isr)


def told(directories: Iterable[int]) -> Ids:
    """As states have them: empty if none is told."""
    found = tuple(directories)
    return found if any(found) else ()


class Entry(NamedTuple):
    """One partition in a LeaderAndIsr or UpdateMetadata request (9.1)."""

    leader: int
    leader_epoch: int
    isr: Ids
    partition_epoch: int
    recovering: bool | None = None
    replicas: Ids = ()
    adding: Ids = ()
    removing: Ids = ()
    is_new: bool = False
    offline: Ids = ()


class Push(NamedTuple):
    """One request to one broker: ``what`` is an Entry, (leader epoch, delete) of a StopReplica, or live brokers."""

    broker: int
    kind: str
    what: object


class Chosen(NamedTuple):
    leader: int
    isr: Ids
    recovering: bool
    recipients: Ids
    unclean: bool = False


@dataclass
class Context:
    """What a strategy looks at."""

    assigned: Ids
    isr: Ids
    registered: frozenset[int]
    leaving: frozenset[int] = frozenset()
    failed_disks: frozenset[int] = frozenset()
    recovering: bool = False
    unclean: bool = False
    targets: Ids = ()
    chosen: int | None = None
    #: Members that are registered without the directory in the state (ADR 17).
    lacking: frozenset[int] = frozenset()

    def present(self, broker: int) -> bool:
        return broker in self.registered and broker not in self.failed_disks

    def online(self, broker: int) -> bool:
        return self.present(broker) and broker not in self.leaving


_NEEDS: dict[str, Callable[[Context, int], bool]] = {
    "online": Context.online,
    "present": Context.present,
    "in sync": lambda c, b: b in c.isr,
    "kept data": lambda c, b: b not in c.lacking,
    "staying": lambda c, b: b not in c.leaving,
}
_AMONG: dict[str, Callable[[Context], Ids]] = {
    "assigned": lambda c: c.assigned,
    "targets": lambda c: c.targets,
    "first": lambda c: c.assigned[:1],
    "chosen": lambda c: tuple(b for b in c.assigned if b == c.chosen),
    "online": lambda c: tuple(b for b in c.assigned if c.online(b)),
    "present": lambda c: tuple(b for b in c.assigned if c.present(b)),
}
_ISR: dict[str, Callable[[Context, int], Ids]] = {
    # Only what is assigned: a replica that was moved away meanwhile does not stay in sync (reference, section 16).
    "online": lambda c, _: tuple(b for b in c.isr if c.online(b) and b in c.assigned and b not in c.lacking),
    "leader": lambda _, leader: (leader,),
    "kept": lambda c, _: c.isr,
    "staying": lambda c, _: tuple(b for b in c.isr if b not in c.leaving),
}


def choose(strategy: str, context: Context) -> Chosen | None:
    """Section 5.3: the candidate of a strategy, or nobody."""
    for row in tables.STRATEGIES:
        if row.strategy == strategy and (found := _choose(row, context)) is not None:
            used[row.id] += 1
            return found
    used[f"5.3 {strategy} nobody"] += 1
    return None


def _choose(row: Candidate, context: Context) -> Chosen | None:
    if row.permitted and not context.unclean:
        return None
    for broker in _AMONG[row.among](context):
        if all(_NEEDS[need](context, broker) for need in row.needs):
            recovering = context.recovering if row.recovering is None else row.recovering
            isr, recipients = _ISR[row.isr](context, broker), _AMONG[row.recipients](context)
            return Chosen(broker, isr, recovering, recipients, row.permitted)
    return None


@dataclass
class Batch:
    """Section 9.1: what one call of a machine sends, until it is flushed."""

    lisr: dict[int, Entry] = field(default_factory=dict)
    metadata: set[int] = field(default_factory=set)
    entry: Entry | None = None
    stop: dict[int, tuple[int, bool]] = field(default_factory=dict)


@dataclass
class Model:
    """One topic with one partition, and the brokers. ``order``: in which order a step takes several brokers."""

    registered: set[int]
    order: Ids = (1, 2, 3)
    controller_epoch: int = 1
    leaving: set[int] = field(default_factory=set)
    failed_disks: set[int] = field(default_factory=set)
    known: bool = False
    replicas: Ids = ()
    adding: Ids = ()
    removing: Ids = ()
    partition: str = GONE
    states: dict[int, str] = field(default_factory=dict)
    cached: Leadership | None = None
    stored: Leadership | None = None
    queued: bool = False
    started: bool = False
    held: bool = False
    unclean: bool = False
    #: The data directory that each broker has, registered or not; empty: brokers tell none.
    directories: dict[int, int] = field(default_factory=dict)
    #: Brokers that are gone or back already though their failure is not dealt with: nothing reaches them (6).
    closed: set[int] = field(default_factory=set)
    #: What the latest stimulus did.
    pushes: list[Push] = field(default_factory=list)
    refusals: list[tuple[str, str, str, str]] = field(default_factory=list)
    batch: Batch = field(default_factory=Batch)

    def context(self, chosen: int | None = None, unclean: bool | None = None) -> Context:
        source = self.stored or Leadership(NO_LEADER, 0, (), 0, 0)
        return Context(
            self.replicas,
            source.isr,
            frozenset(self.registered),
            frozenset(self.leaving),
            frozenset(self.failed_disks),
            source.recovering,
            self.unclean if unclean is None else unclean,
            self.target,
            chosen,
            self.lacking(self.stored),
        )

    def lacking(self, state: Leadership | None) -> frozenset[int]:
        """Members that are registered without the directory in the state."""
        if state is None:
            return frozenset()
        known = zip(state.isr, state.directories, strict=False)
        return frozenset(b for b, d in known if d and b in self.registered and self.directories[b] != d)

    def registered_directory(self, broker: int) -> int:
        return self.directories.get(broker, 0) if broker in self.registered else 0

    @property
    def target(self) -> Ids:
        return tuple(b for b in self.replicas if b not in self.removing)

    def online(self, broker: int) -> bool:
        return self.context().online(broker)

    def state(self, broker: int) -> str:
        return self.states.get(broker, GONE)

    # the machines

    def legal(self, rows: Iterable[Legal], machine: str, who: str, source: str, target: str) -> bool:
        row = next(row for row in rows if row.target == target)
        if source in row.previous:
            used[row.id] += 1
            return True
        self.refusals.append((machine, who, source, target))
        return False

    def move_partition(
        self, target: str, strategy: str = "", chosen: int | None = None, unclean: bool | None = None
    ) -> bool:
        """One transition of the partition; whether it came about."""
        source = self.partition
        if not self.legal(tables.PARTITION_LEGAL, "partition", "p", source, target):
            return False
        if target == ONLINE and source != NEW:
            self.take_over()
        context = self.context(chosen, unclean)
        found = None
        if target == ONLINE and source != NEW and self.stored is not None:
            found = choose(strategy, context)
        facts = {
            "was new": source == NEW,
            "nobody online": not any(context.online(b) for b in self.replicas),
            "exists": self.stored is not None,
            "missing": self.stored is None,
            "newer": self.stored is not None and self.stored.controller_epoch > self.controller_epoch,
            "no candidate": found is None,
        }
        row = _first(tables.PARTITION_EFFECTS, target, facts)
        for effect in row.does:
            self._partition_effect(effect, found)
        self.flush()
        if "elect anew" in row.does:
            return self.move_partition(target, strategy, chosen, unclean)
        if row.reassignments:
            self.partition = target
            taken["partition", source, target] += 1
        return row.reassignments

    def _partition_effect(self, effect: str, found: Chosen | None) -> None:
        match effect:
            case "refuse":
                self.refusals.append(("partition", "p", self.partition, "no election"))
            case "initialize":
                live = tuple(b for b in self.replicas if self.online(b))
                directories = told(map(self.registered_directory, live))
                self.write(Leadership(live[0], 0, live, 0, self.controller_epoch, directories=directories))
            case "lisr new to isr":
                assert self.stored is not None
                self.lisr(self.stored.isr, is_new=True)
            case "adopt":
                self.partition = OFFLINE
                self.take_over()
            case "elect":
                assert found is not None
                self.succeed(found.leader, found.isr, found.recovering, begins_anew=found.unclean)
            case "lisr to recipients":
                assert found is not None
                self.lisr(found.recipients)

    def move_replicas(self, brokers: Iterable[int], target: str, *, leaving: bool = False) -> None:
        """Transitions of several replicas in one batch; those that go offline go together. ``leaving``: with a broker
        in controlled shutdown, which may be cancelled."""
        asked = [b for b in self.order if b in set(brokers)]
        legal = [
            b for b in asked if self.legal(tables.REPLICA_LEGAL, "replica", str(b), self.state(b), target)
        ]
        groups = [legal] if target == OFFLINE else [[b] for b in legal]
        for group in groups:
            if group:
                self._move_together(group, target, leaving)
        self.flush()

    def _move_together(self, group: list[int], target: str, leaving: bool) -> None:
        if target == OFFLINE and self.cached is not None:
            self.take_over()
        sources = {b: self.state(b) for b in group}
        facts = {**self._replica_facts(group), "leaving": leaving}
        row = _first(tables.REPLICA_EFFECTS, target, facts)
        for effect in row.does:
            self._replica_effect(effect, group)
        for broker, source in sources.items():
            if row.reassignments:
                taken["replica", source, target] += 1
                self.states[broker] = target
                if target == GONE:
                    del self.states[broker]

    def _replica_facts(self, group: list[int]) -> dict[str, bool]:
        led, stored = self.cached is not None, self.stored
        newer = stored is not None and stored.controller_epoch > self.controller_epoch
        known = stored or self.cached
        removed = known is not None and self._without(known, group) != (known.leader, known.isr)
        return {
            "led": led,
            "unled": not led,
            "is leader": self.cached is not None and self.cached.leader in group,
            "was new": self.state(group[0]) == NEW,
            "queued": self.queued,
            "missing": stored is None,
            "newer": newer,
            "to be removed": removed,
        }

    def _without(self, known: Leadership, group: list[int]) -> tuple[int, Ids]:
        """Leader and ISR without some replicas (reference, section 14, point 4)."""
        kept = tuple(b for b in known.isr if b not in group)
        alive = any(b in self.replicas and self.online(b) for b in kept)
        return NO_LEADER if known.leader in group else known.leader, kept if alive else known.isr

    def _replica_effect(self, effect: str, group: list[int]) -> None:
        others = tuple(b for b in self.replicas if b not in group)
        match effect:
            case "refuse":
                self.refuse("replica", group, self.state(group[0]), "not moved")
            case "refuse leader":
                self.refuse("replica", group, self.state(group[0]), "is the leader")
            case "lisr new to it":
                self.lisr(group, is_new=True)
            case "lisr to it":
                self.lisr(group)
            case "lisr to others":
                self.lisr(others)
            case "metadata":
                self.metadata()
            case "stop" | "stop and delete":
                self.stop(group, delete=effect == "stop and delete")
            case "shrink":
                assert self.stored is not None
                leader, isr = self._without(self.stored, group)
                self.succeed(leader, isr, self.stored.recovering)
            case "unassign":
                self.replicas = others
                self.adding = tuple(b for b in self.adding if b not in group)
                self.removing = tuple(b for b in self.removing if b not in group)

    def take_out(self) -> None:
        """ADR 17: members that came back without their data."""
        if not self.lacking(self.cached):
            return
        self.take_over()
        stored, lacking = self.stored, self.lacking(self.stored)
        if stored is None or not lacking:
            return
        facts = {
            "another kept": any(b not in lacking for b in stored.isr),
            "leader lacks": stored.leader in lacking,
        }
        row = next(row for row in tables.LOST_DATA if all(facts[fact] for fact in row.when))
        used[row.id] += 1
        if not row.does:
            return
        leader = NO_LEADER if "leader leaves" in row.does and facts["leader lacks"] else stored.leader
        isr = tuple(b for b in stored.isr if b not in lacking) if "they leave" in row.does else stored.isr
        self.succeed(leader, isr, stored.recovering)
        if self.queued:
            return
        self.lisr(b for b in self.replicas if self.online(b))
        self.flush()
        if leader == NO_LEADER and self.partition == ONLINE:
            self.move_partition(OFFLINE)

    def take_over(self) -> None:
        """Someone else wrote: everybody is told of it before anything is decided (ours; nobody else would)."""
        stored = self.stored
        if stored is None or stored == self.cached:
            return
        self.cached = stored
        if stored.controller_epoch <= self.controller_epoch:
            if not self.queued:
                self.lisr(self.replicas)
            self.metadata()
            self.flush()

    def refuse(self, machine: str, group: Iterable[int], source: str, why: str) -> None:
        self.refusals.append((machine, ",".join(map(str, group)), source, why))

    # writes: LE + 1, PE + 1

    def write(self, new: Leadership) -> None:
        self.stored = self.cached = new

    def succeed(self, leader: int, isr: Ids, recovering: bool, *, begins_anew: bool = False) -> None:
        """Members keep their directories. What is not told is taken from the registrations (ours); who is elected
        uncleanly ``begins_anew`` with what it has (ADR 17)."""
        held = self.stored
        assert held is not None
        known = (() if begins_anew else held.kept(isr)) or (0,) * len(isr)
        self.write(
            Leadership(
                leader,
                held.leader_epoch + 1,
                isr,
                held.partition_epoch + 1,
                self.controller_epoch,
                recovering,
                told(d or self.registered_directory(b) for b, d in zip(isr, known, strict=True)),
            )
        )

    # pushes

    @property
    def reachable(self) -> set[int]:
        """Live or shutting down."""
        return set(self.registered)

    def entry(self, is_new: bool = False) -> Entry:
        held = self.cached
        assert held is not None
        return Entry(*held[:4], held.recovering, self.replicas, self.adding, self.removing, is_new)

    def lisr(self, brokers: Iterable[int], is_new: bool = False, tell: bool = True) -> None:
        for broker in brokers:
            before = self.batch.lisr.get(broker)
            self.batch.lisr[broker] = self.entry(is_new or (before is not None and before.is_new))
        if tell:
            self.metadata()

    def metadata(self, brokers: Iterable[int] | None = None, partitions: bool = True) -> None:
        self.batch.metadata.update(self.reachable if brokers is None else brokers)
        if partitions and self.cached is not None and self.known:
            offline = tuple(b for b in self.replicas if not self.online(b))
            held = self.cached
            # 9.1: partitions of a topic that is being deleted carry leader -2, and the epochs are 0 (7.1).
            entry = Entry(*held[:4], offline=offline, replicas=self.replicas)
            gone = Entry(DURING_DELETE, 0, held.isr, 0, offline=offline, replicas=self.replicas)
            self.batch.entry = gone if self.queued else entry

    def stop(self, brokers: Iterable[int], delete: bool) -> None:
        epoch = -2 if self.queued else self.cached.leader_epoch if self.cached is not None else -1
        for broker in brokers:
            sticky = delete or self.batch.stop.get(broker, (0, False))[1]
            self.batch.stop[broker] = (epoch, sticky)

    def flush(self) -> None:
        """All LISR, then UMR, then SR; brokers that are gone are dropped (9.1)."""
        batch, self.batch = self.batch, Batch()
        live, there = self.reachable, self.reachable - self.closed
        self.pushes += [Push(b, "LISR", entry) for b, entry in sorted(batch.lisr.items()) if b in there]
        for broker in sorted(batch.metadata & there):
            self.pushes.append(Push(broker, "LIVE", tuple(sorted(live))))
            if batch.entry is not None:
                self.pushes.append(Push(broker, "UMR", batch.entry))
        self.pushes += [Push(b, "SR", what) for b, what in sorted(batch.stop.items()) if b in there]


def _first(rows: Iterable[Effect], target: str, facts: dict[str, bool]) -> Effect:
    for row in rows:
        if row.target == target and all(facts[fact] for fact in row.when):
            used[row.id] += 1
            return row
    raise AssertionError(f"no row for {target}, {facts}")


def legal_pairs() -> Iterator[tuple[str, str, str]]:
    """Every legal transition of both machines: (machine, from, to)."""
    for machine, rows in (("partition", tables.PARTITION_LEGAL), ("replica", tables.REPLICA_LEGAL)):
        yield from ((machine, source, row.target) for row in rows for source in row.previous)


__all__ = ["NEW", "OFFLINE", "ONLINE", "Chosen", "Context", "Entry", "Leadership", "Model", "Push", "choose"]
