"""A cluster of ours for each file of tests, and the tools that others wrote, as they were published."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.support.cli.operator import Operator, operating
from tests.tools.installation import REQUIREMENTS, IndexOutOfReachError, Tool, install


def installed(name: str) -> Tool:
    """The tool, or the test is skipped where the package index does not answer."""
    try:
        return install(REQUIREMENTS / f"{name}.txt")
    except IndexOutOfReachError as error:
        pytest.skip(f"the package index is out of reach, so {name} cannot be installed: {error}")


@pytest.fixture(scope="session")
def kafka_utils() -> Tool:
    if sys.version_info >= (3, 12):
        pytest.skip("kafka-utils 4.1.0 asks for kafka-python below 1.5, which Python 3.12 cannot import")
    return installed("kafka-utils")


@pytest.fixture(scope="session")
def kafka_tools() -> Tool:
    return installed("kafka-tools")


@pytest.fixture(scope="session")
def zk_shell() -> Tool:
    return installed("zk-shell")


@pytest.fixture(scope="module")
def cluster(zookeeper_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """One controller, four brokers."""
    with operating(zookeeper_server, tmp_path_factory.mktemp("cluster"), 4) as running:
        yield running
