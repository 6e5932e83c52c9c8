"""Calls to other brokers and to the controller: one gRPC channel per address, every failure one exception."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from broker_stub.errors import BrokerError
from proto.gen import broker_data_pb2 as data
from proto.gen import controller_service_pb2 as control
from proto.limits import MESSAGE_LIMITS

#: Host and port of a gRPC server.
Address = tuple[str, int]
_Response = TypeVar("_Response", bound=Message)

_OPTIONS = [
    *MESSAGE_LIMITS,
    # Channels share connections, and their backoff, unless told otherwise.
    ("grpc.use_local_subchannel_pool", 1),
    # A proxy of the environment is for the web, not for the cluster.
    ("grpc.enable_http_proxy", 0),
    # A peer that was restarted is found again within a second.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # A peer that vanished without closing its connections is noticed while a call waits for it.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
]
_DATA = data.DESCRIPTOR.services_by_name["BrokerData"].full_name
_CONTROL = control.DESCRIPTOR.services_by_name["ControllerService"].full_name


class PeerUnavailable(BrokerError):  # noqa: N818  (a fault of the surroundings)
    """A call that brought no answer; whether the peer acted on it is unknown.

    ``status`` is gRPC's name for what happened (UNAVAILABLE, DEADLINE_EXCEEDED, ...); the message says all.
    """

    def __init__(self, address: Address, method: str, status: str, details: str) -> None:
        self.address, self.method, self.status, self.details = address, method, status, details
        super().__init__(f"{method} to {join_address(address)}: {status}: {details}")


def join_address(address: Address) -> str:
    """``host:port``, an IPv6 host in brackets."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Peers:
    """Channels by address, opened at the first call. Belongs to one event loop."""

    def __init__(self) -> None:
        self._channels: dict[Address, grpc.aio.Channel] = {}
        self._closed = False

    @property
    def addresses(self) -> frozenset[Address]:
        """Those with an open channel."""
        return frozenset(self._channels)

    async def call(
        self,
        address: Address,
        service: str,
        method: str,
        request: Message,
        response_type: type[_Response],
        timeout_s: float,
    ) -> _Response:
        """The answer to ``request``; ``service`` is the full name. Raises PeerUnavailable; never retries."""
        if self._closed:
            raise PeerUnavailable(address, method, "CANCELLED", "this broker is stopping")
        # The bytes are parsed here: gRPC would make None of an answer that does not parse.
        stub: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel(address).unary_unary(
            f"/{service}/{method}"
        )
        try:
            answer = await stub(request.SerializeToString(), timeout=timeout_s)
            return response_type.FromString(answer)
        except grpc.aio.AioRpcError as error:
            details = error.details() or "no details"
            raise PeerUnavailable(address, method, error.code().name, details) from None
        except DecodeError as error:
            raise PeerUnavailable(address, method, "INTERNAL", f"unreadable answer: {error}") from None
        except asyncio.CancelledError:
            # Closing a channel cancels its calls, which must not look as if the caller had been cancelled.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise PeerUnavailable(address, method, "CANCELLED", "the connection was given up") from None

    def _channel(self, address: Address) -> grpc.aio.Channel:
        channel = self._channels.get(address)
        if channel is None:
            channel = grpc.aio.insecure_channel(join_address(address), options=_OPTIONS)
            self._channels[address] = channel
        return channel

    async def fetch(
        self, address: Address, request: data.FetchRequest, timeout_s: float
    ) -> data.FetchResponse:
        """``timeout_s`` must leave room for the request's ``max_wait_ms``. Raises PeerUnavailable."""
        return await self.call(address, _DATA, "Fetch", request, data.FetchResponse, timeout_s)

    async def offsets_for_leader_epoch(
        self, address: Address, request: data.OffsetsForLeaderEpochRequest, timeout_s: float
    ) -> data.OffsetsForLeaderEpochResponse:
        """Where epochs end at a leader. Raises PeerUnavailable."""
        response = data.OffsetsForLeaderEpochResponse
        return await self.call(address, _DATA, "OffsetsForLeaderEpoch", request, response, timeout_s)

    async def list_offsets(
        self, address: Address, request: data.ListOffsetsRequest, timeout_s: float
    ) -> data.ListOffsetsResponse:
        """Where a leader's log begins and ends. Raises PeerUnavailable."""
        return await self.call(address, _DATA, "ListOffsets", request, data.ListOffsetsResponse, timeout_s)

    async def alter_partition(
        self, address: Address, request: control.AlterPartitionRequest, timeout_s: float
    ) -> control.AlterPartitionResponse:
        """Propose ISRs to the controller (reference, section 8.4). Raises PeerUnavailable."""
        response = control.AlterPartitionResponse
        return await self.call(address, _CONTROL, "AlterPartition", request, response, timeout_s)

    async def controlled_shutdown(
        self, address: Address, request: control.ControlledShutdownRequest, timeout_s: float
    ) -> control.ControlledShutdownResponse:
        """Ask the controller to take our leaderships over (reference, section 6). Raises PeerUnavailable."""
        response = control.ControlledShutdownResponse
        return await self.call(address, _CONTROL, "ControlledShutdown", request, response, timeout_s)

    async def retain(self, addresses: Collection[Address]) -> None:
        """Close the channels to all others; their calls raise PeerUnavailable."""
        gone = [self._channels.pop(address) for address in list(self._channels) if address not in addresses]
        for channel in gone:
            await channel.close()

    async def close(self) -> None:
        """Close all; later calls raise PeerUnavailable."""
        self._closed = True
        await self.retain(())
