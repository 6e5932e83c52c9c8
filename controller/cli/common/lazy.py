"""Commands whose modules are imported when they are used: importing all takes longer than most requests."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from controller.cli.common.options import ListingVerbs, Verbs
from proto.quick_imports import quick_imports
from proto.standard_streams import standard_streams


class Later(NamedTuple):
    """The module with a command of the same name, seen from the program's folder, and the command's help in the list
    of commands."""

    module: str
    help: str


class Lazy(click.Group):
    """``later``: the commands, by name; there are no others, so that ``@group.command`` adds none."""

    #: The folder of their modules, and the program that they are of.
    folder, program = "controller.cli", "partition-controller"

    def __init__(self, *args: Any, later: Mapping[str, Later], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.later = later
        # By name alone: what click lists, and proposes for one that is misspelt.
        self.commands = {name: click.Command(name) for name in later}

    def main(self, *args: Any, **kwargs: Any) -> Any:
        with standard_streams(self.program):
            return super().main(*args, **kwargs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self.later:
            return None
        with quick_imports():
            module = import_module(f"{self.folder}.{self.later[cmd_name].module}")
        found = getattr(module, cmd_name.replace("-", "_"))
        assert isinstance(found, click.Command)
        return found

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """As click's, but without the import of every verb that begins so."""
        own = [
            CompletionItem(name, help=self.later[name].help)
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]
        # What a command without verbs below it completes: its options.
        return own + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.later[name].help) for name in self.list_commands(ctx)])


class LazyVerbs(Lazy, Verbs):
    """Verbs of pctl."""

    folder, program = "controller.cli.pctl", "pctl"


class LazyListingVerbs(LazyVerbs, ListingVerbs):
    """Verbs, and without one a listing that ``-w [SECONDS]`` repeats."""
