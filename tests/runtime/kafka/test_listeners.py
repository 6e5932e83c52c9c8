"""Which listener of a broker takes control requests."""

from __future__ import annotations

import pytest

from controller.core.model import Broker, ControlProtocol, Endpoint
from controller.runtime.kafka.endpoints import Listeners, clients_endpoint
from controller.runtime.kafka.listeners import NoListenerError, control_endpoint, own_endpoints

EXTERNAL = Endpoint("EXTERNAL", "SSL", "x", 1)
INTERNAL = Endpoint("INTERNAL", "PLAINTEXT", "i", 2)
CONTROL = Endpoint("CONTROL", "PLAINTEXT", "c", 3)
BROKER = Broker(3, 30, (EXTERNAL, INTERNAL, CONTROL))


@pytest.mark.parametrize(
    ("listeners", "expected"),
    [
        (Listeners("", "", "PLAINTEXT"), INTERNAL),
        (Listeners("", "", "SSL"), EXTERNAL),
        (Listeners("CONTROL", "", "PLAINTEXT"), CONTROL),
        (Listeners("INTERNAL", "CONTROL", "PLAINTEXT"), CONTROL),
        (Listeners("", "CONTROL", "PLAINTEXT"), CONTROL),
    ],
)
def test_control_plane_before_inter_broker_before_the_first_of_the_protocol(
    listeners: Listeners, expected: Endpoint
) -> None:
    assert control_endpoint(BROKER, listeners) == expected


@pytest.mark.parametrize(
    ("listeners", "words"),
    [
        (
            Listeners("REPLICATION", "", "PLAINTEXT"),
            "broker 3 has no listener REPLICATION (kafka_inter_broker_listener_name);"
            " its listeners are EXTERNAL (SSL), INTERNAL (PLAINTEXT), CONTROL (PLAINTEXT)",
        ),
        (
            Listeners("INTERNAL", "PLANE", "PLAINTEXT"),
            "no listener PLANE (kafka_control_plane_listener_name);",
        ),
        (
            Listeners("", "", "SASL_SSL"),
            "no listener with security protocol SASL_SSL (kafka_security_protocol);",
        ),
        (
            Listeners("EXTERNAL", "", "PLAINTEXT"),
            "broker 3 speaks SSL on its listener EXTERNAL, but kafka_security_protocol is PLAINTEXT",
        ),
        (
            Listeners("EXTERNAL", "CONTROL", "SSL"),
            "broker 3 speaks PLAINTEXT on its listener CONTROL, but kafka_security_protocol is SSL",
        ),
    ],
)
def test_an_error_names_broker_listeners_and_setting(listeners: Listeners, words: str) -> None:
    with pytest.raises(NoListenerError) as raised:
        control_endpoint(BROKER, listeners)
    assert words in str(raised.value)


def test_a_listener_named_grpc_decides_the_protocol() -> None:
    assert BROKER.control_protocol is ControlProtocol.KAFKA
    both = Broker(3, 30, (INTERNAL, Endpoint("GRPC", "PLAINTEXT", "g", 4)))
    assert both.control_protocol is ControlProtocol.GRPC


def test_a_client_gets_the_brokers_addresses_on_the_listener_that_it_asks_on() -> None:
    listeners = Listeners("INTERNAL", "CONTROL", "PLAINTEXT")
    assert clients_endpoint(BROKER, listeners, "") == INTERNAL
    assert clients_endpoint(BROKER, listeners, "EXTERNAL") == EXTERNAL
    assert clients_endpoint(BROKER, listeners, "OTHER") is None


def test_brokers_find_this_controller_under_each_name_that_they_look_for() -> None:
    listeners = Listeners("INTERNAL", "CONTROL", "PLAINTEXT")
    assert own_endpoints([BROKER], listeners, {"": ("one", 7)}) == [
        Endpoint("INTERNAL", "PLAINTEXT", "one", 7),
        Endpoint("CONTROL", "PLAINTEXT", "one", 7),
    ]
    addresses = {"CONTROL": ("c", 8), "INTERNAL": ("i", 9), "EXTERNAL": ("x", 10), "OTHER": ("o", 11)}
    assert own_endpoints([BROKER], listeners, addresses) == [
        Endpoint("INTERNAL", "PLAINTEXT", "i", 9),
        Endpoint("CONTROL", "PLAINTEXT", "c", 8),
    ]
    assert own_endpoints([BROKER], listeners, {}) == []
