"""``pctl lake``: the lines of all logs, typed and in columns, kept up to date for reports (docs/lake.md)."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from dataclasses import asdict

import click

from controller.analysis.errors import require_spark
from controller.cli.common.options import SPARK_DIRECTORY, SPARK_MASTER, Options, Seconds, Verb, Verbs
from controller.cli.common.output import fail, note, print_fields
from controller.cli.pctl.analysis.ending import end_in_order
from controller.errors import ControllerError


@click.group(cls=Verbs)
def lake() -> None:
    """Keep what the logs of all nodes say in a table, which outlives rotated logs: update, follow."""


def _common(command: Callable[..., None]) -> Callable[..., None]:
    for add in (
        click.option("--master", type=SPARK_MASTER, help="Spark master [default: all cores of this machine]"),
        click.option(
            "--lake",
            "directory",
            type=SPARK_DIRECTORY,
            required=True,
            metavar="DIR",
            help="the table's directory, or s3a://BUCKET/...",
        ),
        click.argument("log_dirs", nargs=-1, required=True, type=SPARK_DIRECTORY, metavar="LOGDIR..."),
    ):
        command = add(command)
    return click.pass_obj(command)


@lake.command(cls=Verb)
@_common
def update(options: Options, log_dirs: tuple[str, ...], directory: str, master: str | None) -> None:
    """Take what is new in the logs in and below LOGDIR... into the lake."""
    end_in_order()
    try:
        require_spark()
        from controller.analysis.lake.job import run_update

        summary = run_update(log_dirs, directory, master=master, progress=note)
    except ControllerError as error:
        fail(str(error))
    print_fields(asdict(summary), options.output)


@lake.command(cls=Verb)
@click.option(
    "--every", "every_s", type=Seconds(0.1, 3600), default=10, show_default=True, help="seconds between looks"
)
@_common
def follow(
    options: Options, log_dirs: tuple[str, ...], directory: str, master: str | None, every_s: float
) -> None:
    """Take what is written to the logs in and below LOGDIR... into the lake until Ctrl-C or SIGTERM."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        require_spark()
        from controller.analysis.lake.job import run_follow

        summary = run_follow(log_dirs, directory, master=master, every_s=every_s, stop=stop, progress=note)
    except ControllerError as error:
        fail(str(error))
    print_fields(asdict(summary), options.output)
