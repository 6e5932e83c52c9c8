"""What is known of a broker: its registration, and what an operator or the controller says of it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import msgspec

from controller.core.model.broker_ids import DirectoryIds, of_several
from controller.core.model.leadership import LeaderAndIsr


class Endpoint(msgspec.Struct, frozen=True):
    """One listener of a broker."""

    listener: str
    security_protocol: str
    host: str
    port: int


class FeatureRange(msgspec.Struct, frozen=True):
    """A range of versions of a feature, both ends included: supported by a broker, or finalized in the cluster."""

    name: str
    min: int
    max: int


class ControlProtocol(Enum):
    """The protocol in which a broker takes control requests."""

    __hash__ = object.__hash__

    GRPC = "gRPC"
    KAFKA = "Kafka"


class Broker(msgspec.Struct, frozen=True):
    """One incarnation of a broker: identity is (id, epoch). ``epoch`` is its registration's czxid."""

    id: int
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    features: tuple[FeatureRange, ...] = ()
    #: The version of the registration's format. Kafka brokers write 5 from inter.broker.protocol.version 2.7 on.
    registration: int = 5
    #: Whether the registration maps listeners to security protocols, as those of Kafka brokers do.
    protocol_map: bool = True
    #: Its data directories, by their short ids; empty: the registration does not tell.
    directories: DirectoryIds = ()
    #: The timeout of its ZooKeeper session, as the server granted it; 0: the registration does not tell.
    session_timeout_ms: int = 0
    #: The cluster that its data belongs to; empty: the registration does not tell.
    cluster_id: str = ""

    @property
    def control_protocol(self) -> ControlProtocol:
        """Kafka's own protocol if the registration is a Kafka broker's, without a listener named GRPC; else gRPC."""
        has_grpc = any(e.listener == "GRPC" for e in self.endpoints)
        return ControlProtocol.KAFKA if self.protocol_map and not has_grpc else ControlProtocol.GRPC

    @property
    def knows_topic_ids(self) -> bool:
        """Not a Kafka broker whose inter.broker.protocol.version is below 2.7: as controller it would lose them. 2.7
        cannot be told from 2.8, the first to know them."""
        return self.registration >= 5 or self.control_protocol is ControlProtocol.GRPC

    @property
    def control_endpoint(self) -> Endpoint:
        """Where the broker accepts control requests: its listener GRPC, else its first one."""
        return next((e for e in self.endpoints if e.listener == "GRPC"), self.endpoints[0])


_NOBODY: frozenset[int] = frozenset()


def without_data(brokers: Mapping[int, Broker], state: LeaderAndIsr) -> frozenset[int]:
    """Members of the ISR that are registered without the directory with which they got in sync (docs/adr/0017). What is
    not told counts as kept, as in Kafka."""
    if not state.directories:
        return _NOBODY
    lacking = [
        broker_id
        for broker_id, directory in zip(state.isr, state.directories, strict=True)
        if lacks_directory(brokers.get(broker_id), directory)
    ]
    return frozenset(lacking) if lacking else _NOBODY


def lacks_directory(broker: Broker | None, directory: int) -> bool:
    """Whether a broker is registered without the directory with which it got in sync; 0: it is not known."""
    return bool(
        directory
        and broker is not None
        and broker.directories
        and directory not in broker.directories
        and (len(broker.directories) == 1 or directory != of_several(broker.directories))
    )


class StopApproval(msgspec.Struct, frozen=True):
    """Permission for one incarnation of a broker to stop: why, for whom, and when (ms since 1970).

    ``overridden``: texts of the objections that were overridden.
    """

    broker_epoch: int
    reason: str
    author: str
    at_ms: int
    overridden: tuple[str, ...] = ()


class Flapping(msgspec.Struct, frozen=True):
    """A broker that was lost without a clean stop: how often in a row, and while it is back since when, on the driver's
    clock. ``hold_us``: leaderships return to it only once it is up for so long; 0: it is not held back."""

    losses: int
    up_us: int | None = None
    hold_us: int = 0

    def __str__(self) -> str:
        text = f"lost {'once' if self.losses == 1 else f'{self.losses} times'} without a clean stop"
        if not self.hold_us:
            return text
        return (
            f"{text}: leaderships return to it by themselves once it is up for {self.hold_us // 1_000_000} s"
        )


class Forgotten(msgspec.Struct, frozen=True):
    """An operator declared that a broker will not return: why, who, and when (ms since 1970).

    ``replicas``: partitions of deleted topics that it may still hold, by topic.
    """

    reason: str
    author: str
    at_ms: int
    replicas: dict[str, tuple[int, ...]] = {}
