"""Who asks: names from certificates and tokens, and what is no proof."""

from __future__ import annotations

import hmac
import os
import ssl
from pathlib import Path

import pytest

from proto.security import callers, tokens
from proto.security.callers import Callers, UnauthenticatedError, is_loopback
from proto.security.files import FileSettingError
from proto.security.principals import PrincipalRules
from proto.security.tokens import line_of, name_in, new_token, tokens_in
from tests.support.runtime.certificates import Authority

LOCAL, FAR = "ipv4:127.0.0.1:4", "ipv4:192.0.2.1:4"


class Context:
    """What is asked of gRPC's context; that gRPC's own has the same is seen by ``test_access_matrix``."""

    def __init__(
        self, peer: str = FAR, pem: bytes | None = None, header: str | None = None, tls: bool = True
    ):
        self._peer, self._pem, self._header, self._tls = peer, pem, header, tls

    def peer(self) -> str:
        return self._peer

    def auth_context(self) -> dict[str, list[bytes]]:
        found = {"transport_security_type": [b"ssl"]} if self._tls else {}
        return found if self._pem is None else {**found, "x509_pem_cert": [self._pem]}

    def invocation_metadata(self) -> list[tuple[str, str | bytes]]:
        return [("user-agent", "x"), *([("authorization", self._header)] if self._header is not None else [])]


def token_file(tmp_path: Path, *lines: str) -> Path:
    file = tmp_path / "tokens"
    file.write_text("\n".join(lines))
    file.chmod(0o600)
    return file


def test_a_certificate_s_name_follows_the_rules(tmp_path: Path) -> None:
    certfile, _ = Authority(tmp_path).issue("broker-1", "ops")
    pem = certfile.read_bytes()
    assert str(Callers(PrincipalRules()).of_rpc(Context(pem=pem))) == "User:CN=broker-1,OU=ops"
    short = Callers(PrincipalRules("RULE:CN=(.*?),OU=ops.*/$1/"))
    assert short.of_rpc(Context(pem=pem)) == ("broker-1", FAR)
    der = ssl.PEM_cert_to_DER_cert(pem.decode())
    assert short.of_connection(FAR, der, None, encrypted=True).name == "broker-1"
    with pytest.raises(UnauthenticatedError, match="no rule"):
        Callers(PrincipalRules("RULE:CN=x/x/")).of_rpc(Context(pem=pem))


def test_who_proves_nothing_is_anonymous() -> None:
    assert Callers(PrincipalRules()).of_rpc(Context(tls=False)) == ("ANONYMOUS", FAR)
    assert Callers(PrincipalRules()).of_rpc(Context()) == ("ANONYMOUS", FAR)


@pytest.mark.parametrize(
    "pem", [b"", b"\xff", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_a_certificate_that_cannot_be_read_is_nobody_s(pem: bytes) -> None:
    with pytest.raises(UnauthenticatedError):
        Callers(PrincipalRules()).of_rpc(Context(pem=pem))


def test_a_token_counts_before_the_certificate(tmp_path: Path) -> None:
    token = new_token()
    certfile, _ = Authority(tmp_path).issue("host-1")
    callers = Callers(
        PrincipalRules(), tokens_in(token_file(tmp_path, "# people", "", line_of("alice w", token)))
    )
    asked = Context(pem=certfile.read_bytes(), header=f"Bearer {token}")
    assert callers.of_rpc(asked).name == "alice w"
    assert callers.of_connection(FAR, None, f"bearer  {token} ", encrypted=True).name == "alice w"


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ("Bearer x", "nobody's"),
        ("Bearer ", "nobody's"),
        ("Bearer " + "x" * 100_000, "nobody's"),
        ("Bearer \ud800", "nobody's"),
        ("Basic x", "must be Bearer"),
        ("", "must be Bearer"),
    ],
)
def test_what_is_no_token(header: str, says: str, tmp_path: Path) -> None:
    callers = Callers(PrincipalRules(), tokens_in(token_file(tmp_path, line_of("a", new_token()))))
    with pytest.raises(UnauthenticatedError, match=says):
        callers.of_rpc(Context(header=header))


@pytest.mark.parametrize(("characters", "holder"), [(1, "a"), (512, "a"), (513, None)])
def test_a_token_is_looked_up_if_it_is_not_too_long(
    characters: int, holder: str | None, tmp_path: Path
) -> None:
    token = "x" * characters
    assert tokens_in(token_file(tmp_path, line_of("a", token))).current().holder(token) == holder


def test_tokens_come_over_tls_or_from_this_machine(tmp_path: Path) -> None:
    token = new_token()
    callers = Callers(PrincipalRules(), tokens_in(token_file(tmp_path, line_of("a", token))))
    for peer in (LOCAL, "ipv6:%5B::1%5D:1", "unix:/run/x"):
        assert callers.of_rpc(Context(peer, header=f"Bearer {token}", tls=False)).name == "a"
    with pytest.raises(UnauthenticatedError, match="over TLS only"):
        callers.of_rpc(Context(header=f"Bearer {token}", tls=False))
    with pytest.raises(UnauthenticatedError, match="bearer_tokens_file is not set"):
        Callers(PrincipalRules()).of_rpc(Context(header=f"Bearer {token}"))


def test_a_token_that_is_taken_out_of_the_file_is_refused_at_once(tmp_path: Path) -> None:
    token = new_token()
    file = token_file(tmp_path, line_of("a", token))
    callers = Callers(PrincipalRules(), tokens_in(file))
    assert callers.of_rpc(Context(header=f"Bearer {token}")).name == "a"
    file.write_text("")
    os.utime(file, (1, 1))
    with pytest.raises(UnauthenticatedError):
        callers.of_rpc(Context(header=f"Bearer {token}"))


@pytest.mark.parametrize(
    "line",
    ["alice", "sha256:12 alice", f"sha256:{'A' * 64} alice", f"md5:{'a' * 64} x", f"sha256:{'a' * 64}", "\0"],
)
def test_a_file_of_something_else_is_refused(line: str, tmp_path: Path) -> None:
    with pytest.raises(FileSettingError, match=r"sha256:DIGEST NAME \(line 2") as refused:
        tokens_in(token_file(tmp_path, "#", line))
    assert refused.value.key == "bearer_tokens_file"


def test_a_token_of_two_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileSettingError, match="each token once"):
        tokens_in(token_file(tmp_path, line_of("a", "t"), line_of("b", "t")))


@pytest.mark.parametrize("name", ["", " ", "#a", "a\nb", "a\x1b", "a" * 201, " a"])
def test_names_that_no_line_can_have(name: str) -> None:
    with pytest.raises(ValueError, match="printable name"):
        line_of(name, "t")


def test_a_line_tells_its_holder_and_not_the_token() -> None:
    token = new_token()
    line = line_of("alice", token)
    assert name_in(line) == "alice"
    assert token not in line
    assert name_in("# x") is None


def test_digests_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dictionary of digests alone would compare them by ==."""
    compared = []

    def compare(a: str, b: str) -> bool:
        compared.append((a, b))
        return a == b

    monkeypatch.setattr(hmac, "compare_digest", compare)
    digest = line_of("a", "t").split()[0].removeprefix("sha256:")
    assert tokens.Tokens({digest: "a"}).holder("t") == "a"
    assert compared == [(digest, digest)]


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True), ("127.8.0.1", True), ("::1", True), ("[::1]", True), ("localhost", True),
        ("LOCALHOST", True),
        ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("controller-1", False), ("", False),
        ("localhost.evil", False),
    ],
)  # fmt: skip
def test_what_only_this_machine_reaches(host: str, local: bool) -> None:
    assert is_loopback(host) is local


def test_a_certificate_that_cannot_be_read_is_nobodys() -> None:
    with pytest.raises(UnauthenticatedError):
        callers._subject(b"no certificate")
