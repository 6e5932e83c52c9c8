"""Options and arguments that take several values: separated by commas, repeated, or both."""

from __future__ import annotations

import click

from controller.core.model import BROKER_ID_MAX
from controller.core.names import number_in, shown


def names(
    _context: click.Context, _parameter: click.Parameter, value: tuple[str, ...] | None
) -> tuple[str, ...]:
    """Callback: names without commas, such as those of topics and partitions."""
    return tuple(name for text in value or () for name in text.split(","))


def broker_ids(
    _context: click.Context, _parameter: click.Parameter, value: str | tuple[str, ...] | None
) -> tuple[int, ...]:
    """Callback: broker ids, each once."""
    given = (value,) if isinstance(value, str) else value or ()
    ids: dict[int, None] = {}
    for text in given:
        for word in text.split(","):
            if (id_ := number_in(word.strip(), BROKER_ID_MAX)) is None:
                raise click.BadParameter(
                    f"{shown(text)}: must be broker ids from 0 to {BROKER_ID_MAX}, as 3,5"
                )
            ids[id_] = None
    return tuple(ids)
