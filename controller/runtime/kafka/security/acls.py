"""The authorizer that follows Kafka's ACLs in ZooKeeper (setting ``kafka_authorizer = acl``).

Brokers announce each change of ACLs by a child of ``/kafka-acl-changes`` or ``/kafka-acl-extended-changes`` that names
the resource, whose ACLs are then read again. All are read at the beginning, after a lost connection, and when an
announcement cannot be read or may have been missed. The watches are armed before each read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import structlog

from controller.core.znode_paths import ACL_CHANGES, ACLS, PREFIXED_ACLS
from controller.errors import SessionLostError
from controller.runtime.kafka.security.acl_table import (
    DENY_EVERYBODY,
    Acls,
    AclTable,
    Pattern,
    PatternType,
    read_acls,
    read_announcement,
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
from proto.security.authorization import AnyBroker, Operation, Principal, Resource, ResourceType

log = structlog.get_logger(__name__)

_ROOTS = {PatternType.LITERAL: ACLS, PatternType.PREFIXED: PREFIXED_ACLS}
#: Between two reads, so that a script that adds thousands of ACLs does not keep us reading, seconds.
PAUSE_S = 0.2
#: Before the next try when ZooKeeper does not let us read them, seconds.
DENIED_PAUSE_S = 10.0
#: More at once cause all ACLs to be read.
_ANNOUNCEMENTS_MAX = 1000
#: Unreadable znodes of one read that are logged one by one.
_LOGGED_MAX = 20


class AclAuthorizer(AnyBroker):
    """An ``Authorizer`` (``proto.security.authorization``). Before the first read only super users may anything.

    Between sessions the last ACLs stay in force: without a session there is no leader here that would act on a request.
    """

    def __init__(self, supers: frozenset[str], *, everyone_if_none_found: bool = False) -> None:
        self._supers, self._everyone = supers, everyone_if_none_found
        self._table = AclTable({}, supers)
        self._changed = asyncio.Event()
        self._found: dict[Pattern, Acls] = {}
        #: The newest announcement that was read, by parent; ``_whole``: read all ACLs at the next look.
        self._last: dict[str, str] = {}
        self._whole = True
        #: What is wrong, by znode.
        self.problems: Mapping[str, tuple[str, ...]] = {}

    def allowed(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        return self._table.allowed(principal, operation, resource)

    async def follow(self, session: Session) -> None:
        """Read the ACLs and keep them current until the session is over; cancel it to stop. Call ``reconnected`` when
        a lost connection is back."""
        self._whole = True
        while not session.over:
            self._changed.clear()
            try:
                await self._look(session)
            except SessionLostError:
                return
            except ConnectionLossError:
                await asyncio.sleep(PAUSE_S)
                continue
            except AccessError as error:
                log.error("acls_not_readable", why=str(error))
                await asyncio.sleep(DENIED_PAUSE_S)
                continue
            except Exception:
                # Nobody waits for this task: rather deny than decide by what may be old.
                self._table = AclTable({}, self._supers)
                log.exception("acls_not_followed")
                return
            await asyncio.sleep(PAUSE_S)
            await self._changed.wait()

    async def _look(self, session: Session) -> None:
        """Read what is announced. The announcements count as read only when all of it was."""
        newest = {path: await _watch(session, path, self._note) for path in ACL_CHANGES}
        whole, self._whole = self._whole, False
        try:
            patterns = None if whole else await _announced(session, newest, self._last)
            if patterns is None:
                await self.read(session)
            elif patterns:
                self._found |= await _read(session, patterns)
                self._decide()
        except BaseException:
            self._whole = True
            raise
        self._last = {path: max(names, default="") for path, names in newest.items()}

    def reconnected(self) -> None:
        """The session was without connection: what was announced meanwhile is read."""
        self._whole = True
        self._changed.set()

    def _note(self, kind: str, path: str) -> None:
        del kind, path
        self._changed.set()

    async def read(self, session: Session) -> None:
        """Read all ACLs now."""
        self._found = await _read_all(session)
        self._decide()

    def _decide(self) -> None:
        self._table = AclTable(self._found, self._supers, everyone_if_none_found=self._everyone)
        before = self.problems
        self.problems = {_path(p): acls.problems for p, acls in self._found.items() if acls.problems}
        new = [(path, why) for path, why in self.problems.items() if before.get(path) != why]
        for path, why in new[:_LOGGED_MAX]:
            log.error(
                "acl_not_readable", path=path, why="; ".join(why)[:500], meaning="denies what it may mean"
            )
        if len(new) > _LOGGED_MAX:
            log.error("acls_not_readable", more=len(new) - _LOGGED_MAX)


def _path(pattern: Pattern) -> str:
    return f"{_ROOTS[pattern.type]}/{_folder(pattern.resource)}/{pattern.name}"


def _folder(kind: ResourceType) -> str:
    return "".join(word.capitalize() for word in kind.value.split("_"))


async def _watch(session: Session, path: str, note: WatchCallback) -> list[str]:
    """Names of the children; watches them, or the creation of their parent."""
    while True:
        try:
            return await session.children(path, note)
        except NoNodeError:
            if await session.exists(path, note) is None:
                return []


async def _announced(
    session: Session, newest: Mapping[str, list[str]], last: Mapping[str, str]
) -> list[Pattern] | None:
    """The patterns of the announcements since ``last``; None: it cannot be known which."""
    paths = []
    for parent, names in newest.items():
        if names and max(names) < last[parent]:
            return None  # the parent was made anew, and counts from the beginning
        paths += [f"{parent}/{name}" for name in names if name > last[parent]]
    if len(paths) > _ANNOUNCEMENTS_MAX:
        return None
    patterns = []
    for node in await session.bulk_get(paths) if paths else []:
        pattern = None if isinstance(node, int) else read_announcement(node.data)
        if pattern is None:
            return None
        patterns.append(pattern)
    return patterns


async def _children(session: Session, path: str) -> list[str]:
    try:
        return await session.children(path)
    except NoNodeError:
        return []


async def _read_all(session: Session) -> dict[Pattern, Acls]:
    patterns: list[Pattern] = []
    for pattern_type, root in _ROOTS.items():
        for name in sorted(await _children(session, root)):
            kind = resource_type(name)
            if kind is None or name != _folder(kind):
                log.warning("acl_resource_type_unknown", path=f"{root}/{name}"[:300])
                continue
            patterns += [Pattern(kind, pattern_type, n) for n in await _children(session, f"{root}/{name}")]
    return await _read(session, patterns)


async def _read(session: Session, patterns: Sequence[Pattern]) -> dict[Pattern, Acls]:
    """ACLs by pattern; those of an absent znode are none."""
    found = {}
    for pattern, node in zip(patterns, await session.bulk_get([_path(p) for p in patterns]), strict=True):
        if not isinstance(node, int):
            found[pattern] = read_acls(node.data)
        elif node == jute.NO_NODE:
            found[pattern] = Acls(())
        else:
            found[pattern] = Acls((DENY_EVERYBODY,), (f"cannot be read: ZooKeeper error {node}",))
    return found
