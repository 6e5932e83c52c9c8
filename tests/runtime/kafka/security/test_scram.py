"""SCRAM: the RFC's example, Kafka's stored credentials, and exchanges of our client with our server."""

from __future__ import annotations

import base64
import contextlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.runtime.kafka.security import scram
from controller.runtime.kafka.security.scram import (
    ITERATIONS_MIN,
    ClientFirst,
    Decoys,
    ScramClient,
    ScramCredential,
    ScramError,
    ScramMechanism,
    ScramServer,
    format_credential,
    make_credential,
    parse_credential,
    password_matches,
    read_client_first,
)

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
DECOYS = Decoys()


def run(client: ScramClient, mechanism: ScramMechanism, credential: ScramCredential | None) -> None:
    """A whole exchange. Raises ScramError."""
    server = ScramServer(mechanism, read_client_first(client.first), credential, DECOYS)
    client.verify(server.finish(client.final(server.challenge)))


def test_the_example_of_rfc_7677() -> None:
    client = ScramClient(SHA_256, "user", "pencil", nonce="rOprNGfwEbeRWgbNEkqO")
    assert client.first == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    server = ScramServer(
        SHA_256,
        read_client_first(client.first),
        make_credential(SHA_256, "pencil", 4096, salt),
        DECOYS,
        nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
    )
    assert server.challenge == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = client.final(server.challenge)
    assert final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    answer = server.finish(final)
    assert answer == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    client.verify(answer)


passwords = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30)


@given(names, passwords, st.sampled_from(ScramMechanism))
def test_the_right_password_is_let_in(name: str, password: str, mechanism: ScramMechanism) -> None:
    """Also names with ',' and '=', and text of any language."""
    client = ScramClient(mechanism, name, password)
    assert read_client_first(client.first).name == name
    run(client, mechanism, make_credential(mechanism, password))


@given(passwords, passwords)
def test_another_password_is_not(password: str, other: str) -> None:
    credential = make_credential(SHA_256, password)
    assert password_matches(SHA_256, credential, other) == (password == other)
    client = ScramClient(SHA_256, "alice", other)
    if password == other:
        run(client, SHA_256, credential)
    else:
        with pytest.raises(ScramError):
            run(client, SHA_256, credential)


def test_an_unknown_user_looks_like_a_wrong_password() -> None:
    challenges = []
    for credential in (None, make_credential(SHA_512, "secret")):
        for _ in range(2):
            client = ScramClient(SHA_512, "alice", "wrong", nonce="abc")
            server = ScramServer(SHA_512, read_client_first(client.first), credential, DECOYS, nonce="def")
            challenges.append(server.challenge)
            with pytest.raises(ScramError, match=r"unknown user, wrong password"):
                server.finish(client.final(server.challenge))
    unknown, again, known, _ = challenges
    assert unknown == again  # or two attempts would tell
    shape = [part[:2] for part in known.split(b",")]
    assert [part[:2] for part in unknown.split(b",")] == shape
    assert unknown.endswith(b",i=4096")
    assert known.endswith(b",i=4096")
    lengths = {len(base64.b64decode(c.split(b",")[1][2:])) for c in challenges}
    assert lengths <= {24, 25, 26}


def test_a_decoy_never_lets_in_whoever_knows_its_keys() -> None:
    """Even a client that could compute a decoy's proof is no user."""
    credential = make_credential(SHA_256, "x")

    class Known(Decoys):
        def credential(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
            return credential

    client = ScramClient(SHA_256, "nobody", "x")
    server = ScramServer(SHA_256, read_client_first(client.first), None, Known())
    with pytest.raises(ScramError):
        server.finish(client.final(server.challenge))


@pytest.mark.parametrize("extension", [",tokenauth=true", ",tokenauth=TRUE"])
def test_a_delegation_token_is_never_a_user(extension: str) -> None:
    client = ScramClient(SHA_256, "alice", "secret", nonce="abc")
    client._bare += extension
    server = ScramServer(SHA_256, read_client_first(client.first), make_credential(SHA_256, "secret"), DECOYS)
    with pytest.raises(ScramError):
        server.finish(client.final(server.challenge))


def nonce_of(server: ScramServer) -> str:
    return server.challenge.decode().split(",")[0]


def proof(server: ScramServer, first: ClientFirst, without_proof: str, more: bytes = b"") -> str:
    """The right one of a client that says this."""
    client_key, stored, _ = scram._keys(SHA_256, "secret", server._credential.salt, ITERATIONS_MIN)
    signed = f"{first.bare},{server.challenge.decode()},{without_proof}".encode()
    signature = hmac.digest(stored, signed, "sha256")
    return base64.b64encode(scram._xor(client_key, signature) + more).decode()


def test_a_final_message_has_the_server_s_nonce_and_a_proof_of_its_length() -> None:
    first = read_client_first(b"n,,n=alice,r=abc")
    server = ScramServer(SHA_256, first, make_credential(SHA_256, "secret"), DECOYS)
    without = f"c=biws,{nonce_of(server)}"
    assert server.finish(f"{without},p={proof(server, first, without)}".encode()).startswith(b"v=")
    with pytest.raises(ScramError, match="unknown user, wrong password"):
        server.finish(f"{without},p={proof(server, first, without, b'x')}".encode())
    other = without + "x"
    with pytest.raises(ScramError, match="another nonce"):
        server.finish(f"{other},p={proof(server, first, other)}".encode())


@pytest.mark.parametrize("name", ["=2C", "=3D", ",=", "=3D2C", "a=,b"])
def test_names_with_a_comma_or_an_equals_sign_arrive_as_they_are(name: str) -> None:
    assert read_client_first(ScramClient(SHA_256, name, "secret").first).name == name


def test_each_unknown_user_has_a_decoy_of_its_own() -> None:
    """One salt for all names would tell that nobody has them."""
    decoys = [DECOYS.credential(mechanism, name) for mechanism in ScramMechanism for name in ("alice", "bob")]
    assert len({decoy.salt for decoy in decoys}) == 4


@pytest.mark.parametrize(("authorization", "lets_in"), [(b"", True), (b"a=alice", True), (b"a=root", False)])
def test_nobody_acts_for_another(authorization: bytes, lets_in: bool) -> None:
    client = ScramClient(SHA_256, "alice", "secret", nonce="abc")
    header = b"n," + authorization + b","
    first = read_client_first(client.first.replace(b"n,,", header, 1))
    server = ScramServer(SHA_256, first, make_credential(SHA_256, "secret"), DECOYS)
    # The client signs its header as channel binding.
    without = f"c={base64.b64encode(header).decode()},{nonce_of(server)}"
    final = f"{without},p={proof(server, first, without)}".encode()
    if lets_in:
        assert server.finish(final).startswith(b"v=")
    else:
        with pytest.raises(ScramError, match="authorization id"):
            server.finish(final)


@given(st.binary(max_size=200) | st.text("n,a=r2CD3mpcvi0\0", max_size=60).map(str.encode))
def test_garbage_is_refused_and_nothing_else(message: bytes) -> None:
    with contextlib.suppress(ScramError):
        read_client_first(message)
    client = ScramClient(SHA_256, "alice", "secret", nonce="n")
    server = ScramServer(SHA_256, read_client_first(b"n,,n=a,r=n"), make_credential(SHA_256, "x"), DECOYS)
    for act in (server.finish, client.verify, client.final):
        with pytest.raises(ScramError):
            act(message)


@pytest.mark.parametrize("iterations", [1, 4095, 1_000_001, 999_999_999])
def test_a_server_can_neither_weaken_nor_stall_the_client(iterations: int) -> None:
    client = ScramClient(SHA_256, "alice", "secret", nonce="abc")
    with pytest.raises(ScramError, match="iterations"):
        client.final(f"r=abcdef,s=c2FsdHNhbHQ=,i={iterations}".encode())


@pytest.mark.parametrize("challenge", [b"r=abc,s=c2Fs,i=4096", b"r=xbcdef,s=c2Fs,i=4096"])
def test_a_server_must_extend_the_client_s_nonce(challenge: bytes) -> None:
    with pytest.raises(ScramError, match="nonce"):
        ScramClient(SHA_256, "alice", "secret", nonce="abc").final(challenge)


def test_a_server_that_does_not_know_the_credential_is_noticed() -> None:
    client = ScramClient(SHA_256, "alice", "secret")
    server = ScramServer(SHA_256, read_client_first(client.first), make_credential(SHA_256, "secret"), DECOYS)
    client.final(server.challenge)
    with pytest.raises(ScramError, match="could not prove"):
        client.verify(b"v=" + base64.b64encode(bytes(32)))
    with pytest.raises(ScramError, match="refused"):
        client.verify(b"e=other-error")
    with pytest.raises(ScramError, match="could not prove"):
        ScramClient(SHA_256, "alice", "secret").verify(b"v=")


def test_a_credential_is_read_as_it_is_written() -> None:
    for mechanism in ScramMechanism:
        credential = make_credential(mechanism, "secret", 8192)
        assert parse_credential(mechanism, format_credential(credential)) == credential
        assert "salt" not in repr(credential)


GOOD = format_credential(make_credential(SHA_256, "secret"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must have salt"),
        (GOOD + ",x=1", "must have salt|iterations"),
        (GOOD.replace("4096", "4095"), "iterations must be"),
        (GOOD.replace("4096", "1e5"), "iterations must be"),
        (GOOD.replace("salt=", "salt=!"), "base64"),
        ("salt=,stored_key=AAAA,server_key=AAAA,iterations=4096", "stored_key must be 32"),
    ],
)
def test_a_credential_that_is_not_one(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        parse_credential(SHA_256, text)
    assert "AAAA" not in str(refused.value)
    with pytest.raises(ValueError, match=r"must have|must be|base64"):
        parse_credential(SHA_512, text)
