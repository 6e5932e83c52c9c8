"""Who may access the znodes that we make: without a server."""

from __future__ import annotations

import pytest

from proto.zookeeper_access import ZooKeeperAccess

CREATOR, ANYONE = ("auth", 31), ("world", 31)
READER = ("world", 1)


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/brokers/topics/t", [CREATOR, READER]),
        ("/config/topics/t", [CREATOR, READER]),
        ("/config/users", [CREATOR]),
        ("/config/users/alice", [CREATOR]),
        ("/config/brokers/1", [CREATOR]),
        ("/delegation_token/tokens/x", [CREATOR]),
        ("/delegation_token/tokenauth", [CREATOR, READER]),
        # Old consumers write below it.
        ("/consumers", [ANYONE]),
        ("/consumers/group", [CREATOR, READER]),
    ],
)
def test_only_who_made_a_znode_may_change_it_and_nobody_else_reads_what_is_secret(
    path: str, allowed: list[tuple[str, int]]
) -> None:
    def told(access: ZooKeeperAccess) -> list[tuple[str, int]]:
        return [(acl.id.scheme, acl.perms) for acl in access.acl(path)]

    assert told(ZooKeeperAccess(set_acl=True)) == allowed
    assert told(ZooKeeperAccess()) == [ANYONE]
