"""Values and protocols through which replication makes ISR changes durable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from broker_stub.control.requests import Key
from broker_stub.errors import BrokerError
from proto.gen import common_pb2 as codes


class IsrProposal(NamedTuple):
    """An ISR change that a leader proposes, with the epochs that it knows.

    ``controller_epoch`` is that of the last LeaderAndIsr; only a writer to ZooKeeper uses it. ``isr_epochs``: parallel
    to ``isr``, the broker epoch of each follower's last fetch (KIP-903); -1: of the leader, and of who has not fetched.
    ``isr_directories``: of members with several data directories, the short id of this replica's; 0: not told.
    """

    key: Key
    topic_id: str | None
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    controller_epoch: int
    isr_epochs: tuple[int, ...] = ()
    isr_directories: tuple[int, ...] = ()


class IsrResult(NamedTuple):
    """The result of a proposal. NONE: the other fields are the durable state; else only ``error`` is set."""

    key: Key
    error: codes.ErrorCode
    leader: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1


class IsrUnanswered(BrokerError):  # noqa: N818
    """The outcome of the proposals is unknown, or the whole request was refused: send it again."""


class IsrWriter(Protocol):
    """Makes ISR changes durable: through the controller, or in ZooKeeper (reference, section 8.4)."""

    async def propose(self, proposals: Sequence[IsrProposal]) -> Sequence[IsrResult | None]:
        """One result per proposal, in order; None: no result, send it again. Raises IsrUnanswered."""
        ...
