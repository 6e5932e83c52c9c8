"""Authorization of the broker's RPCs (docs/adr/0007): one row for each method of BrokerControl and BrokerData.

Operations and errors are Kafka's (``KafkaApis``). A topic or group that the caller may not use is denied whether or
not it exists.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog
from google.protobuf.message import Message

from proto.gen import broker_data_pb2 as wire
from proto.gen import common_pb2 as codes
from proto.security.access import Access
from proto.security.authorization import (
    CLUSTER,
    LOGGED_DENIALS_MAX,
    Operation,
    Principal,
    Resource,
    group,
    is_allowed,
    is_controller,
    speaks_for,
    topic,
)

_log = structlog.get_logger("broker_stub.rpc.access")

Handler = Callable[[Any], Awaitable[Message]]


@dataclass(frozen=True)
class Rule:
    """What a request of BrokerData takes.

    ``group``: on the group that it names. ``topics``: on the topic of each entry of ``asked``; ``refusal`` makes an
    entry of ``answered`` for one that is denied. ``of_replica``: with a ``replica_id``, the caller must be that broker,
    and needs no right on topics. ``none_means_all``: a request without entries asks for all that the caller may see.
    """

    group: Operation | None = None
    topics: Operation | None = None
    asked: str = "partitions"
    answered: str = "partitions"
    refusal: Callable[[Any, codes.ErrorCode], Message] | None = None
    of_replica: bool = False
    none_means_all: bool = False


def _denied_produce(item: Any, error: codes.ErrorCode) -> Message:
    return wire.ProducedPartition(
        topic=item.topic,
        partition=item.partition,
        error_code=error,
        base_offset=-1,
        log_start_offset=-1,
        leader=-1,
        leader_epoch=-1,
    )


def _denied_fetch(item: Any, error: codes.ErrorCode) -> Message:
    return wire.FetchedPartition(
        topic=item.topic,
        partition=item.partition,
        error_code=error,
        high_watermark=-1,
        log_start_offset=-1,
        leader=-1,
        leader_epoch=-1,
    )


def _denied_listing(item: Any, error: codes.ErrorCode) -> Message:
    return wire.ListedOffset(
        topic=item.topic, partition=item.partition, error_code=error, timestamp=-1, offset=-1, leader_epoch=-1
    )


def _denied_epoch(item: Any, error: codes.ErrorCode) -> Message:
    return wire.OffsetForLeaderEpoch(
        topic=item.topic, partition=item.partition, error_code=error, leader_epoch=-1, end_offset=-1
    )


def _denied_commit(item: Any, error: codes.ErrorCode) -> Message:
    return codes.PartitionError(topic=item.topic, partition=item.partition, error_code=error)


def _denied_committed(item: Any, error: codes.ErrorCode) -> Message:
    return wire.CommittedOffset(
        topic=item.topic, partition=item.partition, error_code=error, offset=-1, leader_epoch=-1
    )


_MEMBER = Rule(group=Operation.READ)
#: The rules by method of BrokerData. A method that is not listed is refused.
RULES: Mapping[str, Rule] = {
    "Produce": Rule(topics=Operation.WRITE, refusal=_denied_produce),
    "Fetch": Rule(topics=Operation.READ, refusal=_denied_fetch, of_replica=True),
    "ListOffsets": Rule(topics=Operation.DESCRIBE, refusal=_denied_listing, of_replica=True),
    "OffsetsForLeaderEpoch": Rule(topics=Operation.DESCRIBE, refusal=_denied_epoch, of_replica=True),
    "Metadata": Rule(
        topics=Operation.DESCRIBE,
        asked="topics",
        answered="topics",
        refusal=lambda name, error: wire.MetadataTopic(topic=name[:249], error_code=error),
        none_means_all=True,
    ),
    "FindCoordinator": Rule(group=Operation.DESCRIBE),
    "JoinGroup": _MEMBER,
    "SyncGroup": _MEMBER,
    "Heartbeat": _MEMBER,
    "LeaveGroup": _MEMBER,
    "OffsetCommit": Rule(
        group=Operation.READ,
        topics=Operation.READ,
        asked="offsets",
        answered="partition_errors",
        refusal=_denied_commit,
    ),
    "OffsetFetch": Rule(
        group=Operation.DESCRIBE,
        topics=Operation.DESCRIBE,
        answered="offsets",
        refusal=_denied_committed,
        none_means_all=True,
    ),
}
#: Methods of BrokerControl: CLUSTER_ACTION, by a controller. One that is not listed is refused.
OF_CONTROLLERS = frozenset({"DescribeState", "LeaderAndIsr", "StopReplica", "UpdateMetadata"})


class Guard:
    """Asks the authorizer before a request is handled. ``on_control_denied``: method and principal of a control
    request that is refused."""

    def __init__(
        self, access: Access, on_control_denied: Callable[[str, Principal], None] = lambda *_: None
    ) -> None:
        self._authorizer, self._callers = access.authorizer, access.callers
        self._on_control_denied = on_control_denied

    def caller(self, context: Any) -> Principal:
        """Raises UnauthenticatedError."""
        return self._callers.of_rpc(context)

    def may_control(self, principal: Principal, method: str) -> bool:
        """Whether the caller may send this request of BrokerControl."""
        if (
            method in OF_CONTROLLERS
            and is_allowed(self._authorizer, principal, Operation.CLUSTER_ACTION, CLUSTER)
            and is_controller(self._authorizer, principal)
        ):
            return True
        self._log(principal, method, Operation.CLUSTER_ACTION, CLUSTER)
        self._on_control_denied(method, principal)
        return False

    async def data(
        self, principal: Principal, method: str, request: Any, handler: Handler, response: type[Message]
    ) -> Message:
        """The answer to a request of BrokerData: the handler's, as far as the caller may ask."""
        rule, group_id = RULES.get(method), getattr(request, "group_id", "")
        if rule is None:
            return self._whole(principal, method, request, response, codes.CLUSTER_AUTHORIZATION_FAILED)
        if rule.group is not None and not self._may(principal, rule.group, group(group_id)):
            self._log(principal, method, rule.group, group(group_id))
            return self._whole(principal, method, request, response, codes.GROUP_AUTHORIZATION_FAILED)
        if rule.topics is None:
            return await handler(request)
        if rule.of_replica and request.HasField("replica_id"):
            if self._may(principal, Operation.CLUSTER_ACTION, CLUSTER) and speaks_for(
                self._authorizer, principal, request.replica_id
            ):
                return await handler(request)
            self._log(principal, method, Operation.CLUSTER_ACTION, CLUSTER)
            return self._whole(principal, method, request, response, codes.CLUSTER_AUTHORIZATION_FAILED)
        return await self._topics(principal, method, rule, request, handler, response)

    async def _topics(
        self,
        principal: Principal,
        method: str,
        rule: Rule,
        request: Any,
        handler: Handler,
        response: type[Message],
    ) -> Message:
        assert rule.topics is not None
        assert rule.refusal is not None
        # Metadata answers for each name once.
        named: Any = getattr(request, rule.asked)
        of_metadata = isinstance(request, wire.MetadataRequest)
        entries = list(dict.fromkeys(named) if of_metadata else named)
        may = {
            name: self._may(principal, rule.topics, topic(name))
            for name in dict.fromkeys(map(_topic, entries))
        }
        denied = [name for name, allowed in may.items() if not allowed]
        if entries and not denied:
            return await handler(request)
        for name in denied[:LOGGED_DENIALS_MAX]:
            self._log(principal, method, rule.topics, topic(name))
        kept = type(request)()
        kept.CopyFrom(request)
        kept.ClearField(rule.asked)
        getattr(kept, rule.asked).extend(entry for entry in entries if may[_topic(entry)])
        if denied and isinstance(request, wire.FetchRequest):
            # An error is answered at once.
            kept.max_wait_ms = min(kept.max_wait_ms, 0)
        all_denied = bool(entries) and len(denied) == len(may)
        if all_denied and rule.none_means_all and not of_metadata:
            answer = response()
        else:
            answer = await handler(kept)
        answers: Any = getattr(answer, rule.answered)
        if rule.none_means_all and (not entries or all_denied):
            seen = (
                []
                if all_denied
                else [a for a in answers if self._may(principal, rule.topics, topic(a.topic))]
            )
            del answers[:]
            answers.extend(seen)
        if not (isinstance(request, wire.ProduceRequest) and request.acks == 0):
            _merge(answers, [(entry, may[_topic(entry)]) for entry in entries], rule.refusal)
        return answer

    def _may(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        return is_allowed(self._authorizer, principal, operation, resource)

    def _whole(
        self,
        principal: Principal,
        method: str,
        request: Any,
        response: type[Message],
        error: codes.ErrorCode,
    ) -> Message:
        """A request that is refused as a whole: its error, or where the response has none, that of each entry."""
        answer = response()
        fields = answer.DESCRIPTOR.fields_by_name
        if "error_code" in fields:
            setattr(answer, "error_code", error)  # noqa: B010  (the type has no such field)
            if "error_message" in fields:
                setattr(answer, "error_message", f"{principal} may not {method}")  # noqa: B010
        elif (rule := RULES.get(method)) is not None and rule.refusal is not None:
            getattr(answer, rule.answered).extend(
                rule.refusal(entry, error) for entry in getattr(request, rule.asked)
            )
        return answer

    def _log(self, principal: Principal, method: str, operation: Operation, resource: Resource) -> None:
        _log.warning(
            "denied",
            principal=str(principal),
            peer=principal.peer,
            method=method,
            operation=operation.name,
            resource=str(resource),
        )


def _topic(entry: Any) -> str:
    return str(entry if isinstance(entry, str) else entry.topic)


def _merge(
    answers: Any, entries: list[tuple[Any, bool]], refusal: Callable[[Any, codes.ErrorCode], Message]
) -> None:
    """Insert the refusals: at the places of their entries if each other entry has one answer, else at the end."""
    error = codes.TOPIC_AUTHORIZATION_FAILED
    given = list(answers)
    refused = [refusal(entry, error) for entry, allowed in entries if not allowed]
    if len(given) + len(refused) == len(entries):
        rest, mine = iter(given), iter(refused)
        merged = [next(rest) if allowed else next(mine) for _, allowed in entries]
    else:
        merged = given + refused
    del answers[:]
    answers.extend(merged)
