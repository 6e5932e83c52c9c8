"""The topic ``__consumer_offsets``, as the group coordinator uses it: the local logs, the leaders, its creation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

import structlog

from broker_stub.control.metadata import MetadataCache
from broker_stub.control.requests import Key
from broker_stub.errors import BrokerError
from broker_stub.group.ports import CoordinatorAddress
from broker_stub.log.errors import LogError
from broker_stub.replication.manager import ReplicaManager, error_of
from broker_stub.replication.partition import PartitionError
from broker_stub.replication.service import ACKS_ALL, OFFSETS_TOPIC
from proto.gen import common_pb2 as codes

_log = structlog.get_logger("broker_stub.offsets_topic")

_RETRY_S = 0.2
#: Bytes that a replay reads in one call.
_READ_BYTES = 1024 * 1024

CreateTopic = Callable[[str, dict[int, list[int]], dict[str, str]], Awaitable[None]]


class OffsetsTopic:
    """Implements `OffsetsLog` and `CoordinatorFinder` of `broker_stub.group.ports`."""

    def __init__(
        self,
        manager: ReplicaManager,
        metadata: MetadataCache,
        create: CreateTopic,
        count: Callable[[str], Awaitable[int | None]],
        commit_timeout_s: float,
        partitions: int,
        replication_factor: int,
    ) -> None:
        """``partitions`` and ``replication_factor`` are for the topic's creation. ``count`` looks up the number of
        partitions of a topic or raises BrokerError."""
        self._manager, self._metadata = manager, metadata
        self._create, self._look_up_count = create, count
        self._count: int | None = None
        self._learning = False
        #: Whose partitions are counted, and how often that changed: an answer of before is not that of the next topic.
        self._topic_id: str | None = None
        self._forgotten = 0
        self._timeout_s = commit_timeout_s
        self._partitions, self._replication_factor = partitions, replication_factor

    def partition_count(self) -> int | None:
        return self._count

    async def learn(self) -> None:
        """Look up the number of partitions in ZooKeeper, once the metadata cache has any partition of the topic.

        The cache may hold only some of the partitions: their number would map a group to the wrong partition. Kafka
        also looks the number up once and keeps it.
        """
        if self._learning:
            return
        self._learning = True
        try:
            while self._count is None and self._metadata.partitions(OFFSETS_TOPIC):
                forgotten, count = self._forgotten, None
                try:
                    count = await self._look_up_count(OFFSETS_TOPIC)
                except BrokerError as error:
                    _log.warning("number of partitions not known yet", topic=OFFSETS_TOPIC, why=str(error))
                if forgotten == self._forgotten:
                    self._count = count
                if self._count is None:
                    await asyncio.sleep(_RETRY_S)
        finally:
            self._learning = False

    def metadata_changed(self, removed: Collection[Key]) -> None:
        """Drop the known number of partitions if the topic is being deleted, or is another one of the same name."""
        topic_id = self._metadata.topic_id(OFFSETS_TOPIC)
        if topic_id != self._topic_id or any(topic == OFFSETS_TOPIC for topic, _ in removed):
            self._topic_id, self._count = topic_id, None
            self._forgotten += 1

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

    # finding the coordinator

    async def find(self, partition: int) -> CoordinatorAddress | codes.ErrorCode:
        """The address of the partition's leader, or COORDINATOR_NOT_AVAILABLE."""
        known = self._metadata.partition(OFFSETS_TOPIC, partition)
        address = None if known is None else self._metadata.address(known.leader)
        if known is None or address is None:
            return codes.COORDINATOR_NOT_AVAILABLE
        return CoordinatorAddress(known.leader, *address)

    async def create_topic(self) -> None:
        """Create the topic, spread over the live brokers.

        Raises BrokerError when too few brokers are live or ZooKeeper refuses.
        """
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
