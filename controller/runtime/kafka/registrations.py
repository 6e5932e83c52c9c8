"""Which Kafka brokers are registered, for candidates: nobody has loaded the cluster yet."""

from __future__ import annotations

from collections.abc import Iterable

from controller.core import znode_paths
from controller.core.model import Broker, ControlProtocol
from controller.errors import MalformedError
from controller.runtime.kafka.endpoints import Addresses, Listeners, brokers_endpoint
from controller.runtime.zookeeper import codecs
from controller.runtime.zookeeper.session import NoNodeError, Session, WatchCallback
from proto.security.callers import is_loopback


async def kafka_brokers(session: Session, on_change: WatchCallback) -> list[Broker]:
    """The registered brokers that are led in Kafka's protocol, by id; arms the watch on who is registered.

    A registration that does not decode is left out. Raises ConnectionLossError.
    """
    try:
        names = await session.children(znode_paths.BROKER_IDS, on_change)
    except NoNodeError:
        return []
    paths = [znode_paths.broker_path(name) for name in names]
    found: list[Broker] = []
    for path, node in zip(paths, await session.bulk_get(paths) if paths else [], strict=True):
        if isinstance(node, int) or codecs.is_own_registration(node.data):
            continue
        try:
            broker = codecs.decode_broker(path, node.data, node.czxid)
        except MalformedError:
            continue  # whoever leads reports it
        if broker.control_protocol is ControlProtocol.KAFKA:
            found.append(broker)
    return sorted(found, key=lambda broker: broker.id)


def out_of_reach(brokers: Iterable[Broker], listeners: Listeners, addresses: Addresses) -> list[int]:
    """Ids of the brokers that are on other machines, and to which this controller is a loopback address."""
    far: list[int] = []
    for broker in brokers:
        endpoint = brokers_endpoint(broker, listeners)
        if endpoint is None or not addresses:
            continue
        host, _ = addresses.get(endpoint.listener) or next(iter(addresses.values()))
        if is_loopback(host) and not is_loopback(endpoint.host):
            far.append(broker.id)
    return far
