"""``pctl plan``: simulates events with the controller's own decisions on a copy of the cluster. Changes nothing."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from controller.cli.common.lists import broker_ids
from controller.cli.common.options import Options, Verbs, offline, on_cluster
from controller.cli.common.output import note, print_data, print_fields, print_rows
from controller.cli.computed import snapshots
from controller.cli.computed.dry_run import PUSH_COLUMNS
from controller.core.names import counted
from controller.exit_codes import EXIT_REFUSED
from controller.runtime.zookeeper import codecs
from controller.runtime.zookeeper.session import Session
from proto.gen import inspection_pb2 as pb

if TYPE_CHECKING:
    # The planner is imported where no controller answers: it is the whole core.
    from controller.planning.scenarios import Plan, Terms
    from controller.planning.snapshot import Snapshot

F = TypeVar("F", bound=Callable[..., Any])


def terms_options(command: F) -> F:
    """Add --unclean-default, --min-isr-default and --offline."""
    command = offline(command)
    command = click.option(
        "--min-isr-default",
        type=click.IntRange(1, 1000),
        default=1,
        show_default=True,
        help="min.insync.replicas of topics that do not set it",
    )(command)
    return click.option(
        "--unclean-default",
        is_flag=True,
        help="without a controller's answer: assume unclean_leader_election_enable = true",
    )(command)


_every = click.option(
    "--all", "every", is_flag=True, help="each partition that moves, not one line for each topic"
)
_writes = click.option("--writes", is_flag=True, help="list every write: path, old and new state")


@click.group(cls=Verbs)
def plan() -> None:
    """Show what would happen: offline partitions, leaders, writes and pushes. Changes nothing.

    Exit code 3 if at any time a partition is offline or below min.insync.replicas, or an unclean election happens.
    """


def _planning(name: str, *arguments: Callable[[F], F]) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a verb of a function: its arguments and the options of all plans. The function returns the request to the
    controller, and the function that computes the same plan from a snapshot."""

    def decorate(
        request_of: Callable[..., tuple[pb.PlanRequest, Callable[[Snapshot, Terms], Plan]]],
    ) -> click.Command:
        @on_cluster
        async def run(
            options: Options,
            session: Session,
            /,
            *,
            min_isr_default: int,
            unclean_default: bool,
            offline: bool,
            writes: bool,
            every: bool,
            **given: Any,
        ) -> None:
            request, scenario = request_of(**given)
            request.min_isr_default, request.list_writes = min_isr_default, writes

            async def from_zookeeper() -> dict[str, Any]:
                from controller.planning.scenarios import Terms
                from controller.runtime.rpc.translate.plan_data import plan_data

                _, snapshot = await snapshots.read_snapshot(session, unclean_default=unclean_default)
                return plan_data(scenario(snapshot, Terms(min_isr_default)), writes)

            result = await snapshots.from_controller_or_zookeeper(
                options, session, "Plan", request, "plan", from_zookeeper, offline=offline
            )
            show(options, result, writes, every)

        command: Any = click.pass_obj(run)
        for option in (_every, _writes, terms_options, *reversed(arguments)):
            command = option(command)
        return plan.command(name, help=request_of.__doc__)(command)

    return decorate


def _simulated(
    scenario: str, call: Callable[[Any, Snapshot, Terms], Plan]
) -> Callable[[Snapshot, Terms], Plan]:
    """``call`` with a function of ``controller.planning.scenarios``, imported when the plan is computed here."""

    def run(snapshot: Snapshot, terms: Terms) -> Plan:
        from controller.planning import scenarios

        return call(getattr(scenarios, scenario), snapshot, terms)

    return run


@_planning(
    "broker-loss",
    click.argument("brokers", nargs=-1, required=True, callback=broker_ids, metavar="BROKER..."),
)
def plan_broker_loss(brokers: tuple[int, ...]) -> Any:
    """These brokers die at once."""
    request = pb.PlanRequest(broker_loss=pb.BrokerSet(broker_ids=brokers))
    return request, _simulated("broker_loss", lambda run, s, terms: run(s, brokers, terms))


@_planning("rack-loss", click.argument("rack"))
def plan_rack_loss(rack: str) -> Any:
    """All brokers of a rack die at once."""
    return pb.PlanRequest(rack_loss=rack), _simulated("rack_loss", lambda run, s, terms: run(s, rack, terms))


@_planning(
    "rolling-restart",
    click.option(
        "--batch",
        type=click.IntRange(0, codecs.INT_MAX),
        default=1,
        show_default=True,
        help="largest number of brokers restarted together; 0: as many as is safe",
    ),
    click.option(
        "--brokers",
        multiple=True,
        callback=broker_ids,
        help="only these brokers: 1,2,3",
    ),
)
def plan_rolling_restart(batch: int, brokers: tuple[int, ...]) -> Any:
    """Brokers stop, return and catch up, batch by batch."""
    ids = brokers
    request = pb.PlanRequest(rolling_restart=pb.BrokerSet(broker_ids=ids), batch=batch)
    return request, _simulated("rolling_restart", lambda run, s, terms: run(s, terms, batch, ids))


def _one_broker(context: click.Context, parameter: click.Parameter, value: str) -> int:
    ids = broker_ids(context, parameter, value)
    if len(ids) != 1:
        raise click.BadParameter(
            f"{value!r}: a controlled shutdown is of one broker: plan one after the other"
        )
    return ids[0]


@_planning("drain", click.argument("broker", callback=_one_broker))
def plan_drain(broker: int) -> Any:
    """A broker hands over what it leads and leaves its ISRs: a controlled shutdown. What pctl maintenance drain does
    is planned by its --dry-run."""
    return pb.PlanRequest(drain=broker), _simulated("drain", lambda run, s, terms: run(s, broker, terms))


@_planning("preferred-election")
def plan_preferred_election() -> Any:
    """Every partition is led by its first replica again, if that replica is alive and in sync."""
    request = pb.PlanRequest(preferred_election=True)
    return request, _simulated("preferred_election", lambda run, s, terms: run(s, terms))


# --- showing -------------------------------------------------------------------------------------------------


def show(options: Options, result: Mapping[str, Any], writes: bool, every: bool = False) -> None:
    """Print a plan in the form of ``plan_data``, with ``every`` each partition that moves; ends the program with
    EXIT_REFUSED if it is not safe."""
    steps = result["steps"]
    if options.output != "table":
        print_data(result, options.output)
    elif len(steps) == 1:
        _print_step(result, steps[0], every)
    else:
        _print_steps(result)
    if options.output == "table" and writes:
        click.echo()
        print_rows([w for step in steps for w in step["writes"]], ("path", "old", "new"), "table")
    if result["settling_writes"]:
        pending = counted(result["settling_writes"], "write")
        note(f"pctl: {pending} pending before step 1: the cluster has unfinished work")
    for name in steps[-1]["unreadable"] if steps else ():
        note(f"pctl: {name} is left out: its state is unreadable")
    if not result["safe"]:
        sys.exit(EXIT_REFUSED)


def _print_step(result: Mapping[str, Any], step: Mapping[str, Any], every: bool) -> None:
    fields = {
        result["plan"]: step["step"],
        "safe": result["safe"],
        "offline": _counted(step["offline"], step["offline_before"]),
        "under_min_isr": _counted(step["under_min_isr"], step["under_min_isr_before"]),
        "under_replicated": _counted(step["under_replicated"], step["under_replicated_before"]),
        "unclean_elections": _counted(step["unclean_elections"], ()),
        "leaders_moved": len(step["moved"]),
        "writes": step["writes_count"],
    }
    print_fields(fields, "table")
    for text in step["notes"]:
        click.echo(text)
    _print_brokers([step])
    if step["moved"]:
        click.echo()
        print_rows(_moved(step["moved"], every), ("partition", "from", "to"), "table")


def _moved(moves: Sequence[Mapping[str, Any]], every: bool) -> list[dict[str, Any]]:
    """Rows of moved leaderships; without ``every`` one for those of a topic that move alike."""
    groups: dict[tuple[str, int, int, bool], list[str]] = {}
    for m in moves:
        about = m["partition"] if every else _topic(m["partition"])
        groups.setdefault((about, m["from"], m["to"], m["unclean"]), []).append(m["partition"])
    return [
        {
            "partition": names[0] if len(names) == 1 else f"{about}: {len(names)} partitions",
            "from": _leader(before),
            "to": _leader(after) + (" (unclean: records are lost)" if unclean else ""),
        }
        for (about, before, after, unclean), names in groups.items()
    ]


def _topic(partition: str) -> str:
    return partition.rpartition("-")[0]


def _print_steps(result: Mapping[str, Any]) -> None:
    click.echo(f"{result['plan']}: {'safe' if result['safe'] else 'NOT safe'}\n")
    rows = [
        {
            "step": step["step"],
            "offline": _counted(step["offline"], ()),
            "under_min_isr": _counted(step["under_min_isr"], ()),
            "under_replicated": len(step["under_replicated"]),
            "leaders_moved": len(step["moved"]),
            "writes": step["writes_count"],
        }
        for step in result["steps"]
    ]
    columns = ("step", "offline", "under_min_isr", "under_replicated", "leaders_moved", "writes")
    print_rows(rows, columns, "table")
    for step in result["steps"]:
        for text in step["notes"]:
            click.echo(f"{step['step']}: {text}")
    if result["steps"]:
        _print_brokers(result["steps"])


def _print_brokers(steps: Sequence[Mapping[str, Any]]) -> None:
    """Leaders and pushes of each broker, over all steps."""
    before = {b: both["before"] for b, both in steps[0]["leaders"].items()}
    after = {b: both["after"] for b, both in steps[-1]["leaders"].items()}
    rows = [
        {
            "broker": broker_id,
            "leaders_before": before.get(broker_id),
            "leaders_after": after.get(broker_id),
            **{
                column: sum(step["pushes"].get(broker_id, {}).get(kind, 0) for step in steps) or None
                for column, kind in PUSH_COLUMNS.items()
            },
        }
        for broker_id in sorted({*before, *after}, key=int)
    ]
    click.echo()
    print_rows(rows, ("broker", "leaders_before", "leaders_after", *PUSH_COLUMNS), "table")


def _leader(broker_id: int) -> str:
    return "none" if broker_id < 0 else str(broker_id)


#: Partitions, or else topics, named in a table cell; JSON has all.
NAMED_MAX = 10


def _counted(names: Sequence[str], before: Sequence[str]) -> str:
    """Number and names, and how many of them are also in ``before``."""
    if not names:
        return "0"
    groups = list(names)
    if len(names) > NAMED_MAX:
        topics = Counter(_topic(name) for name in names)
        groups = [f"{topic} ({count})" for topic, count in topics.items()]
    shown = ", ".join(groups[:NAMED_MAX]) + (", ..." if len(groups) > NAMED_MAX else "")
    already = len(set(names) & set(before))
    return f"{len(names)}: {shown}" + (f" ({already} before)" if already else "")
