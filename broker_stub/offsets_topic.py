"""The topic ``__consumer_offsets`` as the group coordinator sees it: this broker's part of it, and who leads it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from broker_stub.control.metadata import MetadataCache
from broker_stub.errors import BrokerError
from broker_stub.group.ports import CoordinatorAddress
from broker_stub.log.errors import LogError
from broker_stub.replication.manager import ReplicaManager, error_of
from broker_stub.replication.partition import PartitionError
from broker_stub.replication.service import ACKS_ALL, OFFSETS_TOPIC
from proto import common_pb2 as codes

#: Bytes that a replay reads at once.
_READ_BYTES = 1024 * 1024

CreateTopic = Callable[[str, dict[int, list[int]], dict[str, str]], Awaitable[None]]


class OffsetsTopic:
    """Both what the coordinator writes to and how clients find it."""

    def __init__(
        self,
        manager: ReplicaManager,
        metadata: MetadataCache,
        create: CreateTopic,
        commit_timeout_s: float,
        partitions: int,
        replication_factor: int,
    ) -> None:
        """``partitions`` and ``replication_factor``: those of the topic when it is created."""
        self._manager, self._metadata = manager, metadata
        self._create = create
        self._timeout_s = commit_timeout_s
        self._partitions, self._replication_factor = partitions, replication_factor

    def partition_count(self) -> int | None:
        known = self._metadata.partitions(OFFSETS_TOPIC)
        # Metadata may have come in parts: the highest number says more than how many there are.
        return known[-1].key[1] + 1 if known else None

    # the log

    async def append(self, partition: int, records: bytes) -> codes.ErrorCode:
        """See `broker_stub.group.ports.OffsetsLog`."""
        try:
            found = self._manager.require(OFFSETS_TOPIC, partition)
            appended = self._manager.append(found, records, ACKS_ALL)
        except (PartitionError, LogError) as error:
            return error_of(error)
        return await self._manager.committed(found, appended.next_offset, self._timeout_s)

    def read(self, partition: int, offset: int) -> bytes:
        log = self._manager.require(OFFSETS_TOPIC, partition).log
        return log.read(offset, _READ_BYTES, log.log_end_offset)

    def log_start_offset(self, partition: int) -> int:
        return self._manager.require(OFFSETS_TOPIC, partition).log.log_start_offset

    # finding it

    async def find(self, partition: int) -> CoordinatorAddress | codes.ErrorCode:
        """Its leader's address, or COORDINATOR_NOT_AVAILABLE."""
        known = self._metadata.partition(OFFSETS_TOPIC, partition)
        address = None if known is None else self._metadata.address(known.leader)
        if known is None or address is None:
            return codes.COORDINATOR_NOT_AVAILABLE
        return CoordinatorAddress(known.leader, *address)

    async def create_topic(self) -> None:
        """Create it, spread over the live brokers. Raises BrokerError when they are too few, or ZooKeeper refuses."""
        brokers = sorted(self._metadata.live_brokers)
        if len(brokers) < self._replication_factor:
            raise BrokerError(
                f"{OFFSETS_TOPIC} needs offsets_topic_replication_factor = {self._replication_factor} brokers,"
                f" {len(brokers)} are live"
            )
        assignment = {
            number: [brokers[(number + n) % len(brokers)] for n in range(self._replication_factor)]
            for number in range(self._partitions)
        }
        await self._create(OFFSETS_TOPIC, assignment, {"cleanup.policy": "compact"})
