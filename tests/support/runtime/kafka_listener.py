"""A listener that authenticates by ``ServerSecurity``, as the controller's own does, and answers little else."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from controller.runtime.kafka.security.server import (
    AUTHENTICATION_LIMIT_S,
    UNAUTHENTICATED_BYTES_MAX,
    Authentication,
    ServerSecurity,
)
from proto.gen.kafka.api_versions_response import ApiVersion, ApiVersionsResponse
from proto.gen.kafka.controlled_shutdown_response import ControlledShutdownResponse
from proto.gen.kafka.metadata_response import MetadataResponse, MetadataResponseBroker
from proto.gen.kafka.sasl_authenticate_request import SaslAuthenticateRequest
from proto.gen.kafka.sasl_handshake_request import SaslHandshakeRequest
from proto.kafka.apis import APIS, ApiKey, Message, decode_request_header, encode_response
from proto.security.authorization import Principal

_SIZE = struct.Struct("!i")
OFFERED = {
    ApiKey.API_VERSIONS: (0, 3),
    ApiKey.METADATA: (0, 12),
    ApiKey.SASL_HANDSHAKE: (1, 1),
    ApiKey.SASL_AUTHENTICATE: (0, 2),
    ApiKey.CONTROLLED_SHUTDOWN: (0, 3),
}


class Listener:
    """``callers``: who sent a request other than those of authentication, and ``asked``: what."""

    def __init__(self, security: ServerSecurity) -> None:
        self._security = security
        self.callers: list[Principal] = []
        self.asked: list[ApiKey] = []
        self.port = 0

    async def accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            try:
                async with asyncio.timeout(AUTHENTICATION_LIMIT_S):
                    authentication = await self._begin(writer)
                while True:
                    await self._one(authentication, reader, writer)
            finally:
                writer.close()

    async def _begin(self, writer: asyncio.StreamWriter) -> Authentication:
        certificate = None
        if self._security.tls is not None:
            await writer.start_tls(self._security.tls.current())
            certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        host, port = writer.get_extra_info("peername")[:2]
        return self._security.accept(host, port, certificate)

    async def _one(
        self, authentication: Authentication, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
        if authentication.principal is None and size > UNAUTHENTICATED_BYTES_MAX:
            raise OSError("too large")
        frame = await reader.readexactly(size)
        header, at = decode_request_header(frame)
        key, close = ApiKey(header.api_key), None
        lowest, highest = OFFERED[key]
        version = header.api_version
        if key is ApiKey.API_VERSIONS and version > highest:
            frame = encode_response(ApiVersionsResponse(35, self._versions()), 0, header.correlation_id)
            writer.write(_SIZE.pack(len(frame)) + frame)
            return
        assert lowest <= version <= highest
        request = APIS[key].request.decode(frame[at:], version)
        response: Message
        if isinstance(request, SaslHandshakeRequest | SaslAuthenticateRequest):
            response, close = await authentication.answer(request, version)
        elif key is ApiKey.API_VERSIONS and authentication.ask_versions():
            response = ApiVersionsResponse(0, self._versions())
        elif authentication.principal is not None:
            self.callers.append(authentication.principal)
            self.asked.append(key)
            node = MetadataResponseBroker(7, "127.0.0.1", self.port)
            response = MetadataResponse(brokers=[node], cluster_id="test", controller_id=7)
            if key is ApiKey.CONTROLLED_SHUTDOWN:
                response = ControlledShutdownResponse()
        else:
            raise OSError("not authenticated")
        if close is not None:
            await asyncio.sleep(close)
        frame = encode_response(response, version, header.correlation_id)
        writer.write(_SIZE.pack(len(frame)) + frame)
        await writer.drain()
        if close is not None:
            raise OSError("refused")

    @staticmethod
    def _versions() -> list[ApiVersion]:
        return [ApiVersion(key, *versions) for key, versions in OFFERED.items()]


@asynccontextmanager
async def listening(security: ServerSecurity, port: int = 0) -> AsyncIterator[Listener]:
    listener = Listener(security)
    server = await asyncio.start_server(listener.accepted, "127.0.0.1", port)
    listener.port = server.sockets[0].getsockname()[1]
    try:
        yield listener
    finally:
        server.close()
