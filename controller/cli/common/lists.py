"""Options and arguments that take several values: separated by commas, repeated, or both."""

from __future__ import annotations

import click

from controller.runtime.zookeeper.codecs import INT_MAX


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
            part = word.strip()
            if not (part.isascii() and part.isdigit() and int(part[:20]) <= INT_MAX):
                raise click.BadParameter(f"{text!r}: must be broker ids from 0 to {INT_MAX}, as 3,5")
            ids[int(part)] = None
    return tuple(ids)
