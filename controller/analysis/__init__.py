"""The Spark job over state-change logs, its report, and the logs as DataFrames (`open_logs`).

The only package that imports pyspark, and only when something of it is used. Not here: anything that the running
controller needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from controller.analysis.notebook.logs import Logs, open_logs

__all__ = ["Logs", "open_logs"]


def __getattr__(name: str) -> Any:
    """The names above, imported when they are first used: importing Spark takes a second."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from controller.analysis.notebook import logs

    return getattr(logs, name)
