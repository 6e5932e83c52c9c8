"""The line of ``pctl maintenance show`` that names and counts brokers."""

from __future__ import annotations

import pytest

from controller.cli.pctl.maintenance import _offline
from proto.gen.maintenance_pb2 import DescribeMaintenanceResponse


@pytest.mark.parametrize(
    ("gone", "limit", "line"),
    [
        (
            [2],
            3,
            "offline brokers: 2 (1 of 4; 3 are registered); "
            "maintenance begins automatically once 3 brokers are offline",
        ),
        ([], 0, "offline brokers: none (0 of 4; 4 are registered); maintenance never begins automatically"),
        (
            [1, 3],
            0,
            "offline brokers: 1, 3 (2 of 4; 2 are registered); maintenance never begins automatically",
        ),
    ],
)
def test_an_id_is_not_read_as_a_count(gone: list[int], limit: int, line: str) -> None:
    answer = DescribeMaintenanceResponse(gone=gone, known_brokers=4, offline_limit=limit)
    assert _offline(answer) == line
