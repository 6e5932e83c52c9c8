"""``pctl maintenance``: what the controller is kept from, and by whom; through the active controller."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import click

from controller.cli import dry_run as trial
from controller.cli import snapshots
from controller.cli.asking import Progress, Refusal, ask, confirm, follow, report
from controller.cli.output import EXIT_REFUSED, Row, fail, note, print_data, print_rows
from controller.cli.verbs import Options, Verb, Verbs, on_cluster
from controller.core.maintenance import AUTHOR_MAX, REASON_MAX, movable
from controller.core.model import Cluster, Maintenance, Mark, Partition
from controller.core.requests import (
    Asked,
    CancelShutdown,
    ControlledShutdown,
    ErrorCode,
    OperatorReply,
    SetDrain,
    SetMaintenance,
    SetPause,
)
from controller.planning.context import cluster_of
from controller.planning.executor import Executor
from controller.runtime import admin, inspection, znodes
from controller.runtime.inspection import Seen
from controller.runtime.zookeeper import Session
from proto import maintenance_pb2 as pb

BROKER = click.IntRange(0, znodes.INT_MAX)
_COLUMNS = ("what", "broker", "by", "reason")


@click.group(cls=Verbs)
def maintenance() -> None:
    """What the controller is kept from: pause, maintenance mode, drained brokers; and the undo of a shutdown."""


# --- what all of them have in common ---------------------------------------------------------------------------


def signed_text(limit: int) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """The callback of an option that takes a text."""

    def check(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
        if value is not None and not 0 < len(value.strip()) <= limit:
            raise click.BadParameter(f"must be a text of 1 to {limit} characters")
        return value

    return check


_DRY_RUN = click.option("--dry-run", is_flag=True, help="print writes and pushes, change nothing")
_YES = click.option("--yes", is_flag=True, help="do not ask")


def _signed(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of verbs that change something and are remembered with reason and author."""
    for option in (
        _DRY_RUN,
        _YES,
        click.option(
            "--author", callback=signed_text(AUTHOR_MAX), help="who wants it [default: your user name]"
        ),
        click.option(
            "--reason", required=True, callback=signed_text(REASON_MAX), help="why; others will read it"
        ),
    ):
        command = option(command)
    return command


def signature(author: str | None) -> str:
    """Who asks: as given, or the name of the user."""
    if author is not None:
        return author
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise click.UsageError("your user name is not known here: say --author") from None


class _Step(NamedTuple):
    """One request, as it goes over the wire and as the core takes it."""

    method: str
    request: Any
    core: Asked
    name: str = "pctl maintenance"


async def _carry_out(options: Options, session: Session, steps: Sequence[_Step]) -> int:
    """Ask for one after the other; the exit code so far."""
    refused = []
    for step in steps:
        try:
            await ask(options, session, step.method, step.request)
        except admin.RefusedError as error:
            refused.append(Refusal(step.name, error.error, error.message))
    return report(refused)


async def _dry_run(
    options: Options, session: Session, steps: Sequence[_Step], shutting_down: Sequence[int] = ()
) -> None:
    """Print what would be written and who would be told, by the controller's own decisions on a copy of the cluster.

    ``shutting_down``: brokers that asked to leave, which only the active controller knows.
    """
    _, snapshot = await snapshots.look(session)
    executor = Executor(snapshot)
    for broker_id in shutting_down:
        executor.ask(ControlledShutdown(broker_id, -1))
    executor.store.take_changes()
    executor.take_pushes()
    reply = OperatorReply(ErrorCode.NONE)
    for step in steps:
        answer = executor.ask(step.core)
        assert isinstance(answer, OperatorReply)
        if answer.error:
            sys.exit(report([Refusal(step.name, answer.error.name, answer.message)]))
        reply = answer
    trial.show(options, trial.DryRun(reply, executor.store.take_changes(), executor.take_pushes()))


# --- show ------------------------------------------------------------------------------------------------------


def kept_from(state: Maintenance) -> dict[str, Any]:
    """The state as fields of ``pctl cluster``."""
    entered = _in_words(state.entered)
    return {
        "paused": _in_words(state.paused),
        "maintenance": f"{entered} (by itself)" if state.by_itself else entered,
        "drained": sorted(state.drained),
    }


def _in_words(mark: Mark | None) -> str | None:
    return None if mark is None else f"by {mark.author}: {mark.reason}"


def _rows(state: Maintenance, shutting_down: Sequence[int] = ()) -> list[Row]:
    entered = "maintenance, by itself" if state.by_itself else "maintenance"
    marks: list[tuple[str, int | None, Mark | None]] = [
        ("paused", None, state.paused),
        (entered, None, state.entered),
        *(("drained", broker_id, mark) for broker_id, mark in sorted(state.drained.items())),
    ]
    rows: list[Row] = [
        {"what": what, "broker": broker_id, "by": mark.author, "reason": mark.reason}
        for what, broker_id, mark in marks
        if mark is not None
    ]
    return [*rows, *({"what": "shutting down", "broker": broker_id} for broker_id in shutting_down)]


def _present(options: Options, state: Maintenance, shutting_down: Sequence[int] = ()) -> None:
    rows = _rows(state, shutting_down)
    if rows or options.output != "table":
        print_rows(rows, _COLUMNS, options.output)
    else:
        note("nothing holds the controller back, and no broker is drained")


@maintenance.command("show", cls=Verb)
@click.pass_obj
@on_cluster
async def show(options: Options, session: Session) -> None:
    """What the controller is kept from, by whom and why, and which brokers are gone."""
    seen = await inspection.look(session, topics=(), states=False)
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
    except admin.NoAnswerError as error:
        note(f"pctl: {error}; this is what is stored")
    if options.output != "table":
        print_data(_data(seen.maintenance, answer), options.output)
        return
    _present(options, seen.maintenance, answer.shutting_down if answer else ())
    if answer is not None:
        gone = ", ".join(map(str, answer.gone)) or "none"
        limit = f"{answer.gone_limit} bring maintenance" if answer.gone_limit else "none bring maintenance"
        click.echo(f"brokers gone: {gone} of {answer.known_brokers}; {limit}")
        if answer.accepted:
            click.echo(f"of these an operator accepted: {', '.join(map(str, answer.accepted))}")


def _data(state: Maintenance, answer: Any) -> dict[str, Any]:
    """What only the controller knows is null where none answers."""
    return {
        "paused": state.paused,
        "maintenance": state.entered,
        "entered_by_itself": state.by_itself,
        "drained": {str(broker_id): mark for broker_id, mark in sorted(state.drained.items())},
        "shutting_down": list(answer.shutting_down) if answer else None,
        "gone": list(answer.gone) if answer else None,
        "accepted": list(answer.accepted) if answer else None,
        "known_brokers": answer.known_brokers if answer else None,
        "gone_limit": answer.gone_limit if answer else None,
    }


# --- the controller as a whole ---------------------------------------------------------------------------------


async def _switch(
    options: Options, session: Session, step: _Step, needed: bool, question: str, *, yes: bool, dry_run: bool
) -> None:
    """Show how it is, ask, have it done. ``needed``: whether it is not so already."""
    seen = await inspection.look(session, topics=(), states=False)
    if not needed:
        note("nothing to do: it is so already")
        return
    if dry_run:
        await _dry_run(options, session, [step])
        return
    _present(options, seen.maintenance)
    confirm(question, yes=yes)
    code = await _carry_out(options, session, [step])
    if not code:
        note("done")
    sys.exit(code)


async def _state(session: Session) -> Maintenance:
    return (await inspection.look(session, topics=(), states=False)).maintenance


async def _switch_mode(
    options: Options, session: Session, enter: bool, reason: str, author: str | None, yes: bool, dry_run: bool
) -> None:
    by = signature(author)
    step = _Step(
        "SetMaintenance",
        pb.SetMaintenanceRequest(entered=enter, reason=reason, author=by),
        SetMaintenance(enter, reason, by),
    )
    needed = enter or (await _state(session)).entered is not None
    question = "Enter maintenance?" if enter else "Leave maintenance? What waits is done at once."
    await _switch(options, session, step, needed, question, yes=yes, dry_run=dry_run)


async def _switch_pause(
    options: Options, session: Session, pause: bool, reason: str, author: str | None, yes: bool, dry_run: bool
) -> None:
    by = signature(author)
    step = _Step(
        "SetPause", pb.SetPauseRequest(paused=pause, reason=reason, author=by), SetPause(pause, reason, by)
    )
    needed = pause or (await _state(session)).paused is not None
    question = (
        "Pause the controller? Partitions that lose their leader then stay without one."
        if pause
        else "Resume the controller? What waits is done at once."
    )
    await _switch(options, session, step, needed, question, yes=yes, dry_run=dry_run)


@maintenance.command("enter", cls=Verb)
@_signed
@click.pass_obj
@on_cluster
async def enter(
    options: Options, session: Session, reason: str, author: str | None, yes: bool, dry_run: bool
) -> None:
    """Maintenance mode: nothing begins by itself but clean elections after failures."""
    await _switch_mode(options, session, True, reason, author, yes, dry_run)


@maintenance.command("leave", cls=Verb)
@_signed
@click.pass_obj
@on_cluster
async def leave(
    options: Options, session: Session, reason: str, author: str | None, yes: bool, dry_run: bool
) -> None:
    """End maintenance mode, whoever entered it. Brokers that are gone then do not bring it back."""
    await _switch_mode(options, session, False, reason, author, yes, dry_run)


@maintenance.command("pause", cls=Verb)
@_signed
@click.pass_obj
@on_cluster
async def pause(
    options: Options, session: Session, reason: str, author: str | None, yes: bool, dry_run: bool
) -> None:
    """The controller does nothing of its own accord, elections neither; the data plane goes on."""
    await _switch_pause(options, session, True, reason, author, yes, dry_run)


@maintenance.command("resume", cls=Verb)
@_signed
@click.pass_obj
@on_cluster
async def resume(
    options: Options, session: Session, reason: str, author: str | None, yes: bool, dry_run: bool
) -> None:
    """End a pause: whatever waits for an election is elected at once."""
    await _switch_pause(options, session, False, reason, author, yes, dry_run)


# --- single brokers --------------------------------------------------------------------------------------------


@maintenance.command("drain", cls=Verb)
@click.argument("brokers", nargs=-1, required=True, type=BROKER, metavar="BROKER...")
@click.option("--force", is_flag=True, help="also where no other broker is left that may lead")
@click.option("--no-wait", is_flag=True, help="do not wait until they lead nothing that another could")
@_signed
@click.pass_obj
@on_cluster
async def drain(
    options: Options,
    session: Session,
    brokers: tuple[int, ...],
    force: bool,
    no_wait: bool,
    reason: str,
    author: str | None,
    yes: bool,
    dry_run: bool,
) -> None:
    """Keep leaderships off brokers; they go on following, and lead only what nobody else can."""
    by, brokers = signature(author), tuple(dict.fromkeys(brokers))
    seen = await inspection.look(session)
    for broker_id in brokers:
        if broker_id not in seen.brokers:
            fail(f"no broker {broker_id} is registered; registered are {sorted(seen.brokers)}")
    if not force and not seen.brokers.keys() - seen.maintenance.drained.keys() - set(brokers):
        fail(
            f"every registered broker ({', '.join(map(str, sorted(seen.brokers)))}) would be drained: nobody is left "
            "to lead instead (--force does it all the same); nothing was changed",
            EXIT_REFUSED,
        )
    steps = [_drain_step(broker_id, True, reason, by, force) for broker_id in brokers]
    if dry_run:
        await _dry_run(options, session, steps)
        return
    _print_load(options, seen, brokers)
    confirm(f"Drain {_named(brokers)}?", yes=yes)
    code = await _carry_out(options, session, steps)
    if code == 0 and not no_wait:
        await _wait(options, session, brokers)
    if code == 0:
        note(f"{_named(brokers)}: drained")
    sys.exit(code)


@maintenance.command("undrain", cls=Verb)
@click.argument("brokers", nargs=-1, required=True, type=BROKER, metavar="BROKER...")
@_signed
@click.pass_obj
@on_cluster
async def undrain(
    options: Options,
    session: Session,
    brokers: tuple[int, ...],
    reason: str,
    author: str | None,
    yes: bool,
    dry_run: bool,
) -> None:
    """Allow leaderships on brokers again; they return by rebalancing or by pctl elect."""
    by = signature(author)
    seen = await inspection.look(session)
    drained = [b for b in dict.fromkeys(brokers) if b in seen.maintenance.drained]
    if not drained:
        note(f"nothing to do: {_named(brokers)} not drained")
        return
    steps = [_drain_step(broker_id, False, reason, by) for broker_id in drained]
    if dry_run:
        await _dry_run(options, session, steps)
        return
    _print_load(options, seen, drained)
    confirm(f"Allow leaderships on {_named(drained)} again?", yes=yes)
    code = await _carry_out(options, session, steps)
    if code == 0:
        note(f"{_named(drained)}: not drained any more")
    sys.exit(code)


def _drain_step(broker_id: int, drained: bool, reason: str, author: str, force: bool = False) -> _Step:
    return _Step(
        "SetDrain",
        pb.SetDrainRequest(broker_id=broker_id, drained=drained, reason=reason, author=author, force=force),
        SetDrain(broker_id, drained, reason, author, force),
        f"broker {broker_id}",
    )


def _named(brokers: Sequence[int]) -> str:
    return f"broker{'s' * (len(brokers) > 1)} {', '.join(map(str, brokers))}"


def _print_load(options: Options, seen: Seen, brokers: Sequence[int]) -> None:
    """What brokers lead and hold, and whether they are drained."""
    led = [p.state.leader for p in seen.partitions if p.state]
    rows = [
        {
            "broker": b,
            "leaders": led.count(b),
            "replicas": sum(b in p.replicas for p in seen.partitions),
            "drained": _in_words(seen.maintenance.drained.get(b)),
        }
        for b in brokers
    ]
    print_rows(rows, ("broker", "leaders", "replicas", "drained"), options.output)


async def _wait(options: Options, session: Session, brokers: Sequence[int]) -> None:
    """Until what is left to lead on these brokers nobody else could lead, which is said."""
    cluster = await _look(options, session)
    total = max(len(_led(cluster, brokers)), 1)
    progress = await follow(
        options, "leaderships are where they can be", partial(_progress, options, session, brokers, total)
    )
    if progress.left:
        fail(
            f"after {options.timeout_s:g} s {_named(brokers)} still lead {progress.left} partitions that others could "
            f"lead: {'; '.join(progress.held[:5])}; it goes on by itself"
        )
    remaining = _led(await _look(options, session), brokers)
    if remaining:
        names = ", ".join(p.name for p in remaining[:10]) + (", ..." if len(remaining) > 10 else "")
        note(f"{_named(brokers)} go on leading what nobody else can for now: {names}")


async def _progress(options: Options, session: Session, brokers: Sequence[int], total: int) -> Progress:
    cluster = await _look(options, session)
    left = movable(cluster, _led(cluster, brokers))
    return Progress(len(left), max(total, len(left)), tuple(p.name for p in left))


async def _look(options: Options, session: Session) -> Cluster:
    """The cluster as stored, and which brokers are about to leave."""
    seen = await inspection.look(session)
    answer = await admin.ask(
        seen.controller_endpoint, "DescribeMaintenance", pb.DescribeMaintenanceRequest(), options.timeout_s
    )
    cluster = cluster_of(snapshots.snapshot_of(seen))
    cluster.shutting_down.update(answer.shutting_down)
    return cluster


def _led(cluster: Cluster, brokers: Sequence[int]) -> list[Partition]:
    return [
        p for p in cluster.partitions() if p.leadership is not None and p.leadership.leader in set(brokers)
    ]


@maintenance.command("cancel-shutdown", cls=Verb)
@click.argument("broker", type=BROKER)
@click.option("--epoch", type=click.IntRange(0), help="only this incarnation of it")
@_YES
@_DRY_RUN
@click.pass_obj
@on_cluster
async def cancel_shutdown(
    options: Options, session: Session, broker: int, epoch: int | None, yes: bool, dry_run: bool
) -> None:
    """A broker that asked to leave stays: it may lead again."""
    asked = await ask(options, session, "DescribeMaintenance", pb.DescribeMaintenanceRequest())
    seen = await inspection.look(session, topics=(), states=False)
    if broker not in seen.brokers:
        fail(f"no broker {broker} is registered; registered are {sorted(seen.brokers)}")
    if broker not in asked.shutting_down:
        note(f"nothing to do: broker {broker} is not shutting down")
        return
    step = _Step(
        "CancelShutdown",
        pb.CancelShutdownRequest(broker_id=broker, broker_epoch=-1 if epoch is None else epoch),
        CancelShutdown(broker, -1 if epoch is None else epoch),
        f"broker {broker}",
    )
    if dry_run:
        await _dry_run(options, session, [step], asked.shutting_down)
        return
    _present(options, seen.maintenance, asked.shutting_down)
    confirm(f"Let broker {broker} stay?", yes=yes)
    code = await _carry_out(options, session, [step])
    if code == 0:
        note(f"broker {broker} stays")
    sys.exit(code)
