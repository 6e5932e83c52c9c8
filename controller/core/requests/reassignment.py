"""Requests to alter, cancel and list reassignments (KIP-455; reference, section 8.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from controller.core.model import BrokerIds
from controller.core.reasons import Reason
from controller.core.requests.api import ControllerRequest
from controller.core.requests.errors import ErrorCode


class PartitionReassignment(msgspec.Struct, frozen=True):
    """The target replicas of one partition, preferred first; None cancels its reassignment."""

    topic: str
    partition: int
    replicas: BrokerIds | None


@dataclass(frozen=True)
class AlterPartitionReassignments(ControllerRequest):
    """An operator reassigns partitions, or cancels reassignments (KIP-455)."""

    reassignments: Sequence[PartitionReassignment]


class ReassignmentAnswer(msgspec.Struct, frozen=True):
    """The result for one partition; ``message`` explains an error. Without an error the reassignment is durable and
    continues automatically."""

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
    """Lists the reassignments of these (topic, partition), or all (None)."""

    partitions: Sequence[tuple[str, int]] | None = None


class Ongoing(msgspec.Struct, frozen=True):
    """One reassignment. ``queued``: it waits for the concurrency limit, and the sets are the future ones. ``reasons``:
    why it is not complete yet."""

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
