"""Leader election (reference, section 5.3): the next leader and ISR of one partition. Pure functions.

The table ``STRATEGIES`` has each strategy's ways to a leader, in order, and each way's candidates, in order.
``elect`` decides by the table; ``trace`` shows every step of it for explanations.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Set
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from controller.core.model import (
    NO_LEADER,
    RECOVERED,
    RECOVERING,
    Attribution,
    BrokerIds,
    LeaderAndIsr,
    Suspension,
    interned,
    members,
)
from controller.core.names import ids_shown
from controller.core.reasons import Reason

#: Candidates that a message about a failed election shows.
CANDIDATES_SHOWN_MAX = 20


class Strategy(Enum):
    # Members are dict keys on hot paths, and Enum's own hash is slow.
    __hash__ = object.__hash__

    OFFLINE = "offline"
    REASSIGN = "reassign"
    PREFERRED = "preferred"
    CONTROLLED_SHUTDOWN = "controlled_shutdown"
    CHOSEN = "chosen"
    DRAIN = "drain"


@dataclass(frozen=True)
class ElectionKind:
    """A strategy and its options.

    ``allow_unclean``: an operator's request overrides the configuration. ``supports_recovery`` is false only for
    inter-broker protocols before 3.2, where an unclean leader counts as recovered. ``leader``: the broker that CHOSEN
    names. ``trigger``: the reason in records, if not the strategy's name.
    """

    strategy: Strategy
    allow_unclean: bool = False
    supports_recovery: bool = True
    leader: int = NO_LEADER
    trigger: str = ""

    @property
    def reason(self) -> str:
        """The reason of the election in records."""
        return self.trigger or self.strategy.value


OFFLINE = ElectionKind(Strategy.OFFLINE)
PREFERRED = ElectionKind(Strategy.PREFERRED)
REASSIGN = ElectionKind(Strategy.REASSIGN)
CONTROLLED_SHUTDOWN = ElectionKind(Strategy.CONTROLLED_SHUTDOWN)

_NONE_DRAINED: Mapping[int, Attribution] = MappingProxyType({})


class Ballot(msgspec.Struct, gc=False):
    """The input of one election. ``online``: brokers whose replica is online, for CONTROLLED_SHUTDOWN also those that
    are shutting down. ``drained``: brokers that should lead nothing. ``leader``: the broker that CHOSEN names.
    ``without_data``: members of the ISR that came back with less than they had."""

    replicas: BrokerIds
    current: LeaderAndIsr
    online: Set[int]
    shutting_down: Set[int] = frozenset()
    drained: Mapping[int, Attribution] = _NONE_DRAINED
    removing: BrokerIds = ()
    leader: int = NO_LEADER
    unclean_allowed: bool = False
    supports_recovery: bool = True
    without_data: Set[int] = frozenset()


class Elected(NamedTuple):
    """The outcome: the new leader, ISR and recovery state, and the recipients of LeaderAndIsr."""

    leader: int
    isr: BrokerIds
    recovery: int
    recipients: BrokerIds
    unclean: bool = False


class Way(NamedTuple):
    """One way to a leader: the first of the ``candidates`` that meets every rule; ``elected`` makes the outcome.

    ``unclean``: the leader need not be in the ISR; the way is used only where that is permitted. ``drained``: a
    drained broker may lead, too.
    """

    text: str
    candidates: Callable[[Ballot], BrokerIds]
    elected: Callable[[Ballot, int], Elected]
    unclean: bool = False
    drained: bool = True


class Method(NamedTuple):
    """A strategy's ways. ``explained``: explanations of any partition show them."""

    ways: tuple[Way, ...]
    explained: bool = True


# --- the strategies ------------------------------------------------------------------------------------------


def _drained_last(ballot: Ballot) -> BrokerIds:
    """Drained brokers come last, not never: a drained leader is better than none."""
    if not ballot.drained:
        return ballot.replicas
    return tuple(sorted(ballot.replicas, key=ballot.drained.__contains__))


def _online_isr(ballot: Ballot, leader: int) -> Elected:
    online, replicas, current = ballot.online, ballot.replicas, ballot.current
    assigned = members(replicas)
    lacking = ballot.without_data
    survivors = tuple([b for b in current.isr if b in online and b in assigned and b not in lacking])
    notified = tuple([b for b in _drained_last(ballot) if b in online])
    return Elected(leader, interned(survivors), current.recovery, notified)


def _alone(ballot: Ballot, leader: int) -> Elected:
    recovery = RECOVERING if ballot.supports_recovery else RECOVERED
    notified = tuple([b for b in _drained_last(ballot) if b in ballot.online])
    return Elected(leader, interned((leader,)), recovery, notified, unclean=True)


def _same_isr(ballot: Ballot, leader: int) -> Elected:
    return Elected(leader, ballot.current.isr, ballot.current.recovery, ballot.replicas)


def _preferred(ballot: Ballot) -> BrokerIds:
    return ballot.replicas[:1]


def _chosen(ballot: Ballot) -> BrokerIds:
    return (ballot.leader,) if ballot.leader in ballot.replicas else ()


def _targets(ballot: Ballot) -> BrokerIds:
    removing = members(ballot.removing)
    return tuple([b for b in _drained_last(ballot) if b not in removing])


def _told_targets(ballot: Ballot, leader: int) -> Elected:
    return _same_isr(ballot, leader)._replace(recipients=_targets(ballot))


def _undrained(ballot: Ballot) -> BrokerIds:
    return tuple([b for b in ballot.replicas if b not in ballot.drained])


def _staying_isr(ballot: Ballot, leader: int) -> Elected:
    """All brokers that are shutting down are removed from the ISR."""
    survivors = tuple([b for b in ballot.current.isr if b not in ballot.shutting_down])
    notified = tuple([b for b in _drained_last(ballot) if b in ballot.online])
    return Elected(leader, interned(survivors), ballot.current.recovery, notified)


STRATEGIES: dict[Strategy, Method] = {
    Strategy.OFFLINE: Method(
        (
            Way("the first online replica in the ISR leads", _drained_last, _online_isr),
            Way(
                "else the first online replica, in sync or not (unclean)", _drained_last, _alone, unclean=True
            ),
        )
    ),
    Strategy.PREFERRED: Method(
        (Way("the preferred replica leads, when asked for", _preferred, _same_isr, drained=False),)
    ),
    Strategy.CHOSEN: Method(
        (Way("the replica that is named leads", _chosen, _same_isr, drained=False),), explained=False
    ),
    Strategy.REASSIGN: Method(
        (Way("the first online target in the ISR leads", _targets, _told_targets),), explained=False
    ),
    Strategy.DRAIN: Method(
        (Way("the first online replica in the ISR that is not drained leads", _undrained, _same_isr),),
        explained=False,
    ),
    Strategy.CONTROLLED_SHUTDOWN: Method(
        (Way("the first online replica in the ISR that stays leads", _drained_last, _staying_isr),),
        explained=False,
    ),
}


def elect(strategy: Strategy, ballot: Ballot) -> Elected | None:
    """The next leader and ISR; None when no replica qualifies."""
    for way in STRATEGIES[strategy].ways:
        if way.unclean and not ballot.unclean_allowed:
            continue
        in_sync = members(ballot.current.isr)
        for broker_id in way.candidates(ballot):
            if unmet(way, ballot, in_sync, broker_id) is None:
                return way.elected(ballot, broker_id)
    return None


def first_choice(strategy: Strategy, ballot: Ballot) -> int:
    """The strategy's first candidate, whether or not it qualifies now; -1: there is none."""
    return next(iter(STRATEGIES[strategy].ways[0].candidates(ballot)), NO_LEADER)


# --- rules ---------------------------------------------------------------------------------------------------


class Rule(Enum):
    """The rules for a candidate, in the order of the checks."""

    UNDRAINED = "is not drained"
    STAYS = "does not shut down"
    ONLINE = "is online"
    IN_SYNC = "is in the ISR"
    KEPT_DATA = "has kept its data"


def unmet(way: Way, ballot: Ballot, in_sync: Collection[int], broker_id: int) -> Rule | None:
    """The first rule that a candidate does not meet; None: it qualifies. ``in_sync``: the members of the ISR."""
    if not way.drained and broker_id in ballot.drained:
        return Rule.UNDRAINED
    if broker_id in ballot.shutting_down:
        return Rule.STAYS
    if broker_id not in ballot.online:
        return Rule.ONLINE
    if not way.unclean and broker_id not in in_sync:
        return Rule.IN_SYNC
    if not way.unclean and broker_id in ballot.without_data:
        return Rule.KEPT_DATA
    return None


class Candidate(msgspec.Struct, frozen=True):
    """A checked candidate. ``unmet``: the first unmet rule; ``isr``: the partition's; ``drained``: who drained it."""

    broker: int
    unmet: Rule | None
    isr: BrokerIds
    drained: Attribution | None

    def __str__(self) -> str:
        match self.unmet:
            case None:
                return f"{self.broker} qualifies"
            case Rule.UNDRAINED:
                assert self.drained is not None
                return f"{self.broker} is kept free of leaderships by {self.drained.author}: {self.drained.reason}"
            case Rule.STAYS:
                return f"{self.broker} is shutting down"
            case Rule.ONLINE:
                return f"{self.broker} is not online"
            case Rule.IN_SYNC:
                return f"{self.broker} is not in the ISR {ids_shown(self.isr)}"
            case Rule.KEPT_DATA:
                return f"{self.broker} came back without the data it was in sync with"


class Tried(msgspec.Struct, frozen=True):
    """One checked way of a strategy. ``permitted``: whether it may be used here. ``leader``: whom it would elect, -1:
    no replica. The first permitted way with a leader decides."""

    strategy: Strategy
    way: Way
    permitted: bool
    candidates: tuple[Candidate, ...]
    leader: int


def trace(strategy: Strategy, ballot: Ballot) -> Iterator[Tried]:
    """Every way of a strategy, also those that ``elect`` does not need or may not use."""
    in_sync = members(ballot.current.isr)
    for way in STRATEGIES[strategy].ways:
        candidates = tuple(
            Candidate(b, unmet(way, ballot, in_sync, b), ballot.current.isr, ballot.drained.get(b))
            for b in way.candidates(ballot)
        )
        leader = next((c.broker for c in candidates if c.unmet is None), NO_LEADER)
        yield Tried(strategy, way, ballot.unclean_allowed or not way.unclean, candidates, leader)


class NoEligibleLeader(Reason, frozen=True):
    """An election found no leader. ``tried``: the candidates of its first way. ``unclean_forbidden``: one would lead by
    the strategy's unclean way, which is not permitted, in maintenance mode because of ``suspension``."""

    tried: tuple[Candidate, ...]
    unclean_forbidden: bool = False
    suspension: Suspension | None = None

    def __str__(self) -> str:
        failed = ", ".join(map(_in_election, self.tried[:CANDIDATES_SHOWN_MAX])) or "no replica is assigned"
        if len(self.tried) > CANDIDATES_SHOWN_MAX:
            failed += f", and {len(self.tried) - CANDIDATES_SHOWN_MAX} more"
        unclean = "; unclean election is not enabled" if self.unclean_forbidden else ""
        suspension = f": {self.suspension}" if self.suspension else ""
        return f"no eligible leader: {failed}{unclean}{suspension}"


def _in_election(candidate: Candidate) -> str:
    if candidate.unmet is Rule.UNDRAINED and (by := candidate.drained) is not None:
        return f"{candidate.broker} is drained ({by.author}: {by.reason})"
    return str(candidate)


def why_nobody(strategy: Strategy, ballot: Ballot, suspension: Suspension | None = None) -> NoEligibleLeader:
    """The reason why ``elect`` found no leader."""
    tried = list(trace(strategy, ballot))
    forbidden = any(t.leader != NO_LEADER and not t.permitted for t in tried)
    return NoEligibleLeader(tried[0].candidates, forbidden, suspension if forbidden else None)


# --- replicas going offline ----------------------------------------------------------------------------------


def remove_from_isr(
    current: LeaderAndIsr, leaving: Set[int], replicas: BrokerIds, online: frozenset[int]
) -> tuple[int, BrokerIds]:
    """Leader and ISR after some replicas went offline (reference, section 4.3; section 14, point 4).

    All replicas of one event are removed together. The ISR only shrinks while a live member remains that is one of
    the assigned ``replicas``: any member of an ISR that failed as a whole can lead cleanly when it returns.
    """
    remaining = tuple([b for b in current.isr if b not in leaving])
    assigned = members(replicas)
    if not any(b in online and b in assigned for b in remaining):
        remaining = current.isr
    leader = -1 if current.leader in leaving else current.leader
    return leader, interned(remaining)
