"""TLS of the command line tools to controllers and brokers, and the token that goes with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from controller.cli.common.options import FILE
from proto.security.files import FileSettingError, password_in
from proto.security.grpc_channels import GrpcTls, PemTls, TokenTls
from proto.security.tls import TlsFiles

_OPTIONS = {
    "ca": "PEM file: authorities of the controllers' and brokers' certificates; without it, no TLS",
    "certificate": "PEM file: your certificate and its chain",
    "key": "PEM file: its key, without password; if not in the same file",
}


def with_tls(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --ssl-ca, --ssl-certificate, --ssl-key and --token-file to a command, which gets them as ``tls``."""

    @wraps(command)
    def run(
        *args: Any,
        ssl_ca: Path | None,
        ssl_certificate: Path | None,
        ssl_key: Path | None,
        token_file: Path | None,
        **kwargs: Any,
    ) -> Any:
        tls = _tls(TlsFiles(ssl_certificate, ssl_key, ssl_ca, "--ssl-"), token_file)
        return command(*args, tls=tls, **kwargs)

    decorated: Callable[..., Any] = click.option(
        "--token-file",
        envvar="PCTL_TOKEN_FILE",
        type=FILE,
        help="file whose first line is your token; environment variable: PCTL_TOKEN_FILE",
    )(run)
    for name, said in reversed(_OPTIONS.items()):
        variable = f"PCTL_SSL_{name.upper()}"
        decorated = click.option(
            f"--ssl-{name}", envvar=variable, type=FILE, help=f"{said}; environment variable: {variable}"
        )(decorated)
    return decorated


def _tls(files: TlsFiles, token_file: Path | None) -> GrpcTls | None:
    if not files.present:
        if token_file is not None:
            raise click.UsageError("--token-file: tokens are sent over TLS only: give --ssl-ca")
        return None
    try:
        tls = PemTls(files)
        return tls if token_file is None else TokenTls(tls, password_in("--token-file", token_file).current())
    except FileSettingError as error:
        raise click.UsageError(str(error)) from None
