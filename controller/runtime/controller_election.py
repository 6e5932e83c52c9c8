"""The controller election: creating, watching and deleting ``/controller`` (reference, section 2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from controller.core import znode_paths
from controller.errors import MalformedError
from controller.runtime.zookeeper import codecs, jute
from controller.runtime.zookeeper.session import (
    BadVersionError,
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    Session,
)

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Won:
    """This controller is elected. ``epoch``: the controller epoch; ``epoch_version``: its zkVersion, for fencing."""

    epoch: int
    epoch_version: int


@dataclass(frozen=True)
class Lost:
    """Another controller is active. ``controller_id`` is -1 when ``/controller`` is absent or unreadable."""

    controller_id: int
    endpoint: str = ""


async def ensure_paths(session: Session, controller_id: int, endpoint: str, http_endpoint: str) -> None:
    """Create the persistent parents and this controller's registration; replace that of an earlier session."""
    for path in znode_paths.PERSISTENT:
        await session.ensure(path)
    path = f"{znode_paths.CONTROLLER_IDS}/{controller_id}"
    data = codecs.encode_standby(controller_id, endpoint, http_endpoint)
    while True:
        try:
            await session.create(path, data, ephemeral=True)
            return
        except NodeExistsError:
            stat = await session.exists(path)
            if stat is not None and stat.owner == session.id:
                return
            log.info("replace_registration", path=path, why="it belongs to an earlier session of this id")
            await _delete_quietly(session, path)


async def elect(
    session: Session, controller_id: int, endpoint: str, on_change: Callable[[str, str], None]
) -> Won | Lost:
    """One attempt (reference, section 2.1), with the watch on ``/controller`` armed first.

    A ``/controller`` that names this id does not make it the controller: only the multi below does (reference,
    section 14, point 1). One left by an earlier term of this session, or by an earlier session of this id, is
    deleted. Raises ConnectionLossError when the connection is lost; then call again.
    """
    stat = await session.exists(znode_paths.CONTROLLER, on_change)
    if stat is not None:
        current = await _read_controller(session)
        if stat.owner == session.id:
            log.warning(
                "own_stale_controller",
                why="it belongs to an earlier term of this session",
            )
            await _delete_quietly(session, znode_paths.CONTROLLER, stat.version)
            return await elect(session, controller_id, endpoint, on_change)
        if current.controller_id == controller_id and endpoint == current.endpoint:
            log.info(
                "own_old_session",
                why="it belongs to an earlier session of this id",
            )
            await _delete_quietly(session, znode_paths.CONTROLLER, stat.version)
            return await elect(session, controller_id, endpoint, on_change)
        return current
    epoch, version = await _read_epoch(session)
    try:
        new_version = await session.register_controller(
            znode_paths.CONTROLLER,
            codecs.encode_controller(controller_id, endpoint),
            znode_paths.CONTROLLER_EPOCH,
            epoch + 1,
            version,
        )
    except (jute.MultiError, ConnectionLossError):
        outcome = await _outcome_of_multi(session, epoch + 1, version + 1)
        if outcome is None:
            return await elect(session, controller_id, endpoint, on_change)
        return outcome
    return Won(epoch + 1, new_version)


async def _outcome_of_multi(session: Session, epoch: int, version: int) -> Won | Lost | None:
    """The outcome of a multi that failed or whose response was lost: Won if both znodes have its values.

    None when ``/controller`` is absent: then no watch would ever fire, so the election has to be tried again.
    """
    stat = await session.exists(znode_paths.CONTROLLER)
    if stat is None:
        return None
    if stat.owner == session.id and await _read_epoch(session) == (epoch, version):
        return Won(epoch, version)
    return await _read_controller(session)


async def _read_controller(session: Session) -> Lost:
    try:
        data, _ = await session.get(znode_paths.CONTROLLER)
        return Lost(*codecs.decode_controller(data))
    except NoNodeError:
        return Lost(-1)
    except MalformedError as error:
        log.error("malformed_znode", path=error.path, problem=error.problem)
        return Lost(-1)


async def _read_epoch(session: Session) -> tuple[int, int]:
    """(epoch, zkVersion); created as 0 when absent, so that the first controller gets epoch 1, version 1.

    Raises MalformedError: without a readable epoch no controller can be fenced, so none may lead.
    """
    while True:
        try:
            data, stat = await session.get(znode_paths.CONTROLLER_EPOCH)
            return codecs.decode_epoch(data), stat.version
        except NoNodeError:
            try:
                await session.create(znode_paths.CONTROLLER_EPOCH, b"0")
            except NodeExistsError:
                continue
            return 0, 0


async def still_ours(session: Session, won: Won, on_change: Callable[[str, str], None]) -> bool:
    """Whether ``/controller`` and its epoch still belong to this term; arms the watch on ``/controller`` either way."""
    stat = await session.exists(znode_paths.CONTROLLER, on_change)
    epoch = await session.exists(znode_paths.CONTROLLER_EPOCH)
    return (
        stat is not None
        and stat.owner == session.id
        and epoch is not None
        and epoch.version == won.epoch_version
    )


async def resign(session: Session) -> None:
    """Delete ``/controller`` if this session owns it, so that a successor need not wait for the session's expiry."""
    try:
        stat = await session.exists(znode_paths.CONTROLLER)
        if stat is not None and stat.owner == session.id:
            await _delete_quietly(session, znode_paths.CONTROLLER, stat.version)
    except ConnectionLossError:
        log.info("resign_unconfirmed", why="the connection was lost; the session's end deletes /controller")


async def _delete_quietly(session: Session, path: str, version: int = -1) -> None:
    try:
        await session.delete(path, version)
    except (NoNodeError, BadVersionError):
        log.debug("already_deleted", path=path)
