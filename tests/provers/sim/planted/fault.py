"""What a planted fault is: a change of one source file that makes the product do something wrong."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[4]


class StaleFaultError(Exception):
    """The source has moved on: what a fault replaces is not there exactly once."""


class Fault(NamedTuple):
    """``before`` occurs exactly once in ``file``, which is a path from the root of the repository.

    ``kind``: ``core``, ``driver`` or ``broker``. ``more``: further replacements in the same file, where one alone does
    nothing.
    """

    name: str
    kind: str
    file: str
    what: str
    before: str
    after: str
    more: tuple[tuple[str, str], ...] = ()

    @property
    def module(self) -> str:
        return self.file.removesuffix(".py").replace("/", ".")

    def source(self) -> str:
        """The file's text with the fault in it. Raises StaleFaultError."""
        text = (ROOT / self.file).read_text(encoding="utf-8")
        for before, after in ((self.before, self.after), *self.more):
            if (count := text.count(before)) != 1:
                raise StaleFaultError(f"{self.name}: found {count} times in {self.file}:\n{before}")
            text = text.replace(before, after)
        return text
