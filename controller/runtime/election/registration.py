"""This candidate's registration: ``/controllers/ids/N``, kept as long as its session lives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from controller.core import znode_paths
from controller.errors import ControllerError, DuplicateIdError, LeadershipError, MalformedError
from controller.runtime import lease
from controller.runtime.election.controller_election import Candidate, delete_quietly
from controller.runtime.zookeeper import codecs
from controller.runtime.zookeeper.session import (
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    Session,
)

log = structlog.get_logger(__name__)
HOST_CHARS_MAX = 255


class Registration:
    """The registration of one session. ``withdrawn``: it is away on purpose, and not put back."""

    def __init__(self, session: Session, me: Candidate, http_endpoint: str) -> None:
        self._session, self._me, self._http_endpoint = session, me, http_endpoint
        self._changed = asyncio.Event()
        self.withdrawn = False

    async def create(self) -> None:
        """As ``register``."""
        await register(self._session, self._me, self._http_endpoint)
        self.withdrawn = False
        self.look()

    def look(self) -> None:
        """It may be gone."""
        self._changed.set()

    def _touched(self, _kind: str, _path: str) -> None:
        self.look()

    async def keep(self) -> None:
        """While the session lives, register again when somebody removes the registration. Raises DuplicateIdError."""
        id_ = self._me.controller_id
        while not self._session.over:
            self._changed.clear()
            try:
                if not self.withdrawn and not await is_registered(self._session, id_, self._touched):
                    log.warning("registration_removed", path=znode_paths.candidate_path(id_))
                    await self.create()
                    continue
            except (ConnectionLossError, LeadershipError):
                # The next connection, or the next session, sees to it.
                log.debug("registration_not_looked_at")
            except DuplicateIdError:
                raise
            except ControllerError as error:
                log.warning("not_registered", why=str(error))
                await asyncio.sleep(lease.ELECTION_RETRY_S)
                continue
            await self._changed.wait()


async def register(session: Session, me: Candidate, http_endpoint: str) -> None:
    """Create the persistent parents and this controller's registration; replace that of a former self.

    Waits for the end of another process's for a session timeout, and then raises DuplicateIdError.
    """
    for path in znode_paths.PERSISTENT:
        await session.ensure(path)
    path = znode_paths.candidate_path(me.controller_id)
    data = codecs.encode_standby(me.controller_id, me.endpoint, http_endpoint, me.host, me.incarnation.own)
    loop = asyncio.get_running_loop()
    give_up_at: float | None = None
    while True:
        try:
            await session.create(path, data, ephemeral=True)
            return
        except NodeExistsError:
            stranger = await _registered_stranger(session, path, me)
        if stranger is None:
            return
        if not stranger:
            continue
        patience_s = session.negotiated_ms / 1000 + lease.STRANGER_EXTRA_S
        if give_up_at is None:
            give_up_at = loop.time() + patience_s
            log.warning("id_taken", path=path, host=stranger, patience_s=patience_s)
        if loop.time() > give_up_at:
            raise DuplicateIdError(
                f"another controller with id {me.controller_id} is running on {stranger}: each needs a"
                " controller_id of its own"
            )
        await asyncio.sleep(lease.ELECTION_RETRY_S)


async def _registered_stranger(session: Session, path: str, me: Candidate) -> str | None:
    """Host of whoever else is registered under our id; empty: nobody any more; None: it is this session."""
    try:
        data, stat = await session.get(path)
    except NoNodeError:
        return ""
    if stat.owner == session.id:
        return None
    try:
        host, incarnation = codecs.decode_registrant(path, data)
    except MalformedError as error:
        log.error("malformed_znode", path=path, problem=error.problem)
        host = incarnation = ""
    # One that no session owns is no running controller's.
    if stat.owner == 0 or me.incarnation.includes(incarnation):
        log.info("replace_registration", path=path, why="it belongs to a former process of this controller")
        await delete_quietly(session, path, stat.version)
        return ""
    return repr(host[:HOST_CHARS_MAX]) if host else "an unknown host"


async def is_registered(session: Session, controller_id: int, on_change: Callable[[str, str], None]) -> bool:
    """Whether this session's registration is there; arms a watch on it."""
    stat = await session.exists(znode_paths.candidate_path(controller_id), on_change)
    return stat is not None and stat.owner == session.id
