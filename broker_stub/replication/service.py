"""Serves Produce, Fetch, ListOffsets, OffsetsForLeaderEpoch and Metadata to clients and followers.

Thin: checks the request, calls the replica manager, builds the response. An error of one partition does not affect
the others of the request. Runs on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from broker_stub.control.metadata import MetadataCache
from broker_stub.control.requests import NO_LEADER, Key, topic_name_problem
from broker_stub.errors import BrokerError
from broker_stub.log.errors import LogError
from broker_stub.log.interface import Appended, TimestampOffset
from broker_stub.replication.manager import ReplicaManager, error_of
from broker_stub.replication.partition import Partition, PartitionError
from broker_stub.replication.throttle import ReplicationQuota
from proto.gen import broker_data_pb2 as wire
from proto.gen import common_pb2 as codes

OFFSETS_TOPIC = "__consumer_offsets"
ACKS_ALL, ACKS_NONE = -1, 0
LATEST, EARLIEST = -1, -2
#: Upper limit of the wait that a request asks for, ms.
WAIT_MAX_MS = 300_000


class _Read(NamedTuple):
    """One partition's part of a fetch. ``urgent``: respond at once; ``include``: name it in the response."""

    answer: wire.FetchedPartition
    urgent: bool
    include: bool


_NOTHING = _Read(wire.FetchedPartition(), urgent=False, include=False)


@dataclass(slots=True)
class _Fetch:
    """A fetch being served. ``follower``: broker id; None: a consumer.

    ``reads``: in the order of the request. ``size``: bytes of records in all reads. ``urgent``: any read is urgent.
    """

    request: wire.FetchRequest
    follower: int | None
    reads: list[_Read] = field(default_factory=list)
    size: int = 0
    urgent: bool = False


class DataService:
    """The partition methods of ``BrokerData``. ``config_known`` waits until a topic's configuration is read.

    ``quota``: of what followers copy from here.
    """

    def __init__(
        self,
        manager: ReplicaManager,
        metadata: MetadataCache,
        config_known: Callable[[str], Awaitable[None]],
        quota: ReplicationQuota,
    ) -> None:
        self._manager, self._metadata, self._config_known = manager, metadata, config_known
        self._quota = quota

    def _require(self, topic: str, number: int) -> Partition:
        """A hosted partition. Raises PartitionError: NOT_LEADER_OR_FOLLOWER when only other brokers host it."""
        try:
            return self._manager.require(topic, number)
        except PartitionError as error:
            if (
                error.error_code != codes.UNKNOWN_TOPIC_OR_PARTITION
                or self._metadata.partition(topic, number) is None
            ):
                raise
            raise PartitionError(codes.NOT_LEADER_OR_FOLLOWER, str(error)) from None

    def _led(
        self, item: wire.FetchPartition | wire.ListOffsetsPartition | wire.OffsetForLeaderEpochPartition
    ) -> Partition:
        """A partition that we lead, in the leader epoch that the caller names, if it does. Raises PartitionError."""
        partition = self._require(item.topic, item.partition)
        partition.require_leader(item.current_leader_epoch if item.HasField("current_leader_epoch") else None)
        return partition

    # Produce

    async def produce(self, request: wire.ProduceRequest) -> wire.ProduceResponse:
        """Append to partitions that we lead; with acks -1 respond when all in-sync replicas have the records."""
        if request.acks not in (ACKS_ALL, ACKS_NONE, 1):
            reason = f"acks is {request.acks}: must be -1, 0 or 1"
            return wire.ProduceResponse(
                partitions=[
                    self._refused(item, codes.INVALID_REQUIRED_ACKS, reason) for item in request.partitions
                ]
            )
        timeout_s = min(request.timeout_ms, WAIT_MAX_MS) / 1000
        if request.acks == ACKS_ALL:
            await self._await_configs(request, timeout_s)
        answers: list[wire.ProducedPartition] = []
        waiting: list[tuple[int, Partition, Appended]] = []
        for position, item in enumerate(request.partitions):
            try:
                partition = self._require(item.topic, item.partition)
                appended = self._manager.append(partition, item.records, request.acks)
            except (PartitionError, LogError) as error:
                answers.append(self._refused(item, error_of(error), str(error)))
                continue
            answers.append(_produced(item, partition, appended))
            if request.acks == ACKS_ALL:
                waiting.append((position, partition, appended))
        if waiting:
            outcomes = await asyncio.gather(
                *(self._manager.committed(p, appended.next_offset, timeout_s) for _, p, appended in waiting)
            )
            for (position, _, _), outcome in zip(waiting, outcomes, strict=True):
                if outcome != codes.NONE:
                    item = request.partitions[position]
                    answers[position] = self._refused(
                        item, outcome, "appended, but not known to be committed"
                    )
        if request.acks == ACKS_NONE:
            return wire.ProduceResponse()
        return wire.ProduceResponse(partitions=answers)

    async def _await_configs(self, request: wire.ProduceRequest, timeout_s: float) -> None:
        """Wait until min.insync.replicas of the topics is known, at most ``timeout_s``: acks -1 depends on it."""
        found = (self._manager.get((item.topic, item.partition)) for item in request.partitions)
        led = (p for p in found if p is not None and p.is_leader)
        unknown = dict.fromkeys(p.key[0] for p in led if p.min_isr is None)
        try:
            async with asyncio.timeout(timeout_s):
                for topic in unknown:
                    await self._config_known(topic)
        except TimeoutError:
            return  # the append will be refused

    def _refused(
        self, item: wire.ProducePartition, error: codes.ErrorCode, reason: str
    ) -> wire.ProducedPartition:
        leader, epoch = self._leader_hint(item.topic, item.partition)
        return wire.ProducedPartition(
            topic=item.topic,
            partition=item.partition,
            error_code=error,
            error_message=reason,
            base_offset=-1,
            log_start_offset=-1,
            leader=leader,
            leader_epoch=epoch,
        )

    def _leader_hint(self, topic: str, number: int) -> tuple[int, int]:
        """Leader and leader epoch by the newer of the hosted partition and the metadata cache."""
        partition, cached = self._manager.get((topic, number)), self._metadata.partition(topic, number)
        if cached is not None and (partition is None or cached.leader_epoch >= partition.leader_epoch):
            return cached.leader, cached.leader_epoch
        if partition is not None:
            return partition.leader, partition.leader_epoch
        return NO_LEADER, -1

    # Fetch

    async def fetch(self, request: wire.FetchRequest) -> wire.FetchResponse:
        """Records of partitions that we lead: for followers all, for consumers those before the high watermark.

        Waits up to ``max_wait_ms`` for ``min_bytes``; responds at once to an error or a divergence. A throttled
        partition has no records for a follower outside the ISR while the quota is exceeded (KIP-73).
        """
        if request.max_wait_ms < 0 or request.max_bytes < 0:
            return wire.FetchResponse(error_code=codes.INVALID_REQUEST)
        fetch = _Fetch(request, request.replica_id if request.HasField("replica_id") else None)
        deadline = asyncio.get_running_loop().time() + min(request.max_wait_ms, WAIT_MAX_MS) / 1000
        self._read_some(fetch, range(len(request.partitions)), first=True)
        if not self._answerable(fetch, deadline):
            await self._wait(fetch, deadline)
        answers = [read.answer for read in fetch.reads if read.include]
        if fetch.follower is not None:
            for answer in answers:
                self._quota.record((answer.topic, answer.partition), len(answer.records))
        return wire.FetchResponse(partitions=answers)

    def _answerable(self, fetch: _Fetch, deadline: float) -> bool:
        return (
            (fetch.size > 0 and fetch.size >= fetch.request.min_bytes)
            or fetch.urgent
            or not fetch.reads
            or asyncio.get_running_loop().time() >= deadline
            or self._manager.stopped
        )

    async def _wait(self, fetch: _Fetch, deadline: float) -> None:
        """Wait until there is enough. Only changed partitions are read again: a follower may fetch thousands."""
        places: dict[Key, list[int]] = {}
        for place, item in enumerate(fetch.request.partitions):
            places.setdefault((item.topic, item.partition), []).append(place)
        waiters = self._manager.fetch_waiters
        waiting = waiters.enter(list(places))
        try:
            while not self._answerable(fetch, deadline):
                for key in await waiting.changed(deadline):
                    self._read_some(fetch, places[key], first=False)
        finally:
            waiters.leave(waiting)

    def _read_some(self, fetch: _Fetch, places: Iterable[int], first: bool) -> None:
        """Read the partitions at these places of the request. ``first``: it is the first read, of all partitions."""
        if first:
            fetch.reads.extend([_NOTHING] * len(fetch.request.partitions))
        items, bytes_max = fetch.request.partitions, fetch.request.max_bytes
        for place in places:
            item = items[place]
            fetch.size -= len(fetch.reads[place].answer.records)
            remaining = max(bytes_max - fetch.size, 0)
            try:
                read = self._read(fetch, item, min(item.partition_max_bytes, remaining), first)
            except (PartitionError, LogError) as error:
                read = _Read(self._not_fetched(item, error), urgent=True, include=True)
            fetch.reads[place] = read
            fetch.size += len(read.answer.records)
            fetch.urgent = fetch.urgent or read.urgent

    def _read(self, fetch: _Fetch, item: wire.FetchPartition, max_bytes: int, first: bool) -> _Read:
        partition = self._led(item)
        if item.partition_max_bytes < 0:
            reason = f"partition_max_bytes is {item.partition_max_bytes}: must be 0 or more"
            raise PartitionError(codes.INVALID_REQUEST, reason)
        log = partition.log
        answer = wire.FetchedPartition(
            topic=item.topic, partition=item.partition, log_start_offset=log.log_start_offset
        )
        if item.HasField("last_fetched_epoch"):
            diverging = partition.divergence(item.fetch_offset, item.last_fetched_epoch)
            if diverging is not None:
                answer.high_watermark = partition.high_watermark
                answer.diverging_epoch.epoch = diverging.epoch
                answer.diverging_epoch.end_offset = diverging.end_offset
                return _Read(answer, urgent=True, include=True)
        if self._is_held_back(partition, fetch.follower):
            max_bytes = 0
        end = log.log_end_offset if fetch.follower is not None else partition.high_watermark
        # Read even when no bytes are left: the read checks the offset.
        records = self._read_log(partition, item.fetch_offset, max_bytes, end if max_bytes > 0 else 0)
        if fetch.follower is not None and first:
            # Only after the read: an offset out of range does not show what the follower has.
            epoch = fetch.request.replica_epoch
            self._manager.follower_fetched(
                partition, fetch.follower, item.fetch_offset, epoch, item.replica_directory
            )
        answer.records = records
        answer.high_watermark = partition.high_watermark
        changed = bool(records) or answer.high_watermark != item.high_watermark
        return _Read(answer, urgent=False, include=fetch.follower is None or changed)

    def _is_held_back(self, partition: Partition, follower: int | None) -> bool:
        return (
            follower is not None
            and follower not in partition.isr
            and self._quota.is_exceeded()
            and self._quota.is_throttled(partition.key)
        )

    def _read_log(self, partition: Partition, offset: int, max_bytes: int, end: int) -> bytes:
        try:
            return partition.log.read(offset, max_bytes, end)
        except LogError as error:
            self._failed(partition, error)
            raise

    def _failed(self, partition: Partition, error: LogError) -> None:
        """Take the replica offline if its disk failed (section 10.1, step 7)."""
        if error.error_code == codes.KAFKA_STORAGE_ERROR:
            self._manager.fail(partition.key, str(error))

    def _not_fetched(self, item: wire.FetchPartition, error: BrokerError) -> wire.FetchedPartition:
        leader, epoch = self._leader_hint(item.topic, item.partition)
        return wire.FetchedPartition(
            topic=item.topic,
            partition=item.partition,
            error_code=error_of(error),
            error_message=str(error),
            high_watermark=-1,
            log_start_offset=-1,
            leader=leader,
            leader_epoch=epoch,
        )

    # offsets

    async def list_offsets(self, request: wire.ListOffsetsRequest) -> wire.ListOffsetsResponse:
        """The start offset, the end offset, or the first record at or after a timestamp (KIP-79)."""
        of_replica = request.HasField("replica_id")
        return wire.ListOffsetsResponse(
            partitions=[self._list_offset(item, of_replica) for item in request.partitions]
        )

    def _list_offset(self, item: wire.ListOffsetsPartition, of_replica: bool) -> wire.ListedOffset:
        answer = wire.ListedOffset(
            topic=item.topic, partition=item.partition, timestamp=-1, offset=-1, leader_epoch=-1
        )
        try:
            partition = self._led(item)
            log = partition.log
            if item.timestamp == EARLIEST:
                answer.offset = log.log_start_offset
                answer.leader_epoch = partition.leader_epoch
            elif item.timestamp < EARLIEST:
                reason = f"timestamp is {item.timestamp}: must be -2, -1 or ms since 1970"
                raise PartitionError(codes.INVALID_REQUEST, reason)
            else:
                end = log.log_end_offset if of_replica else partition.consumer_end()
                if item.timestamp == LATEST:
                    answer.offset, answer.leader_epoch = end, partition.leader_epoch
                elif (found := self._search(partition, item.timestamp, end)) is not None:
                    answer.timestamp, answer.offset, answer.leader_epoch = found
        except (PartitionError, LogError) as error:
            answer.error_code = error_of(error)
        return answer

    def _search(self, partition: Partition, timestamp_ms: int, end: int) -> TimestampOffset | None:
        try:
            return partition.log.offset_for_timestamp(timestamp_ms, end)
        except LogError as error:
            self._failed(partition, error)
            raise

    async def offsets_for_leader_epoch(
        self, request: wire.OffsetsForLeaderEpochRequest
    ) -> wire.OffsetsForLeaderEpochResponse:
        """The end offsets of leader epochs, for followers and consumers that look for a divergence (KIP-101, KIP-320).

        It is the end in the log, committed or not, for consumers too. A new leader's high watermark can be lower for
        a while than what consumers have read from the former leader; they would take those records for lost.
        """
        answers = []
        for item in request.partitions:
            answer = wire.OffsetForLeaderEpoch(
                topic=item.topic, partition=item.partition, leader_epoch=-1, end_offset=-1
            )
            try:
                partition = self._led(item)
                end = partition.log.end_offset_for_epoch(item.leader_epoch)
                answer.leader_epoch, answer.end_offset = end.epoch, end.end_offset
            except (PartitionError, LogError) as error:
                answer.error_code = error_of(error)
            answers.append(answer)
        return wire.OffsetsForLeaderEpochResponse(partitions=answers)

    # Metadata

    async def metadata(self, request: wire.MetadataRequest) -> wire.MetadataResponse:
        """Live brokers and topics from the metadata cache (section 10.2)."""
        cache = self._metadata
        brokers = []
        for broker_id, broker in sorted(cache.live_brokers.items()):
            address = cache.address(broker_id)
            if address is not None:
                host, port = address
                brokers.append(
                    wire.MetadataBroker(broker_id=broker_id, host=host, port=port, rack=broker.rack or "")
                )
        topics = list(dict.fromkeys(request.topics)) or cache.topics()
        return wire.MetadataResponse(
            controller_id=cache.controller_id,
            brokers=brokers,
            topics=[self._topic_metadata(topic) for topic in topics],
        )

    def _topic_metadata(self, topic: str) -> wire.MetadataTopic:
        if topic_name_problem(topic):
            return wire.MetadataTopic(topic=topic[:249], error_code=codes.INVALID_TOPIC_EXCEPTION)
        found = self._metadata.partitions(topic)
        if not found:
            return wire.MetadataTopic(topic=topic, error_code=codes.UNKNOWN_TOPIC_OR_PARTITION)
        partitions = []
        for item in found:
            reachable = self._metadata.address(item.leader) is not None
            listener_missing = not reachable and self._metadata.is_live(item.leader)
            error = codes.LISTENER_NOT_FOUND if listener_missing else codes.LEADER_NOT_AVAILABLE
            partitions.append(
                wire.MetadataPartition(
                    error_code=codes.NONE if reachable else error,
                    partition=item.key[1],
                    leader=item.leader if reachable else NO_LEADER,
                    leader_epoch=item.leader_epoch,
                    replicas=item.replicas,
                    isr=item.isr,
                    offline_replicas=item.offline_replicas,
                )
            )
        return wire.MetadataTopic(
            topic=topic,
            topic_id=self._metadata.topic_id(topic) or "",
            is_internal=topic == OFFSETS_TOPIC,
            partitions=partitions,
        )


def _produced(
    item: wire.ProducePartition, partition: Partition, appended: Appended
) -> wire.ProducedPartition:
    return wire.ProducedPartition(
        topic=item.topic,
        partition=item.partition,
        base_offset=appended.first_offset,
        log_start_offset=partition.log.log_start_offset,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
    )
