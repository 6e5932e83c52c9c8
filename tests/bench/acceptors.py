"""Brokers that register, accept every control request and acknowledge it at once: the bench's other side.

Run as ``python -m tests.bench.acceptors CONNECT FIRST_ID COUNT [hold]``; with ``hold`` they keep what they are told, as
brokers do, and can say it. Prints ``ready`` and, for each line read from
standard input, how many bytes were accepted so far. ``drop N`` ends the session of broker N, ``start N`` registers it
anew.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import msgspec
import structlog
from kazoo.client import KazooClient

from broker_stub.control.gates import ControllerTerm, UnknownTerm
from broker_stub.control.handlers import ControlHandlers
from broker_stub.control.replicas import Applied, Step
from broker_stub.control.requests import Key
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


_PLAIN = {"LeaderAndIsr": _accept, "UpdateMetadata": _accept, "StopReplica": _stop}


class _NoDisk:
    def apply(self, steps: Sequence[Step]) -> Applied:
        del steps
        return Applied({})

    def fail(self, path: Path, why: str) -> list[Key]:
        return []


class _NoLog:
    def append(self, records: object, **_: object) -> None:
        pass


def _holding(handlers: ControlHandlers) -> dict[str, Any]:
    """A broker's own handlers, without disk and log; who names a term is believed to be it."""
    kinds: dict[str, tuple[Any, Any]] = {
        "LeaderAndIsr": (handlers.leader_and_isr, pb.LeaderAndIsrRequest),
        "UpdateMetadata": (handlers.update_metadata, pb.UpdateMetadataRequest),
        "StopReplica": (handlers.stop_replica, pb.StopReplicaRequest),
        "DescribeState": (handlers.describe_state, pb.DescribeStateRequest),
    }

    def served(method: str) -> Any:
        handle, kind = kinds[method]

        async def serve(request: bytes, context: object) -> bytes:
            await _accept(request, context)
            try:
                answer = handle(request)
            except UnknownTerm:
                header = kind.FromString(request)
                header = header.fence if method == "DescribeState" else header
                term = ControllerTerm(
                    header.controller_epoch,
                    header.controller_epoch,
                    header.controller_epoch,
                    header.controller_id,
                )
                answer = handle(request, "", term)
            found: bytes = answer.SerializeToString()
            return found

        return serve

    return {method: served(method) for method in kinds}


def _registration(port: int) -> bytes:
    return msgspec.json.encode(
        {
            "version": 5,
            "host": "127.0.0.1",
            "port": port,
            "endpoints": [f"GRPC://127.0.0.1:{port}"],
            "listener_security_protocol_map": {"GRPC": "PLAINTEXT"},
            "jmx_port": -1,
            "timestamp": "1",
            "features": {},
        }
    )


async def serve(connect: str, first: int, count: int, hold: bool) -> None:
    clients: dict[int, KazooClient] = {}
    ports: dict[int, int] = {}
    everyone: dict[int, ControlHandlers] = {}
    servers = []  # a server that nobody holds is collected, and stops

    def register(broker_id: int) -> None:
        client = clients[broker_id] = KazooClient(connect, timeout=30)
        client.start(30)
        path = f"/brokers/ids/{broker_id}"
        client.create(path, _registration(ports[broker_id]), ephemeral=True, makepath=True)
        everyone[broker_id].registered(client.get(path)[1].czxid)

    for broker_id in range(first, first + count):
        server = grpc.aio.server(options=[("grpc.max_receive_message_length", 64 * 2**20)])
        handlers = ControlHandlers(broker_id, _NoDisk(), _NoLog())
        methods = _holding(handlers) if hold else _PLAIN
        served: dict[str, Any] = {
            name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, served),))
        ports[broker_id] = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        servers.append(server)
        everyone[broker_id] = handlers
        await asyncio.to_thread(register, broker_id)
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def commands() -> None:
        for line in sys.stdin:
            words = line.split()
            if words[:1] == ["drop"]:
                clients[int(words[1])].stop()
            if words[:1] == ["start"]:
                register(int(words[1]))
            print(accepted["bytes"], accepted["requests"], flush=True)
        loop.call_soon_threadsafe(done.set)

    threading.Thread(target=commands, daemon=True).start()
    await done.wait()
    for client in clients.values():
        client.stop()
    for server in servers:
        await server.stop(0)


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), "hold" in sys.argv[4:]))
