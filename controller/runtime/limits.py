"""Limits that depend on what the process may have."""

from __future__ import annotations

import resource


def descriptors_share(wanted: int, share: float) -> int:
    """``wanted``, but at most this share of the descriptors that the process may open, and at least 4: the rest is left
    to ZooKeeper, brokers and logs."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(min(wanted, int(soft * share)), 4)
