"""What every verb of pctl is made of: the global options, the session with ZooKeeper, ``-o`` anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec

import click

from controller.cli.output import fail
from controller.core.placement import PlacementError
from controller.errors import ControllerError
from controller.runtime import inspection
from controller.runtime.zookeeper import ConnectionLossError, Session

STYLES = ("table", "json", "yaml")
P = ParamSpec("P")


class Options:
    """The global options."""

    def __init__(self, zookeeper: str, output: str, timeout_s: float) -> None:
        self.zookeeper, self.output, self.timeout_s = zookeeper, output, timeout_s


def on_cluster(
    work: Callable[Concatenate[Options, Session, P], Awaitable[None]],
) -> Callable[Concatenate[Options, P], None]:
    """Run a coroutine with a session; every expected failure becomes one line and exit code 1."""

    @wraps(work)
    def run(options: Options, /, *args: P.args, **kwargs: P.kwargs) -> None:
        async def connected() -> None:
            async with inspection.connected(
                options.zookeeper, int(options.timeout_s * 1000), create_chroot=False
            ) as session:
                await work(options, session, *args, **kwargs)

        try:
            asyncio.run(connected())
        except PlacementError as error:
            fail(str(error))
        except (ControllerError, ConnectionLossError) as error:
            fail(str(error) or f"the connection to ZooKeeper at {options.zookeeper} was lost")

    return run


def _set_output(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.find_object(Options).output = value  # type: ignore[union-attr]


class Verb(click.Command):
    """A command that takes ``-o`` too: people write it where they remember it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(
            click.Option(
                ["-o", "--output"],
                type=click.Choice(STYLES),
                callback=_set_output,
                expose_value=False,
                help="table, json or yaml",
            )
        )


class Verbs(click.Group):
    command_class = Verb
    group_class = type
