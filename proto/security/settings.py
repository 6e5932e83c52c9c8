"""Settings of both daemons that say who they are to others, and whom they believe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from proto.security.tls import ClientAuth, TlsFiles


def given(path: Path) -> Path | None:
    """A path setting, None if it is empty."""
    return None if path == Path() else path


@dataclass(frozen=True, kw_only=True)
class TlsSettings:
    """TLS of gRPC and HTTP, in both directions. It is on if ``ssl_certificate`` is given."""

    # fmt: off
    ssl_certificate: Annotated[Path, Meta(description="PEM file: this process's certificate and its chain, for both"
        " directions; empty: no TLS")] = Path()
    ssl_key: Annotated[Path, Meta(description="PEM file: its key, without password; if not in the same file")] = Path()
    ssl_ca: Annotated[Path, Meta(description="PEM file: authorities of the other processes' and the clients'"
        " certificates; must be given with ssl_certificate")] = Path()
    ssl_client_auth: Annotated[Literal["required", "none"], Meta(title="one of required, none (gRPC cannot ask for a"
        " certificate without requiring one; http_ssl_client_auth can)", description="whether who connects must have a"
        " certificate (ssl.client.auth)")] = "required"
    http_ssl: Annotated[bool, Meta(description="with ssl_certificate, serve HTTP by TLS too")] = True
    http_ssl_client_auth: Annotated[Literal["", "required", "requested", "none"],
        Meta(title="one of required, requested, none, or nothing", description="the same of HTTP; requested: who has a"
        " certificate shows it; empty: as ssl_client_auth")] = ""
    # fmt: on

    @property
    def tls_files(self) -> TlsFiles | None:
        """None: no TLS."""
        if Path() == self.ssl_certificate == self.ssl_key == self.ssl_ca:
            return None
        certificate, key, ca = map(given, (self.ssl_certificate, self.ssl_key, self.ssl_ca))
        return TlsFiles(certificate, key, ca)

    @property
    def client_auth(self) -> ClientAuth:
        """Whether gRPC demands certificates of clients; never REQUESTED, which gRPC cannot do."""
        return ClientAuth(self.ssl_client_auth)

    @property
    def http_client_auth(self) -> ClientAuth:
        return ClientAuth(self.http_ssl_client_auth or self.ssl_client_auth)

    @property
    def https(self) -> bool:
        """Whether HTTP is served by TLS."""
        return self.tls_files is not None and self.http_ssl
