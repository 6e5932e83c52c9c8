"""What ``cluster_check`` judges, read from ZooKeeper and asked of the brokers. Nothing is written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from controller.core import znode_paths
from controller.core.model import Broker
from controller.errors import ControllerError, MalformedError
from controller.runtime.kafka.cluster_check import MIGRATION, Answers, BrokerFacts, ClusterFacts
from controller.runtime.kafka.connection import Connection
from controller.runtime.kafka.endpoints import Listeners
from controller.runtime.kafka.listeners import control_endpoint
from controller.runtime.kafka.security.client import ClientSecurity
from controller.runtime.zookeeper import cluster_reader, codecs
from controller.runtime.zookeeper.session import NoNodeError, Session
from proto.gen.kafka.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from proto.gen.kafka.describe_configs_response import DescribeConfigsResponse
from proto.kafka.apis import ApiKey

CLIENT_ID = "partition-controller-check"
#: The type of a broker's configuration, Kafka's ``ConfigResource.Type.BROKER``.
_BROKER = 4
#: Brokers that are asked at the same time.
ASKED_AT_ONCE = 16

#: Asks one broker. Raises ControllerError with the reason when it does not answer.
Ask = Callable[[Broker], Awaitable[Answers]]


async def read(session: Session) -> ClusterFacts:
    """Everything that ZooKeeper knows; no broker is asked."""
    state = await cluster_reader.look(session)
    unreadable = dict(state.problems)
    claim = codecs.Claim(-1, "", 0, -1)
    try:
        data, _ = await session.get(znode_paths.CONTROLLER)
        claim = codecs.decode_claim(data)
    except NoNodeError:
        pass
    except MalformedError as error:
        unreadable[error.path] = error.problem
    brokers = [BrokerFacts(broker) for _, broker in sorted(state.brokers.items())]
    infos = state.topics.values()
    return ClusterFacts(
        brokers,
        controller_id=claim.controller_id,
        controller_ours=bool(claim.endpoint),
        kraft_epoch=claim.kraft_epoch,
        migration=await session.exists(MIGRATION) is not None,
        controller_epoch=state.controller_epoch,
        our_ids=frozenset(info.controller_id for info in state.controllers) | await _remembered_ids(session),
        replica_ids=frozenset(id_ for info in infos for ids in info.partitions.values() for id_ in ids),
        features={f.name: f.max for f in state.feature.features} if state.feature is not None else {},
        topics=len(infos),
        partitions=len(state.partitions),
        without_topic_id=sum(not info.topic_id for info in infos),
        deleting=state.deleting,
        reassigning=sum(len(info.adding.keys() | info.removing.keys()) for info in infos),
        not_preferred=sum(state.is_led(p) and not p.on_preferred_leader for p in state.partitions),
        unreadable=unreadable,
    )


async def _remembered_ids(session: Session) -> frozenset[int]:
    """Ids with which controllers of ours have led Kafka brokers."""
    try:
        names = await session.children(znode_paths.KAFKA_IDS)
    except NoNodeError:
        return frozenset()
    return frozenset(codecs.ids_of(names))


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


def asker(listeners: Listeners, security: ClientSecurity, timeout_s: float) -> Ask:
    """Asks brokers on the listener that takes our control requests: ApiVersions, and DescribeConfigs of themselves."""

    async def ask(broker: Broker) -> Answers:
        endpoint = control_endpoint(broker, listeners)
        connection = Connection(CLIENT_ID, security, timeout_s)
        try:
            await connection.open(endpoint.host, endpoint.port)
            apis = {key: (found.start, found.stop - 1) for key, found in connection.versions.items()}
            return Answers(apis, await _configs(connection, broker.id))
        finally:
            await connection.close()

    return ask


async def _configs(connection: Connection, broker_id: int) -> dict[str, str] | None:
    """The broker's effective configuration without secrets; None: it refuses to tell."""
    key = ApiKey.DESCRIBE_CONFIGS
    common = [v for v in connection.versions.get(key, ()) if v in DescribeConfigsRequest.VERSIONS]
    if not common:
        return None
    asked = DescribeConfigsRequest([DescribeConfigsResource(_BROKER, str(broker_id), None)])
    answer = await connection.request(asked, max(common))
    assert isinstance(answer, DescribeConfigsResponse)
    for result in answer.results:
        if result.resource_name == str(broker_id) and not result.error_code:
            return {config.name: config.value for config in result.configs if config.value is not None}
    return None
