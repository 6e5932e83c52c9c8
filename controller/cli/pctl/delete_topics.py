"""``pctl topics delete``: shows what is there, asks, and waits until it is gone."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import click

from controller.cli.common import dry_run as trial
from controller.cli.common.confirmation import (
    Progress,
    ask,
    confirm,
    dry_run_option,
    follow,
    no_wait_option,
    refusals,
    report,
    yes_option,
)
from controller.cli.common.options import Options, Verb, on_cluster
from controller.cli.common.output import fail, note, print_rows
from controller.core import znode_paths
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.cluster_reader import ClusterState
from controller.runtime.zookeeper.session import Session
from proto.gen import admin_service_pb2 as pb

_COLUMNS = ("topic", "id", "partitions", "replicas", "brokers", "size", "unavailable", "deleting")


@click.command("delete", cls=Verb)
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
@yes_option
@dry_run_option
@no_wait_option("they are gone")
@click.pass_obj
@on_cluster
async def delete_topics(
    options: Options, session: Session, names: tuple[str, ...], yes: bool, dry_run: bool, no_wait: bool
) -> None:
    """Delete topics with all their records. There is no way back."""
    names = tuple(dict.fromkeys(names))
    cluster_state = await cluster_reader.look(session, topics=names)
    for name in names:
        if name not in cluster_state.topics and znode_paths.topic_path(name) not in cluster_state.problems:
            fail(f"no topic {name!r}")
    present = [_present(cluster_state, name) for name in names]
    request = pb.DeleteTopicsRequest(topics=[pb.DeletableTopic(name=name) for name in names])
    if not dry_run or options.output == "table":
        print_rows(present, _COLUMNS, options.output)
    if dry_run:
        made = await trial.tried(options, session, ("DeleteTopics", request))
        trial.show(options, made, topics=present)
        sys.exit(report(refusals((entry.name, entry) for entry in made.answers[0].responses)))
    confirm(f"Delete {len(names)} topic{'s' * (len(names) > 1)} with all records?", yes=yes)
    answer = await ask(options, session, "DeleteTopics", request)
    refused = refusals((entry.name, entry) for entry in answer.responses)
    code = report(refused)
    accepted = [name for name in names if name not in {one.name for one in refused}]
    if accepted and no_wait:
        note(f"{len(accepted)} topics are being deleted")
    elif accepted:
        await _wait(options, session, accepted)
    sys.exit(code)


def _present(cluster_state: ClusterState, name: str) -> dict[str, Any]:
    """One topic as it is. How large it is, only its brokers know."""
    info = cluster_state.topics.get(name)
    replicas = [b for ids in info.partitions.values() for b in ids] if info else []
    return {
        "topic": name,
        "id": info.topic_id if info else None,
        "partitions": len(info.partitions) if info else None,
        "replicas": len(replicas) if info else None,
        "brokers": sorted(set(replicas)),
        "size": "unknown",
        "unavailable": sum(not p.available for p in cluster_state.partitions if p.topic == name),
        "deleting": name in cluster_state.deleting,
    }


async def _wait(options: Options, session: Session, names: list[str]) -> None:
    progress = await follow(options, "topics are gone", partial(_progress, options, session, names))
    if progress.left:
        why = f" ({'; '.join(progress.held)})" if progress.held else ""
        fail(
            f"after {options.timeout_s:g} s {progress.left} of {len(names)} topics are still there{why}; "
            "their deletion goes on by itself"
        )


async def _progress(options: Options, session: Session, names: list[str]) -> Progress:
    """The marker is the last thing that goes."""
    left = set(names) & set((await cluster_reader.look(session, topics=(), states=False)).deleting)
    if not left:
        return Progress(0, len(names))
    answer = await ask(options, session, "ListTopicDeletions", pb.ListTopicDeletionsRequest())
    held = [
        f"{d.name}: {d.pending_reason or 'waits for its brokers'}, {d.replicas_left} replicas left"
        for d in answer.topics
        if d.name in left
    ]
    return Progress(len(left), len(names), tuple(held))
