"""``pctl``: the operator's tool. It reads cluster state from ZooKeeper and sends requests to the active controller."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import click

from controller import __version__
from controller.cli.common.lazy import Later, LazyVerbs
from controller.cli.common.options import BOOTSTRAP_ONLY, STYLES, Options, Seconds
from controller.cli.common.output import log_to_stderr
from controller.cli.common.tls import with_tls
from controller.core.names import number_in
from controller.errors import ConfigError
from controller.runtime.addresses import connect_string
from proto.settings import Schema
from proto.zookeeper_access import ZooKeeperAccess, ZooKeeperSettings

if TYPE_CHECKING:
    from proto.security.grpc_channels import GrpcTls

# fmt: off
#: Each verb: its module in this folder, and the first sentence of its help.
VERBS = {
    "cluster": Later("cluster", "Show the active controller and the state of the cluster."),
    "controllers": Later("cluster",
        "List the candidates and the active controller among them; move, resign or claim control."),
    "health": Later("health", "Name everything that is wrong with the cluster."),
    "wait": Later("health", "Wait until the cluster is well, at most for --timeout."),
    "brokers": Later("brokers",
        "List brokers: state, epoch, load, and pending pushes; decommission, replace, swap or forget them."),
    "partitions": Later("partitions",
        "List partitions: leader, epochs, ISR, and why one is unavailable, under-replicated, or refused by a broker."),
    "topics": Later("topics", "List, describe, create, alter and delete topics."),
    "produce": Later("records", "Write each VALUE, or each line of standard input, as a record."),
    "consume": Later("records",
        "Read records and print PARTITION@OFFSET, key and value of each; as JSON, one object per line."),
    "reassign": Later("reassign",
        "Reassign partitions to other replicas: generate, execute, list, cancel, verify."),
    "elect": Later("elect", "Elect other leaders of partitions: preferred (the default), unclean, leader."),
    "maintenance": Later("maintenance",
        "Pause, maintenance mode, drained brokers, and cancellation of a controlled shutdown."),
    "quarantine": Later("cluster",
        "What the controller leaves out because it raised an unexpected exception in two terms."),
    "freeze": Later("maintenance",
        "Freeze the cluster: elections for availability go on, nothing else begins until pctl unfreeze."),
    "unfreeze": Later("maintenance", "End a freeze: reassignments and deletions that waited begin at once."),
    "config": Later("config", "Configuration of topics, brokers and controllers: get, set, delete."),
    "features": Later("features", "Features of the cluster: describe, upgrade, downgrade, disable."),
    "plan": Later("decisions.plan", "Show what would happen: offline partitions, leaders, writes and pushes."),
    "stoppable": Later("decisions.stoppable", "Check whether these brokers may stop now, all at once."),
    "explain": Later("decisions.explain",
        "Explain the state of a partition, a broker, the controller, a deletion or a reassignment."),
    "audit": Later("brokers", "Compare what each broker holds with what the controller told it."),
    "completion": Later("completion", "Print the script by which a shell completes verbs, options and their values."),
    "man": Later("man", "Write manual pages of pctl, partition-controller and their verbs."),
    "history": Later("history",
        "Print state-change records, oldest first: time, controller epoch, event, cause, what happened, reason."),
    "watch": Later("history", "Print new state-change records until Ctrl-C."),
    "report": Later("analysis.report",
        "Analyse the state-change logs of all nodes with Spark: Parquet tables and one HTML page."),
    "lake": Later("analysis.lake",
        "Keep what the logs of all nodes say in a table, which outlives rotated logs: update, follow."),
}
# fmt: on
#: Verbs that brokers can answer, some of them in part.
FROM_BROKERS = ("brokers", "partitions", "topics")
#: How to get to ZooKeeper; pctl creates few znodes, and those as a controller would.
_ACCESS = Schema(ZooKeeperSettings, "PCTL_", ConfigError)


def _zookeeper_options(command: Callable[..., None]) -> Callable[..., None]:
    """A flag for each of `_ACCESS`. Values are texts, checked when loaded."""
    for setting in reversed(_ACCESS.settings):
        command = click.option(setting.flag, setting.name, metavar="VALUE", help=setting.help)(command)
    return command


def _addresses(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    found = tuple(part.strip() for part in (value or "").split(",") if part.strip())
    for address in found:
        host, _, port = address.rpartition(":")
        if not (host and number_in(port, 65_535)):
            raise click.BadParameter(f"{address!r}: must be HOST:PORT")
    return found


@click.group(
    cls=LazyVerbs,
    later=VERBS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(__version__)
@click.option(
    "--zookeeper",
    envvar="PCTL_ZOOKEEPER",
    default="127.0.0.1:2181",
    show_default=True,
    help="HOST:PORT[,...][/chroot]; environment variable: PCTL_ZOOKEEPER",
)
@click.option(
    "--bootstrap",
    callback=_addresses,
    help="HOST:PORT[,...] of brokers to ask without ZooKeeper and controller: brokers, partitions, topics list",
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
    bootstrap: tuple[str, ...],
    tls: GrpcTls | None,
    **access: object,
) -> None:
    """Inspect and change a cluster.

    Exit codes: 0 done, 1 failed, 2 usage error, 3 refused by a safety check.
    """
    if bootstrap and context.invoked_subcommand not in FROM_BROKERS:
        raise click.UsageError(BOOTSTRAP_ONLY)
    try:
        servers = connect_string(zookeeper)
    except ValueError as error:
        raise click.UsageError(f"--zookeeper {zookeeper!r}: must be {error}") from None
    context.obj = Options(servers, output, timeout_s, _access(access), tls, bootstrap)


def _access(flags: Mapping[str, object]) -> ZooKeeperAccess | None:
    """The access that flags, else environment variables, ask for; None where none is given."""
    if not any(flags[setting.name] is not None or setting.env in os.environ for setting in _ACCESS.settings):
        return None
    from controller.runtime.config import config_errors

    log_to_stderr()
    try:
        values, sources = _ACCESS.load(flags, os.environ)
        with config_errors(sources):
            return ZooKeeperSettings(**values).zookeeper_access()
    except ConfigError as error:
        raise click.UsageError(str(error)) from None


if __name__ == "__main__":
    main()
