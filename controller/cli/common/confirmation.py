"""What verbs that change something have in common: the confirmation, the active controller, waiting with progress."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import click

from controller.cli.common.options import Options
from controller.cli.common.output import fail, note, print_data
from controller.client import admin
from controller.exit_codes import EXIT_FAILED, EXIT_REFUSED, EXIT_USAGE
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.session import Session
from proto.gen import common_pb2

F = TypeVar("F", bound=Callable[..., Any])

#: How often the controller is asked how far something is, and how often a person is told.
LOOK_EVERY_S, TELL_EVERY_S = 0.2, 1.0
#: Refusals that protect the cluster: asking otherwise, or later, may succeed.
SAFETY = frozenset(
    {
        "TOPIC_DELETION_DISABLED",
        "REASSIGNMENT_IN_PROGRESS",
        "PREFERRED_LEADER_NOT_AVAILABLE",
        "ELIGIBLE_LEADERS_NOT_AVAILABLE",
        "POLICY_VIOLATION",
    }
)
_REASONS_SHOWN = 5

yes_option = click.option("--yes", is_flag=True, help="do not ask")
#: Where nothing is asked: scripts may say it all the same.
yes_allowed = click.option("--yes", is_flag=True, expose_value=False, help="nothing is asked here")
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="print the exact writes and who is told, change nothing"
)


def no_wait_option(until: str) -> Callable[[F], F]:
    """``until``: what is waited for else, in words."""
    return click.option("--no-wait", is_flag=True, help=f"do not wait until {until}")


def confirm(question: str, *, yes: bool) -> None:
    """Go on only if ``--yes`` was given or a person at a terminal agrees; ends the program otherwise."""
    if yes:
        return
    if not sys.stdin.isatty():
        fail(f"{question} Nobody can be asked (no terminal): say --yes; nothing was changed", EXIT_USAGE)
    if not click.confirm(question, err=True):
        fail("not confirmed: nothing was changed", EXIT_REFUSED)


def nothing_to_do(options: Options, why: str, *, dry_run: bool = False) -> None:
    """Say so; programs read of no rows, or of no writes."""
    note(f"nothing to do: {why}")
    if options.output != "table":
        nothing: dict[str, Any] = {"writes": [], "pushes": {}, "notes": []}
        print_data(nothing if dry_run else [], options.output)


async def ask(options: Options, session: Session, method: str, request: Any) -> Any:
    """Have the active controller carry out a method of AdminService. Raises RequestFailedError."""
    seen = await cluster_reader.look(session, topics=(), states=False)
    return await admin.ask(seen.controller_endpoint, method, request, options.timeout_s)


class Refusal(NamedTuple):
    """One thing the controller did not do: its name, the error's name, and why in words."""

    name: str
    error: str
    message: str


def refusals(named: Iterable[tuple[str, Any]]) -> list[Refusal]:
    """Those of a response's entries, each with the name to be shown, that carry an error."""
    return [
        Refusal(name, common_pb2.ErrorCode.Name(entry.error_code), entry.error_message)
        for name, entry in named
        if entry.error_code
    ]


def report(refused: Sequence[Refusal], safety: Collection[str] = SAFETY) -> int:
    """Say what was refused. Returns the exit code: 0 if nothing was, 3 if only safety checks refused, else 1."""
    for one in refused:
        note(f"pctl: {one.name}: {one.error}" + (f": {one.message}" if one.message else ""))
    if not refused:
        return 0
    return EXIT_REFUSED if all(one.error in safety for one in refused) else EXIT_FAILED


class Progress(NamedTuple):
    """How far something is; ``held``: a reason for each thing not done yet, where one is known."""

    left: int
    total: int
    held: tuple[str, ...] = ()

    def line(self, what: str) -> str:
        shown = "; ".join(self.held[:_REASONS_SHOWN])
        more = f"; and {len(self.held) - _REASONS_SHOWN} more" if len(self.held) > _REASONS_SHOWN else ""
        return f"{self.total - self.left} of {self.total} {what}" + (f": {shown}{more}" if shown else "")


async def follow(options: Options, what: str, look: Callable[[], Awaitable[Progress]]) -> Progress:
    """Look until nothing is left or the time is up, and tell each change; how far it was at last.

    A controller that does not answer meanwhile is asked again: another may take over.
    """
    deadline = time.monotonic() + options.timeout_s
    progress, said, said_at = Progress(1, 1), "", 0.0
    while True:
        try:
            progress = await look()
        except admin.RequestFailedError as error:
            progress = progress._replace(held=(str(error),))
        now, line = time.monotonic(), progress.line(what)
        if progress.left == 0 or (line != said and now - said_at >= TELL_EVERY_S):
            note(line)
            said, said_at = line, now
        if progress.left == 0 or now > deadline:
            return progress
        await asyncio.sleep(LOOK_EVERY_S)
