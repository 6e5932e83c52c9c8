"""What a controller would say of each partition, deletion and reassignment, at any moment: it can say it, and of what
is not as it should be it says why or what would change it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from controller.core.context import CoreSettings
from controller.core.explain.brokers import explain_broker
from controller.core.explain.partitions import explain_deletion, explain_move, explain_partition
from controller.core.explain.work import NONE, controller_notes, explain_reassignment, explain_topic_deletion
from controller.core.model import NO_LEADER, Cluster, Partition
from controller.runtime.term import Term
from tests.provers.sim.actors.controllers import SimController
from tests.provers.sim.checks.refusals import NOBODY


def unexplained(controllers: Iterable[SimController]) -> Iterator[str]:
    """Of controllers that lead and are not in the midst of an event."""
    for controller in controllers:
        daemon = controller.daemon
        term = daemon.term if daemon is not None and controller.alive and daemon.active else None
        if term is not None and term.machine.current_event is None:
            yield from (f"{controller.name} {what}" for what in _of_term(term))


def _of_term(term: Term) -> Iterator[str]:
    cluster, settings = term.machine.cluster, term.machine.settings
    controller_notes(cluster, settings)
    for broker_id in (*cluster.brokers, *cluster.forgotten, NOBODY):
        explain_broker(cluster, broker_id)
    for name in {*cluster.topics, *cluster.topics_to_delete}:
        deletion = explain_topic_deletion(cluster, settings, name)
        if deletion is None:
            yield f"knows nothing of the topic {name}"
        elif name in cluster.topics_to_delete and not deletion.changes:
            yield f"does not say what ends the deletion of {name}: {deletion.words()}"
    for partition in list(cluster.partitions()):
        yield from _of_partition(cluster, settings, partition)


def _of_partition(cluster: Cluster, settings: CoreSettings, partition: Partition) -> Iterator[str]:
    explain_deletion(cluster, partition.topic.name)
    explain_move(cluster, settings, partition)
    explained = explain_partition(cluster, partition, unclean_allowed=settings.unclean_leader_election_enable)
    if explained.leader == NO_LEADER and not explained.changes:
        yield f"does not say what would give {partition.name} a leader: {explained.words()}"
    moving = explain_reassignment(cluster, settings, partition)
    goes_on = partition in cluster.reassignments.ongoing
    if goes_on and (moving.phase == NONE or not moving.changes):
        yield f"does not say what ends the reassignment of {partition.name}: {moving.words()}"
    if (
        not goes_on
        and partition not in cluster.reassignments.queued
        and moving.phase not in (NONE, "stray_replicas")
    ):
        yield f"says that {partition.name} is being reassigned, and it is not: {moving.words()}"
