"""Verbs whose modules are imported when they are used: importing all takes longer than most requests."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from controller.cli.common.options import ListingVerbs, Verbs


class Later(NamedTuple):
    """The module of ``controller.cli.pctl`` with a verb of the same name, and the verb's help in the list of verbs."""

    module: str
    help: str


class LazyVerbs(Verbs):
    """``later``: the verbs, by name."""

    def __init__(self, *args: Any, later: Mapping[str, Later], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.later = later

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(self.later)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self.later:
            return None
        # Imports leave nothing to collect, and looking for it takes a sixth of the start.
        gc.disable()
        try:
            found = getattr(import_module(f"controller.cli.pctl.{self.later[cmd_name].module}"), cmd_name)
        finally:
            gc.freeze()
            gc.enable()
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


class LazyListingVerbs(LazyVerbs, ListingVerbs):
    """Verbs, and without one a listing that ``-w [SECONDS]`` repeats."""
