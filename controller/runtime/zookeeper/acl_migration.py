"""Sets or opens the ACLs of an existing tree, as Kafka's ``ZkSecurityMigrator`` does.

The tree is walked depth first: what is kept at one time is the names beside the path to where the walk is. Setting an
ACL twice does no harm, so that an interrupted migration is run again. A znode's version does not change by its ACL:
controllers and brokers may run meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from controller.core import znode_paths
from controller.runtime.zookeeper.session import AccessError, NoNodeError, Session

#: What every cluster has.
EXPECTED = (znode_paths.BROKERS, znode_paths.CONFIG, znode_paths.CONTROLLER_EPOCH)
#: Requests in flight, and failures that are named.
WINDOW, NAMED_MAX = 50, 100


@dataclass
class Migrated:
    """What a migration did. ``failed``: the first paths that could not be changed, of ``failures``."""

    changed: int = 0
    failures: int = 0
    failed: list[str] = field(default_factory=list)

    def fail(self, path: str) -> None:
        self.failures += 1
        if len(self.failed) < NAMED_MAX:
            self.failed.append(path)


async def missing_roots(session: Session) -> list[str]:
    """What of `EXPECTED` is not there."""
    return [path for path in EXPECTED if await session.exists(path) is None]


async def migrate(session: Session, progress: Callable[[Migrated], None] = lambda _: None) -> Migrated:
    """Give each znode below `znode_paths.SECURED_ROOTS` the ACL that this session gives to new ones.

    Raises ConnectionLossError, SessionLostError: then run it again.
    """
    done = Migrated()
    for root in znode_paths.SECURED_ROOTS:
        await _change(session, root, done)
        if root not in done.failed:
            await _below(session, root, done, progress)
    return done


async def _below(session: Session, root: str, done: Migrated, progress: Callable[[Migrated], None]) -> None:
    waiting: list[tuple[str, list[str]]] = [(root, await _children(session, root, done))]
    while waiting:
        parent, names = waiting.pop()
        if not names:
            continue
        paths = [f"{parent}/{name}" for name in names[-WINDOW:]]
        waiting.append((parent, names[:-WINDOW]))
        await asyncio.gather(*(_change(session, path, done) for path in paths))
        below = await asyncio.gather(*(_children(session, path, done) for path in paths))
        waiting += [(path, found) for path, found in zip(paths, below, strict=True) if found]
        progress(done)


async def _children(session: Session, path: str, done: Migrated) -> list[str]:
    try:
        return await session.children(path)
    except NoNodeError:
        return []
    except AccessError:
        done.fail(path)
        return []


async def _change(session: Session, path: str, done: Migrated) -> None:
    try:
        await session.give_acl(path)
        done.changed += 1
    except NoNodeError:
        pass  # it is not there, or not any more
    except AccessError:
        done.fail(path)
