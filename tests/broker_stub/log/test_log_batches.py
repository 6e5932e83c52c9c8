"""Batches: nothing damaged is taken for whole, and each refusal says why with the right error code."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_stub.log import batches, checks
from broker_stub.log.errors import CorruptMessage, InvalidRecord, LogError, MessageTooLarge, OutOfSequence
from proto.gen import broker_data_pb2 as wire
from proto.gen import common_pb2 as codes

RECORD = st.tuples(st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=50))
WHOLE = batches.encode([(b"key", b"value"), (None, None)], 1000)
MAX = 10**6


@given(st.lists(RECORD, min_size=1, max_size=10), st.integers(-1, 2**40), st.integers(0, 2**40))
def test_records_come_back(
    records: list[tuple[bytes | None, bytes | None]], timestamp: int, offset: int
) -> None:
    data = batches.encode(records, timestamp, offset, 4)
    decoded = list(batches.decode(data))
    assert [(record.key, record.value) for record in decoded] == records
    assert [record.offset for record in decoded] == list(range(offset, offset + len(records)))
    assert {(record.timestamp, record.leader_epoch) for record in decoded} == {(timestamp, 4)}


def flips(first: int, last: int) -> list[bytes]:
    """WHOLE at offset 1000, once for every bit of bytes ``first`` to before ``last``, with that bit flipped."""
    stamped, _ = batches.stamp(WHOLE, list(batches.iterate(WHOLE)), 1000, 3)
    damaged = []
    for byte in range(first, last):
        for bit in range(8):
            damaged.append(bytearray(stamped))
            damaged[-1][byte] ^= 1 << bit
    return [bytes(data) for data in damaged]


def test_a_leader_gives_each_batch_of_a_request_its_offsets_and_a_limit_of_its_own() -> None:
    sent = [batches.encode([(None, b"x")] * count, 0) for count in (3, 2, 1)]
    data = b"".join(sent)
    found = checks.for_leader(data, max(map(len, sent)))
    with pytest.raises(MessageTooLarge):
        checks.for_leader(data, max(map(len, sent)) - 1)
    stamped, placed = batches.stamp(data, found, 10, 7)
    assert [(b.base_offset, b.next_offset, b.leader_epoch) for b in placed] == [
        (10, 13, 7),
        (13, 15, 7),
        (15, 16, 7),
    ]
    assert list(batches.iterate(stamped)) == placed


def test_every_flipped_bit_is_noticed() -> None:
    for data in [*flips(8, 12), *flips(16, len(WHOLE))]:
        with pytest.raises(CorruptMessage):
            checks.for_leader(data, MAX)
        with pytest.raises(CorruptMessage):
            checks.for_follower(data, 1000, 3)


def test_what_the_leader_sets_is_compared_by_a_follower() -> None:
    """A leader overwrites both; a follower sees a wrong offset, and an epoch that went back."""
    for data in flips(0, 8)[:7] + flips(0, 8)[8:] + flips(12, 16):
        assert len(checks.for_leader(data, MAX)) == 1
    for data in flips(0, 8):
        try:
            stored = checks.for_follower(data, 1000, 3)
        except LogError:
            continue
        assert stored == []
    with pytest.raises(OutOfSequence):
        checks.for_follower(flips(12, 13)[7], 1000, 3)
    with pytest.raises(CorruptMessage, match="base_offset is -"):
        checks.for_leader(flips(0, 8)[7], MAX)


@pytest.mark.parametrize("cut", range(1, len(WHOLE)))
def test_a_cut_batch_is_corrupt(cut: int) -> None:
    with pytest.raises(CorruptMessage, match=r"at 0: .*cut short"):
        checks.for_leader(WHOLE[:cut], MAX)
    with pytest.raises(CorruptMessage, match=rf"at {len(WHOLE)}: .*cut short"):
        checks.for_leader(WHOLE + WHOLE[:cut], MAX)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (batches.seal(b"", 0, 5, 5), InvalidRecord, "record_count is 0: must be 1 or more"),
        (batches.seal(b"", 1, 5, 5), InvalidRecord, "record_count is 1, the batch holds 0"),
        (batches.seal(b"\xff\xff", 1, 5, 5), InvalidRecord, "not a Records message"),
        (
            batches.seal(wire.Records(records=[wire.Record()] * 3).SerializeToString(), 2, 5, 5),
            InvalidRecord,
            "holds 3",
        ),
        (
            batches.seal(wire.Records(records=[wire.Record(timestamp_delta=4)]).SerializeToString(), 1, 5, 5),
            InvalidRecord,
            "max_timestamp is 5, the newest record's is 9",
        ),
        (batches.encode([(None, bytes(MAX))], 5), MessageTooLarge, f"message_max_bytes allows {MAX}"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: x\r\n", CorruptMessage, "magic"),
    ],
)
@pytest.mark.parametrize("good_before", [0, 2])
def test_what_a_leader_refuses(data: bytes, error: type[LogError], message: str, good_before: int) -> None:
    with pytest.raises(error, match=message):
        checks.for_leader(WHOLE * good_before + data, MAX)


def test_a_leader_refuses_nothing_at_all() -> None:
    with pytest.raises(InvalidRecord, match="no batch"):
        checks.for_leader(b"", MAX)


def test_a_batch_of_exactly_the_limit_is_taken() -> None:
    assert len(checks.for_leader(WHOLE, len(WHOLE))) == 1
    with pytest.raises(MessageTooLarge):
        checks.for_leader(WHOLE, len(WHOLE) - 1)


@pytest.mark.parametrize(
    ("offset", "epoch", "message"),
    [
        (6, 2, "base_offset is 6: the log continues at 5"),
        (4, 2, "base_offset is 4: the log continues at 5"),
        (5, 1, "leader_epoch is 1: must be 2 or more"),
        (5, -1, "leader_epoch is -1: must be 2 or more"),
    ],
)
def test_what_does_not_continue_a_followers_log(offset: int, epoch: int, message: str) -> None:
    with pytest.raises(OutOfSequence, match=message):
        checks.for_follower(batches.encode([(None, b"a"), (None, b"b")], 5, offset, epoch), 5, 2)


def test_a_follower_skips_only_what_comes_before() -> None:
    old = batches.encode([(None, b"a")], 5, 4, 1)
    new = batches.encode([(None, b"b")], 5, 5, 2)
    found = checks.for_follower(old + new, 5, 2)
    assert [(batch.base_offset, batch.start) for batch in found] == [(5, len(old))]
    with pytest.raises(OutOfSequence):
        checks.for_follower(new + old, 5, 2)
    older = batches.encode([(None, b"c")], 5, 6, 1)
    with pytest.raises(OutOfSequence, match="leader_epoch is 1: must be 2 or more"):
        checks.for_follower(new + older, 5, 1)


def test_a_stored_batch_needs_an_epoch() -> None:
    with pytest.raises(OutOfSequence, match="leader_epoch is -1: must be 0 or more"):
        checks.for_follower(batches.encode([(None, b"a")], 5), 0, -1)


def test_an_encoded_batch_has_records() -> None:
    with pytest.raises(batches.BatchError, match="record_count is 0"):
        batches.encode([], 5)


def test_each_error_of_a_log_has_kafkas_code() -> None:
    assert CorruptMessage.error_code == codes.CORRUPT_MESSAGE
    assert InvalidRecord.error_code == codes.INVALID_RECORD
    assert MessageTooLarge.error_code == codes.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(("newest", "good"), [(1005, True), (1000, False), (1003, False), (1006, False)])
def test_the_newest_time_of_a_batch_is_that_of_its_newest_record(newest: int, good: bool) -> None:
    body = wire.Records(records=[wire.Record(timestamp_delta=delta) for delta in (0, 5, 3)])
    data = batches.seal(body.SerializeToString(), 3, 1000, newest)
    if good:
        assert [record.timestamp for record in batches.decode(data)] == [1000, 1005, 1003]
    else:
        with pytest.raises(batches.BadRecordsError, match="the newest record's is 1005"):
            list(batches.decode(data))
