"""What a data directory says of the data in it (docs/adr/0017): an id, and how the last process on it ended.

::

    DIR/meta.properties             directory.id: random, of this directory and what is in it (KIP-858); cluster.id
    DIR/.kafka_cleanshutdown        the broker epoch of a process that has flushed all and stopped (KIP-966)
    DIR/.boot-id                    of the machine, at the last start; and whether that process flushes each write

What a process has written outlives its death, but not that of the machine, unless it was flushed. So a directory keeps
its id when its last process stopped cleanly or flushed each write, or this machine has been running since; else records
may be gone, and it gets a new id: to the controller it is another directory.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import uuid
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from broker_stub.log.files import sync_directory, write_atomically

CLEAN_SHUTDOWN, BOOT_ID = ".kafka_cleanshutdown", ".boot-id"
FILES = frozenset({CLEAN_SHUTDOWN, f"{CLEAN_SHUTDOWN}.tmp", BOOT_ID, f"{BOOT_ID}.tmp"})
NO_EPOCH = -1
#: In the place of a directory's short id.
UNKNOWN = 0
_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
#: Kafka writes 22 characters.
CLUSTER_ID, CLUSTER_ID_ALLOWED = re.compile(r"[!-~]{1,255}"), "1 to 255 ASCII characters without spaces"
_BYTES_MAX = 1000
#: The second line of the file: each write is flushed.
_SYNCED = "flushed"


class DataIdentity(NamedTuple):
    """``directory_id``: 22 characters. ``previous_broker_epoch``: of the process that stopped cleanly, -1: none did."""

    directory_id: str
    previous_broker_epoch: int = NO_EPOCH


def random_uuid() -> str:
    """As Kafka writes ids of clusters, topics and directories: 16 bytes in URL-safe base64, 22 characters."""
    return urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


def short_id(directory_id: str) -> int:
    """The first four bytes of a directory id: what a partition's state names it by; never 0. Raises ValueError."""
    return int.from_bytes(urlsafe_b64decode(f"{directory_id}==")[:4]) or 1


def of_broker(directories: Collection[int]) -> int:
    """What stands for a replica in one of these directories, given by their short ids, where it is not known in which:
    the only one, or all of them together (docs/adr/0017). 0: there is none."""
    if len(directories) < 2:
        return next(iter(directories), UNKNOWN)
    return zlib.crc32(b"".join(id_.to_bytes(4) for id_ in sorted(directories))) or 1


def kept_all(*, clean: bool, synced: bool, boot_before: str, boot_now: str) -> bool:
    """Whether all that was acknowledged is still in the directory. ``clean``, ``synced``: its last process stopped
    cleanly, flushed each write. A machine without a boot id may have stopped."""
    return clean or synced or (boot_now != "" and boot_before == boot_now)


def begin(directory: Path, directory_id: str | None) -> DataIdentity:
    """The identity for a new process. Before its first write call `started`. Raises OSError."""
    clean, epoch = _read_clean_shutdown(directory)
    boot_before, _, flushing = _read(directory / BOOT_ID).partition("\n")
    kept = kept_all(
        clean=clean, synced=flushing == _SYNCED, boot_before=boot_before, boot_now=_read(_BOOT_ID_FILE)
    )
    return DataIdentity(directory_id if directory_id and kept else random_uuid(), epoch)


def started(directory: Path, *, synced: bool) -> None:
    """From here on the data may change: durable before it does. ``synced``: each write is flushed before it is
    acknowledged. Raises OSError."""
    content = f"{_read(_BOOT_ID_FILE)}\n{_SYNCED if synced else ''}"
    write_atomically(directory / BOOT_ID, content.encode())
    with contextlib.suppress(FileNotFoundError):
        os.unlink(directory / CLEAN_SHUTDOWN)
        sync_directory(directory)


def stopped_cleanly(directory: Path, broker_epoch: int) -> None:
    """All is flushed, and nothing more is written. Raises OSError."""
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    write_atomically(directory / CLEAN_SHUTDOWN, content.encode())


def _read(file: Path) -> str:
    """Empty where it cannot be read: then nothing is known."""
    try:
        with file.open("rb") as stream:
            return stream.read(_BYTES_MAX).decode("ascii", "replace").strip()
    except OSError:
        return ""


def _read_clean_shutdown(directory: Path) -> tuple[bool, int]:
    """Whether the mark is there and whole, and the epoch in it."""
    try:
        found = json.loads(_read(directory / CLEAN_SHUTDOWN))
    except ValueError:
        return False, NO_EPOCH
    epoch = found.get("brokerEpoch") if isinstance(found, dict) else None
    return (True, epoch) if isinstance(epoch, int) else (False, NO_EPOCH)
