"""TLS in both directions, from PEM files. Connections made after a file changed use the new one.

TLS 1.2 is the least; for a client the certificate of the other side must be of the host that was dialled (Kafka:
``ssl.endpoint.identification.algorithm=https``).
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from proto.security.files import FileSettingError, FromFiles, read_file

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

    ``ca`` None: those of the system. ``prefix``: of the settings that name them, ``ssl_`` or ``kafka_ssl_``.
    """

    certificate: Path | None
    key: Path | None
    ca: Path | None
    prefix: str = "ssl_"

    @property
    def present(self) -> list[Path]:
        return [file for file in (self.certificate, self.key, self.ca) if file is not None]

    def unusable(self, which: str, path: Path | None, allowed: str) -> FileSettingError:
        """``which``: certificate, key or ca."""
        return FileSettingError(self.prefix + which, str(path or ""), allowed)


def server_contexts(files: TlsFiles, client_auth: ClientAuth) -> FromFiles[ssl.SSLContext]:
    """Contexts for the side that is dialled. Raises FileSettingError.

    Give each connection the ``current()`` one (``StreamWriter.start_tls``), not one context to the whole listener.
    """
    if files.certificate is None:
        raise files.unusable("certificate", None, "a PEM file: this listener's certificate")
    if client_auth is not ClientAuth.NONE and files.ca is None:
        # The system's authorities would let everybody in who has any public certificate.
        raise files.unusable("ca", None, "a PEM file: the authorities of the clients' certificates")
    return FromFiles(files.present, lambda: _server_context(files, client_auth))


def listening(contexts: FromFiles[ssl.SSLContext]) -> ssl.SSLContext:
    """A context for a whole listener, for servers that take no other: each connection goes on with the current one."""
    first = contexts.current()

    def switch(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = contexts.current()

    first.sni_callback = switch
    return first


def free_failed_handshake(error: OSError) -> None:
    """Free the memory, some 256 KiB, of a handshake of asyncio that failed so: its frames and the error hold each
    other until a full garbage collection, which controllers seldom make."""
    error.__traceback__ = None


def client_contexts(files: TlsFiles) -> FromFiles[ssl.SSLContext]:
    """Contexts for the side that dials. Raises FileSettingError."""
    return FromFiles(files.present, lambda: _client_context(files))


def check(files: TlsFiles) -> None:
    """Raises FileSettingError if the files cannot be used as they are now."""
    _context(ssl.PROTOCOL_TLS_CLIENT, files)


def _server_context(files: TlsFiles, client_auth: ClientAuth) -> ssl.SSLContext:
    context = _context(ssl.PROTOCOL_TLS_SERVER, files)
    context.verify_mode = _VERIFY[client_auth]
    # A session resumed by ticket would skip a check of the client's certificate against files that changed since.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET
    return context


def _client_context(files: TlsFiles) -> ssl.SSLContext:
    context = _context(ssl.PROTOCOL_TLS_CLIENT, files)
    if files.ca is None:
        context.load_default_certs()
    return context


def _context(protocol: int, files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    if files.certificate is None and files.key is not None:
        raise files.unusable("certificate", None, f"a PEM file, because {files.prefix}key is given")
    if files.certificate is not None:
        keyfile = files.key or files.certificate
        read_file(files.prefix + "certificate", files.certificate, "a PEM file", secret=False)
        read_file(files.prefix + "key", keyfile, "a PEM file", secret=True)
        try:
            # Without a password callback, OpenSSL would ask on the terminal.
            context.load_cert_chain(files.certificate, keyfile, password=_no_password)
        except _EncryptedKeyError:
            raise files.unusable("key", keyfile, "a PEM file whose key has no password") from None
        except ssl.SSLError as error:
            raise _unusable(files, files.certificate, keyfile, error) from None
        _require_valid_now(files, files.certificate, keyfile)
    if files.ca is not None:
        read_file(files.prefix + "ca", files.ca, "a PEM file", secret=False)
        try:
            context.load_verify_locations(files.ca)
        except ssl.SSLError:
            raise files.unusable("ca", files.ca, "a PEM file with certificates of authorities") from None
    return context


class _EncryptedKeyError(Exception):
    pass


def _no_password() -> str:
    raise _EncryptedKeyError


def _unusable(files: TlsFiles, certfile: Path, keyfile: Path, error: ssl.SSLError) -> FileSettingError:
    match error:
        case ssl.SSLError(reason="KEY_VALUES_MISMATCH"):
            return files.unusable("key", keyfile, f"the key of the certificate in {certfile}")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(certfile)
    except ssl.SSLError:
        return files.unusable("certificate", certfile, "a PEM file with a certificate and its chain")
    return files.unusable("key", keyfile, "a PEM file with a private key")


def _require_valid_now(files: TlsFiles, certfile: Path, keyfile: Path) -> None:
    """Raises FileSettingError if the certificate is expired or not yet valid. OpenSSL tells only a peer: be one."""
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
                raise files.unusable(
                    "certificate", certfile, f"a certificate that is valid now: it is {state}"
                ) from None
            return
        except ssl.SSLError:
            return
