"""``partition-controller workload`` and ``verdict``: load on a cluster, and the check of its records."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import click

from broker_stub.client.errors import ClientError
from broker_stub.client.metadata import parse_bootstrap
from controller.cli.common.broker_addresses import broker_addresses
from controller.cli.common.options import FILE
from controller.cli.common.tls import with_tls
from controller.core.model import BROKER_ID_MAX
from controller.core.names import number_in
from controller.errors import ControllerError
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.session import ConnectionLossError
from controller.workload import checker, history, load, replicas
from proto.security.grpc_channels import GrpcTls

EXIT_FAILED, EXIT_USAGE = 1, 2
ZOOKEEPER_TIMEOUT_MS = 10_000
FINDINGS_SHOWN = 20


@click.command()
@click.option("--bootstrap", "addresses", help="HOST:PORT[,...] of some brokers")
@click.option(
    "--zookeeper",
    "connect",
    help="instead of --bootstrap: the ZooKeeper that knows the brokers, HOST:PORT[,...][/chroot]",
)
@click.option(
    "--kafka", is_flag=True, help='the brokers of --bootstrap are Kafka\'s; needs the extra "kafka"'
)
@click.option("--topic", required=True)
@click.option("--history", "path", type=FILE, required=True, help="file to append to")
@click.option("--writers", type=click.IntRange(0, 1000), default=2, show_default=True)
@click.option("--readers", type=click.IntRange(0, 1000), default=1, show_default=True)
@click.option(
    "--rate",
    type=click.FloatRange(0, 1e6, min_open=True),
    default=200,
    show_default=True,
    help="records per second, summed over all writers",
)
@click.option("--value-bytes", type=click.IntRange(1, 1_000_000), default=100, show_default=True)
@click.option("--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True)
@click.option(
    "--request-timeout-ms",
    type=click.IntRange(1),
    default=3000,
    show_default=True,
    help="time limit of one request",
)
@click.option(
    "--delivery-timeout-ms",
    type=click.IntRange(1),
    default=120_000,
    show_default=True,
    help="time limit of one record, with all its retries",
)
@click.option("--duration-s", type=click.FloatRange(0, min_open=True), help="stop after this many seconds")
@with_tls
def workload(
    addresses: str | None,
    connect: str | None,
    kafka: bool,
    topic: str,
    path: Path,
    writers: int,
    readers: int,
    rate: float,
    value_bytes: int,
    acks: str,
    request_timeout_ms: int,
    delivery_timeout_ms: int,
    duration_s: float | None,
    tls: GrpcTls | None,
) -> None:
    """Write numbered records and read them until SIGTERM; append every send and its result to a history file."""
    if (addresses is None) == (connect is None):
        raise click.UsageError("name either --bootstrap or --zookeeper")
    if kafka and addresses is None:
        raise click.UsageError("--kafka needs --bootstrap")
    if kafka and tls is not None:
        raise click.UsageError("--ssl-ca, --ssl-certificate and --ssl-key are not for --kafka")
    try:
        found = parse_bootstrap(addresses) if addresses is not None else []
    except ValueError as error:
        raise click.UsageError(str(error)) from None

    async def main() -> None:
        plan = load.Load(
            tuple(found or await _from_zookeeper(connect or "")),
            topic,
            path,
            writers,
            readers,
            rate,
            value_bytes,
            {"all": -1, "1": 1, "0": 0}[acks],
            request_timeout_ms,
            delivery_timeout_ms,
            tls=tls,
        )
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, stop.set)
        if duration_s is not None:
            loop.call_later(duration_s, stop.set)
        click.echo(f"writing to {topic}")
        if kafka:
            # Imported here: the package that it needs is an extra.
            from controller.workload import kafka_clients

            click.echo(str(await kafka_clients.run(plan, stop)))
            return
        progress = await load.run(plan, stop, lambda now: click.echo(str(now)))
        click.echo(str(progress))

    try:
        asyncio.run(main())
    except (ControllerError, ConnectionLossError, ClientError, OSError) as error:
        click.echo(f"partition-controller workload: {error or type(error).__name__}", err=True)
        sys.exit(EXIT_FAILED)


async def _from_zookeeper(connect: str) -> list[str]:
    async with cluster_reader.connected(connect, ZOOKEEPER_TIMEOUT_MS, create_chroot=False) as session:
        return broker_addresses(await cluster_reader.look(session, topics=()))


def _data_dirs(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[int, Path]:
    found = {}
    for text in texts:
        number, _separator, directory = text.partition("=")
        if (id_ := number_in(number, BROKER_ID_MAX)) is None or not directory:
            raise click.BadParameter(f"{text!r}: must be BROKER=DIRECTORY")
        if not Path(directory).is_dir():
            raise click.BadParameter(f"{text!r}: no such directory")
        if id_ in found:
            raise click.BadParameter(f"{text!r}: broker {id_} has one already, and only one is compared")
        found[id_] = Path(directory)
    return found


@click.command()
@click.option(
    "--history", "path", type=click.Path(path_type=Path, exists=True, dir_okay=False), required=True
)
@click.option(
    "--data-dir",
    "data_dirs",
    multiple=True,
    required=True,
    callback=_data_dirs,
    metavar="BROKER=DIRECTORY",
    help="a broker's data directory; once for each broker",
)
@click.option("--topic", required=True)
def verdict(path: Path, data_dirs: dict[int, Path], topic: str) -> None:
    """Compare a workload's history with the replicas in the brokers' data directories. Exit code 1 if they disagree.

    Stop the workload first. Then stop the brokers or wait until the replicas have caught up.
    """
    try:
        recorded = history.load(path)
        found = replicas.found_replicas(data_dirs, topic)
        result = checker.check(recorded, replicas.read_logs(data_dirs, found))
    except (ControllerError, OSError) as error:
        click.echo(f"partition-controller verdict: {error}", err=True)
        sys.exit(EXIT_FAILED)
    for finding in result.findings[:FINDINGS_SHOWN]:
        click.echo(str(finding))
    if len(result.findings) > FINDINGS_SHOWN:
        click.echo(f"and {len(result.findings) - FINDINGS_SHOWN} more")
    click.echo(result.line())
    sys.exit(0 if result.ok else EXIT_FAILED)
