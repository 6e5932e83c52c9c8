"""The error of `pctl report`. Imports no Spark, so that the command line can import it quickly."""

from __future__ import annotations

from controller.errors import ControllerError


class ReportError(ControllerError):
    """The report cannot be made: no input, no writable output, or Spark failed; the message says which."""
