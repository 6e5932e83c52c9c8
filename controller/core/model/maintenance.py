"""Restrictions of the controller's automatic work."""

from __future__ import annotations

from enum import Enum

import msgspec

from controller.core.reasons import Reason


class Attribution(msgspec.Struct, frozen=True):
    """Who restricted the controller, and why."""

    reason: str
    author: str


class Freeze(Attribution, frozen=True):
    """A freeze of changes: who, why, and until when it was meant to last (ms since 1970). It ends only by request."""

    until_ms: int


class SuspensionKind(Enum):
    """What stops the controller's automatic work."""

    PAUSED = "paused"
    MAINTENANCE = "maintenance"
    FROZEN = "frozen"


class Suspension(Reason, frozen=True):
    """``by``: who suspended automatic work, and why. ``automatic``: the controller itself did, and ends it."""

    kind: SuspensionKind
    by: Attribution
    automatic: bool = False

    def __str__(self) -> str:
        who = f"{self.by.author}: {self.by.reason}"
        if self.kind is SuspensionKind.PAUSED:
            return f"paused by {who} (pctl maintenance resume ends that)"
        if self.kind is SuspensionKind.FROZEN:
            return f"frozen by {who} (pctl unfreeze ends that)"
        ends = "pctl maintenance leave ends that"
        if self.automatic:
            ends = f"it ends automatically once enough brokers are back; {ends}, too"
        return f"in maintenance, entered by {who} ({ends})"


class Maintenance(msgspec.Struct, frozen=True):
    """Restrictions of the controller's automatic work.

    ``paused``: no automatic work at all, elections included. ``drained``: these brokers get no leadership.
    ``entered``: maintenance mode, no automatic work but clean elections. ``automatic``: the controller entered the
    mode automatically, and leaves it so. ``accepted``: brokers that were offline when an operator left the mode;
    until they return they do not cause it again. ``freeze``: elections go on; nothing else begins, reassignments that
    are requested included.
    """

    paused: Attribution | None = None
    drained: dict[int, Attribution] = {}
    entered: Attribution | None = None
    automatic: bool = False
    accepted: tuple[int, ...] = ()
    freeze: Freeze | None = None

    @property
    def suspension(self) -> Suspension | None:
        """Why automatic work is suspended; None: it is not."""
        if self.paused is not None:
            return Suspension(SuspensionKind.PAUSED, self.paused)
        if self.entered is not None:
            return Suspension(SuspensionKind.MAINTENANCE, self.entered, self.automatic)
        return self.frozen

    @property
    def frozen(self) -> Suspension | None:
        """The freeze alone: also where a pause or maintenance mode suspends more."""
        return None if self.freeze is None else Suspension(SuspensionKind.FROZEN, self.freeze)
