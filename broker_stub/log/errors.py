"""The errors of a log.

::

    BrokerError
    └── LogError              carries the error code for the response to the client
        ├── CorruptMessage    CORRUPT_MESSAGE: not a batch, a wrong checksum, or truncated
        ├── InvalidRecord     INVALID_RECORD: an undamaged batch whose records contradict its header
        ├── MessageTooLarge   MESSAGE_TOO_LARGE: a batch above message_max_bytes
        ├── OffsetOutOfRange  OFFSET_OUT_OF_RANGE: a read below the log's start or above its end
        ├── OutOfSequence     UNKNOWN_SERVER_ERROR: a gap, an overlap, or a decreasing leader epoch
        ├── LogFault          KAFKA_STORAGE_ERROR: the disk failed or returned damaged data
        └── CheckpointFault   KAFKA_STORAGE_ERROR: a checkpoint file is damaged

A call that raises leaves the log unchanged. After a LogFault of an append, a truncation or a flush the log
also refuses every later change, because only recovery can tell what the disk holds.
"""
# ruff: noqa: N818  the names are those of the error codes

from __future__ import annotations

from typing import ClassVar

from broker_stub.errors import BrokerError
from proto.gen import common_pb2 as codes


class LogError(BrokerError):
    """Base of the errors of a log. ``error_code`` goes into the response to the client."""

    error_code: ClassVar[codes.ErrorCode] = codes.UNKNOWN_SERVER_ERROR


class CorruptMessage(LogError):
    """Bytes that are not a whole batch; the message names position, field and what is allowed."""

    error_code = codes.CORRUPT_MESSAGE


class InvalidRecord(LogError):
    """A batch whose records do not decode or contradict its header."""

    error_code = codes.INVALID_RECORD


class MessageTooLarge(LogError):
    """A batch larger than the log's ``message_max_bytes``."""

    error_code = codes.MESSAGE_TOO_LARGE


class OffsetOutOfRange(LogError):
    """An offset below the log's start or above its end."""

    error_code = codes.OFFSET_OUT_OF_RANGE


class OutOfSequence(LogError):
    """Offsets that do not continue the log, or a leader epoch below the log's latest."""

    error_code = codes.UNKNOWN_SERVER_ERROR


class LogFault(LogError):
    """The disk failed or returned damaged data; the message names the file and the reason."""

    error_code = codes.KAFKA_STORAGE_ERROR


class CheckpointFault(LogError):
    """A checkpoint file is unreadable; the message names file, line, field and what is allowed."""

    error_code = codes.KAFKA_STORAGE_ERROR
