"""``pctl quarantine``: what is left out because it raised an unexpected exception again, and its release."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from controller.cli.common.attribution import author_option, author_or_user, reason_option
from controller.cli.common.confirmation import confirm, yes_option
from controller.cli.common.options import Listing, Options, Verb, Verbs, on_cluster
from controller.cli.common.output import fail, note, print_rows
from controller.cli.common.requests import ask
from controller.client import admin
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.session import Session
from proto.gen import maintenance_pb2 as pb

_COLUMNS = (
    "name",
    "state",
    "event",
    "detail",
    "error",
    "times",
    "controller",
    "epoch",
    "last",
    "traceback",
)


@click.group(cls=Verbs)
def quarantine() -> None:
    """What the controller leaves out because it raised an unexpected exception in two terms."""


@quarantine.command("list", cls=Listing)
@click.pass_obj
@on_cluster
async def list_suspects(options: Options, session: Session) -> None:
    """List what raised.

    STATE is suspect (it raised in one term) or left out. TRACEBACK is a digest: equal ones are the same fault.
    """
    print_rows(
        [
            {
                "name": s.name,
                "state": "left out" if s.quarantined else "suspect",
                "event": s.event,
                "detail": s.detail,
                "error": s.error,
                "times": s.count,
                "controller": s.controller_id,
                "epoch": s.controller_epoch,
                "last": datetime.fromtimestamp(s.at_ms / 1000, UTC).isoformat(timespec="seconds"),
                "traceback": s.digest,
            }
            for s in await _suspects(options, session)
        ],
        _COLUMNS,
        options.output,
    )


async def _suspects(options: Options, session: Session) -> list[pb.Suspect]:
    """From the controller; if none answers, which may be why somebody asks, from ZooKeeper."""
    try:
        answer = await ask(options, session, "ListQuarantine", pb.ListQuarantineRequest())
    except admin.RequestFailedError as error:
        note(f"pctl: from ZooKeeper alone ({error})")
        found = (await cluster_reader.look(session, topics=(), states=False)).quarantine.suspects
        return [
            pb.Suspect(
                name=name,
                event=s.event,
                detail=s.detail,
                error=s.error,
                digest=s.digest,
                count=s.count,
                quarantined=s.quarantined,
                controller_id=s.controller_id,
                controller_epoch=s.controller_epoch,
                at_ms=s.at_ms,
            )
            for name, s in sorted(found.items())
        ]
    return list(answer.suspects)


@quarantine.command(cls=Verb)
@click.argument("name")
@reason_option(required=True)
@author_option
@yes_option
@click.pass_obj
@on_cluster
async def release(
    options: Options, session: Session, name: str, reason: str, author: str | None, yes: bool
) -> None:
    """Let the controller take NAME in again. It begins a new term for it, as after an election."""
    confirm(f"Release {name}? If it raises again, the controller fails over twice more.", yes=yes)
    request = pb.ReleaseQuarantineRequest(name=name, reason=reason, author=author_or_user(author))
    try:
        await ask(options, session, "ReleaseQuarantine", request)
    except admin.RefusedError as error:
        fail(f"{error.error}: {error.message}")
    note(f"released {name}")
