"""``python -m tests.sim.planted.run NAME ...``: ``python -m tests.sim ...`` on the product with a fault in it."""

from __future__ import annotations

import sys
from importlib import import_module

from tests.sim.planted.planting import plant

if __name__ == "__main__":
    plant(sys.argv[1])
    sys.exit(import_module("tests.sim.__main__").main(sys.argv[2:]))
