"""The imports of a program's start, without what libraries do in theirs that no program of ours needs."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

#: Where OpenSSL looks for authorities instead of the machine's directories.
_AUTHORITIES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


@contextmanager
def quick_imports() -> Iterator[None]:
    """Around imports. None of them may need rich; what imports it later gets it."""
    with ExitStack() as undone:
        # Imports leave nothing to collect, and looking for it takes a tenth to a sixth of the start.
        if gc.isenabled():
            gc.disable()
            undone.callback(gc.enable)
            undone.callback(gc.freeze)
        # structlog imports rich where it finds it, to print exceptions in colours: a fifth of a broker's start. Our
        # exceptions are texts by then.
        if "rich" not in sys.modules:
            sys.modules["rich"] = None  # type: ignore[assignment]
            undone.callback(sys.modules.pop, "rich")
        # aiohttp reads all certificate authorities of the machine twice, for a client of anybody: a third of a
        # controller's start. Ours connects to controllers, with the authorities that the settings name.
        undone.callback(_set, {name: os.environ.get(name) for name in _AUTHORITIES})
        _set(dict.fromkeys(_AUTHORITIES, os.devnull))
        yield


def _set(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
