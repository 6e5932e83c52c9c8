"""A peer of Kafka's protocol under the test's thumb: it reads frames, and answers what it is told to.

``tests/kafka/test_peer_contract.py`` compares it with a real broker.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any

from controller.core.model import Broker, Endpoint
from proto.gen.kafka.api_versions_response import ApiVersion, ApiVersionsResponse
from proto.gen.kafka.leader_and_isr_response import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from proto.gen.kafka.stop_replica_response import StopReplicaPartitionError, StopReplicaResponse
from proto.gen.kafka.update_metadata_response import UpdateMetadataResponse
from proto.kafka.apis import APIS, ApiKey, Message, RequestHeader, decode_request_header, encode_response

#: As Kafka 3.9 says.
VERSIONS = {
    ApiKey.LEADER_AND_ISR: 7,
    ApiKey.STOP_REPLICA: 4,
    ApiKey.UPDATE_METADATA: 8,
    ApiKey.API_VERSIONS: 4,
}
#: The first LeaderAndIsr that is answered by topic ids.
_BY_TOPIC_ID = 5
#: The bytes after a request's frame: None closes the connection, empty bytes are silence.
Answer = Callable[[RequestHeader, Any], Awaitable[bytes | None]]


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def response(header: RequestHeader, message: Message) -> bytes:
    """The frame of a proper response."""
    return framed(encode_response(message, header.api_version, header.correlation_id))


def led(
    header: RequestHeader, request: Any, error_of: Callable[[str, Any], int] = lambda topic, state: 0
) -> LeaderAndIsrResponse:
    """Every partition with its error, as brokers name them."""
    if header.api_version >= _BY_TOPIC_ID:
        return LeaderAndIsrResponse(
            topics=[
                LeaderAndIsrTopicError(
                    topic.topic_id,
                    [
                        LeaderAndIsrPartitionError("", s.partition_index, error_of(topic.topic_name, s))
                        for s in topic.partition_states
                    ],
                )
                for topic in request.topic_states
            ]
        )
    return LeaderAndIsrResponse(
        partition_errors=[
            LeaderAndIsrPartitionError(topic.topic_name, s.partition_index, error_of(topic.topic_name, s))
            for topic in request.topic_states
            for s in topic.partition_states
        ]
    )


class KafkaPeer:
    """Answers ApiVersions by ``versions``; ``answer`` decides the rest. ``received`` holds (header, request)."""

    def __init__(self, broker_id: int = 1, epoch: int = 1) -> None:
        self.id, self.epoch = broker_id, epoch
        self.port = 0
        self.versions = dict(VERSIONS)
        self.received: list[tuple[RequestHeader, Any]] = []
        self.connections = 0
        self.answer: Answer = self.carry_out
        self.overlaps = 0
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}

    async def start(self) -> KafkaPeer:
        """Serve, on the port it had before if there was one."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            for task in self._serving:
                task.cancel()
            await asyncio.gather(*self._serving, return_exceptions=True)
            await self._server.wait_closed()
            self._server = None

    def hang_up(self) -> None:
        """Close all connections."""
        for writer in self._serving.values():
            writer.close()

    @property
    def incarnation(self) -> Broker:
        return Broker(self.id, self.epoch, (Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", self.port),))

    def requests(self, key: ApiKey) -> list[Any]:
        return [request for header, request in self.received if header.api_key == key]

    async def carry_out(self, header: RequestHeader, request: Any) -> bytes | None:
        """No error at all."""
        match header.api_key:
            case ApiKey.API_VERSIONS:
                keys = [ApiVersion(key, 0, newest) for key, newest in self.versions.items()]
                return response(header, ApiVersionsResponse(api_keys=keys))
            case ApiKey.LEADER_AND_ISR:
                return response(header, led(header, request))
            case ApiKey.UPDATE_METADATA:
                return response(header, UpdateMetadataResponse())
            case ApiKey.STOP_REPLICA:
                done = [
                    StopReplicaPartitionError(topic.topic_name, state.partition_index, 0)
                    for topic in request.topic_states
                    for state in topic.partition_states
                ]
                return response(header, StopReplicaResponse(0, done))
        raise AssertionError(header)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._serving[task] = writer
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                data = await reader.readexactly(size)
                header, at = decode_request_header(data)
                request = APIS[ApiKey(header.api_key)].request.decode_at(data, at, header.api_version)
                self.received.append((header, request))
                answer = await self.answer(header, request)
                # One request in flight: nothing has come while this one was answered.
                self.overlaps += bool(reader._buffer)  # type: ignore[attr-defined]
                if answer is None:
                    return
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            del self._serving[task]
            writer.close()
