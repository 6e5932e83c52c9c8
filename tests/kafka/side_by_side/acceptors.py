"""Brokers of Kafka's protocol that register, accept every control request and acknowledge it at once: for figures of
controllers, whoever's they are.

Run as ``python -m tests.kafka.side_by_side.acceptors CONNECT FIRST_ID COUNT [TIMEOUT_S] [hold]``. Prints ``ready`` and,
for each line read from standard input, how many control requests were accepted so far and when the last one was
(seconds since the epoch). Before that, ``drop N`` ends the session of broker N, ``restore N`` registers it again,
``bounce N`` does both. ``fail N``: the disk with all replicas of broker N fails, until it starts anew; new ones are
made on another. ``told``, where they ``hold`` what they are told, is answered with that, a JSON object by broker.

But on a broker whose disk has failed, and where they hold it, LeaderAndIsr and UpdateMetadata are not decoded, and
LeaderAndIsr is answered without naming the partitions, which both controllers take for success: that leaves the
machine's time to them.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import threading
import time
from collections.abc import Iterator
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
#: The leader of a partition that is deleted, in UpdateMetadata.
_DELETED = -2


class Accepted:
    """What all brokers of this process were sent."""

    requests = 0
    last_at_s = 0.0

    def note(self) -> None:
        self.requests += 1
        self.last_at_s = time.time()


class AcceptingBroker:
    """One broker. ``told``: what it was told and did not refuse, where that is kept, as JSON values; without epochs and
    the ISR of LeaderAndIsr, which a broker takes only with a new leader epoch."""

    def __init__(self, *, hold: bool) -> None:
        #: Of the replicas on the disk that has failed, those made since are on another one.
        self.failed: set[tuple[str, int]] | None = None
        self.told: dict[str, Any] | None = {} if hold else None
        self._epoch = -1

    def answer_to(self, header: RequestHeader, data: bytes, at: int) -> Message:
        """``at``: where the body begins. Raises KeyError: brokers do not know such requests here."""
        key = ApiKey(header.api_key)
        if key is ApiKey.API_VERSIONS:
            return ApiVersionsResponse(api_keys=[ApiVersion(k, 0, newest) for k, newest in VERSIONS.items()])
        request: Any = None
        if key is ApiKey.STOP_REPLICA or self.told is not None or self.failed is not None:
            request = APIS[key].request.decode_at(data, at, header.api_version)
        if self.told is not None:
            self._hear(key, request, self.told)
        match key:
            case ApiKey.LEADER_AND_ISR:
                return LeaderAndIsrResponse() if self.failed is None else led(header, request, self._begun)
            case ApiKey.UPDATE_METADATA:
                return UpdateMetadataResponse()
            case ApiKey.STOP_REPLICA:
                # A replica that is not named has not been deleted.
                return StopReplicaResponse(
                    0,
                    [
                        StopReplicaPartitionError(topic, state.partition_index, self._error(topic, state))
                        for topic, state in _states(request)
                    ],
                )
        raise KeyError(key)

    def _begun(self, topic: str, state: Any) -> int:
        if state.is_new and self.failed is not None:
            self.failed.add((topic, state.partition_index))
        return self._error(topic, state)

    def _error(self, topic: str, state: Any) -> int:
        works = self.failed is None or (topic, state.partition_index) in self.failed
        return 0 if works else _STORAGE_ERROR

    def _hear(self, key: ApiKey, request: Any, told: dict[str, Any]) -> None:
        if request.broker_epoch < self._epoch:
            return
        if request.broker_epoch > self._epoch:
            # It has started anew.
            told.clear()
            self._epoch = request.broker_epoch
        if key is ApiKey.UPDATE_METADATA:
            told["brokers"] = sorted(broker.id for broker in request.live_brokers)
        for topic, state in _states(request):
            metadata, replica = (
                f"{what} of {topic}-{state.partition_index}" for what in ("metadata", "replica")
            )
            match key:
                case ApiKey.UPDATE_METADATA if state.leader == _DELETED:
                    told.pop(metadata, None)
                case ApiKey.UPDATE_METADATA:
                    offline = sorted(state.offline_replicas)
                    told[metadata] = [state.leader, sorted(state.isr), state.replicas, offline]
                case ApiKey.LEADER_AND_ISR if not self._begun(topic, state):
                    moving = [sorted(state.adding_replicas), sorted(state.removing_replicas)]
                    told[replica] = [state.leader, state.replicas, *moving]
                case ApiKey.STOP_REPLICA if not self._error(topic, state):
                    told[replica] = "stopped"
                    if state.delete_partition:
                        del told[replica]


def _states(request: Any) -> Iterator[tuple[str, Any]]:
    return ((topic.topic_name, state) for topic in request.topic_states for state in topic.partition_states)


async def _serve(
    accepted: Accepted, broker: AcceptingBroker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        while True:
            (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
            data = await reader.readexactly(size)
            header, at = decode_request_header(data)
            if header.api_key != ApiKey.API_VERSIONS:
                accepted.note()
            writer.write(response(header, broker.answer_to(header, data, at)))
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


async def serve(connect: str, first: int, count: int, *, hold: bool) -> None:
    accepted = Accepted()
    clients: dict[int, KazooClient] = {}
    #: The port of each.
    addresses: dict[int, int] = {}
    brokers = {broker_id: AcceptingBroker(hold=hold) for broker_id in range(first, first + count)}
    servers = []

    for broker_id, broker in brokers.items():
        server = await asyncio.start_server(partial(_serve, accepted, broker), "127.0.0.1", 0)
        servers.append(server)
        addresses[broker_id] = server.sockets[0].getsockname()[1]
        clients[broker_id] = await _register(connect, broker_id, addresses[broker_id])
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    async def told() -> str:
        return json.dumps({broker_id: broker.told for broker_id, broker in brokers.items()})

    def commands() -> None:
        for line in sys.stdin:
            match line.split():
                case ["told"]:
                    print(asyncio.run_coroutine_threadsafe(told(), loop).result(), flush=True)
                    continue
                case ["fail", broker_id]:
                    brokers[int(broker_id)].failed = set()
                case ["drop" | "bounce", broker_id]:
                    brokers[int(broker_id)].failed = None
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
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), hold="hold" in sys.argv[4:]))
