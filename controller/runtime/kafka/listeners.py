"""Where a Kafka broker takes control requests, and under which listener names it looks for its controller."""

from __future__ import annotations

from collections.abc import Iterable

from controller.core.model import Broker, Endpoint
from controller.errors import ControllerError
from controller.runtime.kafka.endpoints import Listeners, brokers_endpoint


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


def own_endpoints(brokers: Iterable[Broker], listeners: Listeners, host: str, port: int) -> list[Endpoint]:
    """This controller's address under each listener name of the brokers with the security protocol that it serves.

    Brokers look for their controller under the name of their inter-broker or control plane listener (Kafka's
    ``KafkaServer.controlledShutdown``, ``MetadataCacheControllerNodeProvider``), administrators under the name of the
    listener that they are connected to.
    """
    names = dict.fromkeys(
        endpoint.listener
        for broker in brokers
        for endpoint in broker.endpoints
        if endpoint.security_protocol == listeners.security_protocol
    )
    return [Endpoint(name, listeners.security_protocol, host, port) for name in names]


def clients_endpoints(brokers: Iterable[Broker], listeners: Listeners) -> dict[int, Endpoint] | None:
    """Where a client that has asked this controller reaches the brokers, by id, without those that do not speak the
    protocol which it serves. None: it cannot be known, as a broker has several such listeners, and this controller is
    under the names of all of them at one address."""
    found: dict[int, Endpoint] = {}
    for broker in brokers:
        fit = [
            e
            for e in broker.endpoints
            if e.security_protocol == listeners.security_protocol and e.listener != listeners.control_plane
        ]
        if len(fit) > 1:
            return None
        if fit:
            found[broker.id] = fit[0]
    return found
