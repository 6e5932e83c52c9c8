"""``partition-controller zookeeper-security-migration``: ACLs of an existing tree, set or opened."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import click

from controller.cli.common.settings import load_settings, with_settings
from controller.errors import ConfigError, ControllerError
from controller.exit_codes import EXIT_FAILED, EXIT_USAGE
from controller.runtime.config import SETTINGS, Settings
from controller.runtime.kafka.security.setup import zookeeper_access
from controller.runtime.zookeeper import acl_migration, cluster_reader
from controller.runtime.zookeeper.acl_migration import Migrated
from controller.runtime.zookeeper.session import ConnectionLossError

_FLAGS = tuple(
    setting.name
    for setting in SETTINGS
    if setting.name.startswith("zookeeper") and setting.name != "zookeeper_set_acl"
)
#: Znodes between two lines of progress.
_EVERY = 10_000


@click.command("zookeeper-security-migration")
@click.option(
    "--acl",
    "kind",
    type=click.Choice(["secure", "unsecure"]),
    required=True,
    help="secure: only who logs in as this command does may change the znodes; unsecure: everybody may",
)
@click.option(
    "--enable-path-check",
    is_flag=True,
    help="change nothing unless the znodes that each cluster has are there: a wrong chroot is noticed",
)
@with_settings(_FLAGS)
def zookeeper_security_migration(
    kind: str, enable_path_check: bool, config_file: Path | None, **flags: object | None
) -> None:
    """Set or open the ACLs of the znodes of a cluster.

    Log in as brokers and controllers do. They may run meanwhile: to secure a cluster, first let all of them log in,
    then set zookeeper_set_acl, then migrate; the other way around to open it. After an interruption run it again.

    Exit codes: 0 all is done, 1 something could not be changed, 2 usage error.
    """
    settings = load_settings(config_file, flags)
    try:
        # Without a login nobody would own them, and nobody could open them.
        zookeeper_access(replace(settings, zookeeper_set_acl=True))
    except ConfigError as error:
        click.echo(f"zookeeper-security-migration: {error}", err=True)
        sys.exit(EXIT_USAGE)
    settings = replace(settings, zookeeper_set_acl=kind == "secure")
    try:
        done = asyncio.run(_migrate(settings, enable_path_check))
    except (ControllerError, ConnectionLossError) as error:
        why = str(error) or "the connection to ZooKeeper was lost: run it again"
        click.echo(f"zookeeper-security-migration: {why}", err=True)
        sys.exit(EXIT_FAILED)
    if done is None:
        sys.exit(EXIT_FAILED)
    click.echo(f"{done.changed} znodes changed, {done.failures} failed")
    for path in done.failed:
        click.echo(f"not changed, ZooKeeper's ACLs deny it: {path}", err=True)
    if done.failures > len(done.failed):
        click.echo(f"and {done.failures - len(done.failed)} more", err=True)
    sys.exit(EXIT_FAILED if done.failures else 0)


async def _migrate(settings: Settings, enable_path_check: bool) -> Migrated | None:
    """None: the paths of a cluster are not there."""
    told = 0

    def progress(done: Migrated) -> None:
        nonlocal told
        if done.changed >= told + _EVERY:
            told = done.changed
            click.echo(f"{told} znodes so far", err=True)

    async with cluster_reader.connected(
        settings.zookeeper,
        settings.connection_timeout_ms,
        create_chroot=False,
        access=zookeeper_access(settings),
    ) as session:
        if enable_path_check and (missing := await acl_migration.missing_roots(session)):
            click.echo(f"not there, is the chroot right? {', '.join(missing)}", err=True)
            return None
        return await acl_migration.migrate(session, progress)
