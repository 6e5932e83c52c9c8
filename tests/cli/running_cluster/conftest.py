"""A small cluster of real processes for each file of pctl's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.cli.operator import Operator, operating


@pytest.fixture(scope="module")
def operator(
    request: pytest.FixtureRequest, zookeeper_server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Operator]:
    """An operator of a running cluster: one controller, three brokers.

    Files where sessions have to end say after how long: ``SESSION_TIMEOUT_MS``.
    """
    timeout_ms = getattr(request.module, "SESSION_TIMEOUT_MS", 20_000)
    with operating(zookeeper_server, tmp_path_factory.mktemp("cluster"), 3, timeout_ms) as running:
        yield running
