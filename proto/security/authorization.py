"""Authorization: the interface of an authorizer, and the one that allows everything (docs/adr/0007).

Operations, resources and principals are Kafka's (KIP-11), so that the rules of Kafka's ACLs apply. ``LOSE_DATA`` is
ours. The callers of an RPC are found by ``proto.security.callers``, rules of a file by ``proto.security.rules``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import NamedTuple, Protocol
from urllib.parse import quote, unquote

import structlog

log = structlog.get_logger(__name__)

ANONYMOUS = "ANONYMOUS"
#: Denials of one request that are logged one by one.
LOGGED_DENIALS_MAX = 20


class Operation(Enum):
    """Kafka's names (``AclOperation``), without those that stand for several; and LOSE_DATA."""

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
    #: Beside the right to change: to do what may lose records (an unclean election), or to overrule a safety check.
    LOSE_DATA = "LOSE_DATA"


#: What allows an operation besides itself (``AclAuthorizer``).
IMPLIED_BY: Mapping[Operation, tuple[Operation, ...]] = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}


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


def group(name: str) -> Resource:
    return Resource(ResourceType.GROUP, name)


class Principal(NamedTuple):
    """The caller. ``name``: the identity that TLS, SASL or a token proved, else ANONYMOUS; ``peer``: the address as
    gRPC writes it (``ipv4:HOST:PORT``, ``ipv6:%5BHOST%5D:PORT``)."""

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

    def speaks_for(self, principal: Principal, broker_id: int) -> bool:
        """Whether it may act as this broker, once it is allowed CLUSTER_ACTION."""
        ...

    def is_controller(self, principal: Principal) -> bool:
        """Whether it may send control requests to brokers, once it is allowed CLUSTER_ACTION."""
        ...


class AnyBroker:
    """For authorizers, as Kafka's, that tell neither brokers from one another nor controllers from brokers."""

    def speaks_for(self, principal: Principal, broker_id: int) -> bool:
        del principal, broker_id
        return True

    def is_controller(self, principal: Principal) -> bool:
        del principal
        return True


class AllowAll(AnyBroker):
    """Every caller may do everything."""

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


def speaks_for(authorizer: Authorizer, principal: Principal, broker_id: int) -> bool:
    """Whether a principal may act as this broker; an exception counts as a denial and is logged."""
    try:
        return authorizer.speaks_for(principal, broker_id)
    except Exception:
        log.exception("authorizer_failed", principal=str(principal), broker_id=broker_id)
        return False


def is_controller(authorizer: Authorizer, principal: Principal) -> bool:
    """Whether a principal may send control requests; an exception counts as a denial and is logged."""
    try:
        return authorizer.is_controller(principal)
    except Exception:
        log.exception("authorizer_failed", principal=str(principal))
        return False


SUPER_USERS_ALLOWED = "principals separated by semicolons, such as User:alice;User:CN=broker1,O=x"


def super_users(text: str) -> frozenset[str]:
    """``super.users``: principals separated by semicolons, ``User:a;User:CN=b,O=c``. Raises ValueError."""
    users = [user.strip() for user in text.split(";") if user.strip()]
    if not all(all(user.partition(":")) for user in users):
        raise ValueError(SUPER_USERS_ALLOWED)
    return frozenset(users)
