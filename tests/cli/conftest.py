"""One small cluster of real processes for all tests of pctl."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.cli.operator import Operator, operating


@pytest.fixture(scope="session")
def operator(zookeeper_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """An operator of a running cluster: one controller, three brokers."""
    base = f"{zookeeper_server}/pctl-{os.getpid()}"
    with operating(base, tmp_path_factory.mktemp("cluster") / "run", 3) as running:
        yield running
