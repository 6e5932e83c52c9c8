"""docs/commands.md has every verb of pctl, with what it printed."""

from __future__ import annotations

import re

import pytest

from controller.cli.common import record_format
from controller.cli.pctl import brokers, cluster, config, features, maintenance, partitions, reassign, topics
from controller.cli.pctl.moving import load
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


#: By verb, the columns of the first table that it prints. Scripts read them by name from -o json and -o tsv.
COLUMNS = {
    "audit": brokers._AUDIT_COLUMNS,
    "brokers": brokers._COLUMNS,
    "brokers decommission": load._COLUMNS,
    "brokers replace": load._COLUMNS,
    "config get": config._COLUMNS,
    "features upgrade": (*features._COLUMNS, "wanted"),
    "history": record_format.COLUMNS,
    "maintenance leave": maintenance._COLUMNS,
    "partitions": partitions.PARTITION_COLUMNS,
    "quarantine list": cluster._SUSPECT_COLUMNS,
    "reassign execute": reassign._PLANNED_COLUMNS,
    "reassign list": reassign._ONGOING_COLUMNS,
    "topics delete": topics._DELETED_COLUMNS,
    "topics describe": partitions.PARTITION_COLUMNS,
}


@pytest.mark.parametrize("verb", COLUMNS)
def test_tables_have_the_columns_that_the_page_shows(verb: str) -> None:
    shown = re.search(rf"^## pctl {verb}\n\n.*\n\n```\n\$ .*\n(.*)\n", TEXT, re.MULTILINE)
    assert shown is not None
    assert re.split(" {2,}", shown[1]) == [name.upper().replace("_", " ") for name in COLUMNS[verb]]
