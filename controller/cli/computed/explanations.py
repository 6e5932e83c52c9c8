"""Explanations computed from ZooKeeper, where no controller answers: the JSON that the controller would send.

Imported only then: it needs the whole core.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from controller.core.explain.brokers import explain_broker
from controller.core.explain.controllers import explain_controller
from controller.core.explain.partitions import explain_deletion, explain_move, explain_partition
from controller.core.explain.work import explain_reassignment, explain_topic_deletion
from controller.core.znode_paths import topic_config_path
from controller.planning.advice import checked
from controller.planning.context import cluster_of
from controller.planning.executor import Executor
from controller.planning.snapshot import Snapshot, unclean_allowed
from controller.runtime.rpc.translate.plan_data import explanation_data
from controller.runtime.zookeeper.cluster_reader import ClusterState


def of_partition(
    snapshot: Snapshot, topic: str, number: int, *, controller_active: bool
) -> dict[str, Any] | None:
    """None: there is no such partition."""
    cluster = cluster_of(snapshot)
    found = cluster.partition(topic, number)
    if found is None:
        return None
    explained = explain_partition(
        cluster,
        found,
        unclean_allowed=unclean_allowed(snapshot, topic),
        controller_active=controller_active,
        config_problem=snapshot.problems.get(topic_config_path(topic), ""),
    )
    explained = checked(snapshot, explained)
    pending = _pending_work_notes(snapshot, topic, number)
    return explanation_data(replace(explained, notes=(*explained.notes, *pending)))


def _pending_work_notes(snapshot: Snapshot, topic: str, number: int) -> tuple[str, ...]:
    """Notes on the topic's deletion and the partition's reassignment, as a new controller would find them."""
    executor = Executor(snapshot)
    cluster = executor.machine.cluster
    partition = cluster.partition(topic, number)
    if partition is None:
        return ()
    return (*explain_deletion(cluster, topic), *explain_move(cluster, executor.machine.settings, partition))


def of_broker(snapshot: Snapshot, broker_id: int) -> dict[str, Any]:
    return explanation_data(explain_broker(cluster_of(snapshot), broker_id))


def of_controller(cluster_state: ClusterState) -> dict[str, Any]:
    candidates = [c.controller_id for c in cluster_state.controllers]
    known = explain_controller(
        cluster_state.controller_id,
        cluster_state.controller_epoch,
        candidates,
        cluster_state.problems,
        handed_back=cluster_state.resignation is not None,
    )
    suspension = cluster_state.maintenance.suspension
    notes = (f"the controllers start no automatic work: {suspension}",) if suspension else ()
    return explanation_data(replace(known, notes=notes))


def of_deletion(snapshot: Snapshot, topic: str) -> dict[str, Any] | None:
    """None: neither the topic nor a deletion of it is known."""
    machine = Executor(snapshot).machine
    found = explain_topic_deletion(machine.cluster, machine.settings, topic)
    return None if found is None else explanation_data(found)


def of_reassignment(snapshot: Snapshot, topic: str, number: int) -> dict[str, Any] | None:
    """None: there is no such partition."""
    machine = Executor(snapshot).machine
    found = machine.cluster.partition(topic, number)
    return (
        None
        if found is None
        else explanation_data(explain_reassignment(machine.cluster, machine.settings, found))
    )
