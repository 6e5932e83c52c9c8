"""Which listener of a broker is used, and how this controller appears among the brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from controller.core.model import Broker, Cluster, ControlProtocol, Endpoint
from controller.runtime.config import Settings


class Listeners(NamedTuple):
    """Names of the brokers' listeners; empty: not configured."""

    inter_broker: str
    control_plane: str
    security_protocol: str


#: Host and port by listener name; the empty name: that of the brokers' own listeners.
Addresses = Mapping[str, tuple[str, int]]


class Node(NamedTuple):
    """A node as clients see it."""

    id: int
    host: str
    port: int
    rack: str | None


def listeners_of(settings: Settings) -> Listeners:
    return Listeners(
        settings.kafka_inter_broker_listener_name,
        settings.kafka_control_plane_listener_name,
        settings.kafka_security_protocol,
    )


def brokers_endpoint(broker: Broker, listeners: Listeners) -> Endpoint | None:
    """The endpoint on which brokers talk to each other; None if the broker has no such listener."""
    for endpoint in broker.endpoints:
        if listeners.inter_broker:
            if endpoint.listener == listeners.inter_broker:
                return endpoint
        elif endpoint.security_protocol == listeners.security_protocol:
            return endpoint
    return None


def clients_endpoint(broker: Broker, listeners: Listeners, name: str) -> Endpoint | None:
    """Where a client that asks on the listener of this name reaches a broker; empty name: where brokers do."""
    if not name:
        return brokers_endpoint(broker, listeners)
    return next((e for e in broker.endpoints if e.listener == name), None)


def kafka_brokers(cluster: Cluster) -> list[Broker]:
    """The brokers that Kafka's clients and brokers know: all but those led by gRPC."""
    return [b for b in cluster.brokers.values() if b.control_protocol is ControlProtocol.KAFKA]


def own_rack(brokers: Iterable[Broker]) -> str | None:
    """The rack that this controller takes part in: any, if all brokers have one. With some racks missing, brokers
    refuse to create topics automatically."""
    racks = [broker.rack for broker in brokers]
    return racks[0] if racks and all(racks) else None
