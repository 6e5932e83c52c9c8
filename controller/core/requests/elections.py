"""ElectLeaders (reference, section 8.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import msgspec

from controller.core.model import NO_LEADER
from controller.core.requests.api import ControllerRequest
from controller.core.requests.errors import ErrorCode


class ElectionType(Enum):
    """Which replica is elected: the preferred one, any online one, or the named one (ours).

    Names are those of the wire. Values, except UNCLEAN, are strategies of ``partitions.leader_election``.
    """

    PREFERRED = "preferred"
    UNCLEAN = "unclean"
    CHOSEN = "chosen"


@dataclass(frozen=True)
class ElectLeaders(ControllerRequest):
    """An operator requests elections (KIP-183, KIP-460; reference, section 8.3).

    ``partitions``: (topic, partition), or None for all. ``leader``: the broker id to elect, for CHOSEN only.
    """

    election: ElectionType
    partitions: Sequence[tuple[str, int]] | None
    leader: int | None = None


class PartitionElected(msgspec.Struct, frozen=True):
    """The result for one partition. ``leader``: the leader now; ``message``: explains an error."""

    topic: str
    partition: int
    error: ErrorCode
    message: str = ""
    leader: int = NO_LEADER


@dataclass(frozen=True)
class ElectLeadersReply:
    """``partitions`` in the request's order, each once. A request for all partitions omits those that need no
    election."""

    error: ErrorCode
    partitions: Sequence[PartitionElected] = ()
    message: str = ""
