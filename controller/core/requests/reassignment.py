"""Reassignments: requested, cancelled, listed (KIP-455; reference, section 8.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from controller.core.model import BrokerIds
from controller.core.reasons import Reason
from controller.core.requests.api import ControllerRequest
from controller.core.requests.errors import ErrorCode as ErrorCode


class PartitionReassignment(msgspec.Struct, frozen=True):
    """The replicas wanted for one partition, preferred first; None takes its move back."""

    topic: str
    partition: int
    replicas: BrokerIds | None


@dataclass(frozen=True)
class AlterPartitionReassignments(ControllerRequest):
    """An operator moves partitions, or cancels moves (KIP-455)."""

    reassignments: Sequence[PartitionReassignment]


class ReassignmentAnswer(msgspec.Struct, frozen=True):
    """What becomes of one partition; ``message`` says why not. Without an error the move is recorded and goes on
    by itself."""

    topic: str
    partition: int
    error: ErrorCode
    message: str = ""


@dataclass(frozen=True)
class AlterPartitionReassignmentsReply:
    """``partitions`` parallel to the request's; empty with a top-level error."""

    error: ErrorCode
    partitions: Sequence[ReassignmentAnswer] = ()


@dataclass(frozen=True)
class ListPartitionReassignments(ControllerRequest):
    """Which moves are there: of these (topic, partition), or of all of them (None)."""

    partitions: Sequence[tuple[str, int]] | None = None


class Ongoing(msgspec.Struct, frozen=True):
    """One move. ``queued``: it waits for room, and the sets are what they will be; ``reasons``: why it is not done
    yet."""

    topic: str
    partition: int
    replicas: BrokerIds
    adding: BrokerIds
    removing: BrokerIds
    queued: bool = False
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class ListPartitionReassignmentsReply:
    """``partitions`` is empty with a top-level error."""

    error: ErrorCode
    partitions: Sequence[Ongoing] = ()
