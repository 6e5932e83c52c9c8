"""Who has logged in is served, and who has not is told nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controller.core.requests.errors import ErrorCode
from controller.runtime.config import load
from controller.runtime.kafka.security import server as security_server
from controller.runtime.kafka.security.scram import format_credential, make_credential
from controller.runtime.kafka.security.users import PLAIN_MECHANISM
from controller.runtime.kafka_api import server as server_module
from proto.gen.kafka.api_versions_request import ApiVersionsRequest
from proto.gen.kafka.list_groups_request import ListGroupsRequest
from proto.gen.kafka.sasl_authenticate_request import SaslAuthenticateRequest
from proto.gen.kafka.sasl_handshake_request import SaslHandshakeRequest
from proto.kafka.apis import encode_request
from tests.provers.sim.environment import loop
from tests.runtime.kafka_api.conftest import HUNG_UP, Asked
from tests.support.runtime.kafka_callers import KafkaCaller, calling, kafka_server

PASSWORD = "secret"


@pytest.fixture
def by_plain(asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Its server lets in alice."""
    monkeypatch.setattr(security_server, "FAILURE_DELAY_S", 0.001)
    users = tmp_path / "users.toml"
    users.write_text(f'[users]\nalice = "{format_credential(make_credential(PLAIN_MECHANISM, PASSWORD))}"\n')
    users.chmod(0o600)
    asked.daemon.settings = load(
        {
            "state_log_dir": str(tmp_path),
            "kafka_security_protocol": "SASL_PLAINTEXT",
            "kafka_sasl_enabled_mechanisms": "PLAIN",
            "kafka_sasl_users_file": str(users),
        },
        environ={},
    )
    return asked


async def log_in(caller: KafkaCaller, password: str) -> int:
    assert (await caller.call(SaslHandshakeRequest("PLAIN"), 1)).error_code == ErrorCode.NONE
    token = f"\0alice\0{password}".encode()
    return int((await caller.call(SaslAuthenticateRequest(token), 2)).error_code)


async def test_who_has_logged_in_is_served(by_plain: Asked) -> None:
    async with kafka_server(by_plain.daemon) as port, calling(port) as caller:
        for _ in range(2):
            assert (await caller.call(ApiVersionsRequest("x", "1"), 3)).error_code == ErrorCode.NONE
        assert await log_in(caller, PASSWORD) == 0
        for _ in range(2):
            assert (await caller.call(ListGroupsRequest())).error_code == ErrorCode.NONE


async def test_who_has_not_logged_in_is_told_nothing(by_plain: Asked) -> None:
    sasl_authentication_failed = 58
    async with kafka_server(by_plain.daemon) as port:
        async with calling(port) as caller:
            with pytest.raises(HUNG_UP):
                await caller.call(ListGroupsRequest())
        async with calling(port) as caller:
            assert await log_in(caller, "wrong") == sasl_authentication_failed
            with pytest.raises(HUNG_UP):
                await log_in(caller, PASSWORD)
        async with calling(port) as caller:
            await caller.call(SaslHandshakeRequest("PLAIN"), 1)
            with pytest.raises(HUNG_UP):
                await caller.call(ApiVersionsRequest("x", "1"), 3)
        async with calling(port) as caller:
            for _ in range(100):
                try:
                    await caller.call(ApiVersionsRequest("x", "1"), 3)
                except HUNG_UP:
                    break
            else:
                raise AssertionError("a stranger asks for versions without end")


def test_a_failed_login_is_answered_late_and_its_connection_is_closed() -> None:
    written = list[tuple[float, bytes]]()

    class Failing(server_module._Connection):
        def __init__(self) -> None:
            self._slot: Any = SimpleNamespace(busy=False, used_at=0.0)
            self._writer: Any = self

        async def _frame(self, known: bool) -> bytes | None:
            assert not known
            return b"request"

        async def _answer(self, authentication: Any, frame: bytes) -> tuple[bytes, float | None]:
            return b"no", 7.0

        def write(self, data: bytes) -> None:
            assert self._slot.busy
            written.append((asyncio.get_running_loop().time(), data))

        async def drain(self) -> None: ...

    async def run() -> float:
        began_s = asyncio.get_running_loop().time()
        connection = Failing()
        assert await connection._exchange(SimpleNamespace(principal=None)) is False  # type: ignore[arg-type]
        assert not connection._slot.busy
        return began_s

    began_s = loop.run(run())
    assert written == [(began_s + 7.0, b"\0\0\0\2no")]


async def test_a_request_may_be_as_long_as_is_allowed(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    request = ListGroupsRequest()
    size = len(encode_request(request, request.VERSIONS[-1], 1, "test"))
    async with kafka_server(asked.daemon) as port:
        for allowed in (size, size - 1):
            monkeypatch.setattr(server_module, "request_bytes_max", lambda _, most=allowed: most)
            async with calling(port) as caller:
                if allowed == size:
                    assert (await caller.call(request)).error_code == ErrorCode.NONE
                else:
                    with pytest.raises(HUNG_UP):
                        await caller.call(request)
