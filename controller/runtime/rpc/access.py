"""Authorization of RPCs (docs/adr/0007): only here. ``methods`` has the operation and resource of each RPC.

The order of errors is Kafka's: a denial on the cluster comes before every other error, denials on single topics
come after NOT_CONTROLLER. Then denied entries are answered with the denial, and the others are carried out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import structlog
from google.protobuf.message import Message

from controller.core.requests.errors import ErrorCode
from controller.runtime.daemon import Daemon
from controller.runtime.rpc.methods import METHODS, Each, Rule, Shown, Whole, never, response_of
from proto.security.access import Openness
from proto.security.authorization import (
    ANONYMOUS,
    CLUSTER,
    LOGGED_DENIALS_MAX,
    Operation,
    Principal,
    Resource,
    ResourceType,
    is_allowed,
    speaks_for,
    topic,
)

log = structlog.get_logger(__name__)

#: Handlers of an RPC take its request.
Unary = Callable[[Any], Awaitable[Message]]
Stream = Callable[[Any], AsyncGenerator[Message, None]]

_REASON_NEEDED = "reason: must be given for what may lose data"


class Guard:
    """Calls the daemon's authorizer before a handler; on a denial it answers in place of the handler.

    ``path``: the method as gRPC names it, ``/service/method``. Raises KeyError for one that proto/ does not have.
    """

    def __init__(self, daemon: Daemon, path: str) -> None:
        _, service, self._method = path.split("/")
        self._daemon, self._response = daemon, response_of(service, self._method)
        known = METHODS[service].get(self._method)
        self._rule: Rule | None = known.rule if known is not None else None
        self._changes = known is not None and known.recorded
        self._loses = known.loses if known is not None else never

    def unary(self, handler: Unary) -> Callable[[Any, Any], Awaitable[Message]]:
        """The handler behind the authorizer; who calls is in the context. It raises UnauthenticatedError."""

        async def handle(request: Any, context: Any) -> Message:
            principal = self._daemon.callers.of_rpc(context)
            answer = await answered(principal, request)
            self._count(answer)
            self._record(principal, request, answer)
            return answer

        async def answered(principal: Principal, request: Any) -> Message:
            rule = self._rule
            match rule:
                case Each() if request is not None:
                    return await self._each(rule, principal, handler, request)
                case Each():
                    return await handler(request)
                case Shown():
                    answer = await handler(request)
                    self._hide(rule, principal, answer)
                    return answer
                case _:
                    return self._refused(principal, request) or await handler(request)

        return handle

    def stream(self, handler: Stream) -> Callable[[Any, Any], AsyncGenerator[Message, None]]:
        """As ``unary``, for a streaming method: a refusal is its only response, or its last one when rights are taken
        back. It raises UnauthenticatedError, also when a token is. Its beginning is counted, and an error."""

        def refused(request: Any, context: Any) -> Message | None:
            principal = self._daemon.callers.of_rpc(context)
            refusal = self._refused(principal, request)
            if refusal is not None:
                self._count(refusal)
                self._record(principal, request, refusal)
            return refusal

        async def handle(request: Any, context: Any) -> AsyncGenerator[Message, None]:
            if (refusal := refused(request, context)) is not None:
                yield refusal
                return
            begun = False
            async with aclosing(handler(request)) as answers:
                async for answer in answers:
                    if (refusal := refused(request, context)) is not None:
                        yield refusal
                        return
                    if not begun or _error_of(answer):
                        self._count(answer)
                    begun = True
                    yield answer

        return handle

    def not_authenticated(self, peer: str) -> None:
        """A caller's certificate or token proves nothing."""
        caller = Principal(ANONYMOUS, peer)
        named = str(caller), caller.host
        self._daemon.audit_log.denied(self._method, named, "UNAUTHENTICATED", None, self._daemon.epoch)

    def _count(self, answer: Message) -> None:
        error = ErrorCode(_error_of(answer)).name
        self._daemon.metrics.requests.labels(self._method, error).inc()

    def _record(self, principal: Principal, request: Any, answer: Message) -> None:
        caller = str(principal), principal.host
        daemon = self._daemon
        daemon.audit_log.answered(self._method, caller, request, answer, daemon.epoch, changes=self._changes)

    def _refused(self, principal: Principal, request: Any) -> Message | None:
        """The response to a request that is refused as a whole; None when it is allowed."""
        rule = self._rule
        if isinstance(rule, Whole):
            takes = [(rule.operation, rule.resource(request)), *rule.also(request)]
            lacking = next((each for each in takes if not self._allowed(principal, *each)), None)
            if lacking is not None:
                error, message = self._denied(principal, lacking[0].name, lacking[1])
            elif (
                rule.of_broker and request is not None and not self._speaks_for(principal, request.broker_id)
            ):
                operation = f"speak for broker {request.broker_id} in"
                error, message = self._denied(principal, operation, CLUSTER)
            elif self._lacks_reason(request):
                error, message = ErrorCode.POLICY_VIOLATION, _REASON_NEEDED
            else:
                return None
        else:
            error, message = self._denied(principal, "call", CLUSTER)
        answer = self._response()
        set_error(answer, error, message)
        return answer

    async def _each(self, rule: Each, principal: Principal, handler: Unary, request: Any) -> Message:
        if self._lacks_reason(request):
            answer = self._response()
            set_error(answer, ErrorCode.POLICY_VIOLATION, _REASON_NEEDED)
            return answer
        entries = list(getattr(request, rule.asked))
        refusals = self._refusals(rule, principal, entries)
        if not refusals:
            answer = await handler(request)
            if rule.none_means_all and not entries:
                self._hide(Shown(rule.operation, rule.answered, rule.resource), principal, answer)
            return answer
        kept = type(request)()
        kept.CopyFrom(request)
        kept.ClearField(rule.asked)
        getattr(kept, rule.asked).extend(e for n, e in enumerate(entries) if n not in refusals)
        if rule.none_means_all and len(refusals) == len(entries):
            answer = self._response()
        else:
            # Also with no entries left: NOT_CONTROLLER comes before denials on topics.
            answer = await handler(kept)
        if not _error_of(answer):
            _merge(getattr(answer, rule.answered), refusals)
        return answer

    def _refusals(self, rule: Each, principal: Principal, entries: Sequence[Any]) -> dict[int, Any]:
        """Response entries of the denied request entries, by position."""
        if rule.cluster_suffices and entries and self._allowed(principal, rule.operation, CLUSTER):
            return {}
        remembered: dict[tuple[Operation, Resource], bool] = {}

        def lacking(entry: Any, resource: Resource) -> Operation | None:
            for take in [(rule.operation, resource), *rule.also(entry)]:
                if take not in remembered:
                    remembered[take] = self._allowed(principal, *take)
                if not remembered[take]:
                    return take[0]
            return None

        resources = [self._resource(rule, entry) for entry in entries]
        times = Counter(resources)
        refusals: dict[int, Any] = {}
        for position, (entry, resource) in enumerate(zip(entries, resources, strict=True)):
            topic_id = getattr(entry, "topic_id", "")
            # An entry without name and id is refused by the core, and reveals no topic.
            operation = lacking(entry, resource) if resource.name or topic_id else None
            if operation is None:
                continue
            refusal = rule.refusal(entry)
            if not resource.name:
                error, message = ErrorCode.UNKNOWN_TOPIC_ID, f"no topic with id {topic_id!r}"
            elif rule.named_once and times[resource] > 1:
                error, message = ErrorCode.INVALID_REQUEST, f"{resource} is named more than once"
            else:
                quiet = len(refusals) >= LOGGED_DENIALS_MAX
                shown = resource if getattr(refusal, "name", resource.name) else topic("")
                error, message = self._denied(principal, operation.name, shown, quiet=quiet)
            set_error(refusal, error, message)
            refusals[position] = refusal
        return refusals

    def _resource(self, rule: Each, entry: Any) -> Resource:
        """The resource of an entry. A topic given by id counts under its name, which is empty if it does not exist."""
        topic_id = getattr(entry, "topic_id", "")
        if not topic_id or entry.name:
            return rule.resource(entry)
        term = self._daemon.term
        known = term.machine.cluster.topic_by_id(topic_id) if term is not None else None
        return topic(known.name if known is not None else "")

    def _hide(self, rule: Shown, principal: Principal, answer: Any) -> None:
        field = getattr(answer, rule.answered)
        visible = [e for e in field if self._allowed(principal, rule.operation, rule.resource(e))]
        if len(visible) < len(field):
            answer.ClearField(rule.answered)
            getattr(answer, rule.answered).extend(visible)

    def _lacks_reason(self, request: Any) -> bool:
        """Where an authorizer decides, what may lose data is recorded with a reason."""
        guarded = self._daemon.openness is Openness.GUARDED
        return guarded and request is not None and self._loses(request) and not request.reason.strip()

    def _speaks_for(self, principal: Principal, broker_id: int) -> bool:
        return speaks_for(self._daemon.authorizer, principal, broker_id)

    def _allowed(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        return is_allowed(self._daemon.authorizer, principal, operation, resource)

    def _denied(
        self, principal: Principal, operation: str, resource: Resource, *, quiet: bool = False
    ) -> tuple[ErrorCode, str]:
        if not quiet:
            log.warning(
                "denied",
                principal=str(principal),
                peer=principal.peer,
                method=self._method,
                operation=operation,
                resource=str(resource),
            )
        about_topic = resource.type is ResourceType.TOPIC
        error = (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED if about_topic else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        )
        what = "this topic" if about_topic and not resource.name else str(resource)
        # Else an operator looks for a login that there is not.
        hint = ": the request came with neither certificate nor token" if principal.name == ANONYMOUS else ""
        return error, f"{principal} may not {operation} {what}{hint}"


def _error_of(answer: Any) -> int:
    """The error of the request as a whole, which every response has a field for."""
    code: int = answer.error_code
    return code


def set_error(message: Any, error: ErrorCode, text: str) -> None:
    """Set a response's error code, and its error message if it has such a field."""
    message.error_code = error.value
    if "error_message" in message.DESCRIPTOR.fields_by_name:
        message.error_message = text


def _merge(answers: Any, refusals: Mapping[int, Any]) -> None:
    """Insert the refusals at the positions of their request entries."""
    carried_out = iter(list(answers))
    total = len(answers) + len(refusals)
    merged = [refusals[n] if n in refusals else next(carried_out) for n in range(total)]
    del answers[:]
    answers.extend(merged)
