"""Faults carried out and healed, with a note of whom they struck from when to when."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.provers.chaos.nodes import Nodes
from tests.provers.chaos.plan import ACTIVE, BROKERS, ZOOKEEPERS, Fault, Kind

#: Between two members of a rolling restart, seconds: it is to be back before the next one goes.
ROLL_PAUSE_S = 3.0


class Struck(NamedTuple):
    """Somebody could not do his work in this time, microseconds since 1970; ``until_us`` 0: not healed yet."""

    name: str
    kind: Kind
    episode: int
    since_us: int
    until_us: int = 0


class Skew(NamedTuple):
    """A member's wall clock was off by so much in this time (true time, microseconds since 1970)."""

    name: str
    offset_us: int
    since_us: int
    until_us: int


@dataclass
class Faults:
    """Carries out faults on the cluster."""

    nodes: Nodes
    struck: list[Struck] = field(default_factory=list)
    skews: list[Skew] = field(default_factory=list)

    @staticmethod
    def meant(fault: Fault, active: str) -> Fault:
        """The fault with the name of who is meant by "the active controller" now."""
        who, peers = (
            tuple(active if name == ACTIVE else name for name in names) for names in (fault.who, fault.peers)
        )
        return Fault(fault.kind, who, peers, fault.amount)

    def begin(self, fault: Fault, episode: int) -> None:
        """Returns when it has begun; a rolling restart is over then."""
        now = now_us()
        # Where servers do not hear somebody, it is he who cannot work.
        victims = fault.peers if set(fault.who) <= set(ZOOKEEPERS) and fault.peers else fault.who
        if fault.kind not in (Kind.ROLL, Kind.CLOCK, Kind.JUMP):
            self.struck += [Struck(name, fault.kind, episode, now) for name in victims]
        self._inject(fault, episode)

    def _inject(self, fault: Fault, episode: int) -> None:
        actions: dict[Kind, Callable[[str], None]] = {
            Kind.KILL: self.nodes.kill,
            Kind.FREEZE: self.nodes.freeze,
            Kind.LOSS: lambda name: self.nodes.network.lose(name, fault.amount),
            Kind.SLOW: lambda name: self.nodes.network.slow_down(name, fault.amount),
            Kind.DISK_FULL: lambda name: self.nodes.fill(self.nodes.data_dir(name)),
            Kind.STATE_LOG_FULL: lambda name: self.nodes.fill(self.nodes.state_log(name)),
            Kind.CLOCK: lambda name: self._restart_with_clock(name, fault.amount, episode),
            Kind.JUMP: lambda name: self._move_clock(name, fault.amount),
            Kind.ROLL: lambda name: self._roll(name, episode),
        }
        for name in fault.who:
            if fault.kind in (Kind.CUT, Kind.DEAF):
                self._cut(name, fault)
            else:
                actions[fault.kind](name)

    def _cut(self, name: str, fault: Fault) -> None:
        for peer in fault.peers:
            self.nodes.network.block(peer, name)
            if fault.kind is Kind.CUT:
                self.nodes.network.block(name, peer)

    def _roll(self, name: str, episode: int) -> None:
        began = now_us()
        self.nodes.terminate(name)
        self.nodes.launch(name)
        self.struck.append(Struck(name, Kind.ROLL, episode, began, now_us()))
        time.sleep(ROLL_PAUSE_S)

    def _restart_with_clock(self, name: str, offset_s: float, episode: int) -> None:
        began = now_us()
        self.nodes.terminate(name)
        self._move_clock(name, offset_s)
        self.nodes.launch(name)
        self.struck.append(Struck(name, Kind.CLOCK, episode, began, now_us()))

    def _move_clock(self, name: str, offset_s: float) -> None:
        self.skews.append(Skew(name, round(offset_s * 1e6), now_us(), 0))
        self.nodes.set_clock(name, offset_s)

    def heal(self, faults: tuple[Fault, ...]) -> None:
        """All of these end, as those who watch over the cluster would see to it: what died is started again, a disk
        that was full is emptied and its broker restarted."""
        self.nodes.network.heal()
        for fault in faults:
            for name in fault.who:
                self._heal(name, fault.kind)
        now = now_us()
        self.struck = [one if one.until_us else one._replace(until_us=now) for one in self.struck]
        self.skews = [one if one.until_us else one._replace(until_us=now) for one in self.skews]

    def _heal(self, name: str, kind: Kind) -> None:
        match kind:
            case Kind.KILL:
                self.nodes.launch(name)
            case Kind.FREEZE:
                self.nodes.thaw(name)
            case Kind.DISK_FULL:
                self.nodes.free(self.nodes.data_dir(name))
                self.nodes.terminate(name)
                self.nodes.launch(name)
            case Kind.STATE_LOG_FULL:
                self.nodes.free(self.nodes.state_log(name))
            case Kind.CLOCK | Kind.JUMP:
                # It jumps back while the process runs.
                self.nodes.set_clock(name, 0)


#: Kinds that keep a broker from leading.
TAKES_AWAY = (Kind.KILL, Kind.FREEZE, Kind.CUT, Kind.DEAF, Kind.DISK_FULL, Kind.ROLL, Kind.CLOCK)


def away(struck: list[Struck], registered_us: dict[int, int]) -> list[Struck]:
    """Brokers that could not lead, and until when. ``registered_us``: by episode, when all brokers were back."""
    return [
        one._replace(until_us=max(one.until_us, registered_us.get(one.episode, 0)))
        for one in struck
        if one.name in BROKERS and one.kind in TAKES_AWAY
    ]


def now_us() -> int:
    return time.time_ns() // 1000
