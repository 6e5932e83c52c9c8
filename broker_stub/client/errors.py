"""What the client library raises on purpose.

::

    ClientError                 carries the error code and what was asked of whom
    ├── RetriableError          asking again, perhaps somebody else, can help
    │   └── UnreachableError    no answer came; ``sent`` tells whether the request may have been received
    └── FatalError              asking again gets the same answer
        ├── GaveUpError         the time given for it has passed; its last error is told
        ├── DeliveryError       records were not acknowledged; tells how many copies may exist
        ├── OffsetRangeError    a position outside the log, and the reset policy is ``error``
        ├── TruncatedError      records that were read are gone, and the reset policy is ``error``
        └── MemberError         the group does not know this member, or not in this generation
"""

from __future__ import annotations

from proto.gen import common_pb2 as codes

#: Another try, after a metadata refresh, can succeed (reference, section 10.4).
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
#: The broker refuses these before it appends anything: no copy can exist.
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
        codes.FENCED_LEADER_EPOCH,
        codes.UNKNOWN_LEADER_EPOCH,
    }
)
#: A member that gets one of these joins its group anew.
REJOIN = frozenset({codes.REBALANCE_IN_PROGRESS, codes.UNKNOWN_MEMBER_ID, codes.ILLEGAL_GENERATION})
#: The group is looked for anew.
COORDINATOR_MOVED = frozenset({codes.NOT_COORDINATOR, codes.COORDINATOR_NOT_AVAILABLE})


def code_name(code: int) -> str:
    """``NOT_LEADER_OR_FOLLOWER`` for 6; the number itself for one we have no name for."""
    value = codes.ErrorCode.DESCRIPTOR.values_by_number.get(code)
    return value.name if value is not None else str(code)


class ClientError(Exception):
    """Base of all. ``code`` is an ErrorCode; ``asked`` says what was asked of whom."""

    def __init__(self, code: int, asked: str, detail: str = "") -> None:
        self.code, self.asked, self.detail = code, asked, detail
        super().__init__(f"{asked}: {code_name(code)}{f' ({detail})' if detail else ''}")


class RetriableError(ClientError):
    """Asking again, perhaps another broker, can help."""


class UnreachableError(RetriableError):
    """No answer. ``sent`` False: no connection could be made, so nothing was received."""

    def __init__(self, asked: str, detail: str, *, sent: bool) -> None:
        self.sent = sent
        super().__init__(codes.NETWORK_EXCEPTION, asked, detail)


class FatalError(ClientError):
    """Asking again gets the same answer."""


class GaveUpError(FatalError):
    """The time given for something has passed."""


class DeliveryError(FatalError):
    """Records were not acknowledged. ``attempts`` is how many copies of them may exist all the same: 0, none."""

    def __init__(self, code: int, asked: str, detail: str, attempts: int) -> None:
        self.attempts = attempts
        super().__init__(code, asked, detail)


class OffsetRangeError(FatalError):
    """A position is not in the log."""


class TruncatedError(FatalError):
    """Records up to a position that was read are gone. ``end_offset``: where the log forks from what was read."""

    def __init__(self, asked: str, position: int, end_offset: int) -> None:
        self.position, self.end_offset = position, end_offset
        super().__init__(
            codes.OFFSET_OUT_OF_RANGE, asked, f"was read to {position}, now ends at {end_offset}"
        )


class MemberError(FatalError):
    """The group does not know this member in this generation: it joins anew."""


def error_of(code: int, asked: str, detail: str = "") -> ClientError:
    """The exception for an error code in an answer."""
    if code in RETRIABLE:
        return RetriableError(code, asked, detail)
    if code in REJOIN:
        return MemberError(code, asked, detail)
    if code == codes.OFFSET_OUT_OF_RANGE:
        return OffsetRangeError(code, asked, detail)
    return FatalError(code, asked, detail)
