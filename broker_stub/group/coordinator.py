"""The group coordinator: groups and offsets of the partitions that this broker leads, in memory and in the log.

`broker_stub.group.state` decides; this module executes. Callers wait on futures, group metadata and offsets become
visible only after they are in ``__consumer_offsets``, and one timer serves all groups. Runs on one event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, NamedTuple

import structlog

from broker_stub.control.requests import Key
from broker_stub.group import messages
from broker_stub.group.members import NO_MEMBER_ID, JoinRequest, JoinResult, SyncResult
from broker_stub.group.migration import CachedGroup, Groups, Migration
from broker_stub.group.offsets import GroupOffsets
from broker_stub.group.partitioner import partition_for
from broker_stub.group.ports import OffsetsLog, Records
from broker_stub.group.replay import RECORDS_PER_TURN
from broker_stub.group.settings import GroupSettings
from broker_stub.group.state import Effects, Group, GroupState
from broker_stub.group.timer import DeadlineTimer
from broker_stub.log import batches
from proto.gen import common_pb2 as codes
from proto.tasks import end_all, failures_to

#: Error of a write to the log, to the error sent to clients; other errors are sent unchanged.
STORE_ERRORS: Mapping[codes.ErrorCode, codes.ErrorCode] = {
    codes.UNKNOWN_TOPIC_OR_PARTITION: codes.COORDINATOR_NOT_AVAILABLE,
    codes.NOT_ENOUGH_REPLICAS: codes.COORDINATOR_NOT_AVAILABLE,
    codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND: codes.COORDINATOR_NOT_AVAILABLE,
    codes.REQUEST_TIMED_OUT: codes.COORDINATOR_NOT_AVAILABLE,
    codes.NOT_LEADER_OR_FOLLOWER: codes.NOT_COORDINATOR,
    codes.KAFKA_STORAGE_ERROR: codes.NOT_COORDINATOR,
    codes.MESSAGE_TOO_LARGE: codes.UNKNOWN_SERVER_ERROR,
    codes.RECORD_LIST_TOO_LARGE: codes.UNKNOWN_SERVER_ERROR,
    codes.INVALID_FETCH_SIZE: codes.UNKNOWN_SERVER_ERROR,
}
#: The same for offset commits, where it differs.
COMMIT_ERRORS: Mapping[codes.ErrorCode, codes.ErrorCode] = {
    codes.MESSAGE_TOO_LARGE: codes.INVALID_COMMIT_OFFSET_SIZE,
    codes.RECORD_LIST_TOO_LARGE: codes.INVALID_COMMIT_OFFSET_SIZE,
    codes.INVALID_FETCH_SIZE: codes.INVALID_COMMIT_OFFSET_SIZE,
}
_TOMBSTONES_PER_BATCH = 1_000

_log = structlog.get_logger("broker_stub.group")


class Commit(NamedTuple):
    """An offset to commit. ``leader_epoch`` -1: unknown."""

    offset: int
    leader_epoch: int
    metadata: str


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class GroupCoordinator:
    """Serves the groups of the owned partitions of ``__consumer_offsets``.

    ``new_id`` returns the unique suffix of a new member's id. ``on_bug`` receives unexpected exceptions of background
    tasks. ``clock_ms`` is monotonic, ``wall_ms`` is ms since 1970. Create and use it on one event loop.
    """

    def __init__(
        self,
        log: OffsetsLog,
        settings: GroupSettings,
        new_id: Callable[[], str],
        on_bug: Callable[[BaseException], None],
        clock_ms: Callable[[], int] = _monotonic_ms,
        wall_ms: Callable[[], int] = _wall_ms,
    ) -> None:
        self._offsets_log, self._settings = log, settings
        self._new_id, self._on_bug = new_id, on_bug
        self._clock_ms, self._wall_ms = clock_ms, wall_ms
        self._migration = Migration(
            log, settings.group_initial_rebalance_delay_ms, self._loaded, self._unloaded, on_bug
        )
        self.timer: DeadlineTimer[CachedGroup] = DeadlineTimer(clock_ms, self._expire)
        self._migrating: asyncio.Task[None] | None = None
        self._background: dict[asyncio.Task[Any], None] = {}

    # -- lifecycle ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start serving. Before `start` and after `stop` clients get COORDINATOR_NOT_AVAILABLE."""
        self._migrating = asyncio.create_task(self._migration.run(), name="group-migration")

    async def stop(self) -> None:
        """End the background tasks; waiting requests get COORDINATOR_NOT_AVAILABLE."""
        migrating, self._migrating = self._migrating, None
        await end_all([*self._background, *([migrating] if migrating else [])])
        for groups in self._migration.owned.values():
            self._unload(groups, codes.COORDINATOR_NOT_AVAILABLE)
        self._migration.owned.clear()
        self.timer.close()

    def on_election(self, partition: int, leader_epoch: int) -> None:
        """This broker became leader of a partition of ``__consumer_offsets``: load its groups.

        Ignored if the epoch is older than the last one handled, or the partition is owned already.
        """
        self._migration.on_election(partition, leader_epoch)

    def on_resignation(self, partition: int, leader_epoch: int | None) -> None:
        """This broker no longer leads the partition: unload its groups. Epoch None: the replica is gone."""
        self._migration.on_resignation(partition, leader_epoch)

    # -- requests -------------------------------------------------------------------------------------------

    def partition_of(self, group_id: str) -> int:
        """The partition of ``__consumer_offsets`` the group belongs to."""
        count = self._offsets_log.partition_count()
        return partition_for(group_id, count or self._settings.offsets_topic_num_partitions)

    async def join_group(self, group_id: str, request: JoinRequest) -> JoinResult:
        """JoinGroup; returns when the join phase of the rebalance is complete."""
        if error := self._refusal(group_id):
            return JoinResult(error, request.member_id)
        lowest = self._settings.group_min_session_timeout_ms
        if not lowest <= request.session_timeout_ms <= self._settings.group_max_session_timeout_ms:
            return JoinResult(codes.INVALID_SESSION_TIMEOUT, request.member_id)
        cached = self._find(group_id)
        if cached is None:
            if request.member_id != NO_MEMBER_ID:
                return JoinResult(codes.UNKNOWN_MEMBER_ID, request.member_id)
            cached = self._create(group_id)
        future: asyncio.Future[JoinResult] = asyncio.get_running_loop().create_future()
        new_member_id = f"{request.client_id}-{self._new_id()}"
        self._apply(cached, cached.group.join(request, new_member_id, future, self._clock_ms()))
        self._discard_if_unused(cached)
        try:
            return await future
        except asyncio.CancelledError:
            self._apply(cached, cached.group.abandon(future, self._clock_ms()))
            raise

    async def sync_group(
        self, group_id: str, member_id: str, generation_id: int, assignments: Mapping[str, bytes]
    ) -> SyncResult:
        """SyncGroup; returns when the leader's assignment is in the log."""
        if error := self._refusal(group_id):
            return SyncResult(
                codes.REBALANCE_IN_PROGRESS if error == codes.COORDINATOR_LOAD_IN_PROGRESS else error
            )
        cached = self._find(group_id)
        if cached is None:
            return SyncResult(codes.UNKNOWN_MEMBER_ID)
        future: asyncio.Future[SyncResult] = asyncio.get_running_loop().create_future()
        effects = cached.group.sync(member_id, generation_id, assignments, future, self._clock_ms())
        self._apply(cached, effects)
        return await future

    def heartbeat(self, group_id: str, member_id: str, generation_id: int) -> codes.ErrorCode:
        """Heartbeat. NONE during a load, so that members stay in the group."""
        if error := self._refusal(group_id):
            return codes.NONE if error == codes.COORDINATOR_LOAD_IN_PROGRESS else error
        cached = self._find(group_id)
        if cached is None:
            return codes.UNKNOWN_MEMBER_ID
        error, effects = cached.group.heartbeat(member_id, generation_id, self._clock_ms())
        self._apply(cached, effects)
        return error

    def leave_group(self, group_id: str, member_id: str) -> codes.ErrorCode:
        """LeaveGroup."""
        if error := self._refusal(group_id):
            return error
        cached = self._find(group_id)
        if cached is None:
            return codes.UNKNOWN_MEMBER_ID
        error, effects = cached.group.leave(member_id, self._clock_ms())
        self._apply(cached, effects)
        return error

    async def commit_offsets(
        self, group_id: str, member_id: str, generation_id: int, commits: Mapping[Key, Commit]
    ) -> tuple[codes.ErrorCode, dict[Key, codes.ErrorCode]]:
        """OffsetCommit. Returns the error of the whole request, and the error of each partition.

        An error of the whole request is also that of each partition. An invalid offset, epoch or metadata fails only
        its partition.
        """
        if error := self._refusal(group_id):
            return error, dict.fromkeys(commits, error)
        cached = self._find(group_id)
        if cached is None:
            if generation_id >= 0:
                return codes.ILLEGAL_GENERATION, dict.fromkeys(commits, codes.ILLEGAL_GENERATION)
            cached = self._create(group_id)
        error, effects = cached.group.check_commit(member_id, generation_id, self._clock_ms())
        self._apply(cached, effects)
        if error:
            return error, dict.fromkeys(commits, error)
        errors = {key: self._commit_error(key, commit) for key, commit in commits.items()}
        accepted = {key: commit for key, commit in commits.items() if not errors[key]}
        if accepted:
            error = await self._commit(cached, accepted)
            errors.update(dict.fromkeys(accepted, error))
        self._discard_if_unused(cached)
        return error, errors

    def fetch_offsets(
        self, group_id: str, keys: Collection[Key] | None
    ) -> tuple[codes.ErrorCode, list[tuple[Key, messages.OffsetValue | None]]]:
        """OffsetFetch: the offset of each partition, or None. ``keys`` None: all partitions with an offset."""
        if error := self._refusal(group_id):
            return error, []
        cached = self._find(group_id)
        if cached is None:
            return codes.NONE, [(key, None) for key in keys or ()]
        wanted = cached.offsets.partitions() if keys is None else keys
        return codes.NONE, [(key, cached.offsets.get(key)) for key in wanted]

    def forget_partitions(self, keys: Collection[Key]) -> None:
        """These partitions were deleted: delete their offsets in memory and in the log.

        A group that is Empty and has no other offset is deleted too.
        """
        deleted = frozenset(keys)
        self._migration.forget_when_loaded(deleted)
        for partition, groups in self._migration.owned.items():
            self._forget(partition, groups, deleted)

    def describe(self) -> dict[str, Any]:
        """JSON-ready: ``active``, ``owned``, ``loading``, ``load_problems`` by partition, ``groups`` by id."""
        return {
            "active": self._migrating is not None,
            "owned": sorted(self._migration.owned),
            "loading": sorted(self._migration.loading),
            "load_problems": {str(p): found for p, found in sorted(self._migration.load_problems.items())},
            "groups": {
                group_id: {
                    "partition": partition,
                    **cached.group.describe(),
                    "offsets": [
                        {"topic": key[0], "partition": key[1], "offset": value.offset}
                        for key in cached.offsets.partitions()
                        if (value := cached.offsets.get(key)) is not None
                    ],
                }
                for partition, groups in sorted(self._migration.owned.items())
                for group_id, cached in sorted(groups.items())
            },
        }

    # -- groups ---------------------------------------------------------------------------------------------

    def _refusal(self, group_id: str) -> codes.ErrorCode:
        """The error if this broker does not serve the group now; NONE if it does."""
        if not group_id:
            return codes.INVALID_GROUP_ID
        if self._migrating is None:
            return codes.COORDINATOR_NOT_AVAILABLE
        if self._offsets_log.partition_count() is None:
            return codes.NOT_COORDINATOR
        partition = self.partition_of(group_id)
        if partition in self._migration.loading:
            return codes.COORDINATOR_LOAD_IN_PROGRESS
        return codes.NONE if partition in self._migration.owned else codes.NOT_COORDINATOR

    def _find(self, group_id: str) -> CachedGroup | None:
        return self._migration.owned[self.partition_of(group_id)].get(group_id)

    def _create(self, group_id: str) -> CachedGroup:
        partition = self.partition_of(group_id)
        group = Group(group_id, self._settings.group_initial_rebalance_delay_ms)
        cached = CachedGroup(partition, group, GroupOffsets())
        self._migration.owned[partition][group_id] = cached
        return cached

    def _discard_if_unused(self, cached: CachedGroup) -> None:
        """Drop a group that was created for a request but has no members and no offsets."""
        group = cached.group
        if group.state is GroupState.EMPTY and group.generation_id == 0 and not cached.offsets:
            self._drop(cached)

    def _drop(self, cached: CachedGroup) -> None:
        del self._migration.owned[cached.partition][cached.group.group_id]
        self._apply(cached, cached.group.unload(codes.COORDINATOR_NOT_AVAILABLE))

    def _apply(self, cached: CachedGroup, effects: Effects) -> None:
        for token, result in effects.replies:
            assert isinstance(token, asyncio.Future)
            if not token.done():
                token.set_result(result)
        if effects.store is not None:
            self._spawn(self._store_group(cached, effects.store))
        self.timer.set(cached, cached.group.next_deadline_ms())

    def _expire(self, cached: CachedGroup) -> None:
        self._apply(cached, cached.group.expire(self._clock_ms()))

    # -- loading and unloading ------------------------------------------------------------------------------

    def _loaded(self, partition: int, groups: Groups, forgotten: Collection[Key]) -> None:
        if forgotten:
            self._forget(partition, groups, forgotten)
        self._spawn(self._start_sessions(list(groups.values())))

    async def _start_sessions(self, groups: list[CachedGroup]) -> None:
        for number, cached in enumerate(groups, start=1):
            self._apply(cached, cached.group.start_sessions(self._clock_ms()))
            if number % RECORDS_PER_TURN == 0:
                await asyncio.sleep(0)

    def _unloaded(self, groups: Groups) -> None:
        self._unload(groups, codes.NOT_COORDINATOR)

    def _unload(self, groups: Groups, error: codes.ErrorCode) -> None:
        for cached in groups.values():
            self._apply(cached, cached.group.unload(error))

    def _forget(self, partition: int, groups: Groups, keys: Collection[Key]) -> None:
        tombstones: list[messages.Key] = []
        for group_id, cached in list(groups.items()):
            removed = cached.offsets.remove(keys)
            tombstones += [messages.OffsetKey(group=group_id, topic=t, partition=p) for t, p in removed]
            if removed and cached.group.state is GroupState.EMPTY and not cached.offsets:
                self._drop(cached)
                if cached.group.generation_id > 0:
                    tombstones.append(messages.GroupKey(group=group_id))
        if tombstones:
            self._spawn(self._append_tombstones(partition, groups, tombstones))

    # -- the log --------------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, codes.ErrorCode | None]) -> asyncio.Task[Any]:
        """Run in the background. Tasks, and so their appends, begin in the order of these calls."""
        task = asyncio.create_task(work)
        self._background[task] = None
        task.add_done_callback(self._background.pop)
        task.add_done_callback(failures_to(self._on_bug))
        return task

    async def _append(self, partition: int, records: Records) -> codes.ErrorCode:
        """Append to the log. An unexpected exception becomes UNKNOWN_SERVER_ERROR, so that no caller waits for ever."""
        try:
            async with asyncio.timeout(self._settings.offsets_commit_timeout_ms / 1000):
                return await self._offsets_log.append(partition, batches.encode(records, self._wall_ms()))
        except TimeoutError:
            return codes.REQUEST_TIMED_OUT
        except Exception as error:  # noqa: BLE001  (reported)
            self._on_bug(error)
            return codes.UNKNOWN_SERVER_ERROR

    async def _store_group(self, cached: CachedGroup, value: messages.GroupValue) -> None:
        group = cached.group
        error: codes.ErrorCode = codes.NOT_COORDINATOR
        if group.state is not GroupState.DEAD:
            key = messages.GroupKey(group=group.group_id)
            found = await self._append(cached.partition, [(messages.encode(key), messages.encode(value))])
            error = STORE_ERRORS.get(found, found)
        if error:
            self._warn("group_not_stored", cached.partition, error, group=group.group_id)
        self._apply(cached, group.stored(value.generation_id, error, self._clock_ms()))

    async def _commit(self, cached: CachedGroup, commits: Mapping[Key, Commit]) -> codes.ErrorCode:
        now_ms = self._wall_ms()
        values = {
            key: messages.OffsetValue(
                offset=commit.offset,
                leader_epoch=commit.leader_epoch,
                metadata=commit.metadata,
                commit_timestamp_ms=now_ms,
            )
            for key, commit in commits.items()
        }
        # A separate task: a client that disconnects must not cancel the append.
        storing = self._spawn(self._store_offsets(cached, cached.offsets.begin(values), values))
        try:
            error: codes.ErrorCode = await asyncio.shield(storing)
        except asyncio.CancelledError:
            if not storing.cancelled():
                raise
            return codes.COORDINATOR_NOT_AVAILABLE
        return error

    async def _store_offsets(
        self, cached: CachedGroup, sequence: int, values: Mapping[Key, messages.OffsetValue]
    ) -> codes.ErrorCode:
        error: codes.ErrorCode = codes.NOT_COORDINATOR
        if cached.group.state is not GroupState.DEAD:
            group_id = cached.group.group_id
            records = [
                (
                    messages.encode(messages.OffsetKey(group=group_id, topic=t, partition=p)),
                    messages.encode(value),
                )
                for (t, p), value in values.items()
            ]
            found = await self._append(cached.partition, records)
            error = COMMIT_ERRORS.get(found, STORE_ERRORS.get(found, found))
        if error:
            cached.offsets.fail(sequence, values)
        else:
            cached.offsets.complete(sequence, values)
        return error

    async def _append_tombstones(self, partition: int, groups: Groups, keys: list[messages.Key]) -> None:
        for start in range(0, len(keys), _TOMBSTONES_PER_BATCH):
            if self._migration.owned.get(partition) is not groups:
                return
            records = [(messages.encode(key), None) for key in keys[start : start + _TOMBSTONES_PER_BATCH]]
            if error := await self._append(partition, records):
                self._warn("tombstones_not_stored", partition, error, tombstones=len(records))

    def _commit_error(self, key: Key, commit: Commit) -> codes.ErrorCode:
        if key[1] < 0 or commit.offset < 0 or commit.leader_epoch < -1 or not key[0]:
            return codes.INVALID_REQUEST
        too_long = len(commit.metadata.encode()) > self._settings.offset_metadata_max_bytes
        return codes.OFFSET_METADATA_TOO_LARGE if too_long else codes.NONE

    def _warn(self, event: str, partition: int, error: codes.ErrorCode, **what: object) -> None:
        _log.warning(event, partition=partition, error=codes.ErrorCode.Name(error), **what)
