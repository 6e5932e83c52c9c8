"""Resignation in favour of a named candidate: ``/controllers/successor`` has its id, and others leave it the election.

They wait for it only while it is registered, and not for long: it may be frozen. Whoever is elected deletes the znode.
"""

from __future__ import annotations

import time
from contextlib import suppress

from controller.core import znode_paths
from controller.runtime import lease
from controller.runtime.zookeeper import codecs, jute
from controller.runtime.zookeeper.session import ConnectionLossError, NoNodeError, Session


class Succession:
    """What one candidate remembers: which resignation it has seen, and since when."""

    def __init__(self, controller_id: int) -> None:
        self._own_id = controller_id
        self._seen: tuple[int, float] = (-1, 0.0)

    async def leaves_to_another(self, session: Session) -> bool:
        """Whether this candidate must not try to be elected now. Raises ConnectionLossError."""
        try:
            data, stat = await session.get(znode_paths.SUCCESSOR)
        except NoNodeError:
            return False
        successor, now_s = codecs.id_of(data.decode(errors="replace")), time.monotonic()
        if self._seen[0] != stat.czxid:
            self._seen = (stat.czxid, now_s)
        if successor in (None, self._own_id):
            return False
        if now_s - self._seen[1] > lease.SUCCESSOR_WAIT_S:
            return False
        return await session.exists(znode_paths.candidate_path(successor)) is not None


async def appoint(session: Session, epoch_version: int, successor: int) -> None:
    """Name the successor before ``/controller`` is deleted: whoever sees that deletion finds the name. Raises
    ConnectionLossError, MultiError."""
    await end(session)
    fence = jute.op_check(session.packed_path(znode_paths.CONTROLLER_EPOCH), epoch_version)
    await session.multi([fence, session.op_create(znode_paths.SUCCESSOR, str(successor).encode())])


async def end(session: Session) -> None:
    """Delete the name, where there is one. Raises ConnectionLossError."""
    with suppress(NoNodeError):
        await session.delete(znode_paths.SUCCESSOR)


async def end_quietly(session: Session) -> None:
    """``end``, without an error when the connection is lost: a name that stays is ignored after a while."""
    with suppress(ConnectionLossError):
        await end(session)
