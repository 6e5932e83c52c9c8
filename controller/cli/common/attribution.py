"""``--reason`` and ``--author``: what is remembered of those who keep the controller from something."""

from __future__ import annotations

import getpass
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
    "--author", callback=_text_of(AUTHOR_MAX), help="who wants it [default: your user name]"
)


def reason_option(*, required: bool) -> Decorator:
    """What is begun needs a reason; what ends something may have one."""
    return click.option(
        "--reason", required=required, callback=_text_of(REASON_MAX), help="why; others will read it"
    )


def author_or_user(author: str | None) -> str:
    """Who asks: as given, or the name of the user."""
    if author is not None:
        return author
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise click.UsageError("your user name is not known here: say --author") from None
