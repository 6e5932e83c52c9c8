"""``pctl maintenance``: what the controller is kept from, and by whom; through the active controller."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import click

from controller.cli.common import dry_run as trial
from controller.cli.common.attribution import author_option, reason_option, signature
from controller.cli.common.confirmation import (
    Refusal,
    ask,
    confirm,
    dry_run_option,
    nothing_to_do,
    report,
    yes_option,
)
from controller.cli.common.options import Listing, Options, Verb, Verbs, on_cluster
from controller.cli.common.output import Row, note, print_data, print_rows
from controller.client import admin
from controller.core.model import Attribution, Maintenance
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.session import Session
from proto.gen import common_pb2
from proto.gen import maintenance_pb2 as pb

_COLUMNS = ("what", "broker", "by", "reason")


@click.group(cls=Verbs)
def maintenance() -> None:
    """What the controller is kept from: pause, maintenance mode, drained brokers; and the undo of a shutdown."""


# --- what all of them have in common ---------------------------------------------------------------------------


def signed(*, begins: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options of verbs that change something and are remembered with reason and author."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in (dry_run_option, yes_option, author_option, reason_option(required=begins)):
            command = option(command)
        return command

    return decorate


class Step(NamedTuple):
    """One request to AdminService, and what it is about."""

    method: str
    request: Any
    name: str = "maintenance"


async def carry_out(options: Options, session: Session, steps: Sequence[Step]) -> int:
    """Ask for one after the other; the exit code so far."""
    refused = []
    for step in steps:
        try:
            await ask(options, session, step.method, step.request)
        except admin.RefusedError as error:
            refused.append(Refusal(step.name, error.error, error.message))
    return report(refused)


async def dry_run_of(options: Options, session: Session, steps: Sequence[Step]) -> None:
    """Print what would be written and who would be told; ends the program where one of them would be refused."""
    made = await trial.tried(options, session, *((step.method, step.request) for step in steps))
    refused = [
        Refusal(step.name, common_pb2.ErrorCode.Name(answer.error_code), answer.error_message)
        for step, answer in zip(steps, made.answers, strict=True)
        if answer.error_code
    ]
    if code := report(refused):
        sys.exit(code)
    trial.show(options, made)


# --- show ------------------------------------------------------------------------------------------------------


def kept_from(state: Maintenance) -> dict[str, Any]:
    """The state as fields of ``pctl cluster``."""
    entered = in_words(state.entered)
    return {
        "paused": in_words(state.paused),
        "maintenance": f"{entered} (by itself)" if state.automatic else entered,
        "drained": sorted(state.drained),
    }


def in_words(attribution: Attribution | None) -> str | None:
    return None if attribution is None else f"by {attribution.author}: {attribution.reason}"


def _rows(state: Maintenance, shutting_down: Sequence[int] = ()) -> list[Row]:
    entered = "maintenance, by itself" if state.automatic else "maintenance"
    marks: list[tuple[str, int | None, Attribution | None]] = [
        ("paused", None, state.paused),
        (entered, None, state.entered),
        *(("drained", broker_id, attribution) for broker_id, attribution in sorted(state.drained.items())),
    ]
    rows: list[Row] = [
        {"what": what, "broker": broker_id, "by": attribution.author, "reason": attribution.reason}
        for what, broker_id, attribution in marks
        if attribution is not None
    ]
    return [*rows, *({"what": "shutting down", "broker": broker_id} for broker_id in shutting_down)]


def present(options: Options, state: Maintenance, shutting_down: Sequence[int] = ()) -> None:
    rows = _rows(state, shutting_down)
    if rows or options.output != "table":
        print_rows(rows, _COLUMNS, options.output)
    else:
        note("nothing holds the controller back, and no broker is drained")


@maintenance.command("show", cls=Listing)
@click.pass_obj
@on_cluster
async def show(options: Options, session: Session) -> None:
    """What the controller is kept from, by whom and why, and which brokers are gone."""
    seen = await cluster_reader.look(session, topics=(), states=False)
    for path, problem in sorted(seen.problems.items()):
        note(f"pctl: unreadable znode {path}: {problem}")
    answer = None
    try:
        answer = await admin.ask(
            seen.controller_endpoint,
            "DescribeMaintenance",
            pb.DescribeMaintenanceRequest(),
            options.timeout_s,
        )
    except admin.RequestFailedError as error:
        note(f"pctl: {error}; this is what is stored")
    if options.output != "table":
        print_data(_data(seen.maintenance, answer), options.output)
        return
    present(options, seen.maintenance, answer.shutting_down if answer else ())
    if answer is not None:
        gone = ", ".join(map(str, answer.gone)) or "none"
        limit = (
            f"{answer.offline_limit} bring maintenance" if answer.offline_limit else "none bring maintenance"
        )
        click.echo(f"brokers gone: {gone} of {answer.known_brokers}; {limit}")
        if answer.accepted:
            click.echo(f"of these an operator accepted: {', '.join(map(str, answer.accepted))}")


def _data(state: Maintenance, answer: Any) -> dict[str, Any]:
    """What only the controller knows is null where none answers."""
    return {
        "paused": state.paused,
        "maintenance": state.entered,
        "entered_automatically": state.automatic,
        "drained": {str(broker_id): attribution for broker_id, attribution in sorted(state.drained.items())},
        "shutting_down": list(answer.shutting_down) if answer else None,
        "gone": list(answer.gone) if answer else None,
        "accepted": list(answer.accepted) if answer else None,
        "known_brokers": answer.known_brokers if answer else None,
        "offline_limit": answer.offline_limit if answer else None,
    }


# --- the controller as a whole ---------------------------------------------------------------------------------


async def _switch(
    options: Options, session: Session, step: Step, needed: bool, question: str, *, yes: bool, dry_run: bool
) -> None:
    """Show how it is, ask, have it done. ``needed``: whether it is not so already."""
    seen = await cluster_reader.look(session, topics=(), states=False)
    if not needed:
        nothing_to_do(options, "it is so already", dry_run=dry_run)
        return
    if dry_run:
        await dry_run_of(options, session, [step])
        return
    present(options, seen.maintenance)
    confirm(question, yes=yes)
    code = await carry_out(options, session, [step])
    if not code:
        note("done")
    sys.exit(code)


async def _state(session: Session) -> Maintenance:
    return (await cluster_reader.look(session, topics=(), states=False)).maintenance


async def _switch_mode(
    options: Options,
    session: Session,
    enter: bool,
    reason: str | None,
    author: str | None,
    yes: bool,
    dry_run: bool,
) -> None:
    by = signature(author)
    step = Step(
        "SetMaintenance",
        pb.SetMaintenanceRequest(entered=enter, reason=reason, author=by),
    )
    needed = enter or (await _state(session)).entered is not None
    question = "Enter maintenance?" if enter else "Leave maintenance? What waits is done at once."
    await _switch(options, session, step, needed, question, yes=yes, dry_run=dry_run)


async def _switch_pause(
    options: Options,
    session: Session,
    pause: bool,
    reason: str | None,
    author: str | None,
    yes: bool,
    dry_run: bool,
) -> None:
    by = signature(author)
    step = Step("SetPause", pb.SetPauseRequest(paused=pause, reason=reason, author=by))
    needed = pause or (await _state(session)).paused is not None
    question = (
        "Pause the controller? Partitions that lose their leader then stay without one."
        if pause
        else "Resume the controller? What waits is done at once."
    )
    await _switch(options, session, step, needed, question, yes=yes, dry_run=dry_run)


@maintenance.command("enter", cls=Verb)
@signed(begins=True)
@click.pass_obj
@on_cluster
async def enter(
    options: Options, session: Session, reason: str, author: str | None, yes: bool, dry_run: bool
) -> None:
    """Maintenance mode: nothing begins by itself but clean elections after failures."""
    await _switch_mode(options, session, True, reason, author, yes, dry_run)


@maintenance.command("leave", cls=Verb)
@signed(begins=False)
@click.pass_obj
@on_cluster
async def leave(
    options: Options, session: Session, reason: str | None, author: str | None, yes: bool, dry_run: bool
) -> None:
    """End maintenance mode, whoever entered it. Brokers that are gone then do not bring it back."""
    await _switch_mode(options, session, False, reason, author, yes, dry_run)


@maintenance.command("pause", cls=Verb)
@signed(begins=True)
@click.pass_obj
@on_cluster
async def pause(
    options: Options, session: Session, reason: str, author: str | None, yes: bool, dry_run: bool
) -> None:
    """The controller does nothing of its own accord, elections neither; the data plane goes on."""
    await _switch_pause(options, session, True, reason, author, yes, dry_run)


@maintenance.command("resume", cls=Verb)
@signed(begins=False)
@click.pass_obj
@on_cluster
async def resume(
    options: Options, session: Session, reason: str | None, author: str | None, yes: bool, dry_run: bool
) -> None:
    """End a pause: whatever waits for an election is elected at once."""
    await _switch_pause(options, session, False, reason, author, yes, dry_run)
