"""The errors of `pctl lake`. Imports no Spark."""

from __future__ import annotations

from controller.analysis.errors import ReportError


class LakeError(ReportError):
    """The lake cannot be read or written; the message says why."""


class SetAsideError(LakeError):
    """What was set aside of the logs is not as it was: by the next update it is set aside anew."""
