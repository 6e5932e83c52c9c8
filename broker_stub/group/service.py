"""The group methods of `BrokerData`: translates messages and calls the coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker_stub.control.requests import Key
from broker_stub.errors import BrokerError
from broker_stub.group.coordinator import Commit, GroupCoordinator
from broker_stub.group.members import JoinRequest
from broker_stub.group.messages import OffsetValue
from broker_stub.group.partitioner import OFFSETS_TOPIC, partition_for
from broker_stub.group.ports import CoordinatorAddress, CoordinatorFinder, PartitionExists
from proto.gen import broker_data_pb2 as wire
from proto.gen import common_pb2 as codes
from proto.tasks import end_all

NO_OFFSET = -1
NO_LEADER_EPOCH = -1


class GroupService:
    """One method per RPC. ``exists``: whether a partition exists, so that offsets may be committed for it."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        finder: CoordinatorFinder,
        exists: PartitionExists,
        on_bug: Callable[[BaseException], None],
    ) -> None:
        self._coordinator, self._finder = coordinator, finder
        self._exists, self._on_bug = exists, on_bug
        self._creating: asyncio.Task[None] | None = None
        self._creation_failure = ""

    async def close(self) -> None:
        """Cancel an ongoing creation of the topic."""
        if self._creating is not None:
            await end_all([self._creating])

    async def find_coordinator(self, request: wire.FindCoordinatorRequest) -> wire.FindCoordinatorResponse:
        """The coordinator of a group. Starts the creation of the offsets topic if it does not exist.

        Errors: INVALID_GROUP_ID; COORDINATOR_NOT_AVAILABLE (try again later), with the reason in the message.
        """
        if not request.group_id:
            return _not_found(codes.INVALID_GROUP_ID, "group_id is empty: must name a group")
        count = self._finder.partition_count()
        if count is None:
            return _not_found(codes.COORDINATOR_NOT_AVAILABLE, self._create_topic())
        partition = partition_for(request.group_id, count)
        found = await self._finder.find(partition)
        if not isinstance(found, CoordinatorAddress):
            why = f"{OFFSETS_TOPIC}-{partition} has no coordinator: {codes.ErrorCode.Name(found)}"
            return _not_found(codes.COORDINATOR_NOT_AVAILABLE, why)
        return wire.FindCoordinatorResponse(broker_id=found.broker_id, host=found.host, port=found.port)

    async def join_group(self, request: wire.JoinGroupRequest) -> wire.JoinGroupResponse:
        """Responds when the rebalance has a new generation."""
        result = await self._coordinator.join_group(
            request.group_id,
            JoinRequest(
                request.member_id,
                request.client_id,
                request.session_timeout_ms,
                request.rebalance_timeout_ms,
                request.protocol_type,
                tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
            ),
        )
        return wire.JoinGroupResponse(
            error_code=result.error,
            generation_id=result.generation_id,
            protocol_type=result.protocol_type,
            protocol_name=result.protocol,
            leader=result.leader,
            member_id=result.member_id,
            members=[
                wire.GroupMember(member_id=member_id, metadata=metadata)
                for member_id, metadata in result.members
            ],
        )

    async def sync_group(self, request: wire.SyncGroupRequest) -> wire.SyncGroupResponse:
        """Responds when the leader's assignment is in the log."""
        result = await self._coordinator.sync_group(
            request.group_id,
            request.member_id,
            request.generation_id,
            {each.member_id: each.assignment for each in request.assignments},
        )
        return wire.SyncGroupResponse(error_code=result.error, assignment=result.assignment)

    async def heartbeat(self, request: wire.HeartbeatRequest) -> wire.HeartbeatResponse:
        error = self._coordinator.heartbeat(request.group_id, request.member_id, request.generation_id)
        return wire.HeartbeatResponse(error_code=error)

    async def leave_group(self, request: wire.LeaveGroupRequest) -> wire.LeaveGroupResponse:
        error = self._coordinator.leave_group(request.group_id, request.member_id)
        return wire.LeaveGroupResponse(error_code=error)

    async def offset_commit(self, request: wire.OffsetCommitRequest) -> wire.OffsetCommitResponse:
        """One error per partition; if a partition is named twice, the last entry is used.

        ``error_code`` is the error of the whole request; every existing partition then has it too. A partition that
        does not exist gets UNKNOWN_TOPIC_OR_PARTITION.
        """
        commits: dict[Key, Commit] = {}
        errors: dict[Key, codes.ErrorCode] = {}
        for each in request.offsets:
            key = (each.topic, each.partition)
            errors[key] = codes.UNKNOWN_TOPIC_OR_PARTITION
            if self._exists(each.topic, each.partition):
                commits[key] = Commit(each.offset, each.leader_epoch, each.metadata)
        error, found = await self._coordinator.commit_offsets(
            request.group_id, request.member_id, request.generation_id, commits
        )
        errors.update(found)
        return wire.OffsetCommitResponse(
            error_code=error,
            partition_errors=[
                codes.PartitionError(topic=topic, partition=partition, error_code=each_error)
                for (topic, partition), each_error in errors.items()
            ],
        )

    async def offset_fetch(self, request: wire.OffsetFetchRequest) -> wire.OffsetFetchResponse:
        """The committed offsets of the named partitions; of all partitions if none is named."""
        keys = [(each.topic, each.partition) for each in request.partitions]
        error, offsets = self._coordinator.fetch_offsets(request.group_id, keys or None)
        return wire.OffsetFetchResponse(
            error_code=error, offsets=[_committed_offset(key, value) for key, value in offsets]
        )

    def _create_topic(self) -> str:
        """Start the creation of the topic unless it is ongoing. Returns the message for the client."""
        if self._creating is None:
            self._creating = asyncio.create_task(self._finder.create_topic(), name="create-offsets-topic")
            self._creating.add_done_callback(self._created)
        failure = f"; the last try failed: {self._creation_failure}" if self._creation_failure else ""
        return f"{OFFSETS_TOPIC} is being created{failure}"

    def _created(self, task: asyncio.Task[None]) -> None:
        self._creating, self._creation_failure = None, ""
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, BrokerError):
            self._creation_failure = str(error)
        elif error is not None:
            self._creation_failure = f"{type(error).__name__}: {error}"
            self._on_bug(error)


def _not_found(error: codes.ErrorCode, message: str) -> wire.FindCoordinatorResponse:
    return wire.FindCoordinatorResponse(error_code=error, error_message=message, broker_id=-1, port=-1)


def _committed_offset(key: Key, value: OffsetValue | None) -> wire.CommittedOffset:
    if value is None:
        return wire.CommittedOffset(
            topic=key[0], partition=key[1], offset=NO_OFFSET, leader_epoch=NO_LEADER_EPOCH
        )
    return wire.CommittedOffset(
        topic=key[0],
        partition=key[1],
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )
