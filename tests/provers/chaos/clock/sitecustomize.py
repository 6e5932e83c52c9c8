"""A wrong wall clock for one Python process: Python imports this first when its directory is in PYTHONPATH.

``time.time_ns``, the clock that our programs stamp everything with, is off by the seconds in the file that
CHAOS_CLOCK_FILE names, which may change while the process runs. libfaketime is no help: with it `time.sleep` of Python
3.11 fails (EINVAL), and timed waits inside gRPC last as long as the clock is off.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_true_time_ns, _REREAD_S = time.time_ns, 0.2
_file = Path(os.environ.get("CHAOS_CLOCK_FILE", os.devnull))
_offset_ns, _read_at = 0, float("-inf")


def _time_ns() -> int:
    global _offset_ns, _read_at
    if time.monotonic() - _read_at > _REREAD_S:
        _read_at = time.monotonic()
        _offset_ns = int(_file.read_text() or "0") * 1_000_000_000
    return _true_time_ns() + _offset_ns


time.time_ns = _time_ns
