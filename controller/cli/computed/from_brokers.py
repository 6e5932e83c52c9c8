"""What one broker knows of the cluster, for ``--bootstrap``: while ZooKeeper is out of reach, brokers serve on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from controller.cli.common.options import Options
from controller.cli.common.output import fail, note, print_rows
from proto.addresses import join_address

if TYPE_CHECKING:
    # Imported where a broker is asked: verbs that ask none pay for none.
    from proto.gen import broker_data_pb2 as wire

_INTERNAL_NOTE = "internal topics are left out (--internal)"


def or_from_brokers(show: Callable[..., None]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """With ``--bootstrap``, ``show`` prints what brokers answer. Ends the program if none does."""

    def decorate(work: Callable[..., None]) -> Callable[..., None]:
        @wraps(work)
        def run(options: Options, /, **values: Any) -> None:
            if not options.bootstrap:
                work(options, **values)
                return
            known = {name: values.pop(name) for name in ("topics", "internal") if name in values}
            if any(values.values()) or options.watch_s is not None:
                raise click.UsageError("--bootstrap: brokers cannot answer with these options")
            show(options, **known)

        return run

    return decorate


async def _asked(options: Options, topics: Collection[str]) -> wire.MetadataResponse:
    """The answer of the first broker that gives one."""
    from broker_stub.client.connection import Connections
    from broker_stub.client.errors import ClientError
    from proto.gen import broker_data_pb2 as wire
    from proto.gen import common_pb2

    connections = Connections(options.tls)
    failures = []
    try:
        for address in options.bootstrap:
            request = wire.MetadataRequest(topics=topics)
            try:
                answer = await connections.call(
                    address, "Metadata", request, wire.MetadataResponse, options.timeout_s
                )
            except ClientError as error:
                failures.append(str(error))
                continue
            absent = [t.topic for t in answer.topics if t.error_code == common_pb2.UNKNOWN_TOPIC_OR_PARTITION]
            if absent and topics:
                fail(f"no topic {absent[0]!r}, says the broker at {address}")
            note(f"pctl: as the broker at {address} was told last, without ZooKeeper and controller")
            return answer
    finally:
        await connections.close()
    return fail(f"no broker answered: {'; '.join(failures)}")


def _topics_of(options: Options, topics: Collection[str], internal: bool) -> list[wire.MetadataTopic]:
    answer = asyncio.run(_asked(options, topics))
    found = [t for t in answer.topics if internal or topics or not t.is_internal]
    if len(found) < len(answer.topics):
        note(_INTERNAL_NOTE)
    return sorted(found, key=lambda t: t.topic)


def brokers_told(options: Options) -> None:
    answer = asyncio.run(_asked(options, ()))
    partitions = [p for topic in answer.topics for p in topic.partitions]
    led = Counter(p.leader for p in partitions)
    held = Counter(id_ for p in partitions for id_ in p.replicas)
    live = {b.broker_id: b for b in answer.brokers}
    rows: list[dict[str, Any]] = []
    for id_ in sorted({*live, *held}):
        known = live.get(id_)
        rows.append(
            {
                "broker": id_,
                "state": "ready" if known else "gone",
                "endpoint": join_address(known.host, known.port) if known else None,
                "rack": known.rack if known else None,
                "leaders": led[id_],
                "replicas": held[id_],
            }
        )
    print_rows(rows, ("broker", "state", "endpoint", "rack", "leaders", "replicas"), options.output)


def partitions_told(options: Options, topics: Collection[str], internal: bool) -> None:
    rows = [
        {
            "topic": topic.topic,
            "partition": p.partition,
            "leader": p.leader,
            "leader_epoch": p.leader_epoch,
            "replicas": list(p.replicas),
            "isr": list(p.isr),
            "offline_replicas": list(p.offline_replicas),
        }
        for topic in _topics_of(options, topics, internal)
        for p in sorted(topic.partitions, key=lambda p: p.partition)
    ]
    columns = ("topic", "partition", "leader", "leader_epoch", "replicas", "isr", "offline_replicas")
    print_rows(rows, columns, options.output)


def topics_told(options: Options, internal: bool) -> None:
    rows = [
        {
            "topic": topic.topic,
            "id": topic.topic_id,
            "partitions": len(topic.partitions),
            "replication_factor": max((len(p.replicas) for p in topic.partitions), default=0),
            "unavailable": sum(p.leader < 0 for p in topic.partitions),
            "under_replicated": sum(len(p.isr) < len(p.replicas) for p in topic.partitions),
        }
        for topic in _topics_of(options, (), internal)
    ]
    columns = ("topic", "id", "partitions", "replication_factor", "unavailable", "under_replicated")
    print_rows(rows, columns, options.output)
