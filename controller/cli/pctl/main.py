"""``pctl``: the operator's tool. Reads the cluster from ZooKeeper; asks the active controller what only it knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from controller import __version__
from controller.cli.common.options import STYLES, Listing, Options, Seconds, Verbs, on_cluster
from controller.cli.common.output import fail, note, print_fields, print_rows
from controller.cli.pctl.brokers import brokers
from controller.cli.pctl.config import config
from controller.cli.pctl.create_topic import alter_topic, create_topic
from controller.cli.pctl.delete_topics import delete_topics
from controller.cli.pctl.drain import cancel_shutdown, drain, undrain
from controller.cli.pctl.elect import elect
from controller.cli.pctl.explain import explain
from controller.cli.pctl.features import features
from controller.cli.pctl.history import history
from controller.cli.pctl.maintenance import kept_from, maintenance
from controller.cli.pctl.partitions import PARTITION_COLUMNS, partition_row
from controller.cli.pctl.plan import plan
from controller.cli.pctl.reassign import reassign
from controller.cli.pctl.records import consume, produce
from controller.cli.pctl.stoppable import stoppable
from controller.cli.pctl.watch import watch
from controller.client import admin
from controller.core import znode_paths
from controller.errors import ControllerError
from controller.runtime.config import connect_string
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ClusterState, PartitionInfo
from controller.runtime.zookeeper.session import Session


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__)
@click.option(
    "--zookeeper",
    envvar="PCTL_ZOOKEEPER",
    default="127.0.0.1:2181",
    show_default=True,
    help="HOST:PORT[,...][/chroot], also from PCTL_ZOOKEEPER",
)
@click.option("-o", "--output", type=click.Choice(STYLES), default="table", show_default=True)
@click.option(
    "--timeout",
    "timeout_s",
    type=Seconds(0.1, 600),
    default=10,
    show_default=True,
    help="seconds to wait for ZooKeeper, for an answer, and for what goes on",
)
@click.pass_context
def main(context: click.Context, zookeeper: str, output: str, timeout_s: float) -> None:
    """Look at a cluster and act on it.

    Exit codes: 0 done, 1 failed, 2 usage, 3 refused by a safety check.
    """
    try:
        context.obj = Options(connect_string(zookeeper), output, timeout_s)
    except ValueError as error:
        raise click.UsageError(f"--zookeeper {zookeeper!r}: must be {error}") from None


def _warn_problems(cluster_state: ClusterState) -> None:
    for path, problem in sorted(cluster_state.problems.items()):
        note(f"pctl: unreadable znode {path}: {problem}")


# --- looking -------------------------------------------------------------------------------------------------


@main.command(cls=Listing)
@click.pass_obj
@on_cluster
async def cluster(options: Options, session: Session) -> None:
    """Who is the controller, and how the cluster does."""
    cluster_state = await cluster_reader.look(session)
    fields: dict[str, Any] = {
        "controller": cluster_state.controller_id if cluster_state.controller_id >= 0 else "none",
        "controller_endpoint": cluster_state.controller_endpoint,
        "controller_epoch": cluster_state.controller_epoch,
        "candidates": [c.controller_id for c in cluster_state.controllers],
        "brokers": len(cluster_state.brokers),
        "topics": len(cluster_state.topics),
        "partitions": len(cluster_state.partitions),
        "unavailable_partitions": sum(not p.available for p in cluster_state.partitions),
        "under_replicated_partitions": sum(p.under_replicated() for p in cluster_state.partitions),
        "not_on_preferred_leader": sum(
            p.available and p.state.leader != p.replicas[0] for p in cluster_state.partitions if p.state
        ),
        "topics_being_deleted": cluster_state.deleting,
        "unreadable_znodes": len(cluster_state.problems),
        **kept_from(cluster_state.maintenance),
    }
    if cluster_state.controller_endpoint:
        answer = await admin.describe_cluster(cluster_state.controller_endpoint, options.timeout_s)
        if isinstance(answer, str):
            fields["controller_answers"] = f"no ({answer})"
        elif answer.error_code:
            fields["controller_answers"] = (
                "no (NOT_CONTROLLER: its failover is not completed, or it resigned)"
            )
        else:
            fields["controller_answers"] = "yes"
            fields["pending_pushes"] = sum(b.pending_pushes for b in answer.brokers)
    print_fields(fields, options.output)
    _warn_problems(cluster_state)


@main.command(cls=Listing)
@click.pass_obj
@on_cluster
async def controllers(options: Options, session: Session) -> None:
    """The candidates, and which of them is active."""
    cluster_state = await cluster_reader.look(session, topics=(), states=False)
    rows = [
        {
            "controller": c.controller_id,
            "role": "active" if c.active else "standby",
            "grpc": c.endpoint,
            "http": c.http,
        }
        for c in cluster_state.controllers
    ]
    print_rows(rows, ("controller", "role", "grpc", "http"), options.output)
    _warn_problems(cluster_state)


@main.command(cls=Listing)
@click.option("--topic", "topics", multiple=True, help="only this topic; may be repeated")
@click.option("--unavailable", is_flag=True, help="only those without a leader")
@click.option("--under-replicated", is_flag=True, help="only those with a replica out of sync")
@click.pass_obj
@on_cluster
async def partitions(
    options: Options, session: Session, topics: tuple[str, ...], unavailable: bool, under_replicated: bool
) -> None:
    """Partitions: leader, epochs, ISR, and why one is not well."""
    cluster_state = await cluster_reader.look(session, topics=topics or None)
    for name in topics:
        if name not in cluster_state.topics and znode_paths.topic_path(name) not in cluster_state.problems:
            fail(f"no topic {name!r}")
    alive = list(cluster_state.brokers)
    chosen = [
        p
        for p in cluster_state.partitions
        if (not unavailable or not p.available or (p.state is not None and p.state.leader not in alive))
        and (not under_replicated or p.under_replicated())
    ]
    print_rows([partition_row(p, alive) for p in chosen], PARTITION_COLUMNS, options.output)
    _warn_problems(cluster_state)


# --- topics --------------------------------------------------------------------------------------------------


@main.group()
def topics() -> None:
    """List, describe, create, alter and delete topics."""


@topics.command("list", cls=Listing)
@click.pass_obj
@on_cluster
async def topics_list(options: Options, session: Session) -> None:
    """All topics."""
    cluster_state = await cluster_reader.look(session)
    by_topic: dict[str, list[PartitionInfo]] = {}
    for partition in cluster_state.partitions:
        by_topic.setdefault(partition.topic, []).append(partition)
    rows = [
        {
            "topic": name,
            "id": info.topic_id,
            "partitions": len(info.partitions),
            "replication_factor": max((len(r) for r in info.partitions.values()), default=0),
            "unavailable": sum(not p.available for p in by_topic.get(name, ())),
            "under_replicated": sum(p.under_replicated() for p in by_topic.get(name, ())),
            "deleting": name in cluster_state.deleting,
        }
        for name, info in sorted(cluster_state.topics.items())
    ]
    columns = (
        "topic",
        "id",
        "partitions",
        "replication_factor",
        "unavailable",
        "under_replicated",
        "deleting",
    )
    print_rows(rows, columns, options.output)
    _warn_problems(cluster_state)


@topics.command("describe", cls=Listing)
@click.argument("topic")
@click.pass_obj
@on_cluster
async def topics_describe(options: Options, session: Session, topic: str) -> None:
    """One topic, partition by partition."""
    cluster_state = await cluster_reader.look(session, topics=[topic])
    if topic not in cluster_state.topics:
        path = znode_paths.topic_path(topic)
        fail(
            f"{path}: {cluster_state.problems[path]}"
            if path in cluster_state.problems
            else f"no topic {topic!r}"
        )
    alive = list(cluster_state.brokers)
    print_rows([partition_row(p, alive) for p in cluster_state.partitions], PARTITION_COLUMNS, options.output)
    _warn_problems(cluster_state)


# --- report --------------------------------------------------------------------------------------------------


@main.command()
@click.argument("log_dirs", nargs=-1, required=True, metavar="LOGDIR...")
@click.option("--out", "out_dir", type=click.Path(path_type=Path), default=Path("report"), show_default=True)
@click.option("--master", help="Spark master [default: all cores of this machine]")
@click.pass_obj
def report(options: Options, log_dirs: tuple[str, ...], out_dir: Path, master: str | None) -> None:
    """Analyse the state-change logs of all nodes with Spark: Parquet tables and one HTML page."""
    # Spark takes a second to import: only this verb pays for it.
    from controller.analysis.job import run_report

    try:
        summary = run_report(log_dirs, out_dir, master=master, progress=note)
    except ControllerError as error:
        fail(str(error))
    fields = {name: getattr(summary, name) for name in summary.__dataclass_fields__}
    print_fields({k: str(v) if hasattr(v, "isoformat") else v for k, v in fields.items()}, options.output)


main.add_command(brokers)
main.add_command(produce)
main.add_command(consume)
main.add_command(reassign)
main.add_command(elect)
main.add_command(maintenance)
for verb in (drain, undrain, cancel_shutdown):
    maintenance.add_command(verb)
main.add_command(config)
main.add_command(features)
topics.add_command(create_topic)
topics.add_command(alter_topic)
topics.add_command(delete_topics)
main.add_command(plan)
main.add_command(stoppable)
main.add_command(explain)
main.add_command(history)
main.add_command(watch)

if __name__ == "__main__":
    main()
