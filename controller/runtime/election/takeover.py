"""The rules by which a controller of ours takes ``/controller`` of a cluster whose brokers are Kafka's.

Each of ours has two sessions. The *main session* registers ``/controllers/ids/N``, carries all reads and writes, and
the leader's lease is counted on it. The *holder session* owns the ephemeral ``/controller`` and has a longer timeout.
When the leader dies, its registration goes first; while ``/controller`` is still there, a standby of ours claims over
it, deleting and creating it in one multi. So brokers never find it absent as long as one of ours is alive; when all
are gone it vanishes with the holder session, and Kafka's own controller takes over.

A leader whose main session is over must not act, although its holder session may live: its lease is over before the
main session is, and every write of it is fenced by the version of ``/controller_epoch``, which the next claim raises.
The holder session only holds. In exclusive mode ``/controller`` is persistent, and there is no holder session.

All times in seconds on one monotonic clock, unless named otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from controller.runtime.config import Takeover


class Held(Enum):
    """Who holds ``/controller``."""

    NOBODY = "nobody"
    THIS_SESSION = "an earlier term of this session"
    GONE = "a controller of ours that is gone"
    ALIVE = "a controller of ours"
    BROKER = "a broker"
    KRAFT = "a KRaft controller"
    NAMESAKE = "a broker has this controller's id"
    UNREADABLE = "unreadable"


#: The holder session's timeout, which is the configured one, in timeouts of the main session; and the share of one by
#: which it must be longer.
HOLDER_TIMEOUTS = 2
HOLDER_MARGIN = 1 / 4
#: The first pause before claiming again over a broker, doubled with each claim up to the maximum.
CLAIM_AGAIN_FIRST_S, CLAIM_AGAIN_MAX_S = 5.0, 300.0
#: A term this long ends the count of claims.
STEADY_S = 600.0
#: Claims that are remembered: the pause is at its maximum long before.
CLAIMS_KEPT = 16
#: How long a leader that stops waits for a standby's claim, at most.
HAND_OVER_S = 5.0


class Verdict(NamedTuple):
    """Whether to claim now; else when to look again without a change in ZooKeeper, None: never."""

    claim: bool
    again_at_s: float | None = None


def verdict(held: Held, resigned: bool, claims: Sequence[float], now_s: float) -> Verdict:
    """``claims``: when this process claimed over brokers, oldest first; ``resigned``: an operator handed back."""
    if resigned or held in (Held.ALIVE, Held.KRAFT, Held.NAMESAKE, Held.UNREADABLE):
        return Verdict(claim=False)
    if held is Held.BROKER and now_s < (due_s := claim_due_s(claims)):
        return Verdict(claim=False, again_at_s=due_s)
    return Verdict(claim=True)


def claim_due_s(claims: Sequence[float]) -> float:
    """When a broker that holds ``/controller`` may be claimed over: at once the first time and after a long term, else
    after a pause that doubles with each claim since. It is never a tug of war: brokers get ever longer terms."""
    if not claims:
        return float("-inf")
    recent = 1
    while recent < len(claims) and claims[-recent] - claims[-recent - 1] < STEADY_S:
        recent += 1
    return claims[-1] + min(CLAIM_AGAIN_FIRST_S * 2.0 ** (recent - 1), CLAIM_AGAIN_MAX_S)


def held_by(endpoint: str, session_id: int, kraft_epoch: int, registered: int, main: int) -> Held:
    """Who holds a readable ``/controller``, from its content. ``registered``: the session that owns this controller's
    registration, 0: there is none; ``main``: our main session."""
    if kraft_epoch >= 0:
        return Held.KRAFT
    if not endpoint:
        return Held.BROKER
    if session_id == main:
        return Held.THIS_SESSION
    # The controller of our id under another session is an earlier process, or an earlier session of this one.
    if registered in (0, main) or session_id not in (0, registered):
        return Held.GONE
    return Held.ALIVE


def main_timeout_ms(mode: Takeover, session_timeout_ms: int) -> int:
    """The timeout to request for the main session; the holder session, where there is one, has the configured one. So
    brokers take over within the configured timeout, and a standby of ours in half of it."""
    return session_timeout_ms // HOLDER_TIMEOUTS if mode is Takeover.FALLBACK else session_timeout_ms


def outlives(holder_ms: int, main_ms: int) -> bool:
    """Whether a holder session of this granted timeout leaves a standby the time to claim."""
    return holder_ms >= main_ms * (1 + HOLDER_MARGIN)


def remedy(holder_ms: int, session_timeout_ms: int) -> str:
    """What to change so that a holder session of this granted timeout outlives the main session."""
    if holder_ms < session_timeout_ms:
        return "lower session_timeout_ms, or raise ZooKeeper's maxSessionTimeout"
    return "raise session_timeout_ms, or lower ZooKeeper's minSessionTimeout"


def hand_over_s(holder_ms: int) -> float:
    """How long a leader that stops waits for a standby's claim, before it gives ``/controller`` up."""
    return min(HAND_OVER_S, holder_ms / 1000 / HOLDER_TIMEOUTS)
