"""The lease rule: how long a controller may act on a ZooKeeper session, and all the times that follow from it.

A session cannot have expired at the server earlier than a full timeout after a request arrived that the ensemble's
leader answered. We count from when that request was *sent*, by our own clock, and stop before the timeout is over
(docs/adr/0005). Between two such requests there must be time for several attempts, so a sync is sent often.

All times in seconds unless named otherwise.
"""

from __future__ import annotations

#: Of the negotiated session timeout: the lease ends before the server can have expired the session.
FRACTION = 2 / 3
#: Syncs in one session timeout: a silence is noticed early, and one lost answer does not end the lease.
RENEWALS_PER_TIMEOUT = 8
#: No wait is shorter, also when the lease is all but over.
WAIT_MIN_S = 0.001
#: Pause of a candidate that could not find out who leads: no answer, an unreadable epoch, or nobody leads.
ELECTION_RETRY_S = 1.0
#: Pause before the next session after one that ended, doubled up to the maximum.
SESSION_RETRY_FIRST_S, SESSION_RETRY_MAX_S = 0.1, 5.0
#: A session that lived longer than this was a good one: the next pause is the first again.
SESSION_LIVED_S = 2 * SESSION_RETRY_MAX_S


def remaining_s(answered_at_s: float, timeout_ms: int, now_s: float) -> float:
    """Until the lease ends; negative: stop acting. ``answered_at_s``: when the newest request that the ensemble's
    leader answered was sent; both times are on the same monotonic clock."""
    return answered_at_s + timeout_ms / 1000 * FRACTION - now_s


def renewal_timeout_s(remaining: float) -> float:
    """How long a sync may take: whatever the lease has left."""
    return max(remaining, WAIT_MIN_S)


def renewal_pause_s(timeout_ms: int, remaining: float) -> float:
    """From one sync to the next; never beyond the end of the lease, which must be noticed."""
    return min(timeout_ms / 1000 / RENEWALS_PER_TIMEOUT, max(remaining, WAIT_MIN_S))


def session_retry_s(pause_s: float) -> float:
    """The pause after this one."""
    return min(pause_s * 2, SESSION_RETRY_MAX_S)


def resign_timeout_s(timeout_ms: int) -> float:
    """How long giving up ``/controller`` may take: after a session timeout the session's end has done it."""
    return timeout_ms / 1000
