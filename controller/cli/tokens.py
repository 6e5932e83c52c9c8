"""``partition-controller tokens``: the file of bearer tokens of people without certificates (docs/security.md)."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import click

from controller.exit_codes import EXIT_FAILED
from proto.security.tokens import line_of, name_in, new_token

_file_option = click.option(
    "--file",
    "file",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="the file of tokens",
)


@click.group()
def tokens() -> None:
    """Add and remove bearer tokens. The file holds their digests only (setting bearer_tokens_file)."""


@tokens.command()
@click.argument("name")
@_file_option
def add(name: str, file: Path) -> None:
    """Make a token for NAME and print it; it is shown this once. The file is made if it is not there.

    NAME is the principal User:NAME of authorizer_file and super_users. Running daemons take the change at once.
    """
    token = new_token()
    try:
        line = line_of(name, token)
    except ValueError as error:
        raise click.BadParameter(f"must be {error}", param_hint="NAME") from None
    with _changing(file):
        _write(file, [*_lines(file), line])
    click.echo(token)


@tokens.command()
@click.argument("name")
@_file_option
def remove(name: str, file: Path) -> None:
    """Remove all tokens of NAME."""
    with _changing(file):
        lines = _lines(file)
        kept = [line for line in lines if name_in(line) != name]
        if len(kept) == len(lines):
            click.echo(f"{file} has no token of {name}", err=True)
            sys.exit(EXIT_FAILED)
        _write(file, kept)
    click.echo(f"removed {len(lines) - len(kept)} of {name}")


@contextmanager
def _changing(file: Path) -> Iterator[None]:
    """Nobody else changes it meanwhile: what one removes, another would put back. Locks the directory, because the file
    is replaced."""
    with ExitStack() as held:
        try:
            directory = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
            held.callback(os.close, directory)
            fcntl.flock(directory, fcntl.LOCK_EX)
        except OSError as error:
            raise click.ClickException(f"{file} cannot be written: {error}") from None
        yield


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{file} cannot be read: {error}") from None


def _write(file: Path, lines: list[str]) -> None:
    """Replace the file as a whole, readable by its owner and, as before, by its group: daemons read it so."""
    aside = file.with_name(file.name + ".new")
    try:
        before = file.stat() if file.exists() else None
        mode = before.st_mode & 0o640 if before else 0o600
        with os.fdopen(
            os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="utf-8"
        ) as out:
            out.write("".join(f"{line}\n" for line in lines))
        if before is not None:
            os.chown(aside, before.st_uid, before.st_gid)
        aside.chmod(mode)
        aside.replace(file)
    except OSError as error:
        with suppress(OSError):
            aside.unlink()
        raise click.ClickException(f"{file} cannot be written: {error}") from None
