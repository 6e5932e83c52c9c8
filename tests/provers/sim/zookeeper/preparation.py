"""What the ensemble's leader makes of a write: the changes to agree on, or the error to answer with.

The order of the checks is the server's (server/PrepRequestProcessor.java), since it decides which error is told.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tests.provers.sim.zookeeper.messages import (
    Check,
    Code,
    Create,
    Delete,
    MultiOp,
    Perms,
    Set,
    SetPerms,
    Write,
)
from tests.provers.sim.zookeeper.tree import (
    SPECIAL,
    Change,
    DataSet,
    NodeCreated,
    NodeDeleted,
    PermsSet,
    Tree,
    VersionChecked,
)

#: What no path may contain (common/PathUtils.java); beyond U+FFFF Java sees surrogates.
_FORBIDDEN = re.compile("[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")


class Refused(Exception):  # noqa: N818  (an answer, not a fault)
    def __init__(self, code: Code) -> None:
        super().__init__(code.name)
        self.code = code


def require_path(path: str) -> None:
    """Raises Refused for a path that can name no node."""
    if path == "/":
        return
    well_formed = path.startswith("/") and not path.endswith("/") and not _FORBIDDEN.search(path)
    if not well_formed or not {"", ".", ".."}.isdisjoint(path[1:].split("/")):
        raise Refused(Code.BAD_ARGUMENTS)


def require_permission(perms: int, needed: int) -> None:
    if not perms & needed:
        raise Refused(Code.NO_AUTH)


@dataclass(frozen=True, slots=True)
class _Known:
    """What the checks look at, as the operations before in the same multi leave it."""

    version: int
    aversion: int
    creations: int
    children: int
    owner: int
    perms: int


class Preparation:
    """The operations of one request, prepared one after another on top of the leader's tree."""

    def __init__(self, tree: Tree, session_id: int) -> None:
        self._tree, self._session_id = tree, session_id
        self._pending: dict[str, _Known | None] = {}

    def prepare(self, op: Write | MultiOp) -> Change:
        """Raises Refused."""
        match op:
            case Create():
                return self._create(op)
            case Delete():
                return self._delete(op)
            case Set(path, data, expected):
                require_path(path)
                known = self._require(path)
                require_permission(known.perms, Perms.WRITE)
                version = _next_version(known.version, expected)
                self._pending[path] = replace(known, version=version)
                return DataSet(path, data, version)
            case SetPerms(path, perms, expected):
                require_path(path)
                if perms is None:
                    raise Refused(Code.INVALID_ACL)
                known = self._require(path)
                require_permission(known.perms, Perms.ADMIN)
                return PermsSet(path, perms, _next_version(known.aversion, expected))
            case Check(path, expected):
                require_path(path)
                known = self._require(path)
                require_permission(known.perms, Perms.READ)
                _next_version(known.version, expected)
                return VersionChecked(path)

    def _create(self, op: Create) -> NodeCreated:
        path = op.path
        if "/" not in path or "\0" in path:
            raise Refused(Code.BAD_ARGUMENTS)
        parent_path = path[: path.rindex("/")]
        if op.perms is None:
            raise Refused(Code.INVALID_ACL)
        parent = self._require(parent_path)
        require_permission(parent.perms, Perms.CREATE)
        if op.sequential:
            path += f"{parent.creations:010d}"
        require_path(path)
        if self._known(path) is not None:
            raise Refused(Code.NODE_EXISTS)
        if parent.owner:
            raise Refused(Code.NO_CHILDREN_FOR_EPHEMERALS)
        owner = self._session_id if op.ephemeral else 0
        creations = parent.creations + 1
        self._pending[parent_path] = replace(parent, creations=creations, children=parent.children + 1)
        self._pending[path] = _Known(0, 0, 0, 0, owner, op.perms)
        return NodeCreated(path, op.data, op.perms, owner, creations, op.with_stat)

    def _delete(self, op: Delete) -> NodeDeleted:
        path = op.path
        if "/" not in path or "\0" in path or path in SPECIAL:
            raise Refused(Code.BAD_ARGUMENTS)
        parent_path = path[: path.rindex("/")]
        parent = self._require(parent_path)
        require_permission(parent.perms, Perms.DELETE)
        known = self._require(path)
        _next_version(known.version, op.version)
        if known.children:
            raise Refused(Code.NOT_EMPTY)
        self._pending[parent_path] = replace(parent, children=parent.children - 1)
        self._pending[path] = None
        return NodeDeleted(path)

    def _known(self, path: str) -> _Known | None:
        if path in self._pending:
            return self._pending[path]
        node = self._tree.node(path)
        if node is None:
            return None
        return _Known(node.version, node.aversion, node.creations, len(node.children), node.owner, node.perms)

    def _require(self, path: str) -> _Known:
        known = self._known(path)
        if known is None:
            raise Refused(Code.NO_NODE)
        return known


def _next_version(current: int, expected: int) -> int:
    if expected not in (-1, current):
        raise Refused(Code.BAD_VERSION)
    return current + 1
