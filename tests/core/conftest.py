"""Hypothesis profiles: the same examples every time here; ``HYPOTHESIS_PROFILE=nightly`` looks for new ones
(``HYPOTHESIS_EXAMPLES`` says how many)."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "gate",
    derandomize=True,
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)
settings.register_profile(
    "nightly",
    deadline=None,
    max_examples=int(os.environ.get("HYPOTHESIS_EXAMPLES", "5000")),
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))
