"""Planting a fault in this process: the one module is compiled from its changed source when it is imported.

Imports nothing of the product: it must be there before that is.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

from tests.provers.sim.planted.catalogue import FAULTS
from tests.provers.sim.planted.fault import Fault

_planted: list[str] = []


class _Loader(SourceFileLoader):
    def __init__(self, fault: Fault, path: str) -> None:
        super().__init__(fault.module, path)
        self._fault = fault

    def get_code(self, fullname: str) -> CodeType:
        """Past all caches of compiled files: they know nothing of this."""
        module = self._fault.planted_in(self._fault.source())
        return compile(module, self.get_filename(fullname), "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._fault.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(self._fault, spec.origin)
        return spec


def plant(name: str | None) -> None:
    """From now on the product has this fault; None: it stays as it is.

    Raises KeyError when there is none of that name, RuntimeError when its module is imported already,
    StaleFaultError.
    """
    if name is None:
        return
    fault = FAULTS[name]
    if fault.module in sys.modules:
        raise RuntimeError(f"{fault.module} is imported already: too late to plant {name}")
    fault.planted_in(fault.source())
    sys.meta_path.insert(0, _Finder(fault))
    _planted.append(name)


def prepare(name: str | None) -> None:
    """In each process of a pool, as it starts: `plant`. Ctrl-C reaches all of them; their parent ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    plant(name)


def planted() -> str | None:
    """What was planted here."""
    return _planted[-1] if _planted else None
