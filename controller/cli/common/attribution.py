"""``--reason`` and ``--author``: the attribution stored with a pause, maintenance, a drain or a stop approval, and the
reason recorded with what may lose data."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable
from typing import Any

import click

from controller.core.requests.operator import AUTHOR_MAX, REASON_MAX

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _text_of(limit: int) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    def check(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
        if value is not None and not 0 < len(value.strip()) <= limit:
            raise click.BadParameter(f"must be a text of 1 to {limit} characters")
        return value

    return check


author_option = click.option(
    "--author", callback=_text_of(AUTHOR_MAX), help="who requests it [default: your user name]"
)


def reason_option(*, required: bool) -> Decorator:
    """Required for what starts a restriction, optional for what ends one."""
    return click.option(
        "--reason", required=required, callback=_text_of(REASON_MAX), help="why; other operators will read it"
    )


def author_or_user(author: str | None) -> str:
    """The author as given, else the name of the user."""
    if author is not None:
        return author
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise click.UsageError("your user name is not known here: use --author") from None


def reason_or_asked(reason: str | None, *, yes: bool) -> str:
    """The reason as given, else what the user types at a terminal, else nothing: a controller whose authorizer is set
    then refuses what may lose data."""
    if reason is None and not yes and sys.stdin.isatty():
        reason = str(click.prompt("Reason", default="", show_default=False, err=True))
    return (reason or "").strip()[:REASON_MAX]
