"""What our code sees of TLS is the same on gRPC itself and on the simulator's wires."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any, Protocol

import grpc
import grpc.aio
import pytest
from cryptography import x509

from proto.security.grpc_channels import GrpcTls, PemTls, add_port, open_channel
from proto.security.tls import TlsFiles
from tests.provers.sim.environment import loop
from tests.provers.sim.environment.rpc import Credentials, SimTls, Wires, credentials_of, grpc_on
from tests.support.runtime.certificates import Authority

HOST = "127.0.0.1"
SECONDS = 20.0
Kinds = dict[str, GrpcTls | None]


class World(Protocol):
    """Where servers and clients are. ``tls``: by kind; ``run``: a coroutine to its end."""

    tls: Kinds

    def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None: ...


class Real:
    def __init__(self, folder: Path) -> None:
        ours, other = Authority(folder / "ours"), Authority(folder / "other", "another authority")
        self.tls: Kinds = {
            "plain": None,
            "ours": PemTls(TlsFiles(*ours.issue("client"), ours.cafile)),
            "no certificate": PemTls(TlsFiles(None, None, ours.cafile)),
            "of another authority": PemTls(TlsFiles(*other.issue("client"), ours.cafile)),
            "believes another": PemTls(TlsFiles(*ours.issue("client"), other.cafile)),
        }

    def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        asyncio.run(work())


class Simulated:
    def __init__(self) -> None:
        shown = credentials_of("client").certificate
        self.tls: Kinds = {
            "plain": None,
            "ours": SimTls(Credentials(shown)),
            "no certificate": SimTls(Credentials(None)),
            "of another authority": SimTls(Credentials(shown, authority="another")),
            "believes another": SimTls(Credentials(shown, believes="another")),
        }

    def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            running = asyncio.get_running_loop()
            assert isinstance(running, loop.VirtualTimeLoop)
            with grpc_on(Wires(running, Random(1))):
                try:
                    await running.spawn(loop.Process(HOST), work())
                finally:
                    running.bury()

        loop.run(main())


@pytest.fixture(params=["simulated", pytest.param("real", marks=pytest.mark.slow)])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return Real(tmp_path) if request.param == "real" else Simulated()


async def outcome(server_tls: GrpcTls | None, client_tls: GrpcTls | None) -> tuple[Any, str, bool]:
    """Status of a call, the common name that the server saw, and whether the channel was ever connected."""
    seen = []

    async def answer(request: bytes, context: Any) -> bytes:
        pem = next(iter(context.auth_context().get("x509_pem_cert", ())), None)
        seen.append(name_of(pem))
        return request

    handlers: dict[str, Any] = {"method": grpc.unary_unary_rpc_method_handler(answer)}
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("service", handlers),))
    port = add_port(server, f"{HOST}:0", server_tls)
    await server.start()
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with open_channel(f"{HOST}:{port}", client_tls, options) as channel:
        method: Any = channel.unary_unary("/service/method")
        try:
            await method(b"x", timeout=SECONDS)
            status = grpc.StatusCode.OK
        except grpc.aio.AioRpcError as error:
            status = error.code()
        connected = channel.get_state() is grpc.ChannelConnectivity.READY
    await server.stop(None)
    return status, "".join(seen), connected


def name_of(pem: bytes | None) -> str:
    if pem is None:
        return "nobody"
    subject = x509.load_pem_x509_certificate(pem).subject
    return str(subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value)


def test_who_is_let_in_and_seen(world: World) -> None:
    refused = grpc.StatusCode.UNAVAILABLE, "", False

    async def story() -> None:
        ours = world.tls["ours"]
        assert await outcome(ours, ours) == (grpc.StatusCode.OK, "client", True)
        assert await outcome(None, None) == (grpc.StatusCode.OK, "nobody", True)
        assert await outcome(None, ours) == refused
        for stranger in world.tls.keys() - {"ours"}:
            assert await outcome(ours, world.tls[stranger]) == refused, stranger

    world.run(story)
