"""The lease rule: how long a controller may act on a ZooKeeper session, and the intervals derived from it.

When the ensemble's leader answers a request, the session cannot expire earlier than a full timeout after that
request arrived. The lease counts from when the request was *sent*, by the local clock, and ends before the timeout
does (docs/adr/0005). Within one lease there must be time for several attempts, so a sync is sent often.

All times in seconds unless named otherwise.
"""

from __future__ import annotations

#: Share of the negotiated session timeout: the lease ends before the server can have expired the session.
FRACTION = 2 / 3
#: Syncs in one session timeout: an outage is noticed early, and one lost response does not end the lease.
RENEWALS_PER_TIMEOUT = 8
#: Lower bound of every wait, also when the lease is almost over.
WAIT_MIN_S = 0.001
#: Pause of a candidate that does not know a leader: no response, an unreadable epoch, or no controller.
ELECTION_RETRY_S = 1.0
#: Pause before a new session after one that ended, doubled up to the maximum.
SESSION_RETRY_FIRST_S, SESSION_RETRY_MAX_S = 0.1, 5.0
#: How much longer than a session timeout to wait for the end of another process's registration under our id.
STRANGER_EXTRA_S = 5.0
#: After a session that lived longer than this, the pause starts again from the first value.
SESSION_LIVED_S = 2 * SESSION_RETRY_MAX_S


def remaining_s(answered_at_s: float, timeout_ms: int, now_s: float) -> float:
    """Time until the lease ends; negative: stop acting. ``answered_at_s``: send time of the newest request that the
    ensemble's leader answered. Both times are from the same monotonic clock."""
    return answered_at_s + timeout_ms / 1000 * FRACTION - now_s


def renewal_timeout_s(remaining: float) -> float:
    """How long a sync may take: the rest of the lease."""
    return max(remaining, WAIT_MIN_S)


def renewal_pause_s(timeout_ms: int, remaining: float) -> float:
    """Pause between two syncs; never beyond the end of the lease, which must be noticed."""
    return min(timeout_ms / 1000 / RENEWALS_PER_TIMEOUT, max(remaining, WAIT_MIN_S))


def session_retry_s(pause_s: float) -> float:
    """The pause that follows ``pause_s``."""
    return min(pause_s * 2, SESSION_RETRY_MAX_S)


def resign_timeout_s(timeout_ms: int) -> float:
    """How long the deletion of ``/controller`` may take: after a session timeout the expiry has deleted it."""
    return timeout_ms / 1000
