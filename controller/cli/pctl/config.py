"""``pctl config``: configuration of topics and brokers, read and changed through the active controller."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any

import click

from controller.cli.common.confirmation import confirm, dry_run_option, nothing_to_do, yes_option
from controller.cli.common.options import BROKER, Options, Verb, Verbs, on_cluster
from controller.cli.common.output import Row, note, print_rows
from controller.cli.common.requests import ask, refusals, report
from controller.cli.computed.dry_run import print_dry_run, run_on_copy
from controller.core.config_keys import shown_value
from controller.core.names import counted
from controller.runtime.zookeeper.session import Session
from proto.gen import admin_service_pb2 as pb

_COLUMNS = ("key", "value", "source", "known", "problem")


@click.group(cls=Verbs)
def config() -> None:
    """Configuration of topics, brokers and controllers: get, set, delete."""


def _resource(command: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(command)
    def named(*args: Any, **values: Any) -> Any:
        names = ("topic", "broker", "all_brokers", "controller", "all_controllers")
        return command(*args, resource=_named(*(values.pop(name) for name in names)), **values)

    found: Callable[..., Any] = named
    for option in (
        click.option("--all-controllers", is_flag=True, help="dynamic settings of all controllers"),
        click.option("--controller", type=BROKER, help="dynamic settings of this controller"),
        click.option("--all-brokers", is_flag=True, help="the default for all brokers"),
        click.option("--broker", type=BROKER, help="this broker"),
        click.option("--topic", help="this topic"),
    ):
        found = option(found)
    return found


def _changing(command: Callable[..., Any]) -> Callable[..., Any]:
    return dry_run_option(yes_option(command))


def _named(
    topic: str | None, broker: int | None, all_brokers: bool, controller: int | None, all_controllers: bool
) -> pb.ConfigResource:
    named = [topic is not None, broker is not None, all_brokers, controller is not None, all_controllers]
    if sum(named) != 1:
        raise click.UsageError(
            "name one of --topic, --broker, --all-brokers, --controller and --all-controllers"
        )
    if topic is not None:
        return pb.ConfigResource(resource_type=pb.TOPIC, resource_name=topic)
    kind, id_ = (pb.BROKER, broker) if broker is not None or all_brokers else (pb.CONTROLLER, controller)
    return pb.ConfigResource(resource_type=kind, resource_name="" if id_ is None else str(id_))


def _title(resource: pb.ConfigResource) -> str:
    if resource.resource_type == pb.TOPIC:
        return f"topic {resource.resource_name}"
    kind = "broker" if resource.resource_type == pb.BROKER else "controller"
    return f"{kind} {resource.resource_name}" if resource.resource_name else f"all {kind}s"


@config.command("get", cls=Verb)
@_resource
@click.pass_obj
@on_cluster
async def get(options: Options, session: Session, resource: pb.ConfigResource) -> None:
    """Show the keys that are set; for a broker or controller also the defaults for all of them, for the active
    controller every dynamic setting and where its value is from."""
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
@click.option("--force", is_flag=True, help="also keys of topics that the controller does not know")
@_resource
@_changing
@click.pass_obj
@on_cluster
async def set_keys(
    options: Options,
    session: Session,
    pairs: tuple[str, ...],
    resource: pb.ConfigResource,
    force: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Set keys; other keys do not change. Of --controller and --all-controllers: what these decide by, at once."""
    await _alter(options, session, resource, parse_configs(pairs), force=force, dry_run=dry_run, yes=yes)


@config.command("delete", cls=Verb)
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@_resource
@_changing
@click.pass_obj
@on_cluster
async def delete_keys(
    options: Options,
    session: Session,
    keys: tuple[str, ...],
    resource: pb.ConfigResource,
    dry_run: bool,
    yes: bool,
) -> None:
    """Delete keys: their defaults apply again."""
    await _alter(options, session, resource, dict.fromkeys(keys), dry_run=dry_run, yes=yes)


async def _alter(
    options: Options,
    session: Session,
    resource: pb.ConfigResource,
    changes: Mapping[str, str | None],
    *,
    force: bool = True,
    dry_run: bool,
    yes: bool,
) -> None:
    configs = [pb.AlterableConfig(name=key, value=value) for key, value in changes.items()]
    request = pb.AlterConfigsRequest(
        resources=[pb.AlterConfigsResource(resource=resource, configs=configs)], unknown_keys_too=force
    )
    if dry_run:
        trial = await run_on_copy(options, session, ("AlterConfigs", request))
        (answer,) = trial.answers[0].responses
        if code := report(refusals([(_title(resource), answer)])):
            sys.exit(code)
        print_dry_run(options, trial)
        _warn_unknown(answer.unknown_keys)
        if trial.data["writes"]:
            note(f"{_title(resource)} would be changed")
        return
    rows = await _present(options, session, resource, changes)
    changed = f"{counted(sum(row['changes'] for row in rows), 'key')} of {_title(resource)}"
    if not any(row["changes"] for row in rows):
        nothing_to_do(options, f"{_title(resource)} has it so")
        return
    print_rows(rows, ("key", "present", "source", "new"), options.output)
    confirm(f"Change {changed} as shown?", yes=yes)
    (answer,) = (await ask(options, session, "AlterConfigs", request)).responses
    if code := report(refusals([(_title(resource), answer)])):
        sys.exit(code)
    _warn_unknown(answer.unknown_keys)
    note(f"{changed} changed")


async def _present(
    options: Options, session: Session, resource: pb.ConfigResource, changes: Mapping[str, str | None]
) -> list[Row]:
    """Present and new values of the keys, and whether that is a change; ends the program if they cannot be read."""
    request = pb.DescribeConfigsRequest(resources=[resource])
    (answer,) = (await ask(options, session, "DescribeConfigs", request)).results
    if code := report(refusals([(_title(resource), answer)])):
        sys.exit(code)
    present = {c.name: c for c in answer.configs}
    own = _entity(resource)
    rows: list[Row] = []
    for key, value in changes.items():
        found = present.get(key)
        shown = None if value is None else shown_value(key, value)
        set_here = found.value if found is not None and found.source == own else None
        rows.append(
            {
                "key": key,
                "present": found.value if found is not None else None,
                "source": found.source if found is not None else None,
                "new": shown,
                # What is not shown may differ.
                "changes": set_here != value or shown != value,
            }
        )
    return rows


def _entity(resource: pb.ConfigResource) -> str:
    """The source of what is set for the resource itself."""
    kinds = {pb.TOPIC: "topics", pb.BROKER: "brokers", pb.CONTROLLER: "controllers"}
    return f"{kinds[resource.resource_type]}/{resource.resource_name or '<default>'}"


def _warn_unknown(keys: Iterable[str]) -> None:
    for key in keys:
        note(f"pctl: key {key!r} is not known: its value was not checked")


def parse_configs(configs: Sequence[str]) -> dict[str, str]:
    """Keys and values from texts KEY=VALUE. Raises click.UsageError."""
    parsed = {}
    for text in configs:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise click.UsageError(f"{text!r}: must be KEY=VALUE")
        if key.strip() in parsed:
            raise click.UsageError(f"{key.strip()}: is given twice")
        parsed[key.strip()] = value.strip()
    return parsed
