"""``partition-controller check-config``."""

from __future__ import annotations

from pathlib import Path

import click

from controller.cli.common.output import print_table
from controller.cli.common.settings import FLAGS, WithSettings, check_access, load_settings, with_settings
from controller.runtime import config


@click.command("check-config", cls=WithSettings)
@with_settings(FLAGS)
def check_config(config_file: Path | None, **flags: object | None) -> None:
    """Validate the settings and print each with its effective value and its source."""
    settings = load_settings(config_file, flags)
    print_table(("setting", "value", "from"), config.describe(settings))
    check_access(settings)
