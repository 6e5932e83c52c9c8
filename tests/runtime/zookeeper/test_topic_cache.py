"""What a topic znode decodes to is the same with and without the memory of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.core.effects import TopicInfo
from controller.errors import MalformedError
from controller.runtime.zookeeper import codecs, jute
from controller.runtime.zookeeper.topic_cache import TopicCache

INFO = TopicInfo(
    "t",
    "iAAAAAAAAAAAAAAAAAAAAQ",
    {0: (1, 2), 1: (2,)},
    {0: (2,)},
    {},
    7,
    3,
    {0: (1,)},
    {1: (1,)},
    {1: (3,)},
    {"more": b"[1]"},
)


def node_of(info: TopicInfo) -> jute.Node:
    return jute.Node(codecs.encode_topic(info), info.version, info.czxid)


def test_what_was_read_is_decoded_once() -> None:
    cache = TopicCache()
    first = cache.decode("t", node_of(INFO))
    assert first == INFO
    assert cache.decode("t", node_of(INFO)) is first


def test_what_was_written_is_known_as_the_next_version() -> None:
    cache = TopicCache()
    data = cache.encode(INFO)
    assert data == codecs.encode_topic(INFO)
    assert cache.encode(INFO) is data
    stored = jute.Node(data, 4, 7)
    assert cache.decode("t", stored) == codecs.decode_topic("t", data, 7, 4)
    assert cache.decode("t", stored) is cache.decode("t", stored)


def test_what_was_written_is_not_decoded_when_it_is_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = TopicCache()
    data = cache.encode(INFO)
    expected = codecs.decode_topic("t", data, INFO.czxid, INFO.version + 1)
    monkeypatch.setattr(codecs, "decode_topic", None)
    assert cache.decode("t", jute.Node(data, INFO.version + 1, INFO.czxid)) == expected


@pytest.mark.parametrize(
    "other",
    [replace(INFO, version=9), replace(INFO, czxid=8), replace(INFO, removing={0: (1,)})],
    ids=["another version", "another incarnation", "another content"],
)
def test_what_somebody_else_wrote_is_decoded(other: TopicInfo) -> None:
    cache = TopicCache()
    cache.encode(INFO)
    assert cache.decode("t", node_of(other)) == other
    assert cache.decode("t", node_of(INFO)) == INFO
    assert cache.decode("t", node_of(other)) == other


def test_what_is_malformed_is_said_each_time() -> None:
    cache = TopicCache()
    for _ in range(2):
        with pytest.raises(MalformedError):
            cache.decode("t", jute.Node(b"{}", 1, 7))


def test_the_oldest_go_when_there_are_too_many_bytes() -> None:
    size = len(codecs.encode_topic(INFO))
    cache = TopicCache(bytes_max=2 * size)
    nodes = {name: node_of(replace(INFO, name=name)) for name in "abc"}
    kept = {name: cache.decode(name, node) for name, node in nodes.items()}
    assert cache.decode("c", nodes["c"]) is kept["c"]
    assert cache.decode("b", nodes["b"]) is kept["b"]
    assert cache.decode("a", nodes["a"]) is not kept["a"]


def test_another_write_of_the_same_version_is_another_content() -> None:
    cache, other = TopicCache(), replace(INFO, removing={0: (1,)})
    cache.encode(INFO)
    assert cache.encode(other) == codecs.encode_topic(other)


def test_what_is_replaced_takes_no_room() -> None:
    size = len(codecs.encode_topic(INFO))
    cache = TopicCache(bytes_max=2 * size)
    node = node_of(replace(INFO, name="a"))
    kept = cache.decode("a", node)
    for version in range(4, 9):
        cache.decode("t", node_of(replace(INFO, version=version)))
    assert cache.decode("a", node) is kept
