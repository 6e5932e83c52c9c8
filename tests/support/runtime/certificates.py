"""Certificates for tests: an authority, and files of those it signs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID

from controller import certificates


def _name(common_name: str, unit: str = "") -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if unit:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit))
    return x509.Name(attributes)


@dataclass
class Authority:
    """Signs certificates for the loopback address, and writes PEM files below ``folder``."""

    folder: Path
    name: str = "test authority"
    #: Another one's key, to issue what it would not; None: its own.
    signs: certificates.Authority | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._signs = self.signs or certificates.Authority.create(self.name, (-100, 100))
        self.cafile, self.ca_keyfile = self.folder / "ca.pem", self.folder / "ca.key"
        for file, content in zip((self.cafile, self.ca_keyfile), self._signs.pem(), strict=True):
            file.write_bytes(content)
        self.ca_keyfile.chmod(0o600)

    def issue(
        self,
        common_name: str,
        unit: str = "",
        *,
        days: tuple[float, float] = (-1, 1),
        hosts: tuple[str, ...] = ("127.0.0.1",),
        password: bytes | None = None,
    ) -> tuple[Path, Path]:
        """Certificate and key files, named after the subject; written over when issued again.

        ``days``: validity, in days from now.
        """
        certificate, key = self._signs.issue(_name(common_name, unit), hosts, days)
        if password is not None:
            key = serialization.load_pem_private_key(key, None).private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(password),
            )
        certfile, keyfile = self.folder / f"{common_name}.pem", self.folder / f"{common_name}.key"
        certfile.write_bytes(certificate)
        keyfile.write_bytes(key)
        keyfile.chmod(0o600)
        return certfile, keyfile


async def rotate(
    folder: Path, other: Authority, pause_s: float, hosts: Sequence[str] = ("127.0.0.1",)
) -> None:
    """Replace an authority, and all certificates that lie beside it, by those of another: in place, one step at a time.

    First everybody believes both authorities, then has a certificate of the new one, then believes only that.
    """
    old, new = (folder / "ca.pem").read_bytes(), other.cafile.read_bytes()
    _put(folder / "ca.pem", old + new)
    await asyncio.sleep(pause_s)
    for name in _names(folder):
        certfile, keyfile = other.issue(name, hosts=tuple(hosts))
        _put(folder / f"{name}.key", keyfile.read_bytes())
        _put(folder / f"{name}.pem", certfile.read_bytes())
        await asyncio.sleep(pause_s / 5)
    await asyncio.sleep(pause_s)
    _put(folder / "ca.pem", new)


def _names(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.key") if path.stem != "ca")


def _put(path: Path, content: bytes) -> None:
    """As a whole: nobody reads half of it."""
    beside = path.with_suffix(".new")
    beside.write_bytes(content)
    beside.chmod(0o600)
    beside.replace(path)
