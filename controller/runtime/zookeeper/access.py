"""Who we are to ZooKeeper, and who may access the znodes that we create: as brokers with ``zookeeper.set.acl``."""

from __future__ import annotations

from typing import Any, NamedTuple

from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from controller.core.znode_paths import CONSUMERS, SENSITIVE
from controller.runtime.zookeeper import jute


class NodeAcl(NamedTuple):
    """The ACL of a new znode, for kazoo's own requests and for packed ones."""

    kazoo: list[Any]
    packed: bytes


_OPEN = NodeAcl(OPEN_ACL_UNSAFE, jute.OPEN_ACL)
_READABLE = NodeAcl(CREATOR_ALL_ACL + READ_ACL_UNSAFE, jute.READABLE_ACL)
_PRIVATE = NodeAcl(CREATOR_ALL_ACL, jute.PRIVATE_ACL)


class ZooKeeperAccess(NamedTuple):
    """How a session logs in, and what it lets others do.

    ``name`` empty: it does not log in; else by SASL DIGEST-MD5, as brokers do with ZooKeeper's DigestLoginModule.
    ``set_acl``: only the creator may change the znodes that we create, and nobody else may read the sensitive ones
    (``ZkData.defaultAcls``); else everybody may all.
    """

    name: str = ""
    password: str = ""
    set_acl: bool = False

    def __repr__(self) -> str:
        return f"ZooKeeperAccess({self.name!r}, set_acl={self.set_acl})"

    @property
    def sasl_options(self) -> dict[str, str] | None:
        """For kazoo."""
        if not self.name:
            return None
        return {"mechanism": "DIGEST-MD5", "username": self.name, "password": self.password}

    def acl(self, path: str) -> NodeAcl:
        """``path``: without the chroot."""
        if not self.set_acl or path == CONSUMERS:
            return _OPEN
        return _PRIVATE if path.startswith(SENSITIVE) else _READABLE


#: Without login, and everybody may all.
OPEN_ACCESS = ZooKeeperAccess()
