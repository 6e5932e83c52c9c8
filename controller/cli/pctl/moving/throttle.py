"""``--throttle``: Kafka's limit on the bytes that replicas copy while they are reassigned (KIP-73), set on the brokers
and topics of a plan and removed when it is done. Kafka brokers obey it; broker-stub does not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

import click

from controller.cli.common.options import Options
from controller.cli.common.output import note
from controller.cli.common.requests import ask, refusals, report
from controller.core.model import BrokerIds
from controller.core.reassignment.vacating import Key
from controller.runtime.zookeeper.session import Session
from proto.gen import admin_service_pb2 as pb

_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_LEADER, _FOLLOWER = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"

throttle_option = click.option(
    "--throttle",
    type=click.IntRange(1, 2**63 - 1),
    metavar="BYTES",
    help="bytes per second that each broker copies at most (Kafka brokers)",
)


async def throttled(
    options: Options,
    session: Session,
    before: Mapping[Key, BrokerIds],
    after: Mapping[Key, BrokerIds],
    rate: int,
) -> None:
    """Set the limit on the brokers that take part, and name the replicas that it is for. Ends the program where that is
    refused."""
    topics: dict[str, tuple[list[str], list[str]]] = {}
    for (topic, number), replicas in after.items():
        leaders, followers = topics.setdefault(topic, ([], []))
        old = before[topic, number]
        leaders.extend(f"{number}:{b}" for b in old)
        followers.extend(f"{number}:{b}" for b in replicas if b not in old)
    resources = [
        _altered(pb.TOPIC, topic, {_LEADER: ",".join(leaders), _FOLLOWER: ",".join(followers)})
        for topic, (leaders, followers) in topics.items()
    ]
    rates: Mapping[str, str | None] = dict.fromkeys(_RATES, str(rate))
    resources += [_altered(pb.BROKER, str(b), rates) for b in _taking_part(before, after)]
    if code := await _alter(options, session, resources):
        sys.exit(code)
    note(f"brokers copy at most {rate} bytes per second")


async def unthrottle(
    options: Options, session: Session, before: Mapping[Key, BrokerIds], after: Mapping[Key, BrokerIds]
) -> None:
    """Remove what ``throttled`` set."""
    none: Mapping[str, str | None] = dict.fromkeys((_LEADER, _FOLLOWER))
    resources = [_altered(pb.TOPIC, topic, none) for topic in sorted({topic for topic, _ in after})]
    resources += [_altered(pb.BROKER, str(b), dict.fromkeys(_RATES)) for b in _taking_part(before, after)]
    await _alter(options, session, resources)


def _taking_part(before: Mapping[Key, BrokerIds], after: Mapping[Key, BrokerIds]) -> Iterable[int]:
    return sorted({b for key, ids in after.items() for b in (*ids, *before[key])})


def _altered(kind: Any, name: str, changes: Mapping[str, str | None]) -> pb.AlterConfigsResource:
    return pb.AlterConfigsResource(
        resource=pb.ConfigResource(resource_type=kind, resource_name=name),
        configs=[pb.AlterableConfig(name=key, value=value) for key, value in changes.items()],
    )


async def _alter(options: Options, session: Session, resources: list[pb.AlterConfigsResource]) -> int:
    answer = await ask(options, session, "AlterConfigs", pb.AlterConfigsRequest(resources=resources))
    return report(refusals((r.resource.resource_name, r) for r in answer.responses))
