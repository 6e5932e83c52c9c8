"""``partition-controller certificates``."""

from __future__ import annotations

import resource
import ssl
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography import x509

from controller.cli.main import main
from proto.security.tls import ClientAuth, TlsFiles, client_contexts, server_contexts


def made(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["certificates", *map(str, arguments)])


def files(folder: Path, name: str) -> TlsFiles:
    return TlsFiles(folder / f"{name}.pem", folder / f"{name}.key", folder / "ca.pem")


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> str:
    """The common name that the server sees."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asks = client.wrap_bio(to_client, to_server, server_hostname=host)
    serves = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (asks, serves, asks, serves):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    certificate = serves.getpeercert()
    assert certificate is not None
    return dict(pair for names in certificate["subject"] for pair in names)["commonName"]  # type: ignore[misc]


def test_what_is_made_serves_and_asks(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    result = made(folder, "--host", "broker.example", "--host", "10.0.0.7")
    assert result.exit_code == 0, result.output
    assert f"PCTL_SSL_CERTIFICATE={folder}/admin.pem" in result.output
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    server = server_contexts(files(folder, "broker-1"), ClientAuth.REQUIRED).current()
    client = client_contexts(files(folder, "admin")).current()
    for context in (server, client):
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    for host in ("127.0.0.1", "::1", "localhost", "broker.example", "10.0.0.7"):
        assert handshake(server, client, host) == "admin"
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, client, "elsewhere.example")


def test_pctl_is_the_administrator_where_there_is_one(tmp_path: Path) -> None:
    for names, operator in ((["admin", "prometheus"], "admin"), (["ann", "bob"], "bob")):
        made = CliRunner().invoke(
            main, ["certificates", str(tmp_path), *(f"--name={name}" for name in names)]
        )
        assert (
            f"PCTL_SSL_CERTIFICATE={tmp_path}/{operator}.pem PCTL_SSL_KEY={tmp_path}/{operator}.key"
            in made.output
        )


def test_the_authority_is_used_again_and_nothing_is_written_over(tmp_path: Path) -> None:
    assert made(tmp_path, "--name", "controller-1").exit_code == 0
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert made(tmp_path, "--name", "broker-9").exit_code == 0
    server = server_contexts(files(tmp_path, "controller-1"), ClientAuth.REQUIRED).current()
    client = client_contexts(files(tmp_path, "broker-9")).current()
    assert handshake(server, client, "localhost") == "broker-9"
    result = made(tmp_path, "--name", "new", "--name", "broker-9")
    assert result.exit_code == 1
    assert "broker-9.pem is there already: nothing was written" in result.output
    assert not (tmp_path / "new.pem").exists()
    (tmp_path / "half.key").write_bytes(b"of another pair")
    result = made(tmp_path, "--name", "half")
    assert "half.key is there already: nothing was written" in result.output
    assert not (tmp_path / "half.pem").exists()
    assert {path: path.read_bytes() for path in before} == before


def test_an_authority_signs_no_further_authorities(tmp_path: Path) -> None:
    assert made(tmp_path, "--name", "controller-1").exit_code == 0
    ca, of_a_server = (
        x509.load_pem_x509_certificate((tmp_path / name).read_bytes())
        .extensions.get_extension_for_class(x509.BasicConstraints)
        .value
        for name in ("ca.pem", "controller-1.pem")
    )
    assert (ca.ca, ca.path_length) == (True, 0)
    assert not of_a_server.ca


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--name", "a/b"], "name 'a/b': must be"),
        (["--name", ""], "name '': must be"),
        (["--name", "ca"], "name 'ca': must be"),
        (["--name", "x" * 65], "must be letters"),
        (["--host", "a:1"], "host 'a:1': must be"),
        (["--host", ""], "host '': must be"),
        (["--host", "a b"], "host 'a b': must be"),
    ],
)
def test_bad_names(tmp_path: Path, arguments: list[str], said: str) -> None:
    result = made(tmp_path / "new", *arguments)
    assert result.exit_code == 1
    assert said in result.output
    assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "certificates in" in made(tmp_path / "file").output
    assert "File name too long" in made(tmp_path / ("x" * 300)).output
    (tmp_path / "ca.pem").touch()
    (tmp_path / "ca.key").touch()
    result = made(tmp_path)
    assert result.exit_code == 1
    assert "certificates in" in result.output


def test_what_a_full_disk_cuts_short_is_not_in_the_way_of_the_next_attempt(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, before[1]))  # a key is shorter, a certificate longer
    try:
        assert "File too large" in made(tmp_path).output
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())
    assert made(tmp_path).exit_code == 0
