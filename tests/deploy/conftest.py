"""What tests of rules, dashboards and the compose file have from Debian."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.debian import unpack
from tests.tools.installation import IndexOutOfReachError


@pytest.fixture(scope="session")
def prometheus_bin() -> Path:
    """The folder of prometheus and promtool."""
    return _unpacked("prometheus") / "usr" / "bin"


@pytest.fixture(scope="session")
def compose_spec() -> Path:
    """The schema of compose files by which docker-compose 1.29 checks them."""
    return _unpacked("docker-compose") / "usr/lib/python3/dist-packages/compose/config/compose_spec.json"


def _unpacked(name: str) -> Path:
    try:
        return unpack(name)
    except IndexOutOfReachError as error:
        pytest.skip(f"Debian's packages are out of reach, so {name} is not here: {error}")
