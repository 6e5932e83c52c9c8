"""Authorization: the interface of an authorizer, and the default one, which allows everything (docs/adr/0007).

Operations, resources and principals are Kafka's (KIP-11), so that the rules of Kafka's ACLs apply.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple, Protocol

ANONYMOUS = "ANONYMOUS"


class Operation(Enum):
    """Kafka's names, without those that no RPC needs."""

    CREATE = "CREATE"
    DELETE = "DELETE"
    ALTER = "ALTER"
    DESCRIBE = "DESCRIBE"
    CLUSTER_ACTION = "CLUSTER_ACTION"
    DESCRIBE_CONFIGS = "DESCRIBE_CONFIGS"
    ALTER_CONFIGS = "ALTER_CONFIGS"


class ResourceType(Enum):
    TOPIC = "TOPIC"
    CLUSTER = "CLUSTER"


class Resource(NamedTuple):
    """A topic by name, or the cluster under Kafka's name for it."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        return "the cluster" if self.type is ResourceType.CLUSTER else f"topic {self.name!r}"


CLUSTER = Resource(ResourceType.CLUSTER, "kafka-cluster")


def topic(name: str) -> Resource:
    return Resource(ResourceType.TOPIC, name)


class Principal(NamedTuple):
    """The caller. ``name``: the identity that TLS authenticated, else ANONYMOUS; ``peer``: the address from gRPC."""

    name: str
    peer: str

    def __str__(self) -> str:
        return f"User:{self.name}"


class Authorizer(Protocol):
    """Allows or denies. It is called on the daemon's event loop for every request, so it must not block.

    An exception counts as a denial: the request is refused and the error is logged.
    """

    def allowed(self, principal: Principal, operation: Operation, resource: Resource) -> bool: ...


class AllowAll:
    """The default: every caller may do everything."""

    def allowed(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        del principal, operation, resource
        return True


def principal_of(context: Any) -> Principal:
    """The caller of an RPC, from its gRPC context. Of several authenticated identities the first one counts."""
    identities = list(context.peer_identities() or ())
    name = identities[0].decode("utf-8", errors="backslashreplace") if identities else ANONYMOUS
    return Principal(name, context.peer())
