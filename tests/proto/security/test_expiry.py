"""When certificates end, and who is warned."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from cryptography import x509
from structlog.testing import capture_logs

from proto.security.expiry import WARNED_EVERY, Certificates, Expiry, expiries, until_next_look, warn
from proto.security.tls import TlsFiles
from tests.support.runtime.certificates import Authority


@pytest.mark.parametrize("days", [1.0, 29.0, 400.0, 365.0 * 40])
def test_the_first_end_in_each_file_counts(tmp_path: Path, days: float) -> None:
    """Beyond 2049 certificates write the year with four digits."""
    authority = Authority(tmp_path)
    files = TlsFiles(*authority.issue("own", days=(-1, days)), authority.cafile)
    assert files.certificate is not None
    own = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    ca = x509.load_pem_x509_certificate(authority.cafile.read_bytes())
    found = {expiry.setting: expiry.not_after for expiry in expiries(files)}
    assert found == {"ssl_certificate": own.not_valid_after_utc, "ssl_ca": ca.not_valid_after_utc}
    files.certificate.write_bytes(authority.cafile.read_bytes() + files.certificate.read_bytes())
    first = min(own.not_valid_after_utc, ca.not_valid_after_utc)
    assert expiries(files)[0].not_after == first


def test_what_cannot_be_read_has_no_end(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pem"
    for text in ("", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        broken.write_text(text)
        assert expiries(TlsFiles(broken, None, tmp_path / "missing.pem")) == []


def test_what_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    (tmp_path / "broken.pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    (found,) = expiries(TlsFiles(tmp_path / "broken.pem", None, authority.cafile))
    assert found.setting == "ssl_ca"


@pytest.mark.parametrize(("days", "warned"), [(29, True), (31, False), (-1, True)])
def test_a_warning_comes_thirty_days_before(tmp_path: Path, days: int, warned: bool) -> None:
    authority = Authority(tmp_path)
    certfile, keyfile = authority.issue("own", days=(-3, 100))
    (found,) = expiries(TlsFiles(certfile, keyfile, None))
    now = found.not_after - datetime.timedelta(days=days)
    with capture_logs() as logs:
        warn([found], now)
    assert [(e["event"], e["file"], e["days_left"]) for e in logs] == (
        [("certificate_expires", str(certfile), days)] if warned else []
    )


def test_the_end_is_that_of_what_is_in_use(tmp_path: Path) -> None:
    """A renewal that cannot be used renews nothing: who watches the end has to hear of the former one."""
    authority = Authority(tmp_path)
    certfile, keyfile = authority.issue("own", days=(-1, 3))
    assert certfile is not None
    assert keyfile is not None
    certificates = Certificates(TlsFiles(certfile, keyfile, None), None)
    (former,) = certificates.expiries()
    key = keyfile.read_bytes()
    authority.issue("own", days=(-1, 300))
    renewed = keyfile.read_bytes()
    keyfile.write_bytes(key)
    with capture_logs() as logs:
        assert certificates.expiries() == certificates.expiries() == [former]
    assert [entry["event"] for entry in logs] == ["security_files_not_usable"]
    keyfile.write_bytes(renewed)
    assert certificates.expiries()[0].not_after - former.not_after > datetime.timedelta(days=290)


def test_it_looks_again_when_the_next_one_ends(tmp_path: Path) -> None:
    now = datetime.datetime(2026, 1, 14, tzinfo=datetime.UTC)
    hour = datetime.timedelta(hours=1)
    ends = [Expiry("ssl_ca", tmp_path, now + left * hour) for left in (-1, 0, 100, 5, 7)]
    assert until_next_look(ends[:3], now) == WARNED_EVERY
    assert until_next_look(ends, now) == 5 * hour
