"""Who may do what: the port that an authorizer is plugged into, and the one that allows everything (docs/adr/0007).

Operations, resources and principals are Kafka's (KIP-11), so that the rules of its access control lists carry over.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple, Protocol

ANONYMOUS = "ANONYMOUS"


class Operation(Enum):
    """Kafka's names; those that nothing here needs are left out."""

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
    """A topic by name, or the cluster, which has Kafka's name for it."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        return "the cluster" if self.type is ResourceType.CLUSTER else f"topic {self.name!r}"


CLUSTER = Resource(ResourceType.CLUSTER, "kafka-cluster")


def topic(name: str) -> Resource:
    return Resource(ResourceType.TOPIC, name)


class Principal(NamedTuple):
    """Who asks. ``name``: the identity that TLS proved, else ANONYMOUS; ``peer``: the address, as gRPC prints it."""

    name: str
    peer: str

    def __str__(self) -> str:
        return f"User:{self.name}"


class Authorizer(Protocol):
    """Decides. Called on the daemon's event loop for every request, so it must not block.

    One that raises has denied: the request is refused and the error logged.
    """

    def allowed(self, principal: Principal, operation: Operation, resource: Resource) -> bool: ...


class AllowAll:
    """The default: whoever reaches the port may do everything."""

    def allowed(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        del principal, operation, resource
        return True


def principal_of(context: Any) -> Principal:
    """The caller of an RPC, from gRPC's context of it. Of several proved identities the first counts."""
    identities = list(context.peer_identities() or ())
    name = identities[0].decode("utf-8", errors="backslashreplace") if identities else ANONYMOUS
    return Principal(name, context.peer())
