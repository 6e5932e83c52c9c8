"""Our packed requests against kazoo's own serialisation of the same: byte for byte."""

from __future__ import annotations

import struct
from random import Random

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
    stat_struct,
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


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (jute.OPEN_ACL, [("world", "anyone", 31)]),
        (jute.READABLE_ACL, [("auth", "", 31), ("world", "anyone", 1)]),
        (jute.PRIVATE_ACL, [("auth", "", 31)]),
    ],
)
def test_permissions_are_zookeeper_s(ours: bytes, theirs: list[tuple[str, str, int]]) -> None:
    """``ZooDefs.Ids``: all is 31, read is 1. Kazoo sends no id where ours is empty."""
    packed = struct.pack(">i", len(theirs))
    for scheme, who, permissions in theirs:
        packed += struct.pack(">i", permissions)
        packed += b"".join(struct.pack(">i", len(text)) + text.encode() for text in (scheme, who))
    assert ours == packed


def test_a_watch_on_a_tree_is_zookeeper_s() -> None:
    """``AddWatchMode.PERSISTENT_RECURSIVE`` is 1, ``WatcherType.Any`` is 3."""
    for arm, mode in ((True, 1), (False, 3)):
        assert jute.TreeWatchRequest(b"/a", arm=arm).serialize() == struct.pack(">i2si", 2, b"/a", mode)


def test_a_request_is_smaller_than_what_a_server_takes() -> None:
    """By default; the paths of watches come three times over: data, exist and child watches."""
    assert 0 < jute.WATCHES_BYTES_MAX < jute.MULTI_BYTES_MAX < 0xFFFFF


def test_a_stat_is_kazoo_s() -> None:
    """Two nodes: the second begins behind the whole of the first's."""
    stats = [
        stat_struct.pack(czxid, 91, 92, 93, version, 94, 95, 96, 97, 98, 99)
        for czxid, version in ((2**40, 7), (5, 2**31 - 1))
    ]
    head = struct.pack(">i?i", jute.OP_GET_DATA, False, 0)
    answer = b"".join(head + struct.pack(">i", 1) + b"d" + packed for packed in stats)
    assert parse_multi_read(memoryview(answer + END), 2) == [
        Node(b"d", 7, 2**40),
        Node(b"d", 2**31 - 1, 5),
    ]


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


@given(st.lists(names, max_size=5), st.sampled_from([0, jute._MANY_NAMES]), st.randoms(use_true_random=False))
def test_names_are_those_that_kazoo_decodes(lists: list[list[str]], common: int, random: Random) -> None:
    decoder = jute.NameLists()
    known = [f"topic-{n:05d}" for n in range(common)]
    for some in lists:
        known = random.sample(known, len(known)) if random.random() < 0.1 else known
        listed = known[: len(known) - random.randrange(3)]
        for name in some:
            listed.insert(random.randrange(len(listed) + 1), name)
        found = decoder.decode(children(listed))
        assert sorted(found) == sorted(GetChildren.deserialize(_packed(listed), 0))


@pytest.mark.parametrize("position", [0, 1, 500, 998, 999, 1000])
@pytest.mark.parametrize("count", [1, 2, jute._CHANGES_MAX + 1])
def test_names_that_come_and_go_anywhere(position: int, count: int) -> None:
    before = [f"topic-{n:05d}" for n in range(1000)]
    for new in ([f"t{n}" for n in range(count)], ["topic-0"], ["n" * 249], ["n" * 300]):
        decoder = jute.NameLists()
        after = [*before[:position], *new, *before[position:]]
        for listed in (before, after, before, before[1:], before[:position]):
            assert sorted(decoder.decode(children(listed))) == sorted(listed)


def test_of_a_long_list_only_what_is_new_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = jute.NameLists()
    before = [f"topic-{n:05d}" for n in range(1000)]
    decoder.decode(children(before))
    monkeypatch.setattr(jute, "_names", None)
    found = decoder.decode(children([*before[1:300], "a", *before[300:600], "b", *before[600:], "c"]))
    assert sorted(found) == ["a", "b", "c", *before[1:]]
    found.clear()
    assert len(decoder.decode(children(before[1:]))) == 999


@pytest.mark.parametrize("many", [1, 1000])
def test_a_list_of_names_that_is_cut_short_is_malformed(many: int) -> None:
    whole = children([f"topic-{n:05d}" for n in range(many)])
    known = jute.NameLists()
    known.decode(whole)
    for decoder in (jute.NameLists(), known):
        for end in (0, 3, 4, 7, len(whole) - 15, len(whole) - 1):
            with pytest.raises(MalformedError):
                decoder.decode(whole[:end])


def test_a_short_list_between_two_long_ones_changes_nothing() -> None:
    decoder = jute.NameLists()
    long = [f"topic-{n:05d}" for n in range(1000)]
    for listed in (long, long[:5], long[:-1]):
        assert sorted(decoder.decode(children(listed))) == listed


def test_a_bulk_read_that_is_cut_short_is_malformed() -> None:
    header = struct.pack(">i?i", 0, False, 0)
    whole = header + struct.pack(">i", 2) + b"ab" + stat(3, 4)
    assert parse_multi_read(memoryview(whole), 1) == [Node(b"ab", 4, 3)]
    for end in (0, len(header), len(header) + 6, len(whole) - jute.STAT_SIZE):
        with pytest.raises(MalformedError):
            parse_multi_read(memoryview(whole[:end]), 1)


def test_a_failed_multi_is_the_fault_of_the_first_operation_with_a_reason_of_its_own() -> None:
    """Those before it have code 0, and those after it were not tried."""
    failed = jute.MultiError([0, jute.RUNTIME_INCONSISTENCY, jute.NO_NODE, jute.BAD_VERSION])
    assert (failed.index, failed.code) == (2, jute.NO_NODE)
    assert failed.why == "ZooKeeper error -101"
    unknown = jute.MultiError([0, jute.RUNTIME_INCONSISTENCY])
    assert (unknown.index, unknown.code) == (-1, jute.RUNTIME_INCONSISTENCY)


@pytest.mark.parametrize(
    ("code", "why"), [(-102, "an ACL forbids it"), (-125, "a quota is exceeded (setquota)")]
)
def test_what_a_retry_cannot_change_is_told_in_words(code: int, why: str) -> None:
    """The codes are ZooKeeper's (``KeeperException.Code``)."""
    assert jute.MultiError([0, code, jute.RUNTIME_INCONSISTENCY]).why == why


@pytest.mark.parametrize(("count", "slices"), [(0, []), (4, [4]), (5, [4, 1]), (9, [4, 4, 1])])
def test_watches_are_set_with_as_few_requests_as_they_fit_into(
    monkeypatch: pytest.MonkeyPatch, count: int, slices: list[int]
) -> None:
    monkeypatch.setattr(jute, "WATCHES_BYTES_MAX", 4 * (4 + len(b"/a/path")))
    assert [len(some) for some in jute.watchable([b"/a/path"] * count)] == slices


def test_an_event_of_a_path_that_is_no_text_is_an_event_all_the_same() -> None:
    raw = b"/a/\xff"
    event = struct.pack(">iii", 3, 3, len(raw)) + raw
    assert jute.event_path(event, 0) == "/a/\ufffd"
    assert jute.event_path(b"header" + event + b"more", 6) == "/a/\ufffd"
