"""A single znode that the active controller keeps about itself: any candidate reads it, only the fenced one writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from controller.core import znode_paths
from controller.core.effects import Problem
from controller.core.znode_paths import NodePath
from controller.runtime.zookeeper import jute, single_codecs
from controller.runtime.zookeeper.session import Session

log = structlog.get_logger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FencedNode(Generic[T]):
    """``empty`` stands for a znode that is absent or does not decode: what is lost with it is not worth a term."""

    path: NodePath[T]
    empty: T

    async def read(self, session: Session) -> tuple[T, int | None]:
        """The value, and the znode's version, None: absent. Raises ConnectionLossError."""
        (found,) = await single_codecs.read_nodes(session, [self.path])
        if isinstance(found, Problem):
            log.error("malformed_znode", path=found.path, problem=found.problem)
            stat = await session.exists(self.path)
            return self.empty, stat.version if stat is not None else None
        return (self.empty, None) if found is None else (found.value, found.version)

    async def write(self, session: Session, epoch_version: int, value: T, version: int | None) -> None:
        """``epoch_version``: of ``/controller_epoch``, as the term wrote it; ``version``: as read.

        Raises MultiError, ConnectionLossError, LeadershipError.
        """
        data = single_codecs.encode(self.path, value)
        fence = jute.op_check(session.packed_path(znode_paths.CONTROLLER_EPOCH), epoch_version)
        if version is None:
            write = session.op_create(self.path, data)
        else:
            write = jute.op_set(session.packed_path(self.path), data, version)
        await session.multi([fence, write])
