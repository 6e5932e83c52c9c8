"""Expired delegation tokens are deleted, and brokers notified, on a real ZooKeeper."""

from __future__ import annotations

import json
from typing import cast

from kazoo.client import KazooClient

from controller.core.znode_paths import CONTROLLER_EPOCH, DELEGATION_TOKENS, TOKEN_CHANGES
from controller.runtime.kafka.delegation_tokens import delete_expired
from controller.runtime.zookeeper import jute
from controller.runtime.zookeeper.session import AccessError, Session, Stat

NOW_MS = 1_000_000
BAD_VERSION = -103


def token(zk: KazooClient, name: str, expires_ms: int, max_ms: int) -> None:
    content = {
        "version": 3,
        "owner": "User:alice",
        "renewers": [],
        "issueTimestamp": 1,
        "expirationTimestamp": expires_ms,
        "maxTimestamp": max_ms,
        "tokenId": name,
    }
    zk.create(f"{DELEGATION_TOKENS}/{name}", json.dumps(content).encode(), makepath=True)


async def test_expired_tokens_go_and_brokers_are_notified(session: Session, zk: KazooClient) -> None:
    zk.create(CONTROLLER_EPOCH, b"1")
    assert await delete_expired(session, 0, NOW_MS) == 0
    token(zk, "live", NOW_MS, NOW_MS)
    token(zk, "expired", NOW_MS - 1, NOW_MS)
    token(zk, "at-its-maximum", NOW_MS + 5, NOW_MS - 1)
    zk.create(f"{DELEGATION_TOKENS}/broken", b"{}")
    assert await delete_expired(session, 0, NOW_MS) == 2
    assert sorted(zk.get_children(DELEGATION_TOKENS)) == ["broken", "live"]
    changes = sorted(zk.get_children(TOKEN_CHANGES))
    assert [name.rpartition("_")[0] for name in changes] == ["token_change"] * 2
    assert [zk.get(f"{TOKEN_CHANGES}/{name}")[0] for name in changes] == [b"at-its-maximum", b"expired"]


class Denying:
    """A session that may not read these paths."""

    def __init__(self, *denied: str) -> None:
        self.denied = denied
        self.asked: list[str] = []

    def _look(self, path: str) -> None:
        self.asked.append(path)
        if path in self.denied:
            raise AccessError(path)

    async def children(self, path: str) -> list[str]:
        self._look(path)
        return ["a", "b"]

    async def get(self, path: str) -> tuple[bytes, Stat]:
        self._look(path)
        return b'{"expirationTimestamp":1000000,"maxTimestamp":1000000}', Stat(0, 0, 0)


async def test_tokens_that_may_not_be_read_are_kept() -> None:
    assert await delete_expired(cast("Session", Denying(DELEGATION_TOKENS)), 0, NOW_MS) == 0
    some = Denying(f"{DELEGATION_TOKENS}/a")
    assert await delete_expired(cast("Session", some), 0, NOW_MS) == 0
    assert some.asked[-1] == f"{DELEGATION_TOKENS}/b"


async def test_a_controller_that_was_succeeded_deletes_none(session: Session, zk: KazooClient) -> None:
    zk.create(CONTROLLER_EPOCH, b"1")
    token(zk, "expired", 1, 1)
    zk.set(CONTROLLER_EPOCH, b"2")
    assert await delete_expired(session, 0, NOW_MS) == 0
    assert zk.get_children(DELEGATION_TOKENS) == ["expired"]


class Renewed:
    """A session whose token a broker renews between the look at it and the deletion."""

    def __init__(self) -> None:
        self.operations: list[bytes] = []

    async def children(self, path: str) -> list[str]:
        del path
        return ["a"]

    async def get(self, path: str) -> tuple[bytes, Stat]:
        del path
        return b'{"expirationTimestamp":1,"maxTimestamp":1}', Stat(7, 0, 0)

    async def ensure(self, path: str) -> None: ...

    def packed_path(self, path: str) -> bytes:
        return path.encode()

    def op_create_sequential(self, path: str, data: bytes) -> bytes:
        return path.encode() + data

    async def multi(self, operations: list[bytes]) -> None:
        self.operations = operations
        raise jute.MultiError([0, BAD_VERSION, 0])


async def test_a_token_that_was_renewed_meanwhile_is_kept() -> None:
    session = Renewed()
    assert await delete_expired(cast("Session", session), 5, NOW_MS) == 0
    path = f"{DELEGATION_TOKENS}/a".encode()
    assert session.operations[:2] == [jute.op_check(CONTROLLER_EPOCH.encode(), 5), jute.op_delete(path, 7)]
