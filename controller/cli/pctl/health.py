"""``pctl health`` and ``pctl wait``: is the cluster well, for monitoring and for scripts."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from typing import Any

import click

from controller.cli.common.cluster_state import fail_without_cluster
from controller.cli.common.options import Listing, Options, Verb
from controller.cli.common.output import fail, note, print_data
from controller.cli.common.progress import NOTE_EVERY_S, POLL_EVERY_S
from controller.client import admin
from controller.errors import ControllerError
from controller.exit_codes import EXIT_FAILED
from controller.planning.cluster_health import Finding, Seen, Tally, Told, Wrong, unfinished, wrong
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ClusterState
from controller.runtime.zookeeper.session import ConnectionLossError, Session
from proto.gen import admin_service_pb2 as pb
from proto.gen import maintenance_pb2
from proto.texts import printable

#: Exit code of ``health`` and ``wait`` where ZooKeeper does not answer.
EXIT_UNKNOWN = 3


@click.command(cls=Listing)
@click.pass_obj
def health(options: Options) -> None:
    """Name everything that is wrong with the cluster.

    That is: no controller, brokers gone, partitions without leader, below min.insync.replicas or under-replicated,
    unreadable znodes, a pause, maintenance, a freeze, brokers that take no pushes, share an address or belong to
    another cluster, what is in quarantine, a state-change log that cannot be written.

    Exit codes: 0 well, 1 something is wrong, 2 usage error, 3 cannot tell, as ZooKeeper does not answer.
    """
    try:
        found = asyncio.run(_wrong(options))
    except (ControllerError, ConnectionLossError) as error:
        fail(options.message_of(error), EXIT_UNKNOWN)
    _print(options, found)
    if found:
        sys.exit(EXIT_FAILED)


@click.command(cls=Verb)
@click.option(
    "--until",
    type=click.Choice(["healthy", "stable"]),
    default="stable",
    show_default=True,
    help="healthy: nothing is wrong (pctl health); stable: also no work is under way, such as reassignments",
)
@click.pass_obj
def wait(options: Options, until: str) -> None:
    """Wait until the cluster is well, at most for --timeout.

    Exit codes: 0 it is, 1 it is not yet, and why, 2 usage error, 3 cannot tell, as ZooKeeper does not answer.
    """
    try:
        found = asyncio.run(_wait(options, stable=until == "stable"))
    except (ControllerError, ConnectionLossError) as error:
        fail(options.message_of(error), EXIT_UNKNOWN)
    _print(options, found)
    if found:
        fail(f"not {until} after {options.timeout_s:g} s")


def _print(options: Options, found: Sequence[Finding]) -> None:
    if options.output == "table":
        for finding in found or ():
            click.echo(printable(finding.text))
        if not found:
            click.echo("well")
        return
    rows = [{"what": f.what.value, "count": f.number, "text": f.text} for f in found]
    print_data(rows if options.output == "tsv" else {"well": not found, "findings": rows}, options.output)


async def _wrong(options: Options) -> list[Finding]:
    async with options.connected() as session:
        now, described = await _look(options, session)
        return wrong_with(now, described)


def wrong_with(now: ClusterState, described: Any | str | None) -> list[Finding]:
    """Everything that is wrong. ``described``: the controller's DescribeCluster response; as text why it did not
    answer; None: there is no controller to ask."""
    tally = Tally(now.brokers)
    for p in now.partitions:
        min_isr, deleting = now.min_isr(p.topic), now.is_deleting(p.topic)
        tally.add(p.topic, p.partition, p.replicas, p.state, min_isr, deleting=deleting)
    told: dict[int, Told] | str | None
    log_problem = ("", 0)
    if described is None or isinstance(described, str):
        told = described
    else:
        log_problem = (described.state_log_problem, described.state_log_dropped)
        told = {
            b.broker_id: Told(b.push_problem, b.losses, b.hold_s, b.newer_states, b.newer_wait)
            for b in described.brokers
        }
    quarantined = [str(suspect.subject) for suspect in now.quarantine.quarantined()]
    seen = Seen(
        now.controller_id,
        tally,
        told,
        now.problems,
        now.maintenance,
        now.forgotten,
        quarantined,
        kraft=now.kraft,
        brokers=now.brokers,
        cluster_id=now.cluster_id,
        log_problem=log_problem,
    )
    return list(wrong(seen))


async def _look(options: Options, session: Session) -> tuple[ClusterState, Any | str | None]:
    """The cluster, and the controller's DescribeCluster response; as text why there is none."""
    now = await cluster_reader.look(session, configs=True)
    await fail_without_cluster(options.zookeeper, session, now)
    if not now.controller_endpoint:
        return now, None
    answer = await admin.describe_cluster(now.controller_endpoint, options.timeout_s, options.tls)
    return now, admin.not_described(answer) or answer


async def _wait(options: Options, *, stable: bool) -> list[Finding]:
    """The findings once there are none, or when time is up; each change is noted."""
    deadline, said, said_at = time.monotonic() + options.timeout_s, "", 0.0
    async with options.connected() as session:
        while True:
            found = await _findings(options, session, stable=stable)
            now, text = time.monotonic(), "; ".join(f.text for f in found)
            if not found or now > deadline:
                return found
            if text != said and now - said_at >= NOTE_EVERY_S:
                note(text)
                said, said_at = text, now
            await asyncio.sleep(POLL_EVERY_S)


async def _findings(options: Options, session: Session, *, stable: bool) -> list[Finding]:
    now, described = await _look(options, session)
    found = wrong_with(now, described)
    if found or not stable or described is None or isinstance(described, str):
        return found
    endpoint, timeout_s = now.controller_endpoint, options.timeout_s
    request = maintenance_pb2.DescribeMaintenanceRequest()
    every = pb.ListPartitionReassignmentsRequest()
    try:
        state = await admin.ask(endpoint, "DescribeMaintenance", request, timeout_s, options.tls)
        moves = await admin.ask(endpoint, "ListPartitionReassignments", every, timeout_s, options.tls)
    except admin.NoAnswerError as error:
        return [Finding(Wrong.CONTROLLER_SILENT, 1, str(error))]
    pending = sum(b.pending_pushes for b in described.brokers)
    return list(unfinished(pending, now.deleting, state.shutting_down, len(moves.partitions)))
