"""Authorization: the interface of an authorizer, and the default one, which allows everything (docs/adr/0007).

Operations, resources and principals are Kafka's (KIP-11), so that the rules of Kafka's ACLs apply.
"""

from __future__ import annotations

import ipaddress
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, unquote

import structlog

log = structlog.get_logger(__name__)

ANONYMOUS = "ANONYMOUS"
#: Denials of one request that are logged one by one.
LOGGED_DENIALS_MAX = 20


class Operation(Enum):
    """Kafka's names (``AclOperation``), without those that stand for several."""

    READ = "READ"
    WRITE = "WRITE"
    CREATE = "CREATE"
    DELETE = "DELETE"
    ALTER = "ALTER"
    DESCRIBE = "DESCRIBE"
    CLUSTER_ACTION = "CLUSTER_ACTION"
    DESCRIBE_CONFIGS = "DESCRIBE_CONFIGS"
    ALTER_CONFIGS = "ALTER_CONFIGS"
    IDEMPOTENT_WRITE = "IDEMPOTENT_WRITE"
    CREATE_TOKENS = "CREATE_TOKENS"
    DESCRIBE_TOKENS = "DESCRIBE_TOKENS"


class ResourceType(Enum):
    """Kafka's names (``org.apache.kafka.common.resource.ResourceType``)."""

    TOPIC = "TOPIC"
    GROUP = "GROUP"
    CLUSTER = "CLUSTER"
    TRANSACTIONAL_ID = "TRANSACTIONAL_ID"
    DELEGATION_TOKEN = "DELEGATION_TOKEN"  # noqa: S105
    USER = "USER"


class Resource(NamedTuple):
    """A topic or group by name, and so on; the cluster under Kafka's name for it."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        if self.type is ResourceType.CLUSTER:
            return "the cluster"
        return f"{self.type.value.lower().replace('_', ' ')} {self.name!r}"


CLUSTER = Resource(ResourceType.CLUSTER, "kafka-cluster")


def topic(name: str) -> Resource:
    return Resource(ResourceType.TOPIC, name)


class Principal(NamedTuple):
    """The caller. ``name``: the identity that TLS or SASL authenticated, else ANONYMOUS; ``peer``: the address as gRPC
    writes it (``ipv4:HOST:PORT``, ``ipv6:%5BHOST%5D:PORT``)."""

    name: str
    peer: str

    @property
    def host(self) -> str:
        """The address as Java prints it, which ACLs compare as text; empty if there is none (a Unix socket).

        ``InetAddress.getHostAddress``: IPv6 in full, ``0:0:0:0:0:0:0:1``; an IPv4 address mapped to IPv6 as IPv4.
        """
        return _host_of(self.peer)

    def __str__(self) -> str:
        return f"User:{self.name}"


@lru_cache(maxsize=1000)
def _host_of(peer: str) -> str:
    scheme, _, rest = unquote(peer).partition(":")
    if scheme not in ("ipv4", "ipv6"):
        return ""
    try:
        address = ipaddress.ip_address(rest.rpartition(":")[0].strip("[]"))
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    groups = ":".join(f"{a << 8 | b:x}" for a, b in zip(*[iter(address.packed)] * 2, strict=True))
    return groups + (f"%{address.scope_id}" if address.scope_id else "")


def peer_of(host: str, port: int) -> str:
    """An IP address and port as gRPC writes them."""
    return f"ipv6:{quote(f'[{host}]')}:{port}" if ":" in host else f"ipv4:{host}:{port}"


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


def is_allowed(
    authorizer: Authorizer, principal: Principal, operation: Operation, resource: Resource
) -> bool:
    """The authorizer's answer; an exception counts as a denial and is logged."""
    try:
        return authorizer.allowed(principal, operation, resource)
    except Exception:
        log.exception("authorizer_failed", principal=str(principal), operation=operation.name)
        return False


def principal_of(context: Any) -> Principal:
    """The caller of an RPC, from its gRPC context. Of several authenticated identities the first one counts."""
    identities = list(context.peer_identities() or ())
    name = identities[0].decode("utf-8", errors="backslashreplace") if identities else ANONYMOUS
    return Principal(name, context.peer())
