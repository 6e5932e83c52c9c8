"""``partition-controller check-cluster``: can this cluster of Kafka brokers be led, and what would change?"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import click

from controller.cli.common.options import STYLES
from controller.cli.common.output import log_to_stderr, print_data, print_table
from controller.cli.common.settings import load_settings, with_settings
from controller.errors import ControllerError
from controller.exit_codes import EXIT_FAILED, EXIT_REFUSED
from controller.runtime.config import Settings, Takeover, kafka_addresses
from controller.runtime.kafka import cluster_facts
from controller.runtime.kafka.cluster_check import (
    ClusterFacts,
    Finding,
    Level,
    Wanted,
    can_be_led,
    changes,
    judge,
    release,
)
from controller.runtime.kafka.endpoints import listeners_of
from controller.runtime.kafka.security.setup import client_security, zookeeper_access
from controller.runtime.zookeeper import cluster_reader
from controller.runtime.zookeeper.session import ConnectionLossError


@click.command("check-cluster")
@with_settings(("controller_id", "zookeeper"))
@click.option("-o", "--output", type=click.Choice(STYLES), default="table", show_default=True)
@click.option("--details", is_flag=True, help="show also what is as it should be")
def check_cluster(config_file: Path | None, output: str, details: bool, **flags: object | None) -> None:
    """Say whether a cluster of Kafka brokers can be led with these settings, and what would change.

    Reads ZooKeeper, and asks each broker for its versions and configuration. Writes nothing. Exit code 0: it can be
    led; 3: it cannot.
    """
    log_to_stderr()
    settings = load_settings(config_file, flags)
    try:
        facts = asyncio.run(_facts(settings))
    except (ControllerError, ConnectionLossError) as error:
        click.echo(
            f"partition-controller check-cluster: {error or 'the connection to ZooKeeper was lost'}", err=True
        )
        sys.exit(EXIT_FAILED)
    wanted = _wanted(settings)
    findings = judge(facts, wanted)
    if output == "table":
        _print_tables(facts, findings, wanted, details=details)
    else:
        print_data(_data(facts, findings, wanted), output)
    if not can_be_led(findings):
        sys.exit(EXIT_REFUSED)


async def _facts(settings: Settings) -> ClusterFacts:
    async with cluster_reader.connected(
        settings.zookeeper,
        settings.connection_timeout_ms,
        create_chroot=False,
        access=zookeeper_access(settings),
    ) as session:
        facts = await cluster_facts.read(session)
    timeout_s = settings.connection_timeout_ms / 1000
    return await cluster_facts.ask_all(
        facts, cluster_facts.asker(listeners_of(settings), client_security(settings), timeout_s)
    )


def _wanted(settings: Settings) -> Wanted:
    return Wanted(
        settings.controller_id,
        listeners_of(settings),
        frozenset(kafka_addresses(settings)),
        exclusive=Takeover(settings.kafka_takeover) is Takeover.EXCLUSIVE,
        authorizer=settings.kafka_authorizer == "acl",
    )


def _brokers(facts: ClusterFacts) -> list[dict[str, Any]]:
    return [
        {
            "broker": known.broker.id,
            "version": release(known.answers.apis) if known.answers is not None else None,
            "inter_broker_protocol_version": known.config("inter.broker.protocol.version"),
            "listeners": [f"{e.listener}://{e.host}:{e.port}" for e in known.broker.endpoints],
            "rack": known.broker.rack,
            "controller": known.broker.id == facts.controller_id,
        }
        for known in facts.brokers
    ]


def _data(facts: ClusterFacts, findings: list[Finding], wanted: Wanted) -> dict[str, Any]:
    return {
        "can_be_led": can_be_led(findings),
        "brokers": _brokers(facts),
        "findings": [finding._asdict() for finding in findings],
        "changes": [change._asdict() for change in changes(facts, wanted)],
    }


def _print_tables(facts: ClusterFacts, findings: list[Finding], wanted: Wanted, *, details: bool) -> None:
    rows = [
        [
            f"{row['broker']}{' (controller)' if row['controller'] else ''}",
            row["version"] or "?",
            row["inter_broker_protocol_version"] or "?",
            " ".join(row["listeners"]),
            row["rack"] or "-",
        ]
        for row in _brokers(facts)
    ]
    print_table(("BROKER", "VERSION", "PROTOCOL VERSION", "LISTENERS", "RACK"), rows)
    shown = [finding for finding in findings if details or finding.level is not Level.OK]
    if shown:
        click.echo()
        print_table(
            ("LEVEL", "CHECK", "BROKER", "FINDING"),
            [[f.level, f.check, str(f.broker) if f.broker >= 0 else "-", f.text] for f in shown],
        )
    click.echo()
    if can_be_led(findings):
        print_table(
            ("A TAKEOVER CHANGES", "NOW", "THEN"), [list(change) for change in changes(facts, wanted)]
        )
        click.echo("\nThis cluster can be led.")
    else:
        blockers = sum(finding.level is Level.BLOCKER for finding in findings)
        click.echo(f"This cluster cannot be led with these settings: {blockers} blockers.")
