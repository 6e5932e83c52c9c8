"""``pctl plan``: what would happen, by the controller's own decisions on a copy of the cluster. Changes nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click
import msgspec

from controller.cli import snapshots
from controller.cli.output import EXIT_REFUSED, note, print_data, print_fields, print_rows
from controller.cli.verbs import Options, Verbs, on_cluster
from controller.core.effects import ReassignmentRequest, StoredNode, TopicInfo
from controller.core.model import LeaderAndIsr
from controller.core.turn import CoreSettings
from controller.planning import scenarios
from controller.planning.executor import merged
from controller.planning.scenarios import Plan, Step, Terms
from controller.planning.snapshot import Key
from controller.planning.store import Change, Stored
from controller.runtime import control_znodes, znodes
from controller.runtime.zookeeper import Session

F = TypeVar("F", bound=Callable[..., Any])

#: Kinds of pushes, by their column in a table.
PUSH_COLUMNS = {
    "leader_and_isr": "LeaderAndIsr",
    "update_metadata": "UpdateMetadata",
    "stop_replica": "StopReplica",
}


def broker_ids(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[int, ...]:
    """The callback of an argument: broker ids, separated by commas."""
    texts = [text.strip() for text in value.split(",")]
    if not all(t.isascii() and t.isdigit() and int(t[:20]) <= znodes.INT_MAX for t in texts):
        raise click.BadParameter(f"{value!r}: must be broker ids separated by commas, as 3,5")
    return tuple(int(text) for text in texts)


def terms_options(command: F) -> F:
    """What a topic's configuration does not say."""
    command = click.option(
        "--min-isr-default",
        type=click.IntRange(1, 1000),
        default=1,
        show_default=True,
        help="min.insync.replicas of topics that do not say",
    )(command)
    return click.option(
        "--unclean-default",
        is_flag=True,
        help="the controllers run with unclean_leader_election_enable = true",
    )(command)


def terms_of(min_isr_default: int, unclean_default: bool) -> Terms:
    return Terms(min_isr_default, CoreSettings(unclean_leader_election_enable=unclean_default))


_writes = click.option("--writes", is_flag=True, help="list every write: path, old and new state")


@click.group(cls=Verbs)
def plan() -> None:
    """What would happen: partitions offline, leaders, writes and pushes. Changes nothing.

    Exit code 3 when partitions are left, or at some time, offline or below min.insync.replicas.
    """


@plan.command("broker-loss")
@click.argument("brokers", callback=broker_ids)
@terms_options
@_writes
@click.pass_obj
@on_cluster
async def plan_broker_loss(
    options: Options,
    session: Session,
    brokers: tuple[int, ...],
    min_isr_default: int,
    unclean_default: bool,
    writes: bool,
) -> None:
    """Brokers die, all at once."""
    _, snapshot = await snapshots.look(session)
    terms = terms_of(min_isr_default, unclean_default)
    show(options, scenarios.broker_loss(snapshot, brokers, terms), writes)


@plan.command("rack-loss")
@click.argument("rack")
@terms_options
@_writes
@click.pass_obj
@on_cluster
async def plan_rack_loss(
    options: Options, session: Session, rack: str, min_isr_default: int, unclean_default: bool, writes: bool
) -> None:
    """All brokers of a rack die at once."""
    _, snapshot = await snapshots.look(session)
    show(options, scenarios.rack_loss(snapshot, rack, terms_of(min_isr_default, unclean_default)), writes)


@plan.command("rolling-restart")
@click.option(
    "--batch",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="how many together at most; 0: as many as is safe",
)
@terms_options
@_writes
@click.pass_obj
@on_cluster
async def plan_rolling_restart(
    options: Options, session: Session, batch: int, min_isr_default: int, unclean_default: bool, writes: bool
) -> None:
    """Every broker stops, returns and catches up, one batch after the other."""
    _, snapshot = await snapshots.look(session)
    terms = terms_of(min_isr_default, unclean_default)
    show(options, scenarios.rolling_restart(snapshot, terms, batch), writes)


@plan.command("drain")
@click.argument("broker", type=click.IntRange(0, znodes.INT_MAX))
@terms_options
@_writes
@click.pass_obj
@on_cluster
async def plan_drain(
    options: Options, session: Session, broker: int, min_isr_default: int, unclean_default: bool, writes: bool
) -> None:
    """A broker hands over what it leads and leaves its ISRs (controlled shutdown)."""
    _, snapshot = await snapshots.look(session)
    show(options, scenarios.drain(snapshot, broker, terms_of(min_isr_default, unclean_default)), writes)


@plan.command("preferred-election")
@terms_options
@_writes
@click.pass_obj
@on_cluster
async def plan_preferred_election(
    options: Options, session: Session, min_isr_default: int, unclean_default: bool, writes: bool
) -> None:
    """Every partition goes back to its first replica, where that one is alive and in sync."""
    _, snapshot = await snapshots.look(session)
    show(options, scenarios.preferred_election(snapshot, terms_of(min_isr_default, unclean_default)), writes)


# --- showing -------------------------------------------------------------------------------------------------


def show(options: Options, made: Plan, writes: bool) -> None:
    """Print a plan; exits with EXIT_REFUSED when it is not safe."""
    if options.output != "table":
        print_data(plan_data(made, writes), options.output)
    elif len(made.steps) == 1:
        _print_step(made, made.steps[0])
    else:
        _print_steps(made)
    if options.output == "table" and writes:
        changes = [c for step in made.steps for c in step.writes]
        click.echo()
        print_rows([write_row(c) for c in changes], ("path", "old", "new"), "table")
    if made.settling:
        note(f"pctl: {len(made.settling)} writes are due before that: the cluster is not settled")
    for key in made.steps[-1].after.unreadable if made.steps else ():
        note(f"pctl: nothing can be said of {_name(key)}: its state is unreadable")
    if not made.safe:
        sys.exit(EXIT_REFUSED)


def plan_data(made: Plan, writes: bool) -> dict[str, Any]:
    """A plan as JSON has it; ``writes``: each of them, not only their number."""
    return {
        "plan": made.name,
        "safe": made.safe,
        "settling_writes": len(made.settling),
        "steps": [_step_data(step, writes) for step in made.steps],
    }


def _step_data(step: Step, writes: bool) -> dict[str, Any]:
    data: dict[str, Any] = {
        "step": step.title,
        "brokers": step.brokers,
        "offline": _names(step.worst.offline),
        "under_min_isr": _names(step.worst.under_min_isr),
        "under_replicated": _names(step.worst.under_replicated),
        "offline_before": _names(step.before.offline),
        "under_min_isr_before": _names(step.before.under_min_isr),
        "offline_after": _names(step.after.offline),
        "under_min_isr_after": _names(step.after.under_min_isr),
        "unclean_elections": _names(step.unclean),
        "unreadable": _names(step.after.unreadable),
        "leaders": _leaders(step.before.leaders, step.after.leaders),
        "moved": [
            {"partition": f"{m.topic}-{m.partition}", "from": m.before, "to": m.after, "unclean": m.unclean}
            for m in step.moved
        ],
        "writes_count": len(step.writes),
        "pushes": step.pushes,
        "notes": step.notes,
    }
    if writes:
        data["writes"] = [write_row(change) for change in step.writes]
    return data


def write_row(change: Change) -> dict[str, Any]:
    return {
        "path": change.path,
        "old": _node_text(change.path, change.old),
        "new": _node_text(change.path, change.new),
    }


def _node_text(path: str, stored: Stored | None) -> str | None:
    """As ``znode_text``; what is read one by one is written as its path says."""
    if isinstance(stored, StoredNode):
        return control_znodes.encode(path, stored.value).decode()
    return znode_text(stored)


def znode_text(stored: Stored | None) -> str | None:
    """What the znode holds, as it is written; None: it is absent."""
    match stored:
        case None:
            return None
        case LeaderAndIsr():
            return znodes.encode_state(stored).decode()
        case TopicInfo():
            return znodes.encode_topic(stored).decode()
        case ReassignmentRequest():
            return znodes.encode_reassignments(stored.entries).decode()
        case StoredNode():
            return msgspec.json.encode(stored.value).decode()
        case str():
            return stored
        case _:
            return msgspec.json.encode(stored).decode()


def _print_step(made: Plan, step: Step) -> None:
    fields = {
        made.name: step.title,
        "safe": made.safe,
        "offline": _counted(step.worst.offline, step.before.offline),
        "under_min_isr": _counted(step.worst.under_min_isr, step.before.under_min_isr),
        "under_replicated": _counted(step.worst.under_replicated, step.before.under_replicated),
        "unclean_elections": _counted(step.unclean, ()),
        "leaders_moved": len(step.moved),
        "writes": len(step.writes),
    }
    print_fields(fields, "table")
    for text in step.notes:
        click.echo(text)
    _print_brokers([step])
    if step.moved:
        click.echo()
        rows = [
            {
                "partition": f"{m.topic}-{m.partition}",
                "from": _leader(m.before),
                "to": _leader(m.after) + (" (unclean: records are lost)" if m.unclean else ""),
            }
            for m in step.moved
        ]
        print_rows(rows, ("partition", "from", "to"), "table")


def _print_steps(made: Plan) -> None:
    click.echo(f"{made.name}: {'safe' if made.safe else 'NOT safe'}\n")
    rows = [
        {
            "step": step.title,
            "offline": _counted(step.worst.offline, ()),
            "under_min_isr": _counted(step.worst.under_min_isr, ()),
            "under_replicated": len(step.worst.under_replicated),
            "leaders_moved": len(step.moved),
            "writes": len(step.writes),
        }
        for step in made.steps
    ]
    columns = ("step", "offline", "under_min_isr", "under_replicated", "leaders_moved", "writes")
    print_rows(rows, columns, "table")
    for step in made.steps:
        for text in step.notes:
            click.echo(f"{step.title}: {text}")
    if made.steps:
        _print_brokers(made.steps)


def _print_brokers(steps: Sequence[Step]) -> None:
    """Leaders and pushes of each broker, over all steps."""
    pushes = merged([step.pushes for step in steps])
    leaders = _leaders(steps[0].before.leaders, steps[-1].after.leaders)
    rows = [
        {
            "broker": broker_id,
            "leaders_before": both["before"],
            "leaders_after": both["after"],
            **{column: pushes.get(int(broker_id), {}).get(kind) for column, kind in PUSH_COLUMNS.items()},
        }
        for broker_id, both in leaders.items()
    ]
    click.echo()
    print_rows(rows, ("broker", "leaders_before", "leaders_after", *PUSH_COLUMNS), "table")


def _leaders(before: Mapping[int, int], after: Mapping[int, int]) -> dict[str, dict[str, int | None]]:
    """By broker; None where it is not registered."""
    ids = sorted({*before, *after})
    return {str(b): {"before": before.get(b), "after": after.get(b)} for b in ids}


def _leader(broker_id: int) -> str:
    return str(broker_id) if broker_id >= 0 else "nobody"


def _name(key: Key) -> str:
    return f"{key[0]}-{key[1]}"


def _names(keys: Iterable[Key]) -> list[str]:
    return [_name(key) for key in keys]


#: Named in a table; JSON has all.
NAMED_MAX = 10


def _counted(keys: Sequence[Key], before: Sequence[Key]) -> str:
    """How many and which; those that were so before are told apart."""
    if not keys:
        return "0"
    names = ", ".join(_names(keys[:NAMED_MAX])) + (", ..." if len(keys) > NAMED_MAX else "")
    already = len(set(keys) & set(before))
    return f"{len(keys)}: {names}" + (f" ({already} before)" if already else "")
