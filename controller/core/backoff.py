"""Pauses between attempts to delete a replica after a broker refused."""

from __future__ import annotations

#: The first pause and the longest one, in microseconds.
RETRY_FIRST_US, RETRY_MAX_US = 10_000_000, 600_000_000


def retry_pause_us(refusals: int) -> int:
    """The pause after this many earlier refusals: it doubles up to ``RETRY_MAX_US``."""
    return min(RETRY_FIRST_US << min(refusals, 10), RETRY_MAX_US)
