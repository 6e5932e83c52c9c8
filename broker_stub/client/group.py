"""A member of a consumer group: joins, gets its partitions, sends heartbeats, commits offsets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

from google.protobuf.message import Message

from broker_stub.client import assignor
from broker_stub.client.connection import Connections
from broker_stub.client.errors import (
    COORDINATOR_MOVED,
    ClientError,
    FatalError,
    MemberError,
    RetriableError,
    UnreachableError,
    error_of,
)
from broker_stub.client.metadata import Key, Metadata, backoff_s, retry
from proto.addresses import join_address
from proto.gen import broker_data_pb2 as wire
from proto.gen import common_pb2 as codes

CALL_TIMEOUT_S = 5.0


Answer = TypeVar("Answer", bound=Message)


class Membership(NamedTuple):
    """The state of the member in its group. ``generation`` -1: not a member now."""

    member_id: str = ""
    generation: int = -1
    leader: bool = False
    partitions: tuple[Key, ...] = ()


class Coordinator:
    """Calls a group's coordinator, and looks it up again when it has moved."""

    def __init__(self, connections: Connections, metadata: Metadata, group_id: str) -> None:
        self._connections, self._metadata = connections, metadata
        self.group_id = group_id
        self.address = ""

    async def _find(self) -> str:
        """Ask the known brokers for the coordinator's address. Raises RetriableError, FatalError."""
        if not self._metadata.view.brokers:
            await self._metadata.refresh()
        last: ClientError | None = None
        for address in sorted(self._metadata.view.brokers.values()):
            asked = f"coordinator of group {self.group_id!r} at {address}"
            try:
                answer = await self._connections.call(
                    address,
                    "FindCoordinator",
                    wire.FindCoordinatorRequest(group_id=self.group_id),
                    wire.FindCoordinatorResponse,
                    CALL_TIMEOUT_S,
                )
                if answer.error_code:
                    raise error_of(answer.error_code, asked, answer.error_message)
            except RetriableError as error:
                last = error
                continue
            return join_address(answer.host, answer.port)
        await self._metadata.try_refresh()
        raise last or RetriableError(
            codes.COORDINATOR_NOT_AVAILABLE, f"coordinator of group {self.group_id!r}", "no broker is known"
        )

    async def ask(
        self, method: str, request: Message, answer: type[Answer], timeout_s: float = CALL_TIMEOUT_S
    ) -> Answer:
        """One request. Raises RetriableError (coordinator moved, loading or unreachable), MemberError, FatalError."""
        if not self.address:
            self.address = await self._find()
        asked = f"{method} of group {self.group_id!r} at {self.address}"
        try:
            response = await self._connections.call(self.address, method, request, answer, timeout_s)
        except UnreachableError:
            self.address = ""
            raise
        code: int = getattr(response, "error_code")  # noqa: B009  (all responses here have it; Message does not declare it)
        if code in COORDINATOR_MOVED:
            self.address = ""
        if code:
            raise error_of(code, asked)
        return response


async def commit_offsets(
    coordinator: Coordinator, membership: Membership, offsets: Mapping[Key, int], timeout_s: float
) -> None:
    """Commit offsets of the next records to read. A default Membership: a client without a group membership.

    Raises MemberError, GaveUpError, FatalError.
    """
    request = wire.OffsetCommitRequest(
        group_id=coordinator.group_id,
        generation_id=membership.generation,
        member_id=membership.member_id,
        offsets=[
            wire.CommittedOffset(topic=topic, partition=partition, offset=offset, leader_epoch=-1)
            for (topic, partition), offset in sorted(offsets.items())
        ],
    )

    async def ask() -> None:
        response = await coordinator.ask("OffsetCommit", request, wire.OffsetCommitResponse)
        for item in response.partition_errors:
            if item.error_code:
                raise error_of(item.error_code, f"OffsetCommit of {item.topic}-{item.partition}")

    await retry(ask, timeout_s)


async def fetch_offsets(coordinator: Coordinator, keys: Sequence[Key], timeout_s: float) -> dict[Key, int]:
    """Committed offsets of those partitions that have one. Raises GaveUpError, FatalError."""
    request = wire.OffsetFetchRequest(
        group_id=coordinator.group_id,
        partitions=[wire.TopicPartition(topic=topic, partition=partition) for topic, partition in keys],
    )

    async def ask() -> dict[Key, int]:
        response = await coordinator.ask("OffsetFetch", request, wire.OffsetFetchResponse)
        found = {}
        for item in response.offsets:
            if item.error_code:
                raise error_of(item.error_code, f"OffsetFetch of {item.topic}-{item.partition}")
            if item.offset >= 0:
                found[item.topic, item.partition] = item.offset
        return found

    return await retry(ask, timeout_s)


class GroupMember:
    """Stays in its group until closed, through rebalances and moves of the coordinator.

    ``bootstrap``: addresses, host:port. ``on_assigned`` is called with the membership after each rebalance, ``on_lost``
    when its partitions must no longer be read, before the next join. Both run in the member's own task, so ``on_lost``
    can still commit in the old generation. ``failure`` is set when the member ended with an error that is not
    retriable. A rebalance happens when members join or leave, not when a topic gets more partitions.
    """

    def __init__(
        self,
        bootstrap: Sequence[str],
        group_id: str,
        topics: Sequence[str],
        *,
        client_id: str = "client",
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 30_000,
        heartbeat_interval_ms: int = 1_000,
        on_assigned: Callable[[Membership], Awaitable[None]] | None = None,
        on_lost: Callable[[Membership], Awaitable[None]] | None = None,
        connections: Connections | None = None,
    ) -> None:
        self._connections = connections or Connections()
        self.metadata = Metadata(self._connections, bootstrap)
        self._coordinator = Coordinator(self._connections, self.metadata, group_id)
        self._topics, self._client_id = sorted(set(topics)), client_id
        self._session_timeout_ms, self._rebalance_timeout_ms = session_timeout_ms, rebalance_timeout_ms
        self._interval_s = heartbeat_interval_ms / 1000
        self._on_assigned, self._on_lost = on_assigned, on_lost
        self.membership = Membership()
        self.failure: ClientError | None = None
        self._changed = asyncio.Condition()
        self._rejoin = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> GroupMember:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def start(self) -> None:
        """Join in the background."""
        self._task = asyncio.create_task(self._run())

    async def until(self, reached: Callable[[Membership], bool], timeout_s: float) -> Membership:
        """Wait until ``reached(membership)``. Raises TimeoutError, or the member's ``failure``."""
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(lambda: self.failure is not None or reached(self.membership))
        if self.failure is not None:
            raise self.failure
        return self.membership

    async def joined(self, timeout_s: float = 30.0) -> Membership:
        """Wait until the member is in a generation. Raises as `until`."""
        return await self.until(lambda membership: membership.generation >= 0, timeout_s)

    async def commit(self, offsets: Mapping[Key, int], timeout_s: float = 10.0) -> None:
        """Commit in this generation. Raises MemberError (the generation is over), GaveUpError, FatalError."""
        membership = self.membership
        if membership.generation < 0:
            asked = f"OffsetCommit of group {self._coordinator.group_id!r}"
            raise MemberError(codes.UNKNOWN_MEMBER_ID, asked, "not joined")
        try:
            await commit_offsets(self._coordinator, membership, offsets, timeout_s)
        except MemberError:
            self._rejoin.set()
            raise

    async def committed(self, keys: Sequence[Key], timeout_s: float = 10.0) -> dict[Key, int]:
        """Committed offsets of those partitions that have one. Raises GaveUpError, FatalError."""
        return await fetch_offsets(self._coordinator, keys, timeout_s)

    async def close(self) -> None:
        """Leave the group, so that the other members need not wait for the session timeout."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self.membership.member_id and self.failure is None:
            request = wire.LeaveGroupRequest(
                group_id=self._coordinator.group_id, member_id=self.membership.member_id
            )
            with suppress(ClientError):  # The session timeout will remove the member.
                await self._coordinator.ask("LeaveGroup", request, wire.LeaveGroupResponse, 2.0)
        self.membership = Membership()
        await self.metadata.close()
        await self._connections.close()

    # --- in the background -----------------------------------------------------------------------------------

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                try:
                    await self._set(await self._join())
                    failures = 0
                    await self._send_heartbeats()
                except MemberError as error:
                    forget = error.code == codes.UNKNOWN_MEMBER_ID
                    await self._lose("" if forget else self.membership.member_id)
                    # Pause: a coordinator that always refuses must not be called in a tight loop.
                    await asyncio.sleep(backoff_s(0))
            except RetriableError:
                failures += 1
                await asyncio.sleep(backoff_s(failures))
            except (FatalError, assignor.AssignmentError) as error:
                await self._fail(error)
                return

    async def _fail(self, error: ClientError | assignor.AssignmentError) -> None:
        asked = f"membership in group {self._coordinator.group_id!r}"
        if not isinstance(error, ClientError):
            error = FatalError(codes.INCONSISTENT_GROUP_PROTOCOL, asked, str(error))
        await self._lose("")
        async with self._changed:
            self.failure = error
            self._changed.notify_all()

    async def _set(self, membership: Membership) -> None:
        if self._on_assigned is not None:
            await self._on_assigned(membership)
        async with self._changed:
            self.membership = membership
            self._changed.notify_all()

    async def _lose(self, member_id: str) -> None:
        """The partitions are no longer ours. ``member_id``: id for the next join."""
        lost = self.membership
        try:
            if lost.generation >= 0 and self._on_lost is not None:
                with suppress(MemberError):  # What it commits comes too late: others have the partitions.
                    await self._on_lost(lost)
        finally:
            async with self._changed:
                self.membership = Membership(member_id=member_id)
                self._changed.notify_all()

    async def _join(self) -> Membership:
        """Join and sync, once. Raises ClientError."""
        self._rejoin.clear()
        request = wire.JoinGroupRequest(
            group_id=self._coordinator.group_id,
            member_id=self.membership.member_id,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            protocol_type=assignor.PROTOCOL_TYPE,
            protocols=[
                wire.GroupProtocol(name=assignor.RANGE, metadata=assignor.encode_subscription(self._topics))
            ],
            client_id=self._client_id,
        )
        # The response comes when all members have joined, or the rebalance timeout has removed the others.
        wait_s = self._rebalance_timeout_ms / 1000 + CALL_TIMEOUT_S
        joined = await self._coordinator.ask("JoinGroup", request, wire.JoinGroupResponse, wait_s)
        self.membership = Membership(member_id=joined.member_id)
        leads = joined.leader == joined.member_id
        sync = wire.SyncGroupRequest(
            group_id=self._coordinator.group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=await self._assign(joined) if leads else [],
        )
        synced = await self._coordinator.ask("SyncGroup", sync, wire.SyncGroupResponse, wait_s)
        partitions = tuple(assignor.decode_assignment(synced.assignment))
        return Membership(joined.member_id, joined.generation_id, leads, partitions)

    async def _assign(self, joined: wire.JoinGroupResponse) -> list[wire.GroupAssignment]:
        """What the leader of a group gives out: the partitions of each member."""
        subscriptions = {m.member_id: assignor.decode_subscription(m.metadata) for m in joined.members}
        await self.metadata.refresh()
        topics = {topic for wanted in subscriptions.values() for topic in wanted}
        known = {topic: self.metadata.view.partitions(topic) for topic in topics}
        assigned = assignor.assign_ranges(subscriptions, known)
        return [
            wire.GroupAssignment(member_id=member, assignment=assignor.encode_assignment(partitions))
            for member, partitions in assigned.items()
        ]

    async def _send_heartbeats(self) -> None:
        """Send heartbeats until the generation is over; then raises MemberError.

        Retries an unreachable coordinator until the session timeout has passed.
        """
        request = wire.HeartbeatRequest(
            group_id=self._coordinator.group_id,
            generation_id=self.membership.generation,
            member_id=self.membership.member_id,
        )
        answered = time.monotonic()
        failures = 0
        while not self._rejoin.is_set():
            try:
                await self._coordinator.ask("Heartbeat", request, wire.HeartbeatResponse)
                answered, failures = time.monotonic(), 0
                pause = self._interval_s
            except RetriableError as error:
                if time.monotonic() - answered > self._session_timeout_ms / 1000:
                    asked = f"membership in group {self._coordinator.group_id!r}"
                    raise MemberError(codes.UNKNOWN_MEMBER_ID, asked, str(error)) from error
                failures += 1
                pause = backoff_s(failures)
            await self._pause(pause)
        raise MemberError(codes.REBALANCE_IN_PROGRESS, f"membership in group {self._coordinator.group_id!r}")

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._rejoin.wait()
        except TimeoutError:
            return
