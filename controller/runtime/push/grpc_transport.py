"""Control requests over gRPC, for brokers with a listener named GRPC. The only gRPC client of the runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import grpc
from google.protobuf.message import DecodeError

from controller.core.model import Broker, Cluster
from controller.core.outbox import Push, PushKind
from controller.runtime.push.messages import MessageBuilder
from controller.runtime.push.transport import Answer, CannotAnswerError, PartitionError, UnreachableError
from proto.addresses import join_address
from proto.error_names import error_name
from proto.gen import broker_control_pb2 as pb
from proto.limits import MESSAGE_LIMITS
from proto.security.grpc_channels import CONNECT_ATTEMPT, Channels, GrpcTls, details_of

_OPTIONS = [
    *MESSAGE_LIMITS,
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    CONNECT_ATTEMPT,
    ("grpc.max_reconnect_backoff_ms", 1000),
]
_SERVICE = "/partition_controller.v1.BrokerControl/"

#: How long a broker may take to describe its state: it computes nothing.
DESCRIBE_TIMEOUT_S = 5.0

Response = pb.LeaderAndIsrResponse | pb.UpdateMetadataResponse | pb.StopReplicaResponse
_PARSERS: dict[PushKind, Callable[[bytes], Response]] = {
    PushKind.LEADER_AND_ISR: pb.LeaderAndIsrResponse.FromString,
    PushKind.UPDATE_METADATA: pb.UpdateMetadataResponse.FromString,
    PushKind.STOP_REPLICA: pb.StopReplicaResponse.FromString,
}


class GrpcTransports:
    """The gRPC transports of one term. ``bytes_max`` limits the partition entries of each message."""

    def __init__(self, cluster: Cluster, bytes_max: int, timeout_s: float, tls: GrpcTls | None) -> None:
        self.builder = MessageBuilder(cluster, bytes_max)
        self._timeout_s, self._tls = timeout_s, tls

    def open(self) -> GrpcTransport:
        return GrpcTransport(self.builder, self._timeout_s, self._tls)

    def forget(self) -> None:
        self.builder.forget()


class GrpcTransport:
    """The channel to one broker, reopened when its address or our certificate changes."""

    def __init__(self, builder: MessageBuilder, timeout_s: float, tls: GrpcTls | None) -> None:
        self._builder, self._timeout_s = builder, timeout_s
        self._channels = Channels(tls, _OPTIONS)

    async def connect(self, broker: Broker) -> None:
        """Nothing: every gRPC broker takes the same messages, and the channel connects by itself."""

    def build(self, push: Push) -> Iterator[tuple[bytes, int]]:
        return self._builder.build(push)

    async def send(self, broker: Broker, push: Push, message: bytes) -> Answer:
        channel = await self._channel_to(broker)
        # Parsed here: gRPC would turn a response that does not parse into None.
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            _SERVICE + push.kind.value
        )
        try:
            response = _PARSERS[push.kind](await method(message, timeout=self._timeout_s))
        except grpc.aio.AioRpcError as error:
            details = details_of(error, self._channels.tls)
            raise UnreachableError(f"{error.code().name}: {details}") from None
        except DecodeError as error:
            raise UnreachableError(f"the response does not decode: {error}") from None
        if isinstance(response, pb.UpdateMetadataResponse):
            return Answer(response.error_code, controller_epoch=response.controller_epoch)
        errors = [PartitionError(e.topic, e.partition, e.error_code) for e in response.partition_errors]
        return Answer(response.error_code, errors, response.controller_epoch)

    async def describe_state(
        self, broker: Broker, request: pb.DescribeStateRequest
    ) -> pb.DescribeStateResponse:
        """What the broker holds of what it was told. Raises UnreachableError, and CannotAnswerError of it."""
        channel = await self._channel_to(broker)
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            _SERVICE + "DescribeState"
        )
        try:
            message = await method(
                request.SerializeToString(), timeout=min(self._timeout_s, DESCRIBE_TIMEOUT_S)
            )
            answer = pb.DescribeStateResponse.FromString(message)
        except grpc.aio.AioRpcError as error:
            cannot = error.code() is grpc.StatusCode.UNIMPLEMENTED
            kind = CannotAnswerError if cannot else UnreachableError
            raise kind(f"{error.code().name}: {error.details()}") from None
        except DecodeError as error:
            raise UnreachableError(f"the response does not decode: {error}") from None
        if answer.error_code:
            raise CannotAnswerError(f"it refuses: {error_name(answer.error_code)}")
        return answer

    async def close(self) -> None:
        await self._channels.close()

    async def _channel_to(self, broker: Broker) -> grpc.aio.Channel:
        endpoint = broker.control_endpoint
        address = join_address(endpoint.host, endpoint.port)
        await self._channels.retain([address])
        return self._channels.to(address)
