"""kio, an independent codec of Kafka's protocol, reads what we write, sees the same, writes the same bytes."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import uuid
from random import Random
from typing import Any

import pytest
from kio.serial import entity_reader, entity_writer

from proto.kafka.apis import APIS, ApiKey, Message, encode_request, encode_response
from proto.kafka.primitives import ZERO_UUID
from tests.support.proto.kafka_messages import CASES, fields, filled

SAMPLES = 3
#: Versions that Kafka 3.8 and 3.9 added and kio 0.2.0 lacks.
NEWER = {
    ApiKey.API_VERSIONS: {4},
    ApiKey.FIND_COORDINATOR: {5, 6},
    ApiKey.INIT_PRODUCER_ID: {5},
    ApiKey.LIST_GROUPS: {5},
    ApiKey.LIST_OFFSETS: {9},
    ApiKey.LIST_TRANSACTIONS: {1},
}
KNOWN = [
    (message, version) for message, version in CASES if version not in NEWER.get(ApiKey(message.API_KEY), ())
]


def entity(message: type[Message], version: int) -> Any:
    """kio's class. Raises ModuleNotFoundError where it has none."""
    name = message.__module__.rpartition(".")[2]
    api, _, kind = name.rpartition("_")
    return getattr(importlib.import_module(f"kio.schema.{api}.v{version}.{kind}"), message.__name__)


def _names(kio: Any) -> dict[str, str]:
    """Of the fields of kio's class: as we call them, as kio does."""
    return {
        field.name.removesuffix("_").replace("k_raft", "kraft").removesuffix("_ms"): field.name
        for field in dataclasses.fields(kio)
    }


def require_same(ours: Any, theirs: Any, where: str) -> None:
    match theirs:
        case tuple():
            assert len(ours) == len(theirs), where
            for n, pair in enumerate(zip(ours, theirs, strict=True)):
                require_same(*pair, f"{where}[{n}]")
        case uuid.UUID():
            assert ours == theirs.bytes, where
        case datetime.timedelta():
            assert datetime.timedelta(milliseconds=ours) == theirs, where
        case None:
            assert ours in (None, ZERO_UUID, -1), where
        case _ if dataclasses.is_dataclass(theirs):
            known = _names(theirs)
            for name in ours.__struct_fields__:
                their_name = known.pop(name.removesuffix("_ms"), None)
                if their_name is not None:
                    require_same(getattr(ours, name), getattr(theirs, their_name), f"{where}.{name}")
            assert not known, where
        case _:
            assert ours == theirs, where


@pytest.mark.parametrize(
    "case", [case for case in CASES if case not in KNOWN], ids=lambda c: f"{c[0].__name__} {c[1]}"
)
def test_kio_lacks_what_the_table_says(case: tuple[type[Message], int]) -> None:
    with pytest.raises(ModuleNotFoundError):
        entity(*case)


@pytest.mark.parametrize("case", KNOWN, ids=lambda c: f"{c[0].__name__} {c[1]}")
def test_kio_reads_and_writes_the_same(case: tuple[type[Message], int]) -> None:
    message, version = case
    kio = entity(message, version)
    assert {field.name.removesuffix("_ms") for field in fields(message, version)} == _names(kio).keys()
    for seed in range(SAMPLES):
        ours = filled(message, version, Random(f"{message.__name__} {version} {seed}"))
        written = ours.encode(version)
        stream = io.BytesIO(written)
        theirs = entity_reader(kio)(stream)
        assert stream.read() == b""
        require_same(ours, theirs, message.__name__)
        again = io.BytesIO()
        entity_writer(kio)(again, theirs)
        assert again.getvalue() == written


@pytest.mark.parametrize("case", KNOWN, ids=lambda c: f"{c[0].__name__} {c[1]}")
def test_kio_reads_our_headers(case: tuple[type[Message], int]) -> None:
    message, version = case
    header = entity(message, version).__header_schema__
    is_request = message is APIS[ApiKey(message.API_KEY)].request
    framed = (
        encode_request(message(), version, 9, "c") if is_request else encode_response(message(), version, 9)
    )
    stream = io.BytesIO(framed)
    found = entity_reader(header)(stream)
    assert found.correlation_id == 9
    if is_request:
        assert (found.request_api_key, found.request_api_version) == (message.API_KEY, version)
    assert stream.read() == message().encode(version)
