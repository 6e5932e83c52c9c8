"""``python -m controller.embedded_kafka [VERSION ...]``: fetch Kafka's jars; without a version, the newest."""

from __future__ import annotations

import sys

import click

from controller.embedded_kafka import jars
from controller.errors import EnvironmentFault
from controller.exit_codes import EXIT_FAILED, EXIT_USAGE


def main() -> None:
    for version in sys.argv[1:] or [jars.NEWEST]:
        try:
            click.echo(f"Kafka {version}: {jars.fetch(version)}")
        except EnvironmentFault as error:
            click.echo(str(error), err=True)
            sys.exit(EXIT_FAILED)
        except ValueError as error:
            click.echo(str(error), err=True)
            sys.exit(EXIT_USAGE)


if __name__ == "__main__":
    main()
