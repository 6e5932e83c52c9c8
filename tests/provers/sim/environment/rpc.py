"""gRPC between simulated processes, in the place of ``grpc.aio``'s channels and servers: bytes, statuses, deadlines.

What goes wrong on the way is the network's affair (``Wires``): messages take their time, each its own, so that calls
overtake one another; they are lost, arrive twice, or wait at a closed way until it is open or the caller has given up.
A call's request may arrive, and be carried out, long after its caller was told DEADLINE_EXCEEDED.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from random import Random
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest import mock

import grpc
import grpc.aio
from cryptography import x509

from controller.certificates import Authority
from tests.provers.sim.environment.loop import CURRENT, OUTSIDE, Process, VirtualTimeLoop

#: How often a channel that waits for its connection looks whether there is one, seconds.
CONNECTIVITY_S = 0.1
Way = tuple[str, str]
#: Whether processes on the wires in use have certificates.
_secured = False


@dataclass
class Weather:
    """How bad the wires are: probabilities by message; delays in seconds, exponential above the least."""

    delay_min_s: float = 0.0002
    delay_mean_s: float = 0.0005
    #: Of some messages, the delay is drawn with this mean instead.
    slow: float = 0.0
    slow_mean_s: float = 0.5
    lost: float = 0.0
    twice: float = 0.0


@dataclass(frozen=True)
class Credentials:
    """In the place of gRPC's, of a channel or of a port: what is shown, who signed that, and who is believed."""

    #: The certificate as PEM; None: none is shown.
    certificate: bytes | None
    authority: str = "ours"
    believes: str = "ours"


class SimTls:
    """A ``GrpcTls`` for both directions."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials: Any = credentials

    def channel_credentials(self) -> Any:
        return self._credentials

    def server_credentials(self) -> Any:
        return self._credentials

    def reload(self) -> None:
        pass


@cache
def _signed() -> Authority:
    return Authority.create("simulated authority")


@cache
def credentials_of(name: str) -> Credentials:
    """Those of a process: with its name as common name."""
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    return Credentials(_signed().issue(subject, [name]).certificate)


def tls_here(certificate: str = "") -> SimTls | None:
    """What the current process shows on wires that are secured. ``certificate``: another one than its own."""
    process = CURRENT.get()
    assert process is not None
    return SimTls(credentials_of(certificate or process.name)) if _secured else None


def agree(client: Credentials | None, server: Credentials | None) -> bool:
    """Whether the two sides speak TLS with one another, each with a certificate that the other believes; or neither
    does."""
    if client is None or server is None:
        return client is server
    return (
        client.certificate is not None
        and client.authority == server.believes
        and server.authority == client.believes
    )


class Aborted(Exception):  # noqa: N818  (control flow: what ``context.abort`` raises)
    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(code, details)
        self.code, self.details = code, details


class ServicerContext:
    """What our handlers use of gRPC's context."""

    def __init__(self, peer: str, certificate: bytes | None) -> None:
        self._peer, self._certificate = peer, certificate
        self.caller = peer.removeprefix("sim:")

    async def abort(self, code: grpc.StatusCode, details: str = "") -> NoReturn:
        raise Aborted(code, details)

    def peer(self) -> str:
        return self._peer

    def auth_context(self) -> dict[str, list[bytes]]:
        """Of the caller's certificate."""
        return {} if self._certificate is None else {"x509_pem_cert": [self._certificate]}

    def invocation_metadata(self) -> tuple[()]:
        return ()


class Server:
    """In the place of ``grpc.aio.server(...)``."""

    def __init__(self, wires: Wires) -> None:
        process = CURRENT.get()
        assert process is not None
        self.process = process
        self._wires = wires
        self._handlers: list[Any] = []
        self._port = 0
        self.credentials: Credentials | None = None
        self._calls: dict[asyncio.Task[Answer], Callable[[Answer], None]] = {}
        process.on_death.append(self._died)

    def add_generic_rpc_handlers(self, handlers: Sequence[Any]) -> None:
        self._handlers.extend(handlers)

    def add_insecure_port(self, address: str) -> int:
        port = int(address.rpartition(":")[2])
        key = f"{self.process.name}:{port}"
        if (other := self._wires.servers.get(key)) is not None and other.process.alive:
            raise RuntimeError(f"Failed to bind to address {key}")
        self._port = port
        return port

    def add_secure_port(self, address: str, credentials: Any) -> int:
        self.credentials = credentials
        return self.add_insecure_port(address)

    async def start(self) -> None:
        self._wires.servers[f"{self.process.name}:{self._port}"] = self

    async def stop(self, grace_s: float | None) -> None:
        """No more calls; those under way get ``grace_s`` seconds."""
        key = f"{self.process.name}:{self._port}"
        if self._wires.servers.get(key) is self:
            del self._wires.servers[key]
        if self._calls:
            await asyncio.wait(list(self._calls), timeout=grace_s or 0)
        for task in list(self._calls):
            task.cancel()

    def begin(
        self,
        method: str,
        request: bytes,
        context: ServicerContext,
        answered: Callable[[Answer], None],
    ) -> None:
        """Carry a call out, in this server's process."""
        task = self._wires.loop.spawn(self.process, self._serve(method, request, context))
        self._calls[task] = answered

        def done(task: asyncio.Task[Answer]) -> None:
            self._calls.pop(task, None)
            if task.cancelled():
                answered(Answer(grpc.StatusCode.UNAVAILABLE, details="the server is shutting down"))
                return
            for look in self._wires.on_answer:
                look(self.process, context.caller, method, request, task.result())
            answered(task.result())

        task.add_done_callback(done, context=OUTSIDE.copy())

    def _died(self) -> None:
        """The dead process's machine resets its connections."""
        for answered in self._calls.values():
            answered(Answer(grpc.StatusCode.UNAVAILABLE, details="Connection reset by peer"))
        self._calls.clear()

    async def _serve(self, method: str, request: bytes, context: ServicerContext) -> Answer:
        details = SimpleNamespace(method=method, invocation_metadata=())
        found = (generic.service(details) for generic in self._handlers)
        handler = next((each for each in found if each is not None), None)
        if handler is None:
            return Answer(grpc.StatusCode.UNIMPLEMENTED, details=f"no method {method}")
        parse, serialize = handler.request_deserializer, handler.response_serializer
        try:
            message = parse(request) if parse else request
            if handler.request_streaming:
                response = await handler.stream_unary(only(message), context)
            else:
                response = await handler.unary_unary(message, context)
        except Aborted as aborted:
            return Answer(aborted.code, details=aborted.details)
        return Answer(grpc.StatusCode.OK, serialize(response) if serialize else response)


async def only(request: Any) -> AsyncGenerator[Any, None]:
    """The requests of a call with one."""
    yield request


@dataclass(frozen=True)
class Answer:
    code: grpc.StatusCode
    body: bytes = b""
    details: str = ""


class Wires:
    """Who serves where, and the ways between processes, by name. Use it in the loop it was made in."""

    def __init__(self, loop: VirtualTimeLoop, rng: Random, weather: Weather | None = None) -> None:
        self.loop, self._rng = loop, rng
        self.weather = weather or Weather()
        self.servers: dict[str, Server] = {}
        #: One direction each: what is sent waits there until ``open``.
        self._closed: dict[Way, list[Callable[[], None]]] = {}
        #: Called with caller's name, server's name, method and request as a request arrives.
        self.on_request: list[Callable[[str, str, str, bytes], None]] = []
        #: Called with caller, server's name and method as a request is sent.
        self.on_send: list[Callable[[Process, str, str], None]] = []
        #: Called with server, caller's name, method, request and answer, when a call was carried out.
        self.on_answer: list[Callable[[Process, str, str, bytes, Answer], None]] = []

    def close(self, sender: str, receiver: str) -> None:
        """Nothing gets from the one to the other, and nobody is told."""
        self._closed.setdefault((sender, receiver), [])

    def open(self, sender: str, receiver: str) -> None:
        """What was held up there goes on."""
        for send in self._closed.pop((sender, receiver), ()):
            send()

    def open_all(self) -> None:
        for way in list(self._closed):
            self.open(*way)

    def is_closed(self, sender: str, receiver: str) -> bool:
        return (sender, receiver) in self._closed

    def connectivity(
        self, caller: str, address: str, credentials: Credentials | None
    ) -> grpc.ChannelConnectivity:
        host = address.rpartition(":")[0]
        if self.is_closed(caller, host) or self.is_closed(host, caller):
            return grpc.ChannelConnectivity.CONNECTING
        server = self.servers.get(address)
        if server is None or not server.process.alive or not agree(credentials, server.credentials):
            return grpc.ChannelConnectivity.TRANSIENT_FAILURE
        return grpc.ChannelConnectivity.READY

    def carry(self, sender: str, receiver: str, deliver: Callable[[], None]) -> None:
        """Have a message delivered after its time on the wire; or never, or twice."""
        way = self._closed.get((sender, receiver))
        if way is not None:
            way.append(lambda: self.carry(sender, receiver, deliver))
            return
        chance, weather = self._rng.random(), self.weather
        if chance < weather.lost:
            return
        self.loop.call_later(self._delay_s(), deliver, context=OUTSIDE.copy())
        if weather.lost <= chance < weather.lost + weather.twice:
            self.loop.call_later(self._delay_s() + 2 * self._delay_s(), deliver, context=OUTSIDE.copy())

    def _delay_s(self) -> float:
        weather = self.weather
        slow = bool(weather.slow) and self._rng.random() < weather.slow
        mean_s = weather.slow_mean_s if slow else weather.delay_mean_s
        return weather.delay_min_s + self._rng.expovariate(1 / mean_s)

    async def call(
        self,
        caller: Process,
        address: str,
        method: str,
        request: bytes,
        timeout_s: float | None,
        credentials: Credentials | None,
    ) -> bytes:
        """One call. Raises AioRpcError."""
        answer: asyncio.Future[Answer] = self.loop.create_future()
        host = address.rpartition(":")[0]
        for look in self.on_send:
            look(caller, host, method)

        def answered(value: Answer) -> None:
            if not answer.done():
                answer.set_result(value)

        def back(value: Answer) -> None:
            self.carry(host, caller.name, lambda: answered(value))

        def arrive() -> None:
            server = self.servers.get(address)
            if server is None or not server.process.alive:
                back(Answer(grpc.StatusCode.UNAVAILABLE, details=f"failed to connect to {address}"))
                return
            if not agree(credentials, server.credentials):
                back(Answer(grpc.StatusCode.UNAVAILABLE, details="the handshake failed"))
                return
            for tell in self.on_request:
                tell(caller.name, host, method, request)
            shown = None if credentials is None else credentials.certificate
            server.begin(method, request, ServicerContext(f"sim:{caller.name}", shown), back)

        self.carry(caller.name, host, arrive)
        try:
            async with asyncio.timeout(timeout_s):
                result = await answer
        except TimeoutError:
            result = Answer(grpc.StatusCode.DEADLINE_EXCEEDED, details="Deadline Exceeded")
        if result.code is not grpc.StatusCode.OK:
            raise failure(result.code, result.details)
        return result.body


def failure(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    nothing = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, nothing, nothing, details)


class Channel:
    """In the place of ``grpc.aio.insecure_channel(address)`` and ``secure_channel(address, credentials)``."""

    def __init__(self, wires: Wires, address: str, credentials: Credentials | None = None) -> None:
        process = CURRENT.get()
        assert process is not None, "only simulated processes call"
        self._wires, self._address, self._process = wires, address, process
        self._credentials = credentials
        self._calls: dict[asyncio.Task[bytes], None] = {}
        self._closed = False

    def unary_unary(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        **_: Any,
    ) -> Callable[..., Any]:
        async def call(request: Any, timeout: float | None = None, **_: Any) -> Any:
            if self._closed:
                raise asyncio.CancelledError
            data = request_serializer(request) if request_serializer else request
            work = self._wires.call(self._process, self._address, method, data, timeout, self._credentials)
            task = self._wires.loop.create_task(work)
            self._calls[task] = None
            try:
                answer = await task
            finally:
                self._calls.pop(task, None)
            return response_deserializer(answer) if response_deserializer else answer

        return call

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Connected to whoever can be reached now: gRPC itself may notice later."""
        return self._wires.connectivity(self._process.name, self._address, self._credentials)

    async def wait_for_state_change(self, last: grpc.ChannelConnectivity) -> None:
        while self.get_state() is last:  # noqa: ASYNC110  (what there is to wait for has no event)
            await asyncio.sleep(CONNECTIVITY_S)

    async def close(self, grace: float | None = None) -> None:
        self._closed = True
        for task in list(self._calls):
            task.cancel()

    async def __aenter__(self) -> Channel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


@contextmanager
def grpc_on(wires: Wires, *, secured: bool = False) -> Iterator[None]:
    """Within it ``grpc.aio`` makes channels and servers on these wires. ``secured``: processes have certificates."""
    global _secured

    def server(*_: Any, **__: Any) -> Server:
        return Server(wires)

    def insecure_channel(address: str, *_: Any, **__: Any) -> Channel:
        return Channel(wires, address)

    def secure_channel(address: str, credentials: Any, *_: Any, **__: Any) -> Channel:
        return Channel(wires, address, credentials)

    before, _secured = _secured, secured
    made: dict[str, Any] = {
        "server": server,
        "insecure_channel": insecure_channel,
        "secure_channel": secure_channel,
    }
    try:
        with mock.patch.multiple(grpc.aio, **made):
            yield
    finally:
        _secured = before
