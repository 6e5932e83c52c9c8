"""How pctl prints: the same rows as a table for people or as JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import click
import msgspec
from rich.console import Console
from rich.table import Table

EXIT_FAILED, EXIT_USAGE, EXIT_REFUSED = 1, 2, 3

Row = Mapping[str, Any]


def print_rows(rows: Sequence[Row], columns: Sequence[str], style: str) -> None:
    """Rows with these columns; JSON has the same keys, and values as they are."""
    if style == "json":
        click.echo(
            msgspec.json.format(msgspec.json.encode([{c: row.get(c) for c in columns} for row in rows]))
        )
        return
    table = Table(
        *(c.replace("_", " ").upper() for c in columns), box=None, pad_edge=False, header_style="bold"
    )
    for row in rows:
        table.add_row(*(_cell(row.get(c)) for c in columns))
    Console(soft_wrap=True, highlight=False).print(table)


def print_fields(fields: Row, style: str) -> None:
    """One thing, a line per field."""
    if style == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(fields)))
        return
    width = max(len(name) for name in fields)
    for name, value in fields.items():
        click.echo(f"{name.replace('_', ' '):<{width}}  {_cell(value)}")


def note(text: str) -> None:
    """Something for the person, not the program: standard error."""
    click.echo(text, err=True)


def fail(text: str, code: int = EXIT_FAILED) -> NoReturn:
    click.echo(f"pctl: {text}", err=True)
    sys.exit(code)


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "-"
    if isinstance(value, dict):
        return ", ".join(f"{k}={v}" for k, v in value.items()) or "-"
    return str(value)
