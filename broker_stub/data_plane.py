"""The broker's data side: connects logs, replication and groups on the event loop.

The control thread decides control requests (`broker_stub.control.handlers`). The data plane applies their
decisions on the loop before the response is sent.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import structlog
from google.protobuf.message import Message

from broker_stub.control.handlers import ControlHandlers
from broker_stub.control.replicas import IsrChange, Transition
from broker_stub.control.requests import Key
from broker_stub.data_dirs import DataDirs
from broker_stub.group.coordinator import GroupCoordinator
from broker_stub.group.service import GroupService
from broker_stub.log.directories import LogDirectories
from broker_stub.log.directory import LogDirectory
from broker_stub.offsets_topic import OffsetsTopic
from broker_stub.replication.dynamic_configs import ThrottleRates, TopicConfigs
from broker_stub.replication.fetcher import FetchSettings, Following
from broker_stub.replication.manager import Dependencies, ReplicaManager
from broker_stub.replication.partition import Partition
from broker_stub.replication.ports import IsrWriter
from broker_stub.replication.service import OFFSETS_TOPIC, DataService
from broker_stub.replication.throttle import Quotas, ReplicationQuota
from broker_stub.rpc.peers import Peers
from broker_stub.rpc.server import DataMethod
from broker_stub.settings import Settings
from broker_stub.zookeeper.client import ClusterStore
from broker_stub.zookeeper.codecs import ConfigKind
from broker_stub.zookeeper.isr_writers import AlterPartitionWriter, NotificationWriter
from proto.gen import broker_control_pb2 as control
from proto.security.grpc_channels import GrpcTls
from proto.tasks import end_all, failures_to

_log = structlog.get_logger("broker_stub.data_plane")
#: Replicas looked at before others have a turn.
_PER_YIELD = 1000


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class RoleBridge:
    """Passes role changes from the control thread to the loop and blocks until the logs have applied them."""

    def __init__(self) -> None:
        self._data: DataPlane | None = None

    def connect(self, data: DataPlane | None) -> None:
        """Set the data plane; None: there is none."""
        self._data = data

    def apply(self, cause: str, transitions: Sequence[Transition]) -> dict[Key, str]:
        data = self._data
        if data is None:
            return {}
        return asyncio.run_coroutine_threadsafe(data.apply(cause, transitions), data.loop).result()

    def on_disk(self, topics: Collection[str]) -> list[control.LogDirReplica]:
        data = self._data
        if data is None:
            return []
        return asyncio.run_coroutine_threadsafe(data.on_disk(topics), data.loop).result()

    def metadata_changed(self, removed: Sequence[Key]) -> None:
        data = self._data
        if data is not None:
            data.loop.call_soon_threadsafe(data.metadata_changed, list(removed))


class DataPlane:
    """Must be created inside the running loop. ``on_bug`` receives exceptions of background tasks."""

    def __init__(
        self,
        settings: Settings,
        logs: LogDirectories,
        data_dirs: DataDirs,
        handlers: ControlHandlers,
        store: ClusterStore,
        control_worker: Executor,
        on_bug: Callable[[BaseException], None],
        tls: GrpcTls | None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._settings, self._logs, self._handlers = settings, logs, handlers
        self._data_dirs = data_dirs
        self._store, self._worker, self._on_bug = store, control_worker, on_bug
        self.peers = Peers(tls)
        configs = self._configs = TopicConfigs(
            store.topic_config, settings.broker_id, settings.min_insync_replicas, self._config_changed
        )
        self._quotas = Quotas(
            ReplicationQuota(configs.throttled_as_leader, monotonic_ms),
            ReplicationQuota(configs.throttled_as_follower, monotonic_ms),
        )
        self._throttle_rates = ThrottleRates(store.broker_config, settings.broker_id, self._quotas)
        self._isr_writer = self._make_isr_writer()
        self.manager = ReplicaManager(self._dependencies(), self._following, logs.high_watermarks)
        self.service = DataService(self.manager, handlers.metadata, self._configs.known, self._quotas.leader)
        self.coordinator, self._groups = self._make_groups()
        self.manager.listeners[OFFSETS_TOPIC] = self.coordinator
        #: Addresses of the brokers that the last metadata listed as live: calls to any other are cancelled.
        self._broker_addresses: set[tuple[str, int] | None] = set()
        #: A dict, not a set: it keeps the order in which the tasks began.
        self._tasks: dict[asyncio.Task[None], None] = {}

    def _make_groups(self) -> tuple[GroupCoordinator, GroupService]:
        settings, metadata = self._settings, self._handlers.metadata
        topic = self._offsets = OffsetsTopic(
            self.manager,
            metadata,
            self._store.create_topic,
            self._store.partition_count,
            settings.offsets_commit_timeout_ms / 1000,
            settings.offsets_topic_num_partitions,
            settings.offsets_topic_replication_factor,
        )
        coordinator = GroupCoordinator(topic, settings, lambda: str(uuid.uuid4()), self._on_bug)

        def exists(topic: str, partition: int) -> bool:
            return metadata.partition(topic, partition) is not None

        return coordinator, GroupService(coordinator, topic, exists, self._on_bug)

    def _make_isr_writer(self) -> IsrWriter:
        settings, gate = self._settings, self._handlers.gate
        if settings.alter_partition_supported:
            return AlterPartitionWriter(
                self.peers, self._store, settings.broker_id, lambda: gate.broker_epoch
            )
        return NotificationWriter(self._store, settings.broker_id, monotonic_ms)

    def _dependencies(self) -> Dependencies:
        return Dependencies(
            broker_id=self._settings.broker_id,
            logs=self._logs,
            topics=self._configs,
            isr_writer=self._isr_writer,
            is_alive=self._handlers.metadata.is_live,
            now_ms=monotonic_ms,
            isr_changed=self._isr_changed,
            failed=lambda key, why: self._failed([key], why),
            lag_max_ms=self._settings.replica_lag_time_max_ms,
            directory_of=self._data_dirs.directory_of,
        )

    def _following(self, failed: Callable[[Key, str], None]) -> Following:
        settings, gate = self._settings, self._handlers.gate
        fetch = FetchSettings(
            wait_max_ms=settings.replica_fetch_wait_max_ms,
            min_bytes=settings.replica_fetch_min_bytes,
            max_bytes=settings.replica_fetch_max_bytes,
            response_max_bytes=settings.replica_fetch_response_max_bytes,
            backoff_ms=settings.replica_fetch_backoff_ms,
            truncation_on_fetch=settings.truncation_on_fetch,
        )
        return Following(
            settings.broker_id,
            self.peers,
            self._handlers.metadata.address,
            lambda: gate.broker_epoch,
            fetch,
            failed,
            self._on_bug,
            self._quotas.follower,
        )

    # lifecycle

    def start(self) -> None:
        """Start the background tasks."""
        self._store.watch_config_changes(
            {ConfigKind.TOPIC: self._configs.invalidate, ConfigKind.BROKER: self._throttle_rates.changed}
        )
        self.manager.start()
        self.coordinator.start()
        if isinstance(self._isr_writer, NotificationWriter):
            self._begin(self._isr_writer.run(), "isr-notifier")
        self._begin(self._keep_checkpoints(), "checkpoints")
        if self._settings.log_flush_interval_ms is not None:
            self._begin(self._keep_flushed(self._settings.log_flush_interval_ms / 1000), "flusher")
        for task in self.manager.tasks:
            task.add_done_callback(failures_to(self._on_bug))

    def _begin(self, work: Any, name: str) -> None:
        task: asyncio.Task[None] = self.loop.create_task(work, name=name)
        task.add_done_callback(failures_to(self._on_bug))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def methods(self) -> dict[str, DataMethod]:
        """The methods of ``BrokerData`` by name."""
        data, groups = self.service, self._groups
        handlers: dict[str, Callable[[Any], Awaitable[Message]]] = {
            "Produce": data.produce,
            "Fetch": data.fetch,
            "ListOffsets": data.list_offsets,
            "OffsetsForLeaderEpoch": data.offsets_for_leader_epoch,
            "Metadata": data.metadata,
            "FindCoordinator": groups.find_coordinator,
            "JoinGroup": groups.join_group,
            "SyncGroup": groups.sync_group,
            "Heartbeat": groups.heartbeat,
            "LeaveGroup": groups.leave_group,
            "OffsetCommit": groups.offset_commit,
            "OffsetFetch": groups.offset_fetch,
        }
        return {name: DataMethod(name, handler) for name, handler in handlers.items()}

    async def stop_following(self) -> None:
        """Stop fetching from leaders: nothing is appended as a follower after this."""
        await self.manager.stop_fetching()

    async def stop(self) -> None:
        """Stop replication and complete waiting requests. The logs stay open: the control thread may still use them."""
        await end_all(self._tasks)
        await self._groups.close()
        await self.coordinator.stop()
        await self.manager.stop()
        await self._configs.close()
        await self._throttle_rates.close()
        await self.peers.close()

    def close_logs(self) -> Mapping[Path, OSError | None]:
        """Last step of a clean shutdown. Returns the data directories in which all is on stable storage, and those
        that failed, with the error."""
        for path in self._data_dirs.failed:
            self._logs.drop(path)
        return self._logs.close(self.manager.high_watermarks())

    # effects of control requests on the data

    async def apply(self, cause: str, transitions: Sequence[Transition]) -> dict[Key, str]:
        """Apply role changes. Returns the partitions whose log failed, with the reason."""
        failed = await self.manager.apply(transitions)
        if cause == "LeaderAndIsr":
            self.manager.notified.set()
        return failed

    async def on_disk(self, topics: Collection[str]) -> list[control.LogDirReplica]:
        """Sizes of the replicas of these topics, or of all."""
        found: list[control.LogDirReplica] = []
        for number, p in enumerate(self.manager.partitions()):
            if not topics or p.key[0] in topics:
                lag = max(p.high_watermark - p.log.log_end_offset, 0)
                topic, partition = p.key
                found.append(
                    control.LogDirReplica(
                        topic=topic, partition=partition, size_bytes=p.log.size_bytes, offset_lag=lag
                    )
                )
            if number % _PER_YIELD == _PER_YIELD - 1:
                await asyncio.sleep(0)
        return found

    def metadata_changed(self, removed: list[Key]) -> None:
        """The metadata cache changed; ``removed`` partitions are being or were deleted (section 10.2, "UMR")."""
        if removed:
            self.coordinator.forget_partitions(removed)
        self._offsets.metadata_changed(removed)
        metadata = self._handlers.metadata
        if self._offsets.partition_count() is None and metadata.partitions(OFFSETS_TOPIC):
            self._begin(self._offsets.learn(), "offsets-partitions")
        present = {metadata.address(broker_id) for broker_id in list(metadata.live_brokers)}
        gone = self._broker_addresses - present
        self._broker_addresses = present
        if not gone.isdisjoint(self.peers.addresses):
            self._begin(self.peers.retain(self.peers.addresses - gone), "peers")

    def _config_changed(self, topic: str) -> None:
        self.manager.config_changed(topic)

    # effects of the data on the control side

    def _isr_changed(self, partition: Partition, before: tuple[int, ...]) -> None:
        change = IsrChange(
            partition.key, before, partition.isr, partition.leader_epoch, partition.partition_epoch
        )
        self._on_worker(self._handlers.isr_changed, change)

    def _failed(self, keys: Sequence[Key], why: str) -> None:
        self._on_worker(self._handlers.replicas_failed, keys, why)

    def _on_worker(self, work: Callable[..., None], *arguments: Any) -> None:
        """Run on the control thread, in order with the requests."""
        self._worker.submit(work, *arguments).add_done_callback(failures_to(self._on_bug))

    # background work

    async def _keep_checkpoints(self) -> None:
        """Periodically write checkpoints and detect removed folders and directories (section 10.1, step 8)."""
        await self.manager.notified.wait()
        interval_s = self._settings.replica_high_watermark_checkpoint_interval_ms / 1000
        while True:
            await asyncio.sleep(interval_s)
            for directory in self._logs.working():
                if directory.path in self._data_dirs.failed:
                    self._drop(directory.path)
                    continue
                if lost := self._data_dirs.lost(directory.path):
                    self._directory_failed(directory.path, lost)
                    continue
                try:
                    await self._checkpoint(directory, directory.recovery_points())
                    missing = directory.missing()
                except OSError as error:
                    self._directory_failed(
                        directory.path, f"data directory {directory.path}: {error.strerror or error}"
                    )
                    continue
                hosted = [key for key in missing if self.manager.get(key) is not None]
                for key in hosted:
                    self.manager.take_offline(key)
                if hosted:
                    self._failed(hosted, "the log folder was removed")

    async def _checkpoint(self, directory: LogDirectory, points: Mapping[Key, int]) -> None:
        """Write the checkpoints. Raises OSError.

        Completes even when cancelled: closing the logs writes the same files, and two threads must not do so at once.
        """
        watermarks = self._logs.own(directory, self.manager.high_watermarks())
        work = asyncio.to_thread(directory.checkpoint, watermarks, points)
        thread = asyncio.ensure_future(work)
        try:
            await asyncio.shield(thread)
        except asyncio.CancelledError:
            await asyncio.wait([thread])
            if not thread.cancelled():
                thread.exception()
            raise

    def _directory_failed(self, path: Path, why: str) -> None:
        self._drop(path)
        self._on_worker(self._handlers.directory_failed, path, why)

    def _drop(self, path: Path) -> None:
        for key in self._logs.drop(path):
            self.manager.take_offline(key)

    async def _keep_flushed(self, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            for key, why in self._logs.flush().items():
                self.manager.fail(key, why)

    def describe(self) -> dict[str, Any]:
        """JSON-ready, for crash dumps."""
        return {"replication": self.manager.describe(), "groups": self.coordinator.describe()}
