"""Fixtures of the runtime's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from controller.runtime.zookeeper.session import Session
from tests.support.runtime.sessions import opened


@pytest_asyncio.fixture
async def session(zookeeper: str) -> AsyncIterator[Session]:
    """A session in this test's chroot."""
    async with opened(zookeeper) as (session, _):
        yield session
