"""The controller election: creating, watching and deleting ``/controller`` (reference, section 2).

``elect`` creates it where it is absent; ``claim`` also takes it over from another holder (``takeover`` has the rules).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog

from controller.core import znode_paths
from controller.core.model import EPOCH_MAX
from controller.errors import MalformedError, SessionLostError
from controller.runtime.election.takeover import Held, held_by
from controller.runtime.kafka import registrations
from controller.runtime.zookeeper import codecs, jute
from controller.runtime.zookeeper.session import (
    AccessError,
    BadVersionError,
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    Session,
)
from proto.incarnations import Incarnation

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Won:
    """This controller is elected. ``epoch``: the controller epoch; ``epoch_version``: its zkVersion, for fencing;
    ``owner``: the session that owns ``/controller``, 0: it is persistent, None: the session of the term."""

    epoch: int
    epoch_version: int
    owner: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Lost:
    """Another controller is active. ``controller_id`` is -1 when ``/controller`` is absent or unreadable;
    ``kafka_brokers``: ids of those to whom an absent one is left."""

    controller_id: int
    endpoint: str = ""
    kafka_brokers: tuple[int, ...] = ()
    incarnation: str = field(default="", compare=False)


class Candidate(NamedTuple):
    """One process that takes part in elections. ``host``: its machine's name."""

    controller_id: int
    endpoint: str
    incarnation: Incarnation
    host: str = ""


async def elect(
    session: Session,
    me: Candidate,
    on_change: Callable[[str, str], None],
    *,
    leave_to_brokers: bool = False,
) -> Won | Lost:
    """One attempt (reference, section 2.1), with the watch on ``/controller`` armed first.

    A ``/controller`` that names this id does not make it the controller: only the multi below does (reference,
    section 14, point 1). One left by an earlier term of this session, or by a former self, is deleted.
    ``leave_to_brokers``: an absent one is left to Kafka brokers while some are registered; they elect one, and would
    not find our address. Raises ConnectionLossError when the connection is lost, then call again; AccessError.
    """
    stat = await session.exists(znode_paths.CONTROLLER, on_change)
    if stat is not None:
        current = await _read_controller(session)
        if stat.owner == session.id:
            log.warning("own_stale_controller", why="it belongs to an earlier term of this session")
        elif current.controller_id == me.controller_id and me.incarnation.includes(current.incarnation):
            log.info(
                "own_old_session", why="it belongs to an earlier session, or a former process, of this one"
            )
        else:
            return current
        await _delete_former(session, stat.owner)
        return await elect(session, me, on_change, leave_to_brokers=leave_to_brokers)
    if leave_to_brokers and (brokers := await registrations.kafka_brokers(session, on_change)):
        return Lost(-1, kafka_brokers=tuple([broker.id for broker in brokers]))
    former_epoch, version = await _read_epoch(session)
    epoch = _epoch_after(former_epoch)
    try:
        new_version = await session.register_controller(
            znode_paths.CONTROLLER,
            codecs.encode_controller(me.controller_id, me.endpoint, incarnation=me.incarnation.own),
            znode_paths.CONTROLLER_EPOCH,
            epoch,
            version,
        )
    except (jute.MultiError, ConnectionLossError) as error:
        if isinstance(error, jute.MultiError) and error.code not in jute.CONFLICTS:
            raise AccessError(f"{znode_paths.CONTROLLER} could not be created: {error.why}") from None
        outcome = await _outcome_of_multi(session, epoch, version + 1)
        if outcome is None:
            return await elect(session, me, on_change, leave_to_brokers=leave_to_brokers)
        return outcome
    return Won(epoch, new_version)


async def _delete_former(session: Session, owner: int) -> None:
    """Delete ``/controller`` of this session, but not another one that somebody registers meanwhile: that has the same
    version, 0, and raises the epoch."""
    _, version = await _read_epoch(session)
    stat = await session.exists(znode_paths.CONTROLLER)
    if stat is not None and stat.owner == owner:
        await _delete_at_epoch(session, version)


def _epoch_after(epoch: int) -> int:
    """Raises MalformedError when there is none: whoever took the last one could not be followed."""
    if epoch >= EPOCH_MAX:
        raise MalformedError(
            znode_paths.CONTROLLER_EPOCH,
            f"{epoch}: no controller epoch is left above it; set it to the highest one in the state-change logs",
        )
    return epoch + 1


async def look(session: Session, on_change: Callable[[str, str], None]) -> Lost:
    """Who is the controller, without an attempt; arms the watch on ``/controller``. Raises ConnectionLossError."""
    await session.exists(znode_paths.CONTROLLER, on_change)
    return await _read_controller(session)


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
        return Lost(*codecs.decode_controller(data), incarnation=codecs.decode_incarnation(data))
    except NoNodeError:
        return Lost(-1)
    except MalformedError as error:
        _report(session, error)
        return Lost(-1)


#: How often the same unreadable ``/controller`` is logged, s.
REPORT_EVERY_S = 60.0
_reported: tuple[object, float] = (None, 0.0)


def _report(session: Session, error: MalformedError) -> None:
    """Log an unreadable ``/controller``, which keeps everybody from leading, now and then."""
    global _reported
    key = (session.id, error.path, error.problem)
    before, at_s = _reported
    if key != before or time.monotonic() - at_s >= REPORT_EVERY_S:
        _reported = key, time.monotonic()
        todo = "nobody leads while it is there: if its owner does not replace it, delete it"
        log.error("malformed_znode", path=error.path, problem=error.problem, todo=todo)


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
    """Whether ``/controller`` and its epoch still belong to this term; arms the watch on ``/controller`` either way.

    One that was written over, by whoever, names another: each controller creates it and never sets it.
    """
    stat = await session.exists(znode_paths.CONTROLLER, on_change)
    epoch = await session.exists(znode_paths.CONTROLLER_EPOCH)
    return (
        stat is not None
        and stat.owner == (session.id if won.owner is None else won.owner)
        and stat.version == 0
        and epoch is not None
        and epoch.version == won.epoch_version
    )


async def raise_epoch(session: Session, won: Won, epoch: int) -> None:
    """Let the next election exceed this controller epoch, unless another controller was elected meanwhile.

    Call it after the end of the term: nothing is written or sent under the old epoch any more, and no controller ever
    has the new one.
    """
    path = session.packed_path(znode_paths.CONTROLLER_EPOCH)
    try:
        await session.multi([jute.op_set(path, str(epoch).encode(), won.epoch_version)])
        log.warning("epoch_raised", to=epoch, why="brokers have seen it")
    except (jute.MultiError, ConnectionLossError) as error:
        # Whoever leads next meets the same brokers.
        log.warning("epoch_not_raised", to=epoch, why=str(error))


async def resign(session: Session) -> None:
    """Delete ``/controller`` if this session owns it, so that a successor need not wait for the session's expiry."""
    try:
        stat = await session.exists(znode_paths.CONTROLLER)
        if stat is not None and stat.owner == session.id:
            await delete_quietly(session, znode_paths.CONTROLLER, stat.version)
    except ConnectionLossError:
        log.info("resign_unconfirmed", why="the connection was lost; the session's end deletes /controller")


# --- taking over from a broker, or from another controller of ours ---------------------------------------------


@dataclass(frozen=True)
class Found:
    """``/controller`` as found. ``version``: its zkVersion, None: absent; ``controller_id``: -1 where unknown.

    ``epoch`` (number, zkVersion) is read first: whoever claims later raises it, which the claim's multi notices. The
    version of ``/controller`` would not do, as each is a new znode.
    """

    held: Held
    epoch: tuple[int, int]
    version: int | None = None
    controller_id: int = -1
    endpoint: str = ""


async def find_holder(session: Session, on_change: Callable[[str, str], None]) -> Found:
    """Who holds ``/controller``; arms watches on it, and on the registration of the controller of ours that holds it.

    Raises ConnectionLossError, MalformedError.
    """
    epoch = await _read_epoch(session)
    if await session.exists(znode_paths.CONTROLLER, on_change) is None:
        return Found(Held.NOBODY, epoch)
    try:
        data, stat = await session.get(znode_paths.CONTROLLER)
        claim = codecs.decode_claim(data)
    except NoNodeError:
        return await find_holder(session, on_change)
    except MalformedError as error:
        _report(session, error)
        return Found(Held.UNREADABLE, epoch)
    registration = await session.exists(znode_paths.candidate_path(claim.controller_id), on_change)
    registered = 0 if registration is None else registration.owner
    held = held_by(claim.endpoint, claim.session_id, claim.kraft_epoch, registered, session.id)
    return Found(held, epoch, stat.version, claim.controller_id, claim.endpoint)


async def claim(session: Session, holder: Session | None, me: Candidate, found: Found) -> Won | None:
    """Take ``/controller`` over as it was found, by one multi; None: it has changed since, or nobody knows.

    The multi also fails when our main session is over, whose registration it checks, and when an operator has handed
    back in between: it creates and deletes ``RESIGNED``. ``holder``: the session that is to own ``/controller``; None:
    it is persistent. Raises ConnectionLossError, AccessError, SessionLostError.
    """
    path = znode_paths.candidate_path(me.controller_id)
    registration = await session.exists(path)
    if registration is None or registration.owner != session.id:
        raise SessionLostError(f"{path} does not belong to this session any more")
    # The failover remembers our id below it.
    await session.ensure(znode_paths.KAFKA_IDS)
    former_epoch, version = found.epoch
    epoch = _epoch_after(former_epoch)
    data = codecs.encode_controller(me.controller_id, me.endpoint, session.id, me.incarnation.own)
    sender = holder or session
    pack = sender.packed_path
    ops = [
        jute.op_check(pack(path), registration.version),
        sender.op_create(znode_paths.RESIGNED, b""),
        jute.op_delete(pack(znode_paths.RESIGNED), -1),
        jute.op_set(pack(znode_paths.CONTROLLER_EPOCH), str(epoch).encode(), version),
    ]
    if found.version is not None:
        ops.append(jute.op_delete(pack(znode_paths.CONTROLLER), found.version))
    create = sender.op_create if holder is None else sender.op_create_ephemeral
    try:
        await sender.multi([*ops, create(znode_paths.CONTROLLER, data)])
    except jute.MultiError as error:
        if error.code not in jute.CONFLICTS:
            raise AccessError(f"{znode_paths.CONTROLLER} could not be claimed: {error.why}") from None
        return None
    except ConnectionLossError:
        # A claim that lands after this look is claimed over by the next one.
        if not await _landed(sender, data, epoch, version + 1):
            return None
    # Through another server than the holder's, our session could read what was there before the claim.
    await session.ping()
    return Won(epoch, version + 1, 0 if holder is None else holder.id)


async def _landed(sender: Session, data: bytes, epoch: int, version: int) -> bool:
    try:
        stored, _ = await sender.get(znode_paths.CONTROLLER)
    except NoNodeError:
        return False
    return stored == data and await _read_epoch(sender) == (epoch, version)


async def release(session: Session, found: Found) -> None:
    """Delete ``/controller`` as it was found, unless somebody claimed it since: then brokers elect at once.

    Raises ConnectionLossError: nobody knows, look again; AccessError.
    """
    await _delete_at_epoch(session, found.epoch[1])


async def _delete_at_epoch(session: Session, version: int) -> None:
    """Delete ``/controller``, unless ``/controller_epoch`` has another zkVersion by now: somebody claimed it."""
    pack = session.packed_path
    ops = [jute.op_check(pack(znode_paths.CONTROLLER_EPOCH), version)]
    ops.append(jute.op_delete(pack(znode_paths.CONTROLLER), -1))
    try:
        await session.multi(ops)
    except jute.MultiError as error:
        if error.code not in jute.CONFLICTS:
            raise AccessError(f"{znode_paths.CONTROLLER} could not be deleted: {error.why}") from None
        log.debug("already_deleted", path=znode_paths.CONTROLLER, why=str(error))


async def delete_quietly(session: Session, path: str, version: int = -1) -> None:
    try:
        await session.delete(path, version)
    except (NoNodeError, BadVersionError):
        log.debug("already_deleted", path=path)
