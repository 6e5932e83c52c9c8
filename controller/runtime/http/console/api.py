"""What the pages ask, below ``/ui/api``: read-only, bounded, and allowed by the rules of the RPCs that tell the same.

DESCRIBE on the cluster for every path (``access.guard``); on a topic, too, for what names it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from controller import __version__
from controller.core.model import BROKER_ID_MAX, Topic
from controller.core.requests.errors import ErrorCode
from controller.errors import ControllerError
from controller.runtime.daemon import Daemon
from controller.runtime.http.access import CALLER, AsRpc
from controller.runtime.http.console import views
from controller.runtime.http.console.events import Events
from controller.runtime.http.console.files import HEADERS
from controller.runtime.http.console.survey import TILES_MAX, Counts, Survey, Surveyor, tiles
from controller.runtime.http.min_isr import MinIsr
from controller.runtime.rpc.access import Guard
from controller.runtime.rpc.admin_service import AdminService
from controller.runtime.rpc.methods import ADMIN_SERVICE
from controller.runtime.term import Term
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.session import ConnectionLossError
from proto.gen import history_pb2, inspection_pb2
from proto.security.authorization import Operation, is_allowed, topic
from proto.statelog.schema import KINDS, QUIET

#: Rows of one answer, records of one answer, and characters of a search.
ROWS_MAX, RECORDS_MAX, SEARCH_MAX = 500, 500, 300
#: Topics looked at between two pauses for other work.
AT_ONCE = 2000
#: Between two reads of the registered controllers.
CONTROLLERS_EVERY_S = 2.0

_STATUS = {
    ErrorCode.NONE: 200,
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.NOT_CONTROLLER: 503,
    ErrorCode.OPERATION_NOT_ATTEMPTED: 503,
}


class RefusedError(Exception):
    """A request that is answered with an error."""

    def __init__(self, error: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.error = error


class Api:
    """Handlers run on the daemon's event loop, between its steps."""

    def __init__(self, daemon: Daemon, min_isr: MinIsr, streams_max: int) -> None:
        self._daemon, self._min_isr = daemon, min_isr
        self._surveyor = Surveyor(min_isr)
        self._rpcs = AdminService(daemon).methods()
        self.events = Events(daemon, streams_max)
        self._controllers: list[cluster_reader.ControllerInfo] = []
        self._controllers_at_s = -CONTROLLERS_EVERY_S

    def routes(self) -> Iterator[tuple[str, Handler]]:
        """Path and handler."""
        yield "/ui/api/events", self.events.serve
        for path, answer in (
            ("overview", self._overview),
            ("heat", self._heat),
            ("topics", self._topics),
            ("topic", self._topic),
            ("partition", self._partition),
            ("broker", self._broker),
            ("audit", self._audit),
            ("history", self._history),
        ):
            yield f"/ui/api/{path}", _answering(answer)

    # the cluster

    async def _overview(self, request: web.Request) -> dict[str, Any]:
        """Of every controller; a standby says who leads."""
        del request
        known = {
            "version": __version__,
            "now_ms": round(time.time() * 1000),
            "state": views.state(self._daemon),
            "controllers": views.controllers(await self._registered(), self._daemon.settings.controller_id),
            "cluster": None,
        }
        if self._daemon.active and (term := self._daemon.term) is not None:
            survey = await self._surveyor.survey(term)
            known["cluster"] = views.overview(self._daemon, term, survey)
        return known

    async def _registered(self) -> list[cluster_reader.ControllerInfo]:
        """The controllers in ZooKeeper, as of a moment ago."""
        session, now_s = self._daemon.session, time.monotonic()
        if session is not None and now_s - self._controllers_at_s >= CONTROLLERS_EVERY_S:
            self._controllers_at_s = now_s
            try:
                self._controllers = await cluster_reader.controllers(session)
            except (ControllerError, ConnectionLossError):
                self._controllers = []
        return self._controllers

    # topics

    async def _heat(self, request: web.Request) -> dict[str, Any]:
        """All partitions as tiles: neighbours by topic name; with ``topic``, by number in that topic."""
        term = self._leading()
        name = request.query.get("topic")
        wanted = _number(request, "tiles", 1, TILES_MAX, TILES_MAX)
        cells: list[tuple[str | int, Counts]]
        if name is not None:
            found, survey = self._named(request, term, name), Survey(term.machine.cluster)
            first = _number(request, "from", 0, BROKER_ID_MAX, 0)
            last = _number(request, "to", 0, BROKER_ID_MAX, BROKER_ID_MAX)
            min_isr = self._min_isr.of(name)
            cells = [
                (number, survey.count(partition, min_isr))
                for number, partition in sorted(found.partitions.items())
                if first <= number <= last
            ]
        else:
            survey = await self._surveyor.survey(term)
            first_name, last_name = _text(request, "from"), _text(request, "to")
            cells = [
                cell
                async for cell in _in_portions(survey.within(first_name, last_name))
                if self._may_see(request, str(cell[0]))
            ]
        return {"tiles": [views.tile(one) for one in tiles(cells, wanted)], "of": len(cells)}

    async def _topics(self, request: web.Request) -> dict[str, Any]:
        """Topics by name, after ``after``, whose name has ``match``; ``trouble=1``: with something wrong."""
        term = self._leading()
        limit = _number(request, "limit", 1, ROWS_MAX, 100)
        match, after = _text(request, "match").lower(), _text(request, "after")
        trouble = _text(request, "trouble") == "1"
        survey = await self._surveyor.survey(term)
        rows: list[dict[str, Any]] = []
        async for name, counts in _in_portions(survey.within(after, "")):
            if name == after or match not in name.lower() or (trouble and counts.well):
                continue
            if not self._may_see(request, name):
                continue
            if len(rows) == limit:
                return {"topics": rows, "more": True}
            rows.append(views.topic_row(name, counts))
        return {"topics": rows, "more": False}

    async def _topic(self, request: web.Request) -> dict[str, Any]:
        """A topic, and its partitions after number ``after``; ``trouble=1``: those with something wrong."""
        term = self._leading()
        name = _text(request, "topic")
        found, cluster = self._named(request, term, name), term.machine.cluster
        limit = _number(request, "limit", 1, ROWS_MAX, 100)
        after = _number(request, "after", -1, BROKER_ID_MAX, -1)
        trouble = _text(request, "trouble") == "1"
        await self._min_isr.refresh(term)
        min_isr, rows = self._min_isr.of(name), []
        for number in sorted(found.partitions):
            if number <= after:
                continue
            row = views.partition_row(cluster, found.partitions[number], min_isr)
            if trouble and row["worst"] is None:
                continue
            rows.append(row)
            if len(rows) > limit:
                break
        return {
            "name": name,
            "id": found.id,
            "partitions": len(found.partitions),
            "min_isr": min_isr,
            "deleting": cluster.deletion_requested(name),
            "rows": rows[:limit],
            "more": len(rows) > limit,
        }

    async def _partition(self, request: web.Request) -> dict[str, Any]:
        """One partition, and why it is as it is (the RPC ``Explain``)."""
        name, number = _text(request, "topic"), _number(request, "partition", 0, BROKER_ID_MAX)
        asked = inspection_pb2.ExplainRequest(partition={"topic": name, "partition": number})
        why = await self._rpc(request, "Explain", asked)
        term = self._leading()
        partition = self._named(request, term, name).partitions.get(number)
        if partition is None:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "it was deleted")
        return {
            "topic": name,
            "min_isr": self._min_isr.of(name),
            "row": views.partition_row(term.machine.cluster, partition, self._min_isr.of(name)),
            "why": msgspec.Raw(why.explanation.encode()),
            "command": views.explain_command(name, number),
        }

    async def _broker(self, request: web.Request) -> dict[str, Any]:
        """Why a broker is as it is (the RPC ``Explain``)."""
        broker_id = _number(request, "id", 0, BROKER_ID_MAX)
        why = await self._rpc(request, "Explain", inspection_pb2.ExplainRequest(broker=broker_id))
        lines = list(why.words)[: 1 + ROWS_MAX]
        return {"id": broker_id, "words": lines, "command": f"pctl explain broker {broker_id}"}

    # records

    async def _audit(self, request: web.Request) -> dict[str, Any]:
        """What the audit has found so far (the RPC ``Audit``); nobody is asked anew."""
        found = await self._rpc(request, "Audit", inspection_pb2.AuditRequest(recorded=True))
        del found.problems[ROWS_MAX:]
        return _as_dict(found)

    async def _history(self, request: web.Request) -> dict[str, Any]:
        """Records, newest first (the RPC ``ListHistory``)."""
        kinds = [kind for kind in _text(request, "kinds").split(",") if kind]
        brokers = [_number(request, "broker", 0, BROKER_ID_MAX)] if "broker" in request.query else []
        wanted = history_pb2.HistoryFilter(
            topic=_text(request, "topic"),
            has_partition="partition" in request.query,
            partition=_number(request, "partition", 0, BROKER_ID_MAX, 0),
            brokers=brokers,
            kinds=kinds or sorted(KINDS.keys() - QUIET),
            since_us=_number(request, "since_us", 0, 2**62, 0),
            until_us=_number(request, "until_us", 0, 2**62, 0),
        )
        limit = _number(request, "limit", 1, RECORDS_MAX, 100)
        asked = history_pb2.ListHistoryRequest(filter=wanted, limit=limit)
        found = await self._rpc(request, "ListHistory", asked)
        return {
            "records": [msgspec.Raw(line.encode()) for line in reversed(found.records)],
            "more": found.more,
            "oldest_us": found.oldest_us,
            "forgotten": found.forgotten,
        }

    # helpers

    def _leading(self) -> Term:
        term = self._daemon.term
        if term is None or not self._daemon.active:
            leader = self._daemon.current_controller.controller_id
            who = f"controller {leader} is" if leader >= 0 else "no controller is known to be"
            raise RefusedError(ErrorCode.NOT_CONTROLLER, f"this controller is not active; {who}")
        return term

    def _may_see(self, request: web.Request, name: str) -> bool:
        return is_allowed(self._daemon.authorizer, request[CALLER], Operation.DESCRIBE, topic(name))

    def _named(self, request: web.Request, term: Term, name: str) -> Topic:
        if not self._may_see(request, name):
            why = f"{request[CALLER]} may not DESCRIBE {topic(name)}"
            raise RefusedError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, why)
        found = term.machine.cluster.topics.get(name)
        if found is None:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")
        return found

    async def _rpc(self, request: web.Request, method: str, asked: Message) -> Any:
        """The response of an RPC to this caller. Raises RefusedError for one with an error."""
        guarded = Guard(self._daemon, f"/{ADMIN_SERVICE}/{method}").unary(self._rpcs[method])
        answer: Any = await guarded(asked, AsRpc(request))
        if answer.error_code:
            raise RefusedError(ErrorCode(answer.error_code), answer.error_message)
        return answer


def _answering(answer: Callable[[web.Request], Awaitable[Any]]) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            status, body = 200, await answer(request)
        except RefusedError as error:
            status = _STATUS.get(error.error, 500)
            body = {"error": error.error.name, "message": str(error)}
        headers = {**HEADERS, "Cache-Control": "no-store"}
        data = msgspec.json.encode(body)
        return web.Response(status=status, body=data, content_type="application/json", headers=headers)

    return handle


async def _in_portions(cells: Iterator[tuple[str, Counts]]) -> AsyncIterator[tuple[str, Counts]]:
    for number, cell in enumerate(cells, 1):
        yield cell
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)


def _text(request: web.Request, field: str) -> str:
    """Raises RefusedError."""
    found = request.query.get(field, "")
    if len(found) > SEARCH_MAX:
        why = f"{field}: has {len(found)} characters, must have at most {SEARCH_MAX}"
        raise RefusedError(ErrorCode.INVALID_REQUEST, why)
    return found


def _number(request: web.Request, field: str, least: int, most: int, default: int | None = None) -> int:
    """Raises RefusedError."""
    found = request.query.get(field)
    if found is None and default is not None:
        return default
    text = found or ""
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) <= 20 and least <= int(text) <= most:
        return int(text)
    raise RefusedError(
        ErrorCode.INVALID_REQUEST, f"{field} = {text[:SEARCH_MAX]!r}: must be from {least} to {most}"
    )


def _as_dict(message: Message) -> dict[str, Any]:
    """A message with all its fields; 64-bit numbers become text, as protobuf's JSON has them."""
    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
