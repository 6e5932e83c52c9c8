"""The server of Kafka's protocol: brokers and clients ask the controller here.

One request of a connection is handled at a time, in order, as brokers do. Every request is answered or hung up on:
Kafka's clients then ask another node. A connection that sends garbage, too much, or nothing for long is closed.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, TypeVar

import structlog

from controller.core.requests.errors import ErrorCode
from controller.errors import ControllerError
from controller.runtime.kafka.security.server import (
    AUTHENTICATION_LIMIT_S,
    UNAUTHENTICATED_BYTES_MAX,
    Authentication,
    RefusedError,
    ServerSecurity,
)
from controller.runtime.kafka_api.admission import (
    CLUSTER_ACTIONS,
    CROWDED_IDLE_S,
    GROWING_REQUEST_BYTES_MAX,
    Admission,
    Slot,
    request_bytes_max,
)
from controller.runtime.kafka_api.api_table import (
    AUTHENTICATION_VERSIONS,
    METHOD_NAMES,
    SERVED,
    SERVED_VERSIONS,
)
from controller.runtime.kafka_api.apis.cluster import api_versions
from controller.runtime.kafka_api.call import Call, Controller
from controller.runtime.kafka_api.memory_pool import MemoryPool
from proto.gen.kafka.metadata_request import MetadataRequest
from proto.gen.kafka.sasl_authenticate_request import SaslAuthenticateRequest
from proto.gen.kafka.sasl_handshake_request import SaslHandshakeRequest
from proto.kafka.apis import APIS, ApiKey, RequestHeader, decode_request_header, encode_response
from proto.kafka.primitives import MalformedMessageError
from proto.security.tls import free_failed_handshake
from proto.tasks import end_all

T = TypeVar("T")
log = structlog.get_logger(__name__)

#: How long one request may take to arrive once it began, and a response to leave.
TRANSFER_S = 30.0
#: How long what is written may take to leave when the server stops.
LEAVING_S = 0.5
#: Longer requests and their responses are decoded and encoded in a thread; so are responses about more topics, where no
#: request bounds them.
AT_ONCE_BYTES_MAX, AT_ONCE_TOPICS_MAX = 2**16, 20
_OF_EVERYTHING = frozenset({ApiKey.METADATA, ApiKey.LIST_PARTITION_REASSIGNMENTS})

_SIZE = struct.Struct("!i")
#: The API's number and version, and the correlation id: what every request begins with.
_BEGINNING = struct.Struct("!hhi")


class _HangUpError(Exception):
    """The connection is to be closed; the text says why."""


class KafkaServer:
    """Accepts connections until it is stopped."""

    def __init__(self, controller: Controller, security: ServerSecurity) -> None:
        self._controller, self._security = controller, security
        self._servers: list[asyncio.Server] = []
        self._connections: dict[asyncio.Task[Any], None] = {}
        self._admission = Admission()
        self._pool = MemoryPool(GROWING_REQUEST_BYTES_MAX)

    async def start(self, host: str, port: int, listener: str = "") -> int:
        """Listen, also on several addresses; the actual port. Raises OSError when it cannot."""
        server = await asyncio.start_server(partial(self._accepted, listener), host, port)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._connections:
            task.cancel()
        if self._connections:
            await asyncio.wait(set(self._connections), timeout=LEAVING_S)
        await end_all(self._connections)
        self._pool.worker.shutdown(wait=False)

    async def _accepted(
        self, listener: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        peername = writer.get_extra_info("peername")
        peer = _shown(peername)

        def close() -> None:
            writer.transport.abort()
            task.cancel()

        slot = Slot(peername[0] if isinstance(peername, tuple) else "", time.monotonic(), close)
        for crowding in self._admission.enter(slot):
            log.warning("too_many_connections", peer=peer, closed=crowding.address)
            if crowding is slot:
                writer.transport.abort()
                return
            crowding.close()
        self._connections[task] = None
        try:
            connection = _Connection(
                self._controller,
                self._security,
                self._admission,
                slot,
                listener,
                reader,
                writer,
                self._pool,
            )
            await connection.serve()
        except _HangUpError as why:
            log.info("hung_up", peer=peer, why=str(why))
        except (RefusedError, ControllerError) as error:
            log.warning("refused", peer=peer, why=str(error))
        except MalformedMessageError as error:
            log.warning("malformed_request", peer=peer, problem=str(error))
        except TimeoutError:
            # Who does not read in time will not read what is left.
            writer.transport.abort()
            log.debug("connection_ended", peer=peer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            # Cancelled by ``stop``: asyncio would print a traceback for each connection.
            log.debug("connection_ended", peer=peer)
        finally:
            writer.close()
            try:
                async with asyncio.timeout(TRANSFER_S):
                    await writer.wait_closed()
            except (OSError, TimeoutError, asyncio.CancelledError):
                pass
            finally:
                # Else its descriptor and what was written stay until the other side has read it, or ends.
                writer.transport.abort()
                # Not before: until then it takes a descriptor, and memory.
                self._admission.leave(slot)
                self._connections.pop(task, None)


class _Connection:
    def __init__(
        self,
        controller: Controller,
        security: ServerSecurity,
        admission: Admission,
        slot: Slot,
        listener: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        pool: MemoryPool,
    ) -> None:
        self._controller, self._security, self._listener = controller, security, listener
        self._admission, self._slot = admission, slot
        self._reader, self._writer, self._pool = reader, writer, pool

    async def serve(self) -> None:
        """Authenticate, then answer requests until the other side closes.

        Raises _HangUpError, RefusedError, MalformedMessageError, ControllerError, OSError.
        """
        async with asyncio.timeout(AUTHENTICATION_LIMIT_S):
            authentication = await self._accept()
            while authentication.principal is None:
                if not await self._exchange(authentication):
                    return
        self._slot.authenticated = True
        while await self._exchange(authentication):
            pass

    async def _accept(self) -> Authentication:
        certificate = None
        if self._security.tls is not None:
            # For each connection: the files may have changed.
            try:
                await self._writer.start_tls(self._security.tls.current())
            except OSError as error:
                free_failed_handshake(error)
                if isinstance(error, ssl.SSLError):
                    raise RefusedError(f"TLS: {error.reason or error}") from None
                raise
            certificate = self._writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        host, port = self._writer.get_extra_info("peername")[:2]
        return self._security.accept(host, port, certificate)

    async def _exchange(self, authentication: Authentication) -> bool:
        """Answer one request; False at the end."""
        frame = await self._frame(authentication.principal is not None)
        if frame is None:
            return False
        with self._in_use():
            async with self._pool.taken(len(frame)) if len(frame) > AT_ONCE_BYTES_MAX else nullcontext():
                answer, close_after_s = await self._answer(authentication, frame)
            if close_after_s is not None:
                await asyncio.sleep(close_after_s)
            self._hold(len(answer))
            self._writer.write(_SIZE.pack(len(answer)) + answer)
            del answer
            async with asyncio.timeout(TRANSFER_S):
                await self._writer.drain()
        # Requests that have arrived together are read, answered and written without waiting: the loop is others', too.
        await asyncio.sleep(0)
        return close_after_s is None

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        self._slot.busy, self._slot.used_at = True, time.monotonic()
        try:
            yield
        finally:
            self._slot.busy, self._slot.used_at, self._slot.held = False, time.monotonic(), 0

    async def _frame(self, known: bool) -> bytes | None:
        """The next request without its size; None at the end. ``known``: the caller is authenticated.

        How long it may be depends on its API, so its beginning is read before the rest is accepted.
        """
        try:
            head = await self._size()
        except asyncio.IncompleteReadError:
            return None
        (size,) = _SIZE.unpack(head)
        most = GROWING_REQUEST_BYTES_MAX if known else UNAUTHENTICATED_BYTES_MAX
        if not _BEGINNING.size <= size <= most:
            raise _HangUpError(f"a request of {size} bytes: must have {_BEGINNING.size} to {most}")
        async with asyncio.timeout(TRANSFER_S):
            beginning = await self._reader.readexactly(_BEGINNING.size)
            api_key, _, _ = _BEGINNING.unpack(beginning)
            allowed = request_bytes_max(api_key)
            if size > allowed:
                raise _HangUpError(f"a request of {size} bytes for API {api_key}: at most {allowed}")
            self._hold(size)
            return beginning + await self._reader.readexactly(size - _BEGINNING.size)

    def _hold(self, size: int) -> None:
        """Of a request that begins to arrive, or a response that begins to leave: others make room for a long one."""
        if size <= AT_ONCE_BYTES_MAX:
            return
        for other in self._admission.hold(self._slot, size, time.monotonic()):
            log.warning("too_much_held", closed=other.address)
            other.close()

    async def _size(self) -> bytes:
        """Raises TimeoutError once the connection is idle for too long."""
        while True:
            try:
                async with asyncio.timeout(CROWDED_IDLE_S):
                    return await self._reader.readexactly(_SIZE.size)
            except TimeoutError:
                if self._admission.idle_too_long(self._slot, time.monotonic()):
                    raise

    async def _answer(self, authentication: Authentication, frame: bytes) -> tuple[bytes, float | None]:
        """The response, and after how many seconds to send it and close; None: at once, and go on."""
        header, start = decode_request_header(frame)
        try:
            key = ApiKey(header.api_key)
        except ValueError:
            raise _HangUpError(f"API {header.api_key} is not known here") from None
        offered = AUTHENTICATION_VERSIONS.get(key) or SERVED_VERSIONS.get(key, range(0))
        if (
            authentication.principal is None
            and key is ApiKey.API_VERSIONS
            and not authentication.ask_versions()
        ):
            raise _HangUpError("ApiVersions too often, or between messages of the authentication")
        if header.api_version not in offered:
            if key is ApiKey.API_VERSIONS:
                # The client asks again with a version that the response names (KIP-511).
                refusal = api_versions(self._controller.advertised(), ErrorCode.UNSUPPORTED_VERSION)
                return encode_response(refusal, 0, header.correlation_id), None
            raise _HangUpError(f"{key.name} version {header.api_version} is not served here")
        # Kafka looks at nothing behind a request's end, where librdkafka's Metadata for all topics has three bytes.
        decode = APIS[key].request.decode_at
        long = len(frame) > AT_ONCE_BYTES_MAX
        request = await self._made(long, decode, frame, start, header.api_version, exact=False)
        if isinstance(request, SaslHandshakeRequest | SaslAuthenticateRequest):
            response, close_after_s = await authentication.answer(request, header.api_version)
            return encode_response(response, header.api_version, header.correlation_id), close_after_s
        principal = authentication.principal
        if principal is None:
            if key is not ApiKey.API_VERSIONS:
                raise _HangUpError(f"{key.name} before authentication")
            return encode_response(
                api_versions(self._controller.advertised()), header.api_version, header.correlation_id
            ), None
        call = Call(self._controller, header.api_version, request, principal, self._listener, self._gone)
        everything = isinstance(request, MetadataRequest) and not request.topics
        async with self._pool.everything if everything else nullcontext():
            response = await self._handled(key, call)
            return await self._encoded(key, header, response, long), None

    async def _encoded(self, key: ApiKey, header: RequestHeader, response: Any, long: bool) -> bytes:
        long = long or (key in _OF_EVERYTHING and len(response.topics) > AT_ONCE_TOPICS_MAX)
        try:
            return await self._made(
                long, encode_response, response, header.api_version, header.correlation_id
            )
        except (ValueError, OverflowError, struct.error):
            log.exception("response_not_encoded", api=key.name, version=header.api_version)
            raise _HangUpError(f"{key.name}: the response cannot be encoded") from None

    async def _made(self, long: bool, make: Callable[..., T], *given: Any, **named: Any) -> T:
        """What ``make`` returns; made in a thread where it may take long."""
        made = partial(make, *given, **named)
        return await asyncio.get_running_loop().run_in_executor(self._pool.worker, made) if long else made()

    def _gone(self) -> bool:
        return self._reader.at_eof() or self._reader.exception() is not None

    async def _handled(self, key: ApiKey, call: Call[Any]) -> Any:
        try:
            response = await SERVED[key].handle(call)
        except Exception:
            log.exception("request_failed", api=key.name, version=call.version)
            response = SERVED[key].fail(key, call)
        if response is None:
            raise _HangUpError(f"{key.name}: another node answers this")
        self._count(key, response)
        self._record(key, call, response)
        if key in CLUSTER_ACTIONS and response.error_code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            self._slot.broker = True
        return response

    def _record(self, key: ApiKey, call: Call[Any], response: Any) -> None:
        daemon, principal = self._controller.daemon, call.principal
        caller, method = (str(principal), principal.host), METHOD_NAMES[key]
        changes = SERVED[key].recorded
        daemon.audit_log.answered(method, caller, call.request, response, daemon.epoch, changes=changes)

    def _count(self, key: ApiKey, response: Any) -> None:
        code = getattr(response, "error_code", 0)
        error = ErrorCode(code).name if code in set(ErrorCode) else str(code)
        self._controller.daemon.metrics.requests.labels(key.name, error).inc()


def _shown(peer: Any) -> str:
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer)
