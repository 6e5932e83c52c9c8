"""Brokers that register, accept every control request and acknowledge it at once: the bench's other side.

Run as ``python -m tests.bench.acceptors CONNECT FIRST_ID COUNT``; prints ``ready`` and, for each line read from
standard input, how many bytes were accepted so far. ``drop N`` ends the session of broker N.
"""

from __future__ import annotations

import asyncio
import sys
import threading

import grpc
import msgspec
from kazoo.client import KazooClient

from proto.gen import broker_control_pb2 as pb
from proto.gen import common_pb2

SERVICE = "partition_controller.v1.BrokerControl"
accepted = {"bytes": 0, "requests": 0}


async def _accept(request: bytes, context: object) -> bytes:
    del context
    accepted["bytes"] += len(request)
    accepted["requests"] += 1
    return b""  # every response type decodes this as error_code NONE


async def _stop(request: bytes, context: object) -> bytes:
    """Every replica is named: a broker that forgets one has not deleted it."""
    await _accept(request, context)
    named = pb.StopReplicaRequest.FromString(request)
    return pb.StopReplicaResponse(
        partition_errors=[
            common_pb2.PartitionError(topic=state.topic, partition=state.partition)
            for state in named.partition_states
        ]
    ).SerializeToString()


async def serve(connect: str, first: int, count: int) -> None:
    handlers = grpc.method_handlers_generic_handler(
        SERVICE,
        {
            "LeaderAndIsr": grpc.unary_unary_rpc_method_handler(_accept),
            "UpdateMetadata": grpc.unary_unary_rpc_method_handler(_accept),
            "StopReplica": grpc.unary_unary_rpc_method_handler(_stop),
        },
    )
    clients: dict[int, KazooClient] = {}
    servers = []  # a server that nobody holds is collected, and stops
    for broker_id in range(first, first + count):
        server = grpc.aio.server(options=[("grpc.max_receive_message_length", 64 * 2**20)])
        server.add_generic_rpc_handlers((handlers,))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        servers.append(server)
        client = clients[broker_id] = KazooClient(connect, timeout=30)
        await asyncio.to_thread(client.start, 30)
        registration = {
            "version": 5,
            "host": "127.0.0.1",
            "port": port,
            "endpoints": [f"GRPC://127.0.0.1:{port}"],
            "listener_security_protocol_map": {"GRPC": "PLAINTEXT"},
            "jmx_port": -1,
            "timestamp": "1",
            "features": {},
        }
        client.create(
            f"/brokers/ids/{broker_id}", msgspec.json.encode(registration), ephemeral=True, makepath=True
        )
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def commands() -> None:
        for line in sys.stdin:
            words = line.split()
            if words[:1] == ["drop"]:
                clients[int(words[1])].stop()
            print(accepted["bytes"], accepted["requests"], flush=True)
        loop.call_soon_threadsafe(done.set)

    threading.Thread(target=commands, daemon=True).start()
    await done.wait()
    for client in clients.values():
        client.stop()
    for server in servers:
        await server.stop(0)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
