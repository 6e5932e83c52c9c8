"""TLS for connections to brokers and from them, from PEM files. Connections made after a file changed use the new one.

TLS 1.2 is the least; as a client the broker's certificate must be of the host that was dialled (Kafka:
``ssl.endpoint.identification.algorithm=https``).
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from controller.errors import ConfigError
from controller.runtime.kafka.security.files import FromFiles, read_file

#: OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED.
_NOT_YET_VALID, _EXPIRED = 9, 10


class ClientAuth(Enum):
    """Whether clients must have a certificate (``ssl.client.auth``)."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


_VERIFY = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


@dataclass(frozen=True)
class TlsFiles:
    """PEM files: the certificate with its chain, its key without password, the authorities whose certificates we trust.

    ``cafile`` None: those of the system.
    """

    certfile: Path | None
    keyfile: Path | None
    cafile: Path | None

    @property
    def present(self) -> list[Path]:
        return [file for file in (self.certfile, self.keyfile, self.cafile) if file is not None]


def server_contexts(files: TlsFiles, client_auth: ClientAuth) -> FromFiles[ssl.SSLContext]:
    """Contexts for the side that is dialled. Raises ConfigError.

    Give each connection the ``current()`` one (``StreamWriter.start_tls``), not one context to the whole listener.
    """
    if files.certfile is None:
        raise ConfigError("kafka_ssl_certfile", "", "a PEM file: this listener's certificate")
    if client_auth is not ClientAuth.NONE and files.cafile is None:
        # The system's authorities would let everybody in who has any public certificate.
        raise ConfigError("kafka_ssl_cafile", "", "a PEM file: the authorities of the clients' certificates")
    return FromFiles(files.present, lambda: _server_context(files, client_auth))


def client_contexts(files: TlsFiles) -> FromFiles[ssl.SSLContext]:
    """Contexts for connections to brokers. Raises ConfigError."""
    return FromFiles(files.present, lambda: _client_context(files))


def _server_context(files: TlsFiles, client_auth: ClientAuth) -> ssl.SSLContext:
    context = _context(ssl.PROTOCOL_TLS_SERVER, files)
    context.verify_mode = _VERIFY[client_auth]
    # A session resumed by ticket would skip a check of the client's certificate against files that changed since.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET
    return context


def _client_context(files: TlsFiles) -> ssl.SSLContext:
    context = _context(ssl.PROTOCOL_TLS_CLIENT, files)
    if files.cafile is None:
        context.load_default_certs()
    return context


def _context(protocol: int, files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    if files.certfile is not None:
        keyfile = files.keyfile or files.certfile
        read_file("kafka_ssl_certfile", files.certfile, "a PEM file", secret=False)
        read_file("kafka_ssl_keyfile", keyfile, "a PEM file", secret=True)
        try:
            # Without a password callback, OpenSSL would ask on the terminal.
            context.load_cert_chain(files.certfile, keyfile, password=_no_password)
        except _EncryptedKeyError:
            raise ConfigError(
                "kafka_ssl_keyfile", str(keyfile), "a PEM file whose key has no password"
            ) from None
        except ssl.SSLError as error:
            raise _unusable(files.certfile, keyfile, error) from None
        _require_valid_now(files.certfile, keyfile)
    if files.cafile is not None:
        read_file("kafka_ssl_cafile", files.cafile, "a PEM file", secret=False)
        try:
            context.load_verify_locations(files.cafile)
        except ssl.SSLError:
            raise ConfigError(
                "kafka_ssl_cafile", str(files.cafile), "a PEM file with certificates of authorities"
            ) from None
    return context


class _EncryptedKeyError(Exception):
    pass


def _no_password() -> str:
    raise _EncryptedKeyError


def _unusable(certfile: Path, keyfile: Path, error: ssl.SSLError) -> ConfigError:
    match error:
        case ssl.SSLError(reason="KEY_VALUES_MISMATCH"):
            return ConfigError("kafka_ssl_keyfile", str(keyfile), f"the key of the certificate in {certfile}")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(certfile)
    except ssl.SSLError:
        return ConfigError("kafka_ssl_certfile", str(certfile), "a PEM file with a certificate and its chain")
    return ConfigError("kafka_ssl_keyfile", str(keyfile), "a PEM file with a private key")


def _require_valid_now(certfile: Path, keyfile: Path) -> None:
    """Raises ConfigError if the certificate is expired or not yet valid. OpenSSL tells that only to a peer: be one."""
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_cert_chain(certfile, keyfile, password=_no_password)
    peers = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    peers.check_hostname = False
    peers.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    peers.load_verify_locations(certfile)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = peers.wrap_bio(to_client, to_server)
    server = ours.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            if error.verify_code in (_EXPIRED, _NOT_YET_VALID):
                state = "expired" if error.verify_code == _EXPIRED else "not yet valid"
                raise ConfigError(
                    "kafka_ssl_certfile", str(certfile), f"a certificate that is valid now: it is {state}"
                ) from None
            return
        except ssl.SSLError:
            return
