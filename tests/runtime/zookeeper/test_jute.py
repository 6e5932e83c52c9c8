"""Our packed requests against kazoo's own serialisation of the same: byte for byte."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.protocol.serialization import (
    CheckVersion,
    Create,
    Delete,
    GetChildren,
    GetData,
    SetData,
    Transaction,
)
from kazoo.security import OPEN_ACL_UNSAFE

from controller.errors import MalformedError
from controller.runtime.zookeeper import jute
from controller.runtime.zookeeper.jute import BulkRequest, Node, parse_multi, parse_multi_read

paths = st.text("abcdef/é", min_size=1, max_size=5000).map(lambda text: "/" + text)
data = st.binary(max_size=5000)
versions = st.integers(-1, 2**31 - 1)


@given(paths, data, versions)
def test_a_multi_is_what_kazoo_would_send(path: str, value: bytes, version: int) -> None:
    raw = path.encode()
    theirs = Transaction(
        [
            CheckVersion(path, version),
            SetData(path, value, version),
            Create(path, value, OPEN_ACL_UNSAFE, 0),
            Delete(path, version),
        ]
    ).serialize()
    ours = BulkRequest(
        jute.OP_MULTI,
        [
            jute.op_check(raw, version),
            jute.op_set(raw, value, version),
            jute.op_create(raw, value),
            jute.op_delete(raw, version),
        ],
    ).serialize()
    assert ours == bytes(theirs)


@given(paths)
def test_a_read_without_watch_is_what_kazoo_would_send(path: str) -> None:
    header = jute._HEADER.pack(jute.OP_GET_DATA, False, -1)
    assert jute.op_get(path.encode()) == header + bytes(GetData(path, None).serialize())


def error(code: int) -> bytes:
    return jute._HEADER.pack(-1, False, code) + jute._INT.pack(code)


END = jute._HEADER.pack(-1, True, -1)


@given(st.lists(st.sampled_from([0, -2, -101, -103, -110]), min_size=1, max_size=20))
def test_codes_of_a_failed_multi_come_in_order(codes: list[int]) -> None:
    answer = memoryview(b"".join(error(code) for code in codes) + END)
    assert parse_multi(answer, len(codes)) == codes
    assert parse_multi(answer, len(codes) + 3) == codes  # a server that says less than was asked


def test_a_multi_that_landed_has_no_codes() -> None:
    landed = jute._HEADER.pack(jute.OP_SET_DATA, False, -1) + bytes(jute.STAT_SIZE) + END
    assert parse_multi(memoryview(landed), 1) == []
    assert parse_multi(memoryview(END), 0) == []


def stat(czxid: int, version: int) -> bytes:
    packed = bytearray(jute.STAT_SIZE)
    packed[0:8] = jute._LONG.pack(czxid)
    packed[32:36] = jute._INT.pack(version)
    return bytes(packed)


nodes = st.one_of(
    st.sampled_from([-101, -102]),
    st.builds(
        Node, data=st.binary(max_size=300), version=st.integers(0, 2**31 - 1), czxid=st.integers(0, 2**62)
    ),
)


@given(st.lists(nodes, max_size=12))
def test_a_bulk_read_is_parsed_in_order(expected: list[Node | int]) -> None:
    answer = b""
    for node in expected:
        if isinstance(node, int):
            answer += error(node)
        else:
            answer += jute._HEADER.pack(jute.OP_GET_DATA, False, -1)
            answer += jute._INT.pack(len(node.data)) + node.data + stat(node.czxid, node.version)
    assert parse_multi_read(memoryview(answer + END), len(expected)) == expected


def test_null_data_is_empty() -> None:
    answer = jute._HEADER.pack(jute.OP_GET_DATA, False, -1) + jute._INT.pack(-1) + stat(3, 4) + END
    assert parse_multi_read(memoryview(answer), 1) == [Node(b"", 4, 3)]


@pytest.mark.parametrize("size", [4095, 4096, 4097, 70_000])
def test_lengths_on_both_sides_of_the_table(size: int) -> None:
    ours = jute.op_set(b"/x", b"y" * size, 0)
    assert ours.endswith(bytes(SetData("/x", b"y" * size, 0).serialize()))


names = st.lists(st.text("ab.é", min_size=1, max_size=300), max_size=20, unique=True)


def children(of: list[str]) -> memoryview:
    return memoryview(b"reply header" + _packed(of))[len(b"reply header") :]


def _packed(of: list[str]) -> bytes:
    return struct.pack(">i", len(of)) + b"".join(
        struct.pack(">i", len(raw)) + raw for raw in map(str.encode, of)
    )


@given(st.lists(names, max_size=5), st.booleans())
def test_names_are_decoded_as_kazoo_does(lists: list[list[str]], many: bool) -> None:
    common = [f"topic-{n:05d}" for n in range(jute._MANY_NAMES)] if many else []
    decoder = jute.NameLists()
    for some in lists:
        found = decoder.decode(children([*some, *common]))
        assert found == GetChildren.deserialize(_packed([*some, *common]), 0)


def test_names_known_before_are_not_decoded_again() -> None:
    decoder = jute.NameLists()
    first = decoder.decode(children([f"topic-{n:05d}" for n in range(1000)]))
    second = decoder.decode(children([f"topic-{n:05d}" for n in reversed(range(1001))]))
    assert second[-1] is first[0]
    assert second[0] == "topic-01000"


def test_names_that_are_gone_are_forgotten() -> None:
    decoder = jute.NameLists()
    for start in range(0, 10_000, 500):
        decoder.decode(children([f"topic-{n:05d}" for n in range(start, start + 500)]))
    assert len(decoder._known) <= 1000


@pytest.mark.parametrize("many", [1, 1000])
def test_a_list_of_names_that_is_cut_short_is_malformed(many: int) -> None:
    whole = children([f"topic-{n:05d}" for n in range(many)])
    for end in (0, 3, 4, 7, len(whole) - 1):
        with pytest.raises(MalformedError):
            jute.NameLists().decode(whole[:end])
