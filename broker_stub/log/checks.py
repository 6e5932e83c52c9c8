"""The checks of leader and follower before they store batches. Pure; shared by all implementations of ``Log``."""

from __future__ import annotations

from broker_stub.log import batches
from broker_stub.log.errors import (
    CorruptMessage,
    InvalidRecord,
    MessageTooLarge,
    OffsetOutOfRange,
    OutOfSequence,
)


def for_leader(records: bytes, message_max_bytes: int) -> list[batches.Batch]:
    """The batches of a client, each checked: whole, undamaged, within the size limit, consistent with its header.

    Raises CorruptMessage, InvalidRecord, MessageTooLarge at the first bad batch.
    """
    if not records:
        raise InvalidRecord("no batch: must be at least one")
    found = []
    try:
        for batch in batches.iterate(records):
            if batch.end - batch.start > message_max_bytes:
                raise MessageTooLarge(
                    f"at {batch.start}: the batch has {batch.end - batch.start} bytes: "
                    f"message_max_bytes allows {message_max_bytes}"
                )
            batches.body_of(records, batch)
            found.append(batch)
    except batches.BadRecordsError as error:
        raise InvalidRecord(str(error)) from error
    except batches.BatchError as error:
        raise CorruptMessage(str(error)) from error
    return found


def for_follower(records: bytes, next_offset: int, latest_epoch: int) -> list[batches.Batch]:
    """The batches that continue a log which ends at ``next_offset``, without those the log already has.

    ``latest_epoch`` -1: the log has no epoch. Records are not decoded: the leader has checked them. Raises
    CorruptMessage, InvalidRecord, OutOfSequence.
    """
    found: list[batches.Batch] = []
    try:
        for batch in batches.iterate(records):
            if batch.next_offset <= next_offset and not found:
                continue
            if problem := sequence_problem(batch, next_offset, latest_epoch):
                raise OutOfSequence(f"at {batch.start}: {problem}")
            next_offset, latest_epoch = batch.next_offset, batch.leader_epoch
            found.append(batch)
    except batches.BadRecordsError as error:
        raise InvalidRecord(str(error)) from error
    except batches.BatchError as error:
        raise CorruptMessage(str(error)) from error
    return found


def sequence_problem(batch: batches.Batch, next_offset: int, latest_epoch: int) -> str:
    """Why a batch cannot continue a log that ends at ``next_offset``; empty when it can."""
    if batch.base_offset != next_offset:
        return f"base_offset is {batch.base_offset}: the log continues at {next_offset}"
    if batch.leader_epoch < max(latest_epoch, 0):
        return f"leader_epoch is {batch.leader_epoch}: must be {max(latest_epoch, 0)} or more"
    return ""


def leader_epoch(epoch: int, latest_epoch: int | None) -> None:
    """Raises OutOfSequence when ``epoch`` is below the latest one."""
    least = latest_epoch or 0
    if epoch < least:
        raise OutOfSequence(f"leader epoch is {epoch}: must be {least} or more")


def readable(offset: int, log_start_offset: int, log_end_offset: int) -> None:
    """Raises OffsetOutOfRange."""
    if not log_start_offset <= offset <= log_end_offset:
        raise OffsetOutOfRange(
            f"offset {offset} is not in the log: it goes from {log_start_offset} to {log_end_offset}"
        )
