"""Where the active controller was found last, for questions: asked there first, ZooKeeper need not be.

ZooKeeper stays the authority: a controller answers only while it is active by its lease, and where it does not, it is
looked for in ZooKeeper. Requests that change something always look there first.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

#: Characters of an address that is believed.
_ADDRESS_MAX = 300


def _file(zookeeper: str) -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = hashlib.sha256(zookeeper.encode("utf-8", "surrogateescape")).hexdigest()[:24]
    return base / "partition-controller" / f"controller-{name}"


def last(zookeeper: str) -> str:
    """``host:port``; empty where none is remembered. ``zookeeper``: connect string with chroot."""
    try:
        with _file(zookeeper).open(encoding="utf-8") as file:
            return file.read(_ADDRESS_MAX).strip()
    except (OSError, UnicodeDecodeError, RuntimeError):
        return ""


def remember(zookeeper: str, endpoint: str) -> None:
    """For this user alone; where that fails, nothing is remembered."""
    with suppress(OSError, RuntimeError):
        path = _file(zookeeper)
        if endpoint == last(zookeeper):
            return
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            temporary.write_text(endpoint, encoding="utf-8")
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
