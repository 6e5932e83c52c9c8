"""Interprets the tables of events: what happens to one topic of one partition, step by step.

``Controller`` is the whole model: memory and machines of ``Model``, plus what brokers and operators do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.provers.model import tables
from tests.provers.model.machines import NO_LEADER, Ids, Leadership, Model, told, used
from tests.provers.model.tables import GONE, INELIGIBLE, NEW, OFFLINE, ONLINE, STARTED, SUCCESSFUL, Answer


@dataclass(frozen=True)
class Proposal:
    """AlterPartition of one sender; epochs relative to those that the controller knows."""

    sender: int
    isr: Ids
    leader_epoch: int = 0
    partition_epoch: int = 0
    recovering: bool = False
    stale: bool = False


@dataclass
class Controller(Model):
    #: Brokers that lost their disk, whether it is known or not; brokers whose answer to a deletion is on its way.
    lost: set[int] = field(default_factory=set)
    answering: set[int] = field(default_factory=set)
    #: A deletion that is held is tried again in time.
    retried: bool = False
    #: Whether the answers to the present event come while it is still being dealt with.
    waiting: bool = True
    #: Brokers that the present event is about, and what is assigned by it.
    them: Ids = ()
    assigned: Ids = ()
    reply: str = ""
    _followed: bool = False

    # what happens

    def happen(self, event: str, them: Iterable[int] = (), assigned: Ids = ()) -> None:
        """One event, and what brokers' answers to LeaderAndIsr make of it."""
        self.pushes, self.refusals, self.reply = [], [], ""
        self._happen(event, tuple(them), assigned)
        self._disks()

    def brokers(
        self, came: Iterable[int] = (), bounced: Iterable[int] = (), went: Iterable[int] = ()
    ) -> None:
        """BrokerChange: new, bounced (failure, then startup), dead, in that order (6)."""
        self.pushes, self.refusals, self.reply = [], [], ""
        came, bounced, went = tuple(came), tuple(bounced), tuple(went)
        self.lost -= {*came, *bounced, *went}
        self.answering -= {*bounced, *went}
        self.closed = {*bounced, *went}
        if came:
            self.registered.update(came)
            self._happen("startup", came)
        if bounced:
            self.registered.difference_update(bounced)
            self._happen("failure", bounced)
            self.registered.update(bounced)
            self.closed.difference_update(bounced)
            self._happen("startup", bounced)
        if went:
            self.registered.difference_update(went)
            self._happen("failure", went)
        self.closed = set()
        self._disks()

    def _disks(self) -> None:
        """8.5: brokers answer LeaderAndIsr with what they lost; answers that wait together are one event. Who answers
        first while nothing else happens does not wait."""
        while failed := sorted(self._notified() & self.lost & self.registered - self.failed_disks):
            self._happen("disk failed", tuple(failed if self.waiting else failed[:1]))
            self.waiting = True

    def _notified(self) -> set[int]:
        return {push.broker for push in self.pushes if push.kind == "LISR"}

    def _happen(self, event: str, them: Ids = (), assigned: Ids = ()) -> None:
        self.them, self.assigned = them, assigned
        self._followed = not self._leads(them)
        self._run(event)

    def _run(self, event: str) -> None:
        for step in tables.EVENTS[event]:
            if all(self._holds(condition) for condition in step.when):
                used[step.id] += 1
                self._do(step.does, step.arg)

    # conditions

    def _leads(self, them: Ids) -> bool:
        return self.cached is not None and self.cached.leader in them

    def _reachable(self, broker: int) -> bool:
        return broker in self.registered and broker not in self.failed_disks

    def _in(self, *states: str) -> Ids:
        return tuple(b for b in self.replicas if self.state(b) in states)

    def _theirs(self, brokers: Iterable[int]) -> Ids:
        return tuple(b for b in brokers if b in self.them)

    @property
    def _undeleted(self) -> Ids:
        return tuple(b for b in self.replicas if self.state(b) != SUCCESSFUL)

    def _holds(self, condition: str) -> bool:
        return _CONDITIONS[condition](self)

    # actions

    def _do(self, action: str, arg: str | None) -> None:
        if action in tables.EVENTS:
            self._run(action)
        elif action in _SELECTED:
            assert arg is not None
            if group := _SELECTED[action](self):
                self.move_replicas(group, arg, leaving=action == "leaving replicas")
                if arg == STARTED:
                    self.answering.update(b for b in group if b in self.registered - self.closed)
        else:
            self._act(action, arg or "")

    def _act(self, action: str, arg: str) -> None:  # noqa: C901  (a table)
        match action:
            case "partition":
                self.move_partition(arg)
            case "elect":
                self.move_partition(ONLINE, arg)
            case "bring online":
                if self.partition in (NEW, OFFLINE):
                    self.move_partition(ONLINE, "offline")
            case "live list":
                self.metadata(partitions=False)
                self.flush()
            case "full metadata to them":
                self.metadata(self.them, partitions=not self.queued)
                self.flush()
            case "metadata":
                self.metadata()
                self.flush()
            case "lisr to online":
                self.lisr(b for b in self.replicas if self.online(b))
                self.flush()
            case "ask them again":
                # What everybody was told is as it was (ours).
                self.lisr(self._theirs(self.replicas), tell=False)
                self.flush()
            case "read again":
                self.take_over()
            case "reply":
                self.reply = arg
            case "take out without data":
                self.take_out()
            case "refresh":
                self.cached = self.stored or self.cached
            case "forget disks and departures":
                self.failed_disks.difference_update(self.them)
                self.leaving.difference_update(self.them)
            case "mark disks":
                self.failed_disks.update(self.them)
            case "note departure":
                self.leaving.update(self.them)
            case "assign":
                self.known, self.replicas, self.partition = True, self.assigned, GONE
                self.states, self.cached = {}, None
            case "load":
                self._load()
            case "set replicas":
                self.states = {b: ONLINE if self.online(b) else INELIGIBLE for b in self.replicas}
            case "set partition":
                led = self.cached is not None and self.online(self.cached.leader)
                self.partition = NEW if self.cached is None else ONLINE if led else OFFLINE
            case _:
                self._deletion(action)

    def _load(self) -> None:
        self.controller_epoch += 1
        self.leaving, self.failed_disks, self.answering = set(), set(), set()
        self.cached, self.states = self.stored, {}
        self.started = self.held = self.retried = False

    def _deletion(self, action: str) -> None:
        match action:
            case "enqueue deletion":
                self.queued = True
            case "mark started":
                self.started = True
            case "hold deletion":
                self.held = True
                waiting = [b for b in self.replicas if self.state(b) not in (SUCCESSFUL, STARTED)]
                self.retried = any(self._reachable(b) for b in waiting)
            case "unhold deletion":
                self.held = self.retried = False
            case "complete deletion":
                self.move_replicas(self.replicas, GONE)
                self.known = self.queued = self.started = self.held = self.retried = self.unclean = False
                self.stored = self.cached = None
                self.partition, self.replicas, self.states = GONE, (), {}
                self.answering.clear()
            case _:
                raise AssertionError(action)

    # requests

    def alter(self, proposal: Proposal) -> None:
        """8.4: AlterPartition."""
        self.pushes, self.refusals = [], []
        known = self.cached or Leadership(NO_LEADER, 0, (), 0, 0)
        same = proposal.sender == known.leader and set(proposal.isr) == set(known.isr)
        joining = set(proposal.isr) - set(known.isr)
        new = known._replace(
            isr=proposal.isr,
            partition_epoch=known.partition_epoch + 1,
            controller_epoch=self.controller_epoch,
            recovering=proposal.recovering,
            directories=self._proposed_directories(known, proposal.isr),
        )
        facts = {
            "stale sender": proposal.stale or proposal.sender not in self.registered,
            "unknown": not self.known,
            "unled": self.cached is None,
            "PE greater": proposal.partition_epoch > 0,
            "LE greater": proposal.leader_epoch > 0,
            "LE lower": proposal.leader_epoch < 0,
            "same": same and proposal.recovering == known.recovering,
            "PE lower": proposal.partition_epoch < 0,
            "proposes recovering": proposal.recovering,
            "several": len(proposal.isr) > 1,
            "recovered": not known.recovering,
            "sender does not lead": proposal.sender != known.leader,
            "without sender": proposal.sender not in proposal.isr,
            "some new member not online": not all(self.online(b) for b in joining),
            "stored as proposed": self.stored == new,
            "stored otherwise": self.stored != self.cached,
        }
        row = _answer(tables.ALTER_PARTITION, facts)
        self.reply = row.error
        if row.id == "8.4 8 conflict":
            self.take_over()
        elif row.id in ("8.4 8", "8.4 8 landed"):
            self.write(new)
        if row.id not in ("8.4 sender", "8.4 1", "8.4 1 id"):
            self.metadata()
            self.flush()
        self._disks()

    def _proposed_directories(self, known: Leadership, isr: Ids) -> Ids:
        """ADR 17: members that stay keep theirs; of a new one, and where it is not known, the registration tells it."""
        stayed = dict(zip(known.isr, known.directories, strict=False))
        return told(stayed.get(b) or self.registered_directory(b) for b in isr)

    def elect(self, kind: str, chosen: int | None = None) -> None:
        """8.3: ElectLeaders."""
        self.pushes, self.refusals = [], []
        leader = self.cached.leader if self.cached is not None else NO_LEADER
        facts = {
            "preferred": kind == "preferred",
            "unclean": kind == "unclean",
            "chosen": kind == "chosen",
            "unknown": not self.known,
            "queued": self.queued,
            "unled": self.cached is None,
            "no replica of its": chosen not in self.replicas,
            "led by chosen": leader == chosen,
            "led by first": leader == (self.replicas or (None,))[0],
            "leader live": leader in self.registered - self.leaving,
        }
        self.reply = _answer(tables.ELECT_LEADERS, facts).error
        if self.reply == "elect":
            strategy = "offline" if kind == "unclean" else kind
            done = self.move_partition(ONLINE, strategy, chosen, unclean=True)
            self.reply = "NONE" if done else _answer(tables.NOT_ELECTED, facts).error
        self._disks()


def _answer(rows: Iterable[Answer], facts: dict[str, bool]) -> Answer:
    row = next(row for row in rows if all(facts[fact] for fact in row.when))
    used[row.id] += 1
    return row


_CONDITIONS: dict[str, Callable[[Controller], bool]] = {
    "known": lambda c: c.known,
    "living": lambda c: c.known and not c.queued,
    "queued": lambda c: c.known and c.queued,
    "led": lambda c: c.cached is not None,
    "unled": lambda c: c.cached is None,
    "leaderless": lambda c: c.cached is not None and c.cached.leader == NO_LEADER,
    # A broker in controlled shutdown still leads what nobody could take over (ours; 6, shutdown 3).
    "leader offline": lambda c: (
        c.cached is not None and c.cached.leader != NO_LEADER and not c._reachable(c.cached.leader)
    ),
    "live member": lambda c: c.cached is not None and any(c.online(b) for b in c.cached.isr),
    "on them": lambda c: bool(c._theirs(c.replicas)),
    "undeleted on them": lambda c: bool(c._theirs(c._undeleted)),
    "running on them": lambda c: bool(c._theirs(c._in(NEW, ONLINE))),
    "lost on them": lambda c: bool(c._theirs(c.replicas) and set(c.them) & c.failed_disks),
    "healthy on them": lambda c: bool(c._theirs(c.replicas) and not set(c.them) & c.failed_disks),
    "in scope": lambda c: (
        c.known
        and not c.queued
        and c.cached is not None
        and len(c.replicas) > 1
        and bool(c._theirs(c.replicas))
    ),
    "leads": lambda c: c._leads(c.them),
    "followed before": lambda c: c._followed,
    "in sync": lambda c: c.cached is not None and bool(c._theirs(c.cached.isr)),
    "out of sync": lambda c: c.cached is not None and not c._theirs(c.cached.isr),
    "none started": lambda c: not c._in(STARTED),
    "some ineligible": lambda c: bool(c._in(INELIGIBLE)),
    "not held": lambda c: not c.held,
    "not started": lambda c: not c.started,
    "undeleted": lambda c: bool(c._undeleted),
    "all successful": lambda c: not c._undeleted,
    "partition exists": lambda c: c.partition != GONE,
    "some offline": lambda c: not all(c.online(b) for b in c.replicas),
    "some unreachable": lambda c: not all(c._reachable(b) for b in c._undeleted),
}
_SELECTED: dict[str, Callable[[Controller], Ids]] = {
    "replicas on them": lambda c: c._theirs(c.replicas),
    "leaving replicas": lambda c: c._theirs(c.replicas),
    "all replicas": lambda c: c.replicas,
    "ineligible replicas": lambda c: c._in(INELIGIBLE),
    "undeleted or running replicas": lambda c: tuple(
        b for b in c._undeleted if c._reachable(b) or c.state(b) in (NEW, ONLINE)
    ),
    "undeleted reachable replicas": lambda c: tuple(b for b in c._undeleted if c._reachable(b)),
    "unreachable replicas": lambda c: tuple(
        b for b in c._undeleted if not c._reachable(b) and c.state(b) in (OFFLINE, STARTED)
    ),
    "running replicas on them": lambda c: c._theirs(c._in(NEW, ONLINE)),
    "failing replicas on them": lambda c: c._theirs(c._in(OFFLINE, STARTED)),
}
