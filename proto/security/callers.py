"""Who asks: the name that a client's certificate or a bearer token proves.

A token that comes with a request counts before the certificate of its connection, which may be a whole machine's.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Protocol

from proto.security.authorization import ANONYMOUS, Principal
from proto.security.files import FromFiles
from proto.security.principals import PrincipalRules, distinguished_name
from proto.security.tokens import Tokens

#: The metadata key and HTTP header with the token, and the word before it.
AUTHORIZATION, BEARER = "authorization", "Bearer"


class UnauthenticatedError(Exception):
    """What the caller presents proves no identity, so that the request is refused whatever it asks for."""


class RpcContext(Protocol):
    """What is read of ``grpc.aio.ServicerContext``."""

    def peer(self) -> str: ...

    def auth_context(self) -> Mapping[str, Iterable[bytes]]: ...

    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]] | None: ...


class Callers:
    """Names the callers. ``tokens`` None: none are accepted."""

    def __init__(self, rules: PrincipalRules, tokens: FromFiles[Tokens] | None = None) -> None:
        self._rules, self._tokens = rules, tokens

    def of_rpc(self, context: RpcContext) -> Principal:
        """The caller of an RPC. Raises UnauthenticatedError."""
        proved = context.auth_context()
        pem = next(iter(proved.get("x509_pem_cert", ())), None)
        header = next(
            (value for key, value in context.invocation_metadata() or () if key == AUTHORIZATION), None
        )
        encrypted = next(iter(proved.get("transport_security_type", ())), b"") == b"ssl"
        subject = None if pem is None else _subject_of_pem(pem)
        return self.principal(context.peer(), subject, header, encrypted=encrypted)

    def of_connection(
        self, peer: str, certificate: bytes | None, header: str | None, *, encrypted: bool
    ) -> Principal:
        """The caller of a request over HTTP. ``certificate``: in DER; ``header``: Authorization. Raises
        UnauthenticatedError."""
        subject = None if certificate is None else _subject(certificate)
        return self.principal(peer, subject, header, encrypted=encrypted)

    def principal(
        self, peer: str, subject: str | None, header: str | bytes | None, *, encrypted: bool
    ) -> Principal:
        """``subject``: of the certificate that TLS checked. Raises UnauthenticatedError."""
        if header is not None:
            return Principal(self._holder(header, encrypted or is_loopback_peer(peer)), peer)
        if subject is None:
            return Principal(ANONYMOUS, peer)
        name = self._rules.name(subject)
        if name is None:
            raise UnauthenticatedError(f"no rule of ssl_principal_mapping_rules names {subject!r}")
        return Principal(name, peer)

    def _holder(self, header: str | bytes, private: bool) -> str:
        text = header.decode("latin-1") if isinstance(header, bytes) else header
        word, _, token = text.strip().partition(" ")
        if word.lower() != BEARER.lower():
            raise UnauthenticatedError("authorization must be Bearer TOKEN")
        if not private:
            raise UnauthenticatedError("tokens are accepted over TLS only")
        if self._tokens is None:
            raise UnauthenticatedError("no tokens are accepted here: bearer_tokens_file is not set")
        holder = self._tokens.current().holder(token.strip())
        if holder is None:
            raise UnauthenticatedError("the token is nobody's")
        return holder


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host, as far as its name or address tells."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_loopback_peer(peer: str) -> bool:
    """Whether gRPC's text of an address is this machine's own."""
    return peer.startswith("unix:") or is_loopback(Principal("", peer).host)


@lru_cache(maxsize=1000)
def _subject_of_pem(pem: bytes) -> str:
    try:
        return _subject(ssl.PEM_cert_to_DER_cert(pem.decode("ascii")))
    except ValueError as error:
        raise UnauthenticatedError(f"the certificate cannot be read: {error}") from None


def _subject(certificate: bytes) -> str:
    try:
        return distinguished_name(certificate)
    except ValueError as error:
        raise UnauthenticatedError(str(error)) from None
