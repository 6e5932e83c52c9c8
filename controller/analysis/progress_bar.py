"""The progress of a job: a bar on a terminal, else lines; both on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import click

from controller.analysis.progress import Meter, Phase, Reading
from proto.texts import printable


@contextmanager
def shown() -> Iterator[Callable[[str], None]]:
    """What to give to a job as its ``progress``."""
    if not sys.stderr.isatty():
        yield partial(click.echo, err=True)
        return
    # Not imported above: spark-submit's Python need not have it.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (
        TextColumn("{task.description:<14}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[pace]}"),
    )
    with Progress(*columns, console=Console(stderr=True, highlight=False), transient=True) as bar:
        task = bar.add_task(Phase.SPARK.value, total=1.0, pace="")

        def say(line: str) -> None:
            bar.console.print(printable(line), markup=False, emoji=False)

        def changed(reading: Reading) -> None:
            bar.update(task, description=reading.phase.value, completed=reading.done, pace=pace(reading))

        yield Meter(say, changed)


def pace(reading: Reading) -> str:
    """Lines a second and the time left, as far as they are known."""
    parts = []
    if reading.lines_s is not None:
        parts.append(f"{reading.lines_s:,.0f} lines/s")
    if reading.left_s is not None:
        minutes, seconds = divmod(round(reading.left_s), 60)
        parts.append(f"about {minutes}:{seconds:02} left")
    return ", ".join(parts)
