"""What operators ask about who leads: to resign, to claim again, to let a suspect out of quarantine.

An answer is why it is refused, and empty when it is done.
"""

from __future__ import annotations

import time
from contextlib import suppress

import structlog

from controller.core import znode_paths
from controller.errors import FencedError
from controller.runtime import quarantine
from controller.runtime.config import Takeover
from controller.runtime.daemon import Daemon, Released, Resigned
from controller.runtime.election import succession
from controller.runtime.term import Term
from controller.runtime.zookeeper import codecs, jute, single_codecs
from controller.runtime.zookeeper.session import NoNodeError
from controller.runtime.zookeeper.single_codecs import RESIGNATION, Resignation

log = structlog.get_logger(__name__)


async def resign(
    daemon: Daemon, reason: str, author: str, *, to_kafka: bool = False, successor: int | None = None
) -> str:
    """Resign in favour of a standby, or of Kafka's brokers until ``claim_again``; why not, empty: it does.
    ``successor``: the standby, None: any.

    Call it only while active. Raises ConnectionLossError, LeadershipError.
    """
    term = daemon.term
    assert term is not None
    session = term.session
    if daemon.claimant.mode is Takeover.OFF:
        if to_kafka:
            return "kafka_takeover is off"
        return await _appoint(daemon, term, author, successor)
    if successor is not None:
        return "with kafka_takeover, the first standby that can takes over: leave out its id"
    if to_kafka:
        value = Resignation(reason, author, time.time_ns() // 1_000_000)
        data = single_codecs.encode(RESIGNATION, value)
        fence = jute.op_check(session.packed_path(znode_paths.CONTROLLER_EPOCH), term.won.epoch_version)
        try:
            await session.multi([fence, session.op_create(RESIGNATION, data)])
        except jute.MultiError as error:
            # One that exists is of a request whose reply was lost, or of another controller's.
            if error.code != jute.NODE_EXISTS:
                return f"{RESIGNATION} could not be written: {error}"
    elif not await daemon.claimant.standbys(session):
        return "no other controller is registered that could take over"
    term.end(Resigned(to_kafka, author))
    return ""


async def _appoint(daemon: Daemon, term: Term, author: str, successor: int | None) -> str:
    standbys = codecs.ids_of(await daemon.claimant.standbys(term.session))
    if not standbys:
        return "no other controller is registered that could take over"
    if successor is None:
        successor = standbys[0]
    if successor not in standbys:
        return f"controller {successor} is no standby: there are {standbys}"
    try:
        await succession.appoint(term.session, term.won.epoch_version, successor)
    except jute.MultiError as error:
        return f"{znode_paths.SUCCESSOR} could not be written: {error}"
    term.end(Resigned(False, author, successor))
    return ""


async def claim_again(daemon: Daemon) -> str:
    """Undo a resignation in favour of Kafka's brokers, and claim at once; why not, empty: it does.

    Raises ConnectionLossError, LeadershipError.
    """
    if daemon.claimant.mode is Takeover.OFF:
        return "kafka_takeover is off"
    if daemon.session is None:
        return "ZooKeeper does not answer"
    daemon.claimant.forget_claims()
    with suppress(NoNodeError):
        await daemon.session.delete(RESIGNATION)
    daemon.try_again()
    return ""


async def release(daemon: Daemon, name: str, reason: str, author: str) -> bool:
    """Forget what raised, and lead a new term without leaving it out; False: there is nothing of that name.

    Call it only while active. Raises ConnectionLossError, LeadershipError.
    """
    term = daemon.term
    assert term is not None
    try:
        suspect = await quarantine.release(term.session, term.won, name)
    except jute.MultiError as error:
        raise FencedError(f"the quarantine could not be written: {error}") from None
    if suspect is not None:
        log.warning("released", name=name, reason=reason, author=author, raised=str(suspect))
        skipped, term.quarantine = term.quarantine, term.quarantine.without(name)
        if skipped.skips(suspect.subject):
            term.end(Released(f"{author} released {name} from quarantine: {reason}"))
    return suspect is not None
