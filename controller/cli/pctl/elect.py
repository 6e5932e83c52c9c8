"""``pctl elect``: leader elections through the active controller: preferred, unclean, or of a named broker."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from controller.cli.common.attribution import ask_with_reason, reason_option
from controller.cli.common.confirmation import confirm, dry_run_option, nothing_to_do, yes_allowed, yes_option
from controller.cli.common.lists import names as list_of_names
from controller.cli.common.options import BROKER, FILE, Options, Verb, Verbs, on_cluster
from controller.cli.common.output import fail, note, print_rows
from controller.cli.common.reassignment_files import read_names
from controller.cli.common.requests import Refusal, ask, refusals, report
from controller.cli.computed.dry_run import DryRun, print_dry_run, run_on_copy
from controller.core.names import counted
from controller.exit_codes import EXIT_REFUSED
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ClusterState, PartitionInfo
from controller.runtime.zookeeper.session import Session
from proto.gen import admin_service_pb2 as pb
from proto.gen import common_pb2


class Elections(Verbs):
    """Adds ``preferred`` if no kind of election is given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = {*self.commands, "-h", "--help"}
        return super().parse_args(ctx, args if args and args[0] in known else ["preferred", *args])


@click.group(cls=Elections)
def elect() -> None:
    """Elect other leaders of partitions: preferred (the default), unclean, leader."""


def _partition_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that name partitions, and --dry-run."""
    for option in (
        dry_run_option,
        click.option(
            "--all", "everything", is_flag=True, help="every partition, but of topics being deleted"
        ),
        click.option(
            "--file",
            "listed",
            type=FILE,
            help="the partitions in this file, in the format of kafka-leader-election --path-to-json-file",
        ),
        click.option(
            "--partition",
            "names",
            multiple=True,
            callback=list_of_names,
            metavar="TOPIC-N",
            help="this partition; may be repeated",
        ),
        click.option(
            "--topic",
            "topics",
            multiple=True,
            callback=list_of_names,
            help="all partitions of this topic; may be repeated",
        ),
    ):
        command = option(command)
    return command


@elect.command("preferred", cls=Verb)
@_partition_options
@yes_allowed
@click.pass_obj
@on_cluster
async def preferred(
    options: Options,
    session: Session,
    topics: tuple[str, ...],
    names: Collection[str],
    listed: Path | None,
    everything: bool,
    dry_run: bool,
) -> None:
    """Elect the preferred leaders of partitions."""
    names = _with_listed(names, listed)
    _, partitions = await _named_partitions(session, topics, names, everything)
    wanted = [p for p in partitions if not p.on_preferred_leader]
    if not wanted:
        nothing_to_do(options, "every named partition is led by its preferred replica", dry_run=dry_run)
        return
    request = _request(wanted, pb.PREFERRED)
    rows = [{**_row(p), "preferred": p.replicas[0]} for p in wanted]
    await _tried(options, session, request, rows, "no preferred replica could lead", dry_run=dry_run)
    await _elect(options, session, request, "led by their preferred replica")


@elect.command("leader", cls=Verb)
@click.argument("broker", type=BROKER)
@_partition_options
@yes_allowed
@click.pass_obj
@on_cluster
async def leader(
    options: Options,
    session: Session,
    broker: int,
    topics: tuple[str, ...],
    names: Collection[str],
    listed: Path | None,
    everything: bool,
    dry_run: bool,
) -> None:
    """Elect BROKER, an in-sync replica, as leader; with --topic or --all, of the partitions that it has replicas of."""
    names = _with_listed(names, listed)
    _, partitions = await _named_partitions(session, topics, names, everything)
    wanted = [
        p
        for p in partitions
        if (broker in p.replicas or p.name in names) and (p.state is None or p.state.leader != broker)
    ]
    if not wanted:
        why = f"broker {broker} leads every named partition of which it has a replica"
        nothing_to_do(options, why, dry_run=dry_run)
        return
    request = _request(wanted, pb.CHOSEN, broker)
    rows = [{**_row(p), "new_leader": broker} for p in wanted]
    await _tried(options, session, request, rows, f"broker {broker} could lead none of them", dry_run=dry_run)
    await _elect(options, session, request, f"led by broker {broker}")


@elect.command("unclean", cls=Verb)
@_partition_options
@reason_option(required=False)
@yes_option
@click.pass_obj
@on_cluster
async def unclean(
    options: Options,
    session: Session,
    topics: tuple[str, ...],
    names: Collection[str],
    listed: Path | None,
    everything: bool,
    dry_run: bool,
    reason: str | None,
    yes: bool,
) -> None:
    """Elect any live replica as leader of partitions without one. Records that only other replicas have are lost."""
    names = _with_listed(names, listed)
    cluster_state, partitions = await _named_partitions(session, topics, names, everything)
    wanted = [p for p in partitions if not cluster_state.is_led(p)]
    if not wanted:
        nothing_to_do(options, "every named partition has a leader", dry_run=dry_run)
        return
    request = _request(wanted, pb.UNCLEAN)
    rows = [
        {
            **_row(p),
            "isr": list(p.state.isr) if p.state else None,
            "alive": [b for b in p.replicas if b in cluster_state.brokers],
        }
        for p in wanted
    ]
    await _tried(options, session, request, rows, "no replica of any of them could lead", dry_run=dry_run)
    count = counted(len(wanted), "partition")
    confirm(f"Elect in {count} and lose records that no live replica has?", yes=yes)
    _end(request, await ask_with_reason(options, session, "ElectLeaders", request, reason, yes=yes), "led")


def _with_listed(names: Collection[str], listed: Path | None) -> Collection[str]:
    """Partitions of the options and of a file, each once. Raises PlanError."""
    more = () if listed is None else read_names(listed)
    # A file may name as many as there are.
    return dict.fromkeys((*names, *(f"{t}-{n}" for t, n in more))).keys()


async def _named_partitions(
    session: Session, topics: Sequence[str], names: Collection[str], everything: bool
) -> tuple[ClusterState, list[PartitionInfo]]:
    """The cluster state and the named partitions; ends the program if one does not exist."""
    if not (topics or names or everything):
        raise click.UsageError("name --topic, --partition, --file or --all")
    cluster_state = await cluster_reader.look(session)
    by_name = {p.name: p for p in cluster_state.partitions}
    for unknown in [t for t in topics if t not in cluster_state.topics] + [
        n for n in names if n not in by_name
    ]:
        fail(f"no topic or partition {unknown!r}")
    every = set(cluster_state.topics).difference(cluster_state.deleting) if everything else set()
    wanted = every.union(topics)
    return cluster_state, [p for n, p in by_name.items() if p.topic in wanted or n in names]


def _row(partition: PartitionInfo) -> dict[str, Any]:
    state = partition.state
    return {
        "partition": partition.name,
        "leader": state.leader if state else None,
    }


def _possible(trial: DryRun) -> set[str]:
    """The partitions for which the controller's own election finds a leader, on a copy of the cluster."""
    results = {f"{r.topic}-{r.partition}" for r in trial.answers[0].results}
    return results - {one.name for one in _refused(trial.answers[0])}


def _request(
    wanted: Sequence[PartitionInfo], election: Any, broker: int | None = None
) -> pb.ElectLeadersRequest:
    return pb.ElectLeadersRequest(
        election_type=election,
        topic_partitions=[common_pb2.PartitionName(topic=p.topic, partition=p.partition) for p in wanted],
        leader=broker,
    )


async def _tried(
    options: Options,
    session: Session,
    request: pb.ElectLeadersRequest,
    rows: Sequence[dict[str, Any]],
    impossible: str,
    *,
    dry_run: bool,
) -> None:
    """Try the elections on a copy of the cluster and print for which partitions one is possible, in a dry run also the
    writes; ends the program where nothing follows. ``impossible``: why, where no partition can have another leader."""
    trial = await run_on_copy(options, session, ("ElectLeaders", request))
    possible = _possible(trial)
    for row in rows:
        row["possible"] = row["partition"] in possible
    if not dry_run or options.output == "table":
        print_rows(rows, list(rows[0]), options.output)
    if dry_run:
        print_dry_run(options, trial, partitions=rows)
    some = any(row["possible"] for row in rows)
    if dry_run or not some:
        code = report(_refused(trial.answers[0]))
        if not some:
            fail(f"{impossible}: nothing would change", EXIT_REFUSED)
        sys.exit(code)


async def _elect(options: Options, session: Session, request: pb.ElectLeadersRequest, what: str) -> NoReturn:
    _end(request, await ask(options, session, "ElectLeaders", request), what)


def _end(request: pb.ElectLeadersRequest, answer: Any, what: str) -> NoReturn:
    """Print how many are done, and the refusals; ends the program."""
    refused = _refused(answer)
    wanted = len(request.topic_partitions)
    note(f"{wanted - len(refused)} of {wanted} partitions are {what}")
    sys.exit(report(refused))


def _refused(answer: Any) -> list[Refusal]:
    """Refusals of an election; a partition that already has the leader counts as done."""
    done = (common_pb2.NONE, common_pb2.ELECTION_NOT_NEEDED)
    return refusals((f"{r.topic}-{r.partition}", r) for r in answer.results if r.error_code not in done)
