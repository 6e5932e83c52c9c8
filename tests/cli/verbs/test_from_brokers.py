"""``pctl --bootstrap``: brokers are asked one after the other, and tell what they know."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from broker_stub.client.connection import Connections
from broker_stub.client.errors import UnreachableError
from controller.cli.common.options import Options
from controller.cli.computed import from_brokers
from proto.gen import broker_data_pb2 as wire


async def test_each_broker_that_did_not_answer_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def away(_self: Connections, address: str, method: str, *_: Any) -> None:
        raise UnreachableError(f"{method} at {address}", "away", sent=False)

    monkeypatch.setattr(Connections, "call", away)
    with pytest.raises(SystemExit):
        await from_brokers._asked(Options("", "table", 1.0, bootstrap=["a:1", "b:2"]), ())
    assert re.findall(r"[ab]:\d", capsys.readouterr().err) == ["a:1", "b:2"]


async def test_who_has_an_answer_leaves_no_connection_open(monkeypatch: pytest.MonkeyPatch) -> None:
    called = list[str]()

    async def call(_self: Connections, address: str, *_: Any) -> wire.MetadataResponse:
        called.append(address)
        return wire.MetadataResponse()

    async def close(_self: Connections) -> None:
        called.append("closed")

    monkeypatch.setattr(Connections, "call", call)
    monkeypatch.setattr(Connections, "close", close)
    await from_brokers._asked(Options("", "table", 1.0, bootstrap=["a:1", "b:2"]), ())
    assert called == ["a:1", "closed"]


@pytest.mark.parametrize(
    ("named", "internal", "shown", "left_out"),
    [((), False, 1, 1), (("__offsets",), False, 2, 0), ((), True, 2, 0)],
)
def test_brokers_tell_of_internal_topics_to_who_names_them(
    named: tuple[str, ...],
    internal: bool,
    shown: int,
    left_out: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def asked(*_: Any) -> wire.MetadataResponse:
        partitions = [wire.MetadataPartition()]
        topics = [
            wire.MetadataTopic(topic=name, is_internal=name[0] == "_", partitions=partitions)
            for name in ("t", "__offsets")
        ]
        return wire.MetadataResponse(topics=topics)

    monkeypatch.setattr(from_brokers, "_asked", asked)
    from_brokers.partitions_told(Options("", "json", 1.0), named, internal)
    told = capsys.readouterr()
    assert len(json.loads(told.out)) == shown
    assert bool(told.err) == bool(left_out)
    from_brokers.brokers_told(Options("", "json", 1.0))
    assert not capsys.readouterr().err, "who counts brokers counts those of all topics"


def test_what_a_broker_knows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    partitions = [
        wire.MetadataPartition(partition=1, leader=0, leader_epoch=4, replicas=[0, 7], isr=[0]),
        wire.MetadataPartition(partition=0, leader=-1, leader_epoch=3, replicas=[7, 0], isr=[7]),
    ]
    answer = wire.MetadataResponse(
        brokers=[wire.MetadataBroker(broker_id=0, host="::1", port=1)],
        topics=[wire.MetadataTopic(topic="t", partitions=partitions)],
    )

    async def asked(*_: Any) -> wire.MetadataResponse:
        return answer

    monkeypatch.setattr(from_brokers, "_asked", asked)

    def rows(show: Any, *given: Any) -> list[dict[str, Any]]:
        show(Options("", "json", 1.0), *given)
        found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        return found

    found = rows(from_brokers.brokers_told)
    assert [(r["broker"], r["state"], r["leaders"], r["replicas"]) for r in found] == [
        (0, "ready", 1, 2),
        (7, "gone", 0, 2),
    ]
    assert [r["endpoint"] for r in found] == ["[::1]:1", None]
    (topic,) = rows(from_brokers.topics_told, False)
    assert (topic["unavailable"], topic["under_replicated"], topic["replication_factor"]) == (1, 2, 2)
    assert [r["partition"] for r in rows(from_brokers.partitions_told, (), False)] == [0, 1]
