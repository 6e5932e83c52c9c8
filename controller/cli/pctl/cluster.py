"""``pctl cluster`` and ``pctl controllers``: the active controller, the candidates, the state of the cluster."""

from __future__ import annotations

from typing import Any

import click

from controller.cli.common.cluster_state import note_problems
from controller.cli.common.options import Listing, Options, on_cluster
from controller.cli.common.output import print_fields
from controller.cli.pctl.maintenance import maintenance_fields
from controller.client import admin
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.session import Session


@click.command(cls=Listing)
@click.pass_obj
@on_cluster
async def cluster(options: Options, session: Session) -> None:
    """Show the active controller and the state of the cluster."""
    cluster_state = await cluster_reader.look(session)
    fields: dict[str, Any] = {
        "controller": cluster_state.controller_id if cluster_state.controller_id >= 0 else "none",
        "controller_endpoint": cluster_state.controller_endpoint,
        "controller_epoch": cluster_state.controller_epoch,
        "candidates": [c.controller_id for c in cluster_state.controllers],
        "brokers": len(cluster_state.brokers),
        "topics": len(cluster_state.topics),
        "partitions": len(cluster_state.partitions),
        "unavailable_partitions": sum(not p.available for p in cluster_state.partitions),
        "under_replicated_partitions": sum(p.under_replicated() for p in cluster_state.partitions),
        "not_on_preferred_leader": sum(
            p.available and p.state.leader != p.replicas[0] for p in cluster_state.partitions if p.state
        ),
        "topics_being_deleted": cluster_state.deleting,
        "unreadable_znodes": len(cluster_state.problems),
        **maintenance_fields(cluster_state.maintenance),
    }
    if cluster_state.controller_endpoint:
        answer = await admin.describe_cluster(cluster_state.controller_endpoint, options.timeout_s)
        if isinstance(answer, str):
            fields["controller_answers"] = f"no ({answer})"
        elif answer.error_code:
            fields["controller_answers"] = (
                "no (NOT_CONTROLLER: its failover is not completed, or it resigned)"
            )
        else:
            fields["controller_answers"] = "yes"
            fields["pending_pushes"] = sum(b.pending_pushes for b in answer.brokers)
    print_fields(fields, options.output)
    note_problems(cluster_state)
