"""Registrations that are each valid, and do not go together."""

from __future__ import annotations

import msgspec

from controller.core.brokers.registrations import of_other_clusters, shared_endpoints
from controller.core.model import Broker, Endpoint
from tests.support.core.world import a_broker


def at(broker_id: int, *addresses: tuple[str, int], cluster_id: str = "") -> Broker:
    endpoints = tuple(Endpoint(f"L{n}", "GRPC", *address) for n, address in enumerate(addresses))
    return msgspec.structs.replace(a_broker(broker_id, 7), endpoints=endpoints, cluster_id=cluster_id)


def shared(*brokers: Broker) -> list[str]:
    return list(shared_endpoints({b.id: b for b in brokers}))


def test_brokers_have_addresses_of_their_own() -> None:
    assert shared(at(1, ("h", 1), ("h", 2)), at(2, ("h", 3), ("g", 1))) == []


def test_any_listener_may_be_the_one_that_is_shared() -> None:
    brokers = at(12, ("h", 1)), at(3, ("g", 1), ("h", 1)), at(2, ("h", 1)), at(1, ("f", 1))
    assert shared(*brokers) == [
        "brokers 2, 3, 12 are registered with one address, h:1: all but one hear nothing"
    ]


def test_two_listeners_of_one_broker_are_its_own_affair() -> None:
    assert shared(at(1, ("h", 1), ("h", 1))) == []


def test_a_broker_of_another_cluster_is_one_that_tells_so() -> None:
    brokers = {1: at(1, cluster_id="one"), 2: at(2, cluster_id="two"), 3: at(3)}
    assert list(of_other_clusters(brokers, "")) == []
    (text,) = of_other_clusters(brokers, "one")
    assert text.startswith("broker 2 belongs to cluster two, and /cluster/id is one: it will not start again")
