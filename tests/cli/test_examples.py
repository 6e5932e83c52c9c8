"""Every verb has examples in its help, and every example parses; shells complete."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from controller.cli.common.options import Options
from controller.cli.pctl.main import main
from controller.cli.pctl_examples import EXAMPLES

CONTEXT = click.Context(main)


def verbs(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    """What can be typed, without options."""
    if not isinstance(command, click.Group):
        yield " ".join(path)
        return
    if command.invoke_without_command:
        yield " ".join(path)
    for name in command.list_commands(CONTEXT):
        found = command.get_command(CONTEXT, name)
        assert found is not None
        yield from verbs(found, (*path, name))


def parse(line: str) -> str:
    """The verb that a line calls. Raises click.UsageError."""
    words = shlex.split(line.partition(" > ")[0])
    command: click.Command = main
    context = main.make_context("pctl", words)
    context.obj = Options("127.0.0.1:2181", "table", 10)
    path: list[str] = []
    while isinstance(command, click.Group) and (rest := [*context._protected_args, *context.args]):
        name, found, words = command.resolve_command(context, rest)
        assert found is not None
        assert name is not None
        path.append(name)
        context = found.make_context(name, words, parent=context)
        command = found
    return " ".join(path)


def test_every_verb_has_examples() -> None:
    assert sorted(EXAMPLES) == sorted(verbs(main))


@pytest.mark.parametrize(("verb", "line"), [(v, line) for v, lines in EXAMPLES.items() for line in lines])
def test_examples_parse(verb: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_text("{}")
    assert parse(line) == verb


def test_help_shows_them() -> None:
    result = CliRunner().invoke(main, ["reassign", "verify", "--help"], prog_name="pctl")
    assert "Examples:\n  pctl reassign verify plan.json\n" in result.output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell], prog_name="pctl")
    assert result.exit_code == 0
    assert f"_PCTL_COMPLETE={shell}_complete" in result.output


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("pctl bro", {"brokers"}),
        ("pctl brokers de", {"decommission"}),
        ("pctl completion f", {"fish"}),
        # What will be refused is completed all the same.
        ("pctl config get --topic a --topic b --all-b", {"--all-brokers"}),
    ],
)
def test_what_is_completed(typed: str, wanted: set[str]) -> None:
    environment = {
        "_PCTL_COMPLETE": "bash_complete",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split()) - 1),
    }
    result = CliRunner().invoke(main, [], prog_name="pctl", env=environment)
    assert {line.partition(",")[2] for line in result.output.splitlines()} == wanted
