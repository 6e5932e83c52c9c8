"""Pauses between attempts at what a broker refused."""

from __future__ import annotations

#: The first pause and the longest one, in microseconds.
RETRY_FIRST_US, RETRY_MAX_US = 10_000_000, 600_000_000


def retry_pause_us(refusals: int) -> int:
    """The pause after so many earlier refusals: it doubles up to the longest."""
    return min(RETRY_FIRST_US << min(refusals, 10), RETRY_MAX_US)
