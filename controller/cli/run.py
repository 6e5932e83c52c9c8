"""``partition-controller run``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from controller.cli.common.settings import FLAGS, WithSettings, load_settings, with_settings
from controller.errors import ConfigError, ControllerError
from controller.exit_codes import EXIT_FAILED, EXIT_USAGE
from controller.runtime import config, process


@click.command(cls=WithSettings)
@with_settings(FLAGS)
def run(config_file: Path | None, **flags: object | None) -> None:
    """Run the controller until SIGTERM or SIGINT.

    Only the settings below have flags; check-config prints all settings.
    """
    settings = load_settings(config_file, flags)
    try:
        sys.exit(process.run(settings, lambda: config.load(flags, config_file)))
    except ConfigError as error:
        click.echo(f"partition-controller: {error}", err=True)
        sys.exit(EXIT_USAGE)
    except ControllerError as error:
        click.echo(f"partition-controller: {error}", err=True)
        sys.exit(EXIT_FAILED)
