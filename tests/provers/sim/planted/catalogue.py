"""All planted faults, by name."""

from __future__ import annotations

from tests.provers.sim.planted import in_broker, in_core, in_driver

FAULTS = {fault.name: fault for fault in (*in_core.FAULTS, *in_driver.FAULTS, *in_broker.FAULTS)}
