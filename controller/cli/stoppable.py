"""``pctl stoppable``: may these brokers stop now?"""

from __future__ import annotations

import sys
from typing import Any

import click

from controller.cli import snapshots
from controller.cli.output import EXIT_REFUSED, print_data
from controller.cli.plan import broker_ids, terms_of, terms_options
from controller.cli.verbs import Options, Verb, on_cluster
from controller.planning.stoppable import Stoppable
from controller.planning.stoppable import stoppable as decide
from controller.runtime.zookeeper import Session

#: Reasons shown in a table; JSON has all.
REASONS_SHOWN = 50


@click.command(cls=Verb)
@click.argument("brokers", callback=broker_ids)
@click.option(
    "--tolerate-under-replicated",
    is_flag=True,
    help="a partition with a replica out of sync already may lose one more, if enough are left",
)
@terms_options
@click.pass_obj
@on_cluster
async def stoppable(
    options: Options,
    session: Session,
    brokers: tuple[int, ...],
    tolerate_under_replicated: bool,
    min_isr_default: int,
    unclean_default: bool,
) -> None:
    """May these brokers stop now, together? All reasons, the margin, and the largest set that may.

    Exit code 0: yes, 3: no. An approval holds for these incarnations of the brokers under this controller epoch.
    """
    seen, snapshot = await snapshots.look(session)
    answer = decide(
        snapshot,
        brokers,
        terms_of(min_isr_default, unclean_default),
        controller_active=seen.controller_id >= 0,
        tolerate_under_replicated=tolerate_under_replicated,
    )
    if options.output == "table":
        _print(answer)
    else:
        print_data(_data(answer), options.output)
    if not answer.approved:
        sys.exit(EXIT_REFUSED)


def _data(answer: Stoppable) -> dict[str, Any]:
    return {
        "brokers": answer.brokers,
        "stoppable": answer.approved,
        "reasons": [
            {
                "reason": r.why.value,
                "topic": r.topic or None,
                "partition": r.partition if r.topic else None,
                "brokers": r.brokers,
                "text": r.text,
            }
            for r in answer.reasons
        ],
        "margin": answer.margin,
        "largest_safe_set": answer.largest,
        "largest_is_exact": answer.exact,
        "approvals": [
            {
                "broker": a.broker,
                "broker_epoch": a.broker_epoch,
                "controller_epoch": a.controller_epoch,
                "token": a.token,
            }
            for a in answer.approvals
        ],
    }


def _print(answer: Stoppable) -> None:
    asked = ", ".join(map(str, answer.brokers))
    if answer.approved:
        click.echo(f"yes: {asked} may stop now")
        more = f"any {answer.margin} more" if answer.margin else "not one more"
        click.echo(
            f"after that {more} may fail without a partition going offline or below min.insync.replicas"
        )
        for approval in answer.approvals:
            click.echo(f"approved: {approval.token}")
        return
    click.echo(f"no: {asked} may not stop now, for {_reasons(len(answer.reasons))}")
    for reason in answer.reasons[:REASONS_SHOWN]:
        click.echo(f"  {reason.text}")
    if (hidden := len(answer.reasons) - REASONS_SHOWN) > 0:
        click.echo(f"  and {hidden} more (-o json has all)")
    found = ", ".join(map(str, answer.largest)) or "none"
    how = "" if answer.exact else " (found greedily: a larger one may exist)"
    click.echo(f"largest set of these that may, by its partitions: {found}{how}")


def _reasons(number: int) -> str:
    return f"{number} reason{'s' * (number != 1)}"
