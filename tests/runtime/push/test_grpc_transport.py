"""Control requests over gRPC: what is called, how long it may take, and what becomes of each answer. No server."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import grpc
import pytest
from grpc.aio import AioRpcError, Metadata

from controller.core.model import Broker, Cluster, Endpoint
from controller.core.outbox import Push, PushKind
from controller.runtime.push import grpc_transport
from controller.runtime.push.grpc_transport import DESCRIBE_TIMEOUT_S, GrpcTransport, GrpcTransports
from controller.runtime.push.transport import Answer, CannotAnswerError, PartitionError, UnreachableError
from proto.gen import broker_control_pb2 as pb
from proto.gen import common_pb2

BROKER = Broker(1, 7, (Endpoint("GRPC", "PLAINTEXT", "::1", 9000),))
JUNK = b"\xff\xff\xff"


class Channels:
    """In the place of real ones: each call is noted, and answered by ``answer``."""

    def __init__(self, tls: Any = None, options: Any = None) -> None:
        self.tls, self.options = tls, options
        self.answer: Callable[[], bytes] = lambda: b""
        self.calls: list[tuple[str, str, bytes, float]] = []
        self.retained: list[str] = []
        self.closed = False

    async def retain(self, addresses: Collection[str]) -> None:
        self.retained.extend(addresses)

    def to(self, address: str) -> Any:
        assert address in self.retained
        channels = self

        class Channel:
            def unary_unary(self, path: str) -> Any:
                async def call(message: bytes, timeout: float) -> bytes:
                    channels.calls.append((address, path, message, timeout))
                    return channels.answer()

                return call

        return Channel()

    async def close(self) -> None:
        self.closed = True


def fails(code: grpc.StatusCode, details: str) -> Callable[[], bytes]:
    def answer() -> bytes:
        raise AioRpcError(code, Metadata(), Metadata(), details)

    return answer


@pytest.fixture
def channels(monkeypatch: pytest.MonkeyPatch) -> Channels:
    made = Channels()

    def opened(tls: Any, options: Any) -> Channels:
        made.tls, made.options = tls, options
        return made

    monkeypatch.setattr(grpc_transport, "Channels", opened)
    return made


def transport(timeout_s: float = 2.0, tls: Any = None) -> GrpcTransport:
    return GrpcTransports(Cluster(100, 1), 1000, timeout_s, tls).open()


def push(kind: PushKind) -> Push:
    return Push(kind, BROKER, ())


ERRORS = [
    common_pb2.PartitionError(topic="t", partition=3, error_code=common_pb2.KAFKA_STORAGE_ERROR),
    common_pb2.PartitionError(topic="u", partition=0),
]
SAID = [PartitionError("t", 3, common_pb2.KAFKA_STORAGE_ERROR), PartitionError("u", 0, common_pb2.NONE)]


@pytest.mark.parametrize(
    ("kind", "response", "answer"),
    [
        (
            PushKind.LEADER_AND_ISR,
            pb.LeaderAndIsrResponse(
                error_code=common_pb2.STALE_CONTROLLER_EPOCH, controller_epoch=5, partition_errors=ERRORS
            ),
            Answer(common_pb2.STALE_CONTROLLER_EPOCH, SAID, 5),
        ),
        (
            PushKind.STOP_REPLICA,
            pb.StopReplicaResponse(
                error_code=common_pb2.STALE_BROKER_EPOCH, controller_epoch=6, partition_errors=ERRORS
            ),
            Answer(common_pb2.STALE_BROKER_EPOCH, SAID, 6),
        ),
        (
            PushKind.UPDATE_METADATA,
            pb.UpdateMetadataResponse(error_code=common_pb2.STALE_CONTROLLER_EPOCH, controller_epoch=7),
            Answer(common_pb2.STALE_CONTROLLER_EPOCH, controller_epoch=7),
        ),
    ],
)
async def test_each_kind_is_its_own_call_and_all_of_the_response_is_told(
    channels: Channels, kind: PushKind, response: Any, answer: Answer
) -> None:
    channels.answer = response.SerializeToString
    assert await transport().send(BROKER, push(kind), b"the message") == answer
    path = f"/partition_controller.v1.BrokerControl/{kind.value}"
    assert channels.calls == [("[::1]:9000", path, b"the message", 2.0)]


@pytest.mark.parametrize(("tls", "called"), [(None, "without TLS"), (object(), "by TLS")])
async def test_what_went_wrong_on_the_way_is_said(channels: Channels, tls: Any, called: str) -> None:
    """Whoever is unavailable may want TLS, or not speak it."""
    told = transport(tls=tls)
    channels.answer = fails(grpc.StatusCode.UNAVAILABLE, "refused")
    with pytest.raises(UnreachableError, match=rf"^UNAVAILABLE: refused \(called {called}"):
        await told.send(BROKER, push(PushKind.UPDATE_METADATA), b"")
    channels.answer = lambda: JUNK
    with pytest.raises(UnreachableError, match=r"^the response does not decode"):
        await told.send(BROKER, push(PushKind.UPDATE_METADATA), b"")


@pytest.mark.parametrize(("timeout_s", "waits_s"), [(1.0, 1.0), (600.0, DESCRIBE_TIMEOUT_S)])
async def test_a_description_is_not_waited_for_as_long_as_for_work(
    channels: Channels, timeout_s: float, waits_s: float
) -> None:
    request = pb.DescribeStateRequest(topics=pb.TopicPage())
    held = pb.DescribeStateResponse(controller_epoch=4)
    channels.answer = held.SerializeToString
    assert await transport(timeout_s).describe_state(BROKER, request) == held
    ((address, path, message, waited_s),) = channels.calls
    assert (address, path) == ("[::1]:9000", "/partition_controller.v1.BrokerControl/DescribeState")
    assert (pb.DescribeStateRequest.FromString(message), waited_s) == (request, waits_s)


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        (fails(grpc.StatusCode.UNIMPLEMENTED, "no such"), CannotAnswerError, "UNIMPLEMENTED: no such"),
        (fails(grpc.StatusCode.UNAVAILABLE, "refused"), UnreachableError, "UNAVAILABLE: refused"),
        (lambda: JUNK, UnreachableError, "the response does not decode"),
        (
            pb.DescribeStateResponse(error_code=common_pb2.STALE_CONTROLLER_EPOCH).SerializeToString,
            CannotAnswerError,
            "it refuses: STALE_CONTROLLER_EPOCH",
        ),
        (
            # One that only a newer broker knows.
            pb.DescribeStateResponse(error_code=999).SerializeToString,  # type: ignore[arg-type]
            CannotAnswerError,
            "it refuses: error 999",
        ),
    ],
)
async def test_who_cannot_describe_its_state_is_told_from_one_that_cannot_be_asked(
    channels: Channels, answer: Callable[[], bytes], kind: type[Exception], says: str
) -> None:
    channels.answer = answer
    with pytest.raises(kind, match=says) as raised:
        await transport().describe_state(BROKER, pb.DescribeStateRequest())
    assert type(raised.value) is kind


async def test_it_is_closed_with_its_channels(channels: Channels) -> None:
    await transport().close()
    assert channels.closed
