"""``--yes`` and ``--dry-run``: what commands that change something ask and say before they do."""

from __future__ import annotations

import sys
from typing import Any

import click

from controller.cli.common.options import Options
from controller.cli.common.output import fail, note, print_data
from controller.exit_codes import EXIT_REFUSED, EXIT_USAGE

yes_option = click.option("--yes", is_flag=True, help="do not ask")
#: For commands that ask nothing: scripts may pass it to any command.
yes_allowed = click.option("--yes", is_flag=True, expose_value=False, help="nothing is asked here")
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="print the exact writes and the pushes to brokers, change nothing"
)


def confirm(question: str, *, yes: bool) -> None:
    """Go on only if ``--yes`` was given or a person at a terminal agrees; ends the program otherwise."""
    if yes:
        return
    if not sys.stdin.isatty():
        fail(f"{question} There is no terminal to confirm at: use --yes; nothing was changed", EXIT_USAGE)
    if not click.confirm(question, err=True):
        fail("not confirmed: nothing was changed", EXIT_REFUSED)


def nothing_to_do(options: Options, why: str, *, dry_run: bool = False) -> None:
    """Say so; programs read of no rows, or of no writes."""
    note(f"nothing to do: {why}")
    if options.output != "table":
        nothing: dict[str, Any] = {"writes": [], "pushes": {}, "notes": []}
        print_data(nothing if dry_run else [], options.output)
