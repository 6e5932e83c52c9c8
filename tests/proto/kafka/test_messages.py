"""Every version of every message: what is written is read, what is no message is refused in bounded time."""

from __future__ import annotations

import time
import tracemalloc
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.gen.kafka.alter_partition_request import AlterPartitionRequest
from proto.gen.kafka.api_versions_response import ApiVersionsResponse
from proto.gen.kafka.controlled_shutdown_request import ControlledShutdownRequest
from proto.gen.kafka.describe_cluster_response import DescribeClusterResponse
from proto.gen.kafka.leader_and_isr_request import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from proto.gen.kafka.metadata_request import MetadataRequest, MetadataRequestTopic
from proto.gen.kafka.sasl_handshake_request import SaslHandshakeRequest
from proto.gen.kafka.table import FLEXIBLE
from proto.gen.kafka.update_metadata_request import UpdateMetadataRequest
from proto.kafka.apis import (
    APIS,
    ApiKey,
    Message,
    RequestHeader,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from proto.kafka.primitives import (
    STRING_BYTES_MAX,
    MalformedMessageError,
    Structure,
    read_int32s,
    write_int32s,
)
from tests.support.proto.kafka_messages import CASES, fields, filled

SAMPLES = 4


@pytest.mark.parametrize("message", [m for api in APIS.values() for m in (api.request, api.response)])
def test_what_is_written_is_read(message: type[Message]) -> None:
    for version in message.VERSIONS:
        for seed in range(SAMPLES):
            random = Random(f"{message.__name__} {version} {seed}")
            given_ = filled(message, version, random)
            written = given_.encode(version)
            assert message.decode(written, version) == given_
            assert message.decode(memoryview(written), version) == given_
            assert message.decode(message().encode(version), version) == message()


@pytest.mark.parametrize("size", [0, 125, 126, 127, 128, 16_381, 16_382, 16_383, 32_766, STRING_BYTES_MAX])
def test_a_string_may_be_as_long_as_any_in_kafka(size: int) -> None:
    """Also where its length takes one byte more."""
    for message, version in (
        (SaslHandshakeRequest("x" * size), 1),
        (MetadataRequest([MetadataRequestTopic(name="x" * size)]), 12),
    ):
        assert type(message).decode(message.encode(version), version) == message


def test_a_longer_string_is_not_written() -> None:
    for message, version in (
        (SaslHandshakeRequest("x" * (STRING_BYTES_MAX + 1)), 1),
        (MetadataRequest([MetadataRequestTopic(name="x" * (STRING_BYTES_MAX + 1))]), 12),
    ):
        with pytest.raises(ValueError, match="a string of 32768 bytes is longer than 32767"):
            message.encode(version)


@pytest.mark.parametrize("count", [0, 15, 16, 17, 18, 300])
@pytest.mark.parametrize("flexible", [False, True])
def test_any_number_of_ids_comes_back(count: int, flexible: bool) -> None:
    out = bytearray()
    write_int32s(out, list(range(count)), flexible)
    assert read_int32s(bytes(out), 0, flexible) == (list(range(count)), len(out))


def test_the_last_version_has_most_fields() -> None:
    """The random messages are not empty ones."""
    known = {field.name for field in fields(LeaderAndIsrRequest, 7)}
    assert known == {
        "controller_id", "is_kraft_controller", "controller_epoch", "broker_epoch", "type", "topic_states",
        "live_leaders",
    }  # fmt: skip
    assert {field.name for field in fields(LeaderAndIsrRequest, 0)} == {
        "controller_id", "controller_epoch", "ungrouped_partition_states", "live_leaders",
    }  # fmt: skip
    limits = {field.name: (field.low, field.high) for field in fields(LeaderAndIsrRequest, 7)}
    assert limits["type"] == (-128, 127)
    assert limits["broker_epoch"] == (-(2**63), 2**63 - 1)
    assert all(
        fields(message, message.VERSIONS[-1])
        for message, _ in CASES
        if message().encode(message.VERSIONS[-1])
    )


def test_versions_are_kafka_s() -> None:
    """As of 3.9, the last that has all messages of a controller with ZooKeeper."""
    ranges = {key: (api.versions[0], api.versions[-1], api.request.FLEXIBLE) for key, api in APIS.items()}
    assert ranges[ApiKey.LEADER_AND_ISR] == (0, 7, 4)
    assert ranges[ApiKey.UPDATE_METADATA] == (0, 8, 6)
    assert ranges[ApiKey.STOP_REPLICA] == (0, 4, 2)
    assert ranges[ApiKey.ALTER_PARTITION] == (0, 3, 0)
    assert ranges[ApiKey.CONTROLLED_SHUTDOWN] == (0, 3, 3)
    assert ranges[ApiKey.SASL_HANDSHAKE] == (0, 1, None)
    for key, api in APIS.items():
        assert api.request.API_KEY == api.response.API_KEY == key
        assert api.request.VERSIONS == api.response.VERSIONS
        assert FLEXIBLE[key] == api.request.FLEXIBLE


# --- headers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", APIS)
def test_headers_come_back(key: ApiKey) -> None:
    api = APIS[key]
    for version in api.versions:
        for client in ("ü", "", None):
            framed = encode_request(api.request(), version, 7, client)
            header, at = decode_request_header(framed)
            known = None if (key, version) == (ApiKey.CONTROLLED_SHUTDOWN, 0) else client
            assert header == RequestHeader(key, version, 7, known)
            assert framed[at:] == api.request().encode(version)
        assert decode_response(key, version, encode_response(api.response(), version, -3)) == (
            -3,
            api.response(),
        )


def test_headers_as_kafka_writes_them() -> None:
    assert encode_request(ControlledShutdownRequest(1), 0, 2, "c").hex() == "000700000000000200000001"
    assert encode_request(SaslHandshakeRequest("PLAIN"), 1, 2, "c").hex() == (
        "00110001000000020001630005504c41494e"
    )
    assert encode_request(MetadataRequest([]), 9, 2, None).hex() == ("0003000900000002ffff000101000000")
    # Its header has no tagged fields, in no version.
    assert encode_response(ApiVersionsResponse(), 3, 2).hex() == "000000020000010000000000"


def test_the_header_of_an_api_that_nobody_knows_is_read() -> None:
    assert decode_request_header(bytes.fromhex("7fff0001000000020001630102")) == (
        RequestHeader(0x7FFF, 1, 2, "c"),
        11,
    )


@pytest.mark.parametrize(
    "data", ["", "0003", "00030009000000020005", "0003000900000002000163", "00030009000000020001ff00"]
)
def test_a_header_that_is_none_is_refused(data: str) -> None:
    with pytest.raises(MalformedMessageError, match="RequestHeader: "):
        decode_request_header(bytes.fromhex(data))


# --- versions that lack a field ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "version", "problem"),
    [
        (
            LeaderAndIsrRequest(is_kraft_controller=True),
            6,
            r"^LeaderAndIsrRequest\.is_kraft_controller: version 6 has no such field,"
            r" so it must be left at its default, not True$",
        ),
        (UpdateMetadataRequest(type=1), 7, r"^UpdateMetadataRequest\.type: version 7 has no such field"),
        (MetadataRequest(None), 0, r"^MetadataRequest\.topics: must not be null in version 0$"),
        (
            MetadataRequest([MetadataRequestTopic(name=None)]),
            9,
            r"^MetadataRequestTopic\.name: must not be null in version 9$",
        ),
        (AlterPartitionRequest(), 4, r"^AlterPartitionRequest version 4: versions are 0 to 3$"),
        (AlterPartitionRequest(2**31), 3, r"^AlterPartitionRequest version 3: "),
        (MetadataRequest([MetadataRequestTopic(b"1")]), 12, "^a uuid has 16 bytes, not 1$"),
        (SaslHandshakeRequest("x" * 32768), 1, "^a string of 32768 bytes is longer than 32767"),
    ],
)
def test_what_a_version_cannot_carry_is_refused(message: Message, version: int, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        message.encode(version)


def test_what_kafka_calls_ignorable_is_left_out() -> None:
    assert LeaderAndIsrRequest(broker_epoch=5).encode(1) == LeaderAndIsrRequest().encode(1)
    assert ApiVersionsResponse(zk_migration_ready=True).encode(2) == ApiVersionsResponse().encode(2)


class _Kept(LeaderAndIsrPartitionState, gc=False):
    data: bytes = b""

    def write(self, out: bytearray, version: int) -> None:
        out += self.data


def test_an_element_may_bring_its_own_bytes() -> None:
    """So that what goes to many brokers is packed once."""
    state = LeaderAndIsrPartitionState(partition_index=3, isr=[1, 2], replicas=[2, 1])
    packed = bytearray()
    state.write(packed, 7)
    plain, kept = (
        LeaderAndIsrRequest(topic_states=[LeaderAndIsrTopicState("t", partition_states=[state, each])])
        for each in (state, _Kept(data=bytes(packed)))
    )
    assert kept.encode(7) == plain.encode(7)


# --- what is no message ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0].__name__} {c[1]}")
def test_truncated_messages_are_refused(case: tuple[type[Message], int]) -> None:
    message, version = case
    written = filled(message, version, Random(1)).encode(version)
    for end in {*range(min(40, len(written))), *range(0, len(written), 1 + len(written) // 60)}:
        with pytest.raises(MalformedMessageError, match=f"^{message.__name__} version {version}: "):
            message.decode(written[:end], version)
    assert message.decode_at(written + b"\0", 0, version, exact=False) == message.decode(written, version)
    with pytest.raises(MalformedMessageError, match=r": 1 bytes too many$"):
        message.decode(written + b"\0", version)


@pytest.mark.parametrize(
    ("message", "version", "data", "problem"),
    [
        (SaslHandshakeRequest, 1, "000961", "a string of 9 bytes at byte 0, with 1 bytes left"),
        (SaslHandshakeRequest, 1, "ffff", "null at byte 0, where there must be a string"),
        (SaslHandshakeRequest, 1, "0001ff", "'utf-8' codec can't decode byte 0xff in position 0"),
        (
            DescribeClusterResponse,
            0,
            "000000000000c2b802" + "61" * 40001,
            "of 40001 bytes at byte 6 is longer",
        ),
        (MetadataRequest, 0, "00000004" + "000161", "a count of 4 at byte 0, with 3 bytes left"),
        (MetadataRequest, 0, "ffffffff", "null at byte 0, where there must be an array or bytes"),
        (MetadataRequest, 10, "020000000000", "a uuid at byte 1, with 5 bytes left"),
        (MetadataRequest, 9, "ffffffffff01", "a varint at byte 0 is longer than 5 bytes"),
        (MetadataRequest, 9, "", "ends too early"),
        (MetadataRequest, 4, "00000000", "requires a buffer of at least 5 bytes"),
        (
            ApiVersionsResponse,
            3,
            "000001000000000103020100",
            "a tagged field ends at byte 11, not at byte 12 as its size says",
        ),
        (ApiVersionsResponse, 3, "0000010000000001630501", "a tagged field of 5 bytes at byte 10, with 1"),
    ],
)
def test_an_error_says_what_is_wrong_and_where(
    message: type[Message], version: int, data: str, problem: str
) -> None:
    with pytest.raises(MalformedMessageError, match=problem) as caught:
        message.decode(bytes.fromhex(data), version)
    assert caught.value.message == f"{message.__name__} version {version}"
    assert problem in caught.value.what


@given(st.sampled_from(CASES), st.randoms(use_true_random=False), st.binary(max_size=40))
def test_garbage_is_refused_or_is_a_message(
    case: tuple[type[Message], int], random: Random, data: bytes
) -> None:
    message, version = case
    written = bytearray(filled(message, version, random).encode(version))
    for _ in range(random.randrange(3)):
        at = random.randrange(len(written) + 1)
        written[at : at + random.randrange(4)] = random.randbytes(random.randrange(4))
    for bad in (bytes(written), data):
        try:
            found = message.decode(bad, version)
        except MalformedMessageError:
            continue
        assert message.decode(found.encode(version), version) == found


#: Counts, lengths and tags that promise more than there is, or as much as there could be.
FLOODS = [
    b"\xff", b"\x00", b"\x01", b"\x02", b"\x7f", b"\x80", b"\x00\x00\x00\x01", b"\x00\x01", b"\x7f\xff\xff\xff",
    b"\x02\x00\x00\x00\x00",
]  # fmt: skip
STARTS = (b"", b"\x00\x03\x00\x00", b"\x80\x80\x0c", b"\xff\xff\xff\x01" * 4)
FLOOD_BYTES = 60_000
#: Of what is decoded, for each byte: an element of four bytes may be a structure with a list.
MEMORY_PER_BYTE = 50


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case[1] in (case[0].VERSIONS[0], case[0].VERSIONS[-1])],
    ids=lambda c: f"{c[0].__name__} {c[1]}",
)
def test_large_garbage_takes_linear_time_and_bounded_memory(case: tuple[type[Message], int]) -> None:
    message, version = case
    for flood in FLOODS:
        for start in STARTS:
            data = (start + flood * FLOOD_BYTES)[:FLOOD_BYTES]
            began = time.process_time()
            with suppress(MalformedMessageError):
                message.decode(data, version)
            assert time.process_time() - began < 2, (flood, start)


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0].__name__} {c[1]}")
def test_the_smallest_elements_take_bounded_memory(case: tuple[type[Message], int]) -> None:
    message, version = case
    for field in fields(message, version):
        if not field.array or not issubclass(field.kind, Structure):
            continue
        data = message(**{field.name: [field.kind()] * 500}).encode(version)
        tracemalloc.start()
        try:
            message.decode(data, version)
            assert tracemalloc.get_traced_memory()[1] < MEMORY_PER_BYTE * len(data), field.name
        finally:
            tracemalloc.stop()


def test_a_count_that_promises_too_much_takes_no_memory() -> None:
    # 2^31 - 1 topics, and a request that would have room for some.
    promised: Any = [b"\x7f\xff\xff\xff" + bytes(64), b"\xff\xff\xff\xff\x07" + bytes(64)]
    tracemalloc.start()
    try:
        for data, version in zip(promised, (1, 12), strict=True):
            with pytest.raises(
                MalformedMessageError, match=r"a count of 214748364[67] at byte 0, with 64 bytes left"
            ):
                MetadataRequest.decode(data, version)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
