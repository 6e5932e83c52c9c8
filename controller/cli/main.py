"""``partition-controller``: run, check-config, check-cluster, zookeeper, playground, workload, and more."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import click

from controller import __version__
from controller.cli.certificates import certificates
from controller.cli.check_cluster import check_cluster
from controller.cli.common.output import print_table
from controller.cli.common.settings import FLAGS, WithSettings, check_access, load_settings, with_settings
from controller.cli.tokens import tokens
from controller.cli.workload import verdict, workload
from controller.cli.zookeeper_security_migration import zookeeper_security_migration
from controller.embedded_zookeeper.ensemble import EmbeddedZooKeeper
from controller.errors import ConfigError, ControllerError
from controller.exit_codes import EXIT_FAILED, EXIT_USAGE
from controller.runtime import config, process

#: Kafka brokers in the playground.
KAFKA_BROKERS = 3


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """The controller of a partitioned, replicated cluster, on ZooKeeper.

    Every setting of run and check-config can be given as the environment variable PARTITION_CONTROLLER_<NAME> or as
    a key of the TOML file that --config names. A few, those that run --help lists, also have a flag. A flag overrides
    the environment variable, which overrides the file. check-config prints all settings.
    """


@main.command(cls=WithSettings)
@with_settings(FLAGS)
def run(config_file: Path | None, **flags: object | None) -> None:
    """Run the controller until SIGTERM or SIGINT.

    Only the settings below have flags; check-config prints all settings.
    """
    settings = load_settings(config_file, flags)
    try:
        sys.exit(process.run(settings, lambda: config.load(flags, config_file)))
    except ConfigError as error:
        click.echo(f"partition-controller: {error}", err=True)
        sys.exit(EXIT_USAGE)
    except ControllerError as error:
        click.echo(f"partition-controller: {error}", err=True)
        sys.exit(EXIT_FAILED)


@main.command("check-config", cls=WithSettings)
@with_settings(FLAGS)
def check_config(config_file: Path | None, **flags: object | None) -> None:
    """Validate the settings and print each with its effective value and its source."""
    settings = load_settings(config_file, flags)
    print_table(("setting", "value", "from"), config.describe(settings))
    check_access(settings)


@main.command()
@click.option(
    "--port", type=click.IntRange(0, 65535), default=2181, show_default=True, help="first client port"
)
@click.option(
    "--data-dir", type=click.Path(path_type=Path), default=Path("zookeeper-data"), show_default=True
)
@click.option("--servers", type=click.Choice(["1", "3", "5"]), default="1", show_default=True)
def zookeeper(port: int, data_dir: Path, servers: str) -> None:
    """Run the ZooKeeper that PySpark ships, one server or an ensemble, until SIGTERM or SIGINT."""
    embedded = EmbeddedZooKeeper(data_dir.absolute(), int(servers), port)
    stop = threading.Event()
    signal.signal(signal.SIGHUP, lambda *_: click.echo("SIGHUP: there is nothing to reload", err=True))
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: stop.set())
    try:
        embedded.start()
    except ControllerError as error:
        click.echo(f"partition-controller zookeeper: {error}", err=True)
        sys.exit(EXIT_FAILED)
    click.echo(f"ZooKeeper is serving at {embedded.connect_string}")
    try:
        while not stop.wait(0.5):
            ended = [s for s in embedded.servers if not s.running()]
            if ended:
                ports = ", ".join(str(s.client_port) for s in ended)
                click.echo(f"ZooKeeper server on port {ports} ended unexpectedly; see {data_dir}", err=True)
                sys.exit(EXIT_FAILED)
    finally:
        embedded.stop()


class Brokers(click.IntRange):
    """A number of this project's brokers, or 0 for ``kafka``."""

    def __init__(self) -> None:
        super().__init__(1, 50)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return 0 if value == "kafka" else int(super().convert(value, param, ctx))


@main.command("playground")
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
@click.option("--data-dir", type=click.Path(path_type=Path), default=Path("run"), show_default=True)
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
def playground_(
    script: str,
    brokers: int,
    controllers: int,
    data_dir: Path,
    connect: str | None,
    secure: bool,
    with_report: bool | None,
) -> None:
    """Run a whole cluster on this machine: ZooKeeper, controllers, brokers, failures, and the report."""
    # Imported here: no other command needs these modules.
    from controller.playground import command as ground
    from controller.playground.cluster import Playground

    cluster = Playground(
        ground.fresh_directory(data_dir),
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


main.add_command(certificates)
main.add_command(check_cluster)
main.add_command(zookeeper_security_migration)
main.add_command(workload)
main.add_command(verdict)
main.add_command(tokens)

if __name__ == "__main__":
    main()
