"""A server's znodes and watches, and how a transaction that was agreed on changes them (server/DataTree.java).

The order of events is the server's: a deletion tells whoever watches the node's data, then whoever watches its
children, then whoever watches its parent's; one connection hears of a deletion once.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Protocol, TypeAlias

from tests.provers.sim.zookeeper.messages import EventKind, Perms, Stat

#: Nodes that a fresh server has; the root is also found by the empty path, as the parent of what lies below it.
SPECIAL = ("/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config")


@dataclass(slots=True)
class Node:
    """A znode. ``creations`` counts children ever made: it numbers sequential ones."""

    data: bytes | None
    perms: int = Perms.ALL
    owner: int = 0
    czxid: int = 0
    mzxid: int = 0
    pzxid: int = 0
    ctime_ms: int = 0
    mtime_ms: int = 0
    version: int = 0
    aversion: int = 0
    creations: int = 0
    children: dict[str, None] = field(default_factory=dict)

    def stat(self) -> Stat:
        return Stat(
            self.czxid,
            self.mzxid,
            self.ctime_ms,
            self.mtime_ms,
            self.version,
            # Creations and deletions of children, which is what clients are told.
            2 * self.creations - len(self.children),
            self.aversion,
            self.owner,
            len(self.data or b""),
            len(self.children),
            self.pzxid,
        )


# transactions: what every server does in the same order


@dataclass(frozen=True, slots=True)
class NodeCreated:
    """``creations``: the parent's count with this one."""

    path: str
    data: bytes | None
    perms: int
    owner: int
    creations: int
    with_stat: bool = False


@dataclass(frozen=True, slots=True)
class NodeDeleted:
    path: str


@dataclass(frozen=True, slots=True)
class DataSet:
    path: str
    data: bytes | None
    version: int


@dataclass(frozen=True, slots=True)
class PermsSet:
    path: str
    perms: int
    version: int


@dataclass(frozen=True, slots=True)
class VersionChecked:
    path: str


@dataclass(frozen=True, slots=True)
class SessionEnded:
    session_id: int


Change: TypeAlias = NodeCreated | NodeDeleted | DataSet | PermsSet | VersionChecked | SessionEnded


@dataclass(frozen=True, slots=True)
class Transaction:
    """Agreed on by the ensemble. One without changes is an operation that failed, or a session's beginning."""

    zxid: int
    time_ms: int
    changes: tuple[Change, ...] = ()


class Watcher(Protocol):
    """A client's connection."""

    def notify(self, kind: EventKind, path: str, zxid: int, perms: int) -> None:
        """``perms`` are those of the node: who may not read it is not told."""


class Watches:
    """Watches of one kind, by path and by connection. Those that are triggered are of one shot."""

    def __init__(self) -> None:
        self._by_path: dict[str, dict[Watcher, None]] = {}
        self._by_watcher: dict[Watcher, dict[str, None]] = {}

    def add(self, path: str, watcher: Watcher) -> None:
        self._by_path.setdefault(path, {})[watcher] = None
        self._by_watcher.setdefault(watcher, {})[path] = None

    def discard(self, path: str, watcher: Watcher) -> bool:
        """Whether there was this watch."""
        if watcher not in self._by_path.get(path, ()):
            return False
        del self._by_path[path][watcher]
        del self._by_watcher[watcher][path]
        if not self._by_path[path]:
            del self._by_path[path]
        if not self._by_watcher[watcher]:
            del self._by_watcher[watcher]
        return True

    def of(self, path: str) -> dict[Watcher, None]:
        return self._by_path.get(path, {})

    def remove(self, watcher: Watcher) -> None:
        """The connection is gone, and its watches with it."""
        for path in self._by_watcher.pop(watcher, ()):
            watchers = self._by_path[path]
            del watchers[watcher]
            if not watchers:
                del self._by_path[path]

    def trigger(
        self, path: str, kind: EventKind, zxid: int, perms: int, notified: Iterable[Watcher] = ()
    ) -> dict[Watcher, None]:
        """Tell each watcher once; those ``notified`` already lose the watch without another word."""
        watchers = self._by_path.pop(path, {})
        for watcher in watchers:
            paths = self._by_watcher[watcher]
            del paths[path]
            if not paths:
                del self._by_watcher[watcher]
        for watcher in watchers:
            if watcher not in notified:
                watcher.notify(kind, path, zxid, perms)
        return watchers


def parent_of(path: str) -> str:
    """The empty path for what lies below the root."""
    return path[: path.rindex("/")]


class Tree:
    """All znodes of one server, after all transactions up to ``zxid``."""

    def __init__(self, zxid: int = 0) -> None:
        self.zxid = zxid
        root = Node(b"")
        self._nodes = {path: Node(b"") for path in SPECIAL[1:]} | {"/": root, "": root}
        config = self._nodes["/zookeeper/config"]
        config.perms, config.aversion = Perms.READ, -1
        for path in SPECIAL[1:]:
            self._nodes[parent_of(path)].children[path.rpartition("/")[2]] = None
        self.data_watches = Watches()
        self.child_watches = Watches()
        #: Persistent and recursive; not told of children, as they are told of what these are.
        self.tree_watches = Watches()
        self._ephemerals: dict[int, Ephemerals] = {}

    def node(self, path: str) -> Node | None:
        return self._nodes.get(path)

    def nodes(self) -> dict[str, Node]:
        """By path."""
        return {path: node for path, node in self._nodes.items() if path}

    def copy(self, owners: Container[int]) -> Tree:
        """A copy without watches; of ephemeral znodes those of these sessions."""
        copy = Tree(self.zxid)
        copy._nodes = {}
        for path, node in self.nodes().items():
            if node.owner and node.owner not in owners:
                continue
            below = path.rstrip("/")
            owned = ((name, self._nodes[f"{below}/{name}"].owner) for name in node.children)
            kept = [name for name, owner in owned if not owner or owner in owners]
            copy._nodes[path] = replace(node, children=dict.fromkeys(kept))
            if node.owner:
                copy._ephemerals.setdefault(node.owner, Ephemerals()).add(path)
        copy._nodes[""] = copy._nodes["/"]
        return copy

    def ephemerals(self, session_id: int) -> list[str]:
        """A session's nodes, in the order in which they will go with it."""
        owned = self._ephemerals.get(session_id)
        return owned.listed() if owned else []

    def forget(self, watcher: Watcher) -> None:
        self.data_watches.remove(watcher)
        self.child_watches.remove(watcher)
        self.tree_watches.remove(watcher)

    def apply(self, transaction: Transaction) -> list[Stat | None]:
        """Do all of it; what each change leaves behind for the client's reply."""
        results = [self._change(change, transaction) for change in transaction.changes]
        self.zxid = transaction.zxid
        return results

    def _change(self, change: Change, by: Transaction) -> Stat | None:
        match change:
            case NodeCreated():
                return self._create(change, by)
            case NodeDeleted(path):
                self._delete(path, by.zxid)
            case DataSet(path, data, version):
                node = self._nodes[path]
                node.data, node.version, node.mzxid, node.mtime_ms = data, version, by.zxid, by.time_ms
                stat = node.stat()
                self._tell(path, EventKind.CHANGED, by.zxid, node.perms)
                return stat
            case PermsSet(path, perms, version):
                node = self._nodes[path]
                node.perms, node.aversion = perms, version
                return node.stat()
            case SessionEnded(session_id):
                for path in self.ephemerals(session_id):
                    self._delete(path, by.zxid)
                self._ephemerals.pop(session_id, None)
            case VersionChecked():
                pass
        return None

    def _create(self, change: NodeCreated, by: Transaction) -> Stat | None:
        path = change.path
        parent_path = parent_of(path)
        parent = self._nodes[parent_path]
        parent.creations, parent.pzxid = change.creations, by.zxid
        parent.children[path.rpartition("/")[2]] = None
        node = Node(
            change.data,
            change.perms,
            change.owner,
            czxid=by.zxid,
            mzxid=by.zxid,
            pzxid=by.zxid,
            ctime_ms=by.time_ms,
            mtime_ms=by.time_ms,
        )
        self._nodes[path] = node
        if change.owner:
            self._ephemerals.setdefault(change.owner, Ephemerals()).add(path)
        stat = node.stat() if change.with_stat else None
        self._tell(path, EventKind.CREATED, by.zxid, node.perms)
        self.child_watches.trigger(parent_path or "/", EventKind.CHILD, by.zxid, parent.perms)
        return stat

    def _tell(self, path: str, kind: EventKind, zxid: int, perms: int) -> dict[Watcher, None]:
        """Those who watch the node's data, and those who watch a tree that it is in; each once."""
        told = dict(self.data_watches.trigger(path, kind, zxid, perms))
        above = path
        while above:
            for watcher in self.tree_watches.of(above):
                if watcher not in told:
                    told[watcher] = None
                    watcher.notify(kind, path, zxid, perms)
            above = parent_of(above)
        for watcher in self.tree_watches.of("/"):
            if watcher not in told:
                told[watcher] = None
                watcher.notify(kind, path, zxid, perms)
        return told

    def _delete(self, path: str, zxid: int) -> None:
        parent_path = parent_of(path)
        parent = self._nodes[parent_path]
        node = self._nodes.pop(path)
        del parent.children[path.rpartition("/")[2]]
        parent.pzxid = zxid
        if node.owner:
            self._ephemerals[node.owner].discard(path)
        notified = self._tell(path, EventKind.DELETED, zxid, node.perms)
        self.child_watches.trigger(path, EventKind.DELETED, zxid, node.perms, notified)
        self.child_watches.trigger(parent_path or "/", EventKind.CHILD, zxid, parent.perms)


# the order in which a session's ephemerals go


@lru_cache(maxsize=100_000)
def _spread_hash(text: str) -> int:
    """Where Java's HashMap looks for a string."""
    raw = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for n in range(0, len(raw), 2):
        value = (31 * value + (raw[n] << 8 | raw[n + 1])) & 0xFFFFFFFF
    return value ^ value >> 16


class Ephemerals:
    """Paths in the order of a Java HashSet, whose clone the server walks through when the session ends.

    Never random, but neither alphabetical nor by age: watchers see it in the order of events.
    """

    def __init__(self) -> None:
        self._paths: dict[str, None] = {}
        self._buckets = 16

    def add(self, path: str) -> None:
        self._paths[path] = None
        if len(self._paths) > self._buckets * 3 // 4:
            self._buckets *= 2

    def discard(self, path: str) -> None:
        self._paths.pop(path, None)

    def listed(self) -> list[str]:
        buckets = 1
        while buckets < len(self._paths) / 0.75 + 1:
            buckets *= 2
        original = sorted(self._paths, key=lambda path: _spread_hash(path) & (self._buckets - 1))
        return sorted(original, key=lambda path: _spread_hash(path) & (buckets - 1))
