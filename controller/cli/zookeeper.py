"""``partition-controller zookeeper``."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

import click

from controller.cli.common.options import FILE
from controller.embedded_zookeeper.ensemble import EmbeddedZooKeeper, ZooKeeperServer
from controller.errors import ControllerError
from controller.exit_codes import EXIT_FAILED


@click.command()
@click.option(
    "--port", type=click.IntRange(0, 65535), default=2181, show_default=True, help="first client port"
)
@click.option("--data-dir", type=FILE, default=Path("zookeeper-data"), show_default=True)
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
            if ended := [server for server in embedded.servers if not server.running()]:
                for server in ended:
                    click.echo(f"{_how_it_ended(server)}; see {data_dir}", err=True)
                sys.exit(EXIT_FAILED)
    finally:
        embedded.stop()


def _how_it_ended(server: ZooKeeperServer) -> str:
    code = server.process and server.process.returncode
    said = server.last_words() or f"nothing: perhaps {server.data_dir} cannot be written"
    return f"ZooKeeper server on port {server.client_port} ended unexpectedly with {code}, and wrote: {said}"
