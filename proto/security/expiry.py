"""When the certificates in use end: for metrics, and a warning before it."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

import structlog

from proto.security.files import FileSettingError, FromFiles, read_file
from proto.security.principals import not_after
from proto.security.tls import TlsFiles, check

log = structlog.get_logger(__name__)

WARNED_BEFORE = timedelta(days=30)
WARNED_EVERY = timedelta(days=1)
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----")


class Expiry(NamedTuple):
    """The first end of a certificate in a file. ``setting``: which names the file."""

    setting: str
    file: Path
    not_after: datetime


def expiries(files: TlsFiles) -> list[Expiry]:
    """When the certificates in the files end. A file that cannot be read is left out: who uses it says so."""
    found = []
    for which, path in (("certificate", files.certificate), ("ca", files.ca)):
        if path is None:
            continue
        try:
            text = read_file(files.prefix + which, path, "a PEM file", secret=False).decode(
                "ascii", "replace"
            )
            ends = [not_after(ssl.PEM_cert_to_DER_cert(pem)) for pem in _PEM.findall(text)]
        except (FileSettingError, ValueError):
            continue
        if ends:
            found.append(Expiry(files.prefix + which, path, min(ends)))
    return found


def warn(found: Iterable[Expiry], now: datetime) -> None:
    """Log those that end within WARNED_BEFORE."""
    for expiry in found:
        left = expiry.not_after - now
        if left < WARNED_BEFORE:
            log.warning(
                "certificate_expires",
                setting=expiry.setting,
                file=str(expiry.file),
                not_after=expiry.not_after.isoformat(),
                days_left=round(left / timedelta(days=1), 1),
            )


class Certificates:
    """All that a process uses. Of a file that cannot be used the former content counts, as it does for connections."""

    def __init__(self, *used: TlsFiles | None) -> None:
        """Raises FileSettingError."""
        self._used = [
            FromFiles(files.present, partial(_usable, files)) for files in used if files is not None
        ]

    def expiries(self) -> list[Expiry]:
        return [expiry for files in self._used for expiry in files.current()]

    async def warn_daily(self) -> None:
        """Warn now, every day, and when one ends, until cancelled."""
        while True:
            found, now = self.expiries(), datetime.now(UTC)
            warn(found, now)
            await asyncio.sleep(until_next_look(found, now).total_seconds())


def until_next_look(found: Iterable[Expiry], now: datetime) -> timedelta:
    return min([WARNED_EVERY, *(e.not_after - now for e in found if e.not_after > now)])


def _usable(files: TlsFiles) -> list[Expiry]:
    check(files)
    return expiries(files)
