"""Settings of the controller on a command line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import click

from controller.cli.common.options import FILE
from controller.errors import ConfigError
from controller.exit_codes import EXIT_USAGE
from controller.runtime import config
from controller.runtime.kafka.security.setup import (
    access,
    acl_authorizer,
    client_security,
    server_security,
    zookeeper_access,
)
from proto.security.grpc_channels import daemon_tls
from proto.security.tls import server_contexts

#: Settings that have a flag; the others are set by file or environment variable only.
FLAGS = (
    "controller_id",
    "zookeeper",
    "grpc_listen",
    "http_listen",
    "state_log_dir",
    "session_timeout_ms",
)


class WithSettings(click.Command):
    """Says of a setting without flag how it is given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            for setting in config.SETTINGS:
                if setting.flag == error.option_name:
                    how = f"give it as {setting.env}, or as {setting.name} in the file that --config names"
                    raise click.UsageError(f"{setting.flag}: this setting has no flag: {how}", ctx) from None
            raise


def with_settings(flags: Collection[str]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add --config and these flags to a command."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for setting in reversed(config.SETTINGS):
            if setting.name in flags:
                command = click.option(setting.flag, setting.name, metavar="VALUE", help=setting.help)(
                    command
                )
        return click.option("--config", "config_file", type=FILE, help="TOML file of settings")(command)

    return add


def load_settings(config_file: Path | None, flags: dict[str, object | None]) -> config.Settings:
    """The effective settings; an invalid one ends the program with exit code 2."""
    try:
        return config.load(flags, config_file)
    except ConfigError as error:
        click.echo(f"partition-controller: {error}", err=True)
        sys.exit(EXIT_USAGE)


def check_access(settings: config.Settings) -> None:
    """Whether a daemon with these settings would start, by its certificates, logins and rules, where they say; if not,
    the program ends with exit code 2."""
    try:
        zookeeper_access(settings)
        client_security(settings)
        with config.config_errors(settings.sources):
            daemon_tls(settings)
            if settings.https and settings.tls_files is not None:
                server_contexts(settings.tls_files, settings.http_client_auth)
        access(settings, acl_authorizer(settings))
        if settings.leads_kafka:
            server_security(settings, _unread)
    except ConfigError as error:
        click.echo(f"partition-controller: {error}", err=True)
        sys.exit(EXIT_USAGE)


async def _unread(_: str) -> bytes | None:
    """Nobody logs in while settings are checked."""
    return None
