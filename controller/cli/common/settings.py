"""Settings of the controller on a command line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import click

from controller.errors import ConfigError
from controller.exit_codes import EXIT_USAGE
from controller.runtime import config
from controller.runtime.kafka.security.setup import access, acl_authorizer

#: Settings that have a flag; the others are set by file or environment variable only.
FLAGS = (
    "controller_id",
    "zookeeper",
    "grpc_listen",
    "http_listen",
    "state_log_dir",
    "session_timeout_ms",
)


def with_settings(flags: Collection[str]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add --config and these flags to a command."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for setting in reversed(config.SETTINGS):
            if setting.name in flags:
                command = click.option(setting.flag, setting.name, metavar="VALUE", help=setting.help)(
                    command
                )
        return click.option(
            "--config", "config_file", type=click.Path(path_type=Path), help="TOML file of settings"
        )(command)

    return add


def load_settings(config_file: Path | None, flags: dict[str, object | None]) -> config.Settings:
    """The effective settings; an invalid one ends the program with exit code 2."""
    try:
        return config.load(flags, config_file)
    except ConfigError as error:
        click.echo(f"partition-controller: {error}", err=True)
        sys.exit(EXIT_USAGE)


def check_access(settings: config.Settings) -> None:
    """Whether a daemon with these settings would start where they say; if not, the program ends with exit code 2."""
    try:
        access(settings, acl_authorizer(settings))
    except ConfigError as error:
        click.echo(f"partition-controller: {error}", err=True)
        sys.exit(EXIT_USAGE)
