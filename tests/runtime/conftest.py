"""Fixtures of the runtime's tests; the Hypothesis profile is that of tests/core."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest_asyncio
from hypothesis import HealthCheck, settings

from controller.runtime.zookeeper import Session
from tests.runtime.sessions import opened

settings.register_profile(
    "gate",
    derandomize=True,
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)
settings.register_profile(
    "nightly", deadline=None, max_examples=5000, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))


@pytest_asyncio.fixture
async def session(zookeeper: str) -> AsyncIterator[Session]:
    """A session in this test's chroot."""
    async with opened(zookeeper) as (session, _):
        yield session
