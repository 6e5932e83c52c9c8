"""``pctl man``: manual pages, made of what ``--help`` prints, for each verb of pctl and partition-controller."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from controller import __version__
from controller.cli.common.options import TEXT_FILE, Verb
from controller.cli.common.output import fail
from controller.cli.pctl_examples import lines_for

_SECTION = 1


@click.command(cls=Verb)
@click.argument("directory", type=TEXT_FILE)
@click.pass_context
def man(context: click.Context, directory: Path) -> None:
    """Write manual pages of pctl, partition-controller and their verbs.

    They are of section 1, one file each, in DIRECTORY.
    """
    from controller.cli.main import main as partition_controller

    count = 0
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for program, name in (
            (context.find_root().command, "pctl"),
            (partition_controller, "partition-controller"),
        ):
            for path, text in pages(program, name):
                (directory / f"{path.replace(' ', '-')}.{_SECTION}").write_text(text, encoding="utf-8")
                count += 1
    except OSError as error:
        fail(f"{directory}: {error.strerror or error}")
    click.echo(f"{count} pages are in {directory}: man {directory}/pctl.{_SECTION}")


def pages(
    command: click.Command, name: str, parent: click.Context | None = None
) -> Iterator[tuple[str, str]]:
    """The program or verb as it is typed, and its page; then those of the verbs below it."""
    with click.Context(command, info_name=name, parent=parent, **command.context_settings) as context:
        yield context.command_path, _page(command, context)
        if isinstance(command, click.Group):
            for verb in command.list_commands(context):
                below = command.get_command(context, verb)
                if below is not None and not below.hidden:
                    yield from pages(below, verb, context)


def _page(command: click.Command, context: click.Context) -> str:
    path = context.command_path
    first, *paragraphs = _paragraphs(command)
    lines = [
        f'.TH "{_escaped(path.replace(" ", "-").upper())}" "{_SECTION}" "" "{__version__}"',
        *(".SH NAME", f"{_escaped(path.replace(' ', '-'))} \\- {_escaped(first)}"),
        *(".SH SYNOPSIS", f".B {_escaped(path)}", _escaped(" ".join(command.collect_usage_pieces(context)))),
    ]
    if paragraphs:
        lines += [".SH DESCRIPTION", *(line for text in paragraphs for line in (_escaped(text), ".PP"))]
    options = [record for p in command.get_params(context) if (record := p.get_help_record(context))]
    lines += _defined("OPTIONS", options)
    if isinstance(command, click.Group):
        verbs = ((name, command.get_command(context, name)) for name in command.list_commands(context))
        lines += _defined("COMMANDS", [(name, _paragraphs(verb)[0]) for name, verb in verbs if verb])
    if examples := lines_for(path):
        lines += [".SH EXAMPLES", ".nf", *map(_escaped, examples), ".fi"]
    return "\n".join([*lines, ""])


def _paragraphs(command: click.Command) -> list[str]:
    """The help of a command: its first sentence, then its other paragraphs."""
    text = (command.help or command.short_help or "").split("\f")[0].replace("\b\n", "")
    first, *rest = (" ".join(part.split()) for part in text.split("\n\n") if part.strip())
    # "LOGDIR..." ends no sentence.
    sentence, *more = re.split(r"(?<!\.)\. ", first, maxsplit=1)
    return [sentence.removesuffix("."), *more, *rest]


def _defined(title: str, entries: Sequence[tuple[str, str]]) -> list[str]:
    if not entries:
        return []
    items = [line for term, text in entries for line in (".TP", f".B {_escaped(term)}", _escaped(text))]
    return [f".SH {title}", *items]


def _escaped(text: str) -> str:
    r"""For roff: backslashes and dashes as they are; a line must not begin as a request does."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
