"""``pctl brokers``: the registered brokers and their states."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import click

from controller.cli.common.cluster_state import note_problems
from controller.cli.common.options import Listing, Options, on_cluster
from controller.cli.common.output import note, print_rows
from controller.client import admin
from controller.core.brokers.stop_approvals import standing
from controller.core.cluster.features import levels_of, missing
from controller.core.model import Broker
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ClusterState
from controller.runtime.zookeeper.session import Session
from proto.gen import maintenance_pb2

_COLUMNS = (
    "broker",
    "state",
    "epoch",
    "endpoint",
    "rack",
    "leaders",
    "replicas",
    "in_sync",
    "pending_pushes",
    "push_problem",
)


@click.command(cls=Listing)
@click.pass_obj
@on_cluster
async def brokers(options: Options, session: Session) -> None:
    """List registered brokers: state, epoch, load, and pending pushes.

    STATE is ready, or one or more of: drained, shutting down, approved to stop, ignored (by the controller),
    incompatible (the broker does not support a finalized feature; the controller ignores it when it registers again).
    """
    cluster_state = await cluster_reader.look(session)
    descriptions, shutting_down = await _described_by_the_controller(options, cluster_state)
    rows = []
    for id_, broker in sorted(cluster_state.brokers.items()):
        description = descriptions.get(id_) if descriptions is not None else None
        rows.append(
            {
                "broker": id_,
                "state": _state(
                    cluster_state,
                    broker,
                    None if descriptions is None else descriptions.keys(),
                    shutting_down,
                ),
                "epoch": broker.epoch,
                "endpoint": f"{broker.endpoints[0].host}:{broker.endpoints[0].port}",
                "rack": broker.rack,
                "leaders": sum(
                    p.state is not None and p.state.leader == id_ for p in cluster_state.partitions
                ),
                "replicas": sum(id_ in p.replicas for p in cluster_state.partitions),
                "in_sync": sum(p.state is not None and id_ in p.state.isr for p in cluster_state.partitions),
                "pending_pushes": description.pending_pushes if description else None,
                "push_problem": description.push_problem if description else None,
            }
        )
    print_rows(rows, _COLUMNS, options.output)
    note_problems(cluster_state)


async def _described_by_the_controller(
    options: Options, cluster_state: ClusterState
) -> tuple[dict[int, Any] | None, Collection[int]]:
    """The controller's descriptions of brokers, None if no controller answers, and the brokers shutting down."""
    endpoint = cluster_state.controller_endpoint
    answer = (
        await admin.describe_cluster(endpoint, options.timeout_s, options.tls)
        if endpoint
        else "no controller is active"
    )
    if isinstance(answer, str) or answer.error_code:
        why = answer if isinstance(answer, str) else admin.ACTIVE_ONLY
        note(f"pctl: from ZooKeeper alone ({why}): pushes and brokers that are shutting down are not known")
        return None, ()
    request = maintenance_pb2.DescribeMaintenanceRequest()
    try:
        described = await admin.ask(endpoint, "DescribeMaintenance", request, options.timeout_s, options.tls)
    except admin.RequestFailedError as error:
        note(f"pctl: {error}")
        return {b.broker_id: b for b in answer.brokers}, ()
    return {b.broker_id: b for b in answer.brokers}, described.shutting_down


def _state(
    cluster_state: ClusterState, broker: Broker, known: Collection[int] | None, shutting_down: Collection[int]
) -> list[str]:
    states = []
    if missing(broker, levels_of(cluster_state.feature)):
        states.append("incompatible")
    if known is not None and broker.id not in known:
        states.append("ignored")
    if broker.id in shutting_down:
        states.append("shutting down")
    if broker.id in cluster_state.maintenance.drained:
        states.append("drained")
    if broker.id in standing(cluster_state.brokers, cluster_state.approvals):
        states.append("approved to stop")
    return states or ["ready"]
