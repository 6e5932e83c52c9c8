"""Debian's Prometheus, for tests of rules and dashboards."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.debian import unpack
from tests.tools.installation import IndexOutOfReachError


@pytest.fixture(scope="session")
def prometheus_bin() -> Path:
    """The folder of prometheus and promtool; without it the test is skipped."""
    try:
        return unpack("prometheus") / "usr" / "bin"
    except IndexOutOfReachError as error:
        pytest.skip(f"Debian's packages are out of reach, so Prometheus is not here: {error}")
