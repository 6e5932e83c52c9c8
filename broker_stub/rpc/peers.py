"""Calls to other brokers and to the controller: one gRPC channel per address, one exception for all failures."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from broker_stub.errors import BrokerError
from proto.addresses import join_address
from proto.gen import broker_data_pb2 as data
from proto.gen import controller_service_pb2 as control
from proto.limits import MESSAGE_LIMITS
from proto.security.grpc_channels import CONNECT_ATTEMPT, Channels, GrpcTls, details_of

#: Host and port of a gRPC server.
Address = tuple[str, int]
_Response = TypeVar("_Response", bound=Message)

_OPTIONS = [
    *MESSAGE_LIMITS,
    # By default channels share connections and their backoff.
    ("grpc.use_local_subchannel_pool", 1),
    # Ignore the http_proxy environment variable: it is not meant for the cluster.
    ("grpc.enable_http_proxy", 0),
    # Reconnect to a restarted peer within a second.
    ("grpc.initial_reconnect_backoff_ms", 100),
    CONNECT_ATTEMPT,
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Detect, during a call, a peer that vanished without closing its connections.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
]
_DATA = data.DESCRIPTOR.services_by_name["BrokerData"].full_name
_CONTROL = control.DESCRIPTOR.services_by_name["ControllerService"].full_name


class PeerUnavailable(BrokerError):  # noqa: N818  (a fault of the environment)
    """A call without a response; whether the peer executed it is unknown.

    ``status``: gRPC's status name (UNAVAILABLE, DEADLINE_EXCEEDED, ...).
    """

    def __init__(self, address: Address, method: str, status: str, details: str) -> None:
        self.address, self.method, self.status, self.details = address, method, status, details
        super().__init__(f"{method} to {join_address(*address)}: {status}: {details}")


class Peers:
    """One channel per address, opened at the first call. Belongs to one event loop."""

    def __init__(self, tls: GrpcTls | None) -> None:
        self._channels = Channels(tls, _OPTIONS)
        self._by_name: dict[str, Address] = {}
        self._closed = False

    @property
    def addresses(self) -> frozenset[Address]:
        """Addresses with an open channel."""
        return frozenset(self._by_name[name] for name in self._channels.addresses)

    async def call(
        self,
        address: Address,
        service: str,
        method: str,
        request: Message,
        response_type: type[_Response],
        timeout_s: float,
    ) -> _Response:
        """Call a method; ``service`` is the full name. Never retries. Raises PeerUnavailable."""
        if self._closed:
            raise PeerUnavailable(address, method, "CANCELLED", "this broker is stopping")
        # Parse here: gRPC returns None for a response that its deserializer refuses.
        stub: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel(address).unary_unary(
            f"/{service}/{method}"
        )
        try:
            answer = await stub(request.SerializeToString(), timeout=timeout_s)
            return response_type.FromString(answer)
        except grpc.aio.AioRpcError as error:
            details = details_of(error, self._channels.tls)
            raise PeerUnavailable(address, method, error.code().name, details) from None
        except DecodeError as error:
            raise PeerUnavailable(address, method, "INTERNAL", f"unreadable response: {error}") from None
        except asyncio.CancelledError:
            # Closing a channel also cancels its calls. Raise CancelledError only if the caller was cancelled.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise PeerUnavailable(address, method, "CANCELLED", "the connection was closed") from None

    def _channel(self, address: Address) -> grpc.aio.Channel:
        name = join_address(*address)
        self._by_name[name] = address
        return self._channels.to(name)

    async def fetch(
        self, address: Address, request: data.FetchRequest, timeout_s: float
    ) -> data.FetchResponse:
        """``timeout_s`` must be longer than the request's ``max_wait_ms``. Raises PeerUnavailable."""
        return await self.call(address, _DATA, "Fetch", request, data.FetchResponse, timeout_s)

    async def offsets_for_leader_epoch(
        self, address: Address, request: data.OffsetsForLeaderEpochRequest, timeout_s: float
    ) -> data.OffsetsForLeaderEpochResponse:
        """The end offsets of leader epochs on a leader. Raises PeerUnavailable."""
        response = data.OffsetsForLeaderEpochResponse
        return await self.call(address, _DATA, "OffsetsForLeaderEpoch", request, response, timeout_s)

    async def list_offsets(
        self, address: Address, request: data.ListOffsetsRequest, timeout_s: float
    ) -> data.ListOffsetsResponse:
        """Start or end offset of a leader's log. Raises PeerUnavailable."""
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
        """Ask the controller to move our leaderships (reference, section 6). Raises PeerUnavailable."""
        response = control.ControlledShutdownResponse
        return await self.call(address, _CONTROL, "ControlledShutdown", request, response, timeout_s)

    async def retain(self, addresses: Collection[Address]) -> None:
        """Close the channels to all other addresses; their calls raise PeerUnavailable."""
        self._by_name = {join_address(*address): address for address in addresses}
        await self._channels.retain(self._by_name)

    async def close(self) -> None:
        """Close all channels; later calls raise PeerUnavailable."""
        self._closed = True
        await self._channels.close()
