"""The side that asks: how our connections to brokers prove who we are (``SaslClientAuthenticator``)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from controller.errors import ControllerError
from controller.runtime.kafka.security.sasl import Mechanism, SaslErrorCode, SecurityProtocol, write_plain
from controller.runtime.kafka.security.scram import ScramClient, ScramError
from proto.gen.kafka.sasl_authenticate_request import SaslAuthenticateRequest
from proto.gen.kafka.sasl_authenticate_response import SaslAuthenticateResponse
from proto.gen.kafka.sasl_handshake_request import SaslHandshakeRequest
from proto.gen.kafka.sasl_handshake_response import SaslHandshakeResponse
from proto.kafka.apis import ApiKey, Message
from proto.security.files import FromFiles

#: Every broker from 2.2 on speaks these, so that ApiVersions need not be asked before.
HANDSHAKE_VERSION, AUTHENTICATE_VERSION = 1, 1

#: Sends one request on the connection and returns the response: (api key, version, request) to response.
Send = Callable[[ApiKey, int, Message], Awaitable[Message]]


class AuthenticationError(ControllerError):
    """The broker refused us, or could not prove that it knows our credential. Close the connection."""


class Login(NamedTuple):
    """How we log in. ``password``: from a file; each connection takes the current one."""

    mechanism: Mechanism
    name: str
    password: FromFiles[str]


@dataclass(frozen=True)
class ClientSecurity:
    """How connections to brokers are secured. ``contexts`` None: without TLS. ``login`` None: without SASL."""

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    contexts: FromFiles[ssl.SSLContext] | None = None
    login: Login | None = None
    #: The name that the broker's certificate must be of; None: of the host that is dialled.
    server_hostname: str | None = None

    @property
    def ssl(self) -> ssl.SSLContext | None:
        """For the next connection; None: without TLS."""
        return self.contexts.current() if self.contexts is not None else None

    async def authenticate(self, send: Send) -> float | None:
        """Log in over a new connection, before any other request. Nothing to do without SASL.

        Returns after how many seconds the broker will hang up (``connections.max.reauth.ms``): dial again before; None:
        never. Raises AuthenticationError, and whatever ``send`` raises.
        """
        if self.login is None:
            return None
        mechanism, name, password = self.login.mechanism, self.login.name, self.login.password.current()
        await self._handshake(send, mechanism)
        scram_mechanism = mechanism.scram
        if scram_mechanism is None:
            last = await self._token(send, write_plain(name, password))
        else:
            exchange = ScramClient(scram_mechanism, name, password)
            try:
                challenge = await self._token(send, exchange.first)
                # Off the event loop: it computes for milliseconds.
                final = await asyncio.to_thread(exchange.final, challenge.auth_bytes)
                last = await self._token(send, final)
                exchange.verify(last.auth_bytes)
            except ScramError as error:
                raise AuthenticationError(f"{mechanism.value}: {error}") from None
        return last.session_lifetime_ms / 1000 if last.session_lifetime_ms > 0 else None

    async def _handshake(self, send: Send, mechanism: Mechanism) -> None:
        request = SaslHandshakeRequest(mechanism.value)
        response = await send(ApiKey.SASL_HANDSHAKE, HANDSHAKE_VERSION, request)
        if not isinstance(response, SaslHandshakeResponse):
            raise AuthenticationError("the answer to SaslHandshake is of another kind")
        if response.error_code == SaslErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(sorted(response.mechanisms)[:20]) or "none"
            raise AuthenticationError(f"the broker does not offer {mechanism.value}; it offers {offered}")
        if response.error_code:
            raise AuthenticationError(f"SaslHandshake got error {response.error_code}")

    async def _token(self, send: Send, token: bytes) -> SaslAuthenticateResponse:
        request = SaslAuthenticateRequest(token)
        response = await send(ApiKey.SASL_AUTHENTICATE, AUTHENTICATE_VERSION, request)
        if not isinstance(response, SaslAuthenticateResponse):
            raise AuthenticationError("the answer to SaslAuthenticate is of another kind")
        if response.error_code:
            said = (response.error_message or "")[:300]
            raise AuthenticationError(f"the broker refused us with error {response.error_code}: {said!r}")
        return response
