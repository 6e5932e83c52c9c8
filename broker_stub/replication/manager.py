"""The replica manager: applies role changes, appends, fetches and ISR changes to hosted partitions.

Reference, section 10.1. Everything runs on one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from broker_stub.control.replicas import Replica, Role, Transition
from broker_stub.control.requests import Key, partition_name
from broker_stub.errors import BrokerError
from broker_stub.log.errors import LogError, LogFault
from broker_stub.log.interface import Appended, Log
from broker_stub.replication.fetcher import Fetchers, Following
from broker_stub.replication.isr import IsrProposer
from broker_stub.replication.partition import Partition, PartitionError
from broker_stub.replication.ports import IsrProposal, IsrResult, IsrWriter
from broker_stub.replication.waiting import AckWaiters, FetchWaiters
from proto.gen import common_pb2 as codes
from proto.tasks import end_all

_log = structlog.get_logger("broker_stub.replication.manager")

#: Role changes applied before yielding to the loop.
_PARTITIONS_PER_YIELD = 200


class Logs(Protocol):
    """The logs of hosted replicas (`broker_stub.log.directory.LogDirectory`)."""

    def open(self, key: Key) -> Log:
        """The log of a hosted partition; the first call opens it. Raises LogError."""
        ...

    def forget(self, key: Key) -> None:
        """Close the log: its folder was removed or is no longer used."""
        ...


class TopicSettings(Protocol):
    """The topic configuration that replication uses."""

    def min_isr(self, topic: str) -> int | None:
        """``min.insync.replicas``; None: not known yet, a read has been started."""
        ...

    def forget(self, topic: str) -> None:
        """Drop a topic that this broker no longer hosts: the next topic of that name may be another one."""
        ...


class LeadershipListener(Protocol):
    """Notified when this broker becomes or stops being leader of a topic's partitions (section 10.3)."""

    def on_election(self, partition: int, leader_epoch: int) -> None: ...

    def on_resignation(self, partition: int, leader_epoch: int | None) -> None: ...


@dataclass(frozen=True)
class Dependencies:
    """What the replica manager depends on. ``now_ms``: a monotonic clock in milliseconds.

    ``isr_changed`` is called after each durable ISR change of a partition we lead, with the ISR before; ``failed`` when
    a log failed.
    """

    broker_id: int
    logs: Logs
    topics: TopicSettings
    isr_writer: IsrWriter
    is_alive: Callable[[int], bool]
    now_ms: Callable[[], int]
    isr_changed: Callable[[Partition, tuple[int, ...]], None]
    failed: Callable[[Key, str], None]
    lag_max_ms: int = 30_000
    #: The short id of the data directory of a hosted replica; 0: the broker has only one.
    directory_of: Callable[[Key], int] = lambda _key: 0


class ReplicaManager:
    """All partitions of one broker. Not thread-safe: used on the event loop only."""

    def __init__(
        self,
        dependencies: Dependencies,
        following: Callable[[Callable[[Key, str], None]], Following],
        high_watermarks: dict[Key, int],
    ) -> None:
        """``following(failed)`` makes what the fetchers share. ``high_watermarks``: those of the checkpoint."""
        self._deps = dependencies
        self._high_watermarks = high_watermarks
        self._partitions: dict[Key, Partition] = {}
        self._by_topic: dict[str, dict[int, Partition]] = {}
        #: Partitions whose disk failed; they stay offline until the broker restarts.
        self._offline: set[Key] = set()
        self._proposer = IsrProposer(dependencies.isr_writer, self._is_current, self._on_isr_result)
        self._fetchers = Fetchers(following(self.fail))
        #: Background tasks. One that ends before `stop` has a bug.
        self.tasks: list[asyncio.Task[None]] = []
        self.fetch_waiters = FetchWaiters()
        self.ack_waiters = AckWaiters()
        #: Leadership listeners by topic.
        self.listeners: dict[str, LeadershipListener] = {}
        #: Set by the first LeaderAndIsr: before it not all partitions are known (section 10.1, step 8).
        self.notified = asyncio.Event()
        #: ``stopping``: no more appends. ``stopped``: no request waits any more.
        self.stopping = self.stopped = False

    # lifecycle

    def start(self) -> None:
        create = asyncio.get_running_loop().create_task
        self.tasks = [
            create(self._proposer.run(), name="isr-proposer"),
            create(self._shrink_isrs(), name="isr-shrinker"),
        ]

    async def stop_fetching(self) -> None:
        """Stop appending, as follower and as leader."""
        self.stopping = True
        await self._fetchers.stop()

    async def stop(self) -> None:
        """End the background tasks; waiting requests end with NOT_LEADER_OR_FOLLOWER."""
        await self.stop_fetching()
        await end_all(self.tasks)
        self.stopped = True
        for key in list(self._partitions):
            self._wake_all(key, codes.NOT_LEADER_OR_FOLLOWER)

    # reading

    def get(self, key: Key) -> Partition | None:
        return self._partitions.get(key)

    def require(self, topic: str, number: int) -> Partition:
        """A hosted partition. Raises PartitionError UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR."""
        found = self._partitions.get((topic, number))
        if found is not None:
            return found
        if (topic, number) in self._offline:
            raise PartitionError(codes.KAFKA_STORAGE_ERROR, f"{topic}-{number} is offline: its disk failed")
        raise PartitionError(
            codes.UNKNOWN_TOPIC_OR_PARTITION,
            f"broker {self._deps.broker_id} hosts no partition {partition_name(topic, number)}",
        )

    def partitions(self) -> list[Partition]:
        return list(self._partitions.values())

    def high_watermarks(self) -> dict[Key, int]:
        """For the checkpoint: those of partitions with a role, else those of the last checkpoint."""
        return self._high_watermarks | {p.key: p.high_watermark for p in self._partitions.values()}

    def describe(self) -> dict[str, Any]:
        """JSON-ready, for crash dumps."""
        return {
            "followed": self._fetchers.describe(),
            "partitions": [
                {
                    "topic": p.key[0],
                    "partition": p.key[1],
                    "leader": p.leader,
                    "leader_epoch": p.leader_epoch,
                    "isr": p.isr,
                    "proposed_isr": p.proposed_isr,
                    "high_watermark": p.high_watermark,
                    "log_start_offset": p.log.log_start_offset,
                    "log_end_offset": p.log.log_end_offset,
                }
                for _, p in sorted(self._partitions.items())
            ],
        }

    # roles

    async def apply(self, transitions: Sequence[Transition]) -> dict[Key, str]:
        """Apply the role changes of a control request. Returns the partitions whose log failed, with the reason."""
        # First stop the fetches: a response that arrives during the changes must not be appended.
        self._fetchers.change([t.replica.key for t in transitions if self._ends_following(t)], [])
        failed: dict[Key, str] = {}
        follow: list[Partition] = []
        for number, transition in enumerate(transitions):
            key = transition.replica.key
            try:
                self._apply_one(transition, follow)
            except LogError as error:
                failed[key] = str(error)
                self._drop(key, codes.KAFKA_STORAGE_ERROR)
            if number % _PARTITIONS_PER_YIELD == _PARTITIONS_PER_YIELD - 1:
                await asyncio.sleep(0)
        # While this method yielded, a disk may have failed or the broker may have begun to stop.
        self._fetchers.change([], [p for p in follow if self.get(p.key) is p and not self.stopping])
        return failed

    def _ends_following(self, transition: Transition) -> bool:
        """Whether the present fetching of this partition must end: another role, or a new leader epoch."""
        if transition.to_role not in (Role.LEADER, Role.FOLLOWER):
            return transition.to_role is not Role.NONE
        partition = self._partitions.get(transition.replica.key)
        return partition is not None and transition.replica.leader_epoch > partition.leader_epoch

    def _apply_one(self, transition: Transition, follow: list[Partition]) -> None:
        state, role = transition.replica, transition.to_role
        key = state.key
        if role is Role.DELETED:
            self._high_watermarks.pop(key, None)
            self._offline.discard(key)
            # Not UNKNOWN_TOPIC_OR_PARTITION: for a waiting producer that would mean that nothing was appended.
            self._drop(key, codes.NOT_LEADER_OR_FOLLOWER)
            if key[0] not in self._by_topic:
                self._deps.topics.forget(key[0])
            self._resigned(key, None)
        elif role is Role.OFFLINE:
            self._drop(key, codes.KAFKA_STORAGE_ERROR)
            self._resigned(key, None)
        elif role is not Role.STOPPED:
            partition = self._partition(key)
            partition.topic_id = state.topic_id
            # A LeaderAndIsr without a newer epoch changes no role.
            if state.leader_epoch <= partition.leader_epoch:
                return
            if role is Role.LEADER:
                self._lead(partition, state)
            elif role is Role.FOLLOWER:
                self._follow(partition, state)
                follow.append(partition)

    def _partition(self, key: Key) -> Partition:
        partition = self._partitions.get(key)
        if partition is None:
            if key in self._offline:
                raise LogFault(f"{key[0]}-{key[1]}: the disk failed before")
            log = self._deps.logs.open(key)
            if key[0] not in self._by_topic:
                # What somebody asked of the name before may be of a former topic.
                self._deps.topics.forget(key[0])
            watermark = self._high_watermarks.pop(key, 0)
            partition = self._partitions[key] = Partition(key, self._deps.broker_id, log, watermark)
            partition.directory = self._deps.directory_of(key)
            self._by_topic.setdefault(key[0], {})[key[1]] = partition
        return partition

    def _lead(self, partition: Partition, state: Replica) -> None:
        changed = partition.make_leader(state, self._deps.now_ms())
        partition.min_isr = self._deps.topics.min_isr(partition.key[0])
        self._advance(partition)
        self.fetch_waiters.wake(partition.key)
        if changed:
            listener = self.listeners.get(partition.key[0])
            if listener is not None:
                listener.on_election(partition.key[1], state.leader_epoch)

    def _follow(self, partition: Partition, state: Replica) -> None:
        partition.make_follower(state)
        if not self.stopping:
            partition.forget_uncertain()
        self._wake_all(partition.key, codes.NOT_LEADER_OR_FOLLOWER)
        self._resigned(partition.key, state.leader_epoch)

    def _resigned(self, key: Key, leader_epoch: int | None) -> None:
        listener = self.listeners.get(key[0])
        if listener is not None:
            listener.on_resignation(key[1], leader_epoch)

    def _drop(self, key: Key, error: codes.ErrorCode) -> None:
        if self._partitions.pop(key, None) is not None:
            numbers = self._by_topic[key[0]]
            del numbers[key[1]]
            if not numbers:
                del self._by_topic[key[0]]
        if error == codes.KAFKA_STORAGE_ERROR:
            self._offline.add(key)
        self._deps.logs.forget(key)
        self._wake_all(key, error)

    def _wake_all(self, key: Key, error: codes.ErrorCode) -> None:
        self.ack_waiters.fail(key, error)
        self.fetch_waiters.wake(key)

    def fail(self, key: Key, why: str) -> None:
        """The disk failed for this replica: take it offline and report it, so that the controller is notified."""
        if key in self._partitions:
            self.take_offline(key)
            self._deps.failed(key, why)

    def take_offline(self, key: Key) -> None:
        """Stop serving this replica."""
        self._fetchers.change([key], [])
        self._drop(key, codes.KAFKA_STORAGE_ERROR)
        self._resigned(key, None)

    def config_changed(self, topic: str) -> None:
        """The topic's configuration was read."""
        least = self._deps.topics.min_isr(topic)
        for partition in self._by_topic.get(topic, {}).values():
            partition.min_isr = least
            self._advance(partition)

    # writing

    def append(self, partition: Partition, records: bytes, acks: int) -> Appended:
        """Append as leader. Raises PartitionError or LogError; a disk failure takes the replica offline."""
        partition.require_leader()
        if self.stopping:
            raise PartitionError(codes.NOT_LEADER_OR_FOLLOWER, "this broker is stopping")
        if acks == -1:
            partition.require_min_isr()
        try:
            appended = partition.log.append_as_leader(records, partition.leader_epoch)
        except LogError as error:
            if error.error_code == codes.KAFKA_STORAGE_ERROR:
                self.fail(partition.key, str(error))
            raise
        self._advance(partition)
        self.fetch_waiters.wake(partition.key)
        return appended

    def committed(
        self, partition: Partition, next_offset: int, timeout_s: float
    ) -> Awaitable[codes.ErrorCode]:
        """Wait until all in-sync replicas have everything before ``next_offset``. Returns NONE or an error.

        Call it without yielding to the loop after the append, or a role change in between goes unnoticed. On timeout:
        NOT_ENOUGH_REPLICAS_AFTER_APPEND if too few replicas are in sync, else REQUEST_TIMED_OUT.
        """
        future = self.ack_waiters.enter(partition.key, next_offset)
        if self.get(partition.key) is not partition or not partition.is_leader:
            future.set_result(codes.NOT_LEADER_OR_FOLLOWER)
        elif partition.high_watermark >= next_offset:
            future.set_result(codes.NONE)
        return self._outcome(partition, future, timeout_s)

    async def _outcome(
        self, partition: Partition, future: asyncio.Future[codes.ErrorCode], timeout_s: float
    ) -> codes.ErrorCode:
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            try:
                partition.require_min_isr()
            except PartitionError:
                return codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            return codes.REQUEST_TIMED_OUT

    # followers and the ISR

    def follower_fetched(
        self, partition: Partition, replica_id: int, offset: int, broker_epoch: int, directory: int
    ) -> None:
        """A follower has everything before ``offset``. Raises PartitionError when it is not a replica."""
        now, is_alive = self._deps.now_ms(), self._deps.is_alive
        partition.record_fetch(replica_id, offset, now, broker_epoch, directory)
        proposal = partition.propose_expansion(replica_id, now, is_alive)
        if proposal is not None:
            self._proposer.submit(proposal)
        self._advance(partition)

    def _advance(self, partition: Partition) -> None:
        deps = self._deps
        if not partition.is_leader:
            return
        if partition.advance_high_watermark(deps.now_ms(), deps.lag_max_ms, deps.is_alive):
            self.ack_waiters.committed(partition.key, partition.high_watermark)
            self.fetch_waiters.wake(partition.key)

    async def _shrink_isrs(self) -> None:
        pause_s = self._deps.lag_max_ms / 2 / 1000
        while True:
            await asyncio.sleep(pause_s)
            for number, partition in enumerate(self.partitions()):
                proposal = partition.propose_shrink(self._deps.now_ms(), self._deps.lag_max_ms)
                if proposal is not None:
                    _log.info(
                        "proposing a smaller ISR",
                        topic=partition.key[0],
                        partition=partition.key[1],
                        isr=partition.isr,
                        proposed=proposal.isr,
                    )
                    self._proposer.submit(proposal)
                elif (told := partition.propose_directories(self._deps.now_ms())) is not None:
                    self._proposer.submit(told)
                # A follower that lags outside the ISR no longer holds the high watermark back.
                self._advance(partition)
                if number % 1000 == 999:
                    await asyncio.sleep(0)

    def _is_current(self, proposal: IsrProposal) -> bool:
        partition = self._partitions.get(proposal.key)
        return partition is not None and partition.owns(proposal)

    def _on_isr_result(self, proposal: IsrProposal, result: IsrResult) -> None:
        partition = self._partitions.get(proposal.key)
        if partition is None or not partition.owns(proposal):
            return
        before = partition.isr
        told = {b: d for b, d in zip(proposal.isr, proposal.isr_directories, strict=False) if d}
        changed = partition.apply_isr_result(result, self._deps.now_ms(), told)
        if changed:
            self._deps.isr_changed(partition, before)
        elif result.error != codes.NONE:
            _log.warning(
                "ISR change refused",
                topic=proposal.key[0],
                partition=proposal.key[1],
                proposed=proposal.isr,
                error=codes.ErrorCode.Name(result.error),
            )
        self._advance(partition)


def error_of(error: BrokerError) -> codes.ErrorCode:
    """The error code for the response."""
    if isinstance(error, PartitionError | LogError):
        return error.error_code
    return codes.UNKNOWN_SERVER_ERROR
