"""Brokers of Kafka's protocol that register, accept every control request and acknowledge it at once: for figures of
controllers, whoever's they are.

Run as ``python -m tests.kafka.acceptors CONNECT FIRST_ID COUNT``. Prints ``ready`` and, for each line read from
standard input, how many control requests were accepted so far and when the last one was (seconds since the epoch).
Before that, ``drop N`` ends the session of broker N, ``restore N`` registers it again, and ``bounce N`` does both.
``fail N``: the disk with all replicas of broker N fails, until it starts anew; new ones are made on another.

But on a broker whose disk has failed, LeaderAndIsr and UpdateMetadata are not decoded, and LeaderAndIsr is answered
without naming the partitions, which both controllers take for success: that leaves the machine's time to them.
"""

from __future__ import annotations

import asyncio
import struct
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from kazoo.client import KazooClient

from proto.gen.kafka.api_versions_response import ApiVersion, ApiVersionsResponse
from proto.gen.kafka.leader_and_isr_response import LeaderAndIsrResponse
from proto.gen.kafka.stop_replica_response import StopReplicaPartitionError, StopReplicaResponse
from proto.gen.kafka.update_metadata_response import UpdateMetadataResponse
from proto.kafka.apis import APIS, ApiKey, Message, RequestHeader, decode_request_header
from tests.support.runtime.kafka_peer import VERSIONS, led, response

_SIZE = struct.Struct(">i")
_SESSION_S = 30
_STORAGE_ERROR = 56


class Accepted:
    """What all brokers of this process were sent."""

    requests = 0
    last_at_s = 0.0

    def note(self) -> None:
        self.requests += 1
        self.last_at_s = time.time()


class FailedDisk:
    """Of a broker that has another one."""

    def __init__(self) -> None:
        self._elsewhere: set[tuple[str, int]] = set()

    def begun(self, topic: str, state: Any) -> int:
        """The error of a partition in LeaderAndIsr."""
        if state.is_new:
            self._elsewhere.add((topic, state.partition_index))
        return self.error(topic, state)

    def error(self, topic: str, state: Any) -> int:
        known = (topic, state.partition_index) in self._elsewhere
        return 0 if known else _STORAGE_ERROR


def answer_to(header: RequestHeader, data: bytes, at: int, failed: FailedDisk | None = None) -> Message:
    """``at``: where the body begins. Raises KeyError: brokers do not know such requests here."""
    key = ApiKey(header.api_key)
    match key:
        case ApiKey.API_VERSIONS:
            return ApiVersionsResponse(api_keys=[ApiVersion(k, 0, newest) for k, newest in VERSIONS.items()])
        case ApiKey.LEADER_AND_ISR:
            if failed is None:
                return LeaderAndIsrResponse()
            return led(header, APIS[key].request.decode_at(data, at, header.api_version), failed.begun)
        case ApiKey.UPDATE_METADATA:
            return UpdateMetadataResponse()
        case ApiKey.STOP_REPLICA:
            # A replica that is not named has not been deleted.
            request: Any = APIS[key].request.decode_at(data, at, header.api_version)
            return StopReplicaResponse(
                0,
                [
                    StopReplicaPartitionError(
                        topic.topic_name,
                        state.partition_index,
                        failed.error(topic.topic_name, state) if failed is not None else 0,
                    )
                    for topic in request.topic_states
                    for state in topic.partition_states
                ],
            )
    raise KeyError(key)


async def _serve(
    accepted: Accepted,
    failed: Callable[[], FailedDisk | None],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    try:
        while True:
            (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
            data = await reader.readexactly(size)
            header, at = decode_request_header(data)
            if header.api_key != ApiKey.API_VERSIONS:
                accepted.note()
            writer.write(response(header, answer_to(header, data, at, failed())))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError, KeyError):
        pass
    finally:
        writer.close()


async def _register(connect: str, broker_id: int, port: int) -> KazooClient:
    client = KazooClient(connect, timeout=_SESSION_S)
    await asyncio.to_thread(client.start, 30)
    registration = {
        "version": 5,
        "host": "127.0.0.1",
        "port": port,
        "endpoints": [f"PLAINTEXT://127.0.0.1:{port}"],
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        "jmx_port": -1,
        "timestamp": str(time.time_ns() // 1_000_000),
        "features": {},
    }
    client.create(
        f"/brokers/ids/{broker_id}", msgspec.json.encode(registration), ephemeral=True, makepath=True
    )
    return client


async def serve(connect: str, first: int, count: int) -> None:
    accepted = Accepted()
    clients: dict[int, KazooClient] = {}
    #: The port of each.
    addresses: dict[int, int] = {}
    failed: dict[int, FailedDisk] = {}
    servers = []

    for broker_id in range(first, first + count):
        connected = partial(_serve, accepted, partial(failed.get, broker_id))
        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        servers.append(server)
        addresses[broker_id] = server.sockets[0].getsockname()[1]
        clients[broker_id] = await _register(connect, broker_id, addresses[broker_id])
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def commands() -> None:
        for line in sys.stdin:
            match line.split():
                case ["fail", broker_id]:
                    failed[int(broker_id)] = FailedDisk()
                case ["drop" | "bounce", broker_id]:
                    failed.pop(int(broker_id), None)
                    clients[int(broker_id)].stop()
                    clients[int(broker_id)].close()
            match line.split():
                case ["restore" | "bounce", broker_id]:
                    again = _register(connect, int(broker_id), addresses[int(broker_id)])
                    clients[int(broker_id)] = asyncio.run_coroutine_threadsafe(again, loop).result()
            print(accepted.requests, accepted.last_at_s, flush=True)
        loop.call_soon_threadsafe(done.set)

    threading.Thread(target=commands, daemon=True).start()
    await done.wait()
    for client in clients.values():
        client.stop()
    for server in servers:
        server.close()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
