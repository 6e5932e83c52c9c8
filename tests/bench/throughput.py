"""Writing to brokers: one partition and a hundred, alone and with two followers, against file and gRPC.

The same requests of the same size go three ways: to a real broker with acks=all, to a gRPC server that only
answers, and with ``write`` into a file. The machine's speed cancels out of the ratios.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import grpc
import grpc.aio
from rich.console import Console
from rich.table import Table

from broker_stub.client.connection import Connections
from broker_stub.client.producer import Producer
from broker_stub.log import batches
from controller.playground.cluster import Playground
from controller.runtime.zookeeper import cluster_reader
from proto.gen import broker_data_pb2 as wire
from proto.security.grpc_channels import GrpcTls

RECORD_BYTES, BATCH_RECORDS = 100, 200
#: Batches in one measurement, over all partitions.
BATCHES = 2_000
RUNS = 3
console = Console(soft_wrap=True)


def _records() -> list[tuple[bytes | None, bytes | None]]:
    return [(None, os.urandom(RECORD_BYTES)) for _ in range(BATCH_RECORDS)]


async def produce(bootstrap: list[str], topic: str, partitions: int, tls: GrpcTls | None = None) -> float:
    """Seconds until all batches are acknowledged by all in-sync replicas."""
    records = _records()
    # One batch a request, as the echo gets it.
    async with Producer(bootstrap, batch_bytes=1, connections=Connections(tls)) as producer:

        async def one(partition: int, count: int) -> None:
            for _ in range(count):
                await producer.send(topic, partition, records)

        await asyncio.gather(*(one(n, 1) for n in range(partitions)))
        began = time.perf_counter()
        await asyncio.gather(*(one(n, BATCHES // partitions) for n in range(partitions)))
        return time.perf_counter() - began


async def echo(address: str, partitions: int) -> float:
    """Seconds for as many requests of the same size, as many at once, to a server that does nothing."""
    data = batches.encode(_records(), time.time_ns() // 1_000_000)
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary(
            "/echo/Produce",
            request_serializer=wire.ProduceRequest.SerializeToString,
            response_deserializer=wire.ProduceResponse.FromString,
        )

        async def one(partition: int, count: int) -> None:
            for _ in range(count):
                part = wire.ProducePartition(topic="t", partition=partition, records=data)
                await call(wire.ProduceRequest(acks=-1, timeout_ms=1000, partitions=[part]))

        await one(0, 10)
        began = time.perf_counter()
        await asyncio.gather(*(one(n, BATCHES // partitions) for n in range(partitions)))
        return time.perf_counter() - began


def append(path: Path) -> float:
    """Seconds to write the same bytes to a file."""
    data = batches.encode(_records(), time.time_ns() // 1_000_000)
    began = time.perf_counter()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        for _ in range(BATCHES):
            os.write(fd, data)
    finally:
        os.close(fd)
    return time.perf_counter() - began


async def _prepare(cluster: Playground, topics: Iterable[tuple[str, int, int]]) -> list[str]:
    """Create the topics; bootstrap addresses."""
    async with cluster_reader.connected(cluster.connect, 20_000) as session:
        while len((seen := await cluster_reader.look(session)).brokers) < cluster.brokers:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        for name, partitions, replication in topics:
            await cluster.create_topic(session, name, (partitions, replication))
        found = [broker.control_endpoint for broker in seen.brokers.values()]
    return [f"{endpoint.host}:{endpoint.port}" for endpoint in found]


def measure(directory: Path, rows: Table) -> None:
    """All four shapes, each as a ratio to the echo and to the file."""
    shapes = [(f"bench-{p}-{r}", p, r) for p in (1, 100) for r in (1, 3)]
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.throughput"], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    address = f"127.0.0.1:{server.stdout.readline().strip()}"
    cluster = Playground(directory / "throughput", controllers=1, brokers=3)
    try:
        cluster.start()
        bootstrap = asyncio.run(_prepare(cluster, shapes))
        for name, partitions, replication in shapes:
            times, echoes, files = [], [], []
            for _ in range(RUNS):
                files.append(append(directory / "file"))
                echoes.append(asyncio.run(echo(address, partitions)))
                times.append(asyncio.run(produce(bootstrap, name, partitions)))
            _row(rows, partitions, replication, [statistics.median(x) for x in (times, echoes, files)])
    finally:
        cluster.stop()
        server.kill()
        server.wait()


def _row(rows: Table, partitions: int, replication: int, medians: list[float]) -> None:
    took, echoed, written = medians
    megabytes = BATCHES * BATCH_RECORDS * RECORD_BYTES / 1e6
    rows.add_row(
        f"produce, acks=all, {partitions} partition{'s' * (partitions > 1)}, RF {replication}",
        f"{BATCHES * BATCH_RECORDS / took:,.0f} records/s, {megabytes / took:.0f} MB/s",
        f"{BATCHES / echoed:,.0f} echoes/s; file {megabytes / written:,.0f} MB/s",
        f"{took / echoed:.1f} echo; {took / written:.0f} file",
        "",
    )
    console.print(f"  {partitions} partitions, RF {replication}: {BATCHES / took:,.0f} requests/s")


async def _serve() -> None:
    """The echo's other side: answers every request with an empty response."""

    async def behaviour(_request: bytes, _context: object) -> bytes:
        return b""

    server = grpc.aio.server()
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(behaviour)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("echo", {"Produce": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(_serve())
