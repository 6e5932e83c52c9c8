"""Tables with values that are far too long: cut, and printed in time linear in what is printed."""

from __future__ import annotations

import json

import pytest

from controller.cli.common import output
from controller.cli.common.output import CELL_CHARS_MAX

LONG = "x" * 300_000


def test_a_very_long_cell_is_cut_and_hides_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"topic": "a", "topic_id": LONG}, {"topic": "b", "topic_id": "short"}]
    output.print_rows(rows, ["topic", "topic_id"], "table")
    header, first, second = capsys.readouterr().out.splitlines()
    assert header == "TOPIC  TOPIC ID"
    assert first == f"a      {LONG[:CELL_CHARS_MAX]}... (300000 characters)"
    assert second == "b      short"
    output.print_fields({"topic_id": LONG}, "table")
    assert capsys.readouterr().out == f"topic id  {LONG[:CELL_CHARS_MAX]}... (300000 characters)\n"


@pytest.mark.parametrize("style", ["json", "yaml"])
def test_data_have_the_whole_value(capsys: pytest.CaptureFixture[str], style: str) -> None:
    output.print_rows([{"id": LONG}], ["id"], style)
    said = capsys.readouterr().out
    assert LONG in said
    if style == "json":
        assert json.loads(said) == [{"id": LONG}]


@pytest.mark.parametrize(
    ("line", "printed"),
    [
        ("a  b   \n", "a  b\n"),
        ("a   \x1b[0m\n", "a\x1b[0m\n"),
        ("\x1b[1ma \x1b[0m\x1b[0m", "\x1b[1ma\x1b[0m\x1b[0m"),
        ("   \n", "\n"),
        ("a m\n", "a m\n"),
    ],
)
def test_blanks_at_the_end_of_a_line_are_not_printed(line: str, printed: str) -> None:
    assert output._without_blanks(line) == printed


def test_blanks_inside_a_line_are_looked_at_once() -> None:
    """A search for the last blanks that begins at each of them takes minutes here."""
    line = " " * 1_000_000 + "x\n"
    assert output._without_blanks(line) == line
