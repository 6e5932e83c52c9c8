"""This controller under ``/brokers/ids``, for brokers that look for their controller's address there.

Up to 2.8 a broker's controlled shutdown does (Kafka's ``KafkaServer.controlledShutdown``); from 3.0 on brokers find it
in their metadata. To nobody else is the znode worth anything, and a broker that becomes controller takes it for a
broker: so it is there only while such a broker is, only during a term, and goes before ``/controller`` does.
Controllers of ours tell it from a broker's by a mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import structlog

from controller.core import znode_paths
from controller.core.model import Endpoint
from controller.runtime.zookeeper import codecs, jute
from controller.runtime.zookeeper.session import NoNodeError, Session

log = structlog.get_logger(__name__)


class OwnRegistration:
    """The registration of one term; its session owns it. ``epoch_version`` fences it."""

    def __init__(self, session: Session, controller_id: int, epoch_version: int) -> None:
        self._session, self._id, self._epoch_version = session, controller_id, epoch_version
        self._path = znode_paths.broker_path(controller_id)
        self._data: bytes | None = None

    async def update(self, endpoints: Sequence[Endpoint], rack: str | None) -> None:
        """Have it with these endpoints; without any, do not have it. Raises ConnectionLossError."""
        data = codecs.encode_own_registration(endpoints, rack) if endpoints else None
        if data == self._data:
            return
        await withdraw(self._session, self._id)
        if data is not None:
            epoch = self._session.packed_path(znode_paths.CONTROLLER_EPOCH)
            fence = jute.op_check(epoch, self._epoch_version)
            try:
                await self._session.multi([fence, self._session.op_create_ephemeral(self._path, data)])
            except jute.MultiError as error:
                log.warning("not_registered", path=self._path, why=str(error))
                return
        log.info("registered" if data else "withdrawn", path=self._path, why="brokers older than 3.0")
        self._data = data


async def withdraw(session: Session, controller_id: int) -> None:
    """Delete the registration of a controller with this id, also an earlier session's; a broker's stays. Raises
    ConnectionLossError."""
    path = znode_paths.broker_path(controller_id)
    if await session.exists(path) is None:
        return
    with suppress(NoNodeError):
        data, _ = await session.get(path)
        if codecs.is_own_registration(data):
            await session.delete(path)
