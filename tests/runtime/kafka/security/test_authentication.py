"""Our server's side of SASL and TLS, message by message, and our client against it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from controller.runtime.kafka.security import server as server_module
from controller.runtime.kafka.security.client import AuthenticationError, ClientSecurity, Login
from controller.runtime.kafka.security.sasl import (
    Mechanism,
    PlainError,
    SaslErrorCode,
    SecurityProtocol,
    read_plain,
    write_plain,
)
from controller.runtime.kafka.security.scram import (
    ScramCredential,
    ScramMechanism,
    format_credential,
    make_credential,
)
from controller.runtime.kafka.security.server import Authentication, RefusedError, ServerSecurity
from controller.runtime.kafka.security.users import users_in_file, users_in_zookeeper
from proto.gen.kafka.sasl_authenticate_request import SaslAuthenticateRequest
from proto.gen.kafka.sasl_authenticate_response import SaslAuthenticateResponse
from proto.gen.kafka.sasl_handshake_request import SaslHandshakeRequest
from proto.kafka.apis import (
    APIS,
    ApiKey,
    Message,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from proto.security.authorization import ANONYMOUS, Principal
from proto.security.files import FileSettingError, FromFiles
from proto.security.principals import PrincipalRules

PASSWORD = "alice's secret"
STORED = {m: make_credential(m, PASSWORD) for m in ScramMechanism}


async def find(mechanism: ScramMechanism, name: str) -> ScramCredential | None:
    return STORED[mechanism] if name == "alice" else None


def constant(value: str) -> FromFiles[str]:
    return FromFiles([], lambda: value)


@pytest.fixture
def security(tmp_path: Path) -> ServerSecurity:
    users = tmp_path / "users.toml"
    users.write_text(f'[users]\nalice = "{format_credential(STORED[ScramMechanism.SHA_512])}"\n')
    users.chmod(0o600)
    return ServerSecurity(SecurityProtocol.SASL_PLAINTEXT, None, find, plain=users_in_file(users))


def client(mechanism: Mechanism, name: str = "alice", password: str = PASSWORD) -> ClientSecurity:
    return ClientSecurity(SecurityProtocol.SASL_PLAINTEXT, None, Login(mechanism, name, constant(password)))


async def exchange(authentication: Authentication, asking: ClientSecurity) -> list[float | None]:
    """A whole login, each message through its bytes. Returns when each answer closed the connection."""
    closes: list[float | None] = []

    async def send(key: ApiKey, version: int, request: Message) -> Message:
        data = encode_request(request, version, 7, "us")
        header, at = decode_request_header(data)
        decoded = APIS[ApiKey(header.api_key)].request.decode(data[at:], header.api_version)
        assert isinstance(decoded, SaslHandshakeRequest | SaslAuthenticateRequest)
        response, close = await authentication.answer(decoded, header.api_version)
        closes.append(close)
        return decode_response(key, version, encode_response(response, version, 7))[1]

    await asking.authenticate(send)
    return closes


@pytest.mark.parametrize("mechanism", Mechanism)
async def test_our_client_is_let_in_by_our_server(security: ServerSecurity, mechanism: Mechanism) -> None:
    authentication = security.accept("127.0.0.1", 5)
    closes = await exchange(authentication, client(mechanism))
    assert set(closes) == {None}
    assert authentication.principal == Principal("alice", "ipv4:127.0.0.1:5")
    assert str(authentication.principal) == "User:alice"


@pytest.mark.parametrize("mechanism", Mechanism)
@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("bob", PASSWORD)])
async def test_others_are_not(
    security: ServerSecurity, mechanism: Mechanism, name: str, password: str
) -> None:
    authentication = security.accept("127.0.0.1", 5)
    with pytest.raises(AuthenticationError, match="refused us with error 58") as refused:
        await exchange(authentication, client(mechanism, name, password))
    # Which of both was wrong is not said.
    said = "Invalid username or password" if mechanism is Mechanism.PLAIN else "due to invalid credentials"
    assert said in str(refused.value)
    assert authentication.principal is None
    answer = await authentication.authenticate(b"")
    assert answer.error is SaslErrorCode.ILLEGAL_SASL_STATE
    assert answer.close_after_s == 0.1


@pytest.mark.parametrize("lifetime_ms", [0, 2500])
async def test_a_broker_must_know_our_password_and_says_how_long_a_login_lasts(
    security: ServerSecurity, lifetime_ms: int
) -> None:
    async def login(proof: bytes | None) -> float | None:
        authentication = security.accept("127.0.0.1", 5)

        async def send(_: ApiKey, version: int, request: Message) -> Message:
            assert isinstance(request, SaslHandshakeRequest | SaslAuthenticateRequest)
            response, _close = await authentication.answer(request, version)
            if isinstance(response, SaslAuthenticateResponse) and response.auth_bytes.startswith(b"v="):
                response.auth_bytes = proof or response.auth_bytes
                response.session_lifetime_ms = lifetime_ms
            return response

        return await client(Mechanism.SCRAM_SHA_256).authenticate(send)

    assert await login(None) == (lifetime_ms / 1000 or None)
    with pytest.raises(AuthenticationError, match="SCRAM-SHA-256"):
        await login(b"v=" + base64.b64encode(bytes(32)))


async def test_a_mechanism_that_is_not_offered(security: ServerSecurity) -> None:
    without_plain = ServerSecurity(SecurityProtocol.SASL_PLAINTEXT, None, find)
    with pytest.raises(AuthenticationError, match="offers SCRAM-SHA-256, SCRAM-SHA-512"):
        await exchange(without_plain.accept("::1", 5), client(Mechanism.PLAIN))
    authentication = security.accept("127.0.0.1", 5)
    assert authentication.principal is None
    answer = authentication.handshake(1, "GSSAPI")
    assert answer.error is SaslErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    assert answer.close_after_s == 0.1
    assert authentication.handshake(1, "PLAIN").error is SaslErrorCode.ILLEGAL_SASL_STATE


async def test_versions_are_told_a_few_times_before_a_principal_is_there(security: ServerSecurity) -> None:
    stranger = security.accept("127.0.0.1", 5)
    assert [stranger.ask_versions() for _ in range(10)] == [True] * 8 + [False] * 2
    assert stranger.handshake(1, "PLAIN").error is SaslErrorCode.ILLEGAL_SASL_STATE


async def test_the_order_of_messages(security: ServerSecurity) -> None:
    early = security.accept("127.0.0.1", 5)
    assert early.ask_versions()
    answer = await early.authenticate(write_plain("alice", PASSWORD))
    assert answer.error is SaslErrorCode.ILLEGAL_SASL_STATE
    assert answer.close_after_s is not None
    assert early.principal is None
    twice = security.accept("127.0.0.1", 5)
    assert twice.handshake(1, "PLAIN").error is SaslErrorCode.NONE
    assert not twice.ask_versions()
    assert twice.handshake(1, "PLAIN").error is SaslErrorCode.ILLEGAL_SASL_STATE
    old = security.accept("127.0.0.1", 5)
    assert old.handshake(0, "PLAIN").error is SaslErrorCode.UNSUPPORTED_VERSION
    done = security.accept("127.0.0.1", 5)
    await exchange(done, client(Mechanism.PLAIN))
    assert all(done.ask_versions() for _ in range(20))
    for _ in range(20):  # as often as it likes, and it stays who it is
        assert done.handshake(1, "PLAIN").error is SaslErrorCode.ILLEGAL_SASL_STATE
        again = await done.authenticate(write_plain("bob", "x"))
        assert (again.error, again.close_after_s) == (SaslErrorCode.ILLEGAL_SASL_STATE, None)
    assert done.principal is not None
    assert done.principal.name == "alice"


@given(
    st.lists(
        st.tuples(
            st.booleans(), st.sampled_from([*(m.value for m in Mechanism), "x"]), st.binary(max_size=40)
        )
    )
)
def test_no_messages_without_the_password_let_in(steps: list[tuple[bool, str, bytes]]) -> None:
    users = {"alice": STORED[ScramMechanism.SHA_512]}
    plain: FromFiles[Mapping[str, ScramCredential]] = FromFiles([], lambda: users)
    security = ServerSecurity(SecurityProtocol.SASL_PLAINTEXT, None, find, plain=plain)
    authentication = security.accept("127.0.0.1", 5)

    async def all_steps() -> None:
        for is_handshake, mechanism, token in steps:
            answer = (
                authentication.handshake(1, mechanism)
                if is_handshake
                else await authentication.authenticate(token)
            )
            assert answer.close_after_s is not None or answer.error is SaslErrorCode.NONE

    with capture_logs():
        asyncio.run(all_steps())
    assert authentication.principal is None


def test_without_sasl_the_certificate_says_who(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "distinguished_name", lambda certificate: "CN=broker1,OU=ops")
    rules = PrincipalRules("RULE:^CN=(broker.*?),.*$/$1/")
    tls = ServerSecurity(SecurityProtocol.SSL, principal_rules=rules)
    by_certificate = tls.accept("10.0.0.1", 5, b"certificate").principal
    assert by_certificate is not None
    assert str(by_certificate) == "User:broker1"
    nameless = tls.accept("10.0.0.1", 5, None).principal
    assert nameless is not None
    assert nameless.name == ANONYMOUS
    plaintext = ServerSecurity(SecurityProtocol.PLAINTEXT).accept("::1", 5, b"certificate").principal
    assert plaintext is not None
    assert plaintext.name == ANONYMOUS
    assert ServerSecurity(SecurityProtocol.SASL_SSL, None, find).accept("::1", 5, b"c").principal is None
    with pytest.raises(RefusedError, match="no rule"):
        ServerSecurity(SecurityProtocol.SSL, principal_rules=PrincipalRules("RULE:^x$/y/")).accept(
            "::1", 5, b"c"
        )


@pytest.mark.parametrize(
    ("host", "printed"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::a0b:c", "2001:db8:0:0:0:0:a0b:c"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
    ],
)
def test_hosts_are_as_java_prints_them(host: str, printed: str) -> None:
    principal = ServerSecurity(SecurityProtocol.PLAINTEXT).accept(host, 1234).principal
    assert principal is not None
    assert principal.host == printed


@pytest.mark.parametrize("peer", ["", "unix:", "unix:/run/x:1", "ipv4:", "ipv4:no:1", "ipv6:%5B::zz%5D:1"])
def test_a_peer_without_address_has_no_host(peer: str) -> None:
    assert Principal("a", peer).host == ""


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"", "expected 3 tokens, got 1"),
        (b"\0a", "got 2"),
        (b"\0a\0b\0c", "got more"),
        (b"\0\0b", "username not specified"),
        (b"\0a\0", "password not specified"),
        (b"\0a\0\xff", "invalid encoding"),
    ],
)
def test_plain_messages_that_are_none(message: bytes, said: str) -> None:
    with pytest.raises(PlainError, match=said):
        read_plain(message)


async def test_a_plain_message_that_is_none_is_answered_with_the_reason(security: ServerSecurity) -> None:
    authentication = security.accept("127.0.0.1", 5)
    authentication.handshake(1, "PLAIN")
    with capture_logs() as logs:
        answer = await authentication.authenticate(b"")
    assert answer.error is SaslErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.message is not None
    assert answer.message.endswith("expected 3 tokens, got 1")
    assert [(line["event"], line["why"]) for line in logs] == [("authentication_failed", answer.message)]
    assert authentication.principal is None


async def test_a_password_is_computed_for_an_unknown_name_as_for_a_known_one(
    security: ServerSecurity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the time of the answer tells who exists."""
    computed: list[ScramCredential] = []

    def matches(mechanism: ScramMechanism, credential: ScramCredential, password: str) -> bool:
        assert (mechanism, password) == (ScramMechanism.SHA_512, PASSWORD)
        computed.append(credential)
        return True

    monkeypatch.setattr(server_module, "password_matches", matches)
    for name in ("alice", "nobody"):
        authentication = security.accept("::1", 5)
        authentication.handshake(1, "PLAIN")
        await authentication.authenticate(write_plain(name, PASSWORD))
        assert (authentication.principal is not None) is (name == "alice")
    assert computed == [STORED[ScramMechanism.SHA_512]] * 2


async def test_plain_lets_nobody_act_for_another(security: ServerSecurity) -> None:
    for authorization, error in (
        ("", SaslErrorCode.NONE),
        ("alice", SaslErrorCode.NONE),
        ("root", SaslErrorCode.SASL_AUTHENTICATION_FAILED),
    ):
        authentication = security.accept("127.0.0.1", 5)
        authentication.handshake(1, "PLAIN")
        answer = await authentication.authenticate(f"{authorization}\0alice\0{PASSWORD}".encode())
        assert answer.error is error


async def test_secrets_are_not_logged(security: ServerSecurity) -> None:
    with capture_logs() as logs:
        authentication = security.accept("127.0.0.1", 5)
        authentication.handshake(1, "PLAIN")
        await authentication.authenticate(b"\0alice\0hunter2")
    assert [entry["event"] for entry in logs] == ["authentication_failed"]
    assert "hunter2" not in str(logs)
    assert "hunter2" not in repr(read_plain(b"\0alice\0hunter2"))


async def test_users_in_zookeeper() -> None:
    good = format_credential(STORED[ScramMechanism.SHA_256])
    nodes = {
        "/config/users/alice": b'{"version":1,"config":{"SCRAM-SHA-256":"%s"}}' % good.encode(),
        "/config/users/a%20b%2Fc%2A%7E": b'{"version":1,"config":{"SCRAM-SHA-256":"%s"}}' % good.encode(),
        "/config/users/quota": b'{"version":1,"config":{"producer_byte_rate":"1"}}',
        "/config/users/weak": b'{"version":1,"config":{"SCRAM-SHA-256":"%s"}}'
        % good.replace("4096", "1").encode(),
        "/config/users/garbage": b"{",
        "/config/users/list": b'{"config":[]}',
        "/config/users/empty": b"",
    }

    async def read(path: str) -> bytes | None:
        assert path.rpartition("/")[2] not in ("", ".", ".."), "no path of a znode"
        return nodes.get(path)

    look = users_in_zookeeper(read)
    for name in ("alice", "a b/c*~"):
        assert await look(ScramMechanism.SHA_256, name) == STORED[ScramMechanism.SHA_256]
    assert await look(ScramMechanism.SHA_512, "alice") is None
    for name in ("bob", "quota", "empty", ".", "..", "x" * 5000):
        assert await look(ScramMechanism.SHA_256, name) is None
    with capture_logs() as logs:
        for name in ("weak", "garbage", "list"):
            assert await look(ScramMechanism.SHA_256, name) is None
    assert [entry["path"] for entry in logs] == [f"/config/users/{n}" for n in ("weak", "garbage", "list")]
    assert good[5:20] not in str(logs)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "one table, users"),
        ("[users]\n", "one table, users"),
        ("[users]\nalice = 1\n", "users.'alice' must be a text"),
        ('[users]\nalice = "secret-password"\n', "users.'alice' must have salt"),
        ('x = 1\n[users]\nalice = "x"\n', "one table, users"),
        ("[users\n", "a TOML file"),
    ],
)
def test_a_file_of_users_that_is_none(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "users.toml"
    path.write_text(content)
    with pytest.raises(FileSettingError, match=said) as refused:
        users_in_file(path)
    assert "secret-password" not in str(refused.value)
    assert refused.value.key == "kafka_sasl_users_file"
