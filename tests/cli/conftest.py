"""A small cluster of real processes for each file of pctl's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.operator import Operator, operating


@pytest.fixture(scope="module")
def operator(zookeeper_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """An operator of a running cluster: one controller, three brokers."""
    with operating(zookeeper_server, tmp_path_factory.mktemp("cluster"), 3) as running:
        yield running
