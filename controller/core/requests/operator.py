"""What operators ask for: drain, pause, maintenance mode, the end of a shutdown, stop approvals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from controller.core.model import StopApproval
from controller.core.requests.api import ControllerRequest
from controller.core.requests.errors import ErrorCode as ErrorCode


@dataclass(frozen=True)
class SetDrain(ControllerRequest):
    """An operator wants no leaderships on a broker, or allows them again; ``force``: even where nobody else is left to
    lead."""

    broker_id: int
    drained: bool
    reason: str
    author: str
    force: bool = False


@dataclass(frozen=True)
class SetPause(ControllerRequest):
    """An operator pauses all that the controller does of its own accord, or resumes it."""

    paused: bool
    reason: str
    author: str


@dataclass(frozen=True)
class SetMaintenance(ControllerRequest):
    """An operator enters the maintenance mode, or leaves it."""

    entered: bool
    reason: str
    author: str


@dataclass(frozen=True)
class CancelShutdown(ControllerRequest):
    """A broker in controlled shutdown stays. ``broker_epoch`` -1 is not checked."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True)
class OperatorReply:
    """``message`` says why not. ``remaining``: (topic, partition) that a drained broker leads all the same, since
    nobody else can."""

    error: ErrorCode
    message: str = ""
    remaining: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True)
class ApproveStop(ControllerRequest):
    """Brokers were judged to be stoppable, or an operator overrides what speaks against it.

    ``brokers``: epochs by id, as they were judged; ``counted``: (broker id, epoch) of the approvals that the judgement
    took for gone; ``at_ms``: when, ms since 1970; ``overridden``: what spoke against it, in words.
    """

    brokers: Mapping[int, int]
    counted: frozenset[tuple[int, int]]
    reason: str
    author: str
    at_ms: int
    overridden: tuple[str, ...] = ()


@dataclass(frozen=True)
class WithdrawStopApproval(ControllerRequest):
    """An operator takes approvals back."""

    brokers: Sequence[int]
    reason: str
    author: str


@dataclass(frozen=True)
class StopApprovalsReply:
    """``approvals``: all that stand now, by broker id; empty with an error."""

    error: ErrorCode
    message: str = ""
    approvals: Mapping[int, StopApproval] = field(default_factory=dict)


REASON_MAX, AUTHOR_MAX = 1000, 200


def attribution_problem(reason: str, author: str, *, reason_needed: bool = True) -> str | None:
    """What is wrong with the signature of a request, in words; None: nothing."""
    if not reason_needed and not author.strip():
        return "author: must be given, so that others know whom to ask"
    if not author.strip() or (reason_needed and not reason.strip()):
        return "reason and author: must both be given, so that others know why and whom to ask"
    for name, text, allowed in (("reason", reason, REASON_MAX), ("author", author, AUTHOR_MAX)):
        if len(text) > allowed:
            return f"{name}: has {len(text)} characters, must have at most {allowed}"
    return None
