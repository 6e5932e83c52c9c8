"""``pctl completion``: what a shell loads to complete verbs, options and their values."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

_SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command()
@click.argument("shell", type=click.Choice(list(_SHELLS)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script by which a shell completes verbs, options and their values.

    bash and fish load it from a file among their completions, zsh as _pctl from a directory of its fpath.
    """
    # By this name click knows, when pctl starts, that it is asked for completions.
    made = _SHELLS[shell](context.find_root().command, {}, "pctl", "_PCTL_COMPLETE")
    click.echo(made.source_template % made.source_vars())
