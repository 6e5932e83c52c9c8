"""Where a Kafka broker takes control requests, and under which listener names it looks for its controller."""

from __future__ import annotations

from collections.abc import Iterable

from controller.core.model import Broker, Endpoint
from controller.errors import ControllerError
from controller.runtime.kafka.endpoints import Addresses, Listeners, brokers_endpoint


class NoListenerError(ControllerError):
    """A broker has no listener for control requests: names the broker, its listeners and the setting."""


def control_endpoint(broker: Broker, listeners: Listeners) -> Endpoint:
    """Where control requests to a broker go: its control plane listener if there is one, else its inter-broker listener
    (Kafka's ``ControllerChannelManager``). Raises NoListenerError, also if the listener has another security protocol
    than the settings say: this controller never speaks a weaker one than it was told to."""
    if listeners.control_plane:
        wanted = f"{listeners.control_plane} (kafka_control_plane_listener_name)"
        found = next((e for e in broker.endpoints if e.listener == listeners.control_plane), None)
    else:
        if listeners.inter_broker:
            wanted = f"{listeners.inter_broker} (kafka_inter_broker_listener_name)"
        else:
            wanted = f"with security protocol {listeners.security_protocol} (kafka_security_protocol)"
        found = brokers_endpoint(broker, listeners)
    if found is None:
        has = ", ".join(f"{e.listener} ({e.security_protocol})" for e in broker.endpoints)
        raise NoListenerError(f"broker {broker.id} has no listener {wanted}; its listeners are {has}")
    if found.security_protocol != listeners.security_protocol:
        raise NoListenerError(
            f"broker {broker.id} speaks {found.security_protocol} on its listener {found.listener},"
            f" but kafka_security_protocol is {listeners.security_protocol}"
        )
    return found


def own_endpoints(brokers: Iterable[Broker], listeners: Listeners, addresses: Addresses) -> list[Endpoint]:
    """This controller's address under each name under which brokers look for their controller, and under the other
    names of ``addresses`` that are the brokers'. Nothing if there is no address.

    Controlled shutdown uses the inter-broker listener, also where there is a control plane listener, which everything
    else uses (Kafka's ``KafkaServer.controlledShutdown``, ``MetadataCacheControllerNodeProvider``). A client finds its
    controller under the name of its own listener only: it must not be sent to brokers' addresses on another one.
    """
    if not addresses:
        return []
    brokers = list(brokers)
    known = {
        e.listener for b in brokers for e in b.endpoints if e.security_protocol == listeners.security_protocol
    }
    inter_broker = (brokers_endpoint(broker, listeners) for broker in brokers)
    names = dict.fromkeys(endpoint.listener for endpoint in inter_broker if endpoint is not None)
    if listeners.control_plane:
        names[listeners.control_plane] = None
    names |= dict.fromkeys(name for name in addresses if name in known)
    first = next(iter(addresses.values()))
    return [Endpoint(name, listeners.security_protocol, *addresses.get(name, first)) for name in names]
