"""What is wrong with registrations of brokers that are each valid: seen beside one another, and in this cluster. As
texts for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from controller.core.model import Broker
from controller.core.names import IDS_SHOWN_MAX, first_few


def shared_endpoints(brokers: Mapping[int, Broker]) -> Iterator[str]:
    """Addresses with which several brokers are registered."""
    users: dict[tuple[str, int], set[int]] = {}
    for id_, broker in sorted(brokers.items()):
        for endpoint in broker.endpoints:
            users.setdefault((endpoint.host, endpoint.port), set()).add(id_)
    for (host, port), ids in users.items():
        if len(ids) > 1:
            named = first_few(sorted(ids), IDS_SHOWN_MAX)
            yield f"brokers {named} are registered with one address, {host}:{port}: all but one hear nothing"


def of_other_clusters(brokers: Mapping[int, Broker], cluster_id: str) -> Iterator[str]:
    """Brokers whose data belongs to another cluster. ``cluster_id``: that of ``/cluster/id``; empty: not known."""
    for id_, broker in sorted(brokers.items()):
        if cluster_id and broker.cluster_id not in ("", cluster_id):
            yield (
                f"broker {id_} belongs to cluster {broker.cluster_id}, and /cluster/id is {cluster_id}: it will not"
                " start again before one of the two is corrected"
            )
