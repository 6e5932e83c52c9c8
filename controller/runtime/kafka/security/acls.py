"""The authorizer that follows Kafka's ACLs in ZooKeeper (setting ``kafka_authorizer = acl``).

Brokers announce a change of ACLs by a child of ``/kafka-acl-changes`` or ``/kafka-acl-extended-changes``. At each
announcement all ACLs are read again: a bulk read of some thousand znodes takes a fraction of a second, and nothing that
was announced meanwhile is missed, because the watches are armed before the read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from controller.core.znode_paths import ACL_CHANGES, ACLS, PREFIXED_ACLS
from controller.errors import SessionLostError
from controller.runtime.authorization import Operation, Principal, Resource
from controller.runtime.kafka.security.acl_table import (
    DENY_EVERYBODY,
    Acls,
    AclTable,
    Pattern,
    PatternType,
    read_acls,
    resource_type,
)
from controller.runtime.zookeeper import jute
from controller.runtime.zookeeper.session import (
    AccessError,
    ConnectionLossError,
    NoNodeError,
    Session,
    WatchCallback,
)

log = structlog.get_logger(__name__)

_ROOTS = {PatternType.LITERAL: ACLS, PatternType.PREFIXED: PREFIXED_ACLS}
#: Between two reads of all ACLs, so that a script that adds thousands does not keep us reading, seconds.
PAUSE_S = 0.2
#: Before the next try when ZooKeeper does not let us read them, seconds.
DENIED_PAUSE_S = 10.0
#: Unreadable znodes of one read that are logged one by one.
_LOGGED_MAX = 20


class AclAuthorizer:
    """An ``Authorizer`` (``runtime.authorization``). Before the first read only super users may anything.

    Between sessions the last ACLs stay in force: without a session there is no leader here that would act on a request.
    """

    def __init__(self, supers: frozenset[str], *, everyone_if_none_found: bool = False) -> None:
        self._supers, self._everyone = supers, everyone_if_none_found
        self._table = AclTable({}, supers)
        self._changed = asyncio.Event()
        #: What is wrong, by znode.
        self.problems: Mapping[str, tuple[str, ...]] = {}

    def allowed(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        return self._table.allowed(principal, operation, resource)

    async def follow(self, session: Session) -> None:
        """Read the ACLs and keep them current until the session is over; cancel it to stop. Call ``reconnected`` when
        a lost connection is back."""
        while not session.over:
            self._changed.clear()
            try:
                for path in ACL_CHANGES:
                    await _watch(session, path, self._note)
                await self.read(session)
            except SessionLostError:
                return
            except ConnectionLossError:
                await asyncio.sleep(PAUSE_S)
                continue
            except AccessError as error:
                log.error("acls_not_readable", why=str(error) or "ZooKeeper's ACLs deny it")
                await asyncio.sleep(DENIED_PAUSE_S)
                continue
            except Exception:
                # Nobody waits for this task: rather deny than decide by what may be old.
                self._table = AclTable({}, self._supers)
                log.exception("acls_not_followed")
                return
            await self._changed.wait()
            await asyncio.sleep(PAUSE_S)

    def reconnected(self) -> None:
        """The session was without connection: what was announced meanwhile is read."""
        self._changed.set()

    def _note(self, kind: str, path: str) -> None:
        del kind, path
        self._changed.set()

    async def read(self, session: Session) -> None:
        """Read all ACLs now."""
        found = await _read_all(session)
        paths = {pattern: _path(pattern) for pattern in found}
        self._table = AclTable(found, self._supers, everyone_if_none_found=self._everyone)
        before, self.problems = self.problems, {paths[p]: a.problems for p, a in found.items() if a.problems}
        new = [(path, why) for path, why in self.problems.items() if before.get(path) != why]
        for path, why in new[:_LOGGED_MAX]:
            log.error(
                "acl_not_readable", path=path, why="; ".join(why)[:500], meaning="denies what it may mean"
            )
        if len(new) > _LOGGED_MAX:
            log.error("acls_not_readable", more=len(new) - _LOGGED_MAX)


def _path(pattern: Pattern) -> str:
    kind = "".join(word.capitalize() for word in pattern.resource.value.split("_"))
    return f"{_ROOTS[pattern.type]}/{kind}/{pattern.name}"


async def _watch(session: Session, path: str, note: WatchCallback) -> None:
    """Watch the children of a znode, or its creation."""
    while True:
        try:
            await session.children(path, note)
        except NoNodeError:
            if await session.exists(path, note) is not None:
                continue
        return


async def _children(session: Session, path: str) -> list[str]:
    try:
        return await session.children(path)
    except NoNodeError:
        return []


async def _read_all(session: Session) -> dict[Pattern, Acls]:
    paths: dict[Pattern, str] = {}
    for pattern_type, root in _ROOTS.items():
        for name in sorted(await _children(session, root)):
            kind = resource_type(name)
            if kind is None:
                log.warning("acl_resource_type_unknown", path=f"{root}/{name}"[:300])
                continue
            for child in await _children(session, f"{root}/{name}"):
                paths[Pattern(kind, pattern_type, child)] = f"{root}/{name}/{child}"
    found = {}
    for pattern, node in zip(paths, await session.bulk_get(list(paths.values())), strict=True):
        if not isinstance(node, int):
            found[pattern] = read_acls(node.data)
        elif node != jute.NO_NODE:
            found[pattern] = Acls((DENY_EVERYBODY,), (f"cannot be read: ZooKeeper error {node}",))
    return found
