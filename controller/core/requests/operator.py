"""Requests of operators: drain, pause, maintenance mode, cancelling a controlled shutdown, stop approvals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from controller.core.model import StopApproval
from controller.core.requests.api import ControllerRequest
from controller.core.requests.errors import ErrorCode


@dataclass(frozen=True)
class SetDrain(ControllerRequest):
    """An operator drains a broker of leaderships, or ends that. ``force``: also where no other broker would be left to
    lead."""

    broker_id: int
    drained: bool
    reason: str
    author: str
    force: bool = False


@dataclass(frozen=True)
class SetPause(ControllerRequest):
    """An operator pauses or resumes all automatic work of the controller."""

    paused: bool
    reason: str
    author: str


@dataclass(frozen=True)
class SetMaintenance(ControllerRequest):
    """An operator enters or leaves maintenance mode."""

    entered: bool
    reason: str
    author: str


@dataclass(frozen=True)
class SetFreeze(ControllerRequest):
    """An operator freezes the cluster or ends that. ``until_ms``: when it is meant to end, ms since 1970."""

    frozen: bool
    reason: str
    author: str
    until_ms: int = 0


@dataclass(frozen=True)
class ForgetBroker(ControllerRequest):
    """An operator declares that a broker will not return. ``at_ms``: time of the request, ms since 1970."""

    broker_id: int
    reason: str
    author: str
    at_ms: int


@dataclass(frozen=True)
class CancelShutdown(ControllerRequest):
    """Cancels the controlled shutdown of a broker. ``broker_epoch`` -1 is not checked."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True)
class OperatorReply:
    """``message`` explains an error. ``remaining``: (topic, partition) that a drained broker still leads, since no
    other replica can."""

    error: ErrorCode
    message: str = ""
    remaining: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True)
class ApproveStop(ControllerRequest):
    """Approves that brokers stop: the stop check passed, or an operator overrides its objections.

    ``brokers``: broker epochs by id, as they were checked. ``counted``: (broker id, epoch) of existing approvals whose
    brokers the check assumed stopped. ``at_ms``: time of the check, ms since 1970. ``overridden``: texts of the
    objections.
    """

    brokers: Mapping[int, int]
    counted: frozenset[tuple[int, int]]
    reason: str
    author: str
    at_ms: int
    overridden: tuple[str, ...] = ()


@dataclass(frozen=True)
class WithdrawStopApproval(ControllerRequest):
    """An operator withdraws approvals."""

    brokers: Sequence[int]
    reason: str
    author: str


@dataclass(frozen=True)
class StopApprovalsReply:
    """``approvals``: all valid ones now, by broker id; empty with an error."""

    error: ErrorCode
    message: str = ""
    approvals: Mapping[int, StopApproval] = field(default_factory=dict)


REASON_MAX, AUTHOR_MAX = 1000, 200


def attribution_problem(reason: str, author: str, *, reason_needed: bool = True) -> str | None:
    """The problem of a request's reason or author, as text; None if both are valid."""
    if not reason_needed and not author.strip():
        return "author: must be given, so that others know whom to ask"
    if not author.strip() or (reason_needed and not reason.strip()):
        return "reason and author: must both be given, so that others know why and whom to ask"
    for name, text, allowed in (("reason", reason, REASON_MAX), ("author", author, AUTHOR_MAX)):
        if len(text) > allowed:
            return f"{name}: has {len(text)} characters, must have at most {allowed}"
    return None
