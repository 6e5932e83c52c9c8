"""``pctl maintenance``: pause, maintenance mode and drained brokers, set through the active controller."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, NamedTuple

import click

from controller.cli.common.attribution import author_option, author_or_user, reason_option
from controller.cli.common.cluster_state import (
    brokers_text,
    fail_without_brokers,
    note_problems,
)
from controller.cli.common.confirmation import confirm, dry_run_option, nothing_to_do, yes_option
from controller.cli.common.lists import broker_ids
from controller.cli.common.options import BROKER, EPOCH, Listing, Options, Verb, Verbs, on_cluster
from controller.cli.common.output import Row, fail, note, print_data, print_rows
from controller.cli.common.progress import Progress, follow, no_wait_option
from controller.cli.common.requests import Refusal, ask, refusals, report
from controller.cli.computed import snapshots
from controller.cli.computed.dry_run import print_dry_run, run_on_copy
from controller.client import admin
from controller.core.cluster.maintenance import movable
from controller.core.model import Attribution, Cluster, Maintenance, Partition
from controller.core.names import counted, counted_are, first_few
from controller.exit_codes import EXIT_REFUSED
from controller.planning.context import cluster_of
from controller.planning.restrictions import attribution_text
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ClusterState
from controller.runtime.zookeeper.session import Session
from proto.gen import maintenance_pb2 as pb
from proto.gen.inspection_pb2 import DryRunRequest, DryRunStep

_COLUMNS = ("what", "broker", "by", "reason")


@click.group(cls=Verbs)
def maintenance() -> None:
    """Pause, maintenance mode, drained brokers, and cancellation of a controlled shutdown."""


# --- shared ----------------------------------------------------------------------------------------------------


class Given(NamedTuple):
    """What each change is asked for with. ``reason``: empty if none was given."""

    reason: str
    author: str
    yes: bool
    dry_run: bool


def change_options(*, reason_required: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options of verbs whose change is stored with reason and author; collected as ``given``."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def collected(**values: Any) -> Any:
            author = author_or_user(values.pop("author"))
            given = Given(values.pop("reason") or "", author, values.pop("yes"), values.pop("dry_run"))
            return command(given=given, **values)

        found: Callable[..., Any] = collected
        for option in (dry_run_option, yes_option, author_option, reason_option(required=reason_required)):
            found = option(found)
        return found

    return decorate


class Step(NamedTuple):
    """One request to AdminService. ``name``: its subject in messages."""

    method: str
    request: Any
    name: str = "maintenance"


async def send_steps(options: Options, session: Session, steps: Sequence[Step]) -> int:
    """Send requests in order. Returns the exit code."""
    refused = []
    for step in steps:
        try:
            await ask(options, session, step.method, step.request)
        except admin.RefusedError as error:
            refused.append(Refusal(step.name, error.error, error.message))
    return report(refused)


async def dry_run_steps(options: Options, session: Session, steps: Sequence[Step]) -> None:
    """Print the writes and pushes; ends the program if one of the requests would be refused."""
    trial = await run_on_copy(options, session, *((step.method, step.request) for step in steps))
    if code := report(refusals_of(steps, trial.answers)):
        sys.exit(code)
    print_dry_run(options, trial)


def refusals_of(steps: Sequence[Step], answers: Sequence[Any]) -> list[Refusal]:
    """``answers``: of the steps, and perhaps of what follows."""
    return refusals((step.name, answer) for step, answer in zip(steps, answers, strict=False))


# --- show ------------------------------------------------------------------------------------------------------


def _rows(state: Maintenance, shutting_down: Sequence[int] = ()) -> list[Row]:
    entered = "automatic maintenance" if state.automatic else "maintenance"
    attributions: list[tuple[str, int | None, Attribution | None]] = [
        ("paused", None, state.paused),
        (entered, None, state.entered),
        ("frozen", None, state.freeze),
        *(("drained", broker_id, attribution) for broker_id, attribution in sorted(state.drained.items())),
    ]
    rows: list[Row] = [
        {"what": what, "broker": broker_id, "by": attribution.author, "reason": attribution.reason}
        for what, broker_id, attribution in attributions
        if attribution is not None
    ]
    return [*rows, *({"what": "shutting down", "broker": broker_id} for broker_id in shutting_down)]


def print_maintenance(options: Options, state: Maintenance, shutting_down: Sequence[int] = ()) -> None:
    rows = _rows(state, shutting_down)
    if rows or options.output != "table":
        print_rows(rows, _COLUMNS, options.output)
    else:
        note("the controller is not paused or in maintenance, and no broker is drained")


@maintenance.command("show", cls=Listing)
@click.pass_obj
@on_cluster
async def show(options: Options, session: Session) -> None:
    """Show pause, maintenance mode and drained brokers with author and reason, and the offline brokers."""
    cluster_state = await cluster_reader.look(session, topics=())
    note_problems(cluster_state)
    answer = None
    try:
        answer = await admin.ask(
            cluster_state.controller_endpoint,
            "DescribeMaintenance",
            pb.DescribeMaintenanceRequest(),
            options.timeout_s,
            options.tls,
        )
    except admin.RequestFailedError as error:
        note(f"pctl: {error}; the state below is read from ZooKeeper")
    if options.output != "table":
        print_data(_data(cluster_state.maintenance, answer), options.output)
        return
    print_maintenance(options, cluster_state.maintenance, answer.shutting_down if answer else ())
    if answer is not None:
        click.echo(_offline(answer))
        if answer.accepted:
            click.echo(f"of these, accepted by an operator: {', '.join(map(str, answer.accepted))}")


def _offline(answer: Any) -> str:
    """Ids first and counts in brackets, so that they are not confused."""
    count, known = len(answer.gone), answer.known_brokers
    ids = ", ".join(map(str, answer.gone)) or "none"
    limit = "maintenance never begins automatically"
    if answer.offline_limit:
        offline = counted_are(answer.offline_limit, "broker")
        limit = f"maintenance begins automatically once {offline} offline"
    return f"offline brokers: {ids} ({count} of {known}; {known - count} are registered); {limit}"


def _data(state: Maintenance, answer: Any) -> dict[str, Any]:
    """Fields that only the controller knows are null without its response."""
    return {
        "paused": state.paused,
        "maintenance": state.entered,
        "entered_automatically": state.automatic,
        "frozen": state.freeze,
        "drained": {str(broker_id): attribution for broker_id, attribution in sorted(state.drained.items())},
        "shutting_down": list(answer.shutting_down) if answer else None,
        "offline_brokers": list(answer.gone) if answer else None,
        "accepted": list(answer.accepted) if answer else None,
        "known_brokers": answer.known_brokers if answer else None,
        "offline_limit": answer.offline_limit if answer else None,
    }


# --- the controller as a whole ---------------------------------------------------------------------------------


async def _switch(
    options: Options,
    session: Session,
    step: Step,
    question: str,
    in_force: Callable[[Maintenance], Attribution | None],
    given: Given,
    *,
    begin: bool,
) -> None:
    """Show the state, ask for confirmation, and send the request. Nothing to do if an end is requested of what is
    not in force."""
    state = (await cluster_reader.look(session, topics=())).maintenance
    if not begin and in_force(state) is None:
        nothing_to_do(options, "it is not active", dry_run=given.dry_run)
        return
    if given.dry_run:
        await dry_run_steps(options, session, [step])
        return
    print_maintenance(options, state)
    if not begin:
        await _warn(options, session, step)
    confirm(question, yes=given.yes)
    code = await send_steps(options, session, [step])
    if not code:
        note("done")
    sys.exit(code)


async def _warn(options: Options, session: Session, step: Step) -> None:
    """What waited may include unclean elections. A dry run tells, which takes long in a large cluster: it is left out
    where every partition has a leader. Where it fails the end can be asked for all the same."""
    endpoint = (await cluster_reader.look(session, topics=())).controller_endpoint
    if not endpoint:
        return
    described = await admin.describe_cluster(endpoint, options.timeout_s, options.tls)
    if isinstance(described, str) or not described.offline_partition_count:
        return
    trial = DryRunRequest(steps=[DryRunStep(method=step.method, request=step.request.SerializeToString())])
    try:
        answer = await admin.ask(endpoint, "DryRun", trial, options.timeout_s, options.tls)
        notes = snapshots.from_response(answer, "dry_run")["notes"]
    except admin.RequestFailedError as error:
        notes = [f"whether records may be lost is not known: {error}"]
    for text in notes:
        note(f"pctl: {text}")


@maintenance.command("enter", cls=Verb)
@change_options(reason_required=True)
@click.pass_obj
@on_cluster
async def enter(options: Options, session: Session, given: Given) -> None:
    """Enter maintenance mode: of its automatic work, the controller keeps only clean elections after failures."""
    request = pb.SetMaintenanceRequest(entered=True, reason=given.reason, author=given.author)
    step = Step("SetMaintenance", request)
    await _switch(options, session, step, "Enter maintenance?", lambda s: s.entered, given, begin=True)


@maintenance.command("leave", cls=Verb)
@change_options(reason_required=False)
@click.pass_obj
@on_cluster
async def leave(options: Options, session: Session, given: Given) -> None:
    """Leave maintenance mode, entered by an operator or automatically. Brokers that are offline now trigger it again
    only after they have returned."""
    question = "Leave maintenance? Suspended work starts at once."
    request = pb.SetMaintenanceRequest(entered=False, reason=given.reason, author=given.author)
    step = Step("SetMaintenance", request)
    await _switch(options, session, step, question, lambda s: s.entered, given, begin=False)


@maintenance.command("pause", cls=Verb)
@change_options(reason_required=True)
@click.pass_obj
@on_cluster
async def pause(options: Options, session: Session, given: Given) -> None:
    """Pause the controller: it starts no automatic work, not even elections. Brokers continue to serve."""
    question = "Pause the controller? Partitions that lose their leader will stay without one."
    request = pb.SetPauseRequest(paused=True, reason=given.reason, author=given.author)
    step = Step("SetPause", request)
    await _switch(options, session, step, question, lambda s: s.paused, given, begin=True)


@maintenance.command("resume", cls=Verb)
@change_options(reason_required=False)
@click.pass_obj
@on_cluster
async def resume(options: Options, session: Session, given: Given) -> None:
    """Resume a paused controller: it elects leaders for waiting partitions at once."""
    question = "Resume the controller? Suspended work starts at once."
    request = pb.SetPauseRequest(paused=False, reason=given.reason, author=given.author)
    step = Step("SetPause", request)
    await _switch(options, session, step, question, lambda s: s.paused, given, begin=False)


#: Seconds by unit of --for.
_UNITS = {"m": 60, "h": 3600, "d": 86_400}


def _duration(_context: click.Context, _parameter: click.Parameter, value: str) -> int:
    """Callback: seconds of ``90m``, ``8h``, ``2d``."""
    number, unit = value[:-1], value[-1:]
    if not (
        unit in _UNITS and number.isascii() and number.isdigit() and int(number[:6]) > 0 and len(number) <= 5
    ):
        raise click.BadParameter(f"{value!r}: must be a number of minutes, hours or days, as 90m, 8h, 2d")
    return int(number) * _UNITS[unit]


@click.command(cls=Verb)
@click.option(
    "--for",
    "for_s",
    default="1d",
    show_default=True,
    callback=_duration,
    metavar="DURATION",
    help="how long it is meant to last, as 90m, 8h, 2d; then health and an alert remind of it",
)
@change_options(reason_required=True)
@click.pass_obj
@on_cluster
async def freeze(options: Options, session: Session, for_s: int, given: Given) -> None:
    """Freeze the cluster: elections for availability go on, nothing else begins until pctl unfreeze.

    No leadership returns to its preferred replica, no reassignment begins (requested ones wait), no topic is deleted.
    """
    until_ms = int((time.time() + for_s) * 1000)
    request = pb.SetFreezeRequest(frozen=True, reason=given.reason, author=given.author, until_ms=until_ms)
    await _switch(
        options,
        session,
        Step("SetFreeze", request, "freeze"),
        "Freeze the cluster? Reassignments, deletions and the return of leaderships wait until pctl unfreeze.",
        lambda s: s.freeze,
        given,
        begin=True,
    )


@click.command(cls=Verb)
@change_options(reason_required=False)
@click.pass_obj
@on_cluster
async def unfreeze(options: Options, session: Session, given: Given) -> None:
    """End a freeze: reassignments and deletions that waited begin at once."""
    request = pb.SetFreezeRequest(frozen=False, reason=given.reason, author=given.author)
    step = Step("SetFreeze", request, "freeze")
    question = "End the freeze? Work that waited begins at once."
    await _switch(options, session, step, question, lambda s: s.freeze, given, begin=False)


# --- single brokers --------------------------------------------------------------------------------------


_BROKERS = click.argument("brokers", nargs=-1, required=True, callback=broker_ids, metavar="BROKER...")


@maintenance.command("drain", cls=Verb)
@_BROKERS
@click.option("--force", is_flag=True, help="even if no other broker is left to lead")
@no_wait_option("other brokers lead all partitions that they can lead")
@change_options(reason_required=True)
@click.pass_obj
@on_cluster
async def drain(
    options: Options,
    session: Session,
    brokers: tuple[int, ...],
    force: bool,
    no_wait: bool,
    given: Given,
) -> None:
    """Keep brokers free of leaderships until they are undrained: they follow, and lead only partitions that no other
    broker can lead. --dry-run plans it (pctl plan drain plans a controlled shutdown)."""
    cluster_state = await cluster_reader.look(session)
    fail_without_brokers(cluster_state, brokers)
    if not force and not cluster_state.brokers.keys() - cluster_state.maintenance.drained.keys() - set(
        brokers
    ):
        fail(
            f"every registered broker ({', '.join(map(str, sorted(cluster_state.brokers)))}) would be drained: "
            "no other broker is left to lead (--force drains them anyway); nothing was changed",
            EXIT_REFUSED,
        )
    steps = [drain_step(broker_id, True, given, force) for broker_id in brokers]
    if given.dry_run:
        await dry_run_steps(options, session, steps)
        return
    _print_load(options, cluster_state, brokers)
    confirm(f"Drain {brokers_text(brokers)}?", yes=given.yes)
    code = await send_steps(options, session, steps)
    led = sum(_leads(cluster_state, b) for b in brokers)
    if code == 0 and led and not no_wait:
        await _wait_until_handed_over(options, session, brokers, led)
    if code == 0:
        note(f"{brokers_text(brokers)}: drained")
    sys.exit(code)


@maintenance.command("undrain", cls=Verb)
@_BROKERS
@change_options(reason_required=False)
@click.pass_obj
@on_cluster
async def undrain(options: Options, session: Session, brokers: tuple[int, ...], given: Given) -> None:
    """Let drained brokers lead again; leaderships return by automatic rebalancing or by pctl elect."""
    cluster_state = await cluster_reader.look(session)
    drained = [b for b in brokers if b in cluster_state.maintenance.drained]
    if not drained:
        nothing_to_do(options, f"{brokers_text(brokers)}: not drained", dry_run=given.dry_run)
        return
    steps = [drain_step(broker_id, False, given) for broker_id in drained]
    if given.dry_run:
        await dry_run_steps(options, session, steps)
        return
    _print_load(options, cluster_state, drained)
    confirm(f"Allow leaderships on {brokers_text(drained)} again?", yes=given.yes)
    code = await send_steps(options, session, steps)
    if code == 0:
        note(f"{brokers_text(drained)}: not drained any more")
    sys.exit(code)


def drain_step(broker_id: int, drained: bool, given: Given, force: bool = False) -> Step:
    request = pb.SetDrainRequest(
        broker_id=broker_id, drained=drained, reason=given.reason, author=given.author, force=force
    )
    return Step("SetDrain", request, f"broker {broker_id}")


def _print_load(options: Options, cluster_state: ClusterState, brokers: Sequence[int]) -> None:
    """Print how many partitions brokers lead and have, and whether they are drained."""
    rows = [
        {
            "broker": b,
            "leaders": _leads(cluster_state, b),
            "replicas": sum(b in p.replicas for p in cluster_state.partitions),
            "drained": attribution_text(cluster_state.maintenance.drained.get(b)),
        }
        for b in brokers
    ]
    print_rows(rows, ("broker", "leaders", "replicas", "drained"), options.output)


def _leads(cluster_state: ClusterState, broker_id: int) -> int:
    return sum(p.state is not None and p.state.leader == broker_id for p in cluster_state.partitions)


async def _wait_until_handed_over(
    options: Options, session: Session, brokers: Sequence[int], led: int
) -> None:
    """Wait until these brokers lead only partitions that no other can lead, and note those. ``led``: number of
    partitions that they led before."""
    progress = await follow(
        options, "leaderships were handed over", partial(_drain_progress, options, session, brokers, led)
    )
    lead, goes = ("leads", "goes") if len(brokers) == 1 else ("lead", "go")
    if progress.left:
        fail(
            f"after {options.timeout_s:g} s {brokers_text(brokers)} still {lead} {counted(progress.left, 'partition')} "
            f"that others could lead: {'; '.join(progress.reasons[:5])}; it continues in the background"
        )
    remaining = _led(await _read_cluster(options, session), brokers)
    if remaining:
        names = first_few([p.name for p in remaining], 10)
        note(f"{brokers_text(brokers)} {goes} on leading partitions that no other broker can lead: {names}")


async def _drain_progress(options: Options, session: Session, brokers: Sequence[int], led: int) -> Progress:
    """Partitions that no other broker can lead count as neither done nor left."""
    cluster = await _read_cluster(options, session)
    led_now = _led(cluster, brokers)
    left = movable(cluster, led_now)
    stay = len(led_now) - len(left)
    return Progress(len(left), max(led - stay, len(left)), tuple(p.name for p in left))


async def _read_cluster(options: Options, session: Session) -> Cluster:
    """The cluster as stored, with the brokers in controlled shutdown."""
    cluster_state = await cluster_reader.look(session)
    answer = await admin.ask(
        cluster_state.controller_endpoint,
        "DescribeMaintenance",
        pb.DescribeMaintenanceRequest(),
        options.timeout_s,
        options.tls,
    )
    cluster = cluster_of(snapshots.snapshot_of(cluster_state))
    cluster.shutting_down.update(answer.shutting_down)
    return cluster


def _led(cluster: Cluster, brokers: Sequence[int]) -> list[Partition]:
    return [p for p in cluster.partitions() if p.leadership is not None and p.leadership.leader in brokers]


@maintenance.command("cancel-shutdown", cls=Verb)
@click.argument("broker", type=BROKER)
@click.option("--epoch", type=EPOCH, help="only if the broker's epoch is this one")
@yes_option
@dry_run_option
@click.pass_obj
@on_cluster
async def cancel_shutdown(
    options: Options, session: Session, broker: int, epoch: int | None, yes: bool, dry_run: bool
) -> None:
    """Cancel a broker's controlled shutdown: it may lead again."""
    described = await ask(options, session, "DescribeMaintenance", pb.DescribeMaintenanceRequest())
    cluster_state = await cluster_reader.look(session, topics=())
    fail_without_brokers(cluster_state, [broker])
    if broker not in described.shutting_down:
        nothing_to_do(options, f"broker {broker} is not shutting down", dry_run=dry_run)
        return
    step = Step(
        "CancelShutdown",
        pb.CancelShutdownRequest(broker_id=broker, broker_epoch=-1 if epoch is None else epoch),
        f"broker {broker}",
    )
    if dry_run:
        await dry_run_steps(options, session, [step])
        return
    print_maintenance(options, cluster_state.maintenance, described.shutting_down)
    confirm(f"Cancel the controlled shutdown of broker {broker}?", yes=yes)
    code = await send_steps(options, session, [step])
    if code == 0:
        note(f"the controlled shutdown of broker {broker} is cancelled")
    sys.exit(code)
