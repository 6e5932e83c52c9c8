"""Commands whose modules are imported when they are used: importing all takes longer than most requests."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from errno import EDQUOT, EFBIG, EIO, ENOSPC, EROFS
from importlib import import_module
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from controller.cli.common.options import ListingVerbs, Verbs
from controller.exit_codes import EXIT_FAILED
from proto.quick_imports import quick_imports
from proto.standard_streams import open_closed_streams

#: What a file system says that takes no more.
_UNWRITABLE = (ENOSPC, EDQUOT, EFBIG, EIO, EROFS)


class Later(NamedTuple):
    """The module with a command of the same name, seen from the program's folder, and the command's help in the list
    of commands."""

    module: str
    help: str


class Lazy(click.Group):
    """``later``: the commands, by name."""

    #: The folder of their modules, and the program that they are of.
    folder, program = "controller.cli", "partition-controller"

    def __init__(self, *args: Any, later: Mapping[str, Later], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.later = later

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Commands handle the files that they name, and click a reader that is gone."""
        open_closed_streams()
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            if error.errno not in _UNWRITABLE:
                raise
            # Else the end of the program would try to print what is left, and fail once more.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            click.echo(f"{self.program}: {error.filename or 'cannot print'}: {error.strerror}", err=True)
            sys.exit(EXIT_FAILED)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(self.later)

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
