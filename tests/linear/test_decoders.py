"""The work of each decoder and of each request's translation grows at most as n log n with its input."""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from google.protobuf.message_factory import GetMessageClass

from controller.core import znode_paths
from controller.core.effects import TopicInfo
from controller.core.model import Endpoint, LeaderAndIsr
from controller.core.znode_paths import NodePath
from controller.errors import MalformedError
from controller.runtime.rpc.limits import excess
from controller.runtime.rpc.methods import METHODS, Asked, request_of
from controller.runtime.rpc.translate.topics import BadRequestError
from controller.runtime.zookeeper import codecs, single_codecs
from proto.kafka.apis import APIS, Message
from tests.linear.steps import Make, check, steps
from tests.support.proto.kafka_messages import fields
from tests.support.runtime.random_messages import is_map

#: Large enough that no limit below which a request is not looked at comes in between.
SIZE = 160


def decoded(decode: Callable[[bytes], object], data: Callable[[int], bytes]) -> Make:
    """A decoder may refuse the input, after as much work as it likes."""

    def make(n: int) -> Callable[[], int]:
        given = data(n)

        def attempt() -> None:
            with contextlib.suppress(MalformedError, BadRequestError, ValueError):
                decode(given)

        return lambda: steps(attempt)

    return make


# --- znodes ------------------------------------------------------------------------------------------------


def _text(n: int) -> str:
    return "x" * n


def _json(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def _numbers(n: int) -> list[int]:
    return list(range(n))


def _by_number(n: int) -> dict[str, list[int]]:
    return {str(k): [1, 2] for k in range(n)}


def _partitions(n: int) -> list[dict[str, Any]]:
    return [{"topic": "t", "partition": k, "replicas": [1, 2]} for k in range(n)]


_TOPIC_FIELDS = (
    "adding_replicas",
    "removing_replicas",
    "original_replicas",
    "queued_replicas",
    "stray_replicas",
)

Znodes = dict[str, dict[str, tuple[Callable[[bytes], object], Callable[[int], bytes]]]]


def _topic(data: bytes) -> object:
    return codecs.decode_topic("t", data, 1, 1)


def _broker(data: bytes) -> object:
    return codecs.decode_broker("/brokers/ids/1", data, 1)


def _with_field(field: str) -> Callable[[int], bytes]:
    return lambda n: _json(partitions=_by_number(n), **{field: _by_number(n)})


def _info(n: int) -> TopicInfo:
    return TopicInfo("t", "", dict.fromkeys(range(n), (1, 2)), {}, {}, 1, 1)


#: By function of ``codecs``: what is large, the function, and the data. An encoder is given what the data decode to.
CODECS: Znodes = {
    "decode_controller": {
        "text": (codecs.decode_controller, lambda n: _json(brokerid=1, endpoint=_text(n))),
    },
    "decode_claim": {"text": (codecs.decode_claim, lambda n: _json(brokerid=1, session="0x" + _text(n)))},
    "decode_epoch": {"digits": (codecs.decode_epoch, lambda n: b"1" * n)},
    "decode_standby": {
        "text": (
            lambda data: codecs.decode_standby("/controllers/ids/1", data),
            lambda n: _json(endpoint=_text(n), http=_text(n)),
        ),
        "digits of the name": (
            lambda data: codecs.decode_standby(f"/controllers/ids/{data.decode()}", b"{}"),
            lambda n: b"1" * n,
        ),
    },
    "decode_incarnation": {
        "text": (codecs.decode_incarnation, lambda n: _json(brokerid=1, incarnation=_text(n)))
    },
    "decode_registrant": {
        "text": (
            lambda data: codecs.decode_registrant("/controllers/ids/1", data),
            lambda n: _json(incarnation=_text(n), host=_text(n)),
        )
    },
    "decode_broker": {
        "endpoints": (_broker, lambda n: _json(version=5, endpoints=["GRPC://h:1"] * n)),
        "endpoint": (_broker, lambda n: _json(version=5, endpoints=["GRPC://" + "://" * n + ":" * n])),
        "commas": (_broker, lambda n: _json(version=5, endpoints=["," * n])),
        "features": (
            _broker,
            lambda n: _json(
                version=5,
                endpoints=["GRPC://h:1"],
                features={f"f{k}": {"min_version": 1, "max_version": 2} for k in range(n)},
            ),
        ),
        "rack": (_broker, lambda n: _json(version=5, endpoints=["GRPC://h:1"], rack=_text(n))),
    },
    "decode_topic": {
        "partitions": (_topic, lambda n: _json(partitions=_by_number(n))),
        "replicas": (_topic, lambda n: _json(partitions={"0": _numbers(n)})),
        "replicas, one many times": (_topic, lambda n: _json(partitions={"0": [1] * n})),
        "a partition many times": (
            _topic,
            lambda n: _json(partitions={"0" * k + "7": [1] for k in range(n)}),
        ),
        "other fields": (
            _topic,
            lambda n: _json(partitions=_by_number(1), **{f"f{k}": k for k in range(n)}),
        ),
        **{field: (_topic, _with_field(field)) for field in _TOPIC_FIELDS},
    },
    "encode_topic": {
        "partitions": (lambda data: codecs.encode_topic(_info(len(data))), lambda n: b"x" * n),
    },
    "decode_state": {
        "ISR": (
            lambda data: codecs.decode_state("t", 0, data, 1),
            lambda n: _json(leader=1, leader_epoch=1, controller_epoch=1, isr=_numbers(n)),
        ),
    },
    "encode_state": {
        "ISR": (
            lambda data: codecs.encode_state(LeaderAndIsr(1, 1, tuple(range(len(data))), 1, 1)),
            lambda n: b"x" * n,
        ),
    },
    "decode_partition_list": {
        "partitions": (
            lambda data: codecs.decode_partition_list("/x", data),
            lambda n: _json(partitions=_partitions(n)),
        ),
    },
    "encode_partition_list": {
        "partitions": (
            lambda data: codecs.encode_partition_list([("t", k) for k in range(len(data))]),
            lambda n: b"x" * n,
        ),
    },
    "decode_reassignments": {
        "partitions": (
            lambda data: codecs.decode_reassignments("/x", data, 1),
            lambda n: _json(partitions=_partitions(n)),
        ),
        "replicas": (
            lambda data: codecs.decode_reassignments("/x", data, 1),
            lambda n: _json(partitions=[{"topic": "t", "partition": 0, "replicas": _numbers(n)}]),
        ),
    },
    "encode_reassignments": {
        "partitions": (
            lambda data: codecs.encode_reassignments([("t", k, (1, 2)) for k in range(len(data))]),
            lambda n: b"x" * n,
        ),
    },
    "decode_log_dir_event": {
        "text": (
            lambda data: codecs.decode_log_dir_event("/x", data),
            lambda n: _json(broker=1, other=_text(n)),
        ),
    },
    "decode_config": {
        "settings": (
            lambda data: codecs.decode_config("/x", data),
            lambda n: _json(config={f"k{k}": "v" for k in range(n)}),
        ),
    },
    "encode_config": {
        "settings": (
            lambda data: codecs.encode_config({f"k{k}": "v" for k in range(len(data))}),
            lambda n: b"x" * n,
        ),
    },
    "decode_feature": {
        "features": (
            lambda data: codecs.decode_feature(data, 1),
            lambda n: _json(
                version=2, status=1, features={f"f{k}": {"max_version_level": 1} for k in range(n)}
            ),
        ),
    },
    "encode_feature": {
        "features": (
            lambda data: codecs.encode_feature({f"f{k}": 1 for k in range(len(data))}),
            lambda n: b"x" * n,
        ),
    },
    "encode_own_registration": {
        "endpoints": (
            lambda data: codecs.encode_own_registration([Endpoint("A", "B", "h", 1)] * len(data), None),
            lambda n: b"x" * n,
        ),
    },
}
#: Their input is a few numbers of ours.
SMALL = {"encode_controller", "encode_standby", "decode_with"}

_APPROVAL = {"broker_epoch": 1, "reason": "", "author": "", "at_ms": 1}
#: By path: what its znode may hold much of.
NODES: dict[str, Callable[[int], bytes]] = {
    znode_paths.PRODUCER_IDS: lambda n: _json(broker=1, block_start="1" * n, block_end="2"),
    znode_paths.CLUSTER_ID: lambda n: _json(id=_text(n)),
    znode_paths.MAINTENANCE: lambda n: _json(
        drained={str(k): {"reason": "", "author": ""} for k in range(n)}, accepted=_numbers(n)
    ),
    znode_paths.APPROVALS: lambda n: _json(version=1, approvals={str(k): _APPROVAL for k in range(n)}),
    znode_paths.FORGOTTEN: lambda n: _json(
        version=1,
        brokers={"3": {"reason": "", "author": "", "at_ms": 1, "replicas": {f"t{k}": [1] for k in range(n)}}},
    ),
    znode_paths.TERM_HISTORY: lambda n: _json(
        version=1, terms=[{"controller_id": 1, "controller_epoch": 1, "from_ms": 1, "why": _text(n)}]
    ),
    znode_paths.RESIGNED: lambda n: _json(reason=_text(n), author=_text(n), at_ms=1),
    znode_paths.BROKER_DEFAULTS: lambda n: _json(config={f"k{k}": "v" for k in range(n)}),
}
WATCHED: dict[str, Callable[[int], bytes]] = {
    znode_paths.PREFERRED_ELECTION: lambda n: _json(partitions=_partitions(n)),
    znode_paths.REASSIGN_PARTITIONS: lambda n: _json(partitions=_partitions(n)),
    znode_paths.ISR_NOTIFICATIONS: lambda n: _json(partitions=_partitions(n)),
    znode_paths.LOG_DIR_NOTIFICATIONS: lambda n: _json(broker=1, other=_text(n)),
    znode_paths.SETTINGS: lambda n: _json(
        version=1, settings={"<default>": {f"k{k}": "v" for k in range(n)}}
    ),
    znode_paths.CONFIG_CHANGES: lambda n: _json(version=2, entity_path="topics/" + _text(n)),
}


def znodes() -> Iterator[tuple[str, Make]]:
    for name, rows in CODECS.items():
        for what, (decode, data) in rows.items():
            yield f"{name}: {what}", decoded(decode, data)
    for path, data in NODES.items():
        yield path, decoded(partial(single_codecs.decode, NodePath[object](path)), data)
    for path, data in WATCHED.items():
        at = (
            path
            if path in (znode_paths.PREFERRED_ELECTION, znode_paths.REASSIGN_PARTITIONS, znode_paths.SETTINGS)
            else f"{path}/x_1"
        )
        yield path, decoded(partial(_watched, at), data)


def _watched(path: str, data: bytes) -> object:
    return single_codecs.decode_watched(path, data, 1)


def test_every_codec_has_a_row() -> None:
    ours = {
        name
        for name, found in inspect.getmembers(codecs, inspect.isfunction)
        if name.startswith(("decode_", "encode_")) and found.__module__ == codecs.__name__
    }
    assert ours - SMALL == set(CODECS)
    assert set(single_codecs._WATCHED) == set(WATCHED)


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in znodes()])
def test_the_work_of_a_codec(make: Make) -> None:
    check(make, SIZE)


# --- requests by gRPC --------------------------------------------------------------------------------------


def filled(kind: Any, n: int, depth: int = 0) -> Any:
    """A message with ``n`` entries in each of its lists and maps; in those of entries there is one."""
    message = GetMessageClass(kind)()
    for field in kind.fields:
        if depth > 2:
            break
        many = n if depth == 0 else 1
        if is_map(field):
            value = field.message_type.fields_by_name["value"]
            for k in range(many):
                at = (
                    f"k{k}"
                    if field.message_type.fields_by_name["key"].cpp_type == field.CPPTYPE_STRING
                    else k
                )
                if value.message_type is None:
                    getattr(message, field.name)[at] = _one(value, k)
                else:
                    getattr(message, field.name)[at].MergeFrom(filled(value.message_type, 1, depth + 1))
        elif field.is_repeated:
            for k in range(many):
                if field.message_type is None:
                    getattr(message, field.name).append(_one(field, k))
                else:
                    getattr(message, field.name).add().MergeFrom(filled(field.message_type, 1, depth + 1))
        elif field.message_type is not None:
            getattr(message, field.name).MergeFrom(filled(field.message_type, n, depth + 1))
        elif field.containing_oneof is None:
            setattr(message, field.name, _one(field, 1))
    return message


def _one(field: Any, k: int) -> Any:
    if field.cpp_type == field.CPPTYPE_STRING:
        return f"x{k}" if field.type == field.TYPE_STRING else b"x"
    return field.enum_type.values[-1].number if field.enum_type is not None else k


REQUESTS = [
    (f"{service.rsplit('.', 1)[-1]}/{name}", request_of(service, name), rpc)
    for service, methods in METHODS.items()
    for name, rpc in methods.items()
]


@pytest.mark.parametrize(("request_type", "rpc"), [pytest.param(*row, id=name) for name, *row in REQUESTS])
def test_the_work_of_a_requests_translation(request_type: Any, rpc: Any) -> None:
    def work(request: Any) -> None:
        excess(request)
        if isinstance(rpc, Asked):
            rpc.read(request)

    def make(n: int) -> Callable[[], int]:
        request = filled(request_type.DESCRIPTOR, n)

        def attempt() -> None:
            with contextlib.suppress(BadRequestError):
                work(request)

        return lambda: steps(attempt)

    check(make, SIZE)


# --- requests in Kafka's protocol --------------------------------------------------------------------------


def sized(cls: Any, version: int, n: int, depth: int = 0) -> Any:
    """A structure with ``n`` entries in each of its arrays; in those of entries there is one."""
    values: dict[str, Any] = {}
    for field in fields(cls, version):
        if field.kind in (bool, int, str, bytes):
            one = {bool: True, int: min(field.high, 1), str: "x", bytes: b"\1" * 16}[field.kind]
        else:
            one = sized(field.kind, version, 1, depth + 1)
        values[field.name] = [one] * (n if depth == 0 else 1) if field.array else one
    return cls(**values)


@pytest.mark.parametrize("message", [api.request for api in APIS.values()], ids=lambda m: m.__name__)
def test_the_work_of_a_decoder_of_kafkas_protocol(message: type[Message]) -> None:
    version = message.VERSIONS[-1]

    def make(n: int) -> Callable[[], int]:
        data = sized(message, version, n).encode(version)
        return lambda: steps(lambda: message.decode(data, version))

    check(make, SIZE)
