"""What replication needs of the outside, as plain values and protocols."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from broker_stub.control.requests import Key
from broker_stub.errors import BrokerError
from proto.gen import common_pb2 as codes


class IsrProposal(NamedTuple):
    """A leader's wish for another ISR. ``partition_epoch``, ``leader_epoch``: those it knows.

    ``controller_epoch`` is that of the decision which made it leader, for writers that go to ZooKeeper
    themselves.
    """

    key: Key
    topic_id: str | None
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    controller_epoch: int


class IsrResult(NamedTuple):
    """What became of a proposal. On NONE: the durable state; else only ``error`` counts."""

    key: Key
    error: codes.ErrorCode
    leader: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1


class IsrUnanswered(BrokerError):  # noqa: N818
    """Nobody knows what became of the proposals, or the whole request was refused: ask again. Says why."""


class IsrWriter(Protocol):
    """Makes ISR changes durable: through the controller, or in ZooKeeper (reference, section 8.4)."""

    async def propose(self, proposals: Sequence[IsrProposal]) -> Sequence[IsrResult | None]:
        """One result for each proposal, in order; None: not answered, to be made again. Raises IsrUnanswered."""
        ...
