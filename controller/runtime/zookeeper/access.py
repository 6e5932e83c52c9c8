"""ACLs of new znodes in packed requests (`proto.zookeeper_access` has those of kazoo's)."""

from __future__ import annotations

from controller.runtime.zookeeper import jute
from proto.zookeeper_access import CONSUMERS, SENSITIVE, ZooKeeperAccess


def packed_acl(access: ZooKeeperAccess, path: str) -> bytes:
    """``path``: without the chroot."""
    if not access.set_acl or path == CONSUMERS:
        return jute.OPEN_ACL
    return jute.PRIVATE_ACL if path.startswith(SENSITIVE) else jute.READABLE_ACL
