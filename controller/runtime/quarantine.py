"""The quarantine in ZooKeeper: read at the beginning of a term, written at the end of one that raised.

``controller.core.cluster.quarantine`` has the rules.
"""

from __future__ import annotations

import time

import structlog

from controller.core.cluster.quarantine import PATH, Quarantine, Suspect
from controller.core.events import Event
from controller.errors import LeadershipError, reason_of
from controller.runtime.blame import blame
from controller.runtime.election.controller_election import Won
from controller.runtime.zookeeper import jute
from controller.runtime.zookeeper.fenced_node import FencedNode
from controller.runtime.zookeeper.session import ConnectionLossError, Session

log = structlog.get_logger(__name__)

_NODE = FencedNode(PATH, Quarantine())


async def read(session: Session) -> Quarantine:
    """What is to be left out. Raises ConnectionLossError, LeadershipError."""
    quarantine, _ = await _NODE.read(session)
    for suspect in quarantine.quarantined():
        log.warning("quarantined", name=str(suspect.subject), why=str(suspect))
    return quarantine


async def remember(
    session: Session, won: Won, controller_id: int, error: BaseException, event: Event | None
) -> Suspect | None:
    """Note the exception that ended this term; None: it could not be noted."""
    try:
        quarantine, version = await _NODE.read(session)
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
        await _NODE.write(session, won.epoch_version, after, version)
    except (jute.MultiError, ConnectionLossError, LeadershipError) as failure:
        log.error("not_remembered", why=reason_of(failure))
        return None
    return after.suspects.get(str(raised.subject))


async def release(session: Session, won: Won, name: str) -> Suspect | None:
    """Forget a suspect; None: there is none of that name. Raises MultiError, ConnectionLossError, LeadershipError."""
    quarantine, version = await _NODE.read(session)
    suspect = quarantine.suspects.get(name)
    if suspect is not None:
        await _NODE.write(session, won.epoch_version, quarantine.without(name), version)
    return suspect
