"""Protocols of what the group coordinator needs from the broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from proto.gen import common_pb2 as codes


class OffsetsLog(Protocol):
    """The partitions of ``__consumer_offsets`` on this broker."""

    def partition_count(self) -> int | None:
        """Number of partitions of the topic; None: not known yet, or the topic does not exist."""
        ...

    async def append(self, partition: int, records: bytes) -> codes.ErrorCode:
        """Append whole batches (`broker_stub.log.batches.encode`) with acks=all. NONE: all in-sync replicas have them.

        Records enter the log in the order of the calls; what clients see depends on that order. After a
        cancellation it is unknown whether the records are in the log.
        """
        ...

    def read(self, partition: int, offset: int) -> bytes:
        """Some whole batches of the local log from ``offset`` on, committed or not; empty at its end.

        The first batch may begin before ``offset``. Called on the event loop, so it should return at
        most about a megabyte. Raises BrokerError.
        """
        ...

    def log_start_offset(self, partition: int) -> int:
        """Offset of the local log's first record. Raises BrokerError."""
        ...


class CoordinatorAddress(NamedTuple):
    broker_id: int
    host: str
    port: int


class CoordinatorFinder(Protocol):
    """The leaders of the partitions of ``__consumer_offsets``, from this broker's metadata cache."""

    def partition_count(self) -> int | None:
        """Number of partitions of the topic; None: not known yet, or the topic does not exist."""
        ...

    async def find(self, partition: int) -> CoordinatorAddress | codes.ErrorCode:
        """The leader's address, or an error code if there is none."""
        ...

    async def create_topic(self) -> None:
        """Create the topic. Raises BrokerError; does nothing when it exists."""
        ...


class PartitionExists(Protocol):
    def __call__(self, topic: str, partition: int) -> bool:
        """Whether the metadata cache has this partition."""
        ...


Records = Sequence[tuple[bytes | None, bytes | None]]
