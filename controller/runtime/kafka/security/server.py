"""The side that is asked: who is the caller? (``SaslServerAuthenticator``, ``DefaultKafkaPrincipalBuilder``.)

One ``Authentication`` per connection takes SaslHandshake and SaslAuthenticate one after another, and ends with a
``Principal`` or a refusal. It owns no socket and no clock; whoever has the connection obeys ``Answer.close_after_s``
and these limits until ``principal`` is there.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import structlog

from controller.runtime.kafka.security.sasl import (
    Mechanism,
    PlainError,
    PlainLogin,
    SaslErrorCode,
    SecurityProtocol,
    read_plain,
)
from controller.runtime.kafka.security.scram import (
    Decoys,
    ScramCredential,
    ScramError,
    ScramMechanism,
    ScramServer,
    password_matches,
    read_client_first,
)
from controller.runtime.kafka.security.users import PLAIN_MECHANISM, FindCredential
from proto.gen.kafka.sasl_authenticate_request import SaslAuthenticateRequest
from proto.gen.kafka.sasl_authenticate_response import SaslAuthenticateResponse
from proto.gen.kafka.sasl_handshake_request import SaslHandshakeRequest
from proto.gen.kafka.sasl_handshake_response import SaslHandshakeResponse
from proto.security.authorization import ANONYMOUS, Principal, peer_of
from proto.security.files import FromFiles
from proto.security.principals import PrincipalRules, distinguished_name

log = structlog.get_logger(__name__)

#: From the accepted connection (TLS included) to the principal, seconds.
AUTHENTICATION_LIMIT_S = 30.0
#: Size of a request before there is a principal, bytes; Kafka's ``sasl.server.max.receive.size`` has 524,288.
UNAUTHENTICATED_BYTES_MAX = 65_536
#: How long the answer to a failed authentication waits (``connection.failed.authentication.delay.ms``), seconds.
FAILURE_DELAY_S = 0.1
#: Requests on one connection before there is a principal; an exchange needs four.
_REQUESTS_MAX = 8
#: Passwords of PLAIN that are checked at the same time: each takes a core for some tens of milliseconds.
_CHECKS_AT_ONCE = 2

_REFUSED = "Authentication failed during authentication due to invalid credentials with SASL mechanism {}"


class RefusedError(Exception):
    """The connection gets no principal and must be closed. The message is for our log."""


class Answer(NamedTuple):
    """The answer to SaslHandshake or SaslAuthenticate.

    ``mechanisms``: of a handshake. ``close_after_s``: wait so long, send the answer, close; None: go on.
    """

    error: SaslErrorCode = SaslErrorCode.NONE
    message: str | None = None
    token: bytes = b""
    mechanisms: tuple[str, ...] = ()
    close_after_s: float | None = None


class _State(Enum):
    HANDSHAKE = "SaslHandshake is expected"
    TOKEN = "the mechanism's first message is expected"  # noqa: S105
    PROOF = "the mechanism's second message is expected"
    DONE = "there is a principal"
    FAILED = "refused"


@dataclass(frozen=True)
class ServerSecurity:
    """How one listener authenticates. ``scram``: finds credentials; ``plain``: those of a file; each mechanism that
    has none is not offered."""

    protocol: SecurityProtocol
    tls: FromFiles[ssl.SSLContext] | None = None
    scram: FindCredential | None = None
    scram_mechanisms: frozenset[ScramMechanism] = frozenset(ScramMechanism)
    plain: FromFiles[Mapping[str, ScramCredential]] | None = None
    principal_rules: PrincipalRules = field(default_factory=PrincipalRules)
    decoys: Decoys = field(default_factory=Decoys)
    checks: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_CHECKS_AT_ONCE))

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Names of what is offered, as SaslHandshake lists them."""
        offered = [Mechanism.PLAIN.value] if self.plain else []
        if self.scram:
            offered += [mechanism.value for mechanism in ScramMechanism if mechanism in self.scram_mechanisms]
        return tuple(offered)

    def accept(self, host: str, port: int, certificate: bytes | None = None) -> Authentication:
        """A new connection, after the TLS handshake. ``certificate``: the peer's that TLS verified (DER), or None.

        Raises RefusedError if no rule makes a principal of the certificate's subject.
        """
        return Authentication(self, peer_of(host, port), certificate)


class Authentication:
    """One connection. ``principal`` is None until the caller is known."""

    def __init__(self, security: ServerSecurity, peer: str, certificate: bytes | None) -> None:
        self._security, self._peer = security, peer
        self._mechanism = Mechanism.PLAIN
        self._scram: ScramServer | None = None
        self._name = ""
        self._requests = 0
        self._state = _State.HANDSHAKE
        self.principal: Principal | None = None
        if not security.protocol.sasl:
            self._succeed(self._of_certificate(certificate))

    def _of_certificate(self, certificate: bytes | None) -> str:
        if self._security.protocol is not SecurityProtocol.SSL or certificate is None:
            return ANONYMOUS
        try:
            subject = distinguished_name(certificate)
        except ValueError as error:
            raise RefusedError(str(error)) from None
        name = self._security.principal_rules.name(subject)
        if name is None:
            raise RefusedError(f"no rule of kafka_ssl_principal_mapping_rules applies to {subject[:200]!r}")
        return name

    def ask_versions(self) -> bool:
        """Whether ApiVersions is in order now: always with a principal, else some times until the handshake."""
        return self._state is _State.DONE or (self._state is _State.HANDSHAKE and not self._too_many())

    async def answer(
        self, request: SaslHandshakeRequest | SaslAuthenticateRequest, version: int
    ) -> tuple[SaslHandshakeResponse | SaslAuthenticateResponse, float | None]:
        """The response, and after how many seconds to send it and close; None: at once, and go on."""
        if isinstance(request, SaslHandshakeRequest):
            answer = self.handshake(version, request.mechanism)
            return SaslHandshakeResponse(answer.error, list(answer.mechanisms)), answer.close_after_s
        answer = await self.authenticate(request.auth_bytes)
        return SaslAuthenticateResponse(answer.error, answer.message, answer.token), answer.close_after_s

    def handshake(self, version: int, mechanism: str) -> Answer:
        """SaslHandshake. ``version`` 0, which clients before 1.0 speak, is refused: its tokens come without headers."""
        if self._state is not _State.HANDSHAKE or self._too_many():
            return self._out_of_order(mechanisms=self._security.mechanisms)
        if version < 1:
            return self._fail(SaslErrorCode.UNSUPPORTED_VERSION, "SaslHandshake 0")
        if mechanism not in self._security.mechanisms:
            return self._fail(
                SaslErrorCode.UNSUPPORTED_SASL_MECHANISM,
                f"mechanism {mechanism[:50]!r} is not offered",
                mechanisms=self._security.mechanisms,
            )
        self._mechanism = Mechanism(mechanism)
        self._state = _State.TOKEN
        return Answer(mechanisms=self._security.mechanisms)

    async def authenticate(self, token: bytes) -> Answer:
        """SaslAuthenticate. Whatever ``scram`` raises (ZooKeeper cannot be asked) passes through."""
        if self._state not in (_State.TOKEN, _State.PROOF) or self._too_many():
            return self._out_of_order(
                message="SaslAuthenticate request received after successful authentication"
                if self._state is _State.DONE
                else "SaslAuthenticate request received before SaslHandshake"
            )
        try:
            if self._mechanism is Mechanism.PLAIN:
                return await self._plain(token)
            return await self._of_scram(token)
        except PlainError as error:
            return self._fail(SaslErrorCode.SASL_AUTHENTICATION_FAILED, str(error), message=str(error))
        except ScramError as error:
            return self._fail(
                SaslErrorCode.SASL_AUTHENTICATION_FAILED,
                str(error),
                message=_REFUSED.format(self._mechanism.value),
            )

    async def _of_scram(self, token: bytes) -> Answer:
        if self._scram is not None:
            answer = self._scram.finish(token)
            self._succeed(self._name)
            return Answer(token=answer)
        mechanism = self._mechanism.scram
        assert mechanism is not None
        assert self._security.scram is not None
        first = read_client_first(token)
        self._name = first.name
        credential = await self._security.scram(mechanism, first.name)
        self._scram = ScramServer(mechanism, first, credential, self._security.decoys)
        self._state = _State.PROOF
        return Answer(token=self._scram.challenge)

    async def _plain(self, token: bytes) -> Answer:
        login = read_plain(token)
        self._name = login.name
        if not await self._password_right(login):
            # As PlainSaslServer says it.
            text = "Authentication failed: Invalid username or password"
            return self._fail(SaslErrorCode.SASL_AUTHENTICATION_FAILED, text, message=text)
        if login.authorization_id not in ("", login.name):
            text = (
                "Authentication failed: Client requested an authorization id that is different from username"
            )
            return self._fail(SaslErrorCode.SASL_AUTHENTICATION_FAILED, text, message=text)
        self._succeed(login.name)
        return Answer()

    async def _password_right(self, login: PlainLogin) -> bool:
        """Takes as long for an unknown name as for a known one, if all credentials have the same iterations."""
        assert self._security.plain is not None
        users = self._security.plain.current()
        known = users.get(login.name)
        credential = known or next(iter(users.values()))
        async with self._security.checks:
            right = await asyncio.to_thread(password_matches, PLAIN_MECHANISM, credential, login.password)
        return right and known is not None

    def _too_many(self) -> bool:
        self._requests += self.principal is None
        return self._requests > _REQUESTS_MAX

    def _succeed(self, name: str) -> None:
        self._state = _State.DONE
        self.principal = Principal(name, self._peer)

    def _out_of_order(self, *, message: str | None = None, mechanisms: tuple[str, ...] = ()) -> Answer:
        if self._state is _State.DONE:
            # Kafka goes on after it.
            return Answer(SaslErrorCode.ILLEGAL_SASL_STATE, message, mechanisms=mechanisms)
        return self._fail(
            SaslErrorCode.ILLEGAL_SASL_STATE, self._state.value, message=message, mechanisms=mechanisms
        )

    def _fail(
        self, error: SaslErrorCode, why: str, *, message: str | None = None, mechanisms: tuple[str, ...] = ()
    ) -> Answer:
        self._state, self._scram = _State.FAILED, None
        log.warning(
            "authentication_failed", peer=self._peer, name=self._name[:100], error=error.name, why=why
        )
        return Answer(error, message, mechanisms=mechanisms, close_after_s=FAILURE_DELAY_S)
