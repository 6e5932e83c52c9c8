"""``--dry-run``: the writes and pushes of requests, computed by the controller's own code on a copy of the cluster.

The active controller runs it, with the state that only it knows. If no controller answers, pctl runs it on the state
in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import click
from google.protobuf.message import Message

from controller.cli.common.options import Options
from controller.cli.common.output import fail, note, print_data, print_rows
from controller.cli.computed import snapshots
from controller.core.outbox import PushKind
from controller.runtime.zookeeper.session import Session
from proto.gen import inspection_pb2 as pb

#: Kinds of push by column name.
PUSH_COLUMNS = {kind.name.lower(): kind.value for kind in PushKind}


class DryRun(NamedTuple):
    """The response to each request; ``data``: source, writes, pushes and notes, as in JSON output."""

    answers: list[Any]
    data: dict[str, Any]


async def run_on_copy(options: Options, session: Session, *requests: tuple[str, Message]) -> DryRun:
    """Run requests, each with its method of AdminService, in order on a copy of the cluster.

    Ends the program if one of them is invalid.
    """
    request = pb.DryRunRequest(
        steps=[pb.DryRunStep(method=name, request=body.SerializeToString()) for name, body in requests]
    )
    response = await snapshots.ask_unless_offline(options, session, "DryRun", request)
    if response is None:
        return await _from_zookeeper(session, request)
    kinds = [_response_of(name) for name, _ in requests]
    answers = [kind.FromString(data) for kind, data in zip(kinds, response.responses, strict=True)]
    return DryRun(answers, snapshots.from_response(response, "dry_run"))


def _response_of(method: str) -> type[Message]:
    from controller.runtime.rpc.methods import ADMIN_SERVICE, response_of

    return response_of(ADMIN_SERVICE, method)


async def _from_zookeeper(session: Session, request: pb.DryRunRequest) -> DryRun:
    # Not imported above: most commands use no dry run.
    from controller.planning.snapshot import PlanError
    from controller.runtime.rpc import dry_run
    from controller.runtime.rpc.translate.topics import BadRequestError
    from controller.runtime.zookeeper import single_codecs

    cluster_state, snapshot = await snapshots.read_snapshot(session)
    try:
        steps = dry_run.read(request)
        paths = dry_run.paths(steps)
        nodes = await single_codecs.read_nodes(session, paths)
        known = dry_run.with_nodes(snapshot, paths, nodes)
        result = dry_run.run(known, steps, controller_active=cluster_state.controller_id >= 0)
    except (BadRequestError, PlanError) as error:
        fail(str(error))
    return DryRun(list(result.responses), snapshots.from_snapshot(result.data))


def print_dry_run(options: Options, trial: DryRun, **shown: Any) -> None:
    """Print writes and pushes; ``shown``: the first fields of JSON and YAML output."""
    data = trial.data
    if options.output != "table":
        print_data({**shown, **data}, options.output)
        return
    if shown and data["writes"]:
        click.echo()
    _print_writes(data["writes"])
    rows = [
        {"broker": broker, **{column: counts.get(kind) for column, kind in PUSH_COLUMNS.items()}}
        for broker, counts in sorted(data["pushes"].items(), key=lambda item: int(item[0]))
    ]
    if rows:
        click.echo("\npartitions pushed to each broker:")
        print_rows(rows, ("broker", *PUSH_COLUMNS), "table")
    for text in data["notes"]:
        note(text)


def _print_writes(writes: Sequence[Mapping[str, Any]]) -> None:
    if not writes:
        note("nothing would be written")
        return
    phases = [(when, list(rows)) for when, rows in groupby(writes, key=lambda row: str(row["when"]))]
    for position, (when, rows) in enumerate(phases):
        if len(phases) > 1:
            click.echo("\n" * (position > 0) + f"{when}:")
        shown = [{k: "(empty)" if v == "" else v for k, v in row.items()} for row in rows]
        print_rows(shown, ("path", "old", "new"), "table")
