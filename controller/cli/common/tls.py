"""TLS of the command line tools to controllers and brokers."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from controller.cli.common.options import FILE
from proto.security.files import FileSettingError
from proto.security.grpc_channels import PemTls
from proto.security.tls import TlsFiles

_OPTIONS = {
    "ca": "PEM file: authorities of the controllers' and brokers' certificates; without it, no TLS",
    "certificate": "PEM file: your certificate and its chain",
    "key": "PEM file: its key, without password; if not in the same file",
}


def with_tls(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --ssl-ca, --ssl-certificate and --ssl-key to a command, which gets them as ``tls``."""

    @wraps(command)
    def run(
        *args: Any, ssl_ca: Path | None, ssl_certificate: Path | None, ssl_key: Path | None, **kwargs: Any
    ) -> Any:
        return command(*args, tls=_tls(TlsFiles(ssl_certificate, ssl_key, ssl_ca, "--ssl-")), **kwargs)

    decorated: Callable[..., Any] = run
    for name, said in reversed(_OPTIONS.items()):
        variable = f"PCTL_SSL_{name.upper()}"
        decorated = click.option(
            f"--ssl-{name}", envvar=variable, type=FILE, help=f"{said}; environment variable: {variable}"
        )(decorated)
    return decorated


def _tls(files: TlsFiles) -> PemTls | None:
    if not files.present:
        return None
    try:
        return PemTls(files)
    except FileSettingError as error:
        raise click.UsageError(str(error)) from None
