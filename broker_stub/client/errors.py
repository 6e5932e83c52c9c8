"""The exceptions of the client library.

::

    ClientError                 carries the error code, the request and its receiver
    ├── RetriableError          a retry, perhaps at another broker, can succeed
    │   └── UnreachableError    no response; ``sent``: the request may have been received
    └── FatalError              a retry fails again
        ├── GaveUpError         the timeout has passed; the message has the last error
        ├── DeliveryError       records were not acknowledged; carries how many copies may exist
        ├── OffsetRangeError    a position outside the log, and the reset policy is ``error``
        ├── TruncatedError      records that were read are lost, and the reset policy is ``error``
        └── MemberError         the group does not know this member, or not in this generation
"""

from __future__ import annotations

from proto.error_names import error_name
from proto.gen import common_pb2 as codes

#: A retry, after a metadata refresh, can succeed (reference, section 10.4).
RETRIABLE = frozenset(
    {
        codes.CORRUPT_MESSAGE,
        codes.UNKNOWN_TOPIC_OR_PARTITION,
        codes.LEADER_NOT_AVAILABLE,
        codes.NOT_LEADER_OR_FOLLOWER,
        codes.REQUEST_TIMED_OUT,
        codes.BROKER_NOT_AVAILABLE,
        codes.REPLICA_NOT_AVAILABLE,
        codes.NETWORK_EXCEPTION,
        codes.COORDINATOR_LOAD_IN_PROGRESS,
        codes.COORDINATOR_NOT_AVAILABLE,
        codes.NOT_COORDINATOR,
        codes.NOT_ENOUGH_REPLICAS,
        codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        codes.KAFKA_STORAGE_ERROR,
        codes.FENCED_LEADER_EPOCH,
        codes.UNKNOWN_LEADER_EPOCH,
        codes.OFFSET_NOT_AVAILABLE,
        codes.UNKNOWN_TOPIC_ID,
    }
)
#: The broker returns these errors before it appends: no copy of the records exists.
NOT_APPENDED = frozenset(
    {
        codes.CORRUPT_MESSAGE,
        codes.UNKNOWN_TOPIC_OR_PARTITION,
        codes.LEADER_NOT_AVAILABLE,
        codes.NOT_ENOUGH_REPLICAS,
        codes.MESSAGE_TOO_LARGE,
        codes.RECORD_LIST_TOO_LARGE,
        codes.INVALID_REQUIRED_ACKS,
        codes.INVALID_TOPIC_EXCEPTION,
        codes.INVALID_REQUEST,
        codes.INVALID_RECORD,
        codes.TOPIC_AUTHORIZATION_FAILED,
        codes.FENCED_LEADER_EPOCH,
        codes.UNKNOWN_LEADER_EPOCH,
    }
)
#: A member that gets one of these joins its group again.
REJOIN = frozenset({codes.REBALANCE_IN_PROGRESS, codes.UNKNOWN_MEMBER_ID, codes.ILLEGAL_GENERATION})
#: After one of these the client looks up the coordinator again.
COORDINATOR_MOVED = frozenset({codes.NOT_COORDINATOR, codes.COORDINATOR_NOT_AVAILABLE})


class ClientError(Exception):
    """Base class. ``code`` is an ErrorCode; ``asked`` describes the request and its receiver."""

    def __init__(self, code: int, asked: str, detail: str = "") -> None:
        self.code, self.asked, self.detail = code, asked, detail
        super().__init__(f"{asked}: {error_name(code)}{f' ({detail})' if detail else ''}")


class RetriableError(ClientError):
    """A retry, perhaps at another broker, can succeed."""


class UnreachableError(RetriableError):
    """No response. ``sent`` False: there was no connection, so the broker received nothing."""

    def __init__(self, asked: str, detail: str, *, sent: bool) -> None:
        self.sent = sent
        super().__init__(codes.NETWORK_EXCEPTION, asked, detail)


class FatalError(ClientError):
    """A retry fails again."""


class GaveUpError(FatalError):
    """The timeout of an operation with retries has passed."""


class DeliveryError(FatalError):
    """Records were not acknowledged. ``attempts``: how many copies of them may exist in the log."""

    def __init__(self, code: int, asked: str, detail: str, attempts: int) -> None:
        self.attempts = attempts
        super().__init__(code, asked, detail)


class OffsetRangeError(FatalError):
    """A position is outside the log."""


class TruncatedError(FatalError):
    """Records that were read, up to ``position``, are lost. ``end_offset``: where the log diverges from them."""

    def __init__(self, asked: str, position: int, end_offset: int) -> None:
        self.position, self.end_offset = position, end_offset
        super().__init__(
            codes.OFFSET_OUT_OF_RANGE, asked, f"read up to {position}, but the log now ends at {end_offset}"
        )


class MemberError(FatalError):
    """The group does not know this member in this generation: it must join again."""


def error_of(code: int, asked: str, detail: str = "") -> ClientError:
    """The exception for an error code in a response."""
    if code in RETRIABLE:
        return RetriableError(code, asked, detail)
    if code in REJOIN:
        return MemberError(code, asked, detail)
    if code == codes.OFFSET_OUT_OF_RANGE:
        return OffsetRangeError(code, asked, detail)
    return FatalError(code, asked, detail)
