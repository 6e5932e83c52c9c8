"""docs/commands.md has every verb of pctl, with what it printed."""

from __future__ import annotations

import re

from tests.docs.commands import PAGE, commands, page, verbs

TEXT = PAGE.read_text(encoding="utf-8")


def test_each_verb_is_there_as_it_would_be_written_now() -> None:
    """All but what the commands print: README's and the tutorial's are compared, these are written by a run."""
    found = re.findall(r"^## pctl (.*)\n\n.*\n\n```\n\$ (.*)\n((?:.*\n)*?)```$", TEXT, re.MULTILINE)
    said = {verb: (command, lines.splitlines()) for verb, command, lines in found}
    assert {verb: command for verb, (command, _) in said.items()} == commands()
    assert commands().keys() == verbs().keys()
    assert all(lines for _, lines in said.values())
    assert page(said) == TEXT
