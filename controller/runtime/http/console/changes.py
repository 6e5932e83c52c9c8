"""Changes from the page: tried on a copy first, then carried out, both by the RPCs that ``pctl`` calls, for the caller.

What may lose data is not among them. A standby refuses, and says who leads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler
from google.protobuf.message import Message
from msgspec import Meta

from controller.core.model import BROKER_ID_MAX
from controller.core.requests.errors import ErrorCode
from controller.core.requests.operator import AUTHOR_MAX, REASON_MAX
from controller.runtime.http.access import CALLER
from controller.runtime.http.console.asking import ON_ANSWER, Asking, RefusedError, answering, of_this_site
from controller.runtime.http.console.controllers import Controllers
from controller.runtime.http.console.sessions import Sessions
from controller.runtime.rpc.methods import ADMIN_SERVICE, response_of
from proto.gen import admin_service_pb2, inspection_pb2, maintenance_pb2
from proto.security.access import Openness
from proto.security.authorization import ANONYMOUS, CLUSTER, Operation, is_allowed

#: Bytes of one change, and partitions in it.
BODY_MAX, PARTITIONS_MAX = 512 * 1024, 1000
#: Limits of an answer: writes, characters of one text in them, refusals that are named, and notes.
WRITES_MAX, SHOWN_MAX, NAMED_MAX = 100, 500, 10

_Id = Annotated[int, Meta(ge=0, le=BROKER_ID_MAX)]
_Topic = Annotated[str, Meta(min_length=1, max_length=249)]
#: A method of AdminService and its request.
Step = tuple[str, Any]


class _Strict(msgspec.Struct, forbid_unknown_fields=True):
    pass


class Named(_Strict):
    topic: _Topic
    partition: _Id


class Move(_Strict):
    """``replicas``: preferred leader first; None: cancel its reassignment."""

    topic: _Topic
    partition: _Id
    replicas: Annotated[list[_Id], Meta(min_length=1, max_length=100)] | None


class Elect(_Strict, tag_field="kind", tag="elect"):
    """Preferred leaders, of these partitions; of a topic; without both, of all."""

    partitions: Annotated[list[Named], Meta(max_length=PARTITIONS_MAX)] = []
    topic: Annotated[str, Meta(max_length=249)] = ""


class Drain(_Strict, tag_field="kind", tag="drain"):
    broker: _Id
    drained: bool


class Moves(_Strict, tag_field="kind", tag="move"):
    """``drain``: a broker that is drained first, because its replicas leave."""

    moves: Annotated[list[Move], Meta(min_length=1, max_length=PARTITIONS_MAX)]
    drain: _Id | None = None


class Maintenance(_Strict, tag_field="kind", tag="maintenance"):
    entered: bool


class Pause(_Strict, tag_field="kind", tag="pause"):
    paused: bool


class Asked(_Strict):
    """``author``: who asks, where the caller is nobody in particular. ``ticket``: of the dry run."""

    change: Elect | Drain | Moves | Maintenance | Pause
    reason: Annotated[str, Meta(min_length=1, max_length=REASON_MAX)]
    author: Annotated[str, Meta(max_length=AUTHOR_MAX)] = ""
    ticket: Annotated[str, Meta(max_length=100)] = ""


_DECODER = msgspec.json.Decoder(Asked)


class Changes:
    """Answers to the POSTs of a page, and to its question what it may offer."""

    def __init__(self, asking: Asking, controllers: Controllers) -> None:
        self._asking, self._controllers = asking, controllers
        self._sessions = Sessions(asking.daemon)

    def routes(self) -> Iterator[tuple[str, str, Handler]]:
        """Method, path and handler."""
        yield "GET", "/ui/api/session", of_this_site(answering(self._session))
        yield "POST", "/ui/api/try", answering(self._try)
        yield "POST", "/ui/api/change", answering(self._change)

    async def _session(self, request: web.Request) -> dict[str, Any]:
        """Who the caller is, whether it may change the cluster, and if so with which token."""
        caller, daemon = request[CALLER], self._asking.daemon
        nobody = caller.name == ANONYMOUS
        told = {"caller": str(caller), "anonymous": nobody, "guarded": daemon.openness is Openness.GUARDED}
        if not self._may(request):
            return {**told, "may_change": False, "why": f"{caller} may not ALTER the cluster"}
        try:
            token, set_cookie = self._sessions.begin(request)
        except RefusedError as error:
            return {**told, "may_change": False, "why": str(error)}
        request[ON_ANSWER] = set_cookie
        return {**told, "may_change": True, "token": token}

    async def _try(self, request: web.Request) -> dict[str, Any]:
        """The dry run of a change, and a ticket for carrying it out."""
        asked = await self._read(request)
        steps = self._steps(request, asked)
        trial = inspection_pb2.DryRunRequest(
            steps=[{"method": name, "request": body.SerializeToString()} for name, body in steps]
        )
        found = await self._rpc(request, "DryRun", trial)
        answers = [
            response_of(ADMIN_SERVICE, name).FromString(data)
            for (name, _), data in zip(steps, found.responses, strict=True)
        ]
        data = msgspec.json.decode(found.dry_run)
        writes = data["writes"]
        return {
            "writes": [{k: _short(v) for k, v in row.items()} for row in writes[:WRITES_MAX]],
            "writes_count": len(writes),
            "pushes": data["pushes"],
            "notes": data["notes"][:NAMED_MAX],
            "outcomes": [_outcome(name, a) for (name, _), a in zip(steps, answers, strict=True)],
            "ticket": self._sessions.ticket(request, _digested(asked)),
        }

    async def _change(self, request: web.Request) -> dict[str, Any]:
        """Carry out a change that was tried. Its steps are requests of their own: those before a refused one count."""
        asked = await self._read(request)
        self._sessions.require_ticket(request, _digested(asked), asked.ticket)
        outcomes: list[dict[str, Any]] = []
        for name, body in self._steps(request, asked):
            try:
                outcomes.append(_outcome(name, await self._rpc(request, name, body)))
            except RefusedError as error:
                if not outcomes:
                    raise
                outcomes.append(
                    {"method": name, "error": error.error.name, "message": str(error), "refused": []}
                )
                break
        return {"outcomes": outcomes}

    async def _read(self, request: web.Request) -> Asked:
        """Raises RefusedError, and HTTPException for what is no JSON of a bounded size."""
        self._sessions.require(request)
        if not self._may(request):
            caller, daemon = request[CALLER], self._asking.daemon
            named = str(caller), caller.host
            daemon.audit_log.denied(
                "DryRun", named, ErrorCode.CLUSTER_AUTHORIZATION_FAILED.name, None, daemon.epoch
            )
            why = f"{caller} may not ALTER the cluster"
            raise RefusedError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, why)
        if request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType(text="the body must be application/json\n")
        try:
            return _DECODER.decode(await request.read())
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise RefusedError(ErrorCode.INVALID_REQUEST, str(error)[:SHOWN_MAX]) from None

    def _may(self, request: web.Request) -> bool:
        return is_allowed(self._asking.daemon.authorizer, request[CALLER], Operation.ALTER, CLUSTER)

    async def _rpc(self, request: web.Request, method: str, asked: Message) -> Any:
        try:
            return await self._asking.rpc(request, method, asked)
        except RefusedError as error:
            if error.error is not ErrorCode.NOT_CONTROLLER:
                raise
            active = await self._controllers.active()
            who = f"controller {active['id']} is" if active is not None else "no controller is known to be"
            why = f"this controller is not active; {who}"
            raise RefusedError(ErrorCode.NOT_CONTROLLER, why, active=active) from None

    def _steps(self, request: web.Request, asked: Asked) -> list[Step]:
        """Raises RefusedError."""
        caller, change, reason = request[CALLER], asked.change, asked.reason.strip()
        nobody = caller.name == ANONYMOUS
        author = asked.author.strip() if nobody else str(caller)
        if not reason or not author:
            why = "reason and author: must both be given, so that others know why and whom to ask"
            raise RefusedError(ErrorCode.INVALID_REQUEST, why)
        signed: dict[str, Any] = {"reason": reason, "author": author}
        # Requests without an author are recorded with their caller, which may be nobody in particular.
        told = f"{author}: {reason}"[:REASON_MAX] if nobody else reason
        match change:
            case Elect():
                return [("ElectLeaders", self._election(change, told))]
            case Drain():
                body = maintenance_pb2.SetDrainRequest(
                    broker_id=change.broker, drained=change.drained, **signed
                )
                return [("SetDrain", body)]
            case Moves():
                return [
                    *_draining(change.drain, signed),
                    ("AlterPartitionReassignments", _moving(change, told)),
                ]
            case Maintenance():
                entering = maintenance_pb2.SetMaintenanceRequest(entered=change.entered, **signed)
                return [("SetMaintenance", entering)]
            case Pause():
                return [("SetPause", maintenance_pb2.SetPauseRequest(paused=change.paused, **signed))]

    def _election(self, change: Elect, reason: str) -> Any:
        """Raises RefusedError."""
        named: Sequence[tuple[str, int]] = [(p.topic, p.partition) for p in change.partitions]
        if change.topic:
            topic = self._asking.leading().machine.cluster.topics.get(change.topic)
            if topic is None:
                raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")
            named = [(change.topic, number) for number in sorted(topic.partitions)]
        return admin_service_pb2.ElectLeadersRequest(
            election_type=admin_service_pb2.PREFERRED,
            topic_partitions=[{"topic": name, "partition": number} for name, number in named],
            all_partitions=not (change.partitions or change.topic),
            reason=reason,
        )


def _draining(broker_id: int | None, signed: dict[str, Any]) -> list[Step]:
    if broker_id is None:
        return []
    return [("SetDrain", maintenance_pb2.SetDrainRequest(broker_id=broker_id, drained=True, **signed))]


def _moving(change: Moves, reason: str) -> Any:
    return admin_service_pb2.AlterPartitionReassignmentsRequest(
        partitions=[
            admin_service_pb2.ReassignablePartition(
                topic=move.topic,
                partition=move.partition,
                replicas=None if move.replicas is None else {"broker_ids": move.replicas},
            )
            for move in change.moves
        ],
        reason=reason,
    )


def _digested(asked: Asked) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(asked, ticket=""))


def _outcome(method: str, answer: Any) -> dict[str, Any]:
    """``refused``: partitions by error, a few of them by name."""
    code = ErrorCode(answer.error_code)
    refused: dict[str, dict[str, Any]] = {}
    entries = list(getattr(answer, "results", ())) or list(getattr(answer, "responses", ()))
    for entry in entries:
        if entry.error_code:
            error = ErrorCode(entry.error_code).name
            found = refused.setdefault(
                error, {"error": error, "message": entry.error_message, "count": 0, "such_as": []}
            )
            found["count"] += 1
            if found["count"] <= NAMED_MAX:
                found["such_as"].append(f"{entry.topic}-{entry.partition}")
    return {
        "method": method,
        "error": "" if code is ErrorCode.NONE else code.name,
        "message": answer.error_message,
        "done": len(entries) - sum(found["count"] for found in refused.values()),
        "refused": list(refused.values()),
    }


def _short(value: Any) -> Any:
    return f"{value[:SHOWN_MAX]}..." if isinstance(value, str) and len(value) > SHOWN_MAX else value
