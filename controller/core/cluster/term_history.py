"""Who led, under which controller epoch, from when to when, and why it ended: the last ``KEPT_MAX`` terms.

In ``/controllers/history`` (ours), for people: no decision of a term depends on it. A candidate whose terms keep ending
by failures leaves the next election to others for a moment (`yields_us`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from controller.core.znode_paths import TERM_HISTORY, NodePath

KEPT_MAX = 200
#: Characters of a reason that are kept.
WHY_MAX = 300
#: Failures within this time count as one after the other.
FLAPPING_MS = 600_000
#: How long a candidate leaves the election to others after its second failure, doubled by each further one.
YIELD_FIRST_US, YIELD_MAX_US = 1_000_000, 10_000_000


class TermRecord(msgspec.Struct, frozen=True):
    """One term; times in ms since 1970 by the writers' wall clocks, ``until_ms`` 0: not ended. ``requested``: it ended
    because somebody wanted that. ``why``: for people. ``end_unknown``: it did not say, and ended at ``until_ms`` at the
    latest, when its successor began."""

    controller_id: int
    controller_epoch: int
    from_ms: int
    until_ms: int = 0
    requested: bool = False
    why: str = ""
    end_unknown: bool = False


PATH: NodePath[tuple[TermRecord, ...]] = NodePath(TERM_HISTORY)


def begun(
    before: Sequence[TermRecord], controller_id: int, epoch: int, now_ms: int
) -> tuple[TermRecord, ...]:
    """The history, in which a term has begun. One that nobody ended is ended: its controller was not able to."""
    closed = [
        t
        if t.until_ms
        else msgspec.structs.replace(
            t,
            until_ms=now_ms,
            end_unknown=True,
            why="it did not say: its session ended before, or it was fenced",
        )
        for t in before
    ]
    return (*closed, TermRecord(controller_id, epoch, now_ms))[-KEPT_MAX:]


def ended(
    before: Sequence[TermRecord], epoch: int, now_ms: int, why: str, *, requested: bool
) -> tuple[TermRecord, ...]:
    """The history, in which this term has ended."""
    return tuple(
        msgspec.structs.replace(t, until_ms=now_ms, why=why[:WHY_MAX], requested=requested)
        if t.controller_epoch == epoch and not t.until_ms
        else t
        for t in before
    )


def failures(records: Sequence[TermRecord], controller_id: int, now_ms: int) -> int:
    """How many terms of a candidate ended lately without a request; one that has not ended did so by its restart."""
    return sum(
        # An end may lie in the future: the wall clock that it was read from was ahead.
        t.controller_id == controller_id
        and not t.requested
        and abs(now_ms - (t.until_ms or now_ms)) < FLAPPING_MS
        for t in records
    )


def yields_us(count: int) -> int:
    """How long a candidate with so many failures leaves an election to others."""
    return 0 if count < 2 else min(YIELD_FIRST_US << min(count - 2, 40), YIELD_MAX_US)
