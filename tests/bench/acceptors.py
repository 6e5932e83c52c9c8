"""Brokers that register, accept every control request and acknowledge it at once: the bench's other side.

Run as ``python -m tests.bench.acceptors CONNECT FIRST_ID COUNT TIMEOUT_S [hold]``; with ``hold`` they keep what they
are told, as brokers do, and can say it. Prints ``ready`` and, for each line read from standard input, how many bytes
were accepted so far. ``drop N`` ends the session of broker N, ``start N`` registers
it anew. ``keep`` lets them keep each LeaderAndIsr from now on;
``told PATH`` writes to a file when which of them was first told to lead a partition: lines of topic, partition, broker,
seconds since 1970.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
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
#: Since ``keep``: when which broker got a LeaderAndIsr. It is read later: here is no time for it.
kept: list[tuple[float, int, bytes]] = []
keeping = False


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


def _keeping(broker_id: int, leader_and_isr: Any) -> Any:
    async def serve(request: bytes, context: object) -> bytes:
        if keeping:
            kept.append((time.time(), broker_id, request))
        answer: bytes = await leader_and_isr(request, context)
        return answer

    return serve


def _write_told(path: Path) -> None:
    told: dict[tuple[str, int], tuple[int, float]] = {}
    for at, broker_id, request in kept:
        for state in pb.LeaderAndIsrRequest.FromString(request).partition_states:
            if state.leader == broker_id:
                told.setdefault((state.topic, state.partition), (broker_id, at))
    with path.open("w") as file:
        for (topic, number), (broker_id, at) in told.items():
            file.write(f"{topic} {number} {broker_id} {at:.6f}\n")


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


class _Broker:
    """One broker's registration, which ends with its session."""

    def __init__(
        self, connect: str, broker_id: int, port: int, timeout_s: float, known: ControlHandlers
    ) -> None:
        self._connect, self._path, self._timeout_s = connect, f"/brokers/ids/{broker_id}", timeout_s
        self._data, self._known = _registration(port), known
        self.start()

    def start(self) -> None:
        self._client = KazooClient(self._connect, timeout=self._timeout_s)
        self._client.start(30)
        self._client.create(self._path, self._data, ephemeral=True, makepath=True)
        self._known.registered(self._client.get(self._path)[1].czxid)

    def stop(self) -> None:
        self._client.stop()


def _command(words: Sequence[str], brokers: dict[int, _Broker]) -> None:
    global keeping
    match words:
        case ["drop", broker_id]:
            brokers[int(broker_id)].stop()
        case ["start", broker_id]:
            brokers[int(broker_id)].start()
        case ["keep"]:
            kept.clear()
            keeping = True
        case ["told", path]:
            keeping = False
            _write_told(Path(path))
            kept.clear()


async def serve(connect: str, first: int, count: int, timeout_s: float, hold: bool) -> None:
    brokers: dict[int, _Broker] = {}
    servers = []  # a server that nobody holds is collected, and stops
    for broker_id in range(first, first + count):
        server = grpc.aio.server(options=[("grpc.max_receive_message_length", 64 * 2**20)])
        handlers = ControlHandlers(broker_id, _NoDisk(), _NoLog())
        methods = dict(_holding(handlers) if hold else _PLAIN)
        methods["LeaderAndIsr"] = _keeping(broker_id, methods["LeaderAndIsr"])
        served: dict[str, Any] = {
            name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, served),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        servers.append(server)
        brokers[broker_id] = await asyncio.to_thread(_Broker, connect, broker_id, port, timeout_s, handlers)
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def commands() -> None:
        for line in sys.stdin:
            _command(line.split(), brokers)
            print(accepted["bytes"], accepted["requests"], flush=True)
        loop.call_soon_threadsafe(done.set)

    threading.Thread(target=commands, daemon=True).start()
    await done.wait()
    for broker in brokers.values():
        broker.stop()
    for server in servers:
        await server.stop(0)


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    asyncio.run(
        serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), "hold" in sys.argv[5:])
    )
