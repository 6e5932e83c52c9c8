"""``partition-controller playground``."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import click

from controller.cli.common.options import FILE
from controller.errors import ControllerError
from controller.exit_codes import EXIT_FAILED

#: Kafka brokers in the playground.
KAFKA_BROKERS = 3


class Brokers(click.IntRange):
    """A number of this project's brokers, or 0 for ``kafka``."""

    def __init__(self) -> None:
        super().__init__(1, 50)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return 0 if value == "kafka" else int(super().convert(value, param, ctx))


@click.command()
@click.option(
    "--script",
    type=click.Choice(["demo", "failover", "rolling", "operations", "gameday", "gameday-short", "idle"]),
    default="demo",
    show_default=True,
)
@click.option(
    "--brokers",
    type=Brokers(),
    default="4",
    show_default=True,
    metavar="COUNT|kafka",
    help="brokers of this project, or three of Kafka",
)
@click.option("--controllers", type=click.IntRange(2, 9), default=2, show_default=True)
@click.option("--data-dir", type=FILE, default=Path("run"), show_default=True)
@click.option(
    "--zookeeper", "connect", help="HOST:PORT[,...] of a ZooKeeper to use instead of the embedded one"
)
@click.option("--secure", is_flag=True, help="gRPC and HTTP by mutual TLS, with throw-away certificates")
@click.option(
    "--report/--no-report",
    "with_report",
    default=None,
    help="analyse the logs with Spark at the end; after --script idle, which Ctrl-C ends, only with --report",
)
def playground(
    script: str,
    brokers: int,
    controllers: int,
    data_dir: Path,
    connect: str | None,
    secure: bool,
    with_report: bool | None,
) -> None:
    """Run a whole cluster on this machine: ZooKeeper, controllers, brokers, failures, and the report."""
    from controller.playground import command as ground
    from controller.playground.cluster import Playground

    try:
        directory = ground.fresh_directory(data_dir)
    except OSError as error:
        raise click.BadParameter(f"{str(data_dir)!r}: {error.strerror}", param_hint="--data-dir") from None
    cluster = Playground(
        directory,
        controllers,
        brokers or KAFKA_BROKERS,
        connect,
        kafka=not brokers,
        secure=secure,
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        cluster.start()
        asyncio.run(ground.play(cluster, script))
        cluster.stop()
        if with_report or (with_report is None and script != "idle"):
            page = ground.report(cluster)
            click.echo(f"\nReport: {os.path.relpath(page)}\nLogs:   {os.path.relpath(cluster.directory)}")
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        sys.exit(EXIT_FAILED)
    except ControllerError as error:
        click.echo(f"partition-controller playground: {error}", err=True)
        sys.exit(EXIT_FAILED)
    finally:
        cluster.stop()
