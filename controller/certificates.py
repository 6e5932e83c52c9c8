"""A throw-away certificate authority, to try TLS with. Not for production: its key lies beside what it signs."""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from controller.errors import ControllerError
from proto.addresses import is_ip_address

DAY = datetime.timedelta(days=1)
DAYS = 365
HOSTS = ("localhost", "127.0.0.1", "::1")
#: Common names: also names of files.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
HOST = re.compile(r"[A-Za-z0-9*][A-Za-z0-9.-]{0,252}")


class CertificatesError(ControllerError):
    """Certificates cannot be made; the message says why."""


class Signed(NamedTuple):
    """A certificate and its key, without password, as PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """An authority: its key and its certificate, of itself."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self.certificate, self.key = certificate, key

    @classmethod
    def create(cls, name: str, valid: tuple[float, float] = (-1, 10 * DAYS)) -> Authority:
        """``valid``: from and until, days from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = _usage(signs=True)
        builder = (
            _builder(subject, subject, key.public_key(), valid)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        return cls(builder.sign(key, hashes.SHA256()), key)

    def issue(
        self, subject: x509.Name, hosts: Sequence[str], valid: tuple[float, float] = (-1, DAYS)
    ) -> Signed:
        """For servers and clients. ``hosts``: names and addresses; ``valid``: from and until, days from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        ours = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        certificate = (
            _builder(subject, self.certificate.subject, key.public_key(), valid)
            .add_extension(x509.SubjectAlternativeName([_general_name(h) for h in hosts]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(both), critical=False)
            .add_extension(ours, critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return Signed(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))

    def pem(self) -> Signed:
        return Signed(self.certificate.public_bytes(serialization.Encoding.PEM), _pem(self.key))


def make(folder: Path, names: Sequence[str], hosts: Sequence[str] = HOSTS) -> list[Path]:
    """Write ``NAME.pem`` and ``NAME.key`` for each name, signed by the authority in ``folder`` (``ca.pem``,
    ``ca.key``), which is made if it is not there. Returns the certificates' files.

    Only the owner may read what is written. Raises CertificatesError, before anything is written if a file exists.
    """
    for name in names:
        if not NAME.fullmatch(name) or name == "ca":
            raise CertificatesError(
                f"name {name!r}: must be letters, digits, '.', '_', '-', at most 64, not ca"
            )
    for host in hosts:
        if not HOST.fullmatch(host) and not is_ip_address(host):
            raise CertificatesError(f"host {host!r}: must be a host name or an address without port")
    wanted = [folder / f"{name}{end}" for name in dict.fromkeys(names) for end in (".pem", ".key")]
    try:
        for path in wanted:
            if path.exists():
                raise CertificatesError(f"{path} is there already: nothing was written")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = authority_in(folder)
        for name in dict.fromkeys(names):
            subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
            _write(folder / name, authority.issue(subject, list(dict.fromkeys(hosts))))
    except (OSError, ValueError) as error:
        raise CertificatesError(f"certificates in {folder}: {error}") from None
    return [path for path in wanted if path.suffix == ".pem"]


def authority_in(folder: Path) -> Authority:
    """The one in the folder, or a new one. Raises OSError, ValueError."""
    if not (folder / "ca.pem").exists():
        made = Authority.create("partition-controller throw-away authority")
        _write(folder / "ca", made.pem())
        return made
    key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificatesError(f"{folder / 'ca.key'}: must be a key that this command made")
    return Authority(x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes()), key)


def _write(base: Path, signed: Signed) -> None:
    """Both or none: half a pair would be in the way of the next attempt."""
    made: list[str] = []
    try:
        for path, content in ((f"{base}.key", signed.key), (f"{base}.pem", signed.certificate)):
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                made.append(path)
                file.write(content)
    except OSError:
        for path in made:
            os.unlink(path)
        raise


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, valid: tuple[float, float]
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + valid[0] * DAY)
        .not_valid_after(now + valid[1] * DAY)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs, key_cert_sign=signs, crl_sign=signs,
        content_commitment=False, key_encipherment=False, data_encipherment=False, key_agreement=False,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _general_name(host: str) -> x509.GeneralName:
    return x509.IPAddress(ipaddress.ip_address(host)) if is_ip_address(host) else x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
