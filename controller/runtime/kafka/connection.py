"""One connection to one Kafka broker: frames of bounded size, one request in flight, correlation ids checked."""

from __future__ import annotations

import asyncio
import math
import struct
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

from controller import __version__
from controller.errors import ControllerError
from controller.runtime.kafka.security.client import ClientSecurity
from proto.addresses import join_address
from proto.gen.kafka.api_versions_request import ApiVersionsRequest
from proto.gen.kafka.api_versions_response import ApiVersionsResponse
from proto.kafka.apis import ApiKey, MalformedMessageError, Message, decode_response, encode_request
from proto.security.tls import free_failed_handshake

#: Responses to control requests have a few bytes for each partition.
RESPONSE_BYTES_MAX = 16 * 2**20
#: A longer response is decoded in a thread: that takes some 0.25 s for each MiB.
DECODED_AT_ONCE_MAX = 2**16
#: The first flexible version; brokers speak it since Kafka 2.4.
API_VERSIONS_VERSION = 3
#: Share of an authenticated connection's life after which it is replaced.
LIFETIME_FRACTION = 0.9

#: A request before its correlation id: size, API key, version; and where the rest begins in an encoded request.
_START = struct.Struct(">ihhi")
_REQUEST_START = struct.Struct(">hhi")
_SIZE = struct.Struct(">i")


class ConnectionFailedError(ControllerError):
    """A broker was not reached, did not answer, or answered nonsense; the connection is closed."""


class Connection:
    """Opened on demand, and again after a failure; who waits how long between attempts, the caller decides.

    ``timeout_s`` limits each request, and opening as a whole with TLS, authentication and the question for versions.
    ``response_bytes_max``: a longer response is refused.
    """

    def __init__(
        self,
        client_id: str,
        security: ClientSecurity,
        timeout_s: float,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
    ) -> None:
        self._response_bytes_max = response_bytes_max
        self._client_id, self._security, self._timeout_s = client_id, security, timeout_s
        self._address = ("", 0)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._lock = asyncio.Lock()
        self._correlation_id = 0
        self._replace_at = math.inf
        #: What the broker speaks, by API key, as it said when the connection was opened.
        self.versions: Mapping[int, range] = {}

    async def open(self, host: str, port: int) -> None:
        """Connect, unless there is a connection to this address already. Raises ConnectionFailedError."""
        async with self._lock:
            if self._address == (host, port) and self._usable():
                return
            await self.close()
            self._address = (host, port)
            async with self._attempt():
                tls = self._security.ssl
                name = (self._security.server_hostname or host) if tls is not None else None
                try:
                    self._streams = await asyncio.open_connection(host, port, ssl=tls, server_hostname=name)
                except OSError as error:
                    free_failed_handshake(error)
                    raise
                lifetime_s = await self._security.authenticate(self._send)
                self._replace_at = time.monotonic() + LIFETIME_FRACTION * (lifetime_s or math.inf)
                self.versions = await self._ask_versions()

    async def request(self, request: Message, version: int) -> Message:
        """The broker's response. Raises ConnectionFailedError."""
        return await self.exchange(encode_request(request, version, 0, self._client_id))

    async def exchange(self, encoded: bytes) -> Message:
        """The broker's response to a request that ``encode_request`` encoded; its correlation id is set here. Raises
        ConnectionFailedError."""
        async with self._lock, self._attempt():
            return await self._exchange(encoded)

    async def close(self) -> None:
        """Close the connection; it may be opened again."""
        if self._streams is not None:
            writer = self._streams[1]
            self._abort()
            with suppress(OSError):
                await writer.wait_closed()

    def _usable(self) -> bool:
        if self._streams is None or time.monotonic() >= self._replace_at:
            return False
        reader, writer = self._streams
        return not reader.at_eof() and not writer.is_closing()

    def _abort(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None

    @asynccontextmanager
    async def _attempt(self) -> AsyncIterator[None]:
        """Whatever goes wrong inside, the connection is closed: a response may still be on its way."""
        done = False
        try:
            async with asyncio.timeout(self._timeout_s):
                yield
            done = True
        except TimeoutError:
            raise self._failed(f"no answer within {self._timeout_s:g} s") from None
        except asyncio.IncompleteReadError:
            raise self._failed("the broker closed the connection") from None
        except (OSError, UnicodeError, MalformedMessageError) as error:
            # UnicodeError: of a host name that has an empty part.
            raise self._failed(str(error)) from None
        except ConnectionFailedError:
            raise
        except ControllerError as error:
            raise self._failed(str(error)) from None
        finally:
            if not done:
                self._abort()

    def _failed(self, why: str) -> ConnectionFailedError:
        return ConnectionFailedError(f"{join_address(*self._address)}: {why}")

    async def _exchange(self, encoded: bytes) -> Message:
        if self._streams is None:
            raise self._failed("not connected")
        reader, writer = self._streams
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        api_key, version, _ = _REQUEST_START.unpack_from(encoded)
        start = _START.pack(len(encoded), api_key, version, self._correlation_id)
        writer.writelines((start, memoryview(encoded)[_REQUEST_START.size :]))
        await writer.drain()
        (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
        if not 0 <= size <= self._response_bytes_max:
            raise self._failed(f"a response of {size} bytes; at most {self._response_bytes_max} are read")
        data = await reader.readexactly(size)
        if size > DECODED_AT_ONCE_MAX:
            correlation_id, response = await asyncio.to_thread(decode_response, api_key, version, data)
        else:
            correlation_id, response = decode_response(api_key, version, data)
        if correlation_id != self._correlation_id:
            raise self._failed(
                f"a response with correlation id {correlation_id} instead of {self._correlation_id}"
            )
        return response

    async def _send(self, api_key: ApiKey, version: int, request: Message) -> Message:  # noqa: ARG002  (Send)
        return await self._exchange(encode_request(request, version, 0, self._client_id))

    async def _ask_versions(self) -> dict[int, range]:
        asked = ApiVersionsRequest(
            client_software_name="partition-controller", client_software_version=__version__
        )
        answer = await self._send(ApiKey.API_VERSIONS, API_VERSIONS_VERSION, asked)
        assert isinstance(answer, ApiVersionsResponse)
        if answer.error_code:
            raise self._failed(f"ApiVersions was answered with error {answer.error_code}")
        return {api.api_key: range(api.min_version, api.max_version + 1) for api in answer.api_keys}
