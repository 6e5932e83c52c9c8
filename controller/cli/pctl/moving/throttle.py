"""``--throttle``: Kafka's limit on the bytes that replicas copy while they are reassigned (KIP-73), set on the brokers
and topics of a plan and removed when it is done.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import click
from google.protobuf.message import Message

from controller.cli.common.options import Options
from controller.cli.common.output import note
from controller.cli.common.requests import ask, refusals, report
from controller.cli.pctl.moving.load import current_assignment
from controller.core.model import BrokerIds
from controller.core.reassignment.vacating import Key
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ClusterState
from controller.runtime.zookeeper.session import Session
from proto.gen import admin_service_pb2 as pb

_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_LEADER, _FOLLOWER = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
_KEYS = {*_RATES, _LEADER, _FOLLOWER}
_OF_ALL_BROKERS = "brokers/<default>"

throttle_option = click.option(
    "--throttle",
    type=click.IntRange(1, 2**63 - 1),
    metavar="BYTES",
    help="bytes per second that each broker copies at most",
)


async def throttled(
    options: Options,
    session: Session,
    cluster_state: ClusterState,
    after: Mapping[Key, BrokerIds],
    rate: int,
) -> None:
    """Set the limit. Ends the program where that is refused."""
    if code := await _alter(options, session, limits(cluster_state, after, rate)):
        sys.exit(code)
    note(f"brokers copy at most {rate} bytes per second")


def limits(cluster_state: ClusterState, after: Mapping[Key, BrokerIds], rate: int) -> pb.AlterConfigsRequest:
    """The limit on the brokers that take part, and the replicas that it is for: as in Kafka, also those of these topics
    that are under way."""
    topics: dict[str, tuple[list[str], list[str]]] = {}
    for (topic, number), replicas in {**_under_way(cluster_state, after), **after}.items():
        leaders, followers = topics.setdefault(topic, ([], []))
        old = _origin(cluster_state, topic, number)
        leaders.extend(f"{number}:{b}" for b in old)
        followers.extend(f"{number}:{b}" for b in replicas if b not in old)
    resources = [
        _altered(pb.TOPIC, topic, {_LEADER: ",".join(leaders), _FOLLOWER: ",".join(followers)})
        for topic, (leaders, followers) in topics.items()
    ]
    rates: Mapping[str, str | None] = dict.fromkeys(_RATES, str(rate))
    resources += [_altered(pb.BROKER, str(b), rates) for b in _taking_part(cluster_state, after)]
    return pb.AlterConfigsRequest(resources=resources)


def limit_steps(
    cluster_state: ClusterState, after: Mapping[Key, BrokerIds], rate: int | None
) -> list[tuple[str, Message]]:
    """What a dry run begins with; notes what comes at the end."""
    if rate is None:
        return []
    note("the limits are removed when everything is moved; with --no-wait they stay")
    return [("AlterConfigs", limits(cluster_state, after, rate))]


def limited_for(cluster_state: ClusterState, ids: Iterable[int]) -> set[str]:
    """Topics whose limit names a replica on one of these brokers; of a cluster with its settings."""
    wanted = set(map(str, ids))
    return {
        topic
        for topic, config in cluster_state.configs.items()
        for key in (_LEADER, _FOLLOWER)
        if wanted & {replica.partition(":")[2] for replica in config.get(key, "").split(",")}
    }


async def lift(
    options: Options, session: Session, topics: Iterable[str], done: Collection[Key], ongoing: Iterable[Any]
) -> int:
    """Remove the limits that are set on these topics and on all brokers, as kafka-reassign-partitions does with
    --verify and --cancel. Where moves other than ``done`` are ``ongoing``, those of their topics and of all brokers
    stay. Returns an exit code; asks for no change where none is set."""
    moving = {(m.topic, m.partition) for m in ongoing} - set(done)
    named = sorted(set(topics) - {topic for topic, _ in moving})
    brokers = () if moving else sorted((await cluster_reader.look(session, topics=[])).brokers)
    resources = [_resource(pb.TOPIC, topic) for topic in named]
    resources += [_resource(pb.BROKER, str(b)) for b in brokers]
    answer = await ask(options, session, "DescribeConfigs", pb.DescribeConfigsRequest(resources=resources))
    limited = [
        described.resource
        for described in answer.results
        if any(c.name in _KEYS and c.source != _OF_ALL_BROKERS for c in described.configs)
    ]
    if not limited:
        return 0
    lifted = pb.AlterConfigsRequest(resources=[_lifted(resource) for resource in limited])
    code = await _alter(options, session, lifted)
    if not code:
        note("the throttle is removed")
    return code


def _origin(cluster_state: ClusterState, topic: str, number: int) -> BrokerIds:
    """The replicas that have the data: a partition may be on its way already."""
    return current_assignment(cluster_state.topics[topic], number).origin


def _under_way(cluster_state: ClusterState, after: Iterable[Key]) -> dict[Key, BrokerIds]:
    """The moves of the plan's topics that have begun."""
    topics = {topic: cluster_state.topics[topic] for topic, _ in after}
    return {(name, n): info.partitions[n] for name, info in topics.items() for n in info.adding}


def _taking_part(cluster_state: ClusterState, after: Mapping[Key, BrokerIds]) -> Iterable[int]:
    return sorted({b for key, ids in after.items() for b in (*ids, *_origin(cluster_state, *key))})


def _resource(kind: Any, name: str) -> pb.ConfigResource:
    return pb.ConfigResource(resource_type=kind, resource_name=name)


def _lifted(resource: pb.ConfigResource) -> pb.AlterConfigsResource:
    keys = (_LEADER, _FOLLOWER) if resource.resource_type == pb.TOPIC else _RATES
    return _altered(resource.resource_type, resource.resource_name, dict.fromkeys(keys))


def _altered(kind: Any, name: str, changes: Mapping[str, str | None]) -> pb.AlterConfigsResource:
    return pb.AlterConfigsResource(
        resource=_resource(kind, name),
        configs=[pb.AlterableConfig(name=key, value=value) for key, value in changes.items()],
    )


async def _alter(options: Options, session: Session, request: pb.AlterConfigsRequest) -> int:
    answer = await ask(options, session, "AlterConfigs", request)
    return report(refusals((r.resource.resource_name, r) for r in answer.responses))
