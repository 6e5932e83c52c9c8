"""What ``cluster_check`` judges, read from ZooKeeper and asked of the brokers. Nothing is written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from controller.core import znode_paths
from controller.core.model import Broker
from controller.errors import ControllerError, MalformedError
from controller.runtime.kafka.cluster_check import Answers, BrokerFacts, ClusterFacts
from controller.runtime.zookeeper import cluster_reader, codecs
from controller.runtime.zookeeper.session import NoNodeError, Session

#: Written by KRaft controllers while a cluster migrates (KIP-866).
MIGRATION = "/migration"
#: Brokers that are asked at the same time.
ASKED_AT_ONCE = 16

#: Asks one broker. Raises ControllerError with the reason when it does not answer.
Ask = Callable[[Broker], Awaitable[Answers]]


class _Registration(msgspec.Struct):
    version: int


async def read(session: Session) -> ClusterFacts:
    """Everything that ZooKeeper knows; no broker is asked."""
    state = await cluster_reader.look(session)
    unreadable = dict(state.problems)
    claim, ephemeral = codecs.Claim(-1, "", 0, -1), True
    try:
        data, stat = await session.get(znode_paths.CONTROLLER)
        claim, ephemeral = codecs.decode_claim(data), stat.owner != 0
    except NoNodeError:
        pass
    except MalformedError as error:
        unreadable[error.path] = error.problem
    brokers = [
        BrokerFacts(broker, await _registration(session, broker.id))
        for _, broker in sorted(state.brokers.items())
    ]
    infos = state.topics.values()
    return ClusterFacts(
        brokers,
        controller_id=claim.controller_id,
        controller_ours=bool(claim.endpoint),
        controller_ephemeral=ephemeral,
        kraft_epoch=claim.kraft_epoch,
        migration=await session.exists(MIGRATION) is not None,
        controller_epoch=state.controller_epoch,
        our_ids=frozenset(info.controller_id for info in state.controllers),
        replica_ids=frozenset(id_ for info in infos for ids in info.partitions.values() for id_ in ids),
        features={f.name: f.max_version for f in state.feature.features} if state.feature is not None else {},
        topics=len(infos),
        partitions=len(state.partitions),
        without_topic_id=sum(not info.topic_id for info in infos),
        deleting=state.deleting,
        reassigning=sum(len(info.adding.keys() | info.removing.keys()) for info in infos),
        not_preferred=sum(
            p.state is not None and p.state.leader not in (-1, p.replicas[0]) for p in state.partitions
        ),
        unreadable=unreadable,
    )


async def _registration(session: Session, broker_id: int) -> int:
    """The version of a registration's format; 0: it has gone or is unreadable."""
    try:
        data, _ = await session.get(znode_paths.broker_path(broker_id))
        return msgspec.json.decode(data, type=_Registration).version
    except (NoNodeError, msgspec.DecodeError, UnicodeDecodeError):
        return 0


async def ask_all(facts: ClusterFacts, ask: Ask) -> ClusterFacts:
    """The same with the brokers' answers; a broker that gives none has the reason in ``unreachable``."""
    at_once = asyncio.Semaphore(ASKED_AT_ONCE)

    async def one(known: BrokerFacts) -> BrokerFacts:
        async with at_once:
            try:
                return known._replace(answers=await ask(known.broker))
            except ControllerError as error:
                return known._replace(unreachable=str(error))

    return facts._replace(brokers=await asyncio.gather(*map(one, facts.brokers)))
