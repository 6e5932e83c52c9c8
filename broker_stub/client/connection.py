"""Calls to brokers by address, with deadlines. The only importer of grpc in this package."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from broker_stub.client.errors import FatalError, UnreachableError
from proto.gen import broker_data_pb2 as wire
from proto.gen import common_pb2 as codes
from proto.limits import MESSAGE_LIMITS
from proto.security.grpc_channels import CONNECT_ATTEMPT, Channels, GrpcTls, details_of

#: Timeout of a connection attempt; within one network it takes milliseconds.
CONNECT_TIMEOUT_S = 3.0
_OPTIONS = [
    *MESSAGE_LIMITS,
    ("grpc.use_local_subchannel_pool", 1),
    # gRPC's default back-off grows to two minutes: a restarted broker would be unreachable for that long.
    ("grpc.initial_reconnect_backoff_ms", 100),
    CONNECT_ATTEMPT,
    ("grpc.max_reconnect_backoff_ms", 500),
]
_SERVICE = wire.DESCRIPTOR.services_by_name["BrokerData"].full_name
#: gRPC errors for which a retry is useless.
_FATAL = {
    grpc.StatusCode.UNIMPLEMENTED: codes.INVALID_REQUEST,
    grpc.StatusCode.INVALID_ARGUMENT: codes.INVALID_REQUEST,
    grpc.StatusCode.RESOURCE_EXHAUSTED: codes.MESSAGE_TOO_LARGE,
    grpc.StatusCode.UNAUTHENTICATED: codes.CLUSTER_AUTHORIZATION_FAILED,
}

Answer = TypeVar("Answer", bound=Message)


class Connections:
    """One channel per broker address, created when first needed. Used on one event loop."""

    def __init__(self, tls: GrpcTls | None = None) -> None:
        self._channels = Channels(tls, _OPTIONS)
        #: The callable of each address and method, with the channel that it was made on.
        self._calls: dict[
            tuple[str, str], tuple[grpc.aio.Channel, grpc.aio.UnaryUnaryMultiCallable[Any, Any]]
        ] = {}

    async def call(
        self, address: str, method: str, request: Message, answer: type[Answer], timeout_s: float
    ) -> Answer:
        """Call the broker at ``host:port``.

        Raises UnreachableError when no response came within ``timeout_s`` seconds, FatalError when the broker rejects
        the message itself.
        """
        asked = f"{method} at {address}"
        channel = self._channels.to(address)
        how = "without TLS" if self._channels.tls is None else "by TLS"
        await _connect(channel, asked, how, min(timeout_s, CONNECT_TIMEOUT_S))
        made_on, call = self._calls.get((address, method), (None, None))
        if call is None or made_on is not channel:
            call = channel.unary_unary(
                f"/{_SERVICE}/{method}",
                request_serializer=type(request).SerializeToString,
                response_deserializer=answer.FromString,
            )
            self._calls[address, method] = channel, call
        try:
            result: Answer = await call(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            detail = f"{error.code().name}: {details_of(error, self._channels.tls)}"
            if error.code() in _FATAL:
                raise FatalError(_FATAL[error.code()], asked, detail) from None
            raise UnreachableError(asked, detail, sent=True) from None
        except DecodeError as error:
            raise UnreachableError(asked, f"unreadable response: {error}", sent=True) from None
        return result

    async def close(self) -> None:
        """Close all connections; their calls fail."""
        self._calls.clear()
        await self._channels.close()


async def _connect(channel: grpc.aio.Channel, asked: str, how: str, timeout_s: float) -> None:
    """Wait until the channel is connected: before that, a failure proves that nothing was sent."""
    try:
        async with asyncio.timeout(timeout_s):
            while (state := channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
                # Fail at once instead of waiting for gRPC's back-off: the caller can try another broker.
                if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                    raise UnreachableError(
                        asked, f"unknown host, or connection refused or ended ({how})", sent=False
                    )
                await channel.wait_for_state_change(state)
    except TimeoutError:
        raise UnreachableError(asked, f"not connected within {timeout_s:g} s", sent=False) from None
