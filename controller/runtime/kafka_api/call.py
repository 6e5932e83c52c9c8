"""What a handler of one API gets: the request, who sends it, and the controller that is asked."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import structlog

from controller.core.handlers import not_controller
from controller.core.model import Broker
from controller.core.requests.api import ControllerRequest, ControllerResponse
from controller.core.requests.errors import ErrorCode
from controller.runtime.daemon import Daemon
from controller.runtime.kafka.asking import NotAskedError
from controller.runtime.kafka.connection import ConnectionFailedError
from controller.runtime.kafka.endpoints import Node, kafka_brokers, listeners_of, own_rack
from controller.runtime.term import Term
from proto.kafka.apis import ApiKey, Message
from proto.security.authorization import (
    CLUSTER,
    LOGGED_DENIALS_MAX,
    Operation,
    Principal,
    Resource,
    is_allowed,
    speaks_for,
    topic,
)

log = structlog.get_logger(__name__)

R_co = TypeVar("R_co", covariant=True)

#: A condition that a caller waits for is looked at after pauses that grow from the first to the second number.
LOOK_FIRST_S, LOOK_LAST_S = 0.01, 0.25
#: How long a caller is kept waiting at most, whatever it asks for: Kafka's default.api.timeout.ms.
WAIT_MAX_S = 60.0
#: How long an answer waits for brokers to hear of what it says, after it is durable.
HEARD_S = 1.0
DENIALS = frozenset(code for code in ErrorCode if code.name.endswith("_AUTHORIZATION_FAILED"))
#: How many brokers are tried until one takes a request that is forwarded.
BROKERS_TRIED = 3
#: What brokers answer, and change, for callers of this controller. Versions are those that both speak.
FORWARDED = frozenset(
    {
        ApiKey.FIND_COORDINATOR,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    }
)
FORWARDED_CHANGES = frozenset(
    {ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS}
)


class Controller:
    """The controller behind the server: requests go into the queue of its term, as those of gRPC do."""

    def __init__(self, daemon: Daemon, served: Mapping[int, range]) -> None:
        """``served``: the versions of the APIs that are answered here, by number."""
        self.daemon = daemon
        self._served = served
        self.listeners = listeners_of(daemon.settings)

    def advertised(self) -> Mapping[int, range]:
        """Versions of all APIs, by number: those served here, and those that brokers serve."""
        term = self.term
        theirs = term.kafka.apis if term is not None else {}
        ours = {
            key: _common(served, theirs[key])
            if key in theirs and key in FORWARDED | FORWARDED_CHANGES
            else served
            for key, served in self._served.items()
        }
        return {**theirs, **ours}

    async def forward(self, request: Message, version: int, broker_id: int | None = None) -> Message | None:
        """The answer of a broker, which is asked with this controller's identity: the caller must be authorised
        before. ``broker_id``: of the only one that can answer, if it lives. None: no broker answered, or this
        controller's user may not at brokers; whether one carried some of the request out is unknown."""
        term = self.term
        brokers = kafka_brokers(term.machine.cluster) if term is not None else []
        live = [b for b in brokers if b.id == broker_id] or random.sample(brokers, len(brokers))
        for broker in live[:BROKERS_TRIED]:
            try:
                answer = await self.daemon.questions.ask(broker, request, version)
                if not _is_denied(answer):
                    return answer
                # The caller may, and another node that it asks will tell it so.
                log.warning("forwarding_denied", broker=broker.id, api=ApiKey(request.API_KEY).name)
                return None
            except NotAskedError as error:
                log.warning("not_forwarded", broker=broker.id, why=str(error))
            except ConnectionFailedError as error:
                log.warning("forwarded_without_answer", broker=broker.id, why=str(error))
                return None
        return None

    def own_node(self, brokers: Iterable[Broker], listener: str) -> Node:
        """This controller as clients on a listener see it."""
        host, port = self.daemon.kafka_addresses[listener]
        return Node(self.daemon.settings.controller_id, host, port, own_rack(brokers))

    @property
    def term(self) -> Term | None:
        """The term while this controller is active."""
        return self.daemon.leading

    async def ask(self, request: ControllerRequest) -> ControllerResponse:
        """The core's response; NOT_CONTROLLER while this controller is not active."""
        term = self.term
        return not_controller(request) if term is None else await term.ask(request)

    def topic_name(self, topic_id: str) -> str:
        """The name of the topic with an id; empty if there is none."""
        term = self.term
        known = term.machine.cluster.topic_by_id(topic_id) if term is not None else None
        return known.name if known is not None else ""

    def allows(
        self, principal: Principal, operation: Operation, resource: Resource, *, quiet: bool = False
    ) -> bool:
        """Whether the authorizer allows it. ``quiet``: a denial is not logged."""
        allowed = is_allowed(self.daemon.kafka_authorizer, principal, operation, resource)
        if not allowed and not quiet:
            log.warning(
                "denied",
                principal=str(principal),
                peer=principal.peer,
                operation=operation.name,
                resource=str(resource),
            )
        return allowed


@dataclass(frozen=True)
class Call(Generic[R_co]):
    """One request. ``version``: of the API. ``listener``: name in ``kafka_listen`` of the address that was asked."""

    controller: Controller
    version: int
    request: R_co
    principal: Principal
    listener: str = ""
    #: Whether the caller has closed its connection.
    gone: Callable[[], bool] = lambda: False
    #: Topics whose denial is logged.
    denied: set[str] = field(default_factory=set)

    def may(self, operation: Operation, resource: Resource = CLUSTER) -> bool:
        return self.controller.allows(self.principal, operation, resource)

    def may_act_as(self, broker_id: int) -> bool:
        """Whether the caller may send requests of this broker."""
        if not self.may(Operation.CLUSTER_ACTION):
            return False
        authorizer = self.controller.daemon.kafka_authorizer
        allowed = speaks_for(authorizer, self.principal, broker_id)
        if not allowed:
            log.warning(
                "denied", principal=str(self.principal), peer=self.principal.peer, as_broker=broker_id
            )
        return allowed

    def may_topic(self, operation: Operation, name: str) -> bool:
        """A denial is logged once for each topic, up to a limit: one request can name very many."""
        quiet = name in self.denied or len(self.denied) >= LOGGED_DENIALS_MAX
        allowed = self.controller.allows(self.principal, operation, topic(name), quiet=quiet)
        if not (allowed or quiet):
            self.denied.add(name)
        return allowed

    async def ask(self, request: ControllerRequest) -> Any:
        """The core's response, of the type that belongs to the request."""
        return await self.controller.ask(request)

    async def forward(self, request: Message, broker_id: int | None = None) -> Message | None:
        """As ``Controller.forward``. Brokers see changes as this controller's, so the log says whose they are."""
        key = ApiKey(request.API_KEY)
        if key in FORWARDED_CHANGES:
            log.info("forwarded", api=key.name, principal=str(self.principal), peer=self.principal.peer)
        return await self.controller.forward(request, self.version, broker_id)

    async def wait_for(self, condition: Callable[[Term], bool], timeout_ms: int) -> bool:
        """Whether a condition on the term becomes true in time; if so, it waits a moment for brokers to hear of it.

        Kafka answers CreateTopics, DeleteTopics and ElectLeaders when its metadata shows the result, because tools ask
        any broker next.
        """
        if not await self._becomes(condition, timeout_ms / 1000):
            return False
        await self.brokers_hear(timeout_ms)
        return True

    async def brokers_hear(self, timeout_ms: int) -> None:
        """Wait a moment for all brokers to hear what is decided; one may be unreachable."""
        await self._becomes(lambda term: term.brokers_informed, min(timeout_ms / 1000, HEARD_S))

    async def _becomes(self, condition: Callable[[Term], bool], timeout_s: float) -> bool:
        """False also when this controller is not active any more, or the caller has gone."""
        ends = time.monotonic() + min(timeout_s, WAIT_MAX_S)
        pause_s = LOOK_FIRST_S
        while True:
            term = self.controller.term
            if term is not None and condition(term):
                return True
            left_s = ends - time.monotonic()
            if term is None or left_s <= 0 or self.gone():
                return False
            await asyncio.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, LOOK_LAST_S)


def _is_denied(answer: Message) -> bool:
    """Whether the response or one of its results is a denial."""
    values = [getattr(answer, name) for name in answer.__struct_fields__]
    rows = [answer, *(row for value in values if isinstance(value, list) for row in value)]
    return any(getattr(row, "error_code", ErrorCode.NONE) in DENIALS for row in rows)


def _common(ours: range, theirs: range) -> range:
    """The versions that both speak; ours if there are none."""
    common = range(max(ours.start, theirs.start), min(ours.stop, theirs.stop))
    return common or ours


def message_of(error: ErrorCode, text: str) -> str | None:
    """Kafka gives a message with errors only."""
    return (text or None) if error is not ErrorCode.NONE else None
