"""What a failover records, held against what the report knows of."""

from __future__ import annotations

from controller.analysis.schema import PHASES, READY
from controller.core.records import FailoverPhase
from tests.support.core.harness import MachineHarness
from tests.support.core.world import World


def test_the_report_knows_every_phase_in_order() -> None:
    rig = MachineHarness.active(World(1, 2), epoch=2)
    told = [done.phase for done in rig.recorded(FailoverPhase)]
    # The driver records the election, which is over by then.
    assert ["election", *told] == [*PHASES, READY]
