"""What a planted fault is: a change of one module that makes the product do something wrong."""

from __future__ import annotations

import ast
from typing import NamedTuple

from tests.provers.sim.planted.pattern import PatternError, replace
from tests.support.paths import ROOT

_KINDS = {
    "controller.core": "core",
    "controller.runtime": "driver",
    "proto": "driver",
    "broker_stub": "broker",
}


class StaleFaultError(Exception):
    """The source has moved on: what a fault replaces is not there exactly once."""


class Change(NamedTuple):
    """Of what is there exactly once in a function, given as ``module:qualified.name``; without a name: in the module.

    ``pattern`` and ``replacement``: see `tests.provers.sim.planted.pattern`.
    """

    where: str
    pattern: str
    replacement: str


def drop(where: str, statement: str) -> Change:
    return Change(where, statement, "pass")


class Fault:
    """All ``changes`` are of one module; more than one where one alone does nothing.

    ``module``: its name, ``file``: its path in the repository. ``kind``: ``core``, ``driver`` or ``broker``.
    """

    def __init__(self, name: str, what: str, *changes: Change) -> None:
        self.name, self.what, self.changes = name, what, changes
        (self.module,) = {change.where.partition(":")[0] for change in changes}
        self.file = self.module.replace(".", "/") + ".py"
        (self.kind,) = [kind for package, kind in _KINDS.items() if self.module.startswith(package)]

    def source(self) -> str:
        """Without the fault. Raises StaleFaultError."""
        try:
            return (ROOT / self.file).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise StaleFaultError(f"{self.name}: there is no {self.file}") from None

    def planted_in(self, source: str) -> ast.Module:
        """The module with the fault in it. Raises StaleFaultError."""
        module = ast.parse(source, self.file)
        for where, pattern, replacement in self.changes:
            try:
                replace(module, where.partition(":")[2], pattern, replacement)
            except PatternError as error:
                raise StaleFaultError(f"{self.name}: {self.file}: {error}") from None
        return module
