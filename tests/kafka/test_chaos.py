"""A short run of ``make chaos-kafka``."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.embedded_kafka import jars
from tests.kafka import chaos
from tests.kafka.conftest import require

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.kafka_long]

#: Begins with faults of all kinds but ZooKeeper's: a broker and our controllers, alone and at once.
SEED = 1
FAULTS_S = 20.0


def test_nothing_acknowledged_is_lost_in_chaos(tmp_path: Path) -> None:
    require(jars.NEWEST)
    assert chaos.run_in(tmp_path, FAULTS_S, SEED)
