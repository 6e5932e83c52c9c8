"""Where clients of brokers find them: the registrations in ZooKeeper."""

from __future__ import annotations

from controller.client.cluster_reader import Seen
from controller.core.model import Broker
from controller.errors import EnvironmentFault

#: The listener that our brokers serve clients on; another implementation's only one is tried as it is.
LISTENER = "GRPC"


def bootstrap(seen: Seen) -> list[str]:
    """``host:port`` of every registered broker. Raises EnvironmentFault when there is none."""
    if not seen.brokers:
        raise EnvironmentFault("no broker is registered: there is nobody to talk to")
    return [_address(broker) for _, broker in sorted(seen.brokers.items())]


def _address(broker: Broker) -> str:
    ours = [endpoint for endpoint in broker.endpoints if endpoint.listener == LISTENER]
    endpoint = (ours or list(broker.endpoints))[0]
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{host}:{endpoint.port}"
