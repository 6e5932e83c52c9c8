"""How a verb that runs Spark ends before its time."""

from __future__ import annotations

import logging
import signal


def end_in_order() -> None:
    """Let SIGTERM be Ctrl-C, after which neither a JVM nor its files are left, and py4j say nothing of either."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # It logs a traceback, which Python prints where nobody takes it.
    logging.getLogger().addHandler(logging.NullHandler())
