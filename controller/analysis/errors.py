"""What `pctl report` fails with. Imports no Spark, so that the command line may catch it cheaply."""

from __future__ import annotations

from controller.errors import ControllerError


class ReportError(ControllerError):
    """No report can be made: nothing to read, nowhere to write, or Spark gave up; the message says which."""
