"""``pctl``: the operator's tool. It reads cluster state from ZooKeeper and sends requests to the active controller."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import click

from controller import __version__
from controller.cli.common.options import STYLES, Options, Seconds, Verbs
from controller.cli.common.output import log_to_stderr
from controller.cli.common.tls import with_tls
from controller.cli.pctl.brokers import audit, brokers
from controller.cli.pctl.cluster import cluster, controllers, quarantine
from controller.cli.pctl.config import config
from controller.cli.pctl.elect import elect
from controller.cli.pctl.explain import explain
from controller.cli.pctl.features import features
from controller.cli.pctl.history import history, watch
from controller.cli.pctl.maintenance import maintenance
from controller.cli.pctl.partitions import partitions
from controller.cli.pctl.plan import plan
from controller.cli.pctl.reassign import reassign
from controller.cli.pctl.records import consume, produce
from controller.cli.pctl.report import report
from controller.cli.pctl.stoppable import stoppable
from controller.cli.pctl.topics import topics
from controller.errors import ConfigError
from controller.runtime.config import config_errors, connect_string
from proto.security.grpc_channels import GrpcTls
from proto.settings import Schema
from proto.zookeeper_access import ZooKeeperAccess, ZooKeeperSettings

#: How to get to ZooKeeper; pctl creates few znodes, and those as a controller would.
_ACCESS = Schema(ZooKeeperSettings, "PCTL_", ConfigError)


def _zookeeper_options(command: Callable[..., None]) -> Callable[..., None]:
    """A flag for each of `_ACCESS`. Values are texts, checked when loaded."""
    for setting in reversed(_ACCESS.settings):
        command = click.option(setting.flag, setting.name, metavar="VALUE", help=setting.help)(command)
    return command


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__)
@click.option(
    "--zookeeper",
    envvar="PCTL_ZOOKEEPER",
    default="127.0.0.1:2181",
    show_default=True,
    help="HOST:PORT[,...][/chroot]; environment variable: PCTL_ZOOKEEPER",
)
@click.option("-o", "--output", type=click.Choice(STYLES), default="table", show_default=True)
@click.option(
    "--timeout",
    "timeout_s",
    type=Seconds(0.1, 600),
    default=10,
    show_default=True,
    help="seconds to wait for ZooKeeper, for a response, and for work to be done",
)
@_zookeeper_options
@with_tls
@click.pass_context
def main(
    context: click.Context,
    /,
    zookeeper: str,
    output: str,
    timeout_s: float,
    tls: GrpcTls | None,
    **access: object,
) -> None:
    """Inspect and change a cluster.

    Exit codes: 0 done, 1 failed, 2 usage error, 3 refused by a safety check.
    """
    log_to_stderr()
    try:
        servers = connect_string(zookeeper)
    except ValueError as error:
        raise click.UsageError(f"--zookeeper {zookeeper!r}: must be {error}") from None
    context.obj = Options(servers, output, timeout_s, _access(access), tls)


def _access(flags: Mapping[str, object]) -> ZooKeeperAccess:
    """Of flags, else of environment variables."""
    try:
        values, sources = _ACCESS.load(flags, os.environ)
        with config_errors(sources):
            return ZooKeeperSettings(**values).zookeeper_access()
    except ConfigError as error:
        raise click.UsageError(str(error)) from None


for command in (
    cluster,
    controllers,
    brokers,
    partitions,
    topics,
    produce,
    consume,
    reassign,
    elect,
    maintenance,
    quarantine,
    config,
    features,
    plan,
    stoppable,
    explain,
    audit,
    history,
    watch,
    report,
):
    main.add_command(command)

if __name__ == "__main__":
    main()
