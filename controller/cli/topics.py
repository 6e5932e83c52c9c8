"""Creating a topic by its znodes, without a controller: configuration first, then the topic, as Kafka's admin path
does. Programs of this repository use it where no controller may be active yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import click

from controller.core.effects import TopicInfo
from controller.core.model import BrokerIds
from controller.core.placement import (
    PlacementError,
    assign_replicas,
    check_assignment,
    check_name,
    parse_assignment,
)
from controller.runtime import znodes
from controller.runtime.inspection import Seen
from controller.runtime.term import new_topic_id
from controller.runtime.zookeeper import NodeExistsError, Session


@dataclass(frozen=True)
class ZnodeWrite:
    """One znode to create."""

    path: str
    data: bytes


@dataclass(frozen=True)
class TopicPlan:
    """What creating a topic writes, in order."""

    name: str
    assignment: Mapping[int, BrokerIds]
    writes: tuple[ZnodeWrite, ...]


def plan_topic(
    seen: Seen,
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    configs: Sequence[str],
) -> TopicPlan:
    """Validate, place replicas, and say what would be written.

    Raises PlacementError when the cluster cannot hold the topic, click.UsageError for options that do not fit.
    """
    if problem := znodes.topic_name_problem(name):
        raise PlacementError(problem)
    check_name(name, seen.topics.keys(), seen.deleting)
    if replica_assignment is not None:
        if partitions is not None or replication_factor is not None:
            raise click.UsageError(
                "--replica-assignment says it all: leave out --partitions and --replication-factor"
            )
        assignment = parse_assignment(replica_assignment)
    else:
        # Topics begin at different brokers, so that small ones do not all lead on the first.
        start = sum(len(info.partitions) for info in seen.topics.values())
        assignment = assign_replicas(
            list(seen.brokers.values()), partitions or 1, replication_factor or 1, start
        )
    check_assignment(assignment)
    for number, replicas in assignment.items():
        if max(replicas) > znodes.INT_MAX:
            raise PlacementError(
                f"replica assignment of partition {number}: broker ids must be at most {znodes.INT_MAX}"
            )
    info = TopicInfo(name, new_topic_id(), dict(assignment), {}, {}, -1, 0)
    writes = (
        ZnodeWrite(f"{znodes.TOPIC_CONFIGS}/{name}", znodes.encode_config(parse_configs(configs))),
        ZnodeWrite(znodes.topic_path(name), znodes.encode_topic(info)),
    )
    return TopicPlan(name, assignment, writes)


def parse_configs(configs: Sequence[str]) -> dict[str, str]:
    """KEY=VALUE each. Raises click.UsageError."""
    parsed = {}
    for text in configs:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise click.UsageError(f"{text!r}: must be KEY=VALUE")
        parsed[key.strip()] = value.strip()
    return parsed


async def create_topic(session: Session, plan: TopicPlan) -> None:
    """Write the plan. Raises PlacementError when somebody created the topic meanwhile."""
    for write in plan.writes:
        await session.ensure(write.path.rsplit("/", 1)[0])
        try:
            await session.create(write.path, write.data)
        except NodeExistsError:
            if write.path == znodes.topic_path(plan.name):
                raise PlacementError(f"topic {plan.name!r} exists already") from None
            # A configuration left from a former topic of this name: the new one replaces it.
            await session.delete(write.path)
            await session.create(write.path, write.data)
