"""``--reason`` and ``--author``: the attribution stored with a pause, maintenance, a drain or a stop approval, and the
reason recorded with what may lose data."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from typing import Any

import click

from controller.cli.common.options import Options
from controller.cli.common.requests import ask
from controller.client import admin
from controller.core.requests.operator import AUTHOR_MAX, REASON_MAX
from controller.runtime.zookeeper.session import Session
from proto.gen import common_pb2
from proto.standard_streams import is_interactive

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


async def ask_with_reason(
    options: Options, session: Session, method: str, request: Any, reason: str | None, *, yes: bool
) -> Any:
    """Call a method of the active controller's AdminService with the reason in the request. One without is refused,
    where it may lose data and an authorizer decides: the user at a terminal is then asked for it. Raises UsageError,
    RequestFailedError."""
    request.reason = (reason or "").strip()
    try:
        return await ask(options, session, method, request)
    except admin.RefusedError as error:
        needed = error.error == common_pb2.ErrorCode.Name(common_pb2.POLICY_VIOLATION)
        if reason is not None or not needed:
            raise
        if yes or not is_interactive():
            raise click.UsageError("--reason: must be given for what may lose data") from None
    request.reason = str(click.prompt("Reason", err=True)).strip()[:REASON_MAX]
    return await ask(options, session, method, request)
