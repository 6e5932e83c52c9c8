"""The members of a group: protocols, waiting requests, session timeouts; the choice of the protocol. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from broker_stub.group.messages import StoredMember, StoredProtocol
from proto.gen import common_pb2 as codes

#: A new member whose join waits longer than this is removed: it sends no heartbeats meanwhile.
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000

NO_GENERATION = -1
NO_MEMBER_ID = ""


class JoinRequest(NamedTuple):
    """A JoinGroup request. ``protocols``: name and metadata, most preferred first; ``member_id`` empty: new."""

    member_id: str
    client_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]


class JoinResult(NamedTuple):
    """Response to a join. ``members``, for the leader only: member id and metadata for the chosen protocol."""

    error: codes.ErrorCode
    member_id: str
    generation_id: int = NO_GENERATION
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: tuple[tuple[str, bytes], ...] = ()


class SyncResult(NamedTuple):
    """Response to a sync."""

    error: codes.ErrorCode
    assignment: bytes = b""


class Member:
    """One member. A token identifies the caller of a waiting request; None: no request waits."""

    __slots__ = (
        "assignment", "client_id", "is_new", "join_token", "member_id", "protocols", "rebalance_timeout_ms",
        "session_deadline_ms", "session_timeout_ms", "sync_token",
    )  # fmt: skip

    def __init__(self, member_id: str, request: JoinRequest) -> None:
        self.member_id = member_id
        self.client_id = request.client_id
        self.assignment = b""
        #: Its first join has no response yet, so it does not know its id and cannot send heartbeats.
        self.is_new = True
        self.join_token: object | None = None
        self.sync_token: object | None = None
        #: None: the session has not started since the group was loaded.
        self.session_deadline_ms: int | None = None
        self.update(request)

    def update(self, request: JoinRequest) -> None:
        """Take the values of a join request. A rebalance timeout of 0 or less means the session timeout."""
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = (
            request.rebalance_timeout_ms if request.rebalance_timeout_ms > 0 else request.session_timeout_ms
        )
        self.protocols = _by_name(request.protocols)

    @classmethod
    def restore(cls, stored: StoredMember) -> Member:
        """A member from the log; its session has not started."""
        member = cls(
            stored.member_id,
            JoinRequest(
                stored.member_id,
                stored.client_id,
                stored.session_timeout_ms,
                stored.rebalance_timeout_ms,
                "",
                tuple((protocol.name, protocol.metadata) for protocol in stored.protocols),
            ),
        )
        member.assignment = stored.assignment
        member.is_new = False
        return member

    def stored(self, assignment: bytes) -> StoredMember:
        """The member as stored in the log, with this assignment."""
        return StoredMember(
            self.member_id,
            self.client_id,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            tuple(StoredProtocol(name, metadata) for name, metadata in self.protocols.items()),
            assignment,
        )

    def supports_exactly(self, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Whether these are its protocols, metadata and order included."""
        return list(self.protocols.items()) == list(_by_name(protocols).items())

    def restart_session(self, now_ms: int) -> None:
        self.session_deadline_ms = now_ms + self.session_timeout_ms

    def expires_at_ms(self) -> int | None:
        """When the member is removed; None: no deadline now. A waiting request suspends it, except for a new member."""
        if not self.is_new and (self.join_token is not None or self.sync_token is not None):
            return None
        return self.session_deadline_ms

    def describe(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "client_id": self.client_id,
            "session_timeout_ms": self.session_timeout_ms,
            "rebalance_timeout_ms": self.rebalance_timeout_ms,
            "protocols": list(self.protocols),
            "assignment_bytes": len(self.assignment),
            "awaits": "join"
            if self.join_token is not None
            else "sync"
            if self.sync_token is not None
            else None,
        }


def _by_name(protocols: tuple[tuple[str, bytes], ...]) -> dict[str, bytes]:
    """In order of preference; a protocol named twice counts once, at its first place."""
    found: dict[str, bytes] = {}
    for name, metadata in protocols:
        found.setdefault(name, metadata)
    return found


def common_protocols(members: Collection[Member]) -> set[str]:
    """Names of the protocols that all members support."""
    counts = Counter(name for member in members for name in member.protocols)
    return {name for name, count in counts.items() if count == len(members)}


def choose_protocol(members: Mapping[str, Member], leader: str) -> str:
    """The protocol, among those that all members support, that most members prefer; a tie follows the leader's order.

    Needs at least one member and one common protocol.
    """
    candidates = common_protocols(members.values())
    votes = Counter(next(n for n in m.protocols if n in candidates) for m in members.values())
    order = [name for name in members[leader].protocols if name in candidates]
    return max(order, key=lambda name: votes[name])
