"""Addresses of the brokers, from their registrations in ZooKeeper."""

from __future__ import annotations

from controller.core.model import Broker
from controller.errors import EnvironmentFault
from controller.runtime.zookeeper.cluster_reader import ClusterState
from proto.addresses import join_address

#: The listener on which our brokers serve clients; a broker without it is addressed by its first endpoint.
LISTENER = "GRPC"


def broker_addresses(cluster_state: ClusterState) -> list[str]:
    """``host:port`` of every registered broker. Raises EnvironmentFault when there is none."""
    if not cluster_state.brokers:
        raise EnvironmentFault("no broker is registered")
    return [_address(broker) for _, broker in sorted(cluster_state.brokers.items())]


def _address(broker: Broker) -> str:
    ours = [endpoint for endpoint in broker.endpoints if endpoint.listener == LISTENER]
    endpoint = (ours or list(broker.endpoints))[0]
    return join_address(endpoint.host, endpoint.port)
