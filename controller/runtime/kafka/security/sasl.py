"""What SASL on a Kafka listener needs in both directions: protocols, mechanisms, errors, and PLAIN (RFC 4616)."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import NamedTuple

from controller.runtime.kafka.security.scram import ScramMechanism


class SecurityProtocol(Enum):
    """Kafka's name and number (``org.apache.kafka.common.security.auth.SecurityProtocol``)."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def id(self) -> int:
        """The number that stands for it in the endpoints of UpdateMetadata."""
        return list(SecurityProtocol).index(self)

    @property
    def encrypted(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class Mechanism(Enum):
    """SASL mechanisms that we speak."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = ScramMechanism.SHA_256.value
    SCRAM_SHA_512 = ScramMechanism.SHA_512.value

    @property
    def scram(self) -> ScramMechanism | None:
        return None if self is Mechanism.PLAIN else ScramMechanism(self.value)


class SaslErrorCode(IntEnum):
    """Kafka's error codes of SaslHandshake and SaslAuthenticate."""

    NONE = 0
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    SASL_AUTHENTICATION_FAILED = 58


class PlainLogin(NamedTuple):
    """PLAIN's only message."""

    authorization_id: str
    name: str
    password: str

    def __repr__(self) -> str:
        return f"PlainLogin({self.name!r})"


class PlainError(Exception):
    """PLAIN's message is malformed. The message may be shown to the client."""


def write_plain(name: str, password: str) -> bytes:
    return f"\0{name}\0{password}".encode()


def read_plain(message: bytes) -> PlainLogin:
    """``[authorization id] NUL name NUL password``, as ``PlainSaslServer`` reads it. Raises PlainError."""
    try:
        parts = message.decode().split("\0", 3)
    except UnicodeDecodeError:
        raise PlainError("Authentication failed: invalid encoding") from None
    if len(parts) != 3:
        raise PlainError(
            f"Invalid SASL/PLAIN response: expected 3 tokens, got {'more' if len(parts) > 3 else len(parts)}"
        )
    login = PlainLogin(*parts)
    if not login.name:
        raise PlainError("Authentication failed: username not specified")
    if not login.password:
        raise PlainError("Authentication failed: password not specified")
    return login
