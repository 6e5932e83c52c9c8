"""ElectLeaders (reference, section 8.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import msgspec

from controller.core.model import NO_LEADER
from controller.core.requests.api import ControllerRequest
from controller.core.requests.errors import ErrorCode as ErrorCode


class ElectionType(Enum):
    """Who is to lead: the first assigned replica, any replica at all, or the one that is named (ours).

    The name is that of the wire; but for UNCLEAN the value is a strategy of ``partitions.leader_election``.
    """

    PREFERRED = "preferred"
    UNCLEAN = "unclean"
    CHOSEN = "chosen"


@dataclass(frozen=True)
class ElectLeaders(ControllerRequest):
    """An operator wants other leaders (KIP-183, KIP-460; reference, section 8.3).

    ``partitions``: (topic, partition), or None for all. ``leader``: the broker id that CHOSEN names, and only
    CHOSEN.
    """

    election: ElectionType
    partitions: Sequence[tuple[str, int]] | None
    leader: int | None = None


class PartitionElected(msgspec.Struct, frozen=True):
    """What became of one partition: without an error it has ``leader`` now; ``message`` says why not."""

    topic: str
    partition: int
    error: ErrorCode
    message: str = ""
    leader: int = NO_LEADER


@dataclass(frozen=True)
class ElectLeadersReply:
    """``partitions`` in the request's order, each once; of all partitions those not needed are left out."""

    error: ErrorCode
    partitions: Sequence[PartitionElected] = ()
    message: str = ""
