"""``pctl stoppable``: may these brokers stop now? Also records, withdraws and lists stop approvals."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import click
import msgspec

from controller.cli.common.attribution import author_option, author_or_user, reason_option
from controller.cli.common.cluster_state import brokers_text, note_problems
from controller.cli.common.confirmation import dry_run_option, nothing_to_do, yes_allowed
from controller.cli.common.lists import broker_ids
from controller.cli.common.options import Listing, Options, on_cluster
from controller.cli.common.output import note, print_data, print_rows
from controller.cli.common.requests import ask
from controller.cli.computed import snapshots
from controller.cli.computed.dry_run import print_dry_run, run_on_copy
from controller.cli.pctl.decisions.plan import terms_options
from controller.core.brokers.stop_approvals import standing
from controller.core.names import counted
from controller.exit_codes import EXIT_REFUSED
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.session import Session
from proto.gen import inspection_pb2 as pb

#: Groups of reasons that are printed without --all.
REASONS_SHOWN = 50
#: What is said of several partitions of a topic, by the kind of reason.
SEVERAL = {
    "offline": "would have no leader",
    "under_min_isr": "would have fewer in-sync replicas than min.insync.replicas",
    "unclean_election": "would be led by a replica outside the ISR: records are lost",
    "already_under_replicated": "are under-replicated already",
}
_COLUMNS = ("broker", "broker_epoch", "author", "reason", "age", "overridden")


@click.command(cls=Listing)
@click.argument("brokers", nargs=-1, callback=broker_ids, metavar="[BROKER]...")
@click.option(
    "--tolerate-under-replicated",
    is_flag=True,
    help="a partition that already has a replica out of sync may lose one more, if enough are left",
)
@click.option(
    "--approve", is_flag=True, help="record the approval: later checks count these brokers as offline"
)
@click.option("--override", is_flag=True, help="record the approval despite all reasons against it")
@click.option("--withdraw", is_flag=True, help="withdraw the approvals of these brokers")
@click.option(
    "--all", "every", is_flag=True, help="each reason, not one line for each topic and kind of reason"
)
@click.option("--list", "listed", is_flag=True, help="list the valid approvals")
@reason_option(required=False)
@author_option
@yes_allowed
@dry_run_option
@terms_options
@click.pass_obj
@on_cluster
async def stoppable(
    options: Options,
    session: Session,
    brokers: tuple[int, ...],
    tolerate_under_replicated: bool,
    approve: bool,
    override: bool,
    withdraw: bool,
    listed: bool,
    every: bool,
    reason: str | None,
    author: str | None,
    dry_run: bool,
    min_isr_default: int,
    unclean_default: bool,
    offline: bool,
) -> None:
    """Check whether these brokers may stop now, all at once. Prints all reasons against it, the number of further
    brokers that may fail, and the largest subset that may stop.

    Exit code 0: yes, 3: no. With --approve a yes is recorded for these incarnations of the brokers. It is valid until
    they stop or it is withdrawn.
    """
    approving = approve or override
    _check_options(brokers, approving, withdraw, listed, reason, offline)
    if dry_run and not (approving or withdraw):
        raise click.UsageError("--dry-run: only with --approve, --override or --withdraw")
    if options.watch_s is not None and (approving or withdraw):
        raise click.UsageError("--watch: not with --approve, --override or --withdraw")
    if listed:
        await _list(options, session)
        return
    if withdraw:
        request = pb.WithdrawStopApprovalRequest(
            broker_ids=brokers, reason=reason, author=author_or_user(author)
        )
        await _withdraw(options, session, request, dry_run=dry_run)
        return
    check = pb.CheckStoppableRequest(
        broker_ids=brokers,
        min_isr_default=min_isr_default,
        tolerate_under_replicated=tolerate_under_replicated,
    )
    if approving:
        wanted = pb.ApproveStopRequest(
            check=check, reason=reason, author=author_or_user(author), override=override
        )
        if dry_run:
            await _dry_run_approval(options, session, wanted)
        else:
            _show(options, await _approved(options, session, wanted))
        return

    from_zookeeper = partial(_from_zookeeper, session, check, unclean_default)
    answer = await snapshots.from_controller_or_zookeeper(
        options, session, "CheckStoppable", check, "answer", from_zookeeper, offline=offline
    )
    _show(options, answer, every=every)


async def _from_zookeeper(
    session: Session, check: pb.CheckStoppableRequest, unclean_default: bool
) -> dict[str, Any]:
    # Not imported above: it is the whole core.
    from controller.planning.scenarios import Terms
    from controller.planning.stoppable import stoppable as decide
    from controller.runtime.rpc.translate.plan_data import stoppable_data

    cluster_state, snapshot = await snapshots.read_snapshot(session, unclean_default=unclean_default)
    answer = decide(
        snapshot,
        tuple(check.broker_ids),
        Terms(check.min_isr_default),
        controller_active=cluster_state.controller_id >= 0,
        tolerate_under_replicated=check.tolerate_under_replicated,
    )
    return stoppable_data(answer)


async def _withdraw(
    options: Options, session: Session, request: pb.WithdrawStopApprovalRequest, *, dry_run: bool
) -> None:
    now = await cluster_reader.look(session, topics=())
    approved = [b for b in request.broker_ids if b in standing(now.brokers, now.approvals)]
    if not approved:
        why = f"{brokers_text(request.broker_ids)}: not approved to stop"
        nothing_to_do(options, why, dry_run=dry_run)
        return
    if dry_run:
        print_dry_run(options, await run_on_copy(options, session, ("WithdrawStopApproval", request)))
        return
    await ask(options, session, "WithdrawStopApproval", request)
    counts = "counts" if len(approved) == 1 else "count"
    note(f"{brokers_text(approved)} no longer {counts} as offline")


def _check_options(
    brokers: Sequence[int],
    approving: bool,
    withdraw: bool,
    listed: bool,
    reason: str | None,
    offline: bool,
) -> None:
    """Raises click.UsageError for options that contradict each other."""
    if sum((approving, withdraw, listed)) > 1:
        raise click.UsageError("--approve (or --override), --withdraw and --list exclude each other")
    if listed == bool(brokers):
        raise click.UsageError("name brokers, as 3,5, or use --list without any")
    if approving and reason is None:
        raise click.UsageError("--reason: must be given with --approve or --override")
    if (approving or withdraw) and offline:
        raise click.UsageError("--offline: only the active controller records approvals")
    if reason is not None and not (approving or withdraw):
        raise click.UsageError("--reason: only with --approve, --override or --withdraw")


async def _approved(options: Options, session: Session, request: pb.ApproveStopRequest) -> dict[str, Any]:
    return snapshots.from_response(await ask(options, session, "ApproveStop", request), "answer")


async def _dry_run_approval(options: Options, session: Session, request: pb.ApproveStopRequest) -> None:
    """Print the verdict and the writes; ends the program with EXIT_REFUSED if the brokers may not stop."""
    from controller.runtime.rpc.dry_run import APPROVE

    trial = await run_on_copy(options, session, (APPROVE, request))
    answer = msgspec.json.decode(trial.answers[0].answer)
    if options.output == "table":
        _print(answer, recorded=False)
    print_dry_run(options, trial, answer=answer)
    if not answer["stoppable"]:
        sys.exit(EXIT_REFUSED)


async def _list(options: Options, session: Session) -> None:
    """Print the valid approvals, read from ZooKeeper."""
    cluster_state = await cluster_reader.look(session, topics=())
    note_problems(cluster_state)
    from controller.runtime.rpc.translate.plan_data import approval_rows

    rows = approval_rows(standing(cluster_state.brokers, cluster_state.approvals))
    if options.output != "table":
        print_data(rows, options.output)
        return
    now_ms = time.time_ns() // 1_000_000
    shown = [
        {**row, "age": _age(now_ms - row["at_ms"]), "overridden": "; ".join(row["overridden"])}
        for row in rows
    ]
    print_rows(shown, _COLUMNS, "table")


def _age(ms: int) -> str:
    minutes = max(ms, 0) // 60_000
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def _show(options: Options, answer: Mapping[str, Any], *, every: bool = False) -> None:
    """Print the verdict; ends the program with EXIT_REFUSED if the brokers may not stop."""
    if options.output == "table":
        _print(answer, every=every)
    else:
        print_data(answer, options.output)
    if not answer["stoppable"]:
        sys.exit(EXIT_REFUSED)


def _grouped(reasons: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each kind of reason and topic; with several partitions, their number."""
    groups: dict[tuple[str, str], list[str]] = {}
    for place, reason in enumerate(reasons):
        about = reason["topic"] or str(place)
        groups.setdefault((reason["reason"], about), []).append(reason["text"])
    return [
        texts[0] if len(texts) == 1 else f"{topic}: {len(texts)} partitions {SEVERAL[kind]}"
        for (kind, topic), texts in groups.items()
    ]


def _print(answer: Mapping[str, Any], *, recorded: bool = True, every: bool = False) -> None:
    """``recorded`` False: a dry run, so the note that nothing was recorded is left out. ``every``: each reason."""
    brokers, reasons = answer["brokers"], answer["reasons"]
    named = ", ".join(map(str, brokers))
    others = [a for a in answer["approvals"] if a["broker"] not in brokers]
    for a in others:
        click.echo(
            f"broker {a['broker']} counts as offline: approved to stop for {a['author']}: {a['reason']}"
        )
    for broker_id in answer["shutting_down"]:
        click.echo(f"broker {broker_id} counts as offline: it is shutting down")
    if answer["stoppable"]:
        click.echo(f"yes: {named} may stop now" + (", despite:" if reasons else ""))
    else:
        click.echo(f"no: {named} may not stop now, for {counted(len(reasons), 'reason')}")
    lines = [reason["text"] for reason in reasons] if every else _grouped(reasons)
    shown = len(lines) if every else REASONS_SHOWN
    for line in lines[:shown]:
        click.echo(f"  {line}")
    if (hidden := len(lines) - shown) > 0:
        click.echo(f"  and {hidden} more (--all)")
    for change in dict.fromkeys(reason["change"] for reason in reasons):
        click.echo(f"would change it: {change}")
    if reasons:
        found = answer["largest_safe_set"]
        how = "" if answer["largest_is_exact"] else "; found greedily: a larger one may exist"
        which = brokers_text(found) if found else "none"
        click.echo(
            f"of these may stop together, by their partitions: {which} ({len(found)} of {len(brokers)}{how})"
        )
    if answer["margin"] is not None:
        more = f"any {answer['margin']} more" if answer["margin"] else "not one more"
        click.echo(
            f"after that {more} may fail without a partition going offline or below min.insync.replicas"
        )
    approved = [a for a in answer["approvals"] if a["broker"] in brokers]
    for a in approved:
        click.echo(
            f"approved: broker {a['broker']} in its epoch {a['broker_epoch']}, for {a['author']}: {a['reason']}"
        )
    if recorded and answer["stoppable"] and len(approved) < len(brokers):
        note("nothing was recorded: later checks do not count these brokers as offline (see --approve)")
