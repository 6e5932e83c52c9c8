"""The five leader election strategies (reference, section 5.3): who leads next, and with which ISR.

Pure arithmetic on one partition. Each strategy returns ``Elected``, or None when no replica qualifies;
``why_none`` then tells which replica failed which rule.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from controller.core.model import NO_LEADER, RECOVERED, RECOVERING, BrokerIds, LeaderAndIsr, interned

#: How every reason begins that is about candidates, not about a write.
NO_CANDIDATE = "no eligible leader"


class Strategy(Enum):
    OFFLINE = "offline"
    REASSIGN = "reassign"
    PREFERRED = "preferred"
    CONTROLLED_SHUTDOWN = "controlled_shutdown"
    CHOSEN = "chosen"
    DRAIN = "drain"


@dataclass(frozen=True)
class ElectionKind:
    """Which strategy, and what it is allowed.

    ``allow_unclean`` lets an operator's request override the configuration; ``supports_recovery`` is false
    only for inter-broker protocols before 3.2, where an unclean leader counts as recovered. ``leader``: the
    broker that CHOSEN names. ``trigger`` is the reason on record, if not the strategy's name.
    """

    strategy: Strategy
    allow_unclean: bool = False
    supports_recovery: bool = True
    leader: int = NO_LEADER
    trigger: str = ""

    @property
    def reason(self) -> str:
        """Why a leader is elected, for the records."""
        return self.trigger or self.strategy.value


OFFLINE = ElectionKind(Strategy.OFFLINE)
PREFERRED = ElectionKind(Strategy.PREFERRED)
REASSIGN = ElectionKind(Strategy.REASSIGN)
CONTROLLED_SHUTDOWN = ElectionKind(Strategy.CONTROLLED_SHUTDOWN)


class Elected(NamedTuple):
    """The outcome: the new leader, ISR and recovery state, and who is told (LeaderAndIsr recipients)."""

    leader: int
    isr: BrokerIds
    recovery: int
    recipients: BrokerIds
    unclean: bool = False


def elect_offline(
    replicas: BrokerIds,
    current: LeaderAndIsr,
    online: Set[int],
    *,
    unclean_allowed: bool = False,
    supports_recovery: bool = True,
) -> Elected | None:
    """A leader for a partition that has none: an online ISR member, else, if allowed, any online replica.

    ``online``: brokers whose replica of this partition is online.
    """
    isr = current.isr
    for broker_id in replicas:
        if broker_id in online and broker_id in isr:
            survivors = tuple([b for b in isr if b in online and b in replicas])
            notified = tuple([b for b in replicas if b in online])
            return Elected(broker_id, interned(survivors), current.recovery, notified)
    if not unclean_allowed:
        return None
    for broker_id in replicas:
        if broker_id in online:
            recovery = RECOVERING if supports_recovery else RECOVERED
            notified = tuple([b for b in replicas if b in online])
            return Elected(broker_id, interned((broker_id,)), recovery, notified, unclean=True)
    return None


def elect_reassign(targets: BrokerIds, current: LeaderAndIsr, online: Set[int]) -> Elected | None:
    """A leader among the target replicas of a reassignment; the ISR stays."""
    for broker_id in targets:
        if broker_id in online and broker_id in current.isr:
            return Elected(broker_id, current.isr, current.recovery, targets)
    return None


def elect_preferred(replicas: BrokerIds, current: LeaderAndIsr, online: Set[int]) -> Elected | None:
    """The first assigned replica, if it is online and in sync; the ISR stays."""
    if replicas and replicas[0] in online and replicas[0] in current.isr:
        return Elected(replicas[0], current.isr, current.recovery, replicas)
    return None


def elect_chosen(leader: int, replicas: BrokerIds, current: LeaderAndIsr, online: Set[int]) -> Elected | None:
    """The replica that somebody named, if it is online and in sync; the ISR stays."""
    if leader in replicas and leader in online and leader in current.isr:
        return Elected(leader, current.isr, current.recovery, replicas)
    return None


def elect_controlled_shutdown(
    replicas: BrokerIds, current: LeaderAndIsr, online_or_shutting_down: Set[int], shutting_down: Set[int]
) -> Elected | None:
    """A leader that stays up; all brokers that are shutting down leave the ISR."""
    for broker_id in replicas:
        if (
            broker_id in online_or_shutting_down
            and broker_id in current.isr
            and broker_id not in shutting_down
        ):
            survivors = tuple([b for b in current.isr if b not in shutting_down])
            notified = tuple([b for b in replicas if b in online_or_shutting_down])
            return Elected(broker_id, interned(survivors), current.recovery, notified)
    return None


def remove_from_isr(
    current: LeaderAndIsr, leaving: Set[int], replicas: BrokerIds, online: frozenset[int]
) -> tuple[int, BrokerIds]:
    """Leader and ISR once some replicas are offline (reference, section 4.3; section 14, point 4).

    Replicas that go in one event go together, and the ISR is only shrunk while a live member remains that is one of
    the assigned ``replicas``: any member of an ISR that died as a whole can lead cleanly when it returns.
    """
    remaining = tuple([b for b in current.isr if b not in leaving])
    if not any(b in online and b in replicas for b in remaining):
        remaining = current.isr
    leader = -1 if current.leader in leaving else current.leader
    return leader, interned(remaining)


class Rule(Enum):
    """What a candidate has to be, in the order in which it is looked at."""

    STAYS = "does not shut down"
    ONLINE = "is online"
    IN_SYNC = "is in the ISR"


class Failure(NamedTuple):
    """The first rule that a candidate fails, and how, in words."""

    broker_id: int
    rule: Rule
    reason: str


def failure(
    broker_id: int,
    current: LeaderAndIsr,
    online: Set[int],
    shutting_down: Set[int] = frozenset(),
    *,
    unclean: bool = False,
) -> Failure | None:
    """Why a replica may not lead; None: it may. ``unclean``: it need not be in sync."""
    if broker_id in shutting_down:
        return Failure(broker_id, Rule.STAYS, f"{broker_id} is shutting down")
    if broker_id not in online:
        return Failure(broker_id, Rule.ONLINE, f"{broker_id} is not online")
    if not unclean and broker_id not in current.isr:
        return Failure(broker_id, Rule.IN_SYNC, f"{broker_id} is not in the ISR {list(current.isr)}")
    return None


def why_none(
    strategy: Strategy,
    replicas: BrokerIds,
    current: LeaderAndIsr,
    online: Set[int],
    shutting_down: Set[int] = frozenset(),
) -> str:
    """Which rule each candidate failed, in words: never a bare code."""
    candidates = replicas[:1] if strategy is Strategy.PREFERRED else replicas
    failures = (failure(broker_id, current, online, shutting_down) for broker_id in candidates)
    failed = [found.reason for found in failures if found is not None]
    if not failed:
        return f"{NO_CANDIDATE}: no replica is assigned"
    rule = "; unclean election is not enabled" if strategy is Strategy.OFFLINE else ""
    return f"{NO_CANDIDATE}: {', '.join(failed)}{rule}"
