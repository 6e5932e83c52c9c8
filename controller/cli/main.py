"""``partition-controller``: run, check-config, check-cluster, zookeeper, playground, workload, and more."""

from __future__ import annotations

import click

from controller import __version__
from controller.cli.common.lazy import Later, Lazy

# fmt: off
#: Each command: its module in this folder, and the first sentence of its help.
COMMANDS = {
    "run": Later("run", "Run the controller until SIGTERM or SIGINT."),
    "check-config": Later("check_config",
        "Validate the settings and print each with its effective value and its source."),
    "check-cluster": Later("check_cluster",
        "Say whether a cluster of Kafka brokers can be led with these settings, and what would change."),
    "zookeeper": Later("zookeeper",
        "Run the ZooKeeper that PySpark ships, one server or an ensemble, until SIGTERM or SIGINT."),
    "zookeeper-security-migration": Later("zookeeper_security_migration",
        "Set or open the ACLs of the znodes of a cluster."),
    "playground": Later("playground",
        "Run a whole cluster on this machine: ZooKeeper, controllers, brokers, failures, and the report."),
    "workload": Later("workload",
        "Write numbered records and read them until SIGTERM; append every send and its result to a history file."),
    "verdict": Later("workload",
        "Compare a workload's history with the replicas in the brokers' data directories."),
    "certificates": Later("certificates", "Make a throw-away authority and certificates in DIR, to try TLS with."),
    "tokens": Later("tokens", "Add and remove bearer tokens."),
}
# fmt: on


@click.group(cls=Lazy, later=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """The controller of a partitioned, replicated cluster, on ZooKeeper.

    Every setting of run and check-config can be given as the environment variable PARTITION_CONTROLLER_<NAME> or as
    a key of the TOML file that --config names. A few, those that run --help lists, also have a flag. A flag overrides
    the environment variable, which overrides the file. check-config prints all settings.
    """


if __name__ == "__main__":
    main()
