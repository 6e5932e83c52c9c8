"""``python -m tests.provers.sim.planted.run NAME ...``: the simulator on the product with a fault in it."""

from __future__ import annotations

import sys
from importlib import import_module

from tests.provers.sim.planted.planting import plant

if __name__ == "__main__":
    plant(sys.argv[1])
    sys.exit(import_module("tests.provers.sim.__main__").main(sys.argv[2:]))
