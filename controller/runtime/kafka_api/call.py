"""What a handler of one API gets: the request, who sends it, and the controller that is asked."""

from __future__ import annotations

import asyncio
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
from controller.runtime.kafka.endpoints import Node, listeners_of, own_rack
from controller.runtime.term import Term
from proto.security.authorization import (
    CLUSTER,
    LOGGED_DENIALS_MAX,
    Operation,
    Principal,
    Resource,
    is_allowed,
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
        return {**(term.kafka.apis if term is not None else {}), **self._served}

    def own_node(self, brokers: Iterable[Broker], listener: str) -> Node:
        """This controller as clients on a listener see it."""
        host, port = self.daemon.kafka_addresses[listener]
        return Node(self.daemon.settings.controller_id, host, port, own_rack(brokers))

    @property
    def term(self) -> Term | None:
        """The term while this controller is active."""
        return self.daemon.term if self.daemon.active else None

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
        allowed = is_allowed(self.daemon.authorizer, principal, operation, resource)
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


def message_of(error: ErrorCode, text: str) -> str | None:
    """Kafka gives a message with errors only."""
    return (text or None) if error is not ErrorCode.NONE else None
