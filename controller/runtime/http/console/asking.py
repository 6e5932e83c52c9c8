"""What all answers to the pages share: bounded parameters, refusals, and the RPCs, each behind its own guard."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from controller.core.model import Topic
from controller.core.requests.errors import ErrorCode
from controller.runtime.daemon import Daemon
from controller.runtime.http.access import CALLER, AsRpc
from controller.runtime.http.connections import ANSWERING
from controller.runtime.http.console.files import HEADERS
from controller.runtime.rpc.access import Guard
from controller.runtime.rpc.admin_service import AdminService
from controller.runtime.rpc.methods import ADMIN_SERVICE
from controller.runtime.term import Term
from proto.security.authorization import Operation, is_allowed, topic

T = TypeVar("T")

#: Seconds for one RPC, and after which its request is said to go on.
WORK_S, GO_ON_S = 300.0, 5.0
#: Rows of one answer, and characters of a search.
ROWS_MAX, SEARCH_MAX = 500, 300

#: The key of a request under which is kept what else is done to its response.
ON_ANSWER: web.RequestKey[Callable[[web.StreamResponse], None]] = web.RequestKey("on_answer")

#: The HTTP status of an error; 500 for others.
_STATUS = {
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.NOT_CONTROLLER: 503,
    ErrorCode.OPERATION_NOT_ATTEMPTED: 503,
}


class RefusedError(Exception):
    """A request that is answered with an error. ``more``: fields of the answer beside error and message."""

    def __init__(self, error: ErrorCode, why: str, **more: Any) -> None:
        super().__init__(why)
        self.error, self.more = error, more


class Asking:
    """One daemon, as its pages ask it."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self._rpcs = AdminService(daemon).methods()

    def leading(self) -> Term:
        """Raises RefusedError while this controller does not lead."""
        term = self.daemon.leading
        if term is None:
            leader = self.daemon.current_controller
            who = f"controller {leader} is" if leader >= 0 else "no controller is known to be"
            raise RefusedError(ErrorCode.NOT_CONTROLLER, f"this controller is not active; {who}")
        return term

    def may_see(self, request: web.Request, name: str) -> bool:
        """Whether the caller may DESCRIBE a topic."""
        return is_allowed(self.daemon.authorizer, request[CALLER], Operation.DESCRIBE, topic(name))

    def named(self, request: web.Request, term: Term, name: str) -> Topic:
        """Raises RefusedError for a topic that the caller may not see, or that does not exist."""
        if not self.may_see(request, name):
            why = f"{request[CALLER]} may not DESCRIBE {topic(name)}"
            raise RefusedError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, why)
        found = term.machine.cluster.topics.get(name)
        if found is None:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")
        return found

    async def rpc(self, request: web.Request, method: str, asked: Message) -> Any:
        """The response of an RPC to this caller. Raises RefusedError for one with an error."""
        guarded = Guard(self.daemon, f"/{ADMIN_SERVICE}/{method}").unary(self._rpcs[method])
        answer: Any = await _patiently(request, guarded(asked, AsRpc(request)))
        if answer.error_code:
            raise RefusedError(ErrorCode(answer.error_code), answer.error_message)
        return answer


async def _patiently(request: web.Request, work: Awaitable[T]) -> T:
    """Planning a large cluster takes longer than a request may: so it does until it is ended from here."""
    task = asyncio.ensure_future(work)
    try:
        async with asyncio.timeout(WORK_S):
            while not (await asyncio.wait([task], timeout=GO_ON_S))[0]:
                if (answering := request.get(ANSWERING)) is not None:
                    answering.goes_on()
        return task.result()
    except TimeoutError:
        why = f"it takes more than {WORK_S:g} s: use pctl"
        raise RefusedError(ErrorCode.OPERATION_NOT_ATTEMPTED, why) from None
    finally:
        task.cancel()


def answering(answer: Callable[[web.Request], Awaitable[Any]]) -> Handler:
    """A handler that sends a value, or an error, as JSON."""

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            status, body = 200, await answer(request)
        except RefusedError as error:
            status = _STATUS.get(error.error, 500)
            body = {"error": error.error.name, "message": str(error), **error.more}
        except web.HTTPException as error:
            status, body = error.status, {"error": error.reason, "message": error.text}
        headers = {**HEADERS, "Cache-Control": "no-store"}
        data = msgspec.json.encode(body)
        response = web.Response(status=status, body=data, content_type="application/json", headers=headers)
        if ON_ANSWER in request:
            request[ON_ANSWER](response)
        return response

    return handle


def of_this_site(handler: Handler) -> Handler:
    """Refuses what a page of another site makes a browser ask: it takes the browser's rights, and time."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            return web.Response(status=403, headers=HEADERS, text="asked by a page of another site\n")
        return await handler(request)

    return handle


def text_in(request: web.Request, field: str) -> str:
    """Raises RefusedError."""
    found = request.query.get(field, "")
    if len(found) > SEARCH_MAX:
        why = f"{field}: has {len(found)} characters, must have at most {SEARCH_MAX}"
        raise RefusedError(ErrorCode.INVALID_REQUEST, why)
    return found


def number_in(request: web.Request, field: str, least: int, most: int, default: int | None = None) -> int:
    """Raises RefusedError."""
    found = request.query.get(field)
    if found is None and default is not None:
        return default
    return number_of(found or "", field, least, most)


def number_of(text: str, field: str, least: int, most: int) -> int:
    """Raises RefusedError."""
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) <= 20 and least <= int(text) <= most:
        return int(text)
    why = f"{field} = {text[:SEARCH_MAX]!r}: must be from {least} to {most}"
    raise RefusedError(ErrorCode.INVALID_REQUEST, why)


def as_dict(message: Message) -> dict[str, Any]:
    """A message with all its fields; 64-bit numbers become text, as protobuf's JSON has them."""
    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
