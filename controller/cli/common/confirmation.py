"""``--yes`` and ``--dry-run`` of commands that change something."""

from __future__ import annotations

from typing import Any

import click

from controller.cli.common.options import Options
from controller.cli.common.output import fail, note, print_data
from controller.exit_codes import EXIT_REFUSED, EXIT_USAGE
from proto.standard_streams import is_interactive

yes_option = click.option("--yes", is_flag=True, help="do not ask for confirmation")
#: For commands without confirmation, so that scripts can pass --yes to any command.
yes_allowed = click.option(
    "--yes", is_flag=True, expose_value=False, help="no effect: this command does not ask"
)
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="print the exact writes and the pushes to brokers; change nothing"
)


def confirm(question: str, *, yes: bool) -> None:
    """Return if ``--yes`` was given or the user at a terminal agrees; end the program otherwise."""
    if yes:
        return
    if not is_interactive():
        fail(f"{question} There is no terminal to confirm at: use --yes; nothing was changed", EXIT_USAGE)
    if not click.confirm(question, err=True):
        fail("not confirmed: nothing was changed", EXIT_REFUSED)


def nothing_to_do(options: Options, why: str, *, dry_run: bool = False) -> None:
    """Print a note; as JSON and YAML, an empty list, or a dry run without writes."""
    note(f"nothing to do: {why}")
    if options.output != "table":
        nothing: dict[str, Any] = {"writes": [], "pushes": {}, "notes": []}
        print_data(nothing if dry_run else [], options.output)
