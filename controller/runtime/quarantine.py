"""The quarantine in ZooKeeper: read at the beginning of a term, written at the end of one that raised.

``controller.core.cluster.quarantine`` has the rules.
"""

from __future__ import annotations

import time

import structlog

from controller.core import znode_paths
from controller.core.cluster.quarantine import PATH, Quarantine, Suspect
from controller.core.effects import Problem
from controller.core.events import Event
from controller.errors import LeadershipError
from controller.runtime.blame import blame
from controller.runtime.controller_election import Won
from controller.runtime.zookeeper import jute, single_codecs
from controller.runtime.zookeeper.session import ConnectionLossError, Session

log = structlog.get_logger(__name__)


async def _read(session: Session) -> tuple[Quarantine, int | None]:
    """With its zkVersion, None: absent. One that does not decode is empty. Raises ConnectionLossError."""
    (found,) = await single_codecs.read_nodes(session, [PATH])
    if isinstance(found, Problem):
        log.error("malformed_znode", path=found.path, problem=found.problem)
        stat = await session.exists(PATH)
        return Quarantine(), stat.version if stat is not None else None
    return (Quarantine(), None) if found is None else (found.value, found.version)


async def read(session: Session) -> Quarantine:
    """What is to be left out. Raises ConnectionLossError, LeadershipError."""
    quarantine, _ = await _read(session)
    for suspect in quarantine.quarantined():
        log.warning("quarantined", name=str(suspect.subject), why=str(suspect))
    return quarantine


async def remember(
    session: Session, won: Won, controller_id: int, error: BaseException, event: Event | None
) -> Suspect | None:
    """Note the exception that ended this term; None: it could not be noted."""
    try:
        quarantine, version = await _read(session)
        found = blame(error, event, quarantine)
        raised = Suspect(
            found.subject.kind,
            found.subject.name,
            found.event,
            found.error,
            found.digest,
            controller_id,
            won.epoch,
            time.time_ns() // 1_000_000,
            found.detail,
        )
        after = quarantine.remember(raised)
        await _write(session, won, after, version)
    except (jute.MultiError, ConnectionLossError, LeadershipError) as failure:
        log.error("not_remembered", why=str(failure))
        return None
    return after.suspects.get(str(raised.subject))


async def release(session: Session, won: Won, name: str) -> Suspect | None:
    """Forget a suspect; None: there is none of that name. Raises MultiError, ConnectionLossError, LeadershipError."""
    quarantine, version = await _read(session)
    suspect = quarantine.suspects.get(name)
    if suspect is not None:
        await _write(session, won, quarantine.without(name), version)
    return suspect


async def _write(session: Session, won: Won, quarantine: Quarantine, version: int | None) -> None:
    """Only the active controller writes it: fenced as every write of a term."""
    data = single_codecs.encode(PATH, quarantine)
    fence = jute.op_check(session.packed_path(znode_paths.CONTROLLER_EPOCH), won.epoch_version)
    write = (
        session.op_create(PATH, data)
        if version is None
        else jute.op_set(session.packed_path(PATH), data, version)
    )
    await session.multi([fence, write])
