"""Requests that are never finished, and too many connections: neither takes what ZooKeeper and probes need."""

from __future__ import annotations

import asyncio
import json
import shlex
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from controller.runtime.config import split_address
from proto.gen import admin_service_pb2 as pb
from proto.gen.admin_service_pb2_grpc import AdminServiceStub
from tests.support.runtime.clusters import broker_command, http, lines
from tests.support.runtime.programs import BIN, Program, program

pytestmark = pytest.mark.slow

HALF = b"GET /ready HTTP/1.1\r\nHost: x\r\n"


def few_descriptors(zookeeper: str, descriptors: int) -> list[str]:
    """A controller that may open only so many."""
    ours = f"{BIN}/partition-controller run --zookeeper={zookeeper} --grpc-listen=127.0.0.1:0 --http-listen=127.0.0.1:0"
    return [
        "/bin/sh",
        "-c",
        f"ulimit -n {descriptors}; exec {ours} --state-log-dir=log --session-timeout-ms=6000",
    ]


def connect(running: Program, sent: bytes, what: str = "http") -> socket.socket:
    made = socket.create_connection(split_address(lines(running, "listening")[0][what]), timeout=60)
    made.sendall(sent)
    return made


def is_closed(one: socket.socket) -> bool:
    """Waits for the end; what is answered before it does not matter."""
    try:
        while one.recv(65536):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("what", ["http", "grpc"])
def test_half_requests_beyond_the_descriptors(zookeeper: str, tmp_path: Path, what: str) -> None:
    with program(few_descriptors(zookeeper, 128), tmp_path) as running, ExitStack() as stack:
        running.until(lambda: bool(lines(running, "ready")))
        for _ in range(300):
            stack.enter_context(connect(running, HALF, what))
        # A probe gets through at once, and ZooKeeper's session outlives its timeout.
        assert http(running, "/ready").startswith("ready: active\n")
        assert http(running, "/ready").startswith("ready: active\n")
        assert not lines(running, "resigned")
        assert not lines(running, "session_over")
        assert len(running.said().splitlines()) < 100


def test_connections_leave_a_broker_its_descriptors(zookeeper: str, tmp_path: Path) -> None:
    """Without any it cannot use its data directory, and ends."""
    command = ["/bin/sh", "-c", f"ulimit -n 128; exec {shlex.join(broker_command(zookeeper, 1))}"]
    with program(command, tmp_path) as running, ExitStack() as stack:
        running.until(lambda: bool(lines(running, "registered")))
        said = lines(running, "listening")[0]
        for _ in range(300):
            last = stack.enter_context(socket.create_connection((said["host"], said["port"]), timeout=60))
        assert is_closed(last)
        assert "File descriptor limit reached" not in running.said()
        assert running.terminate() == 0


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", marks=pytest.mark.long),
        HALF,
        pytest.param(
            b"POST /ready HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx", marks=pytest.mark.long
        ),
    ],
)
def test_what_is_never_finished_is_ended(zookeeper: str, tmp_path: Path, sent: bytes) -> None:
    with program(few_descriptors(zookeeper, 1024), tmp_path) as running:
        running.until(lambda: bool(lines(running, "ready")))
        with connect(running, sent) as made:
            assert is_closed(made)


def test_malformed_requests_are_one_line_each_and_few(zookeeper: str, tmp_path: Path) -> None:
    with program(few_descriptors(zookeeper, 1024), tmp_path) as running:
        running.until(lambda: bool(lines(running, "ready")))
        before = len(running.said().splitlines())
        for n in range(50):
            with connect(running, f"GE\x00T /{n} HTTP/9.9\r\n\x1b[31m\r\n\r\n".encode()) as made:
                is_closed(made)
        said = running.said().splitlines()
        assert len(said) - before <= 15
        for line in said:
            json.loads(line)


async def test_calls_whose_request_never_comes_leave_room_for_others(zookeeper: str, tmp_path: Path) -> None:
    """More than there may be at a time, by one who has no right to anything."""
    with program(few_descriptors(zookeeper, 1024), tmp_path) as running:
        running.until(lambda: bool(lines(running, "ready")))
        endpoint = lines(running, "listening")[0]["grpc"]
        async with (
            grpc.aio.insecure_channel(endpoint) as channel,
            grpc.aio.insecure_channel(endpoint) as other,
        ):
            method: Any = channel.stream_unary("/partition_controller.v1.AdminService/DescribeCluster")
            calls = [method() for _ in range(1100)]
            while sum(call.done() for call in calls) < 100:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            answer = await AdminServiceStub(other).DescribeCluster(pb.DescribeClusterRequest(), timeout=60)
            assert answer.error_code == 0
            for call in calls:
                call.cancel()
