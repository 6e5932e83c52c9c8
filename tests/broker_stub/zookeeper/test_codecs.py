"""Znodes as the broker reads and writes them: Kafka's formats, and what it makes of those that do not decode."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from broker_stub.zookeeper import codecs
from broker_stub.zookeeper.codecs import ConfigChange, ConfigKind, MalformedZnode, PartitionState

STATE = b'{"controller_epoch":9,"leader":1,"version":1,"leader_epoch":4,"isr":[1,2]}'


def test_a_state_is_written_as_it_is_read() -> None:
    found = codecs.decode_state("/s", STATE)
    assert found == PartitionState(1, 4, 9, (1, 2))
    assert codecs.encode_state(found) == STATE
    with_directories = found._replace(directories={1: 7})
    assert codecs.decode_state("/s", codecs.encode_state(with_directories)) == with_directories


@pytest.mark.parametrize(
    "data",
    [
        STATE + b" and more",
        b'{"leader":5,' + STATE[1:],
        STATE.decode().encode("utf-16"),
        b"\xef\xbb\xbf" + STATE,
    ],
    ids=["something behind it", "a field twice", "UTF-16", "a mark of the byte order"],
)
def test_json_is_read_as_kafka_reads_it(data: bytes) -> None:
    assert codecs.decode_state("/s", data).leader == 1


@pytest.mark.parametrize(
    ("endpoint", "found"),
    [
        ("h:9190", ("h", 9190)),
        ("[::1]:1", ("::1", 1)),
        ("h:0", None),
        ("h", None),
        ("", None),
        ("h:65536", None),
    ],
)
def test_a_controller_is_asked_where_it_can_be(endpoint: str, found: tuple[str, int] | None) -> None:
    data = json.dumps({"version": 1, "brokerid": 100, "endpoint": endpoint}).encode()
    if found is not None:
        assert codecs.decode_endpoint(data) == found
        return
    with pytest.raises(MalformedZnode, match="must be HOST:PORT"):
        codecs.decode_endpoint(data)


@pytest.mark.parametrize(
    ("text", "epoch"),
    [
        (b"7", 7),
        (b" 7\n", 7),
        (b"2147483647", 2**31 - 1),
        (b"2147483648", None),
        (b"-1", None),
        (b"", None),
        (b"x", None),
    ],
)
def test_an_epoch_is_what_requests_can_hold(text: bytes, epoch: int | None) -> None:
    if epoch is not None:
        assert codecs.decode_epoch(text) == epoch
        return
    with pytest.raises(MalformedZnode, match="/controller_epoch"):
        codecs.decode_epoch(text)


def test_what_others_wrote_and_does_not_decode_stops_nobody() -> None:
    assert codecs.decode_controller_id(b"oops") == -1
    assert codecs.decode_registrant(b"oops") == ("an unknown host", "")
    assert codecs.decode_directories(b"oops") is None
    assert codecs.decode_controller_id(b'{"brokerid":100}') == 100
    assert codecs.decode_registrant(b'{"host":"h","incarnation":"i"}') == ("'h'", "i")
    assert codecs.decode_directories(b"{}") == ()


def test_an_empty_znode_has_no_settings() -> None:
    assert codecs.decode_config("/c", b"") == {}
    assert codecs.decode_config("/c", codecs.encode_config({"a": "1"})) == {"a": "1"}


CHANGES: list[tuple[bytes, ConfigChange | None]] = [
    (b'{"version":2,"entity_path":"topics/t"}', ConfigChange(ConfigKind.TOPIC, "t")),
    (b'{"version":2,"entity_path":"brokers/<default>"}', ConfigChange(ConfigKind.BROKER, "<default>")),
    (b'{"version":1,"entity_type":"topics","entity_name":"t"}', ConfigChange(ConfigKind.TOPIC, "t")),
    (b'{"version":2,"entity_path":"users/alice"}', None),
    (b'{"version":2,"entity_path":"clients/c"}', None),
]


@pytest.mark.parametrize(("data", "change"), CHANGES)
def test_a_notification_is_about_a_topic_a_broker_or_nothing_of_ours(
    data: bytes, change: ConfigChange | None
) -> None:
    assert codecs.decode_change("/n", data) == change


@pytest.mark.parametrize(
    "data",
    [
        b'{"version":2,"entity_path":"topics"}',
        b'{"version":2,"entity_path":"topics/.."}',
        b'{"version":1,"entity_path":"topics/t"}',
        b'{"version":3,"entity_path":"topics/t"}',
    ],
)
def test_a_notification_that_names_nothing_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedZnode, match="/n"):
        codecs.decode_change("/n", data)


PATHS: list[tuple[Callable[[], str], str]] = [
    (lambda: codecs.topic_path("t"), "/brokers/topics/t"),
    (lambda: codecs.state_path("t", 3), "/brokers/topics/t/partitions/3/state"),
    (lambda: codecs.config_path("t"), "/config/topics/t"),
    (lambda: codecs.broker_config_path("<default>"), "/config/brokers/<default>"),
    (lambda: codecs.broker_path(7), "/brokers/ids/7"),
]


@pytest.mark.parametrize(("made", "path"), PATHS)
def test_paths_are_kafkas(made: Callable[[], str], path: str) -> None:
    assert made() == path
