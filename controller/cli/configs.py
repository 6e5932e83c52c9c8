"""``pctl config``: what is set for topics and brokers, read and changed through the active controller."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from controller.cli.asking import ask, refusals, report
from controller.cli.output import note, print_rows
from controller.cli.topics import parse_configs
from controller.cli.verbs import Options, Verb, Verbs, on_cluster
from controller.runtime.zookeeper import Session
from proto import admin_service_pb2 as pb

_COLUMNS = ("key", "value", "source", "known", "problem")


@click.group(cls=Verbs)
def config() -> None:
    """Configuration of topics and brokers: get, set, delete."""


def _resource(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--all-brokers", is_flag=True, help="the default of all brokers"),
        click.option("--broker", type=click.IntRange(0), help="this broker"),
        click.option("--topic", help="this topic"),
    ):
        command = option(command)
    return command


def _named(topic: str | None, broker: int | None, all_brokers: bool) -> pb.ConfigResource:
    if (topic is not None) + (broker is not None) + all_brokers != 1:
        raise click.UsageError("name one of --topic, --broker and --all-brokers")
    if topic is not None:
        return pb.ConfigResource(resource_type=pb.TOPIC, resource_name=topic)
    return pb.ConfigResource(resource_type=pb.BROKER, resource_name="" if broker is None else str(broker))


def _title(resource: pb.ConfigResource) -> str:
    kind = "topic" if resource.resource_type == pb.TOPIC else "broker"
    return f"{kind} {resource.resource_name}" if resource.resource_name else "all brokers"


@config.command("get", cls=Verb)
@_resource
@click.pass_obj
@on_cluster
async def get(
    options: Options, session: Session, topic: str | None, broker: int | None, all_brokers: bool
) -> None:
    """What is set; for a broker also what all brokers have."""
    resource = _named(topic, broker, all_brokers)
    request = pb.DescribeConfigsRequest(resources=[resource])
    (answer,) = (await ask(options, session, "DescribeConfigs", request)).results
    if code := report(refusals([(_title(resource), answer)])):
        sys.exit(code)
    rows = [
        {"key": c.name, "value": c.value, "source": c.source, "known": c.known, "problem": c.problem}
        for c in answer.configs
    ]
    print_rows(rows, _COLUMNS, options.output)


@config.command("set", cls=Verb)
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VALUE...")
@_resource
@click.option("--dry-run", is_flag=True, help="have it judged, change nothing")
@click.pass_obj
@on_cluster
async def set_keys(
    options: Options,
    session: Session,
    pairs: tuple[str, ...],
    topic: str | None,
    broker: int | None,
    all_brokers: bool,
    dry_run: bool,
) -> None:
    """Set keys; the others stay as they are."""
    await _alter(options, session, _named(topic, broker, all_brokers), parse_configs(pairs), dry_run)


@config.command("delete", cls=Verb)
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@_resource
@click.option("--dry-run", is_flag=True, help="have it judged, change nothing")
@click.pass_obj
@on_cluster
async def delete_keys(
    options: Options,
    session: Session,
    keys: tuple[str, ...],
    topic: str | None,
    broker: int | None,
    all_brokers: bool,
    dry_run: bool,
) -> None:
    """Delete keys: their defaults hold again."""
    await _alter(options, session, _named(topic, broker, all_brokers), dict.fromkeys(keys), dry_run)


async def _alter(
    options: Options,
    session: Session,
    resource: pb.ConfigResource,
    changes: Mapping[str, str | None],
    dry_run: bool,
) -> None:
    configs = [pb.AlterableConfig(name=key, value=value) for key, value in changes.items()]
    asked = pb.AlterConfigsResource(resource=resource, configs=configs)
    request = pb.AlterConfigsRequest(resources=[asked], validate_only=dry_run)
    (answer,) = (await ask(options, session, "AlterConfigs", request)).responses
    if code := report(refusals([(_title(resource), answer)])):
        sys.exit(code)
    for key in answer.unknown_keys:
        note(f"pctl: key {key!r} is not known: its value was not checked")
    done = "would be changed" if dry_run else "changed"
    note(f"{len(changes)} key{'s' * (len(changes) > 1)} of {_title(resource)} {done}")
