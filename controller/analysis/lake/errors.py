"""The error of `pctl lake`. Imports no Spark."""

from __future__ import annotations

from controller.analysis.errors import ReportError


class LakeError(ReportError):
    """The lake cannot be read or written; the message says why."""
