"""``broker-stub``: run one broker, or look at what one has on the disk."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from broker_stub import daemon, settings
from broker_stub.control.replicas import describe
from broker_stub.errors import BrokerError, StorageFault
from broker_stub.log import dump
from broker_stub.log.errors import LogError
from broker_stub.storage import read_broker_id, read_contents
from broker_stub.zookeeper.registration import generate_broker_id

_Command = Callable[..., None]


def _setting_options(command: _Command) -> _Command:
    """An option for each setting; texts, as `settings.load` is what checks them."""
    for setting in reversed(settings.SETTINGS):
        command = click.option(setting.flag, setting.name, metavar="TEXT", help=setting.help)(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """A small broker for the partition controller."""
    if not __debug__:
        raise click.UsageError("do not run with python -O: the assertions are part of the program")


@main.command()
@_setting_options
def run(**flags: str | None) -> None:
    """Run a broker until SIGTERM or SIGINT.

    Exit codes: 0 stopped, 1 failed, 2 a setting is wrong.
    """
    try:
        loaded = settings.load(flags, os.environ)
        if loaded.broker_id == settings.GENERATED:
            loaded = replace(loaded, broker_id=_own_id(loaded))
    except BrokerError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(error.exit_code)
    sys.exit(daemon.run(loaded))


def _own_id(loaded: settings.Settings) -> int:
    """What the data directory says, or an id that nobody had before. Raises BrokerError."""
    try:
        found = read_broker_id(loaded.data_dir)
    except OSError as error:
        raise StorageFault(f"data directory {loaded.data_dir} cannot be read: {error}") from error
    if found is not None:
        return found
    return generate_broker_id(loaded.zookeeper, loaded.connection_timeout_ms)


@main.command()
@click.option(
    "--data-dir", required=True, type=click.Path(path_type=Path), help="Data directory of a broker."
)
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="Format."
)
def inspect(data_dir: Path, output: str) -> None:
    """Print the partitions in a data directory, in the state last written. No broker need run."""
    try:
        broker_id = read_broker_id(data_dir)
        if broker_id is None:
            raise BrokerError(f"{data_dir} is no broker's data directory: it holds no meta.properties")
        contents = read_contents(data_dir, ["state-log"])
    except (BrokerError, OSError) as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)
    replicas = [describe(contents.replicas[key], broker_id) for key in sorted(contents.replicas)]
    problems = [problem._asdict() for problem in contents.problems]
    if output == "json":
        found = {"broker_id": broker_id, "partitions": replicas, "problems": problems}
        click.echo(json.dumps(found, indent=2))
        return
    _print_table(broker_id, replicas)
    for problem in problems:
        click.echo(f"{problem['path']}: {problem['problem']}", err=True)


@main.command("dump-log")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--records", is_flag=True, help="Print the records too.")
def dump_log(folder: Path, records: bool) -> None:
    """Print a replica's log (DATA_DIR/TOPIC-PARTITION): leader epochs, batches, and what is damaged.

    Nothing is repaired, and a broker may be running. Exit code 1 when something is damaged.
    """
    damaged = False
    try:
        for row in dump.rows(folder, with_records=records):
            damaged = damaged or row.lstrip().startswith("PROBLEM")
            click.echo(row)
    except LogError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)
    sys.exit(1 if damaged else 0)


def _print_table(broker_id: int, replicas: list[dict[str, Any]]) -> None:
    columns = ("topic", "partition", "topic_id", "role", "leader", "leader_epoch", "partition_epoch", "isr")
    table = Table(*columns, title=f"broker {broker_id}: {len(replicas)} partitions")
    for replica in replicas:
        values = [replica[column] for column in columns]
        table.add_row(*("" if value is None else str(value) for value in values))
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table)
