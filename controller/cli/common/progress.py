"""``--no-wait``, and waiting with progress for work that the controller does after its response."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

import click

from controller.cli.common.options import Options
from controller.cli.common.output import note
from controller.client import admin

F = TypeVar("F", bound=Callable[..., Any])

#: Time between two requests for the progress, and between two printed lines.
POLL_EVERY_S, NOTE_EVERY_S = 0.2, 1.0
_REASONS_SHOWN = 5


def no_wait_option(until: str) -> Callable[[F], F]:
    """``until``: the end of the help text."""
    return click.option("--no-wait", is_flag=True, help=f"do not wait until {until}")


class Progress(NamedTuple):
    """``left`` of ``total`` items are not done; ``reasons``: why, one text per such item if known."""

    left: int
    total: int
    reasons: tuple[str, ...] = ()

    def line(self, what: str) -> str:
        shown = "; ".join(self.reasons[:_REASONS_SHOWN])
        more = (
            f"; and {len(self.reasons) - _REASONS_SHOWN} more" if len(self.reasons) > _REASONS_SHOWN else ""
        )
        return f"{self.total - self.left} of {self.total} {what}" + (f": {shown}{more}" if shown else "")


async def follow(
    options: Options, what: str, measure: Callable[[], Awaitable[Progress]], *, patient: bool = False
) -> Progress:
    """Wait until nothing is left or ``--timeout`` has passed, and print each change. Returns the last progress.

    A failed request is repeated: another controller may have taken over. ``patient``: whatever gets done, the time
    counts anew. Who is interrupted, or loses ZooKeeper, is told that the work goes on.
    """
    from controller.runtime.zookeeper.session import ConnectionLossError

    try:
        return await _followed(options, what, measure, patient=patient)
    except (asyncio.CancelledError, ConnectionLossError):
        note("pctl waits no longer; what was asked for continues in the background")
        raise


async def _followed(
    options: Options, what: str, measure: Callable[[], Awaitable[Progress]], *, patient: bool
) -> Progress:
    fewest = sys.maxsize
    deadline = time.monotonic() + options.timeout_s
    progress, printed, printed_at = Progress(1, 1), "", 0.0
    while True:
        try:
            progress = await measure()
            if patient and progress.left < fewest:
                fewest, deadline = progress.left, time.monotonic() + options.timeout_s
        except admin.RequestFailedError as error:
            progress = progress._replace(reasons=(str(error),))
        now, line = time.monotonic(), progress.line(what)
        if progress.left == 0 or (line != printed and now - printed_at >= NOTE_EVERY_S):
            note(line)
            printed, printed_at = line, now
        if progress.left == 0 or now > deadline:
            return progress
        await asyncio.sleep(POLL_EVERY_S)
