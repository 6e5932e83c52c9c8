"""Every znode we read or write: Kafka's exact bytes, older versions, the reference's cases, and bad values."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from broker_stub.data_identity import short_id
from controller.core import znode_paths
from controller.core.effects import FeatureAnswer, TopicInfo
from controller.core.model import Broker, Endpoint, FeatureRange, LeaderAndIsr
from controller.core.model.broker_ids import REPLICAS_MAX
from controller.core.names import topic_name_problem
from controller.errors import MalformedError
from controller.runtime.zookeeper import codecs
from tests.support.reference_rows import load


def topic_info(**changes: Any) -> TopicInfo:
    fields: dict[str, Any] = {
        "name": "t",
        "topic_id": "",
        "partitions": {0: (1, 2)},
        "adding": {},
        "removing": {},
        "czxid": 9,
        "version": 4,
    }
    return TopicInfo(**{**fields, **changes})


# --- exact bytes (reference, section 1.1) ------------------------------------------------------------------


def test_state_is_written_as_kafka_writes_it() -> None:
    state = LeaderAndIsr(1, 4, (1, 2), 9, 7)
    expected = b'{"controller_epoch":7,"leader":1,"version":1,"leader_epoch":4,"isr":[1,2]}'
    assert codecs.encode_state(state) == expected
    assert codecs.decode_state("t", 0, expected, 9) == state


def test_recovery_state_is_written_only_while_recovering() -> None:
    state = LeaderAndIsr(1, 4, (1,), 9, 7, 1)
    expected = (
        b'{"controller_epoch":7,"leader":1,"version":1,"leader_recovery_state":1,"leader_epoch":4,"isr":[1]}'
    )
    assert codecs.encode_state(state) == expected
    assert codecs.decode_state("t", 0, expected, 9) == state


def test_no_leader_and_empty_isr_survive() -> None:
    state = LeaderAndIsr(-1, 0, (), 0, 0)
    assert codecs.encode_state(state).endswith(b'"leader":-1,"version":1,"leader_epoch":0,"isr":[]}')
    assert codecs.decode_state("t", 0, codecs.encode_state(state), 0) == state


def test_topic_is_written_as_version_3_and_names_no_unknown_id() -> None:
    expected = b'{"partitions":{"0":[1,2]},"adding_replicas":{},"removing_replicas":{},"version":3}'
    assert codecs.encode_topic(topic_info()) == expected
    full = topic_info(
        topic_id="A" * 22, partitions={0: (1, 2, 3), 10: (2, 1)}, adding={0: (3,), 10: ()}, removing={0: (1,)}
    )
    expected = (
        b'{"partitions":{"0":[1,2,3],"10":[2,1]},"topic_id":"AAAAAAAAAAAAAAAAAAAAAA",'
        b'"adding_replicas":{"0":[3]},"removing_replicas":{"0":[1]},"version":3}'
    )
    assert codecs.encode_topic(full) == expected
    decoded = codecs.decode_topic("t", expected, 9, 4)
    assert decoded == topic_info(
        topic_id="A" * 22, partitions={0: (1, 2, 3), 10: (2, 1)}, adding={0: (3,)}, removing={0: (1,)}
    )


def test_controller_is_version_2_with_our_endpoint() -> None:
    data = codecs.encode_controller(3, "h:1")
    fields = json.loads(data)
    expected = ["version", "brokerid", "timestamp", "kraftControllerEpoch", "endpoint", "incarnation"]
    assert list(fields) == expected
    assert (fields["version"], fields["brokerid"], fields["kraftControllerEpoch"]) == (2, 3, -1)
    assert isinstance(fields["timestamp"], str)
    assert fields["timestamp"].isdigit()
    assert codecs.decode_controller(data) == (3, "h:1")


def test_requests_and_configuration_are_kafkas() -> None:
    expected = b'{"version":1,"partitions":[{"topic":"T","partition":0}]}'
    assert codecs.encode_partition_list([("T", 0)]) == expected
    assert codecs.decode_partition_list("/p", expected) == [("T", 0)]
    expected = b'{"version":1,"config":{"retention.ms":"1000"}}'
    assert codecs.encode_config({"retention.ms": "1000"}) == expected
    assert codecs.decode_config("/c", expected) == {"retention.ms": "1000"}
    expected = b'{"version":2,"status":1,"features":{}}'
    assert codecs.encode_feature({}) == expected
    assert codecs.decode_feature(expected, 5) == FeatureAnswer(True, 5)


def test_standby_registration_says_where_to_ask() -> None:
    fields = json.loads(codecs.encode_standby(2, "h:1", "h:2"))
    assert (fields["version"], fields["controller_id"]) == (1, 2)
    assert (fields["endpoint"], fields["http"]) == ("h:1", "h:2")


# --- what others and older versions write ------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b'{"version":1,"brokerid":1,"timestamp":"1700000000000"}',
        b'{"version":2,"brokerid":1,"timestamp":"1700000000000","kraftControllerEpoch":-1}',
        b'{ "timestamp" : "1", "brokerid":1 ,"version":1, "new_field": [{}] }',
    ],
)
def test_controller_of_other_writers(data: bytes) -> None:
    assert codecs.decode_controller(data) == (1, "")


@pytest.mark.parametrize(
    ("data", "id_", "adding"),
    [
        (b'{"version":1,"partitions":{"0":[1,2]}}', "", {}),
        (
            b'{"version":2,"partitions":{"0":[1,2]},"adding_replicas":{"0":[2]},"removing_replicas":{}}',
            "",
            {0: (2,)},
        ),
        (
            b'{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partitions":{"0":[1,2]}}',
            "AAAAAAAAAAAAAAAAAAAAAQ",
            {},
        ),
        (b'{"partitions":{"0":[1,2]}}', "", {}),
        (b'{"version":99,"partitions":{"0":[1,2]}}', "", {}),
    ],
)
def test_topic_fields_decide_and_not_the_version(data: bytes, id_: str, adding: dict[int, Any]) -> None:
    assert codecs.decode_topic("t", data, 9, 4) == topic_info(topic_id=id_, adding=adding)


def test_fields_of_ours_and_of_others_are_kept_and_come_last() -> None:
    data = (
        b'{"partitions":{"0":[1,2]},"topic_id":"xAAAAAAAAAAAAAAAAAAAAQ","adding_replicas":{"0":[2]},"removing_replicas":{},"version":3,'
        b'"original_replicas":{"0":[1]},"queued_replicas":{"0":[3]},"stray_replicas":{"0":[4]},'
        b'"theirs":{"deep":[1,{"a":null}]},"also":"\\u00e9"}'
    )
    info = codecs.decode_topic("t", data, 9, 4)
    assert (info.original, info.queued, info.stray) == ({0: (1,)}, {0: (3,)}, {0: (4,)})
    assert info.others == {"theirs": b'{"deep":[1,{"a":null}]}', "also": b'"\\u00e9"'}
    assert codecs.encode_topic(info) == data
    moved = replace(info, adding={}, original={}, queued={}, stray={}, others={})
    assert codecs.encode_topic(moved) == (
        b'{"partitions":{"0":[1,2]},"topic_id":"xAAAAAAAAAAAAAAAAAAAAQ","adding_replicas":{},"removing_replicas":{},"version":3}'
    )


@pytest.mark.parametrize("text", [b"0", b"7", b" 7\n", b"2147483646"])
def test_epoch_is_a_bare_decimal(text: bytes) -> None:
    assert codecs.decode_epoch(text) == int(text)


def test_an_election_as_tools_without_a_version_post_it() -> None:
    """One that no partition can have does not hide the others, either."""
    data = b'{"partitions":[{"topic":"t","partition":-1},{"topic":"t","partition":0}]}'
    assert codecs.decode_partition_list(znode_paths.PREFERRED_ELECTION, data) == [("t", -1), ("t", 0)]


@pytest.mark.parametrize(
    "data",
    [
        b'\xef\xbb\xbf{"partitions":{"0":[1,2]},"theirs":1e400}',
        '{"partitions":{"0":[1,2]},"theirs":1e400}'.encode("utf-16"),
        b' {"partitions":{"0":[1,2]},"theirs":1e400} and more \x00',
        b'{"partitions":null,"partitions":{"0":[1,2]},"theirs":1,"theirs":1e400}',
    ],
)
def test_json_as_kafkas_parser_takes_it(data: bytes) -> None:
    assert codecs.decode_topic("t", data, 9, 4) == topic_info(others={"theirs": b"1e400"})


PLAINTEXT = Endpoint("PLAINTEXT", "PLAINTEXT", "h1", 9092)


@pytest.mark.parametrize(
    ("data", "endpoints", "rack"),
    [
        (
            b'{"version":5,"host":"h1","port":9092,"endpoints":["PLAINTEXT://h1:9092"],'
            b'"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"rack":"r1","jmx_port":-1,'
            b'"timestamp":"1700","features":{}}',
            (PLAINTEXT,),
            "r1",
        ),
        (
            b'{"version":4,"host":null,"port":-1,"endpoints":["GRPC://h1:1","SSL://[::1]:2"],'
            b'"listener_security_protocol_map":{"GRPC":"PLAINTEXT"},"jmx_port":-1,"timestamp":"1"}',
            (Endpoint("GRPC", "PLAINTEXT", "h1", 1), Endpoint("SSL", "SSL", "::1", 2)),
            None,
        ),
        (b'{"version":3,"endpoints":["PLAINTEXT://h1:9092"],"rack":null,"jmx_port":-1}', (PLAINTEXT,), None),
        (b'{"version":2,"host":"h1","port":9092,"endpoints":["PLAINTEXT://h1:9092"]}', (PLAINTEXT,), None),
        (
            b'{"version":4,"endpoints":["inner://h1:1"],"listener_security_protocol_map":{"INNER":"ssl"}}',
            (Endpoint("INNER", "SSL", "h1", 1),),
            None,
        ),
        # Kafka's parser of version 1 knows no endpoints.
        (b'{"version":1,"host":"h1","port":9092,"endpoints":["SSL://h2:1"]}', (PLAINTEXT,), None),
        (b'{"version":1,"host":"h1","port":9092,"jmx_port":-1,"timestamp":"1"}', (PLAINTEXT,), None),
    ],
)
def test_broker_registration_of_every_version(
    data: bytes, endpoints: tuple[Endpoint, ...], rack: str | None
) -> None:
    written = json.loads(data)
    mapped = "listener_security_protocol_map" in written
    known = Broker(7, 42, endpoints, rack, registration=written["version"], protocol_map=mapped)
    assert codecs.decode_broker("/brokers/ids/7", data, 42) == known
    assert not codecs.is_own_registration(data)


def test_an_own_registration_is_told_from_a_brokers_and_reads_like_one() -> None:
    data = codecs.encode_own_registration([PLAINTEXT], "r1")
    assert codecs.is_own_registration(data)
    assert codecs.decode_broker("/brokers/ids/7", data, 1) == Broker(7, 1, (PLAINTEXT,), "r1", registration=4)
    encrypted = Endpoint("INNER", "SSL", "h1", 2)
    assert json.loads(codecs.encode_own_registration([encrypted], None)) == {
        "listener_security_protocol_map": {"INNER": "SSL"},
        "endpoints": ["INNER://h1:2"],
        "jmx_port": -1,
        "host": None,
        "port": -1,
        "version": 4,
        "timestamp": "0",
        "partition_controller": True,
    }


def test_feature_of_an_older_version_and_disabled() -> None:
    data = b'{"version":1,"status":0,"features":{"f":{"min_version_level":1,"max_version_level":3}}}'
    assert codecs.decode_feature(data, 1) == FeatureAnswer(False, 1, (FeatureRange("f", 1, 3),))


def test_finalized_features_are_written_and_read_back() -> None:
    """As in the reference, section 1.1."""
    data = b'{"version":2,"status":1,"features":{"f":{"max_version_level":3}}}'
    assert codecs.encode_feature({"f": 3}) == data
    assert codecs.decode_feature(data, 7) == FeatureAnswer(True, 7, (FeatureRange("f", 3, 3),))


def test_a_registration_tells_what_its_broker_supports() -> None:
    data = (
        b'{"version":5,"endpoints":["GRPC://h:1"],'
        b'"features":{"g":{"min_version":0,"max_version":1},"f":{"min_version":3,"max_version":3}}}'
    )
    broker = codecs.decode_broker("/brokers/ids/1", data, 9)
    assert broker.features == (FeatureRange("f", 3, 3), FeatureRange("g", 0, 1))
    for absent in (
        b'{"version":5,"endpoints":["GRPC://h:1"],"features":null}',
        b'{"version":2,"endpoints":["GRPC://h:1"]}',
    ):
        assert codecs.decode_broker("/brokers/ids/1", absent, 9).features == ()


# --- the reference's own cases -----------------------------------------------------------------------------


def _cases() -> list[Any]:
    return [
        row for row in load("runtime_cases.jsonl").values() if row["suite"] == "TopicPartitionStateZNodeTest"
    ]


@pytest.mark.parametrize("case", _cases(), ids=lambda row: row["test"])
def test_cases_of_the_state_znode(case: dict[str, Any]) -> None:
    given, then = case["when"].get("encode_decode") or case["when"]["decode"], case["then"]
    recovery = {"RECOVERED": 0, "RECOVERING": 1}
    if "encode_decode" in case["when"]:
        state = LeaderAndIsr(
            given["leader"],
            given["leader_epoch"],
            tuple(given["isr"]),
            0,
            given["controller_epoch"],
            recovery[given["leader_recovery_state"]],
        )
        data = codecs.encode_state(state)
        assert json.loads(data).get("leader_recovery_state", 0) == recovery[given["leader_recovery_state"]]
    else:
        data = json.dumps(given).encode()
    assert codecs.decode_state("t", 0, data, case["given"]["zk_version"]) == LeaderAndIsr(
        then["leader"],
        then["leader_epoch"],
        tuple(then["isr"]),
        then["partition_epoch"],
        then["controller_epoch"],
        recovery[then["leader_recovery_state"]],
    )


# --- bad values: path, field and what is allowed -----------------------------------------------------------

Decode = Callable[[bytes], object]
STATE = "/brokers/topics/t/partitions/3/state"
DECODERS: dict[str, Decode] = {
    "/controller": codecs.decode_controller,
    "/controller_epoch": codecs.decode_epoch,
    "/brokers/ids/7": lambda data: codecs.decode_broker("/brokers/ids/7", data, 1),
    "/brokers/topics/t": lambda data: codecs.decode_topic("t", data, 1, 1),
    STATE: lambda data: codecs.decode_state("t", 3, data, 1),
    "/log_dir_event_notification/log_dir_event_7": lambda data: codecs.decode_log_dir_event(
        "/log_dir_event_notification/log_dir_event_7", data
    ),
    "/admin/preferred_replica_election": lambda data: codecs.decode_partition_list(
        znode_paths.PREFERRED_ELECTION, data
    ),
    "/config/topics/t": lambda data: codecs.decode_config("/config/topics/t", data),
    "/feature": lambda data: codecs.decode_feature(data, 1),
}

LONG = b"x" * 300_000
REGISTRATION = b'{"version":5,"endpoints":["GRPC://h:1"]'
TOO_MANY = json.dumps(list(range(1001))).encode()
BAD = [
    ("/brokers/topics/t", b'{"partitions":{"7":' + TOO_MANY + b"}}", "partitions.7"),
    *(
        (
            "/brokers/topics/t",
            b'{"partitions":{"7":[1]},"' + field.encode() + b'":{"7":' + TOO_MANY + b"}}",
            field,
        )
        for field in (
            "adding_replicas",
            "removing_replicas",
            "original_replicas",
            "queued_replicas",
            "stray_replicas",
        )
    ),
    (STATE, b'{"controller_epoch":7,"leader":1,"leader_epoch":4,"isr":' + TOO_MANY + b"}", "isr"),
    ("/controller", b'{"version":2,"timestamp":"1"}', "brokerid"),
    ("/controller", b'{"version":2,"brokerid":"1","timestamp":"1"}', "brokerid"),
    ("/controller", b'{"version":2,"brokerid":-1,"timestamp":"1"}', "brokerid"),
    ("/controller", b'{"version":2,"brokerid":2147483648,"timestamp":"1"}', "brokerid"),
    ("/controller", b'{"version":2,"brokerid":1,"timestamp":"1","endpoint":null}', "endpoint"),
    ("/controller_epoch", b"-1", "decimal"),
    ("/controller_epoch", b"7.0", "decimal"),
    ("/controller_epoch", b"", "decimal"),
    ("/controller_epoch", b"2147483647", "2147483646"),
    ("/controller_epoch", b"9" * 5000, "2147483646"),
    ("/controller_epoch", "²".encode(), "decimal"),
    ("/brokers/ids/7", b'{"version":5,"endpoints":["GRPC://h:0"]}', "endpoints"),
    (
        "/brokers/ids/7",
        b'{"version":5,"endpoints":["GRPC://h:1","grpc://g:2"]}',
        "listener GRPC must be there once",
    ),
    ("/brokers/ids/7", b'{"version":5,"endpoints":["GRPC://a\\nb\\u001b[31m:1"]}', "endpoints"),
    ("/brokers/ids/7", b'{"version":5,"endpoints":["GRPC://a\\u0000b:1"]}', "endpoints"),
    ("/brokers/ids/7", b'{"version":5,"endpoints":["GRPC://' + LONG + b':1"]}', "endpoints"),
    ("/brokers/ids/7", b'{"version":5,"endpoints":["G\\u001b[31m://h:1"]}', "endpoints: listener"),
    (
        "/brokers/ids/7",
        b'{"version":5,"endpoints":[' + b",".join([b'"GRPC://h:1"'] * 101) + b"]}",
        "endpoints: has 101 entries, must have at most 100",
    ),
    (
        "/brokers/ids/7",
        REGISTRATION + b',"listener_security_protocol_map":{"GRPC":"' + LONG + b'"}}',
        "listener_security_protocol_map",
    ),
    ("/brokers/ids/7", REGISTRATION + b',"rack":"' + LONG + b'"}', "rack"),
    ("/brokers/ids/7", REGISTRATION + b',"rack":"a\\u001b[31m"}', "rack"),
    (
        "/brokers/ids/7",
        REGISTRATION
        + b',"features":'
        + json.dumps({f"f{n}": {"min_version": 1, "max_version": 1} for n in range(1001)}).encode()
        + b"}",
        "features: has 1001",
    ),
    ("/brokers/ids/7", b'{"version":1,"host":"a\\nb","port":1}', "host"),
    ("/brokers/ids/7", b'{"version":1,"host":"[unix:/tmp/x]","port":1}', "host"),
    ("/brokers/ids/7", b'{"version":1,"host":"' + LONG + b'","port":1}', "host"),
    ("/brokers/topics/t", b'{"partitions":{"0":[1]},"topic_id":"not base64!!"}', "topic_id"),
    ("/brokers/topics/t", b'{"partitions":{"0":[1]},"topic_id":"' + LONG + b'"}', "topic_id"),
    ("/brokers/topics/t", b'{"partitions":{"0":[1]},"topic_id":"AAAAAAAAAAAAAAAAAAAAAR"}', "topic_id"),
    ("/brokers/topics/t", b'{"partitions":{"0":[1],"00":[2]}}', "key '00'"),
    ("/brokers/ids/7", b'{"version":0,"host":"h","port":1}', "version"),
    ("/brokers/ids/7", b'{"host":"h","port":1}', "version"),
    ("/brokers/ids/7", b'{"version":4,"host":"h","port":70000}', "port"),
    ("/brokers/ids/7", b'{"version":4,"host":"h","port":0}', "port"),
    ("/brokers/ids/7", b'{"version":4,"host":null,"port":-1}', "endpoints"),
    ("/brokers/ids/7", b'{"version":4,"host":null,"port":-1,"endpoints":[]}', "endpoints"),
    ("/brokers/ids/7", b'{"version":4,"endpoints":["h:1"]}', "endpoints"),
    ("/brokers/ids/7", b'{"version":4,"endpoints":["G://h:99999"]}', "endpoints"),
    ("/brokers/ids/7", b'{"version":4,"endpoints":[1]}', "endpoints"),
    ("/brokers/ids/7", b'{"version":4,"endpoints":"G://h:1"}', "endpoints"),
    ("/brokers/ids/7", b'{"version":4,"host":"h","port":1,"rack":7}', "rack"),
    (
        "/brokers/ids/7",
        b'{"version":5,"endpoints":["G://h:1"],"features":{"f":{"max_version":1}}}',
        "min_version",
    ),
    (
        "/brokers/ids/7",
        b'{"version":5,"endpoints":["G://h:1"],"features":{"f":{"min_version":2,"max_version":1}}}',
        "features.f",
    ),
    ("/brokers/topics/t", b'{"version":3}', "partitions"),
    ("/brokers/topics/t", b'{"version":3,"partitions":[[1]]}', "partitions"),
    ("/brokers/topics/t", b'{"version":3,"partitions":{"x":[1]}}', "partitions"),
    ("/brokers/topics/t", b'{"version":3,"partitions":{"-1":[1]}}', "partitions"),
    ("/brokers/topics/t", b'{"version":3,"partitions":{"4294967296":[1]}}', "partitions"),
    ("/brokers/topics/t", b'{"version":3,"partitions":{"' + b"1" * 5000 + b'":[1]}}', "partitions"),
    ("/brokers/topics/t", b'{"version":3,"partitions":{"0":[]}}', "partitions.0"),
    ("/brokers/topics/t", b'{"version":3,"partitions":{"0":[1,1]}}', "partitions.0"),
    ("/brokers/topics/t", b'{"version":3,"partitions":{"0":[1.5]}}', "partitions"),
    ("/brokers/topics/t", b'{"version":3,"partitions":{"0":[-1]}}', "partitions"),
    (
        "/brokers/topics/t",
        b'{"version":3,"partitions":{"0":[1]},"adding_replicas":{"0":[2,2]}}',
        "adding_replicas.0",
    ),
    ("/brokers/topics/t", b'{"version":3,"partitions":{"0":[1]},"topic_id":null}', "topic_id"),
    (STATE, b'{"version":1,"leader_epoch":0,"controller_epoch":0,"isr":[1]}', "leader"),
    (STATE, b'{"version":1,"leader":-2,"leader_epoch":0,"controller_epoch":0,"isr":[1]}', "leader"),
    (STATE, b'{"version":1,"leader":1,"leader_epoch":-1,"controller_epoch":0,"isr":[1]}', "leader_epoch"),
    (
        STATE,
        b'{"version":1,"leader":1,"leader_epoch":0,"controller_epoch":null,"isr":[1]}',
        "controller_epoch",
    ),
    (STATE, b'{"version":1,"leader":1,"leader_epoch":0,"controller_epoch":0,"isr":[1,1]}', "isr"),
    (STATE, b'{"version":1,"leader":1,"leader_epoch":0,"controller_epoch":0,"isr":1}', "isr"),
    (
        STATE,
        b'{"version":1,"leader":1,"leader_epoch":0,"controller_epoch":0,"isr":[1],"leader_recovery_state":2}',
        "leader_recovery_state",
    ),
    ("/admin/preferred_replica_election", b'{"version":1}', "partitions"),
    ("/admin/preferred_replica_election", b'{"version":1,"partitions":[{"topic":"T"}]}', "partition"),
    ("/admin/preferred_replica_election", b'{"version":1,"partitions":[{"topic":1,"partition":0}]}', "topic"),
    (
        "/admin/preferred_replica_election",
        b'{"partitions":[{"topic":"t","partition":2147483648}]}',
        "partition",
    ),
    ("/config/topics/t", b'{"version":1}', "config"),
    ("/config/topics/t", b'{"version":1,"config":{"k":1}}', "config"),
    ("/config/topics/t", b'{"version":1,"config":["k"]}', "config"),
    ("/feature", b'{"version":2,"features":{}}', "status"),
    ("/feature", b'{"version":2,"status":2}', "status"),
    ("/feature", b'{"version":3,"status":1}', "version"),
    ("/feature", b'{"version":2,"status":1}', "features"),
    ("/feature", b'{"version":2,"status":1,"features":{"f":{}}}', "max_version_level"),
    ("/feature", b'{"version":2,"status":1,"features":{"f":{"max_version_level":0}}}', "max_version_level"),
    (
        "/feature",
        b'{"version":2,"status":1,"features":{"f":{"max_version_level":32768}}}',
        "max_version_level",
    ),
    ("/feature", b'{"version":2,"status":1,"features":{"":{"max_version_level":1}}}', "must have a name"),
    (
        "/feature",
        b'{"version":1,"status":1,"features":{"f":{"min_version_level":3,"max_version_level":2}}}',
        "min_version_level 3",
    ),
]


@pytest.mark.parametrize(("path", "data", "field"), BAD, ids=lambda v: str(v)[:50])
def test_bad_value_names_path_and_field(path: str, data: bytes, field: str) -> None:
    with pytest.raises(MalformedError) as raised:
        DECODERS[path](data)
    assert raised.value.path == path
    assert str(raised.value).startswith(f"{path}: ")
    assert field in raised.value.problem
    assert len(str(raised.value)) < 400


NOT_EVEN_JSON = [b"", b"null", b"[]", b"{", b'"x"', b"\xff\xfe", b"{}", b"[" * 100_000, b"7x", b'{"a":\x00}']


@pytest.mark.parametrize("data", NOT_EVEN_JSON, ids=lambda d: repr(d[:10]))
@pytest.mark.parametrize("path", DECODERS)
def test_no_json_object_at_all_names_the_path(path: str, data: bytes) -> None:
    if path.startswith("/config/") and not data:
        assert DECODERS[path](data) == {}
        return
    with pytest.raises(MalformedError) as raised:
        DECODERS[path](data)
    assert raised.value.path == path
    assert raised.value.problem
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize(
    "name", ["", "x", "-1", "1.0", "²", "1" * 5000, "2147483648", " 1", "01", "00", "+1", "٣"]
)
def test_registration_under_a_name_that_is_no_id(name: str) -> None:
    with pytest.raises(MalformedError, match="broker id"):
        codecs.decode_broker(f"/brokers/ids/{name}", b'{"version":4,"host":"h","port":1}', 1)
    assert codecs.ids_of(["20", name, "3"]) == [3, 20]


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "é", "a" * 250, "a\n"])
def test_topic_name_problem(name: str) -> None:
    assert topic_name_problem(name) is not None
    with pytest.raises(MalformedError, match="topic name"):
        codecs.decode_topic(name, b'{"partitions":{"0":[1]}}', 1, 1)


@pytest.mark.parametrize("name", ["a", "...", "__consumer_offsets", "a" * 249, "A-b.c_9"])
def test_topic_names_that_are_fine(name: str) -> None:
    assert topic_name_problem(name) is None


@pytest.mark.parametrize(("port", "well"), [(0, False), (1, True), (65_535, True), (65_536, False)])
def test_ports_are_from_1_to_65535(port: int, well: bool) -> None:
    data = (
        b'{"version":5,"endpoints":["GRPC://h:%d"],"listener_security_protocol_map":{"GRPC":"PLAINTEXT"}}'
        % port
    )
    if well:
        (endpoint,) = codecs.decode_broker("/brokers/ids/1", data, 7).endpoints
        assert endpoint.port == port
    else:
        with pytest.raises(MalformedError, match="port from 1 to 65535"):
            codecs.decode_broker("/brokers/ids/1", data, 7)


def test_registrations_of_controllers_say_when_they_were_made() -> None:
    before_ms = time.time_ns() // 1_000_000
    made = [codecs.encode_controller(100, "h:1"), codecs.encode_standby(100, "h:1", "h:2")]
    after_ms = time.time_ns() // 1_000_000
    assert all(before_ms <= int(json.loads(data)["timestamp"]) <= after_ms for data in made)


def test_a_partition_has_so_many_replicas_and_no_more() -> None:
    def topic(count: int) -> bytes:
        return json.dumps({"version": 1, "partitions": {"0": list(range(count))}}).encode()

    most = REPLICAS_MAX
    assert len(codecs.decode_topic("t", topic(most), 1, 0).partitions[0]) == most
    with pytest.raises(MalformedError, match=f"must name at most {most}"):
        codecs.decode_topic("t", topic(most + 1), 1, 0)


def test_a_registration_may_name_its_cluster() -> None:
    data = {"version": 1, "host": "h", "port": 1}
    for cluster_id in ("", "a-cluster"):
        written = json.dumps(data | {"cluster_id": cluster_id}).encode()
        assert codecs.decode_broker("/brokers/ids/1", written, 7).cluster_id == cluster_id
    assert codecs.decode_broker("/brokers/ids/1", json.dumps(data).encode(), 7).cluster_id == ""
    for odd in ("a" * 100_000, "a\nb", 1):
        with pytest.raises(MalformedError, match="cluster_id"):
            codecs.decode_broker("/brokers/ids/1", json.dumps(data | {"cluster_id": odd}).encode(), 7)


def test_a_registration_names_its_directories_as_kafka_does() -> None:
    data = {
        "version": 5,
        "endpoints": ["GRPC://h:1"],
        "listener_security_protocol_map": {"GRPC": "PLAINTEXT"},
    }
    known = "AAAAAQAAAAAAAAAAAAAAAA"
    for texts in (["AAAA"], [known, f"{known}A"], ["*" * 22]):
        with pytest.raises(MalformedError, match="must be 16 bytes in URL-safe base64"):
            codecs.decode_broker("/brokers/ids/1", json.dumps(data | {"directories": texts}).encode(), 7)
    # Of one that begins with four zeros it is 1: 0 stands for what is not known.
    texts = [known, urlsafe_b64encode(bytes(range(1, 17))).decode()[:22], "A" * 22]
    written = json.dumps(data | {"directories": texts}).encode()
    assert codecs.decode_broker("/brokers/ids/1", written, 7).directories == (1, 0x01020304, 1)
    assert [short_id(text) for text in texts] == [1, 0x01020304, 1], "as brokers compute it"


def test_directories_of_a_state_are_by_member_and_only_what_is_known() -> None:
    state = LeaderAndIsr(1, 0, (3, 1, 2), 0, 1, directories=(30, 0, 20))
    data = codecs.encode_state(state)
    assert json.loads(data)["isr_directories"] == {"3": 30, "2": 20}
    assert codecs.decode_state("t", 0, data, 0) == state
    # The same text beside another ISR, and one in another order, with a broker that is no member.
    other = data.replace(b"[3,1,2]", b"[2,3]")
    assert codecs.decode_state("t", 0, other, 0).directories == (20, 30)
    turned = data.replace(b'{"3":30,"2":20}', b'{"9":90,"2":20,"3":30}')
    assert codecs.decode_state("t", 0, turned, 0).directories == (30, 0, 20)


def test_directories_of_a_state_are_kept_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codecs, "_DISTINCT_MAX", 3)
    known: dict[object, object] = {}
    monkeypatch.setattr(codecs, "_directories_known", known)
    sizes = []
    for directory in range(1, 9):
        state = LeaderAndIsr(1, 0, (1, 2), 0, 1, directories=(directory, 5))
        found = codecs.decode_state("t", 0, codecs.encode_state(state), 0)
        assert found == state
        sizes.append(len(known))
    assert sizes == [1, 2, 3, 1, 2, 3, 1, 2]


def test_as_many_directories_are_read_as_anybody_has() -> None:
    data = {
        "version": 5,
        "endpoints": ["GRPC://h:1"],
        "listener_security_protocol_map": {"GRPC": "PLAINTEXT"},
    }
    for count, well in ((codecs._DIRECTORIES_MAX, True), (codecs._DIRECTORIES_MAX + 1, False)):
        text = json.dumps(data | {"directories": ["AAAAAQAAAAAAAAAAAAAAAA"] * count}).encode()
        if well:
            assert len(codecs.decode_broker("/brokers/ids/1", text, 7).directories) == count
        else:
            with pytest.raises(MalformedError, match="directories"):
                codecs.decode_broker("/brokers/ids/1", text, 7)


def test_an_epoch_of_nothing_is_none() -> None:
    for nothing in (None, b"", b" "):
        with pytest.raises(MalformedError, match="must be a decimal number"):
            codecs.decode_epoch(nothing)


def test_who_claims_reads_the_session_as_it_is_written() -> None:
    session = 0x100000F00DAB17E
    data = codecs.encode_controller(9, "h:1", session, "p-1")
    assert codecs.decode_claim(data) == codecs.Claim(9, "h:1", session, -1)
    assert codecs.decode_claim(codecs.encode_controller(9, "h:1")).session_id == 0
