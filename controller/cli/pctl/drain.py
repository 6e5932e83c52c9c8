"""``pctl maintenance drain``, ``undrain`` and ``cancel-shutdown``: single brokers, through the active controller."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

import click

from controller.cli.common import snapshots
from controller.cli.common.attribution import signature
from controller.cli.common.confirmation import (
    Progress,
    ask,
    confirm,
    dry_run_option,
    follow,
    no_wait_option,
    nothing_to_do,
    yes_option,
)
from controller.cli.common.options import BROKER, EPOCH, Options, Verb, on_cluster
from controller.cli.common.output import fail, note, print_rows
from controller.cli.pctl.maintenance import Step, carry_out, dry_run_of, in_words, present, signed
from controller.client import admin
from controller.core.cluster.maintenance import movable
from controller.core.model import Cluster, Partition
from controller.exit_codes import EXIT_REFUSED
from controller.planning.context import cluster_of
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ClusterState
from controller.runtime.zookeeper.session import Session
from proto.gen import maintenance_pb2 as pb

_BROKERS = click.argument("brokers", nargs=-1, required=True, type=BROKER, metavar="BROKER...")


@click.command("drain", cls=Verb)
@_BROKERS
@click.option("--force", is_flag=True, help="also where no other broker is left that may lead")
@no_wait_option("they lead nothing that another could")
@signed(begins=True)
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
    cluster_state = await cluster_reader.look(session)
    for broker_id in brokers:
        if broker_id not in cluster_state.brokers:
            fail(f"no broker {broker_id} is registered; registered are {sorted(cluster_state.brokers)}")
    if not force and not cluster_state.brokers.keys() - cluster_state.maintenance.drained.keys() - set(
        brokers
    ):
        fail(
            f"every registered broker ({', '.join(map(str, sorted(cluster_state.brokers)))}) would be drained: "
            "nobody is left to lead instead (--force does it all the same); nothing was changed",
            EXIT_REFUSED,
        )
    steps = [_drain_step(broker_id, True, reason, by, force) for broker_id in brokers]
    if dry_run:
        await dry_run_of(options, session, steps)
        return
    _print_load(options, cluster_state, brokers)
    confirm(f"Drain {_named(brokers)}?", yes=yes)
    code = await carry_out(options, session, steps)
    led = sum(_leads(cluster_state, b) for b in brokers)
    if code == 0 and led and not no_wait:
        await _wait(options, session, brokers, led)
    if code == 0:
        note(f"{_named(brokers)}: drained")
    sys.exit(code)


@click.command("undrain", cls=Verb)
@_BROKERS
@signed(begins=False)
@click.pass_obj
@on_cluster
async def undrain(
    options: Options,
    session: Session,
    brokers: tuple[int, ...],
    reason: str | None,
    author: str | None,
    yes: bool,
    dry_run: bool,
) -> None:
    """Allow leaderships on brokers again; they return by rebalancing or by pctl elect."""
    by = signature(author)
    cluster_state = await cluster_reader.look(session)
    drained = [b for b in dict.fromkeys(brokers) if b in cluster_state.maintenance.drained]
    if not drained:
        nothing_to_do(options, f"{_named(brokers)}: not drained", dry_run=dry_run)
        return
    steps = [_drain_step(broker_id, False, reason, by) for broker_id in drained]
    if dry_run:
        await dry_run_of(options, session, steps)
        return
    _print_load(options, cluster_state, drained)
    confirm(f"Allow leaderships on {_named(drained)} again?", yes=yes)
    code = await carry_out(options, session, steps)
    if code == 0:
        note(f"{_named(drained)}: not drained any more")
    sys.exit(code)


def _drain_step(broker_id: int, drained: bool, reason: str | None, author: str, force: bool = False) -> Step:
    return Step(
        "SetDrain",
        pb.SetDrainRequest(broker_id=broker_id, drained=drained, reason=reason, author=author, force=force),
        f"broker {broker_id}",
    )


def _named(brokers: Sequence[int]) -> str:
    return f"broker{'s' * (len(brokers) > 1)} {', '.join(map(str, brokers))}"


def _print_load(options: Options, cluster_state: ClusterState, brokers: Sequence[int]) -> None:
    """What brokers lead and hold, and whether they are drained."""
    rows = [
        {
            "broker": b,
            "leaders": _leads(cluster_state, b),
            "replicas": sum(b in p.replicas for p in cluster_state.partitions),
            "drained": in_words(cluster_state.maintenance.drained.get(b)),
        }
        for b in brokers
    ]
    print_rows(rows, ("broker", "leaders", "replicas", "drained"), options.output)


def _leads(cluster_state: ClusterState, broker_id: int) -> int:
    return sum(p.state is not None and p.state.leader == broker_id for p in cluster_state.partitions)


async def _wait(options: Options, session: Session, brokers: Sequence[int], led: int) -> None:
    """Until what is left to lead on these brokers nobody else could lead, which is said. ``led``: how many partitions
    they led before."""
    progress = await follow(
        options, "leaderships went to others", partial(_progress, options, session, brokers, led)
    )
    if progress.left:
        fail(
            f"after {options.timeout_s:g} s {_named(brokers)} still lead {progress.left} partitions that others could "
            f"lead: {'; '.join(progress.held[:5])}; it goes on by itself"
        )
    remaining = _led(await _look(options, session), brokers)
    if remaining:
        names = ", ".join(p.name for p in remaining[:10]) + (", ..." if len(remaining) > 10 else "")
        goes = "goes" if len(brokers) == 1 else "go"
        note(f"{_named(brokers)} {goes} on leading what nobody else can for now: {names}")


async def _progress(options: Options, session: Session, brokers: Sequence[int], led: int) -> Progress:
    """Of all that was led; what nobody else can take over is neither done nor waited for."""
    cluster = await _look(options, session)
    now = _led(cluster, brokers)
    left = movable(cluster, now)
    stay = len(now) - len(left)
    return Progress(len(left), max(led - stay, len(left)), tuple(p.name for p in left))


async def _look(options: Options, session: Session) -> Cluster:
    """The cluster as stored, and which brokers are about to leave."""
    cluster_state = await cluster_reader.look(session)
    answer = await admin.ask(
        cluster_state.controller_endpoint,
        "DescribeMaintenance",
        pb.DescribeMaintenanceRequest(),
        options.timeout_s,
    )
    cluster = cluster_of(snapshots.snapshot_of(cluster_state))
    cluster.shutting_down.update(answer.shutting_down)
    return cluster


def _led(cluster: Cluster, brokers: Sequence[int]) -> list[Partition]:
    return [
        p for p in cluster.partitions() if p.leadership is not None and p.leadership.leader in set(brokers)
    ]


@click.command("cancel-shutdown", cls=Verb)
@click.argument("broker", type=BROKER)
@click.option("--epoch", type=EPOCH, help="only this incarnation of it")
@yes_option
@dry_run_option
@click.pass_obj
@on_cluster
async def cancel_shutdown(
    options: Options, session: Session, broker: int, epoch: int | None, yes: bool, dry_run: bool
) -> None:
    """A broker that asked to leave stays: it may lead again."""
    asked = await ask(options, session, "DescribeMaintenance", pb.DescribeMaintenanceRequest())
    cluster_state = await cluster_reader.look(session, topics=(), states=False)
    if broker not in cluster_state.brokers:
        fail(f"no broker {broker} is registered; registered are {sorted(cluster_state.brokers)}")
    if broker not in asked.shutting_down:
        nothing_to_do(options, f"broker {broker} is not shutting down", dry_run=dry_run)
        return
    step = Step(
        "CancelShutdown",
        pb.CancelShutdownRequest(broker_id=broker, broker_epoch=-1 if epoch is None else epoch),
        f"broker {broker}",
    )
    if dry_run:
        await dry_run_of(options, session, [step])
        return
    present(options, cluster_state.maintenance, asked.shutting_down)
    confirm(f"Let broker {broker} stay?", yes=yes)
    code = await carry_out(options, session, [step])
    if code == 0:
        note(f"broker {broker} stays")
    sys.exit(code)
