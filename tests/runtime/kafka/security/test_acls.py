"""The authorizer on a real ZooKeeper: it follows what kafka-acls writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from kazoo.client import KazooClient

from controller.core.znode_paths import ACL_CHANGES
from controller.runtime.kafka.security import acls
from controller.runtime.kafka.security.acls import AclAuthorizer
from controller.runtime.zookeeper.session import ConnectionLossError, Session
from proto.security.authorization import CLUSTER, Operation, Principal, Resource, ResourceType, topic
from tests.support.runtime.sessions import until

pytestmark = pytest.mark.slow

BROKER, ALICE = Principal("broker", "ipv4:10.0.0.1:5"), Principal("alice", "ipv4:10.0.0.1:5")


def content(*acls: tuple[str, str, str]) -> bytes:
    entries = [
        {"principal": who, "permissionType": permission, "operation": operation, "host": "*"}
        for permission, who, operation in acls
    ]
    return json.dumps({"version": 1, "acls": entries}).encode()


class Admin:
    """Writes ACLs as AclAuthorizer does: the znode, then the announcement."""

    def __init__(self, zk: KazooClient) -> None:
        self._zk = zk

    async def put(self, path: str, data: bytes) -> None:
        await asyncio.to_thread(self._put, path, data)

    def _put(self, path: str, data: bytes) -> None:
        if self._zk.exists(path):
            self._zk.set(path, data)
        else:
            self._zk.create(path, data, makepath=True)
        *_, kind, name = path.split("/")
        kind = "TRANSACTIONAL_ID" if kind == "TransactionalId" else kind.upper()
        changes, event = "/kafka-acl-changes", f"{kind}:{name}"
        if "extended" in path:
            changes = "/kafka-acl-extended-changes"
            event = json.dumps({"version": 1, "resourceType": kind, "name": name, "patternType": "PREFIXED"})
        self._zk.create(f"{changes}/acl_changes_", event.encode(), sequence=True, makepath=True)


@asynccontextmanager
async def following(authorizer: AclAuthorizer, session: Session) -> AsyncIterator[None]:
    task = asyncio.ensure_future(authorizer.follow(session))
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest_asyncio.fixture
async def authorizer(session: Session) -> AsyncIterator[AclAuthorizer]:
    found = AclAuthorizer(frozenset({"User:admin"}))
    async with following(found, session):
        yield found


async def test_acls_are_followed(authorizer: AclAuthorizer, zk: KazooClient) -> None:
    admin = Admin(zk)
    assert authorizer.allowed(Principal("admin", ""), Operation.ALTER, CLUSTER)
    assert not authorizer.allowed(BROKER, Operation.CLUSTER_ACTION, CLUSTER)
    # The parents do not exist before the first ACL.
    await admin.put("/kafka-acl/Cluster/kafka-cluster", content(("Allow", "User:broker", "ClusterAction")))
    await until(lambda: authorizer.allowed(BROKER, Operation.CLUSTER_ACTION, CLUSTER), "the ACL", timeout_s=5)
    assert not authorizer.allowed(ALICE, Operation.CLUSTER_ACTION, CLUSTER)
    await admin.put("/kafka-acl-extended/prefixed/Topic/logs-", content(("Allow", "User:alice", "Write")))
    await until(lambda: authorizer.allowed(ALICE, Operation.DESCRIBE, topic("logs-1")), "the prefixed ACL")
    await admin.put("/kafka-acl/Topic/logs-1", content(("Deny", "User:alice", "Describe")))
    await until(lambda: not authorizer.allowed(ALICE, Operation.DESCRIBE, topic("logs-1")), "the deny")
    assert authorizer.allowed(ALICE, Operation.WRITE, topic("logs-1"))
    await admin.put("/kafka-acl/TransactionalId/tx", content(("Allow", "User:alice", "All")))
    transaction = Resource(ResourceType.TRANSACTIONAL_ID, "tx")
    await until(lambda: authorizer.allowed(ALICE, Operation.WRITE, transaction), "the transactional id's")


async def test_what_cannot_be_read_is_told_and_repaired(authorizer: AclAuthorizer, zk: KazooClient) -> None:
    admin = Admin(zk)
    await admin.put("/kafka-acl/Topic/*", content(("Allow", "User:*", "All")))
    await admin.put("/kafka-acl/Unheard/x", b"{")
    await admin.put("/kafka-acl/Topic/t", b"{")
    await until(lambda: bool(authorizer.problems), "the problem")
    assert list(authorizer.problems) == ["/kafka-acl/Topic/t"]
    assert not authorizer.allowed(ALICE, Operation.READ, topic("t"))
    assert authorizer.allowed(ALICE, Operation.READ, topic("u"))
    await admin.put("/kafka-acl/Topic/t", content())
    await until(lambda: not authorizer.problems, "the repair")
    assert authorizer.allowed(ALICE, Operation.READ, topic("t"))


async def test_changes_in_bursts_are_all_seen(authorizer: AclAuthorizer, zk: KazooClient) -> None:
    admin = Admin(zk)
    for number in range(60):
        await admin.put(f"/kafka-acl/Topic/t{number}", content(("Allow", "User:alice", "Read")))
    await until(
        lambda: all(authorizer.allowed(ALICE, Operation.READ, topic(f"t{n}")) for n in range(60)),
        "all of them",
    )


async def test_reconnected_reads_again(authorizer: AclAuthorizer, zk: KazooClient) -> None:
    """An announcement whose event was lost with the connection."""
    admin = Admin(zk)
    await admin.put("/kafka-acl/Topic/t", content(("Allow", "User:alice", "Write")))
    await until(lambda: authorizer.allowed(ALICE, Operation.WRITE, topic("t")), "the ACL")
    await asyncio.to_thread(zk.set, "/kafka-acl/Topic/t", content(("Allow", "User:alice", "Read")))
    await asyncio.sleep(0.5)
    authorizer.reconnected()
    await until(lambda: authorizer.allowed(ALICE, Operation.READ, topic("t")), "the change")


async def test_an_announcement_that_cannot_be_read_causes_all_to_be_read(
    authorizer: AclAuthorizer, zk: KazooClient
) -> None:
    admin = Admin(zk)
    await admin.put("/kafka-acl/Topic/t", content())
    await asyncio.sleep(0.5)
    for number, event in enumerate((b"", b"Unheard:x", b"{", b"TOPIC:a/b", b"\xff")):
        path = f"/kafka-acl/Topic/u{number}"
        await asyncio.to_thread(zk.create, path, content(("Allow", "User:alice", "Read")))
        await asyncio.to_thread(zk.create, "/kafka-acl-changes/acl_changes_", event, sequence=True)
        await until(
            lambda n=number: authorizer.allowed(ALICE, Operation.READ, topic(f"u{n}")),  # type: ignore[misc]
            f"u{number}",
        )


async def test_acls_that_are_deleted_count_no_longer(authorizer: AclAuthorizer, zk: KazooClient) -> None:
    admin = Admin(zk)
    await admin.put("/kafka-acl/Topic/t", content(("Allow", "User:alice", "Read")))
    await until(lambda: authorizer.allowed(ALICE, Operation.READ, topic("t")), "the ACL")
    await asyncio.to_thread(zk.delete, "/kafka-acl/Topic/t")
    await asyncio.to_thread(zk.create, "/kafka-acl-changes/acl_changes_", b"TOPIC:t", sequence=True)
    await until(lambda: not authorizer.allowed(ALICE, Operation.READ, topic("t")), "its end")


async def test_announcements_that_begin_anew_cause_all_to_be_read(
    authorizer: AclAuthorizer, zk: KazooClient
) -> None:
    """Somebody deleted their parent, and it counts from the beginning."""
    admin = Admin(zk)
    for number in range(3):
        await admin.put(f"/kafka-acl/Topic/t{number}", content(("Allow", "User:alice", "Read")))
    await until(lambda: authorizer.allowed(ALICE, Operation.READ, topic("t2")), "the ACLs")
    anew = zk.transaction()
    for name in zk.get_children(ACL_CHANGES[0]):
        anew.delete(f"{ACL_CHANGES[0]}/{name}")
    anew.delete(ACL_CHANGES[0])
    anew.set_data("/kafka-acl/Topic/t0", content(("Deny", "User:alice", "Read")))
    anew.create(ACL_CHANGES[0])
    anew.create(f"{ACL_CHANGES[0]}/acl_changes_0000000000", b"TOPIC:t0")
    assert not [result for result in await asyncio.to_thread(anew.commit) if isinstance(result, Exception)]
    await until(lambda: not authorizer.allowed(ALICE, Operation.READ, topic("t0")), "the deny")


async def test_a_connection_that_comes_back_during_a_read_that_fails_is_not_forgotten(
    authorizer: AclAuthorizer, session: Session, zk: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = Admin(zk)
    await admin.put("/kafka-acl/Topic/t", content())
    await admin.put("/kafka-acl/Topic/u", content(("Allow", "User:alice", "Read")))
    await until(lambda: authorizer.allowed(ALICE, Operation.READ, topic("u")), "the ACLs")
    bulk_get = session.bulk_get

    async def lose_connection(paths: Sequence[str]) -> Any:
        monkeypatch.setattr(session, "bulk_get", bulk_get)
        await asyncio.to_thread(zk.set, "/kafka-acl/Topic/t", content(("Allow", "User:alice", "Read")))
        authorizer.reconnected()
        raise ConnectionLossError(str(paths))

    monkeypatch.setattr(session, "bulk_get", lose_connection)
    await admin.put("/kafka-acl/Topic/u", content())
    await until(lambda: authorizer.allowed(ALICE, Operation.READ, topic("t")), "what nobody announced")
    assert not authorizer.allowed(ALICE, Operation.READ, topic("u"))


async def test_a_new_session_reads_all(session: Session, zk: KazooClient) -> None:
    admin, authorizer = Admin(zk), AclAuthorizer(frozenset())
    async with following(authorizer, session):
        await admin.put("/kafka-acl/Topic/t", content(("Allow", "User:alice", "Read")))
        await until(lambda: authorizer.allowed(ALICE, Operation.READ, topic("t")), "the ACL")
    # Its announcement comes and goes, as brokers delete old ones, before the next session.
    await asyncio.to_thread(zk.set, "/kafka-acl/Topic/t", content(("Allow", "User:alice", "Write")))
    async with following(authorizer, session):
        await until(lambda: authorizer.allowed(ALICE, Operation.WRITE, topic("t")), "the change")


async def test_a_bug_denies(
    authorizer: AclAuthorizer, zk: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = Admin(zk)
    await admin.put("/kafka-acl/Topic/t", content(("Allow", "User:alice", "Read")))
    await until(lambda: authorizer.allowed(ALICE, Operation.READ, topic("t")), "the ACL")

    def fail(data: bytes) -> None:
        raise RuntimeError(data)

    monkeypatch.setattr(acls, "read_announcement", fail)
    await admin.put("/kafka-acl/Topic/t", content(("Allow", "User:alice", "Write")))
    await until(lambda: not authorizer.allowed(ALICE, Operation.READ, topic("t")), "the denial")
    assert not authorizer.allowed(ALICE, Operation.WRITE, topic("t"))
    assert authorizer.allowed(Principal("admin", ""), Operation.READ, topic("t"))
