"""The errors of `pctl report` and `pctl lake`. Imports no Spark, so that the command line can import it quickly."""

from __future__ import annotations

import importlib.util

from controller.errors import ControllerError, EnvironmentFault


class ReportError(ControllerError):
    """The report cannot be made: no input, no writable output, or Spark failed; the message says which."""


def require_spark() -> None:
    """Raises EnvironmentFault where this was installed without Spark and Arrow, as from the Debian package."""
    for name in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(name) is None:
            raise EnvironmentFault(
                f"{name} is not installed: reports and lakes need an installation by deploy/install.sh or pip"
            )
