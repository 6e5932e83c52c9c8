"""A browser for each test; without one they are skipped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.browser import chromium
from tests.tools.installation import IndexOutOfReachError


@pytest_asyncio.fixture
async def started() -> AsyncIterator[Any]:
    executable = chromium.program()
    if executable is None:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")
    try:
        chromium.playwright()
    except IndexOutOfReachError as error:
        pytest.skip(f"the package index is out of reach, so Playwright cannot be installed: {error}")
    async with chromium.browser(executable) as found:
        yield found
