"""``partition-controller certificates``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from controller.cli.common.options import TEXT_FILE
from controller.errors import ControllerError
from controller.exit_codes import EXIT_FAILED

NAMES = ("controller-1", "controller-2", "controller-3", "broker-1", "broker-2", "broker-3", "admin")


@click.command()
@click.argument("folder", metavar="DIR", type=TEXT_FILE)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    help="host name or address of a server, beside those of this machine's loopback",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    default=NAMES,
    show_default=True,
    help="common name of a certificate's subject, and name of its files",
)
def certificates(folder: Path, hosts: tuple[str, ...], names: tuple[str, ...]) -> None:
    """Make a throw-away authority and certificates in DIR, to try TLS with.

    Not for production: the authority's key lies in DIR, without a password, and every certificate is of every host.
    An authority that is there already is used again; no file is written over.
    """
    # Imported here: no other command needs it.
    from controller.certificates import HOSTS, make

    try:
        made = make(folder, names, (*HOSTS, *hosts))
    except ControllerError as error:
        click.echo(f"partition-controller certificates: {error}", err=True)
        sys.exit(EXIT_FAILED)
    operator = "admin" if "admin" in names else names[-1]
    shown = folder.absolute()
    for path in made:
        click.echo(f"made {path} and its key")
    click.echo(
        f"""
Not for production: whoever reads {shown / "ca.key"} can be anybody.

Settings of controllers and brokers, each with its own NAME:
  ssl_certificate = "{shown}/NAME.pem"
  ssl_key = "{shown}/NAME.key"
  ssl_ca = "{shown}/ca.pem"
For pctl:
  export PCTL_SSL_CERTIFICATE={shown}/{operator}.pem PCTL_SSL_KEY={shown}/{operator}.key PCTL_SSL_CA={shown}/ca.pem"""
    )
