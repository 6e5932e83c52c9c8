"""What a server answers from its own tree, and the watches that reads leave behind (FinalRequestProcessor.java)."""

from __future__ import annotations

from tests.provers.sim.zookeeper.messages import (
    Children,
    Code,
    Data,
    EventKind,
    Exists,
    Get,
    GetPerms,
    Granted,
    MultiRead,
    Names,
    Perms,
    RemoveWatches,
    SetWatches,
    Stat,
    Value,
    WatchTree,
)
from tests.provers.sim.zookeeper.preparation import Refused, require_permission
from tests.provers.sim.zookeeper.tree import Node, Tree, Watcher

#: In the header of what no transaction of now made.
NO_ZXID = -1

Read = Get | Exists | Children | GetPerms | MultiRead | SetWatches | WatchTree | RemoveWatches


def read(tree: Tree, watcher: Watcher, op: Read) -> Value:
    """Raises Refused."""
    match op:
        case Get():
            return _get(tree, watcher, op)
        case Exists(path, watch):
            return _exists(tree, watcher if watch else None, path)
        case Children():
            return _children(tree, watcher, op)
        case GetPerms(path):
            node = _require(tree, path)
            require_permission(node.perms, Perms.READ | Perms.ADMIN)
            return Granted(node.perms, node.stat())
        case MultiRead(ops):
            return tuple(_one_of_many(tree, watcher, one) for one in ops)
        case SetWatches():
            _set_watches(tree, watcher, op)
            return None
        case WatchTree(path):
            tree.tree_watches.add(path, watcher)
            return Code.OK
        case RemoveWatches(path):
            kinds = (tree.data_watches, tree.child_watches, tree.tree_watches)
            removed = [watches.discard(path, watcher) for watches in kinds]
            if not any(removed):
                raise Refused(Code.NO_WATCHER)
            return None


def _require(tree: Tree, path: str) -> Node:
    node = tree.node(path)
    if node is None:
        raise Refused(Code.NO_NODE)
    return node


def _get(tree: Tree, watcher: Watcher, op: Get) -> Data:
    node = _require(tree, op.path)
    require_permission(node.perms, Perms.READ)
    if op.watch:
        tree.data_watches.add(op.path, watcher)
    return Data(node.data, node.stat())


def _exists(tree: Tree, watcher: Watcher | None, path: str) -> Stat:
    """The watch stays also where nothing is."""
    if "\0" in path:
        raise Refused(Code.BAD_ARGUMENTS)
    if (node := tree.node(path)) is not None:
        require_permission(node.perms, Perms.READ)
    if watcher is not None:
        tree.data_watches.add(path, watcher)
    return _require(tree, path).stat()


def _children(tree: Tree, watcher: Watcher, op: Children) -> Names:
    node = _require(tree, op.path)
    require_permission(node.perms, Perms.READ)
    if op.watch:
        tree.child_watches.add(op.path, watcher)
    return Names(tuple(sorted(node.children)), node.stat() if op.with_stat else None)


def _one_of_many(tree: Tree, watcher: Watcher, op: Get | Children) -> Value:
    """No watches: the server drops the flag on the way."""
    try:
        if isinstance(op, Get):
            return _get(tree, watcher, Get(op.path))
        return _children(tree, watcher, Children(op.path))
    except Refused as refused:
        return refused.code


def _set_watches(tree: Tree, watcher: Watcher, op: SetWatches) -> None:
    """What changed after the zxid is told at once, before the reply, and also to who may not read it; the rest is
    armed."""

    def notify(kind: EventKind, path: str) -> None:
        watcher.notify(kind, path, NO_ZXID, Perms.ALL)

    for path in op.data:
        node = tree.node(path)
        if node is None:
            notify(EventKind.DELETED, path)
        elif node.mzxid > op.zxid:
            notify(EventKind.CHANGED, path)
        else:
            tree.data_watches.add(path, watcher)
    for path in op.exists:
        if tree.node(path) is not None:
            notify(EventKind.CREATED, path)
        else:
            tree.data_watches.add(path, watcher)
    for path in op.children:
        node = tree.node(path)
        if node is None:
            notify(EventKind.DELETED, path)
        elif node.pzxid > op.zxid:
            notify(EventKind.CHILD, path)
        else:
            tree.child_watches.add(path, watcher)
