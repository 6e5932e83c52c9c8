"""What ZooKeeper, restored from a backup, has forgotten of partitions and brokers may know (ADR 23)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import NamedTuple

from tests.provers.sim.checks.stored import Partition, State


class Verdict(Enum):
    """Of a decision after ZooKeeper went back."""

    RIGHT = auto()
    #: Nobody could know better: acknowledged records may be lost.
    UNKNOWABLE = auto()
    WRONG = auto()


class _Outdated(NamedTuple):
    """``told``: the newest state that brokers know. ``goes_on``: ZooKeeper has its leader epoch, with an older ISR;
    then who is in sync knows only the leader's ``process``."""

    told: State
    goes_on: bool
    process: int


class Forgotten:
    def __init__(self) -> None:
        #: Who led partitions: what a broker was told of it is taken over.
        self.leaders: dict[Partition, set[int]] = {}
        #: Until somebody leads under a higher leader epoch.
        self._outdated: dict[Partition, _Outdated] = {}
        #: Leader epochs of decisions by an ISR of before.
        self._by_older_isr: dict[Partition, int] = {}
        #: The process of a broker that runs now, by a number; and that of the leader when its state was written.
        self.process_of: Callable[[int], int] = lambda _: 0
        self._written_in: dict[Partition, int] = {}
        #: Leader epoch, leader and partition epoch that a broker has of a partition; and whether it runs.
        self.remembered: Callable[[int, Partition], tuple[int, int, int]] = lambda _broker, _key: (-1, -1, -1)
        self.is_running: Callable[[int], bool] = lambda _: True
        #: Whether a broker is registered; and whether a controller can know that ZooKeeper went back.
        self.is_registered: Callable[[int], bool] = lambda _: True
        self.may_know: Callable[[str], bool] = lambda _: True
        #: All states that were stored, in order.
        self._stored: dict[Partition, list[State]] = {}

    def stored(self, partition: Partition, before: State | None, state: State) -> None:
        self._stored.setdefault(partition, []).append(state)
        if before is None or before.leader_epoch != state.leader_epoch:
            self._written_in[partition] = self.process_of(state.leader)

    def deleted(self, partition: Partition) -> None:
        self._outdated.pop(partition, None)

    def went_back(self, partition: Partition, state: State, replicas: Iterable[int] | None) -> bool:
        """ZooKeeper has this state now. ``replicas``: those before and now; None: it is another partition. Whether
        brokers that run know all that was acknowledged."""
        self._outdated.pop(partition, None)
        self._by_older_isr.pop(partition, None)
        if replicas is None:
            return False
        known = {b: self.remembered(b, partition) for b in replicas}
        best = max((known[b] for b in known if self.is_running(b)), default=(-1, -1, -1))
        told = [s for s in self._stored.get(partition, ()) if (s.leader_epoch, s.leader) == best[:2]]
        newest = max((s for s in told if s.version <= best[2]), key=lambda s: s.version, default=None)
        if newest is not None:
            goes_on = newest.leader_epoch == state.leader_epoch
            if newest.leader_epoch > state.leader_epoch or (goes_on and newest.version > state.version):
                process = self._written_in.get(partition, 0)
                self._outdated[partition] = _Outdated(newest, goes_on, process)
        # Who does not run may know a newer one: what was acknowledged by it is lost if others go on before he is back.
        return not any(epoch > best[0] for epoch, _, _ in known.values())

    def told(self, partition: Partition) -> State | None:
        """The newest state that brokers know, if it is newer than ZooKeeper's."""
        outdated = self._outdated.get(partition)
        return outdated.told if outdated is not None else None

    def decided(self, partition: Partition, state: State, writer: str, *, believed: bool) -> Verdict:
        """Who leads under a leader epoch above all that were forgotten was in sync by the last one; so was his ISR.
        ``believed``: of this partition nobody knows better any more."""
        outdated = self._outdated.get(partition)
        if outdated is None:
            return Verdict.RIGHT
        told, goes_on, process = outdated
        if state.leader != told.leader and not (self.is_registered(told.leader) or self.may_know(writer)):
            # Who does not know waits for nobody.
            del self._outdated[partition]
            return Verdict.UNKNOWABLE
        if state.leader < 0:
            return Verdict.RIGHT
        if (state.leader, state.leader_epoch) == told[:2] and not goes_on:
            del self._outdated[partition]
            return Verdict.RIGHT
        if state.leader_epoch <= told.leader_epoch:
            away = self.remembered(state.leader, partition)[0] < state.leader_epoch
            # It was away when the leader epoch was another's.
            return Verdict.UNKNOWABLE if away and state.leader not in told.isr else Verdict.RIGHT
        verdict = Verdict.RIGHT if set(state.isr) <= set(told.isr) or believed else Verdict.WRONG
        if goes_on and self.process_of(told.leader) != process:
            verdict = Verdict.UNKNOWABLE
        elif verdict is Verdict.WRONG and state.leader in told.isr:
            if state.version < told.version:
                # Decided before brokers were asked: who was out of sync is taken out of the ISR yet.
                self._by_older_isr[partition] = state.leader_epoch
                return Verdict.RIGHT
            # Only the leader can tell; but what is taken over is written in several steps of one leader epoch.
            if self._by_older_isr.get(partition) != state.leader_epoch:
                verdict = Verdict.UNKNOWABLE
        del self._outdated[partition]
        return verdict

    def not_taken_over(self) -> list[tuple[Partition, State]]:
        return [
            (partition, told)
            for partition, (told, goes_on, process) in sorted(self._outdated.items())
            if not goes_on or self.process_of(told.leader) == process
        ]
