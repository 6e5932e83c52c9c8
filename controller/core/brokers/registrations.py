"""What is wrong with registrations of brokers that are each valid: seen beside one another, and in this cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import NamedTuple

from controller.core.model import Broker
from controller.core.names import IDS_SHOWN_MAX, first_few


class Misfit(Enum):
    SHARED_ENDPOINT = "shared endpoint"
    OTHER_CLUSTER = "other cluster"


class RegistrationProblem(NamedTuple):
    """``text``: for people."""

    kind: Misfit
    text: str


def problems_of(brokers: Mapping[int, Broker], cluster_id: str) -> Iterator[RegistrationProblem]:
    """``cluster_id``: that of ``/cluster/id``; empty: not known."""
    users: dict[tuple[str, int], set[int]] = {}
    for id_, broker in sorted(brokers.items()):
        for endpoint in broker.endpoints:
            users.setdefault((endpoint.host, endpoint.port), set()).add(id_)
    for (host, port), ids in users.items():
        if len(ids) > 1:
            named = first_few(sorted(ids), IDS_SHOWN_MAX)
            text = f"brokers {named} are registered with one address, {host}:{port}: all but one hear nothing"
            yield RegistrationProblem(Misfit.SHARED_ENDPOINT, text)
    for id_, broker in sorted(brokers.items()):
        if cluster_id and broker.cluster_id not in ("", cluster_id):
            text = (
                f"broker {id_} belongs to cluster {broker.cluster_id}, and /cluster/id is {cluster_id}: it will not"
                " start again before one of the two is corrected"
            )
            yield RegistrationProblem(Misfit.OTHER_CLUSTER, text)
