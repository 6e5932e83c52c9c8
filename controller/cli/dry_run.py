"""``--dry-run``: what a request would write and whom it would be told, by the controller's own code on a copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click

from controller.cli.output import print_data, print_rows
from controller.cli.verbs import Options
from controller.core.outbox import PushKind
from controller.core.requests import Answered, Asked
from controller.planning.executor import Executor, Pushes
from controller.planning.snapshot import Snapshot
from controller.planning.store import Change
from controller.runtime.plan_data import write_row

#: Columns of a table, by kind of push.
_COLUMNS = {kind.value: kind.name.lower() for kind in PushKind}


class DryRun(NamedTuple):
    """What the controller would answer, write and push."""

    reply: Answered
    changes: Sequence[Change]
    pushes: Pushes


def tried(snapshot: Snapshot, request: Asked, nodes: Mapping[str, Any] = {}) -> DryRun:
    """Have a request carried out on a copy of the cluster. ``nodes``: znodes by path that the snapshot lacks."""
    executor = Executor(snapshot)
    executor.store.nodes.update(nodes)
    reply = executor.ask(request)
    return DryRun(reply, executor.store.take_changes(), executor.take_pushes())


def show(options: Options, made: DryRun, **shown: Any) -> None:
    """Print writes and pushes; ``shown`` is what JSON and YAML begin with."""
    writes = [write_row(change) for change in made.changes]
    if options.output != "table":
        pushes = {str(broker): told for broker, told in sorted(made.pushes.items())}
        print_data({**shown, "writes": writes, "pushes": pushes}, options.output)
        return
    print_rows(writes, ("path", "old", "new"), "table")
    rows = [
        {"broker": broker, **{column: told.get(kind) for kind, column in _COLUMNS.items()}}
        for broker, told in sorted(made.pushes.items())
    ]
    if rows:
        click.echo("\npartitions told:")
        print_rows(rows, ("broker", *_COLUMNS.values()), "table")
