"""The records of ``__consumer_offsets``, and which partition keeps a group."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_stub.group.messages import (
    GroupKey,
    GroupValue,
    MalformedRecord,
    OffsetKey,
    OffsetValue,
    StoredMember,
    StoredProtocol,
    decode,
    encode,
)
from broker_stub.group.partitioner import java_hash, partition_for

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
int32 = st.integers(0, 2**31 - 1)
member = st.builds(
    StoredMember,
    st.text("abc", min_size=1),
    text,
    int32,
    int32,
    st.just((StoredProtocol("range", b"\x00\xff"),)),
    st.binary(max_size=5),
)


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("test", 3556498),
        ("my-group", -1906497762),
        ("polygenelubricants", -(2**31)),
        ("\U0001f600", 1772899),
        ("消费", 905393),
        ("console-consumer-12345", 158455506),
    ],
)
def test_java_hash(group: str, expected: int) -> None:
    """As a Java virtual machine computes them; the emoji is a pair of surrogates, two code units."""
    assert java_hash(group) == expected


@pytest.mark.parametrize(
    ("group", "partition"), [("test", 48), ("polygenelubricants", 0), ("\U0001f600", 49), ("a", 47)]
)
def test_partition_of_fifty(group: str, partition: int) -> None:
    """A sign is masked, not negated: the smallest int has no positive counterpart."""
    assert partition_for(group, 50) == partition


@given(text, st.integers(1, 100))
def test_every_group_has_a_partition(group: str, count: int) -> None:
    assert 0 <= partition_for(group, count) < count
    assert -(2**31) <= java_hash(group) < 2**31


@given(text.filter(bool), text.filter(bool), int32, st.integers(0, 2**63 - 1), st.integers(-1, 9), text)
def test_an_offset_comes_back(
    group: str, topic: str, partition: int, offset: int, epoch: int, metadata: str
) -> None:
    key = OffsetKey(group=group, topic=topic, partition=partition)
    value = OffsetValue(offset=offset, leader_epoch=epoch, metadata=metadata, commit_timestamp_ms=5)
    assert decode(encode(key), encode(value)) == (key, value)
    assert decode(encode(key), None) == (key, None)


@given(text.filter(bool), st.lists(member, max_size=3, unique_by=lambda m: m.member_id))
def test_a_group_comes_back(group: str, members: list[StoredMember]) -> None:
    key = GroupKey(group=group)
    value = GroupValue(
        protocol_type="consumer",
        generation_id=3,
        protocol="range" if members else "",
        leader=members[-1].member_id if members else "",
        members=tuple(members),
    )
    assert decode(encode(key), encode(value)) == (key, value)


GROUP_KEY = b'{"kind":"group","version":1,"group":"g"}'
OFFSET_KEY = b'{"kind":"offset","version":1,"group":"g","topic":"t","partition":0}'
MEMBER = (
    b'{"member_id":"m","client_id":"c","session_timeout_ms":1,"rebalance_timeout_ms":1,'
    b'"protocols":[{"name":"range","metadata":""}],"assignment":""}'
)
OTHER_MEMBER = MEMBER.replace(b'"m"', b'"n"').replace(b"range", b"sticky")


def group_value(protocol: bytes = b"range", leader: bytes = b"m", members: bytes = MEMBER) -> bytes:
    return (
        b'{"kind":"group","version":1,"protocol_type":"consumer","generation_id":1,"protocol":"%b",'
        b'"leader":"%b","members":[%b]}' % (protocol, leader, members)
    )


def test_the_sample_group_is_good() -> None:
    assert decode(GROUP_KEY, group_value())[1] is not None


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        (None, b"{}", "key is absent"),
        (b"", None, "key b''"),
        (b"\xff\xfe", None, "key b'"),
        (b'{"kind":"group","group":"\xff"}', None, "key b'"),
        (b"[" * 100_000, None, "key b'"),
        (b'{"group":' + b"[" * 100_000, None, "is nested too deeply"),
        (b'{"kind":"transaction","version":1,"group":"g"}', None, "kind"),
        (b'{"kind":"group","version":2,"group":"g"}', None, "version is 2: must be 1"),
        (b'{"kind":"group","version":1,"group":""}', None, "$.group"),
        (b'{"kind":"group","version":1,"group":"g","x":1}', None, "x"),
        (b'{"kind":"offset","version":1,"group":"g","topic":"t","partition":-1}', None, "$.partition"),
        (OFFSET_KEY, b"", "value of"),
        (OFFSET_KEY, b'{"kind":"offset","version":1,"offset":"1"}', "$.offset"),
        (OFFSET_KEY, b'{"kind":"offset","version":1,"offset":-1}', "$.offset"),
        (OFFSET_KEY, b'{"kind":"offset","version":1,"offset":1}', "leader_epoch"),
        (OFFSET_KEY, group_value(), "kind"),
        (GROUP_KEY, group_value(leader=b"x"), "leader is 'x'"),
        (GROUP_KEY, group_value(leader=b""), "leader is ''"),
        (GROUP_KEY, group_value(members=b""), "leader is 'm'"),
        (GROUP_KEY, group_value(protocol=b"sticky"), "protocol is 'sticky'"),
        (GROUP_KEY, group_value(members=MEMBER + b"," + MEMBER), "twice"),
        (GROUP_KEY, group_value(members=MEMBER + b"," + OTHER_MEMBER), "one that member 'n' supports"),
        (GROUP_KEY, group_value(members=b"{}"), "$.members[0]"),
    ],
)
def test_malformed_records_say_what_is_wrong(key: bytes | None, value: bytes | None, says: str) -> None:
    with pytest.raises(MalformedRecord) as raised:
        decode(key, value)
    assert says in str(raised.value)
    assert len(str(raised.value)) < 400


@given(st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(MalformedRecord):
        decode(key, value)
