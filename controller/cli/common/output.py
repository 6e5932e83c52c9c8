"""Output of pctl: rows as a table, JSON, YAML, or values separated by tabs."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import click
import msgspec

from controller.exit_codes import EXIT_FAILED
from proto.texts import printable

Row = Mapping[str, Any]
#: Characters of a cell of a table; JSON and YAML have the whole value.
CELL_CHARS_MAX = 500
#: Escape sequences that reset a terminal's style, at the end of a line.
_RESETS = re.compile(r"(?:\x1b\[[0-9;]{0,20}m){1,8}\Z")
#: Where these can begin, seen from the end of a line.
_RESETS_CHARS_MAX = 8 * 24


def log_to_stderr() -> None:
    """What is logged in a tool, such as a file of secrets that others may read, must not be among its output."""
    import structlog

    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))


def print_rows(rows: Sequence[Row], columns: Sequence[str], style: str) -> None:
    """Print rows with these columns; in JSON and YAML the columns are keys and values are not formatted."""
    if style == "tsv":
        print_tsv(columns, rows)
        return
    if style != "table":
        print_data([{c: row.get(c) for c in columns} for row in rows], style)
        return
    print_table(
        [c.replace("_", " ").upper() for c in columns], [[_cell(row.get(c)) for c in columns] for row in rows]
    )


def print_data(value: object, style: str) -> None:
    """Print as JSON, or the same data as YAML: numbers as keys become strings in both."""
    encoded = msgspec.json.encode(value)
    if style == "tsv":
        _print_data_tsv(msgspec.json.decode(encoded))
    elif style == "yaml":
        click.echo(msgspec.yaml.encode(msgspec.json.decode(encoded)), nl=False)
    else:
        click.echo(msgspec.json.format(encoded))


def print_item(value: object, style: str) -> None:
    """Print one item of a stream: a line of JSON, a YAML document, or its values separated by tabs."""
    encoded = msgspec.json.encode(value)
    if style == "tsv":
        found = msgspec.json.decode(encoded)
        click.echo("\t".join(map(_tsv, found.values() if isinstance(found, dict) else [found])))
    elif style == "yaml":
        click.echo("---\n" + msgspec.yaml.encode(msgspec.json.decode(encoded)).decode(), nl=False)
    else:
        click.echo(encoded)


def print_tsv(columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Print a line of column names and a line for each row, separated by tabs. Lists are separated by commas."""
    click.echo("\t".join(columns))
    for row in rows:
        click.echo("\t".join(_tsv(row.get(column)) for column in columns))


def _print_data_tsv(data: Any) -> None:
    """Rows as rows, whose columns are the keys of any; else a line for each field."""
    if isinstance(data, list):
        rows = [row if isinstance(row, dict) else {"value": row} for row in data]
        print_tsv(list(dict.fromkeys(key for row in rows for key in row)), rows)
    else:
        for name, value in data.items() if isinstance(data, dict) else [("value", data)]:
            click.echo(f"{name}\t{_tsv(value)}")


def _tsv(value: object) -> str:
    """A cell without tabs and line ends; nothing for None, JSON for what is nested."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple) and not any(isinstance(v, dict | list | tuple) for v in value):
        return printable(",".join(map(str, value)))
    if isinstance(value, dict | list | tuple):
        return msgspec.json.encode(value).decode()
    return printable(str(value))


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table. Very long cells are cut; on a terminal other long ones are folded, elsewhere lines are long."""
    # Not imported above: JSON and YAML need none of it.
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    rows = [[cut(cell) for cell in row] for row in rows]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        table.add_column(header, overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    terminal = sys.stdout.isatty()
    widest = max((len(cell) for row in rows for cell in row), default=0)
    console = Console(
        highlight=False, emoji=False, width=None if terminal else (widest + 20) * max(len(headers), 1)
    )
    with console.capture() as capture:
        console.print(table)
    click.echo("".join(map(_without_blanks, capture.get().splitlines(keepends=True))), nl=False)


def _without_blanks(line: str) -> str:
    """The line without the blanks at its end, in time linear in its length."""
    text = line.rstrip("\n")
    begins = max(len(text) - _RESETS_CHARS_MAX, 0)
    resets = _RESETS.search(text, begins)
    end = resets.start() if resets is not None else len(text)
    return text[:end].rstrip(" ") + text[end:] + line[len(text) :]


def cut(text: str) -> str:
    """A text for a cell, which is cut where it is very long."""
    if len(text) <= CELL_CHARS_MAX:
        return text
    return f"{text[:CELL_CHARS_MAX]}... ({len(text)} characters)"


def print_fields(fields: Row, style: str) -> None:
    """Print one record, a line per field."""
    if style == "tsv":
        for name, value in fields.items():
            click.echo(f"{name}\t{_tsv(value)}")
        return
    if style != "table":
        print_data(fields, style)
        return
    width = max(len(name) for name in fields)
    for name, value in fields.items():
        click.echo(f"{name.replace('_', ' '):<{width}}  {cut(_cell(value))}")


def note(text: str) -> None:
    """Print a message for people on standard error."""
    click.echo(text, err=True)


def fail(text: str, code: int = EXIT_FAILED) -> NoReturn:
    """Print a message on standard error and end the program."""
    click.echo(f"pctl: {text}", err=True)
    sys.exit(code)


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return printable(",".join("-" if v is None else str(v) for v in value)) or "-"
    if isinstance(value, dict):
        return printable(", ".join(f"{k}={v}" for k, v in value.items())) or "-"
    return printable(str(value))
