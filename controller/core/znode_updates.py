"""Znodes of ours that hold one value each: read, changed and written back on condition of their version."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from controller.core.commits import ATTEMPTS_MAX
from controller.core.context import EventContext, Handler
from controller.core.effects import Committed, Problem, ReadNodes, StoredNode, write_node
from controller.core.znode_paths import NodePath
from controller.core.znode_sizes import ZNODE_BYTES_MAX

T = TypeVar("T")


def change_node(
    context: EventContext, path: NodePath[T], absent: T, change: Callable[[T], T]
) -> Handler[tuple[T | None, str]]:
    """Write ``change`` of what is stored (``absent`` where nothing is) until it lands.

    Returns the value now stored and an empty string; or None and the reason in words: it is unreadable, it would be too
    large, or others wrote it each time. A value that does not change is not written.
    """
    reason = ""
    for _ in range(ATTEMPTS_MAX):
        (found,) = yield from context.read(ReadNodes([path]))
        if isinstance(found, Problem):
            context.problem(found)
            return None, f"{found.path}: {found.problem}"
        before = found.value if isinstance(found, StoredNode) else absent
        after = change(before)
        if after != before:
            if (size := len(msgspec.json.encode(after))) > ZNODE_BYTES_MAX:
                return None, f"{path}: would take {size} bytes, must take at most {ZNODE_BYTES_MAX}"
            version = found.version if isinstance(found, StoredNode) else None
            outcome = yield from context.commit([write_node(path, after, version)])
            if not isinstance(outcome, Committed):
                reason = outcome.reason
                continue
        context.solved(path)
        return after, ""
    return None, f"{path}: not written in {ATTEMPTS_MAX} attempts; the last: {reason}"
