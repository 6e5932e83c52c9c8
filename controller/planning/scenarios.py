"""What-if scenarios: events applied to a copy of the cluster, and their effects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from controller.core.model import RECOVERED, Broker, LeaderAndIsr
from controller.core.names import first_few
from controller.core.requests.brokers import (
    AlterPartition,
    AlterPartitionReply,
    ControlledShutdown,
    ControlledShutdownReply,
    Proposal,
)
from controller.core.requests.errors import ErrorCode
from controller.planning.executor import Executor, Pushes
from controller.planning.partition_health import Gauge, Health
from controller.planning.snapshot import Key, PlanError, Snapshot, representatives
from controller.planning.store import Change


@dataclass(frozen=True)
class Moved:
    """A partition whose leader changes (-1: no leader). ``unclean``: the new leader was not in the ISR."""

    topic: str
    partition: int
    before: int
    after: int
    unclean: bool


@dataclass(frozen=True)
class Step:
    """One step of a plan. ``worst``: the health in the middle (brokers stopped); ``after``: at its end."""

    title: str
    brokers: tuple[int, ...]
    before: Health
    worst: Health
    after: Health
    moved: tuple[Moved, ...]
    unclean: tuple[Key, ...]
    writes: tuple[Change, ...]
    pushes: Pushes
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """``settling``: what a controller would write on this cluster without any event."""

    name: str
    steps: tuple[Step, ...]
    settling: tuple[Change, ...] = ()

    @property
    def safe(self) -> bool:
        """At no time is a partition offline or below min.insync.replicas, and no record is lost."""
        return all(s.worst.safe and s.after.safe and not s.unclean for s in self.steps)


@dataclass(frozen=True)
class Terms:
    """Parameters of plans. ``min_isr_default``: min.insync.replicas of topics that do not set it. ``give_way`` is
    called often while a plan is made, and may raise to abandon it."""

    min_isr_default: int = 1
    give_way: Callable[[], None] = field(default=lambda: None, compare=False)


class Planner:
    """A copy of the cluster, on which steps are applied one after the other."""

    def __init__(self, snapshot: Snapshot, terms: Terms) -> None:
        self.executor = Executor(snapshot, terms.give_way)
        self.gauge = Gauge(snapshot, terms.min_isr_default)
        self.notes: list[str] = []

    def step(
        self,
        title: str,
        brokers: Iterable[int],
        act: Callable[[], None],
        then: Callable[[], None] | None = None,
    ) -> Step:
        """Run ``act`` and measure the worst health; run ``then``, if given, and measure again."""
        executor, store = self.executor, self.executor.store
        self.notes = []
        before = self.gauge.measure(store)
        act()
        worst = self.gauge.measure(store)
        if then is not None:
            then()
        after = self.gauge.measure(store) if then is not None else worst
        writes = store.take_changes()
        unclean = elected_uncleanly(writes)
        return Step(
            title,
            tuple(brokers),
            before,
            worst,
            after,
            _moved(before, worst, unclean),
            unclean,
            tuple(writes),
            executor.take_pushes(),
            tuple(self.notes),
        )

    def stop(self, broker_ids: Sequence[int]) -> None:
        """Controlled shutdown of each broker, then all go offline together."""
        for broker_id in broker_ids:
            self.drain(broker_id)
        self.executor.lose(broker_ids)

    def drain(self, broker_id: int) -> None:
        broker = self.executor.store.brokers[broker_id]
        reply = self.executor.ask(ControlledShutdown(broker_id, broker.epoch))
        assert isinstance(reply, ControlledShutdownReply)
        if reply.error is not ErrorCode.NONE:
            self.notes.append(f"the controlled shutdown of broker {broker_id} is refused: {reply.error.name}")
        elif left := self._led_by(broker_id):
            names = first_few([f"{topic}-{number}" for topic, number in left], 5)
            self.notes.append(
                f"broker {broker_id} still leads partitions that no other replica can lead: {names}"
            )

    def _led_by(self, broker_id: int) -> list[Key]:
        """Those with one replica included, which the answer to a broker leaves out."""
        return sorted(key for key, state in self.executor.store.states.items() if state.leader == broker_id)

    def catch_up(self, broker_ids: Iterable[int], states: dict[Key, LeaderAndIsr]) -> None:
        """Bring replicas on these brokers that were in sync in ``states`` back into the ISR, by their leaders."""
        back = set(broker_ids)
        by_leader: dict[int, list[Proposal]] = {}
        store = self.executor.store
        for key, now in store.states.items():
            was = states.get(key)
            returned = [b for b in (was.isr if was else ()) if b in back and b not in now.isr]
            if not returned or now.leader not in store.brokers or key[0] in store.deletions:
                continue
            topic = store.topics[key[0]]
            isr = (*now.isr, *returned)
            by_leader.setdefault(now.leader, []).append(
                Proposal(
                    key[0], topic.topic_id, key[1], now.leader_epoch, isr, RECOVERED, now.partition_epoch
                )
            )
        for leader, proposals in sorted(by_leader.items()):
            request = AlterPartition(leader, store.brokers[leader].epoch, proposals)
            reply = self.executor.ask(request)
            assert isinstance(reply, AlterPartitionReply)
            refused = [a for a in reply.partitions if a.error is not ErrorCode.NONE]
            if reply.error is not ErrorCode.NONE:
                self.notes.append(f"leader {leader} may not expand its ISRs: {reply.error.name}")
            self.notes.extend(
                f"{a.topic}-{a.partition}: its ISR may not expand: {a.error.name}" for a in refused
            )


def elected_uncleanly(writes: Iterable[Change]) -> tuple[Key, ...]:
    """Partitions that got a leader from outside their ISR."""
    found: dict[Key, None] = {}
    for change in writes:
        old, new = change.old, change.new
        if not (isinstance(old, LeaderAndIsr) and isinstance(new, LeaderAndIsr)):
            continue
        if new.leader >= 0 and new.leader not in old.isr:
            parts = change.path.split("/")
            found[(parts[3], int(parts[5]))] = None
    return tuple(found)


def _moved(before: Health, after: Health, unclean: Sequence[Key]) -> tuple[Moved, ...]:
    lost = set(unclean)
    return tuple(
        Moved(*key, was.leader, now.leader, key in lost)
        for key, was in before.partitions.items()
        if (now := after.partitions.get(key)) is not None and now.leader != was.leader
    )


# --- plans ---------------------------------------------------------------------------------------------------


def broker_loss(snapshot: Snapshot, broker_ids: Sequence[int], terms: Terms) -> Plan:
    """Brokers fail, all at once. Raises PlanError for one that is not registered."""
    ids = registered(snapshot, broker_ids)
    planner = Planner(snapshot, terms)
    step = planner.step(f"loss of {_brokers(ids)}", ids, lambda: planner.executor.lose(ids))
    return _plan("broker-loss", planner, [step])


def rack_loss(snapshot: Snapshot, rack: str, terms: Terms) -> Plan:
    """All brokers of a rack fail at once. Raises PlanError if no broker is in it."""
    ids = [b.id for b in snapshot.brokers.values() if b.rack == rack]
    if not ids:
        racks = sorted({b.rack for b in snapshot.brokers.values() if b.rack is not None})
        raise PlanError(f"no registered broker is in rack {rack!r}; there are: {', '.join(racks) or 'none'}")
    planner = Planner(snapshot, terms)
    step = planner.step(f"loss of rack {rack}: {_brokers(ids)}", ids, lambda: planner.executor.lose(ids))
    return _plan("rack-loss", planner, [step])


def drain(snapshot: Snapshot, broker_id: int, terms: Terms) -> Plan:
    """A broker gives up its leaderships and leaves its ISRs, but stays online. Raises PlanError if not registered."""
    registered(snapshot, [broker_id])
    planner = Planner(snapshot, terms)
    step = planner.step(f"drain of broker {broker_id}", [broker_id], lambda: planner.drain(broker_id))
    return _plan("drain", planner, [step])


def preferred_election(snapshot: Snapshot, terms: Terms, partitions: Sequence[Key] | None = None) -> Plan:
    """Partitions (None: all) return to their preferred leader, if it is online and in sync."""
    planner = Planner(snapshot, terms)
    wanted = [key for key, _ in snapshot.assignments()] if partitions is None else partitions
    step = planner.step("preferred election", (), lambda: planner.executor.elect_preferred(wanted))
    return _plan("preferred-election", planner, [step])


def rolling_restart(
    snapshot: Snapshot, terms: Terms, batch_max: int = 1, broker_ids: Sequence[int] = ()
) -> Plan:
    """Every broker (or each of these) stops, restarts and catches up before the next batch does.

    Raises PlanError for one that is not registered. ``batch_max``: the largest batch (0: any size). A batch makes no
    healthy partition go offline or below min.insync.replicas; a broker that is not safe even alone is a batch alone.
    """
    waiting = sorted(registered(snapshot, broker_ids) if broker_ids else snapshot.brokers)
    planner = Planner(snapshot, terms)
    steps: list[Step] = []
    small = representatives(snapshot)
    while waiting:
        batch = _batch(small, terms, waiting, batch_max)
        waiting = [b for b in waiting if b not in batch]
        brokers = [snapshot.brokers[b] for b in batch]
        states = dict(planner.executor.store.states)
        step = planner.step(
            f"restart of {_brokers(batch)}",
            batch,
            lambda batch=batch: planner.stop(batch),  # type: ignore[misc]
            lambda brokers=brokers, states=states: _return(planner, brokers, states),  # type: ignore[misc]
        )
        steps.append(step)
    return _plan("rolling-restart", planner, steps)


def _return(planner: Planner, brokers: Sequence[Broker], states: dict[Key, LeaderAndIsr]) -> None:
    planner.executor.bring_back(brokers)
    planner.catch_up([b.id for b in brokers], states)


def _batch(snapshot: Snapshot, terms: Terms, waiting: Sequence[int], batch_max: int) -> list[int]:
    """The next brokers to restart together: as many as are safe, in order of id."""
    batch = [waiting[0]]
    for broker_id in waiting[1:]:
        if batch_max and len(batch) >= batch_max:
            break
        if not newly_troubled(stopped(snapshot, [*batch, broker_id], terms)):
            batch.append(broker_id)
    return batch


def stopped(snapshot: Snapshot, broker_ids: Sequence[int], terms: Terms) -> Step:
    """The step in which these brokers stop now, each by controlled shutdown."""
    return stopped_after(snapshot, (), broker_ids, terms)[1]


def stopped_after(
    snapshot: Snapshot, stopped_before: Sequence[int], broker_ids: Sequence[int], terms: Terms
) -> tuple[Health, Step]:
    """The current health, and the step in which these brokers stop after those in ``stopped_before`` have stopped."""
    planner = Planner(snapshot, terms)
    now = planner.gauge.measure(planner.executor.store)
    if stopped_before:
        planner.stop(stopped_before)
        planner.executor.store.take_changes()
        planner.executor.take_pushes()
    step = planner.step(f"stop of {_brokers(broker_ids)}", broker_ids, lambda: planner.stop(broker_ids))
    return now, step


def newly_troubled(step: Step) -> list[Key]:
    """Partitions that a step takes offline, below min.insync.replicas or to an unclean leader. A partition that was
    in trouble before counts only if it got worse."""
    found: dict[Key, None] = dict.fromkeys(step.unclean)
    for key, now in step.worst.partitions.items():
        was = step.before.partitions.get(key)
        fell_offline = now.offline and (was is None or not was.offline)
        if fell_offline or (now.under_min_isr and (was is None or len(now.in_sync) < len(was.in_sync))):
            found[key] = None
    return sorted(found)


def there(snapshot: Snapshot) -> str:
    """Which brokers are registered, as text."""
    return first_few(sorted(snapshot.brokers), NAMED_MAX) or "none"


def registered(snapshot: Snapshot, broker_ids: Sequence[int]) -> list[int]:
    """The ids without duplicates. Raises PlanError for one that is not registered."""
    unknown = [b for b in broker_ids if b not in snapshot.brokers]
    if unknown:
        raise PlanError(f"{_brokers(unknown)} not registered: there are {there(snapshot)}")
    return list(dict.fromkeys(broker_ids))


#: Brokers listed in a text; the rest is counted.
NAMED_MAX = 50


def _brokers(ids: Sequence[int]) -> str:
    return f"broker{'s' if len(ids) > 1 else ''} {first_few(ids, NAMED_MAX)}"


def _plan(name: str, planner: Planner, steps: Sequence[Step]) -> Plan:
    return Plan(name, tuple(steps), tuple(planner.executor.settling))
