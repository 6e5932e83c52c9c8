"""When certificates end: for metrics, and a warning before it."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import structlog

from proto.security.files import FileSettingError, read_file
from proto.security.principals import not_after
from proto.security.tls import TlsFiles

log = structlog.get_logger(__name__)

WARNED_BEFORE = timedelta(days=30)
WARNED_EVERY_S = 86_400.0
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


async def warn_daily(used: Iterable[TlsFiles]) -> None:
    """Warn now and every day, until cancelled."""
    used = list(used)
    while used:
        for files in used:
            warn(expiries(files), datetime.now(UTC))
        await asyncio.sleep(WARNED_EVERY_S)
