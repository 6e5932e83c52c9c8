"""``--no-wait``, and waiting with progress for what the controller does after it has answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

import click

from controller.cli.common.options import Options
from controller.cli.common.output import note
from controller.client import admin

F = TypeVar("F", bound=Callable[..., Any])

#: How often the controller is asked how far something is, and how often that is printed.
POLL_EVERY_S, NOTE_EVERY_S = 0.2, 1.0
_REASONS_SHOWN = 5


def no_wait_option(until: str) -> Callable[[F], F]:
    """``until``: the end of the help text."""
    return click.option("--no-wait", is_flag=True, help=f"do not wait until {until}")


class Progress(NamedTuple):
    """How far something is; ``reasons``: one for each thing not done yet, where one is known."""

    left: int
    total: int
    reasons: tuple[str, ...] = ()

    def line(self, what: str) -> str:
        shown = "; ".join(self.reasons[:_REASONS_SHOWN])
        more = (
            f"; and {len(self.reasons) - _REASONS_SHOWN} more" if len(self.reasons) > _REASONS_SHOWN else ""
        )
        return f"{self.total - self.left} of {self.total} {what}" + (f": {shown}{more}" if shown else "")


async def follow(options: Options, what: str, measure: Callable[[], Awaitable[Progress]]) -> Progress:
    """Wait until nothing is left or the time is up, and print each change; how far it was at last.

    A controller that does not answer meanwhile is asked again: another may take over.
    """
    deadline = time.monotonic() + options.timeout_s
    progress, printed, printed_at = Progress(1, 1), "", 0.0
    while True:
        try:
            progress = await measure()
        except admin.RequestFailedError as error:
            progress = progress._replace(reasons=(str(error),))
        now, line = time.monotonic(), progress.line(what)
        if progress.left == 0 or (line != printed and now - printed_at >= NOTE_EVERY_S):
            note(line)
            printed, printed_at = line, now
        if progress.left == 0 or now > deadline:
            return progress
        await asyncio.sleep(POLL_EVERY_S)
