"""A real ZooKeeper that knows users by SASL DIGEST-MD5, as clusters with ``zookeeper.set.acl`` have it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from controller.embedded_zookeeper.ensemble import EmbeddedZooKeeper, Security
from proto.zookeeper_access import Login, ZooKeeperAccess

#: Passwords by user.
USERS = {"kafka": "kafka-secret", "other": "other-secret"}


def access(name: str, password: str = "", *, set_acl: bool = False) -> ZooKeeperAccess:
    """A login by SASL; ``password``: another one than the server knows."""
    return ZooKeeperAccess(Login(name, lambda: password or USERS[name]), set_acl=set_acl)


@contextmanager
def secured_zookeeper(folder: Path) -> Iterator[str]:
    """Connect string of a server that knows ``USERS``."""
    security = Security(users=USERS)
    with EmbeddedZooKeeper(folder, heap_mb=256, force_sync=False, security=security) as server:
        yield server.connect_string
